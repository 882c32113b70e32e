"""The command verify: is everything that was sent in the table, once?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from safewrite.cli.shared import (
    EXIT_LOST,
    ArbiterOption,
    Endpoint,
    LockTable,
    OutputOption,
    Region,
    Screen,
    StorageOption,
    TableArg,
    options_of,
    plain,
)
from safewrite.delta import audit as audits
from safewrite.delta.survey import Survey, survey
from safewrite.errors import InvalidInputError


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
        options = options_of(endpoint_url, region, storage_option)
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
            console.print(f"{name}: {plain(', '.join(map(str, found_keys)))}", highlight=False)
        console.print(
            "[green]Everything is there once.[/green]"
            if clean
            else "[bold red]NOT everything is there once.[/]"
        )

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
