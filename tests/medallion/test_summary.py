"""What a job knows of bronze by reading it some data files at a time, compared with all rows at once."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safewrite.medallion import Pipeline, verify
from safewrite.medallion.bronze.summary import Lines
from safewrite.medallion.lineage.lineage import Lineage
from safewrite.table import added_rows
from tests.medallion.test_jobs import HEAD, Shop

RECORDS = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.integers(1, 30)), max_size=60)


@given(pieces=st.lists(RECORDS, max_size=4), asked=st.lists(st.integers(1, 30)))
def test_runs_of_records_say_what_the_records_say(pieces: list[list[Any]], asked: list[int]) -> None:
    found, known, twice = Lines(), set(), set()
    for piece in pieces:
        twice |= {one for one in piece if piece.count(one) > 1 or one in known}
        known |= {*piece}
        paths, tags, lines = zip(*piece, strict=True) if piece else ((), (), ())
        texts = [pa.array(values, pa.string()) for values in (paths, tags)]
        found.add(pa.table([*texts, pa.array(lines, pa.int64())], names=["_file", "_tag", "_line"]))
    for content in (("a", "x"), ("a", "y"), ("b", "x")):
        assert (content in found) == any(one[:2] == content for one in known)
        lacks = found.lacks(content, np.array(asked, np.int64)).tolist()
        assert lacks == [(*content, line) not in known for line in asked]
        assert found.count(content) == sum(one[:2] == content for one in known)
    assert found.twice() == sorted(twice)


@pytest.mark.long
def test_a_bronze_of_many_data_files_is_known_without_all_of_them_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory is gone, rows of some files too: a replay counts, finds what is lost, and puts it back under its order."""
    job = Shop(tmp_path)
    for number in (1, 2, 3):
        rows = "".join(f"I,{number}{row},1.00,{number}{row}\n" for row in range(4))
        job.put(f"shop/orders/2026110{number}-000000001.csv", HEAD + rows)
        assert job.run().ok
    before = sorted(map(str, job.rows("bronze/orders")))
    bronze = deltalake.DeltaTable(str(tmp_path / "bronze/orders"))
    bronze.delete("id in (11, 22, 23)")
    shutil.rmtree(tmp_path / "state")
    monkeypatch.setattr(added_rows, "FILES_AT_ONCE", 1)
    read, most = Lineage.pieces, list[int]()

    def counted(lineage: Lineage, *given: Any) -> Any:
        for piece in read(lineage, *given):
            most.append(piece.num_rows)
            yield piece

    monkeypatch.setattr(Lineage, "pieces", counted)
    with monkeypatch.context() as patch:
        patch.setattr("safewrite.medallion.pipeline.Pipeline._refine", lambda *_: None)
        patch.setattr(Lineage, "read", None)
        run = Pipeline(job.config).replay(["shop.orders"])
    assert run.tables[0].error is None
    assert (run.tables[0].landed.rows, max(most)) == (3, 5)  # deltalake wrote the rest of two files as one
    assert sorted(map(str, job.rows("bronze/orders"))) == before
    assert Pipeline(job.config).replay(["shop.orders"]).ok
    assert [one.clean for one in verify(Pipeline(job.config))] == [True]
