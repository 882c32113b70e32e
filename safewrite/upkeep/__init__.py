"""Keeps tables in shape beside their writers: which files are put together, in which order, and what is said of it."""
