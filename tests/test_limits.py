"""T3-S7: what is too large or too deep is told as what it is, and what runs beside us has limits."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import safewrite as sw
from safewrite.arguments.reading import reading
from safewrite.delta.log import actions, features, schema, segment
from safewrite.intake.duck import closed_duckdb
from safewrite.stores.clients import CONNECTIONS, client
from safewrite.stores.world import THREADS

DEEP = "[" * 200_000
ROWS = pa.table({"id": [1]})


def test_memory_that_ran_out_is_no_fault_of_the_argument() -> None:
    """T3-S7: it was invalid input, and the advice was to correct it."""

    @reading("The frame")
    def read() -> None:
        raise MemoryError

    with pytest.raises(
        sw.StorageError, match=r"not enough memory.*Nothing was written.*fewer rows"
    ) as caught:
        read()
    assert not isinstance(caught.value, sw.InvalidInputError)


@pytest.mark.sweep("2", "4", "8")
@pytest.mark.parametrize("at", range(0, 12, 2))
def test_memory_that_runs_out_in_a_write_is_told_as_that(tmp_path: Path, at: int) -> None:
    """T3-S7: at whatever request it happens; the next call works, and the rows are there once."""
    table: Any = sw.create(tmp_path / "t", ROWS.schema)
    inner, count = table.world.perform, iter(range(10_000))

    def perform(effect: Any) -> Any:
        if next(count) == at:
            raise MemoryError
        return inner(effect)

    table.world.perform = perform
    told: list[sw.SafewriteError] = []
    try:
        table.append(ROWS, key="k")
    except sw.SafewriteError as error:
        told.append(error)
    assert not any(isinstance(error, sw.InvalidInputError) for error in told)
    assert all("memory" in error.message.lower() for error in told)
    assert not any("please report" in error.message for error in told)
    table.world.perform = inner
    table.append(ROWS, key="k")
    import deltalake

    assert deltalake.DeltaTable(str(tmp_path / "t")).to_pyarrow_table().num_rows == 1


def test_a_client_has_a_connection_for_each_thread_of_the_largest_job() -> None:
    """T3-S7: 32 for the 64 threads that a job may have, and above them a new connection for each request."""
    made = client(
        "s3", options={"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    )
    assert made.sender.connections == CONNECTIONS >= 64 + THREADS


DEEP_TEXTS: dict[str, Callable[[], Any]] = {
    "a line of the log": lambda: actions.parse(f'{{"commitInfo":{{"x":{DEEP}\n{{"txn":{{}}}}'.encode(), 3),
    "the last line of the log": lambda: actions.parse(f'{{"commitInfo":{{"x":{DEEP}'.encode(), 3),
    "an add": lambda: actions.parse(f'{{"add":{{"x":{DEEP}}}\n{{"commitInfo":{{}}}}'.encode(), 3).adds(),
    "a schema": lambda: schema.to_arrow(DEEP),
    "a schema, looked through for features": lambda: list(features._columns(_State())),  # type: ignore[arg-type]
}


class _State:
    version, schema_string = 3, DEEP


@pytest.mark.parametrize("text", DEEP_TEXTS)
def test_json_that_is_nested_too_deeply_is_a_damaged_log(text: str) -> None:
    """T3-S7: it was an InternalError, which asks for a report."""
    with pytest.raises((sw.StorageError, sw.UnsupportedTableError), match=r"Nothing was (committed|written)"):
        DEEP_TEXTS[text]()


def test_hints_that_are_nested_too_deeply_are_none() -> None:
    assert actions.stats_of({"stats": DEEP}) == {}
    assert segment.hint(DEEP.encode()) is None


def test_a_table_with_such_a_line_is_refused_by_each_verb(tmp_path: Path) -> None:
    """T3-S7"""
    table: Any = sw.create(tmp_path / "t", ROWS.schema)
    table.append(ROWS)
    log = tmp_path / "t" / "_delta_log" / f"{table.version + 1:020}.json"
    log.write_text(json.dumps({"commitInfo": {}}) + f'\n{{"commitInfo":{DEEP}\n')
    calls: tuple[Callable[[], Any], ...] = (
        lambda: sw.open(tmp_path / "t").append(ROWS),
        lambda: table.delete("id = 1"),
        lambda: table.overwrite(ROWS),
    )
    for call in calls:
        with pytest.raises(sw.StorageError) as caught:
            call()
        assert caught.value.kind is sw.Kind.CORRUPT_LOG


@pytest.mark.parametrize(
    "query",
    [
        "SET memory_limit = '1TB'",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "RESET memory_limit",
        "PRAGMA threads=8",
        "COPY (SELECT 1) TO 'out.csv'",
        "SELECT * FROM read_csv('/etc/hostname')",
        "ATTACH 'other.db'",
        "INSTALL httpfs",
    ],
)
def test_a_rule_of_quality_changes_no_setting_and_reaches_nothing(
    query: str, tmp_path: Path, monkeypatch: Any
) -> None:
    """T3-S7: the configuration was open, and without a limit of memory."""
    import duckdb

    monkeypatch.chdir(tmp_path)
    with closed_duckdb("This is judged") as connection, pytest.raises(duckdb.Error):
        connection.execute(query)
    assert list(tmp_path.iterdir()) == []


def test_a_rule_that_takes_too_much_memory_is_told_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """T3-S7: and does not end the process."""
    from safewrite.intake import duck
    from safewrite.medallion.silver import quality

    monkeypatch.setattr(duck, "MEMORY_MAX", "20MB")
    rows = pa.table({"id": range(10)})
    greedy = "(SELECT count(DISTINCT range::VARCHAR || repeat('x', 40)) FROM range(5000000)) > 0"
    with pytest.raises(sw.StorageError, match="more memory than a rule may have"):
        list(quality._conditions(rows, [greedy], "shop.orders", "rules"))
