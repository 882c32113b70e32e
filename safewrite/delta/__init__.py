"""Opens, writes and maintains Delta tables."""
