"""Performs effects on S3, DynamoDB, local files, SQLite and memory."""
