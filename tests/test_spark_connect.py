"""A frame of Spark Connect is refused at once, by an error that says what to do; no part of a Java process is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import safewrite as sw
import safewrite.spark


def _made(name: str, **has: Any) -> Any:
    """An object of PySpark's client, which has nothing else."""
    kind = type(name, (), has)
    kind.__module__ = f"pyspark.sql.connect.{name.lower()}"
    return kind()


@pytest.mark.parametrize("verb", ["append", "overwrite", "apply_changes", "sink"])
def test_a_frame_of_connect_is_refused_by_what_to_do_instead(verb: str, tmp_path: Path) -> None:
    frame = _made("DataFrame", sparkSession=_made("SparkSession"))
    table = sw.create(str(tmp_path / "t"), pa.schema({"id": pa.int64(), "seq": pa.int64()}))
    changes = {"keys": ["id"], "sequence_by": ["seq"]}
    calls = {
        "append": lambda: table.append(frame, key="one"),
        "overwrite": lambda: table.overwrite(frame, key="one"),
        "apply_changes": lambda: table.apply_changes(frame, key="one", **changes),
        "sink": lambda: table.sink("append", app_id="orders")(frame, 0),
    }
    with pytest.raises(sw.InvalidInputError, match=r"Connect.*toArrow\(\), key=.*toArrow\(\), txn="):
        calls[verb]()
    with pytest.raises(sw.InvalidInputError, match="Spark Connect"):
        safewrite.spark.attach(frame.sparkSession)
    assert (table.row_count(), table.version) == (0, 0)
