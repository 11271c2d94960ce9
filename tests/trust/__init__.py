"""Who may see and do what: other users of a host, other hosts, and whoever reads a log."""
