"""Reads the configuration of a job, of its tables and of their columns."""
