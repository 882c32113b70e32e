"""Names what Spark does to tables of others, and the settings of other people's sessions."""

VERBS = {
    "delta": {"append": 3, "delete": 1, "merge": 1, "optimize": 1, "restore": 1},
    "iceberg": {
        "append": 3,
        "delete": 1,
        "merge": 1,
        "optimize": 1,
        "pick": 2,
        "drop partition": 1,
        "drop column": 1,
    },
}
SETTINGS: list[tuple[tuple[str, str], ...]] = [
    (),
    (("spark.sql.parquet.outputTimestampType", "INT96"),),
    (("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MILLIS"),),
    (("spark.sql.parquet.datetimeRebaseModeInWrite", "LEGACY"),),
    (("spark.sql.parser.escapedStringLiterals", "true"),),
    (("spark.sql.session.timeZone", "America/New_York"),),
    (("spark.sql.ansi.enabled", "false"),),
    (("spark.sql.caseSensitive", "true"),),
]
