"""Glue without its compare-and-set: refused at open, noticed at a commit, never sent by us (C4, C5, A13)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.catalog.glue import GlueCatalog

import safewrite as sw
from safewrite.iceberg import opening
from safewrite.testing.steps import At
from tests.iceberg.forgetful import forgetful_glue
from tests.iceberg.places import Place, check
from tests.integration.places import once, rows

pytestmark = pytest.mark.parametrize("lab", ["glue"], indirect=True)


@pytest.fixture
def forgetful(place: Place) -> Iterator[Place]:
    """The same place by a Glue that forgets what it should compare."""
    with forgetful_glue(place.properties["glue.endpoint"]) as url:
        yield replace(place, properties={**place.properties, "glue.endpoint": url})


def point_to(place: Place, metadata_location: str) -> None:
    """Set what Glue says is the table's metadata, as a writer that does not compare does."""
    glue: Any = place.catalog().glue  # type: ignore[attr-defined]
    database, name = place.name.split(".")
    table = glue.get_table(DatabaseName=database, Name=name)["Table"]
    parameters = {**table["Parameters"], "metadata_location": metadata_location}
    made = {"Name": name, "TableType": "EXTERNAL_TABLE", "Parameters": parameters}
    glue.update_table(DatabaseName=database, TableInput=made, VersionId=table["VersionId"])


def test_a_glue_that_does_not_compare_is_refused_at_open(place: Place, forgetful: Place) -> None:
    place.create(1)
    with pytest.raises(sw.UnsafeConfigError) as caught:
        forgetful.open()
    assert caught.value.kind == "dishonest_store"
    check(place, 1)
    databases: Any = place.catalog().glue  # type: ignore[attr-defined]
    names = [t["Name"] for t in databases.get_tables(DatabaseName=place.name.split(".")[0])["TableList"]]
    assert not [name for name in names if name.startswith("safewrite_probe")]


def test_a_commit_that_a_rival_overwrote_is_not_acked(
    place: Place, forgetful: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C5: both were accepted on one base; what is seen before the acknowledgement tells."""
    monkeypatch.setattr(opening, "probe", lambda *_: None)
    place.create(1)
    base = place.plain().metadata_location
    place.plain().append(rows(2))
    rivals = place.plain().metadata_location
    point_to(place, base)
    table = forgetful.open()
    table.world = trap = At(table.world, "swap.verify", "before", lambda: point_to(place, rivals))
    with pytest.raises(sw.ForeignWriterError):
        table.append(rows(3), key="event")
    assert trap.reached
    assert place.ids() == once(1, 2)


def test_a_pyiceberg_that_drops_the_version_id_cannot_commit(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C4: the guard on the client stops the request, so nothing is in doubt."""
    table = place.create(1)

    def forgets(
        self: GlueCatalog, database_name: str, table_name: str, table_input: Any, version_id: str
    ) -> None:
        self.glue.update_table(DatabaseName=database_name, TableInput=table_input, SkipArchive=True)

    monkeypatch.setattr(GlueCatalog, "_update_glue_table", forgets)
    with pytest.raises(sw.NotCommittedError, match="VersionId"):
        table.append(rows(2), key="event")
    with pytest.raises(sw.NotCommittedError, match="VersionId"):
        place.safe().append(rows(3))
    monkeypatch.undo()
    check(place, 1)
    table.append(rows(2), key="event")
    check(place, 1, 2)
