"""Creates, checks and watches a DynamoDB lock table."""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING, Annotated

import typer

from safewrite.cli.shared import (
    EXIT_LOST,
    Endpoint,
    OutputOption,
    Region,
    Screen,
    StorageOption,
    check_above_zero,
    grid_of,
    options_of,
    plain,
    show_findings,
)
from safewrite.errors import StorageError
from safewrite.metrics.cloudwatch import checked_namespace, stuck_entries_line
from safewrite.stores import lock_table as lock_tables
from safewrite.stores.clients import shared_client
from safewrite.stores.lock_watch import Look, Watcher

if TYPE_CHECKING:
    from rich.console import Console

log = logging.getLogger("safewrite")

LockTableName = Annotated[str, typer.Option("--lock-table", envvar="SAFEWRITE_LOCK_TABLE", help="Its name.")]


def create(
    context: typer.Context,
    *,
    lock_table: LockTableName,
    endpoint_url: Endpoint = None,
    region: Region = None,
    storage_option: StorageOption = None,
    output: OutputOption = None,
) -> None:
    """Create the DynamoDB lock table: Spark's key schema, on-demand billing, TTL, point-in-time recovery.

    One that exists gets its TTL and its recovery; one with other keys is an error, and stays as it is.
    """
    screen = Screen(context, output)
    with screen.errors():
        client = shared_client("dynamodb", None, options_of(endpoint_url, region, storage_option))
        created = lock_tables.ensure(client, lock_table)
        if not created:
            lock_tables.require_right(client, lock_table)
            lock_tables.enable_ttl(client, lock_table)
        lock_tables.enable_recovery(client, lock_table)
        findings = lock_tables.check(client, lock_table)
    problems = [f"{finding.message} {finding.mend}" for finding in findings]
    lines = [f"{lock_table} was {'created' if created else 'there already'}", *problems]
    screen.show(
        {"lock_table": lock_table, "created": created, "problems": problems},
        lambda console: console.print("\n".join(map(plain, lines)), highlight=False),
    )
    raise typer.Exit(EXIT_LOST if problems else 0)


def check(
    context: typer.Context,
    *,
    lock_table: LockTableName,
    endpoint_url: Endpoint = None,
    region: Region = None,
    storage_option: StorageOption = None,
    output: OutputOption = None,
) -> None:
    """Check a lock table: keys, TTL, capacity, point-in-time recovery.  Exits with 1 if there is a danger."""
    screen = Screen(context, output)
    with screen.errors():
        client = shared_client("dynamodb", None, options_of(endpoint_url, region, storage_option))
        findings = lock_tables.check(client, lock_table)
    show_findings(screen, {"lock_table": lock_table}, findings, f"lock table {lock_table}")


def watch(
    context: typer.Context,
    tables: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TABLE",
            help="s3://bucket/path, or iceberg:UUID: each is read by its keys.  Without one the whole lock table is scanned.",
        ),
    ] = None,
    *,
    lock_table: LockTableName,
    older_than: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            envvar="SAFEWRITE_OLDER_THAN",
            help="Age from which a claim or a turn is shown as stuck.",
        ),
    ] = 60.0,
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", envvar="SAFEWRITE_INTERVAL", help="Pause between two looks.")
    ] = 60.0,
    once: Annotated[
        bool, typer.Option("--once", help="Look once; exits with 1 if something is stuck.")
    ] = False,
    emf: Annotated[
        bool, typer.Option("--emf", help="Print each look as a line of CloudWatch's embedded metric format.")
    ] = False,
    namespace: Annotated[
        str,
        typer.Option(envvar="SAFEWRITE_NAMESPACE", help="CloudWatch namespace of the metric StuckEntries."),
    ] = "safewrite",
    endpoint_url: Endpoint = None,
    region: Region = None,
    storage_option: StorageOption = None,
    output: OutputOption = None,
) -> None:
    """Show unfinished claims and waiting turns of a lock table, look after look; with --output json a line each.

    It writes nothing and decides nothing: the next writer finishes a claim, as does `safewrite repair`.  Ages are by the
    store's clock, from the temp file of a claim; how long a turn has not moved only a second look tells.
    """
    screen = Screen(context, output)
    with screen.errors():
        check_above_zero("seconds", older_than=older_than, interval=interval)
        options = options_of(endpoint_url, region, storage_option)
        watcher = Watcher(
            shared_client("dynamodb", None, options), lock_table, s3=shared_client("s3", None, options),
            tables=tables or (), older_than_s=older_than,
        )  # fmt: skip
        checked_namespace(namespace)
        look: Look | None = watcher.look()
    while True:
        if look is not None:
            _show(screen, lock_table, look, namespace if emf else None)
        if once:
            assert look is not None
            raise typer.Exit(EXIT_LOST if look.stuck_entries + look.stuck_turns + look.stuck_shared else 0)
        time.sleep(interval)
        look = _next(watcher)


def _next(watcher: Watcher) -> Look | None:
    """The next look; None where the lock table did not answer, which may pass."""
    try:
        return watcher.look()
    except StorageError as error:
        log.warning("%s", error.message)
        return None


def _show(screen: Screen, lock_table: str, look: Look, namespace: str | None) -> None:
    found = {"lock_table": lock_table, **look.to_dict()}
    if namespace is not None:
        typer.echo(stuck_entries_line(look.stuck_entries, lock_table, namespace=namespace, more=found))
    elif screen.json:
        typer.echo(json.dumps(found))
    else:
        _print(screen.console, look)


def _print(console: Console, look: Look) -> None:
    part = "" if look.whole else " (only a part of the lock table was read: name tables)"
    line = (
        f"{look.stuck_entries} stuck of {len(look.claims)} unfinished claims, {look.stuck_turns} stuck of "
        f"{len(look.turns)} queues with waiting writers{part}"
    )
    console.print(line, highlight=False)
    if look.claims:
        grid = grid_of("table", "version", "stuck", "age", "owner", "keys", "temp file")
        for claim in look.claims:
            grid.add_row(
                plain(claim.table), str(claim.version), _yes(claim.stuck), _seconds(claim.age_s),
                plain(claim.owner or "not known"), plain(", ".join(claim.keys)), plain(claim.temp_path),
            )  # fmt: skip
        console.print(grid)
    if look.turns:
        grid = grid_of("table", "ticket served", "waiting", "stuck", "unmoved")
        for turn in look.turns:
            cells = (str(turn.serving), str(turn.waiting), _yes(turn.stuck), _seconds(turn.unmoved_s))
            grid.add_row(plain(turn.table), *cells)
        console.print(grid)
    if look.shared:
        grid = grid_of("table", "writes that wait to share a commit", "stuck", "oldest")
        for queue in look.shared:
            grid.add_row(plain(queue.table), str(queue.waiting), _yes(queue.stuck), _seconds(queue.age_s))
        console.print(grid)


def _yes(stuck: bool) -> str:
    return "yes" if stuck else "no"


def _seconds(value: float | None) -> str:
    return "not known" if value is None else f"{value:.0f} s"
