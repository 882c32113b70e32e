"""Finds raw files and makes bronze rows of their records."""
