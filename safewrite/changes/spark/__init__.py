"""Applies changes of a Spark DataFrame: the code that decides is the one of other frames, run where the rows are."""
