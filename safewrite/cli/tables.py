"""Runs the commands on one table: doctor (also of Lambda functions), resolve, repair, checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

import safewrite
from safewrite.cli.shared import DryRun, Screen, connect_to, plain, show_findings, show_steps
from safewrite.cli.target import Target, on_table
from safewrite.errors import InvalidInputError, TableNotFoundError
from safewrite.findings import Finding, Step
from safewrite.protocol.ask import Limits
from safewrite.receipt import Receipt
from safewrite.stores.world import run

if TYPE_CHECKING:
    from safewrite.delta.maintenance.inspection import Inspection


# --- doctor -------------------------------------------------------------------------------------------
@partial(on_table, required=False)
def doctor(
    screen: Screen,
    target: Target,
    *,
    function: Annotated[
        list[str] | None,
        typer.Option(
            "--lambda",
            metavar="FUNCTION",
            envvar="SAFEWRITE_LAMBDA",
            help="Also a Lambda function, by name, ARN or name:alias, and its event source mappings; may be repeated.",
        ),
    ] = None,
    deep: Annotated[
        bool,
        typer.Option(
            help="Look for every data file, not for the newest 64. Delta: also for those that no commit names, and read "
            "the footers of 10,000 at most."
        ),
    ] = False,
    probe_store: Annotated[
        bool,
        typer.Option(
            "--probe",
            help="Delta: write scratch objects to see whether the store keeps its word. Iceberg: ask the catalog for a "
            "commit that it must refuse.",
        ),
    ] = False,
) -> None:
    """Find what is unsafe about a table or a Lambda function, and how to repair it.  Exits with 1 if there is a danger."""
    from safewrite.aws_lambda import mappings

    answer: dict[str, Any] = {}
    findings: list[Finding] = []
    looked: list[str] = []
    heads: list[str] = []
    if not target.table and not function:
        raise typer.BadParameter("name a table, or --lambda FUNCTION", param_hint="TABLE")
    with screen.errors():
        if target.table:
            examine = _examine_delta if target.catalog is None else _examine_iceberg
            with screen.progress():
                answer, findings = examine(target, deep=deep, probe_store=probe_store)
            looked = _looked_at(target, deep=deep, probe_store=probe_store)
            version = "none" if answer["version"] in {None, -1} else answer["version"]
            heads = [f"{answer['table']}  version {version}  arbiter {answer['arbiter']}"]
            heads += [f"{service} is asked by {client}" for service, client in answer["clients"].items()]
        elif deep or probe_store:
            raise InvalidInputError(
                "--deep and --probe are for a table, and none was named. Nothing was written."
            )
        for name in function or ():
            found = mappings.examine(name, target.options)
            findings += found.findings
            heads.append(f"{name}  timeout {found.timeout_s} s  event sources {len(found.sources)}")
            answer.setdefault("functions", []).append(found.to_dict())
            looked.append(f"settings and event source mappings of {name}")
    head, foot = "\n".join(heads), f"Looked at: {', '.join(looked)}."
    show_findings(screen, answer | {"looked_at": looked}, findings, head, foot)


def _examine_delta(target: Target, *, deep: bool, probe_store: bool) -> tuple[dict[str, Any], list[Finding]]:
    from safewrite.delta.maintenance import doctor as doctors
    from safewrite.delta.maintenance.inspection import inspect_table

    found = inspect_table(
        target.table, lock_table=target.lock_table, arbiter=target.arbiter, storage_options=target.options
    )
    findings = doctors.examine(found, storage_options=target.options, deep=deep, probe=probe_store)
    answer = {
        "table": found.address.uri, "version": found.head, "arbiter": found.arbiter, "lock_table": found.lock_table,
        "clients": _clients(target, s3=found.s3 is not None, dynamodb=found.dynamodb is not None),
    }  # fmt: skip
    return answer, findings


def _examine_iceberg(
    target: Target, *, deep: bool, probe_store: bool
) -> tuple[dict[str, Any], list[Finding]]:
    connection = target.look()
    from safewrite.iceberg.maintenance import doctor as iceberg_doctors  # PyIceberg is known to be there now

    found = iceberg_doctors.examine(connection, deep=deep, probe=probe_store)
    answer = {
        "table": connection.table_name, "version": found.version, "arbiter": "catalog", "catalog": connection.kind,
        "lock_table": connection.lock_table,
        "clients": _clients(target, s3=False, dynamodb=connection.lock_table is not None),
    }  # fmt: skip
    return answer, found.findings


def _clients(target: Target, **asked: bool) -> dict[str, str]:
    """Which client this process uses for the services that are asked."""
    from safewrite.stores.clients import described

    return {service: described(service, None, target.options) for service, used in asked.items() if used}


def _looked_at(target: Target, *, deep: bool, probe_store: bool) -> list[str]:
    """Say in words what a look at a table covers."""
    files = "all data files" if deep else "the newest 64 data files (all with --deep)"
    if target.catalog is not None:
        looked = [
            "catalog",
            "lock table",
            "format",
            "retention",
            "metadata files",
            "snapshots and keys",
            "lifecycle rules",
            files,
        ]
        return [*looked, "the catalog's word"] if probe_store else looked
    looked = [
        "settings and environment",
        "clock",
        "log",
        "checkpoints",
        "lock table",
        "other writers",
        "lifecycle rules",
        files,
    ]
    return [*looked, "the store's word"] if probe_store else looked


# --- resolve ------------------------------------------------------------------------------------------
@on_table
def resolve(
    screen: Screen,
    target: Target,
    *,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The idempotency key of the write.")],
) -> None:
    """Find out whether a write landed, without writing.

    Exits with 0 where that is certain: committed (the receipt), or not committed (outcome not_committed);
    with 1 where it may still land.
    """
    with screen.errors():
        place, receipt = (_resolve_delta if target.catalog is None else _resolve_iceberg)(target, key)
    unit = "version" if target.catalog is None else "snapshot"
    if receipt is None:
        answer: dict[str, Any] = {"outcome": "not_committed", "table": place, "key": key}
        screen.show(answer, lambda console: console.print(f"not committed: {plain(key)} is in no {unit}"))
        return
    receipt_plain = receipt.to_dict()
    line = f"committed in {unit} {receipt.version}: {receipt.rows} row{'s' * (receipt.rows != 1)}, fingerprint {receipt.fingerprint}"
    screen.show(receipt_plain, lambda console: console.print(line, highlight=False))


def _resolve_delta(target: Target, key: str) -> tuple[str, Receipt | None]:
    from safewrite.delta.format import DeltaFormat
    from safewrite.delta.log.snapshot import load
    from safewrite.delta.opening import not_there
    from safewrite.delta.table import DeltaTable

    connection = connect_to(target.table, target.lock_table, target.arbiter, target.options)
    if run(load(), connection.world) is None:
        raise not_there(connection.address.uri)
    return connection.address.uri, DeltaTable(DeltaFormat(connection)).resolve(key)


def _resolve_iceberg(target: Target, key: str) -> tuple[str, Receipt | None]:
    connection = target.look()
    from safewrite.iceberg.format import IcebergFormat
    from safewrite.iceberg.table import IcebergTable

    return connection.table_name, IcebergTable(IcebergFormat(connection)).refresh().resolve(key)


# --- repair -------------------------------------------------------------------------------------------
@on_table
def repair(
    screen: Screen,
    target: Target,
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
    set_retention: Annotated[
        bool,
        typer.Option(
            "--set-retention",
            help="Remember writes for long enough: Iceberg keeps snapshots for 15 days, Delta its log for 30.",
        ),
    ] = False,
    dry_run: DryRun = False,
) -> None:
    """Repair what is safe to repair.

    Delta: finish commits that a writer left unfinished, and writes that it left waiting for others; put keys of the log back that its
    ledger lost; on demand rescue vanished ones, sweep temp files, and let
    the log remember writes for long enough.

    Iceberg: finish writes that were left waiting for others, remove what dropped branches left in the table's properties and tags;
    on demand let the table keep snapshots for long enough.  Doctor says how to repair the rest.

    Exits with 1 if something that should be repaired could not be.
    """
    with screen.errors():
        if target.catalog is None:
            asked = Asked(rescue, sweep, older_than_days, set_retention, dry_run)
            place, steps = _repair_delta(target, asked)
            nothing = "Nothing to repair."
        else:
            given = {"--rescue": rescue, "--sweep": sweep}
            target.refuse(*(name for name, wanted in given.items() if wanted))
            place, steps = _repair_iceberg(target, set_retention, dry_run)
            nothing = "Nothing to repair. Of an Iceberg table it repairs the retention, writes that were left waiting, and what dropped branches left; doctor says what else is wrong."
    show_steps(screen, place, steps, nothing)


@dataclass(frozen=True, slots=True)
class Asked:
    """The parts of a Delta table's repair that were asked for."""

    rescue: bool
    sweep: bool
    older_than_days: float
    set_retention: bool
    dry_run: bool


