"""Reads and writes the Delta log: commits, checkpoints, schemas, features."""
