"""Lands change data of Kafka in many tables: envelopes, tables by configuration, a Spark pipeline."""
