"""Lands raw files in bronze, each once."""
