"""The REST API: one thin module a resource."""
