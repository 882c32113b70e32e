"""Runs the command history: which commits does a table have, and which writes do they carry?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from safewrite.cli.shared import Screen, connect_to, grid_of, plain
from safewrite.cli.target import Target, on_table
from safewrite.protocol.ask import Limits
from safewrite.stores.world import run
from safewrite.table.history import CommittedWrite, HistoryEntry, checked_limit, no_version

if TYPE_CHECKING:
    from rich.console import Console

Commits = list[HistoryEntry] | list[CommittedWrite] | None


@on_table
def history(
    screen: Screen,
    target: Target,
    *,
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", help="The newest N commits (default: all)."),
    ] = None,
    commit: Annotated[
        int | None,
        typer.Option(
            "--commit", metavar="VERSION",
            help="Every write of this one commit: a Delta version or an Iceberg snapshot id.",
        ),
    ] = None,
) -> None:  # fmt: skip
    """List a table's commits, newest first: time, operation, engine, rows, and the writes that each carries."""
    with screen.errors():
        checked_limit(limit)
        place, found = (_delta if target.catalog is None else _iceberg)(target, limit, commit)
        if found is None:
            assert commit is not None
            raise no_version(commit, place)
    shown = [one.to_dict() for one in found]
    if commit is None:
        screen.show({"table": place, "history": shown}, lambda console: _print(console, found))
    else:
        answer = {"table": place, "version": commit, "writes": shown}
        screen.show(answer, lambda console: _print_writes(console, found))


def _delta(target: Target, limit: int | None, commit: int | None) -> tuple[str, Commits]:
    from safewrite.delta import history as delta
    from safewrite.delta.log.snapshot import load
    from safewrite.delta.opening import not_there

    connection = connect_to(target.table, target.lock_table, target.arbiter, target.options)
    state = run(load(), connection.world)
    if state is None:
        raise not_there(connection.address.uri)
    if commit is None:
        return connection.address.uri, run(delta.history(state, limit, Limits()), connection.world)
    return connection.address.uri, run(delta.committed_writes(commit, Limits()), connection.world)


def _iceberg(target: Target, limit: int | None, commit: int | None) -> tuple[str, Commits]:
    connection = target.look()
    from safewrite.iceberg import history as iceberg  # PyIceberg is known to be there now
    from safewrite.iceberg.maintenance.verify import read_head
    from safewrite.iceberg.metadata import table_of

    head = read_head(connection)
    world = connection.world(head)
    world.table = table_of(head)
    if commit is None:
        return connection.table_name, run(iceberg.history(head, limit, Limits()), world)
    return connection.table_name, run(iceberg.committed_writes(head, commit, Limits()), world)


def _print(console: Console, found: Sequence[Any]) -> None:
    if not found:
        console.print("no commits")
        return
    grid = grid_of("version", "time (UTC)", "operation", "engine", "added", "removed", "writes")
    for entry in found:
        time = "" if entry.timestamp is None else f"{entry.timestamp:%Y-%m-%d %H:%M:%S}"
        texts = (plain(text or "") for text in (entry.operation, entry.engine))
        numbers = ("" if rows is None else str(rows) for rows in (entry.rows_added, entry.rows_removed))
        grid.add_row(str(entry.version), time, *texts, *numbers, plain(_writes(entry)))
    console.print(grid)


def _writes(entry: HistoryEntry) -> str:
    more = entry.write_count - len(entry.writes)
    return ", ".join(
        [*map(_name, entry.writes), *([f"and {more} more (--commit {entry.version})"] if more else [])]
    )


def _name(write: CommittedWrite) -> str:
    if write.key is not None or write.txn is None:
        return str(write.key)
    app_id, version = write.txn
    return f"batch {version} of {app_id}"


def _print_writes(console: Console, found: Sequence[Any]) -> None:
    if not found:
        console.print("the commit names no writes")
        return
    grid = grid_of("key", "app id", "batch", "rows", "fingerprint")
    for write in found:
        app_id, batch = write.txn or ("", "")
        cells = (write.key, app_id, batch, write.rows, write.fingerprint)
        grid.add_row(*(plain("" if cell is None else str(cell)) for cell in cells))
    console.print(grid)
