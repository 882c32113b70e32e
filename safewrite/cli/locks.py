"""Lists and clears what the lock table holds of one table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from safewrite.arguments.options import DEFAULT_LOCK_TABLE
from safewrite.cli import lock_table
from safewrite.cli.shared import DryRun, Screen, grid_of, plain, show_steps
from safewrite.cli.target import Target, on_table
from safewrite.errors import InvalidInputError, StorageError
from safewrite.protocol.effects import Ok, Outcome
from safewrite.protocol.values import LedgerRecord, Queue, sequence_noted
from safewrite.stores.clients import shared_client

if TYPE_CHECKING:
    from rich.console import Console

    from safewrite.delta.maintenance.inspection import Inspection

locks = typer.Typer(
    help="Create, check and watch a lock table; list and clear what it holds of a table.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


KEYS_MAX = 10_000
"""How many keys of an Iceberg table are read from its catalog's database."""


def _look_at_locks(target: Target) -> Inspection:
    from safewrite.delta.maintenance.inspection import inspect_table

    found = inspect_table(
        target.table, lock_table=target.lock_table, arbiter=target.arbiter, storage_options=target.options
    )
    if found.lock_table is None:
        raise InvalidInputError(
            f"{found.address.uri} has no lock table (arbiter {found.arbiter}). Nothing was written. Name one with "
            "--lock-table."
        )
    if found.entries_error is not None:
        raise InvalidInputError(
            f"The lock table {found.lock_table!r} cannot be read: {found.entries_error}. Nothing was written. Create "
            f"it with `safewrite locks create --lock-table {found.lock_table}`, or check region and permissions."
        )
    return found


# --- Iceberg --------------------------------------------------------------------------------------
def _look_at_uuid(target: Target) -> dict[str, Any]:
    """Read what a lock table holds of the Iceberg table with this UUID."""
    from safewrite.stores.dynamodb import ICEBERG

    client = shared_client("dynamodb", None, target.options)
    table_id = target.table.removeprefix(ICEBERG)
    return _in_dynamodb(target.table, client, target.lock_table or DEFAULT_LOCK_TABLE, table_id)


def _look_at_catalog(target: Target) -> dict[str, Any]:
    """Read ledger and queue of an Iceberg table: in the lock table, or in the catalog's own database."""
    connection = target.look()
    from safewrite.iceberg import ledger_place
    from safewrite.iceberg.maintenance.verify import read_head

    head = read_head(connection)
    table_id = head.table_id
    if connection.lock_table is not None:
        place = connection.table_name, connection.dynamodb, connection.lock_table
        found = _in_dynamodb(*place, table_id, scope=head.scope)
        return found | {"table_id": table_id}
    if connection.objects:
        raise InvalidInputError(
            f"{connection.table_name} has no queue, and its keys are objects under {ledger_place.place(connection, head)}. "
            "Nothing was written. Ask for one with `safewrite resolve`; or name the lock table, if its writers use one, "
            "with --lock-table."
        )
    if not connection.helpers.ledger:
        raise InvalidInputError(
            f"{connection.table_name} has no ledger and no queue (its UUID is {table_id}). Nothing was written. Name the "
            "lock table that its writers use with --lock-table; in a SQL catalog the first writer makes both."
        )
    from safewrite.stores.sql import SqlLedger, SqlQueue

    engine = connection.catalog.engine  # type: ignore[attr-defined]
    answer = SqlLedger(engine, head.scope).records(KEYS_MAX)
    if not isinstance(answer, Ok):
        detail = getattr(answer, "detail", answer)
        raise StorageError(
            f"The catalog's database did not answer: {detail}. Nothing was written. Try again."
        )
    assert isinstance(answer.value, tuple)
    records, whole = answer.value
    document = _document(connection.table_name, records, whole, SqlQueue(engine, table_id).read())
    return document | {"lock_table": None, "table_id": table_id}


def _in_dynamodb(
    table: str, client: Any, lock_table: str, table_id: str, *, scope: str | None = None
) -> dict[str, Any]:
    from botocore.exceptions import BotoCoreError, ClientError

    from safewrite.stores.dynamodb_ledger import aws_ledger
    from safewrite.stores.remembered import SCAN_PAGES_MAX

    ledger, queue = aws_ledger(client, lock_table, table_id, scope)
    try:
        records, whole = ledger.records(SCAN_PAGES_MAX)
    except (BotoCoreError, ClientError) as error:
        raise InvalidInputError(
            f"The lock table {lock_table!r} cannot be read: {type(error).__name__}: {error}. Nothing was written. "
            "Name the one that the table's writers use with --lock-table, or check region and permissions."
        ) from error
    return _document(table, records, whole, queue.read()) | {"lock_table": lock_table}


