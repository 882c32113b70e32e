"""What effects run on: S3, DynamoDB, local files, SQLite, memory; and the world that joins them."""