def _repair_delta(target: Target, asked: Asked) -> tuple[str, list[Step]]:
    from safewrite.delta.connect import probe
    from safewrite.delta.log import retention
    from safewrite.delta.maintenance import forgotten_keys, waiting_writes
    from safewrite.delta.maintenance import repair as repairs
    from safewrite.delta.maintenance.inspection import inspect_table

    dry_run = asked.dry_run
    connection = connect_to(target.table, target.lock_table, target.arbiter, target.options)

    def look() -> Inspection:
        seen = inspect_table(
            target.table, lock_table=connection.lock_table, arbiter=connection.arbiter_name, storage_options=target.options
        )  # fmt: skip
        if seen.entries_error is not None:
            raise InvalidInputError(
                f"The lock table cannot be read: {seen.entries_error}. Nothing was written."
            )
        return seen

    found = look()
    if found.head < 0 and found.state_error is None and not found.entries:
        raise TableNotFoundError(
            f"There is no Delta table at {found.address.uri}, and no entry of one. Nothing was written. Check the address."
        )
    recorded = found.state.properties if found.state is not None else {}
    if not dry_run:
        probe(connection, recorded, Limits())
    unfinished = {entry.temp_path for entry in found.entries if not entry.settled}
    steps = list(repairs.finish(found, connection.world, dry_run=dry_run))
    steps += waiting_writes.finish(
        found, connection.world, arbiter=connection.arbiter, engine_version=safewrite.__version__, dry_run=dry_run
    )  # fmt: skip
    steps += forgotten_keys.finish(found, connection.world, dry_run=dry_run)
    if found.state_error is not None and (error := look().state_error) is not None:
        steps.append(Step("read the log", found.address.uri, "failed", error.message))
    if asked.rescue:
        found = look() if steps and not dry_run else found
        steps += repairs.rescue(
            found, connection.world, arbiter=connection.arbiter, limits=Limits(),
            leave=unfinished, engine_version=safewrite.__version__, dry_run=dry_run,
        )  # fmt: skip
    if asked.sweep:
        found = look() if steps and not dry_run else found
        steps += repairs.sweep(
            found, connection.world, older_than_days=asked.older_than_days, dry_run=dry_run
        )
    if asked.set_retention:
        found = look() if steps and not dry_run else found
        if found.state is not None:
            steps += retention.raise_retention(
                found.state, connection.world, arbiter=connection.arbiter,
                engine_version=safewrite.__version__, dry_run=dry_run,
            )  # fmt: skip
    return connection.address.uri, steps


