"""The command: ``python -m bench.cdc --changes 100000 --kills 10``; its exit code is 1 if a row differs."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.cdc import sink
from bench.cdc.modes import MODES, modes_of
from bench.cdc.rivals import NAMES
from bench.cdc.run import Outcome, Plan, run
from bench.cdc.workload import TABLES
from bench.screen import screen


def main() -> int:
    """Run, print the report, and say by the exit code whether both lakes equal PostgreSQL."""
    parser = argparse.ArgumentParser(prog="python -m bench.cdc", description=__doc__)
    parser.add_argument("--changes", type=int, default=5000, help="changes of rows in PostgreSQL")
    parser.add_argument("--kills", type=int, default=3, help="SIGKILLs of each job's driver")
    parser.add_argument(
        "--source",
        choices=["debezium", "dms", "avro", "protobuf", "maxwell", "unwrapped"],
        default="debezium",
        help="PostgreSQL behind Debezium, or a generator of AWS DMS's JSON, of Debezium's Avro or Protobuf, of Maxwell's JSON or of unwrapped events",
    )
    parser.add_argument(
        "--outages", type=int, default=0, help="how often the schema registry goes away (avro, protobuf)"
    )
    parser.add_argument("--broker-restarts", type=int, default=1)
    parser.add_argument("--batch", type=int, default=1000, help="records in a batch of a job")
    parser.add_argument(
        "--part",
        type=int,
        default=100_000,
        help="records that a driver takes at once; larger batches land in parts",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--format", choices=["delta", "iceberg", "both"], default="both")
    parser.add_argument(
        "--rivals", nargs="*", choices=[*NAMES, sink.NAME], default=[], help="who lands the same records too"
    )
    parser.add_argument("--rival-batches", type=int, default=5)
    parser.add_argument(
        "--engine", choices=["auto", "local", "spark"], default="local",
        help="where records are decoded: in the drivers, or by executors on a cluster of two workers; auto draws it for each batch",
    )  # fmt: skip
    parser.add_argument("--executor-kills", type=int, default=0, help="SIGKILLs of executors (engine spark)")
    parser.add_argument(
        "--modes",
        default="upsert",
        help="modes in which tables land by turns, so that seeds change them: " + ",".join(MODES),
    )
    parser.add_argument(
        "--sql", action="store_true", help="tables have filters and computed columns (debezium)"
    )
    parser.add_argument("--out", type=Path, default=Path("out/cdc"), help="folder of the report")
    given = parser.parse_args()
    if given.rivals and given.source != "debezium":
        parser.error("--rivals read what Debezium writes: leave out --source")
    if given.outages and given.source not in {"avro", "protobuf"}:
        parser.error("--outages are of the schema registry: use --source avro or protobuf")
    if given.executor_kills and given.engine == "local":
        parser.error("--executor-kills are of executors: use --engine spark or auto")
    modes = tuple(given.modes.split(","))
    if unknown := {*modes} - {*MODES}:
        parser.error(f"--modes: {', '.join(sorted(unknown))} is none of {', '.join(MODES)}")
    if (modes != ("upsert",) or given.sql) and given.source != "debezium":
        parser.error("--modes and --sql are of tables behind Debezium: leave out --source")
    if given.rivals and given.sql:
        parser.error("--rivals land all rows: leave out --sql")
    if given.outages and given.engine != "local":
        parser.error(
            "a driver whose executors ask the registry does not say that it waits: leave out --outages"
        )
    forms = ("delta", "iceberg") if given.format == "both" else (given.format,)
    plan = Plan(
        given.seed,
        given.changes,
        given.kills,
        given.broker_restarts,
        forms,
        given.batch,
        tuple(given.rivals),
        given.rival_batches,
        given.part,
        given.source,
        given.outages,
        given.engine,
        given.executor_kills,
        modes,
        given.sql,
    )
    console = screen()
    folder = Path(tempfile.mkdtemp(prefix="safewrite-cdc-"))
    console.print(f"files of the run: {folder}")
    outcome = run(plan, folder, console.print)
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "report.json").write_text(json.dumps(outcome.to_dict(), indent=1))
    show(outcome, console)
    return 0 if outcome.is_exact else 1


def _show_executors(outcome: Outcome, console: Console) -> None:
    """What executors did, and what was done to them."""
    console.print(
        f"{outcome.executor_kills} executors and {outcome.python_kills} Python processes of executors were killed, "
        f"{outcome.executor_hits} of them while they landed a batch"
    )
    for one in outcome.verdicts:
        console.print(
            f"{one.form}: executors landed {one.by_executors} of {one.records} records; {one.hits} of {one.kills} drivers were killed meanwhile"
        )
        for why, count in sorted(one.reasons.items(), key=lambda reason: -reason[1]):
            console.print(f"  the driver landed {count}: {why}", markup=False)
    for text in outcome.idle_faults:
        console.print(text, style="red", markup=False)


def show(outcome: Outcome, console: Console) -> None:
    """The report as tables."""
    told = ", ".join(f"{number} {what}" for what, number in outcome.workload.items())
    console.print(f"{outcome.changes} changes ({told}) in {outcome.elapsed_s:.0f} s")
    console.print(f"{outcome.topic} records in Kafka")
    grid = Table("lake", "table", "rows", "lost", "revived", "doubled", "stale")
    if outcome.plan.modes != ("upsert",):
        of_tables = modes_of(outcome.plan.modes, TABLES, outcome.plan.seed).items()
        console.print("modes: " + ", ".join(f"{table} {mode}" for table, mode in of_tables))
    for verdict in outcome.verdicts:
        for one in verdict.tables:
            numbers = (one.rows, one.lost, one.revived, one.doubled, one.stale)
            grid.add_row(verdict.form, one.table, *map(str, numbers))
    for name, tables in outcome.rivals.items():
        for one in tables:
            title = f"{name} (stopped)" if name in outcome.stopped else name
            grid.add_row(
                title, one.table, *map(str, (one.rows, one.lost, one.revived, one.doubled, one.stale))
            )
    console.print(grid)
    books = Table(
        "lake", "records in", "landed", "dead", "ignored", "batches", "kills", "broker restarts", "outages"
    )
    for verdict in outcome.verdicts:
        numbers = (
            verdict.records,
            verdict.landed,
            verdict.dead,
            verdict.ignored,
            verdict.batches,
            verdict.kills,
        )
        books.add_row(verdict.form, *map(str, numbers), str(outcome.broker_restarts), str(outcome.outages))
    console.print(books)
    if outcome.plan.engine != "local":
        _show_executors(outcome, console)
    if not outcome.is_hard:
        console.print("no transaction was under way during the snapshot: the run proves less", style="red")
    for name, why in outcome.stopped.items():
        console.print(f"{name} stopped: {why}", style="red", markup=False)
    for verdict in outcome.verdicts:
        for text in (*verdict.faults, *(example for one in verdict.tables for example in one.examples)):
            console.print(f"{verdict.form}: {text}", style="red", markup=False)


if __name__ == "__main__":
    sys.exit(main())
