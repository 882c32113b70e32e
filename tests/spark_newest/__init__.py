"""The newest PySpark, which no jar of Delta or Iceberg is made for: ``make test-spark-newest``."""
