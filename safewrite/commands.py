"""The commands of ``safewrite``: doctor, resolve, repair, locks, verify, stress.

Exit codes: 0 all is well, 1 rows are lost, doubled or unknown (doctor: a danger was found), 2 wrong
usage or settings.  Every option can be set as ``SAFEWRITE_<NAME>`` in the environment.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table as Grid

import safewrite
from safewrite.connect import Connection, check_arbiter, connect, probe
from safewrite.delta import audit as audits
from safewrite.delta import doctor as doctors
from safewrite.delta import mend
from safewrite.delta.findings import Severity
from safewrite.delta.survey import Survey, make_client, settle, survey
from safewrite.errors import (
    InvalidInputError,
    MissingExtraError,
    SafewriteError,
    TableNotFoundError,
    UnsafeConfigError,
)
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Ok, Queue
from safewrite.table import Table

USAGE = (InvalidInputError, UnsafeConfigError, TableNotFoundError, MissingExtraError)
EXIT_LOST, EXIT_USAGE = 1, 2

app = typer.Typer(
    name="safewrite",
    help="Look after Delta tables with many writers: find what is unsafe, resolve, repair, verify, stress.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
locks = typer.Typer(help="Look at the lock table, create it, clear what dropped tables left.", no_args_is_help=True)
app.add_typer(locks, name="locks")


class Output(StrEnum):
    """How a command answers."""

    TEXT = "text"
    JSON = "json"


class Level(StrEnum):
    """Least severe log line that is shown, on standard error."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


