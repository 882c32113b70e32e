"""Runs the command verify: is everything that was sent in the table, once?"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from safewrite.cli.shared import EXIT_LOST, Screen, plain
from safewrite.cli.target import Target, on_table
from safewrite.errors import InvalidInputError

if TYPE_CHECKING:
    from rich.console import Console

    from safewrite.findings import KeyAudit


@dataclass(frozen=True, slots=True)
class Auditor:
    """One version of a table, of either format, that can be asked for keys and for rows."""

    table: str
    version: int
    keys: Callable[[Sequence[str]], KeyAudit]
    rows: Callable[[tuple[str, ...]], Mapping[str, Sequence[Any]]]


@on_table
def verify(
    screen: Screen,
    target: Target,
    *,
    ledger: Annotated[
        list[Path],
        typer.Option(
            "--ledger", exists=True, dir_okay=False,
            help="What was sent: a file of keys, one per line, or a history of safewrite.testing; may be repeated.",
        ),
    ],
) -> None:  # fmt: skip
    """Check that everything that was sent is in the table, once.  Exits with 1 if not, or if that is unknown."""
    with screen.errors(), screen.progress():
        found = _delta(target) if target.catalog is None else _iceberg(target)
        lines = {path: _lines(path) for path in ledger}
        histories = [path for path in ledger if _is_history(lines[path])]
        sent = [key for path in ledger if path not in histories for key in lines[path]]
        answer: dict[str, Any] = {"table": found.table, "version": found.version}
        clean = True
        if not sent and not histories:
            named = ", ".join(str(path) for path in ledger)
            raise InvalidInputError(
                f"The ledger ({named}) names no key, so there is nothing that could be missing: this would prove nothing. "
                "Nothing was written. Give the file that the sender wrote its keys to."
            )
        if sent:
            keys = found.keys(sent)
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
            console.print(f"{name}: {plain(', '.join(map(str, found_keys)))}", highlight=False)
        console.print(
            "[green]Everything is there once.[/green]"
            if clean
            else "[bold red]NOT everything is there once.[/]"
        )

    screen.show(answer, text)
    raise typer.Exit(0 if clean else EXIT_LOST)


def _delta(target: Target) -> Auditor:
    from safewrite.delta.maintenance import verify as audits
    from safewrite.delta.maintenance.inspection import inspect_table

    found = inspect_table(
        target.table, lock_table=target.lock_table, arbiter=target.arbiter, storage_options=target.options
    )
    return Auditor(
        found.address.uri,
        found.head,
        keys=lambda sent: audits.audit_keys(found, sent),
        rows=lambda columns: audits.read_rows(found, columns),
    )


def _iceberg(target: Target) -> Auditor:
    connection = target.look()
    from safewrite.iceberg.maintenance import verify  # PyIceberg is known to be there now

    head = verify.read_head(connection)
    return Auditor(
        connection.table_name,
        head.current if head.current is not None else -1,
        keys=lambda sent: verify.audit_keys(connection, head, sent),
        rows=lambda columns: verify.read_rows(head, columns),
    )


def _lines(path: Path) -> list[str]:
    """The lines of a ledger that say something; a key may hold any character but a line break."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            f"The ledger {path} is not text in UTF-8 ({error.reason} at byte {error.start}). Nothing was written. Give the file "
            "that the sender wrote its keys to; one of another encoding converts `iconv -t UTF-8`."
        ) from error
    return [line for line in text.split("\n") if line.strip()]


def _is_history(lines: Sequence[str]) -> bool:
    try:
        return "event" in json.loads(lines[0])
    except (IndexError, ValueError, TypeError, RecursionError):
        return False


def _verify_rows(found: Auditor, histories: Sequence[Path]) -> tuple[dict[str, Any], bool]:
    from safewrite.testing import history
    from safewrite.testing.checker import Flaw, Read, check

    try:
        writes = history.read_writes(histories)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise InvalidInputError(
            f"The history cannot be read: {type(error).__name__}: {error}. Nothing was written. Give the files that the senders wrote."
        ) from error
    if not writes:
        raise InvalidInputError(
            "The history tells of no write, so there is nothing that could be missing: this would prove nothing. Nothing "
            "was written. Give the files that the senders wrote."
        )
    columns = found.rows(history.COLUMNS)
    verdict = check(writes, [Read.of("safewrite", columns)])
    summary = verdict.summary()
    flawed = any(summary[str(flaw)] for flaw in Flaw)
    answer = {"rows": summary, "flaws": verdict.examples()}
    return answer, not flawed and summary["unknown_absent"] == 0
