"""Filters and computed columns of a table."""
