"""Lands the changes of a batch in the tables of a job."""
