"""Defines what all rooms of a job hand on: records, batches of them, and changes."""
