"""Calls each writer as its users do, behind one way to create, open and append."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

DYNAMODB, OBJECT_STORE, DELTALAKE = "safewrite dynamodb", "safewrite object-store", "deltalake"
LOCAL = "safewrite local"
ALONE = "alone"
"""How an arm is called whose writers share no commit: ``safewrite dynamodb alone``."""
STAGED = "uploads alone"
"""How an arm is called that uploads files and commits none."""
SAFE = (DYNAMODB, OBJECT_STORE)
ARMS = (*SAFE, DELTALAKE)

Append = Callable[..., int | None]
"""``append(frame, key=None)``: the attempts it took, None where the library does not say."""


def named(key: str | None) -> dict[str, str]:
    """The argument that names a write, where there is a name."""
    return {} if key is None else {"key": key}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a table is, and how to get there."""

    uri: str
    lock_table: str = "locks"
    storage_options: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for another process."""
        return asdict(self)


def preload(arm: str) -> None:
    """Import what an arm needs, without a client or a thread."""
    if arm == DELTALAKE:
        import deltalake  # noqa: F401
    else:
        import botocore.auth
        import botocore.httpsession  # noqa: F401

        import safewrite  # noqa: F401


def create(arm: str, place: Place, schema: pa.Schema, *, properties: Mapping[str, str] | None = None) -> None:
    """Create an empty table; for safewrite the lock table too, if it is not there."""
    if arm.startswith(DELTALAKE):
        from deltalake import DeltaTable

        options = dict(place.storage_options)
        DeltaTable.create(place.uri, schema, configuration=dict(properties or {}), storage_options=options)
        return
    import safewrite as sw

    sw.create(place.uri, schema, properties=properties, **settings(arm, place))


def opened(arm: str, place: Place) -> Append:
    """Open a table once; the handle is used for every append."""
    if arm.startswith(DELTALAKE):
        from deltalake import DeltaTable, write_deltalake

        handle = DeltaTable(place.uri, storage_options=dict(place.storage_options))

        def append_by_handle(frame: Any, key: str | None = None) -> None:
            write_deltalake(handle, frame, mode="append")

        return append_by_handle
    import safewrite as sw

    table = sw.open(place.uri, **settings(arm, place))
    if arm == STAGED:
        return lambda frame, key=None: stage(table, frame)
    return lambda frame, key=None: table.append(frame, **named(key)).attempts


def stage(table: Any, frame: pa.Table, folder: str = "") -> None:
    """Encode and upload rows as an append does, and no more."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from safewrite.protocol.effects import Ok, Put

    out = pa.BufferOutputStream()
    pq.write_table(frame, out)
    path = f"{folder}part-{table.world.new_id()}.parquet"
    answer = table.world.perform(Put(path, out.getvalue().to_pybytes(), name="stage.put_data"))
    assert isinstance(answer, Ok), answer


def opened_many(arm: str, place: Place, events: int, name: str) -> Append:
    """Open a table once; each call commits a frame as so many events, each under its own key."""
    import safewrite as sw

    table = sw.open(place.uri, **settings(arm, place))
    numbers = itertools.count()

    def append_events(frame: Any, key: str | None = None) -> int:
        number, rows = next(numbers), frame.num_rows // events
        pairs = [(f"{name}-{number}-{at}", frame.slice(at * rows, rows)) for at in range(events)]
        receipts = []
        for answer in table.append_many(pairs):
            if not isinstance(answer, sw.Receipt):
                raise answer
            receipts.append(answer)
        return receipts[0].attempts

    return append_events


def opening(arm: str, place: Place) -> Append:
    """Open the table again at each append, as a function does that keeps nothing between two events."""
    if arm.startswith(DELTALAKE):
        from deltalake import write_deltalake

        options = dict(place.storage_options)

        def append_by_uri(frame: Any, key: str | None = None) -> None:
            write_deltalake(place.uri, frame, mode="append", storage_options=options)

        return append_by_uri
    return lambda frame, key=None: opened(arm, place)(frame, key)


def rows_in(place: Place) -> int:
    """Rows of the table, as deltalake reads its log: a reader that is not the writer under test."""
    return sum(_counts(place))


def files_in(place: Place) -> int:
    """Data files of the table, as deltalake reads its log."""
    return len(_counts(place))


def versions_in(place: Place) -> int:
    """Versions of the table after the one that created it."""
    from deltalake import DeltaTable

    return DeltaTable(place.uri, storage_options=dict(place.storage_options)).version()


def _counts(place: Place) -> list[int]:
    """The rows of each data file."""
    from deltalake import DeltaTable

    table = DeltaTable(place.uri, storage_options=dict(place.storage_options))
    counts: list[int] = table.get_add_actions(flatten=True).column("num_records").to_pylist()
    return counts


def settings(arm: str, place: Place) -> dict[str, Any]:
    """The settings that safewrite opens the table with."""
    if arm == LOCAL:
        return {}
    name = arm.removesuffix(f" {ALONE}")
    chosen = {"lock_table": place.lock_table} if name == DYNAMODB else {"arbiter": "object-store"}
    if name != arm:
        chosen["group"] = "never"
    return {**chosen, "storage_options": dict(place.storage_options)}


def schema() -> pa.Schema:
    """The schema of the tables that are appended to: readings of sensors."""
    import pyarrow as pa

    return pa.schema(
        [
            ("id", pa.int64()),
            ("at", pa.timestamp("us", "UTC")),
            ("sensor", pa.string()),
            ("value", pa.float64()),
            ("quality", pa.int64()),
        ]
    )


def frame_of(rows: int) -> pd.DataFrame:
    """The frame that the writers append."""
    return make_frame(rows)


def make_frame(rows: int) -> pd.DataFrame:
    """A pandas frame of that schema."""
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(rows)
    times = np.datetime64("2026-01-01", "us") + np.arange(rows).astype("timedelta64[s]")
    return pd.DataFrame(
        {
            "id": np.arange(rows),
            "at": pd.DatetimeIndex(times, tz="UTC"),
            "sensor": pd.Series([f"sensor-{number % 97}" for number in range(rows)], dtype="str"),
            "value": rng.standard_normal(rows),
            "quality": rng.integers(0, 5, rows),
        }
    )
