"""Does what both jobs, ``cdc`` and ``medallion``, do alike: reads a configuration, reaches tables, reports."""
