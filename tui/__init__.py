"""The operator's view in a terminal, drawn from what app.client brings."""
