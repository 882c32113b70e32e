"""Iceberg tables as the command line is told of them, and what tests do to them behind its back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

import safewrite as sw
from tests.test_cli import run, run_json

NAME = "db.orders"


@dataclass
class Place:
    """A catalog, and how the command line is told of it."""

    catalog: Catalog
    properties: Mapping[str, str]
    name: str = NAME

    @property
    def options(self) -> list[str]:
        given = [f"{key}={value}" for key, value in self.properties.items()]
        return [
            "--catalog",
            self.catalog.name,
            *(part for one in given for part in ("--catalog-property", one)),
        ]

    def open(self, **settings: Any) -> Any:
        return sw.open(self.name, catalog=self.catalog, **settings)

    def table(self) -> Table:
        return self.catalog.load_table(self.name)

    def json(self, *command: object) -> tuple[int, Any]:
        """A command on the table: ``json("doctor", "--deep")`` or ``json("locks", "list")``."""
        names = 2 if command[0] == "locks" else 1
        return run_json(*command[:names], self.name, *command[names:], *self.options)

    def text(self, *command: object) -> tuple[int, str]:
        return run(command[0], self.name, *command[1:], *self.options)

    def findings(self, *options: object) -> dict[str, Any]:
        """Doctor's findings by their code."""
        _, answer = self.json("doctor", *options)
        return {finding["code"]: finding for finding in answer["findings"]}


@contextmanager
def sqlite_place(folder: Path) -> Iterator[Place]:
    """A SQLite catalog whose table has two appends, of 2 rows and of 1."""
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": (folder / "lake").as_uri(),
    }
    catalog = load_catalog("here", **properties)
    here = Place(catalog, properties)
    orders = here.open(create=True)
    orders.append(ids(1, 2), key="event-1")
    orders.append(ids(3), key="event-2")
    try:
        yield here
    finally:
        catalog.close()


def ids(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64())})


def path_of(location: str) -> Path:
    return Path(location.removeprefix("file://"))


def data_files(table: Table) -> list[Path]:
    return [path_of(path) for path in table.inspect.files()["file_path"].to_pylist()]


def put_metadata(place: Place, change: Callable[[Any], Any]) -> None:
    """Overwrite the table's metadata file: what a careless writer would have committed."""
    from pyiceberg.serializers import ToOutputFile

    table = place.table()
    changed = change(table.metadata)
    ToOutputFile.table_metadata(changed, table.io.new_output(table.metadata_location), overwrite=True)


def data_files_at(place: Place, snapshot_id: int) -> list[Path]:
    tasks = place.table().scan(snapshot_id=snapshot_id).plan_files()
    return [path_of(task.file.file_path) for task in tasks]


def current(table: Table) -> Snapshot:
    found = table.current_snapshot()
    assert found is not None
    return found


def set_properties(place: Place, properties: dict[str, str]) -> None:
    with place.table().transaction() as transaction:
        transaction.set_properties(properties)
