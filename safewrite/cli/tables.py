"""Commands on one table: doctor, resolve, repair."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console

import safewrite
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
    connect_to,
    grid_of,
    options_of,
    plain,
    show_steps,
)
from safewrite.connect import probe
from safewrite.delta import doctor as doctors
from safewrite.delta import mend
from safewrite.delta.survey import Survey, survey
from safewrite.errors import InvalidInputError, TableNotFoundError
from safewrite.findings import Severity
from safewrite.protocol.ask import Limits
from safewrite.table import Table


def doctor(
    context: typer.Context,
    table: TableArg,
    *,
    lock_table: LockTable = None,
    arbiter: ArbiterOption = None,
    endpoint_url: Endpoint = None,
    region: Region = None,
    storage_option: StorageOption = None,
    deep: Annotated[
        bool, typer.Option(help="Look for every data file, and for those that no commit names.")
    ] = False,
    probe_store: Annotated[
        bool, typer.Option("--probe", help="Write scratch objects to see whether the store keeps its word.")
    ] = False,
    output: OutputOption = None,
) -> None:
    """Find what is unsafe about a table, and how to mend it.  Exits with 1 if there is a danger."""
    screen = Screen(context, output)
    with screen.errors():
        options = options_of(endpoint_url, region, storage_option)
        found = survey(table, lock_table=lock_table, arbiter=arbiter, storage_options=options)
        findings = doctors.examine(found, storage_options=options, deep=deep, probe=probe_store)
    counts = {str(level): sum(f.severity is level for f in findings) for level in Severity}
    answer = {
        "table": found.address.uri, "version": found.head, "arbiter": found.arbiter, "lock_table": found.lock_table,
        "counts": counts, "findings": [finding.to_dict() for finding in findings],
    }  # fmt: skip

    def text(console: Console) -> None:
        console.print(f"{found.address.uri}  version {found.head}  arbiter {found.arbiter}", highlight=False)
        if not findings:
            console.print("[green]Nothing unsafe was found.[/green]")
            return
        colours = {Severity.DANGER: "bold red", Severity.WARNING: "yellow", Severity.INFO: "dim"}
        grid = grid_of("severity", "code", "what was found", "how to mend it")
        for finding in findings:
            level = f"[{colours[finding.severity]}]{finding.severity}[/]"
            grid.add_row(level, finding.code, plain(finding.message), plain(finding.mend))
        console.print(grid)

    screen.show(answer, text)
    raise typer.Exit(EXIT_LOST if counts["danger"] else 0)


def resolve(
    context: typer.Context,
    table: TableArg,
    *,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The idempotency key of the write.")],
    lock_table: LockTable = None,
    arbiter: ArbiterOption = None,
    endpoint_url: Endpoint = None,
    region: Region = None,
    storage_option: StorageOption = None,
    output: OutputOption = None,
) -> None:
    """Find out whether a write landed, without writing.

    Exits with 0 where that is certain: committed (the receipt), or not committed (outcome not_committed);
    with 1 where it may still land.
    """
    screen = Screen(context, output)
    with screen.errors():
        opened = Table(
            connect_to(table, lock_table, arbiter, options_of(endpoint_url, region, storage_option))
        )
        if opened.refresh().version < 0:
            raise TableNotFoundError(
                f"There is no Delta table at {opened.uri}. Nothing was written. Check the address."
            )
        receipt = opened.resolve(key)
    if receipt is None:
        answer: dict[str, Any] = {"outcome": "not_committed", "table": opened.uri, "key": key}
        screen.show(answer, lambda console: console.print(f"not committed: {plain(key)} is in no version"))
        return
    receipt_plain = receipt.to_dict()
    line = f"committed in version {receipt.version}: {receipt.rows} rows, fingerprint {receipt.fingerprint}"
    screen.show(receipt_plain, lambda console: console.print(line, highlight=False))


def repair(
    context: typer.Context,
    table: TableArg,
    *,
    rescue: Annotated[
        bool,
        typer.Option(
            "--rescue",
            help="Commit again, once, appends that Spark acknowledged and that vanished. If a job was run again since, "
            "its rows would then be there twice: look at --dry-run first.",
        ),
    ] = False,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Remove old temp files that no entry names.")
    ] = False,
    older_than_days: Annotated[
        float,
        typer.Option(envvar="SAFEWRITE_OLDER_THAN_DAYS", help="Age of temp files to sweep, by the store."),
    ] = 7,
    dry_run: DryRun = False,
    lock_table: LockTable = None,
    arbiter: ArbiterOption = None,
    endpoint_url: Endpoint = None,
    region: Region = None,
    storage_option: StorageOption = None,
    output: OutputOption = None,
) -> None:
    """Finish commits that somebody left unfinished; on demand rescue vanished ones and sweep temp files.

    Exits with 1 if something that should be mended could not be.
    """
    screen = Screen(context, output)
    with screen.errors():
        options = options_of(endpoint_url, region, storage_option)
        connection = connect_to(table, lock_table, arbiter, options)

        def look() -> Survey:
            seen = survey(
                table, lock_table=connection.lock_table, arbiter=connection.name, storage_options=options
            )  # fmt: skip
            if seen.entries_error is not None:
                raise InvalidInputError(
                    f"The lock table cannot be read: {seen.entries_error}. Nothing was written."
                )
            return seen

        found = look()
        recorded = found.state.properties if found.state is not None else {}
        if not dry_run:
            probe(connection, recorded)
        unfinished = {entry.temp_path for entry in found.entries if not entry.settled}
        steps = list(mend.finish(found, connection.world, dry_run=dry_run))
        if rescue:
            found = look() if steps and not dry_run else found
            steps += mend.rescue(
                found, connection.world, arbiter=connection.arbiter, limits=Limits(),
                leave=unfinished, engine_version=safewrite.__version__, dry_run=dry_run,
            )  # fmt: skip
        if sweep:
            found = look() if steps and not dry_run else found
            steps += mend.sweep(found, connection.world, older_than_days=older_than_days, dry_run=dry_run)
    show_steps(screen, connection.address.uri, steps, "Nothing to repair.")
