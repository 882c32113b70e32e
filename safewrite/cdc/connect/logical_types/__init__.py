"""Reads the logical types of Kafka Connect and Debezium: one file for each family, one value and a column in one place."""