def _repair_iceberg(target: Target, set_retention: bool, dry_run: bool) -> tuple[str, list[Step]]:
    connection = target.look()
    from safewrite.iceberg import retention as iceberg_retention
    from safewrite.iceberg.maintenance import repair as iceberg_mend
    from safewrite.iceberg.maintenance import waiting_writes
    from safewrite.iceberg.maintenance.verify import read_head
    from safewrite.iceberg.metadata import table_of
    from safewrite.iceberg.retention import KEEP

    kept = iceberg_retention.of(table_of(read_head(connection)).metadata, connection.branch)
    remembered = connection.helpers.ledger or connection.kind == "sql"
    acting = connection if dry_run else target.connect()
    steps = [
        *waiting_writes.finish(acting, dry_run=dry_run),
        *iceberg_mend.forget_branches(acting, dry_run=dry_run),
    ]
    if not kept.short or (remembered and not set_retention):
        return connection.table_name, steps
    if kept.by_branch:
        step = Step("set_retention", KEEP, "failed", "the branch has a shorter time of its own: see doctor")
    elif not set_retention:
        step = Step(
            "set_retention", KEEP, "skipped", f"it is {kept.text or 'not set'}: ask by --set-retention"
        )
    elif dry_run:
        step = Step("set_retention", KEEP, "would", f"it is {kept.text or 'not set'}")
    else:
        step = iceberg_mend.set_retention(target.connect())
    return connection.table_name, [*steps, step]


# --- checkpoint ---------------------------------------------------------------------------------------
@on_table
def checkpoint(screen: Screen, target: Target) -> None:
    """Write a checkpoint of the newest version of a Delta table, unless there is one.

    Writers make them by themselves, but not where their callers have no time for it: then this does.
    """
    from safewrite.delta.format import DeltaFormat
    from safewrite.delta.opening import not_there
    from safewrite.delta.table import DeltaTable

    with screen.errors():
        if target.catalog is not None:
            raise InvalidInputError(
                "An Iceberg table has no checkpoints: each of its snapshots is whole. Nothing was written. "
                "Give the address of a Delta table, without --catalog."
            )
        connection = connect_to(target.table, target.lock_table, target.arbiter, target.options)
        table = DeltaTable(DeltaFormat(connection)).refresh()
        if table.version < 0:
            raise not_there(connection.address.uri)
        made = table.checkpoint()
    answer = {"table": table.uri, "version": table.version, "made": made}
    line = (
        f"{'made' if made else 'there is one, or its form is left to other engines'}: version {table.version}"
    )
    screen.show(answer, lambda console: console.print(line, highlight=False))
