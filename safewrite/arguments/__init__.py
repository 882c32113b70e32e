"""Checks what callers give, before anything is read or written."""
