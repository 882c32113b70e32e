"""Explores every interleaving of writers, with a fault at every step."""
