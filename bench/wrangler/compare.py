"""Makes the same calls with safewrite, and judges each: equal, refused with a reason, or different."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safewrite as sw
from bench.wrangler.calls import DELTA, ICEBERG, REFUSED, Call
from bench.wrangler.theirs import left
from safewrite.wrangler import to_deltalake, to_iceberg

ROOT = Path(__file__).parents[2]
AWSWRANGLER = ROOT / ".envs" / "awswrangler" / "bin" / "python"
KEPT = Path(__file__).parent / "theirs.json"
"""What awswrangler's calls left when they were made last."""


@dataclass(frozen=True)
class Judged:
    """One call: ``verdict`` is ``equal``, ``refused`` (by safewrite alone, nothing lost) or ``different``."""

    call: str
    says: str
    verdict: str
    why: str = ""


def theirs() -> dict[str, Any]:
    """What awswrangler's calls leave, made now in its own environment."""
    made = subprocess.run(
        [AWSWRANGLER, "-W", "ignore", "-m", "bench.wrangler.theirs"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
        text=True,
    )
    found: dict[str, Any] = json.loads(made.stdout)
    return found


def judge(kept: Mapping[str, Any]) -> Iterator[Judged]:
    """Each call, after safewrite made it too."""
    for call in DELTA:
        ours = json.loads(json.dumps(left(call, to_deltalake), default=repr))
        yield _judged("to_deltalake", call, kept[call.says], ours)
    with tempfile.TemporaryDirectory() as folder:
        catalog = {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": folder}
        for call in ICEBERG:
            wanted: dict[str, Any] = (
                {REFUSED: ""} if call.then == REFUSED else {"rows": sorted(map(_spelled, call.then))}
            )
            wanted |= {"types": dict(call.types)} if call.types else {}
            yield _judged("to_iceberg", call, wanted, _left(call, catalog))


def _left(call: Call, catalog: dict[str, str]) -> dict[str, Any]:
    name = f"t_{uuid.uuid4().hex}"
    for frame, given in call.first:
        to_iceberg(frame(), "db", name, catalog=catalog, create_namespace=True, **given)
    try:
        to_iceberg(call.frame(), "db", name, catalog=catalog, create_namespace=True, **call.given)
    except sw.SafewriteError as error:
        return {REFUSED: f"{type(error).__name__}: {error}"}
    table = sw.open(f"db.{name}", catalog=catalog).iceberg
    fields = {one.name: str(one.field_type) for one in table.schema().fields}
    types = {"types": {column: fields[column] for column, _ in call.types}} if call.types else {}
    return {"rows": sorted(map(_spelled, table.scan().to_arrow().to_pylist()))} | types


def _spelled(row: Mapping[str, Any]) -> str:
    return repr(dict(sorted(row.items())))


def _judged(name: str, call: Call, wanted: Any, ours: Any) -> Judged:
    if (REFUSED in wanted and REFUSED in ours) or wanted == ours:
        return Judged(name, call.says, "equal")
    if REFUSED in ours:
        assert "Nothing was written" in ours[REFUSED], ours
        return Judged(name, call.says, "refused", call.why)
    return Judged(name, call.says, "different", call.why)


def page(judged: list[Judged]) -> str:
    """The count and the table, as Markdown."""
    lines = [_count(judged), "", "| call | of | safewrite | because |", "| --- | --- | --- | --- |"]
    lines += [f"| {one.says} | `{one.call}` | {one.verdict} | {one.why} |" for one in judged]
    return "\n".join(lines)


def _count(judged: list[Judged]) -> str:
    found = Counter(one.verdict for one in judged)
    return (
        f"Of {len(judged)} calls {found['equal']} leave the same (the same rows and types, or both refuse), {found['refused']} are "
        f"refused by safewrite with the reason, and {found['different']} differ:"
    )
