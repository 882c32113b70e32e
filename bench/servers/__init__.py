"""Starts real servers on loopback."""
