"""What a host's worker does: reconcile what is wanted with what is seen."""
