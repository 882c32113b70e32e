"""Change data of a real PostgreSQL through Debezium, Kafka and ``safewrite.cdc``, compared row by row at the end."""
