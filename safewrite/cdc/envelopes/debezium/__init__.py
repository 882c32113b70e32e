"""Debezium's events, in JSON, Avro and Protobuf."""
