"""The signatures are awswrangler's own, and docs/wrangler.md has a row for each argument."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from safewrite.wrangler.arguments import Name
from tests.test_public_surface import ENGINES, run_without
from tests.wrangler.test_arguments import CALLS, NO_EFFECT, REFUSED

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(os.environ.get("SAFEWRITE_ARMS_DIR", ROOT / ".envs")) / "awswrangler" / "bin" / "python"
PAGE = ROOT / "docs" / "wrangler.md"
THEIRS = """
import inspect, json, warnings
warnings.simplefilter("ignore")
import awswrangler as wr
calls = {"to_deltalake": wr.s3.to_deltalake, "to_iceberg": wr.athena.to_iceberg}
print(json.dumps({
    "version": wr.__version__,
    **{name: [(p.name, p.kind.name, repr(p.default)) for p in inspect.signature(call).parameters.values()]
       for name, call in calls.items()},
}))
"""


@pytest.fixture(scope="module")
def theirs() -> dict[str, Any]:
    """What awswrangler says of itself, in an environment of its own."""
    assert PYTHON.exists(), "make arms builds the environment of awswrangler"
    done = subprocess.run(
        [PYTHON, "-c", THEIRS], capture_output=True, text=True, check=False, timeout=120, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("call", CALLS)
def test_the_signature_is_awswranglers_and_only_grows_at_its_end(theirs: dict[str, Any], call: str) -> None:
    own = [
        (one.name, one.kind.name, repr(one.default))
        for one in inspect.signature(CALLS[call]).parameters.values()
    ]
    known = [tuple(one) for one in theirs[call]]
    assert theirs["version"] == "3.17.1"
    assert len(known) in (11, 26)
    assert own[: len(known)] == known
    assert {kind for _, kind, _ in own[len(known) :]} <= {"KEYWORD_ONLY", "VAR_KEYWORD"}


def rows_of(call: str) -> list[tuple[str, str]]:
    """Each argument of a call's table with its verdict, in order."""
    section = PAGE.read_text().split(f"\n## {call}\n", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| (`.+?`) \| ([a-z ]+) \|", section, re.MULTILINE)
    return [(name, verdict) for names, verdict in rows for name in re.findall(r"`(\w+)`", names)]


def arguments_of(call: str) -> list[str]:
    found = list(inspect.signature(CALLS[call]).parameters)
    assert found.pop() == "name"
    return [*found, *Name.__annotations__]


@pytest.mark.parametrize("call", CALLS)
def test_the_page_has_one_row_for_each_argument_in_its_order(call: str) -> None:
    assert [name for name, _ in rows_of(call)] == arguments_of(call)


@pytest.mark.parametrize("call", CALLS)
def test_what_the_page_calls_refused_or_without_effect_is_tested_as_that(call: str) -> None:
    verdicts = dict(rows_of(call))
    assert set(verdicts.values()) <= {"honoured", "in part", "refused", "no effect"}
    refused = {name for name, verdict in verdicts.items() if verdict in ("in part", "refused")}
    assert refused == {argument for of, argument, *_ in REFUSED.values() if of == call}
    assert {name for name, verdict in verdicts.items() if verdict == "no effect"} == (
        set(NO_EFFECT) if call == "to_iceberg" else set()
    )


def test_importing_the_calls_imports_no_engine_and_no_pandas() -> None:
    done = run_without(("awswrangler", *ENGINES), "import safewrite.wrangler; print('imported')")
    assert (done.stdout.strip(), done.stderr) == ("imported", "")
