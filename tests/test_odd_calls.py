"""Odd calls that once ended in a library's error, in a table that others could not read, or not at all."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

import safewrite as sw
from tests.every_call import KINDS, Bench, Lab, row
from tests.oddities import ANYTHING, deep, raising

pytestmark = pytest.mark.sweep("iceberg")  # both formats go one way


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab(tmp_path_factory.mktemp("every-call"))


@pytest.fixture(params=["delta", "iceberg"])
def bench(request: pytest.FixtureRequest, lab: Lab) -> Bench:
    """A table of each format with one row."""
    made = lab.bench(request.param)
    made.make(True, ())
    made.table.append([row(1)], key="before")
    return made


@pytest.mark.parametrize("look", ["schema", "partition_by", "properties"])
@KINDS
def test_a_table_that_is_not_there_yet_says_so_when_it_is_asked_what_it_is(
    lab: Lab, kind: str, look: str
) -> None:
    bench = lab.bench(kind)
    table = bench.open(create=True)
    with pytest.raises(sw.TableNotFoundError, match=r"yet\. Nothing was written\. The first append makes it"):
        getattr(table, look)
    with pytest.raises(sw.InvalidInputError, match="is no table"):
        table.append(None)


@pytest.mark.parametrize("setting", ["append", "overwrite"])
def test_an_object_whose_class_cannot_be_had_is_no_table(bench: Bench, setting: str) -> None:
    with pytest.raises(sw.InvalidInputError, match="cannot be read: Wordless: "):
        getattr(bench.table, setting)(ANYTHING["no class"]())


def test_data_in_itself_or_too_deep_is_refused(bench: Bench) -> None:
    for name in ("list in itself", "dict in itself", "deep list", "deep dict"):
        with pytest.raises(sw.InvalidInputError, match="nested too deeply, or holds itself"):
            bench.table.append([{"id": ANYTHING[name]()}])


@pytest.mark.parametrize("as_dict", [False, True])
@KINDS
def test_a_column_is_made_no_deeper_than_every_engine_can_read(lab: Lab, kind: str, as_dict: bool) -> None:
    """deltalake could not open a table any more to which a struct of 42 levels was written."""
    bench = lab.bench(kind)
    table = bench.open(create=True)
    with pytest.raises(sw.InvalidInputError, match="32 levels"):
        table.append([{"id": deep(33, as_dict=as_dict)}])
    table.append([{"id": deep(32, as_dict=as_dict)}])
    assert bench.read().total() == 1


def test_a_number_without_end_is_refused_at_once(bench: Bench) -> None:
    """As a whole number ``1e999999`` has a million digits: it took minutes, and a lock that others waited for."""
    vast = Decimal("1e999999")
    for where in (
        [("id", "=", vast)],
        [("amount", "=", vast)],
        [("id", "in", [10**5000])],
        "id = " + "9" * 5000,
    ):
        with pytest.raises(sw.InvalidInputError, match="which is no"):
            bench.table.delete(where)
    with pytest.raises(sw.InvalidInputError, match="txn is"):
        bench.table.sink(app_id="a")([row(2)], vast)
    with pytest.raises(sw.InvalidInputError, match="bits"):
        bench.table.append([{"id": 10**5000}])


def test_a_condition_too_deep_for_an_engine_is_refused_before_the_write(bench: Bench) -> None:
    for where in (" AND ".join(["id = 1"] * 150), "NOT (" * 150 + "id = 1" + ")" * 150):
        with pytest.raises(sw.InvalidInputError, match="deep"):
            bench.table.delete(where)
    assert bench.table.delete(" OR ".join(f"id = {n}" for n in range(100, 190))).outcome == "committed"


def test_a_text_with_half_of_a_pair_is_no_value_of_a_column(bench: Bench) -> None:
    with pytest.raises(sw.InvalidInputError, match="which is no string"):
        bench.table.delete([("name", "=", "\ud800")])


@KINDS
@pytest.mark.parametrize("text", ["a\ud800", "a\0"])
def test_a_setting_that_other_engines_could_not_read_is_refused(lab: Lab, kind: str, text: str) -> None:
    bench = lab.bench(kind)
    for settings_ in (
        {"properties": {"owner": text}},
        {"properties": {text: "me"}},
        {"storage_options": {"x": text}},
    ):
        with pytest.raises(sw.InvalidInputError, match="Nothing was written"):
            bench.open(create=True, **settings_)


def test_an_enum_names_a_write_by_its_text(bench: Bench) -> None:
    """``str(App.ORDERS)`` is ``App.ORDERS``, its text ``orders``: a repeat under the other is no repeat."""
    first = bench.table.append([row(2)], txn=(ANYTHING["word"](), 5))
    assert (first.txn, first.key) == (("id", 5), "id/5")
    assert bench.open().append([row(2)], txn=("id", 5)).outcome == "already_committed"
    bench.table.append([row(3)], key=ANYTHING["word"]())
    assert bench.table.resolve("id").key == "id"


def test_a_log_handler_that_raises_unmakes_no_ack(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("safewrite"), "filters", [raising("filter")])
    assert bench.table.append([row(2)], key="event").outcome == "committed"
    bench.table.sink(app_id="app")([row(3)], 0)
    assert bench.read() == Counter(["1", "2", "3"])


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_ends_a_process_passes_through(bench: Bench, stop: type[BaseException]) -> None:
    class Ends(list[Any]):
        def __iter__(self) -> Iterator[Any]:
            raise stop

    for call in (
        lambda: bench.table.append(Ends([1])),
        lambda: bench.table.delete(Ends([1])),
    ):
        with pytest.raises(stop):
            call()


def test_an_argument_that_is_not_there_is_refused_as_python_does(bench: Bench) -> None:
    with pytest.raises(TypeError, match="unexpected keyword"):
        bench.table.append([row(2)], bogus=1)
    with pytest.raises(TypeError):
        bench.table.sink()


def test_a_version_of_more_digits_than_python_prints_is_refused(bench: Bench) -> None:
    with pytest.raises(sw.InvalidInputError, match="has no version"):
        bench.table.committed_writes(10**5000)
