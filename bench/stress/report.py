"""Writes what a run found: one JSON file, one self-contained HTML page, a table on the terminal."""

from __future__ import annotations

import json
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from safewrite.intake.pages import drawn
from safewrite.testing.checker import Flaw
from safewrite.testing.faults import FaultKind, RequestStep
from safewrite.testing.history import EventKind, IntendedWrite

from . import change_report, glossary, plots
from .arm import ArmResult
from .change_check import ChangeFlaw
from .plans import spark_writers
from .plans.spark_writers import ANY_MOMENT
from .run import Result

NOT_TESTED = (
    "real AWS: the stores are local stand-ins with honest conditional writes",
    "several regions, replication between them, several DynamoDB tables for one lake table",
    "DynamoDB's real TTL delay (up to days) and clock skew between machines",
    "S3 Express, bucket lifecycle rules, versioned buckets",
    "Lambda freezes of an hour; the longest pause here is the one named above",
    "loss of the machine itself (power, page cache): processes are killed, the kernel lives",
    "AWS's own Glue and S3 Tables, REST catalogs other than Iceberg's own adapter, PostgreSQL behind a pooler or a failover",
    "deletion of the files of expired snapshots while writers are at work",
)


# --- numbers --------------------------------------------------------------------------------------
def to_dict(result: Result) -> dict[str, Any]:
    """Everything that the report says, as plain values."""
    judgement = result.judgement
    settings = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in asdict(result.settings).items()
    }
    summary = {
        "verdict": str(judgement),
        "reasons": list(judgement.reasons),
        "seed": result.settings.seed,
        "replay": result.replay_command,
        "started": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(result.started_at)),
        "elapsed_s": round(result.elapsed_s, 1),
        "facts": result.facts,
        "settings": settings,
        "arms": [_arm(arm) for arm in result.arms],
        "not_tested": list(NOT_TESTED),
    }
    said = " ".join(part for part in (glossary.sentence(summary), change_report.sentence(summary)) if part)
    return {
        "sentence": said,
        "lacking": glossary.lacking(summary),
        "meaning": glossary.meaning(summary),
        **summary,
    }


def _arm(arm: ArmResult) -> dict[str, Any]:
    judged = {writer.number for writer in arm.plan.writers if writer.judged}
    counted: Callable[[int], bool] = (lambda w: w in judged) if judged else (lambda w: True)
    writes = [write for write in arm.verdict.writes if counted(write.writer)]
    spark, pauses = _spark(arm), arm.tally.pauses
    ends = sum(writer["kills"] for writer in spark)
    return {
        "name": arm.plan.name, "title": arm.plan.title, "naive": arm.plan.naive, "table": arm.table,
        "verdict": arm.label, "reasons": list(arm.judgement.reasons) if not arm.plan.naive else [],
        "processes": sum(writer.functions or 1 for writer in arm.plan.writers),  # an environment of Lambda is one
        "kinds": dict(Counter(writer.kind for writer in arm.plan.writers if not writer.chores)),
        "elapsed_s": round(arm.elapsed_s, 1), "versions": arm.versions, "live_reads": arm.live_reads,
        "rows": arm.verdict.summary(counted),
        "peers": arm.verdict.summary(lambda w: w not in judged) if judged else None,
        "catalog": arm.plan.catalog, "destroyed": arm.destroyed, "chores": _chores(arm),
        "conflicts": arm.faults[RequestStep.CATALOG_COMMIT, FaultKind.PRECONDITION_412],
        "by_kind": {kind: _speed(writes_of, arm.elapsed_s) for kind, writes_of in _by_kind(arm).items()},
        **_speed(writes, arm.elapsed_s),
        "fired": arm.fired, "faults": _matrix(arm.faults), "peer_faults": _matrix(arm.peer_faults),
        "kills": _kills(arm), "pauses": dict(sorted(pauses.items())), "restarts": arm.tally.restarts,
        "spark": spark, "spark_kills": ends,
        "faults_fired": sum(arm.faults.values()) + sum(arm.peer_faults.values()) * (not judged),
        "bitten": arm.bitten, "steps": {identity: list(names) for identity, names in arm.steps.items()}, "errors": arm.errors,
        "examples": arm.verdict.examples(3, counted), "changes": change_report.to_dict(arm),
    }  # fmt: skip


