"""Widgets that only draw what they are told."""
