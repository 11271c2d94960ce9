"""The program `xce`: one module a command."""
