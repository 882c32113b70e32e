"""Shows type checkers the calls of users: mypy checks this file with the package, nobody runs it.

An ignore that mypy does not need is an error, so a mistake that it no longer sees is noticed.
"""

from __future__ import annotations

import safewrite as sw


def calls() -> None:
    """``safewrite.Table`` is the type of both formats; ``catalog=`` tells which one a call opens."""
    delta: sw.Table = sw.open("s3://lake/t", lock_table="locks")
    iceberg: sw.Table = sw.open("db.t", catalog={"type": "glue"}, strict=True)
    for table in (delta, iceberg):
        receipt: sw.Receipt = table.append([{"id": 1}], key="event")
        assert receipt.rows
        assert table.rows({"id": [1]}).num_rows == 1
        entries: list[sw.HistoryEntry] = table.history(limit=3)
        writes: list[sw.CommittedWrite] = table.committed_writes(entries[0].version)
        assert entries[0].writes == tuple(writes)
    sw.open("s3://lake/t").checkpoint()
    sw.open("db.t", catalog="prod").iceberg.scan()
    sw.open("s3://lake/t").iceberg  # type: ignore[attr-defined]  # noqa: B018
    sw.open("db.t", catalog="prod").checkpoint()  # type: ignore[attr-defined]
    sw.open("s3://lake/t", lock_tabel="locks")  # type: ignore[call-overload]
