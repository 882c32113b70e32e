"""Medallion jobs on files of a source whose truth is known: what is lost, and what it costs."""
