"""The tests of xce."""
