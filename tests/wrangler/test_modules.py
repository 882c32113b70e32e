"""``import safewrite.wrangler as wr`` in place of awswrangler: its two writers are ours, all other names are its own."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path

import pytest

import safewrite.wrangler as wr
from tests.wrangler.test_signatures import PYTHON, ROOT

SCRIPT = """
import warnings; warnings.simplefilter("ignore")
import sys; sys.path.insert(0, {layer!r})
import awswrangler, safewrite.wrangler as wr
assert wr.s3.to_deltalake is wr.to_deltalake and wr.athena.to_iceberg is wr.to_iceberg
assert wr.s3.read_parquet is awswrangler.s3.read_parquet
assert wr.athena.read_sql_query is awswrangler.athena.read_sql_query
assert wr.catalog is awswrangler.catalog and wr.__version__ == awswrangler.__version__
assert {{"read_parquet", "to_deltalake"}} <= set(dir(wr.s3)) and "catalog" in dir(wr)
try:
    wr.s3.to_deltalake_streaming
except AttributeError as error:
    print(error)
"""


def test_t3_d7_one_import_serves_writes_and_all_other_names(tmp_path: Path) -> None:
    """T3-D7: in awswrangler's own environment, as a program that was written for it."""
    (tmp_path / "safewrite").symlink_to(ROOT / "safewrite")
    done = subprocess.run(
        [PYTHON, "-c", SCRIPT.format(layer=str(tmp_path))],
        capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "does not hand s3.to_deltalake_streaming on" in done.stdout


def test_t3_d7_without_awswrangler_the_writers_are_there_and_other_names_say_what_is_missing() -> None:
    assert "awswrangler" not in sys.modules
    assert wr.s3.to_deltalake is wr.to_deltalake
    assert wr.athena.to_iceberg is wr.to_iceberg
    for where, name in ((wr, "catalog"), (wr.s3, "read_parquet"), (wr.athena, "read_sql_query")):
        with pytest.raises(
            AttributeError, match=f"no .*{name} of its own, and awswrangler.* cannot be imported"
        ):
            getattr(where, name)
    assert not hasattr(wr, "__path_of_none__")
    assert "to_deltalake" in dir(wr.s3)
    assert "to_iceberg" in dir(wr.athena)
    assert "register_deltalake" in dir(wr)


@pytest.mark.parametrize("name", ["to_deltalake_streaming", "to_iceberg"])
def test_t3_d7_a_writer_that_is_not_safe_is_not_handed_on(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = types.SimpleNamespace(**{name: print, "read_parquet": len})
    monkeypatch.setitem(sys.modules, "awswrangler", types.ModuleType("awswrangler"))
    monkeypatch.setitem(sys.modules, "awswrangler.s3", theirs)  # type: ignore[arg-type]
    assert wr.s3.read_parquet is len
    with pytest.raises(AttributeError, match=r"does not hand .* Nothing was written\. Call"):
        getattr(wr.s3, name)
