"""Commands on the lock table: list, create, clear."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Console

from safewrite.cli.shared import (
    EXIT_LOST,
    ArbiterOption,
    DryRun,
    Endpoint,
    LockTable,
    OutputOption,
    Region,
    Screen,
    StorageOption,
    TableArg,
    grid_of,
    options_of,
    plain,
    show_steps,
)
from safewrite.connect import shared_client
from safewrite.delta import mend
from safewrite.delta.survey import SCAN_PAGES_MAX, Survey, survey
from safewrite.errors import InvalidInputError
from safewrite.options import DEFAULT_LOCK_TABLE
from safewrite.protocol.effects import Ok, Outcome, Queue

locks = typer.Typer(
    help="Look at the lock table, create it, clear what dropped tables left.", no_args_is_help=True
)


def _look_at_locks(
    table: str, lock_table: str | None, arbiter: str | None, options: Mapping[str, str]
) -> Survey:
    found = survey(table, lock_table=lock_table, arbiter=arbiter, storage_options=options)
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


def _look_at_iceberg(table: str, lock_table: str, options: Mapping[str, str]) -> dict[str, Any]:
    """What a lock table holds of an Iceberg table: keys whose commit was not noted, and the queue."""
    from botocore.exceptions import BotoCoreError, ClientError

    from safewrite.stores.dynamodb import ICEBERG, aws_ledger

    client = shared_client("dynamodb", None, options)
    ledger, queue = aws_ledger(client, lock_table, table.removeprefix(ICEBERG))
    try:
        records, whole = ledger.records(SCAN_PAGES_MAX)
    except (BotoCoreError, ClientError) as error:
        raise InvalidInputError(
            f"The lock table {lock_table!r} cannot be read: {type(error).__name__}: {error}. Nothing was written. "
            "Name the one that the table's writers use with --lock-table, or check region and permissions."
        ) from error
    opened = [
        {"key": one.key, "base_snapshot": one.base_version, "in_doubt_at": one.in_doubt_at}
        for one in sorted(records, key=lambda one: one.key)
        if one.version is None
    ]
    return {
        "table": table, "lock_table": lock_table, "open_keys": opened, "committed_keys": len(records) - len(opened),
        "whole": whole, "queue": _counters(queue.read()),
    }  # fmt: skip


def _show_iceberg(console: Console, found: Mapping[str, Any]) -> None:
    grid = grid_of("key without a noted commit", "base snapshot", "in doubt at")
    for row in found["open_keys"]:
        grid.add_row(*(plain(str(row[name])) for name in ("key", "base_snapshot", "in_doubt_at")))
    console.print(grid)
    part = "" if found["whole"] else f" (only {SCAN_PAGES_MAX} pages of the lock table were read)"
    console.print(f"{found['committed_keys']} keys with a noted commit{part}")
    console.print(_queue_line(found["queue"]))


def _counters(answer: Outcome) -> dict[str, int]:
    queue = answer.value if isinstance(answer, Ok) and isinstance(answer.value, Queue) else Queue(0, 0)
    return {"serving": queue.serving, "next": queue.next}


def _queue_line(queue: Mapping[str, int]) -> str:
    waiting = max(0, queue["next"] - queue["serving"])
    return f"queue: {waiting} tickets not yet served (serving {queue['serving']}, next {queue['next']})"


@locks.command("list")
def list_locks(
    context: typer.Context,
    table: Annotated[
        str,
        typer.Argument(metavar="TABLE", help="s3://bucket/path, or iceberg:UUID for an Iceberg table."),
    ],
    *,
    lock_table: LockTable = None,
    arbiter: ArbiterOption = None,
    endpoint_url: Endpoint = None,
    region: Region = None,
    storage_option: StorageOption = None,
    output: OutputOption = None,
) -> None:
    """List the table's entries in the lock table, and its queue of writers."""
    from safewrite.stores.dynamodb import ICEBERG, DynamoDBQueue, spark_path

    screen = Screen(context, output)
    if table.startswith(ICEBERG):
        with screen.errors():
            options = options_of(endpoint_url, region, storage_option)
            keys = _look_at_iceberg(table, lock_table or DEFAULT_LOCK_TABLE, options)
        screen.show(keys, lambda console: _show_iceberg(console, keys))
        return
    with screen.errors():
        options = options_of(endpoint_url, region, storage_option)
        found = _look_at_locks(table, lock_table, arbiter, options)
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


@locks.command("create")
def create_lock_table(
    context: typer.Context,
    *,
    lock_table: Annotated[str, typer.Option("--lock-table", envvar="SAFEWRITE_LOCK_TABLE", help="Its name.")],
    endpoint_url: Endpoint = None,
    region: Region = None,
    storage_option: StorageOption = None,
    output: OutputOption = None,
) -> None:
    """Create the DynamoDB lock table: Spark's key schema, on-demand billing, TTL.

    One that exists is checked, and gets its TTL.
    """
    from safewrite.stores import lock_table as lock_tables

    screen = Screen(context, output)
    with screen.errors():
        client = shared_client("dynamodb", None, options_of(endpoint_url, region, storage_option))
        created = lock_tables.ensure(client, lock_table)
        if not created:
            lock_tables.enable_ttl(client, lock_table)
        problems = lock_tables.problems(client, lock_table)
    lines = [f"{lock_table} was {'created' if created else 'there already'}", *problems]
    screen.show(
        {"lock_table": lock_table, "created": created, "problems": problems},
        lambda console: console.print("\n".join(map(plain, lines)), highlight=False),
    )
    raise typer.Exit(EXIT_LOST if problems else 0)


@locks.command("clear")
def clear_locks(
    context: typer.Context,
    table: TableArg,
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
    lock_table: LockTable = None,
    arbiter: ArbiterOption = None,
    endpoint_url: Endpoint = None,
    region: Region = None,
    storage_option: StorageOption = None,
    output: OutputOption = None,
) -> None:
    """Remove entries that a dropped table left; entries of versions that the log holds stay."""
    screen = Screen(context, output)
    with screen.errors():
        options = options_of(endpoint_url, region, storage_option)
        found = _look_at_locks(table, lock_table, arbiter, options)
        if spelling is not None:
            steps = list(mend.clear_spelling(found, spelling, dry_run=dry_run))
        else:
            steps = list(mend.clear(found, force=force, dry_run=dry_run))
    show_steps(screen, found.address.uri, steps, "No entries to clear.")
