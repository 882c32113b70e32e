"""Runs tasks over Arrow batches: in this process, or on the executors of Spark."""
