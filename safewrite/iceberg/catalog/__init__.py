"""Asks catalogs for commits, and classifies their answers."""
