"""The vocabulary of the REST API, shared by the API, the client and the terminal view; no rules."""
