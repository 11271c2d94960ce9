"""Typed calls to our REST API; prints nothing."""
