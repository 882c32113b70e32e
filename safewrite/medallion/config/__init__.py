"""Reads the configuration of a job and of its tables, and checks it."""
