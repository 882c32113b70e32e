"""Arrays of no values need have no offsets, and Java sends none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import safewrite as sw
from safewrite.boundary.absent_offsets import with_offsets


def no_lists() -> pa.Array:
    """No lists, and no offsets of them."""
    return pa.Array.from_buffers(
        pa.list_(pa.float64()), 0, [None, None], children=[pa.array([], pa.float64())]
    )


def one_of(kind: Any, *children: pa.Array) -> pa.Array:
    """One empty list or map of these."""
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(b"\0" * 8)], children=[*children])


def cases() -> dict[str, pa.Array]:
    inner = no_lists()
    entries = pa.StructArray.from_arrays([pa.array([], pa.string()), inner], names=["key", "value"])
    in_list = one_of(pa.list_(inner.type), inner)
    return {
        "list": in_list,
        "map": one_of(pa.map_(pa.string(), inner.type), entries),
        "struct": pa.StructArray.from_arrays([in_list], names=["a"]),
        "fixed": pa.Array.from_buffers(pa.list_(inner.type, 2), 0, [None], children=[inner]),
        "top": inner,
    }


@pytest.mark.parametrize("name", [*cases()])
def test_what_lacks_offsets_gets_them(name: str) -> None:
    array = cases()[name]
    for rows in (pa.record_batch([array], ["x"]), pa.table({"x": pa.chunked_array([array, array])})):
        found = with_offsets(rows)
        assert found.schema == rows.schema
        assert found.nbytes >= 0  # else the process ends here
        assert found.to_pylist() == rows.to_pylist()
        assert with_offsets(found) is found


def test_rows_that_have_their_offsets_are_not_copied() -> None:
    rows = pa.table({"a": [1], "b": [[["x"], []]], "c": [{"d": [[]]}]})
    assert with_offsets(rows) is rows


CHILD = """
import sys
import safewrite as sw
from tests.test_absent_offsets import cases
import pyarrow as pa
found = cases()
table = pa.table({name: found[name] for name in ("list", "map", "struct")})
print(sw.open(sys.argv[1], create=True).append(table, key="a").rows)
"""


def test_a_users_table_without_offsets_lands(tmp_path: Path) -> None:
    """In a process of its own, which such a table ended with a signal."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path / "t")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "1"), done.stderr
    assert sw.open(str(tmp_path / "t")).row_count() == 1
