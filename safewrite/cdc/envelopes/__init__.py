"""Decodes records of Kafka as changes, by the envelope that a source puts around its rows."""
