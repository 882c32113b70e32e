"""The public names, the error tree and what importing safewrite costs."""

from __future__ import annotations

import inspect
import pickle
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import safewrite
import safewrite as sw
from safewrite import errors, tables
from safewrite.errors import Kind, SafewriteError

ENGINES = ("deltalake", "pyiceberg", "pyspark", "pandas", "polars", "duckdb")
OPTIONAL = (*ENGINES, "typer", "rich", "sqlglot", "pyroaring", "hypothesis")

# Append only: a released kind is API.
RELEASED_KINDS = {
    "would_alter",
    "invalid_input",
    "replay_mismatch",
    "conflict",
    "schema_changed",
    "retries_exhausted",
    "held_back",
    "unsafe_option",
    "dishonest_store",
    "arbiter_mismatch",
    "mixed_writers",
    "retention_too_short",
    "stale_lock_entries",
    "lock_table_unusable",
    "unsupported_feature",
    "table_not_found",
    "table_exists",
    "storage",
    "data_file_damaged",
    "corrupt_log",
    "commit_unknown",
    "foreign_writer",
    "missing_extra",
    "internal",
}


def error_classes() -> list[type[SafewriteError]]:
    found = [v for v in vars(errors).values() if isinstance(v, type) and issubclass(v, SafewriteError)]
    return sorted(found, key=lambda cls: cls.__name__)


def drawn_tree() -> dict[str, tuple[str, str | None]]:
    """Class name -> (parent, extra builtin base), read from the drawing in the docstring of errors."""
    tree: dict[str, tuple[str, str | None]] = {}
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"^    ((?:│   |    )*)(?:[├└]── )?(\w+Error)\b(?: +\(also (\w+)\))?", line)
        if match is None:
            continue
        depth = 0 if "── " not in line else len(match[1]) // 4 + 1
        del above[depth:]
        tree[match[2]] = (above[-1] if above else "Exception", match[3])
        above.append(match[2])
    return tree


BLOCKER = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"{name} is blocked by the test", name=name)

sys.meta_path.insert(0, Blocker())
"""


def run_without(modules: tuple[str, ...], code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter in which importing any of modules raises ModuleNotFoundError."""
    program = f"BLOCKED = {modules!r}\n{BLOCKER}\n{code}"
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )


def test_the_public_names_are_sorted_and_each_can_be_imported() -> None:
    assert safewrite.__all__ == sorted(safewrite.__all__)
    assert [name for name in safewrite.__all__ if not hasattr(safewrite, name)] == []


def test_nothing_is_public_but_the_names_in_all() -> None:
    public = {
        name
        for name in dir(safewrite)  # with those that are loaded when they are first asked for
        if not name.startswith("_")
        and not isinstance(getattr(safewrite, name), ModuleType)
        and name != "annotations"
    }
    assert public == {name for name in safewrite.__all__ if not name.startswith("_")} | {"open"}


def test_a_star_import_leaves_the_built_in_open_alone() -> None:
    names: dict[str, object] = {}
    exec("from safewrite import *", names)
    assert "open" not in names
    assert names["create"] is safewrite.create


def test_the_public_names_are_the_api_and_every_error() -> None:
    assert {"Kind", "Outcome", "Receipt", "Table", "create"} <= set(safewrite.__all__)
    assert {cls.__name__ for cls in error_classes()} <= set(safewrite.__all__)


def test_the_error_tree_is_the_one_that_its_docstring_draws() -> None:
    actual = {}
    for cls in error_classes():
        also = [base.__name__ for base in cls.__bases__[1:]]
        actual[cls.__name__] = (cls.__bases__[0].__name__, also[0] if also else None)
    assert drawn_tree() == actual


@pytest.mark.parametrize("cls", error_classes(), ids=lambda cls: cls.__name__)
def test_an_error_survives_pickling_with_kind_key_and_notes(cls: type[SafewriteError]) -> None:
    error = cls("what happened", kind=Kind.CORRUPT_LOG, key="event-1")
    error.add_note("seen at version 7")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is cls
    assert (str(copy), copy.kind, copy.key) == ("what happened", Kind.CORRUPT_LOG, "event-1")
    assert copy.__notes__ == ["seen at version 7"]


def test_an_error_without_a_kind_has_the_kind_of_its_class() -> None:
    assert errors.WouldAlterError("x").kind is Kind.WOULD_ALTER
    assert errors.CommitUnknownError("x").kind is Kind.COMMIT_UNKNOWN


def test_kinds_are_unique_and_named_after_their_values() -> None:
    # An Enum turns a repeated value into an alias without a word; only __members__ shows it.
    assert {name: kind.value for name, kind in Kind.__members__.items()} == {
        kind.name: kind.name.lower() for kind in Kind
    }


def test_a_released_kind_never_goes_away() -> None:
    assert {kind.value for kind in Kind} >= RELEASED_KINDS


def test_importing_safewrite_imports_no_engine_and_nothing_optional() -> None:
    code = f"import safewrite, sys; print([m for m in {OPTIONAL!r} if m in sys.modules])"
    done = run_without((), code)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_an_append_works_where_no_engine_can_be_imported(tmp_path: Path) -> None:
    code = f"""
import pyarrow as pa, safewrite as sw
table = sw.open({str(tmp_path / "orders")!r}, create=True)
receipt = table.append(pa.table({{"id": [1, 2, 3]}}), key="event-1")
print(receipt.rows, receipt.outcome.value)
"""
    done = run_without(OPTIONAL, code)
    assert (done.stdout.strip(), done.stderr) == ("3 committed", "")


def test_type_checkers_see_every_setting_of_open_and_create() -> None:
    settings = set(tables.Settings.__annotations__)
    assert set(inspect.signature(sw.open).parameters) == settings | {
        "uri",
        "catalog",
        "create",
        "schema",
        "branch",
    }
    own = {"uri", "catalog", "schema", "format_version"}
    assert set(inspect.signature(sw.create).parameters) == settings | own
