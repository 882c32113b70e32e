"""Finds the rows of a table by their keys."""
