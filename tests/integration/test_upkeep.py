"""Upkeep on S3 beside writers: whoever commits, each row is there once, and small files become few."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

import safewrite as sw
from tests.integration.places import Place, once, rows

APPENDS, DELETES = 8, 4


@pytest.mark.sweep("object-store")
def test_appends_deletes_and_two_maintainers_at_once_leave_every_row_once(s3_place: Place) -> None:
    """Rows are deleted that upkeep moves meanwhile."""
    s3_place.open(create=True).append_many([(f"first-{number}", rows(number)) for number in range(DELETES)])
    for number in range(DELETES, 3 * DELETES):
        s3_place.open().append(rows(number), key=f"first-{number}")
    errors = list[BaseException]()

    def append(table: sw.Table) -> None:
        for number in range(100, 100 + APPENDS):
            table.append(rows(number), key=f"append-{number}")

    def delete(table: sw.Table) -> None:
        for number in range(DELETES):
            table.delete(f"id = {number}", key=f"delete-{number}")

    def maintain(table: sw.Table) -> None:
        for _ in range(3):
            table.refresh().maintain()

    def run(work: Callable[[sw.Table], None], table: sw.Table) -> None:
        try:
            work(table)
        except BaseException as error:  # noqa: BLE001 - told to the test
            errors.append(error)

    threads = [
        threading.Thread(target=run, args=(work, s3_place.open()))
        for work in (append, delete, maintain, maintain)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    s3_place.open().maintain()
    expected = once(*range(DELETES, 3 * DELETES), *range(100, 100 + APPENDS))
    assert s3_place.ids() == s3_place.replayed_ids() == expected
    assert s3_place.open().maintain().files_before < len(expected) / 3
