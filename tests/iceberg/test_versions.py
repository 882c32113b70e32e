"""The oldest PyIceberg that safewrite works with writes in an environment of its own; ours reads what it wrote."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import safewrite as sw
from bench.servers.catalogs import load
from safewrite.testing.faults import FaultKind, RequestStep, Rule
from tests.iceberg.places import Place, check
from tests.servers import CatalogLab

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(os.environ.get("SAFEWRITE_ARMS_DIR", ROOT / ".envs")) / "pyiceberg-0.11" / "bin" / "python"
LEFT = [1, 2, 7, 30, 40, 50, 60]


def write(name: str, properties: dict[str, str]) -> dict[str, Any]:
    """Let the other version write; what came of it."""
    assert PYTHON.exists(), "make arms builds the environment of the other PyIceberg"
    done = subprocess.run(
        [PYTHON, "-m", "tests.iceberg.other_version", name, json.dumps(properties)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def check_session(found: dict[str, Any]) -> None:
    """Everything came of it that was to come of it."""
    assert found["pyiceberg"] == "0.11.1"
    assert found["again"]
    assert found["batch"] == found["repeat"] == "already_committed"
    assert found["mismatch"] == "replay_mismatch"
    assert found["resolved"]
    assert found["ids"] == LEFT


@pytest.mark.long
@pytest.mark.parametrize("lab", ["rest"], indirect=True)
def test_the_other_version_writes_once_while_every_third_commit_loses_its_answer(
    lab: CatalogLab, place: Place
) -> None:
    before = lab.commits.fired()
    lab.commits.plan(Rule(kind=FaultKind.LOST_ANSWER, steps=(RequestStep.CATALOG_COMMIT,), every=3))
    check_session(write(place.name, dict(place.through(lab).properties)))
    assert lab.commits.fired() > before
    lab.commits.clear()
    check(place, *LEFT)
    notes = Counter(place.plain().scan().to_arrow()["note"].to_pylist())
    assert notes == {None: 4, "merged": 1, "lost": 1, "user": 1}
    place.open().append(place.plain().scan(row_filter="id = 7").to_arrow(), key="by-ours")
    assert place.ids()[7] == 2


@pytest.mark.long
def test_the_other_version_writes_a_sql_catalog_on_sqlite(tmp_path: Path) -> None:
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": (tmp_path / "files").as_uri(),
    }
    check_session(write("db.t", properties))
    with contextlib.closing(load(properties)) as catalog:
        table = catalog.load_table("db.t")
        assert Counter(table.scan().to_arrow()["id"].to_pylist()) == Counter(LEFT)
        receipt = sw.open("db.t", catalog=catalog).resolve("lost")
        assert receipt is not None
        assert receipt.version in {snapshot.snapshot_id for snapshot in table.snapshots()}