def _document(table: str, records: list[LedgerRecord], whole: bool, queue: Outcome) -> dict[str, Any]:
    """Keys whose commit was not noted, how many others there are, and the queue."""
    opened = [
        {
            "key": one.key,
            "base_snapshot": _snapshot(one.base_version),
            "in_doubt_at": _snapshot(one.in_doubt_at),
            "may_land_through": sequence_noted(one.in_doubt_at),
        }
        for one in sorted(records, key=lambda one: one.key)
        if one.version is None
    ]
    return {
        "table": table, "open_keys": opened, "committed_keys": len(records) - len(opened), "whole": whole,
        "queue": _counters(queue),
    }  # fmt: skip


def _snapshot(noted: int | None) -> int | None:
    """The snapshot that a record names; ids are positive, other numbers stand for none and for sequence numbers."""
    return noted if noted is not None and noted >= 0 else None


def _show_iceberg(console: Console, found: Mapping[str, Any]) -> None:
    names = ("key", "base_snapshot", "in_doubt_at", "may_land_through")
    grid = grid_of(
        "key without a noted commit", "base snapshot", "in doubt at", "may land through sequence number"
    )
    for row in found["open_keys"]:
        grid.add_row(*(plain("" if row[name] is None else str(row[name])) for name in names))
    console.print(grid)
    part = "" if found["whole"] else " (only a part of them was read)"
    console.print(f"{found['committed_keys']} keys with a noted commit{part}")
    console.print(_queue_line(found["queue"]))


def _counters(answer: Outcome) -> dict[str, int]:
    queue = answer.value if isinstance(answer, Ok) and isinstance(answer.value, Queue) else Queue(0, 0)
    return {"serving": queue.serving, "next": queue.next}


def _queue_line(queue: Mapping[str, int]) -> str:
    waiting = max(0, queue["next"] - queue["serving"])
    return f"queue: {waiting} tickets not yet served (serving {queue['serving']}, next {queue['next']})"


@locks.command("list")
@on_table
def list_locks(screen: Screen, target: Target) -> None:
    """List what guards a table: its entries in the lock table, or its keys, and its queue of writers.

    An Iceberg table is named as db.table with --catalog, or, where its UUID is known, as iceberg:UUID.
    """
    from safewrite.stores.dynamodb import ICEBERG, DynamoDBQueue, spark_path

    if target.catalog is not None or target.table.startswith(ICEBERG):
        with screen.errors():
            keys = _look_at_uuid(target) if target.catalog is None else _look_at_catalog(target)
        screen.show(keys, lambda console: _show_iceberg(console, keys))
        return
    with screen.errors():
        found = _look_at_locks(target)
        answer = DynamoDBQueue(found.dynamodb, found.lock_table or "", spark_path(found.address.uri)).read()
    queue = _counters(answer)
    entries = [
        {
            "version": found.version(entry), "complete": entry.complete, "stale": found.stale(entry),
            "temp_path": entry.temp_path, "expire_time_s": entry.expire_time_s, "table_id": entry.table_id,
        }
        for entry in found.entries
    ]  # fmt: skip

    def text(console: Console) -> None:
        grid = grid_of("version", "complete", "stale", "temp file")
        for row in entries:
            grid.add_row(*(str(row[name]) for name in ("version", "complete", "stale", "temp_path")))
        console.print(grid)
        console.print(_queue_line(queue))

    document = {
        "table": found.address.uri, "lock_table": found.lock_table, "entries": entries,
        "queue": queue,
    }  # fmt: skip
    screen.show(document, text)


locks.command("create")(lock_table.create)
locks.command("check")(lock_table.check)
locks.command("watch")(lock_table.watch)


@locks.command("clear")
@on_table
def clear_locks(
    screen: Screen,
    target: Target,
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Also the entry of the next version, if its temp file is gone.")
    ] = False,
    spelling: Annotated[
        str | None,
        typer.Option(
            "--spelling", help="Instead: finished entries under this other spelling of the table's path."
        ),
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Remove entries that a dropped Delta table left; entries of versions that the log holds stay.

    An Iceberg table has nothing to clear: its keys expire by themselves.
    """
    from safewrite.delta.maintenance import repair

    with screen.errors():
        if target.catalog is not None:
            target.refuse("locks clear")
        found = _look_at_locks(target)
        if spelling is not None:
            steps = list(repair.clear_spelling(found, spelling, dry_run=dry_run))
        else:
            steps = list(repair.clear(found, force=force, dry_run=dry_run))
    show_steps(screen, found.address.uri, steps, "No entries to clear.")
