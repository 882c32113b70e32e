"""Runs the command changes: which rows did the commits of a table bring, take away and change?"""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from safewrite.cli.shared import Screen, grid_of, plain
from safewrite.cli.target import Target, on_table

if TYPE_CHECKING:
    from rich.console import Console

    from safewrite.table.change_position import Since
    from safewrite.table.row_changes import RowChanges

KINDS = ("insert", "delete", "update_preimage", "update_postimage")


@on_table
def changes(
    screen: Screen,
    target: Target,
    *,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="POSITION",
            help="A position that this command gave, a Delta version or an Iceberg snapshot id, -1 (before the first commit), or a time "
            "such as 2026-11-21T08:00:00+00:00 (default: all rows that there are).",
        ),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(
            "--key",
            metavar="COLUMN",
            help="A column of the key by which two rows are the images of an update; may be repeated (default: as recorded).",
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            metavar="COLUMN",
            help="A column that rows come with, those of the key among them; may be repeated (default: all). Rows that differ in others alone do not differ.",
        ),
    ] = None,
    rows: Annotated[
        bool,
        typer.Option(
            "--print-rows",
            help="The rows themselves, a line of JSON each, and after each batch a line with its _position.",
        ),
    ] = False,
) -> None:
    """Say what each commit since a position did to rows, and the position to go on from."""
    with screen.errors():
        table = target.open()
        found = table.changes_since(_since(since), keys=key, columns=column)
        if rows:
            _print_rows(found)
            return
        commits: dict[int, dict[str, Any]] = {}
        for batch in found:
            one = commits.setdefault(
                batch.version,
                {"version": batch.version, "timestamp": batch.timestamp, **dict.fromkeys(KINDS, 0)},
            )
            for said in batch.rows["_change_type"].value_counts().to_pylist():
                one[said["values"]] += said["counts"]
        answer = {"table": table.uri, "position": found.position, "commits": [*commits.values()]}
        screen.show(answer, lambda console: _print(console, answer))


def _since(text: str | None) -> Since:
    """A position as it was given, a version as a number, a time as one; what is none of these is refused by the table."""
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        try:
            return dt.datetime.fromisoformat(text)
        except ValueError:
            return text


def _print_rows(found: RowChanges) -> None:
    for batch in found:
        for row in batch.rows.to_pylist():
            typer.echo(json.dumps(_json(row), ensure_ascii=False))
        typer.echo(json.dumps({"_position": batch.position}))
    typer.echo(json.dumps({"_position": found.position}))


def _json(value: Any) -> Any:
    """A value of a row as JSON has it: bytes in Base64, what JSON has no word for as a text."""
    if isinstance(value, dict):
        return {name: _json(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_json(one) for one in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if (
        value is None
        or isinstance(value, bool | int | str)
        or (isinstance(value, float) and math.isfinite(value))
    ):
        return value
    return value.isoformat() if isinstance(value, dt.datetime | dt.date | dt.time) else str(value)


def _print(console: Console, answer: dict[str, Any]) -> None:
    grid = grid_of("version", "time (UTC)", "inserted", "deleted", "updated")
    for one in answer["commits"]:
        time = "" if one["timestamp"] is None else f"{one['timestamp']:%Y-%m-%d %H:%M:%S}"
        counts = (one["insert"], one["delete"], one["update_postimage"])
        grid.add_row(str(one["version"]), time, *map(str, counts))
    if answer["commits"]:
        console.print(grid)
    else:
        console.print("no row changed")
    console.print(f"position: {plain(answer['position'] or 'none')}", highlight=False, soft_wrap=True)
