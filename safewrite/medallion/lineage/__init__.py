"""Follows bronze by what its commits added, and reads tables of other engines."""
