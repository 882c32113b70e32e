"""Changes that are ordered otherwise than those before them: silver would pass over them as late."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from pathlib import Path

import deltalake
import pytest

from safewrite.medallion import Pipeline
from tests.medallion.test_jobs import HEAD, Shop
from tests.medallion.test_restarts import flaws, forget, load, nothing

OF_DMS = "20261101000000001000000000000000001"
FILE = {number: f"shop/orders/2026110{number}-000000001.csv" for number in range(1, 6)}


@pytest.fixture
def job(tmp_path: Path) -> Shop:
    made = Shop(tmp_path)
    load(made, 1, "1,1.00\n2,2.00\n", day=0)
    return made


def order_by(job: Shop, column: str | None) -> None:
    job.config["defaults"]["files"] |= {"change_seq": column}


@pytest.mark.sweep("forget")
@pytest.mark.parametrize("between", [nothing, forget])
def test_without_the_sequence_that_changes_had_they_are_refused(
    job: Shop, between: Callable[[Shop], None]
) -> None:
    job.put(FILE[1], HEAD + f"U,1,1.10,{OF_DMS}\n")
    job.run()
    order_by(job, None)
    job.put(FILE[2], "Op,id,price\nU,1,7.00\n")
    between(job)
    (run,) = job.run().tables
    assert f"were ordered by files.change_seq, up to {OF_DMS}, and now come ordered by the names" in str(
        run.error
    )
    assert (job.silver()[1], run.landed.rows) == ("1.10", 0)
    job.config["tables"]["shop.orders"] |= {"epoch": 2, "reload": "keep"}
    assert job.run().ok
    assert (job.silver(), flaws(job)) == ({1: "7.00", 2: "2.00"}, [])
    job.put(FILE[3], "Op,id,price\nU,1,8.00\n")
    assert job.run().ok
    assert job.silver()[1] == "8.00"


@pytest.mark.sweep("forget")
@pytest.mark.parametrize("between", [nothing, forget])
def test_a_sequence_below_the_order_of_before_is_refused_and_one_above_goes_on(
    job: Shop, between: Callable[[Shop], None]
) -> None:
    order_by(job, None)
    job.put(FILE[1], "Op,id,price\nU,1,1.10\n")
    job.run()
    order_by(job, "seq")
    job.put(FILE[2], HEAD + "U,1,7.00,5\n")
    between(job)
    (run,) = job.run().tables
    assert "were ordered by the names of their files" in str(run.error)
    assert job.silver()[1] == "1.10"
    (job.folder / "raw" / FILE[2]).unlink()
    job.put(FILE[3], HEAD + f"U,1,8.00,{OF_DMS}\n")
    between(job)
    assert job.run().ok
    job.put(FILE[4], HEAD + f"U,1,9.00,{OF_DMS[:-1]}2\nU,2,6.00,{OF_DMS[:-1]}0\n")  # late ones may come
    between(job)
    assert job.run().ok
    assert (job.silver(), flaws(job)) == ({1: "9.00", 2: "6.00"}, [])


def test_a_full_load_is_older_than_all_changes_however_these_are_ordered(job: Shop) -> None:
    job.put(FILE[1], HEAD + f"U,1,1.10,{OF_DMS}\n")
    job.run()
    order_by(job, None)
    load(job, 2, "1,3.00\n3,3.00\n", day=1)
    assert job.run().ok
    assert (job.silver(), flaws(job)) == ({1: "1.10", 2: "2.00", 3: "3.00"}, [])


@pytest.mark.sweep("a part")
@pytest.mark.parametrize("how", ["all", "a part"])
def test_rows_are_not_put_back_in_another_order_than_they_had(job: Shop, how: str) -> None:
    """Read again as files are now, they would stand below, or above, changes of their time."""
    job.put(FILE[1], HEAD + f"U,1,1.10,{OF_DMS}\nU,2,2.10,{OF_DMS}\n")
    job.run()
    then = copy.deepcopy(job.config)
    order_by(job, None)
    job.config["defaults"]["files"]["ignore"] = ["seq"]
    job.config["tables"]["shop.orders"] |= {"epoch": 2, "reload": "keep"}
    job.put(FILE[2], "Op,id,price\nU,1,7.00\n")
    assert job.run().ok
    bronze = deltalake.DeltaTable(str(job.folder / "bronze/orders"))
    bronze.delete("_op = 'U' AND _epoch = 1" + ("" if how == "all" else " AND id = 2"))
    (run,) = Pipeline(job.config).replay(["shop.orders"]).tables
    assert "were ordered by files.change_seq, and would come back ordered by the names of their files" in str(
        run.error
    )
    shutil.copytree(job.folder / "raw", job.folder / "then")
    (job.folder / "then" / FILE[2]).unlink()
    then["raw"]["location"] = str(job.folder / "then")
    assert Pipeline(then).replay(["shop.orders"]).ok
    assert job.run().ok
    assert Pipeline(job.config).reset(["shop.orders"]).ok
    assert (job.silver(), flaws(job)) == ({1: "7.00", 2: "2.10"}, [])
