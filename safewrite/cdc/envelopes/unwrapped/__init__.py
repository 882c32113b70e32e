"""Debezium's events after ``ExtractNewRecordState``: rows, with what is known of their change in columns or headers."""
