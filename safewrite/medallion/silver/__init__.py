"""Applies what is new in bronze to silver."""