def _kills(arm: ArmResult) -> dict[str, int]:
    """Kills by step and side, but those of Spark's drivers."""
    kills = [event for event in arm.events if event.get("event") == EventKind.KILL]
    others = [kill for kill in kills if not spark_writers.is_end(arm.plan, kill)]
    return dict(sorted(Counter(f"{kill['step']}:{kill['when']}" for kill in others).items()))


def _spark(arm: ArmResult) -> list[dict[str, Any]]:
    """The Spark writers by kind, and where the lives of their drivers ended."""
    planned, came = spark_writers.planned(arm.plan), spark_writers.came(arm.plan, arm.events)
    numbers = Counter(writer.kind for writer in arm.plan.writers if writer.spark)
    return [
        {
            "kind": kind, "drivers": count, "kills": came[kind].total(), "planned": dict(planned[kind]),
            "ends": [
                {"end": end, "step": step, "when": when, "kills": kills}
                for (end, step, when), kills in sorted(came[kind].items(), key=_by_end)
            ],
        }
        for kind, count in numbers.items()
    ]  # fmt: skip


def _by_end(item: tuple[tuple[str, str, str], int]) -> tuple[int, str, str]:
    (end, step, when), _ = item
    return spark_writers.ENDS.index(end), step, when


def _chores(arm: ArmResult) -> list[dict[str, Any]]:
    """The table's chores: how often each was done, and how often rivals or faults prevented it."""
    rounds: dict[str, list[bool]] = {}
    for event in arm.chores:
        rounds.setdefault(event["chore"], []).append(event["done"])
    return [
        {"chore": chore, "done": sum(done), "failed": len(done) - sum(done)} for chore, done in rounds.items()
    ]


def _by_kind(arm: ArmResult) -> dict[str, list[IntendedWrite]]:
    grouped: dict[str, list[IntendedWrite]] = {}
    for write in arm.verdict.writes:
        grouped.setdefault(write.kind, []).append(write)
    return grouped


def _speed(writes: Sequence[IntendedWrite], elapsed_s: float) -> dict[str, Any]:
    acked = [write for write in writes if write.outcome == "ok"]
    latencies = sorted(write.elapsed_s for write in acked if write.elapsed_s is not None)
    tries = [write.tries for write in acked if write.tries is not None]
    versions = {write.version for write in acked if write.version is not None}
    return {
        "acked_commits": len(acked),
        "commits_per_s": round(len(acked) / elapsed_s, 2) if elapsed_s else 0.0,
        "acks_per_commit": round(len(acked) / len(versions), 2) if versions else None,
        "attempts_per_ack": round(statistics.fmean(tries), 2) if tries else None,
        "calls_per_ack": round(statistics.fmean(write.calls for write in acked), 2) if acked else None,
        "latency_s": {
            name: _quantile(latencies, q) for name, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
        },
    }


def _quantile(ordered: Sequence[float], q: float) -> float | None:
    return round(ordered[min(len(ordered) - 1, int(q * len(ordered)))], 3) if ordered else None


def _matrix(counts: Counter[tuple[str, str]]) -> dict[str, dict[str, int]]:
    """Counts by step, then by kind of fault."""
    matrix: dict[str, dict[str, int]] = {}
    for (step, kind), count in sorted(counts.items()):
        matrix.setdefault(step, {})[kind] = count
    return matrix


# --- files ------------------------------------------------------------------------------------------
def write(result: Result, summary: dict[str, Any], folder: Path) -> Path:
    """Write ``report.json`` and ``report.html`` under ``folder``; returns the page."""
    (folder / "report.json").write_text(json.dumps(summary, indent=1))
    page = folder / "report.html"
    page.write_text(render(result, summary))
    return page


def render(result: Result, summary: dict[str, Any]) -> str:
    """The page: no script, no link to anything outside."""
    figures = {
        arm.plan.name: {
            "timeline": plots.timeline(arm), "latency": plots.latency(arm), "tries": plots.tries(arm),
        }
        for arm in result.arms
        if not arm.plan.naive
    }  # fmt: skip
    return drawn(
        Path(__file__).parent / "templates" / "report.html.j2", "cli,stress",
        {"number": lambda value: "–" if value is None else f"{value:,}"},
        title=f"safewrite stress: {summary['verdict']}, seed {summary['seed']}", run=summary, figures=figures, bars=[_bar(arm) for arm in summary["arms"] if not arm["changes"]], flaws=[str(flaw) for flaw in Flaw],
        words=glossary.WORDS, key_flaws=[str(flaw) for flaw in ChangeFlaw],
    )  # fmt: skip


