"""Takes the records of Kafka into the driver through Spark, and asks Kafka what it has."""
