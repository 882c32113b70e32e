"""Reads what converters of Kafka Connect write: JSON, Avro, their schemas and the values under them."""