TableArg = Annotated[str, typer.Argument(metavar="TABLE", help="s3://bucket/path, or a local path.")]
LockTable = Annotated[
    str | None,
    typer.Option(
        "--lock-table", envvar="SAFEWRITE_LOCK_TABLE", help="DynamoDB lock table (default: what the table records)."
    ),
]
ArbiterOption = Annotated[
    str | None,
    typer.Option("--arbiter", envvar="SAFEWRITE_ARBITER", help="dynamodb or object-store (default: as recorded)."),
]
Endpoint = Annotated[
    str | None,
    typer.Option("--endpoint-url", envvar="SAFEWRITE_ENDPOINT_URL", help="URL of the S3 and DynamoDB to talk to."),
]
Region = Annotated[str | None, typer.Option("--region", envvar="SAFEWRITE_REGION", help="AWS region.")]
StorageOption = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option", metavar="KEY=VALUE", envvar="SAFEWRITE_STORAGE_OPTION",
        help="A storage option, such as AWS_ENDPOINT_URL_DYNAMODB=...; may be repeated.",
    ),
]  # fmt: skip
OutputOption = Annotated[
    Output | None, typer.Option("--output", envvar="SAFEWRITE_OUTPUT", help="text (default) or json.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]


@app.callback(invoke_without_command=True)
def _main(
    context: typer.Context,
    output: OutputOption = None,
    log_level: Annotated[Level, typer.Option(envvar="SAFEWRITE_LOG_LEVEL")] = Level.WARNING,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        typer.echo(f"safewrite {safewrite.__version__}")
        raise typer.Exit
    context.obj = output
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(EXIT_USAGE)
    logging.basicConfig(level=log_level.value.upper(), format="%(levelname)s %(name)s: %(message)s")



# --- what the commands share --------------------------------------------------------------------------
class Screen:
    """Where answers go: rich text, or one JSON document."""

    def __init__(self, context: typer.Context, output: Output | None) -> None:
        self.json = (output or context.find_root().obj or Output.TEXT) is Output.JSON
        self.console = Console(soft_wrap=False)
        if not self.console.is_terminal:
            self.console = Console(width=160)  # a pipe has no width of its own

    def show(self, answer: Mapping[str, Any], text: Callable[[Console], None]) -> None:
        """Print the answer, as JSON or by ``text``."""
        if self.json:
            typer.echo(json.dumps(answer, indent=1, default=str))
        else:
            text(self.console)

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Turn safewrite's errors into a message and an exit code."""
        try:
            yield
        except SafewriteError as error:
            if self.json:
                typer.echo(json.dumps({"error": {"kind": error.kind.value, "message": error.message, "key": error.key}}))
            else:
                typer.echo(f"{type(error).__name__} ({error.kind.value}): {error.message}", err=True)
            raise typer.Exit(EXIT_USAGE if isinstance(error, USAGE) else EXIT_LOST) from error


def _options(endpoint_url: str | None, region: str | None, storage_option: Sequence[str] | None) -> dict[str, str]:
    options = {}
    for text in storage_option or ():
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--storage-option")
        options[name] = value
    if endpoint_url:
        options["AWS_ENDPOINT_URL"] = endpoint_url
    if region:
        options["AWS_REGION"] = region
    return options


def _connect(table: str, lock_table: str | None, arbiter: str | None, options: Mapping[str, str]) -> Connection:
    settled, name = settle(table, lock_table=lock_table, arbiter=arbiter, storage_options=options)
    return connect(table, lock_table=name, arbiter=settled, storage_options=options, boto3_session=None)


def _grid(*columns: str) -> Grid:
    grid = Grid(show_lines=False, header_style="bold")
    for column in columns:
        grid.add_column(column, overflow="fold")
    return grid


# --- doctor -----------------------------------------------------------------------------------------
@app.command()
def doctor(
    context: typer.Context,
    table: TableArg,
    *,
    lock_table: LockTable = None,
    arbiter: ArbiterOption = None,
    endpoint_url: Endpoint = None,
    region: Region = None,
    storage_option: StorageOption = None,
    deep: Annotated[bool, typer.Option(help="Look for every data file, and for those that no commit names.")] = False,
    probe_store: Annotated[
        bool, typer.Option("--probe", help="Write scratch objects to see whether the store keeps its word.")
    ] = False,
    output: OutputOption = None,
) -> None:
    """Find what is unsafe about a table, and how to mend it.  Exits with 1 if there is a danger."""
    screen = Screen(context, output)
    with screen.errors():
        options = _options(endpoint_url, region, storage_option)
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
        grid = _grid("severity", "code", "what was found", "how to mend it")
        for finding in findings:
            level = f"[{colours[finding.severity]}]{finding.severity}[/]"
            grid.add_row(level, finding.code, _plain(finding.message), _plain(finding.mend))
        console.print(grid)

    screen.show(answer, text)
    raise typer.Exit(EXIT_LOST if counts["danger"] else 0)


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)


# --- resolve ----------------------------------------------------------------------------------------
@app.command()
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
        opened = Table(_connect(table, lock_table, arbiter, _options(endpoint_url, region, storage_option)))
        if opened.refresh().version < 0:
            raise TableNotFoundError(f"There is no Delta table at {opened.uri}. Nothing was written. Check the address.")
        receipt = opened.resolve(key)
    if receipt is None:
        answer: dict[str, Any] = {"outcome": "not_committed", "table": opened.uri, "key": key}
        screen.show(answer, lambda console: console.print(f"not committed: {_plain(key)} is in no version"))
        return
    receipt_plain = receipt.to_dict()
    line = f"committed in version {receipt.version}: {receipt.rows} rows, fingerprint {receipt.fingerprint}"
    screen.show(receipt_plain, lambda console: console.print(line, highlight=False))


# --- repair -----------------------------------------------------------------------------------------
@app.command()
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
    sweep: Annotated[bool, typer.Option("--sweep", help="Remove old temp files that no entry names.")] = False,
    older_than_days: Annotated[
        float, typer.Option(envvar="SAFEWRITE_OLDER_THAN_DAYS", help="Age of temp files to sweep, by the store.")
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
        options = _options(endpoint_url, region, storage_option)
        connection = _connect(table, lock_table, arbiter, options)

        def look() -> Survey:
            seen = survey(
                table, lock_table=connection.lock_table, arbiter=connection.name, storage_options=options
            )  # fmt: skip
            if seen.entries_error is not None:
                raise InvalidInputError(f"The lock table cannot be read: {seen.entries_error}. Nothing was written.")
            return seen

        found = look()
        recorded = found.state.properties if found.state is not None else {}
        check_arbiter(connection, recorded)
        if not dry_run:
            probe(connection, recorded)
        steps = list(mend.finish(found, connection.world, dry_run=dry_run))
        if rescue:
            found = look() if steps and not dry_run else found
            steps += mend.rescue(found, connection.world, connection.arbiter, limits=Limits(), dry_run=dry_run)
        if sweep:
            found = look() if steps and not dry_run else found
            steps += mend.sweep(found, connection.world, older_than_days=older_than_days, dry_run=dry_run)
    _show_steps(screen, connection.address.uri, steps, "Nothing to repair.")


def _show_steps(screen: Screen, table: str, steps: Sequence[mend.Step], nothing: str) -> None:
    def text(console: Console) -> None:
        if not steps:
            console.print(nothing)
            return
        grid = _grid("action", "status", "file", "version", "rows", "detail")
        for step in steps:
            numbers = ("" if number is None else str(number) for number in (step.version, step.rows))
            grid.add_row(step.action, step.status, _plain(step.target), *numbers, _plain(step.detail))
        console.print(grid)

    screen.show({"table": table, "steps": [step.to_dict() for step in steps]}, text)
    unmended = any(
        step.status == "failed" or (step.status == "skipped" and step.action == "rescue") for step in steps
    )
    raise typer.Exit(EXIT_LOST if unmended else 0)


# --- locks ------------------------------------------------------------------------------------------
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


@locks.command("list")
def list_locks(
    context: typer.Context,
    table: TableArg,
    *,
    lock_table: LockTable = None,
    arbiter: ArbiterOption = None,
    endpoint_url: Endpoint = None,
    region: Region = None,
    storage_option: StorageOption = None,
    output: OutputOption = None,
) -> None:
    """List the table's entries in the lock table, and its queue of writers."""
    from safewrite.stores.dynamodb import DynamoDBQueue, spark_path

    screen = Screen(context, output)
    with screen.errors():
        options = _options(endpoint_url, region, storage_option)
        found = _look_at_locks(table, lock_table, arbiter, options)
        answer = DynamoDBQueue(found.dynamodb, found.lock_table or "", spark_path(found.address.uri)).read()
    queue = answer.value if isinstance(answer, Ok) and isinstance(answer.value, Queue) else Queue(0, 0)
    entries = [
        {
            "version": found.version(entry), "complete": entry.complete, "stale": found.stale(entry),
            "temp_path": entry.temp_path, "expire_time_s": entry.expire_time_s, "table_id": entry.table_id,
        }
        for entry in found.entries
    ]  # fmt: skip
    waiting = max(0, queue.next - queue.serving)

    def text(console: Console) -> None:
        grid = _grid("version", "complete", "stale", "temp file")
        for row in entries:
            grid.add_row(*(str(row[name]) for name in ("version", "complete", "stale", "temp_path")))
        console.print(grid)
        console.print(f"queue: {waiting} tickets not yet served (serving {queue.serving}, next {queue.next})")

    document = {
        "table": found.address.uri, "lock_table": found.lock_table, "entries": entries,
        "queue": {"serving": queue.serving, "next": queue.next},
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
    """Create the DynamoDB lock table: Spark's key schema, on-demand billing, TTL.  One that exists is checked."""
    from safewrite.stores import lock_table as lock_tables

    screen = Screen(context, output)
    with screen.errors():
        client = make_client("dynamodb", _options(endpoint_url, region, storage_option))
        created = lock_tables.ensure(client, lock_table)
        problems = lock_tables.problems(client, lock_table)
    lines = [f"{lock_table} was {'created' if created else 'there already'}", *problems]
    screen.show(
        {"lock_table": lock_table, "created": created, "problems": problems},
        lambda console: console.print("\n".join(map(_plain, lines)), highlight=False),
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
        options = _options(endpoint_url, region, storage_option)
        found = _look_at_locks(table, lock_table, arbiter, options)
        steps = list(mend.clear(found, force=force, dry_run=dry_run))
    _show_steps(screen, found.address.uri, steps, "No entries of a dropped table.")


# --- verify -----------------------------------------------------------------------------------------
@app.command()
def verify(
    context: typer.Context,
    table: TableArg,
    *,
    ledger: Annotated[
        list[Path],
        typer.Option(
            "--ledger", exists=True, dir_okay=False,
            help="What was sent: a file of keys, one per line, or a history of safewrite.testing; may be repeated.",
        ),
    ],
    lock_table: LockTable = None,
    arbiter: ArbiterOption = None,
    endpoint_url: Endpoint = None,
    region: Region = None,
    storage_option: StorageOption = None,
    output: OutputOption = None,
) -> None:  # fmt: skip
    """Check that everything that was sent is in the table, once.  Exits with 1 if not, or if that is unknown."""
    screen = Screen(context, output)
    with screen.errors():
        options = _options(endpoint_url, region, storage_option)
        found = survey(table, lock_table=lock_table, arbiter=arbiter, storage_options=options)
        histories = [path for path in ledger if _is_history(path)]
        sent = [key for path in ledger if path not in histories for key in _keys(path)]
        answer: dict[str, Any] = {"table": found.address.uri, "version": found.head}
        clean = True
        if sent or not histories:
            keys = audits.audit_keys(found, sent)
            answer, clean = answer | keys.to_dict(), keys.clean
        if histories:
            rows, fine = _verify_rows(found, histories)
            answer, clean = answer | rows, clean and fine
    answer["clean"] = clean

    def text(console: Console) -> None:
        for part in ("keys", "rows"):
            if part in answer:
                counts = ", ".join(f"{count} {name}" for name, count in answer[part].items())
                console.print(f"{part}: {counts}", highlight=False)
        for name, found_keys in answer.get("examples", {}).items():
            console.print(f"{name}: {_plain(', '.join(map(str, found_keys)))}", highlight=False)
        console.print("[green]Everything is there once.[/green]" if clean else "[bold red]NOT everything is there once.[/]")

    screen.show(answer, text)
    raise typer.Exit(0 if clean else EXIT_LOST)


def _is_history(path: Path) -> bool:
    with path.open(encoding="utf-8") as file:
        first = next((line for line in file if line.strip()), "")
    try:
        return "event" in json.loads(first)
    except (ValueError, TypeError):
        return False


def _keys(path: Path) -> list[str]:
    return [line.rstrip("\r\n") for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def _verify_rows(found: Survey, histories: Sequence[Path]) -> tuple[dict[str, Any], bool]:
    from safewrite.testing import history
    from safewrite.testing.checker import Flaw, Read, check

    try:
        writes = history.read_writes(histories)
    except (ValueError, KeyError) as error:
        raise InvalidInputError(f"The history cannot be read: {error}. Nothing was written.") from error
    columns = audits.read_rows(found, history.COLUMNS)
    verdict = check(writes, [Read.of("safewrite", columns)])
    summary = verdict.summary()
    flawed = any(summary[str(flaw)] for flaw in Flaw)
    answer = {"rows": summary, "flaws": verdict.examples()}
    return answer, not flawed and summary["unknown_absent"] == 0


# --- stress -----------------------------------------------------------------------------------------
@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True}, add_help_option=False
)
def stress(context: typer.Context) -> None:
    """Run many writer processes on one table, under faults, and judge; takes the options of bench.stress."""
    screen = Screen(context, Output.TEXT)
    with screen.errors():
        bench = _bench()
    bench(args=list(context.args), prog_name="safewrite stress")


def _bench() -> Callable[..., Any]:
    """The stress run's own command: of the wheel's package, or of the checkout that safewrite runs from."""
    checkout = Path(safewrite.__file__).resolve().parent.parent / "bench" / "stress" / "__main__.py"
    name = "bench" if checkout.exists() else "safewrite_bench"
    if name == "safewrite_bench" and importlib.util.find_spec(name) is None:
        raise MissingExtraError(
            "The stress run is not part of this installation. Nothing was written. Install it: "
            "pip install 'safewrite[cli,stress]', or run from a checkout."
        )
    if name == "bench" and str(checkout.parents[2]) not in sys.path:
        sys.path.insert(0, str(checkout.parents[2]))
    try:
        module = importlib.import_module(f"{name}.stress.__main__")
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"The stress run needs {error.name}, which is not installed. Nothing was written. Install it: "
            "pip install 'safewrite[cli,stress]'"
        ) from error
    command: Callable[..., Any] = module.app
    return command
