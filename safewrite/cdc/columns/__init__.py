"""How columns of a batch fit those of a table."""
