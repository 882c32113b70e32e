"""Reads bronze and silver as other engines do: what came in since a position, and one state as a whole."""
