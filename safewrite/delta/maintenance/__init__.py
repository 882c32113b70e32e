"""Examines and repairs Delta tables."""
