"""Situations in which comparable systems went wrong, each a test named after its case."""