def _bar(arm: dict[str, Any]) -> dict[str, Any]:
    """The percentages of an arm's acked rows that are there once, lost, and doubled."""
    rows = arm["rows"]
    acked, twice = max(1, rows["acked_rows"]), glossary.doubled(rows)
    lost = 100 * rows["lost"] / acked
    doubled = 100 * min(acked, twice) / acked
    return {
        "title": arm["title"], "acked": rows["acked_rows"], "lost": rows["lost"], "doubled": twice,
        "shares": {"once": max(0.0, 100 - lost - doubled), "lost": lost, "doubled": doubled},
    }  # fmt: skip


# --- terminal ---------------------------------------------------------------------------------------
def show(result: Result, summary: dict[str, Any], console: Console, folder: Path) -> None:
    """The closing table and the verdict."""
    # Arms as columns, so that it fits a terminal of 80.
    table = Table(title=f"{summary['elapsed_s']} s, seed {summary['seed']}", box=box.SIMPLE_HEAD)
    table.add_column("")
    arms = [arm for arm in summary["arms"] if not arm["changes"]]
    for arm in arms:
        heading = arm["name"].replace("-", "\n")
        table.add_column(heading, justify="right", style="yellow" if arm["naive"] else "")
    columns = [_cells(arm) for arm in arms]
    for name in columns[0] if columns else ():
        table.add_row(name, *(str(cells[name]) for cells in columns))
    for found in (table, change_report.table(summary)):
        if found.row_count:
            console.print(found)
    ends = _table_of_ends(summary)
    if ends.row_count:
        console.print(ends)
    colour = {"valid": "green", "INVALID": "red"}.get(summary["verdict"], "yellow")
    for name in ("bitten", "torn", "phantom", "zombie", "unknown") + (
        ("revived", "stale") if len(arms) < len(summary["arms"]) else ()
    ):
        console.print(f"[bold]{name}[/bold]: {glossary.WORDS[name]}", highlight=False, style="dim")
    console.print()
    console.print(f"verdict: [{colour}]{summary['verdict']}[/{colour}]. {summary['meaning']}")
    for reason in summary["reasons"]:
        console.print(f"  {reason}", highlight=False, markup=False)
    if summary["lacking"]:
        console.print(summary["lacking"], highlight=False, markup=False)
    console.print(summary["sentence"], highlight=False, markup=False, style="bold")
    if summary["verdict"] != "valid":
        console.print(f"replay: {summary['replay']}", highlight=False, markup=False, soft_wrap=True)
    console.print(f"report: {folder / 'report.html'}", highlight=False, soft_wrap=True)


def _cells(arm: dict[str, Any]) -> dict[str, object]:
    rows = arm["rows"]
    flaws = {name: rows[name] for name in ("torn", "altered", "phantom", "zombie")}
    return {
        "verdict": "destroyed" if arm["destroyed"] else arm["verdict"], "processes": arm["processes"], "kinds": len(arm["kinds"]),
        "acked rows": f"{rows['acked_rows']:,}", "lost": f"{rows['lost']:,}",
        "doubled": f"{glossary.doubled(rows):,}", **flaws, "unknown": rows["unknown"],
        "acks/s": f"{arm['commits_per_s']:.1f}", "tries/ack": arm["attempts_per_ack"] or "–",
        "acks/commit": arm["acks_per_commit"] or "–",
        "faults": arm["faults_fired"], "kills": sum(arm["kills"].values()) + arm["spark_kills"],
        "pauses": sum(arm["pauses"].values()),
    }  # fmt: skip


def _table_of_ends(summary: dict[str, Any]) -> Table:
    """Where the lives of Spark's drivers ended: a line for each kind of end, its steps counted."""
    table = Table(title="Ends of Spark drivers", box=box.SIMPLE_HEAD)
    for name in ("arm", "writer", "killed", "times", "steps"):
        table.add_column(name, justify="right" if name == "times" else "left")
    for arm in summary["arms"]:
        for writer in arm["spark"]:
            for end, wanted in writer["planned"].items():
                here = [one for one in writer["ends"] if one["end"] == end]
                steps = Counter(one["step"] for one in here for _ in range(one["kills"]))
                named = ", ".join(f"{step} {count}" for step, count in steps.items())
                times = f"{steps.total()} of {wanted}"
                table.add_row(arm["name"], writer["kind"], end, times, named if end != ANY_MOMENT else "")
    return table
