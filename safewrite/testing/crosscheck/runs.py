"""Draws each seed's program, runs it in a home of its own, and shrinks it if it fails."""

from __future__ import annotations

import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis
import pyarrow as pa
from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers

from safewrite.testing.crosscheck import kinds
from safewrite.testing.crosscheck.draw import Format, programs
from safewrite.testing.crosscheck.draw_changes import change_programs
from safewrite.testing.crosscheck.draw_features import feature_programs
from safewrite.testing.crosscheck.draw_kept import kept_programs
from safewrite.testing.crosscheck.home import Home
from safewrite.testing.crosscheck.machine import Tally, play
from safewrite.testing.crosscheck.oracle import DisagreementError
from safewrite.testing.crosscheck.program import Column, Program

Homes = Callable[[str], Any]
"""Gives a context with a new home for a format."""


@dataclass
class FailedSeed(AssertionError):  # noqa: N818 - a verdict, not an error of the machine
    """A seed whose program fails; ``program`` is the smallest one that was found."""

    seed: int
    program: Program
    said: str

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.said}\n\n{self.program.source()}"


@contextmanager
def local_home(format_: str) -> Iterator[Home]:
    """A Delta table in a folder, or an Iceberg table of a catalog in SQLite, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="crosscheck-", ignore_cleanup_errors=True) as folder:
        if format_ == "delta":
            from safewrite.testing.crosscheck.delta import DeltaHome

            yield DeltaHome(str(Path(folder, "t")))
        else:
            yield from _in_sqlite(folder)


def _in_sqlite(folder: str) -> Iterator[Home]:
    from pyiceberg.catalog.sql import SqlCatalog

    from safewrite.testing.crosscheck.iceberg import IcebergHome

    name = f"c{uuid.uuid4().hex[:8]}"
    properties = {
        "name": name,
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"file://{folder}",
    }
    catalog = SqlCatalog(**properties)
    try:
        yield IcebergHome(lambda: catalog, "db.t", properties)
    finally:
        catalog.engine.dispose()


def run(program: Program, homes: Homes = local_home, tally: Tally | None = None) -> None:
    """Run one program in a new home; raises DisagreementError where something is not as it must be."""
    with homes(program.format) as home:
        play(program, home, tally)


@dataclass
class SeedReport:
    """What a run over seeds found."""

    seeds: int = 0
    tally: Tally = field(default_factory=Counter)
    failed: list[FailedSeed] = field(default_factory=list)


def check(
    format_: Format,
    *,
    seeds: Iterable[int] = range(100),
    schema: pa.Schema | None = None,
    homes: Homes = local_home,
    others: dict[str, dict[str, int]] | None = None,
    changes: bool = False,
    kept: bool = False,
    features: bool = False,
    concerns: Callable[[Program], bool] | None = None,
    failures_max: int = 1,
    shrink: bool = True,
) -> SeedReport:
    """Draw and run a program for each seed.

    Args:
        format_: ``"delta"`` or ``"iceberg"``.
        schema: a table's own schema, with an ``id`` column of int64; drawn for each seed without it.
        homes: where tables live; local ones by default.
        others: the deeds of other engines, and how often; deltalake's or PyIceberg's by default.
        changes: draw change logs and changes of columns, instead of plain writes; ``schema`` and ``others`` are not for them.
        kept: draw what other makers set, names that the format keeps, and texts that are no UTF-8, in the same way.
        features: draw plain writes and change logs on Delta tables with features that their makers turn on, in the same way.
        concerns: programs for which this is False are drawn, and not run.
        failures_max: this many failing seeds end the run.
        shrink: look for a smaller program that fails.

    Raises:
        ValueError: a ``schema`` that no program can be drawn for.
    """
    columns = None if schema is None else _columns(schema)
    if features:
        drawn = feature_programs()
    elif kept:
        drawn = kept_programs(format_)
    elif changes:
        drawn = change_programs(format_)
    else:
        drawn = programs(format_, columns=columns, others=others)
    verdict = SeedReport()
    for seed in seeds:
        failed = _one(seed, drawn, homes, concerns, verdict.tally, shrink=shrink)
        verdict.seeds += 1
        if failed is not None:
            verdict.failed.append(failed)
            if len(verdict.failed) >= failures_max:
                break
    return verdict


def _columns(schema: pa.Schema) -> list[Column]:
    if not isinstance(schema, pa.Schema):
        raise ValueError(f"schema= is a pyarrow.Schema, such as frame.to_arrow().schema, not {schema!r}")
    if pa.field("id", pa.int64()) not in [pa.field(one.name, one.type) for one in schema]:
        raise ValueError(
            "schema= has no column 'id' of int64, which the comparison of readers goes by; add one"
        )
    columns: dict[str, Column] = {}
    for one in schema:
        if one.name.casefold() in columns:
            raise ValueError(
                f"column {one.name!r} differs only in case from another, or not at all; rename it"
            )
        try:
            columns[one.name.casefold()] = Column(one.name, kinds.kind_of(one.type))
        except ValueError as error:
            raise ValueError(f"column {one.name!r}: {error}") from None
    return list(columns.values())


def _one(
    seed: int,
    drawn: st.SearchStrategy[Program],
    homes: Homes,
    concerns: Callable[[Program], bool] | None,
    tally: Tally,
    *,
    shrink: bool,
) -> FailedSeed | None:
    """Draw one program: Hypothesis begins with the plainest of all, which is skipped."""
    last: list[tuple[Program, str]] = []

    @hypothesis.seed(seed)
    @settings(
        max_examples=2,
        database=None,
        deadline=None,
        verbosity=Verbosity.quiet,
        phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
        suppress_health_check=list(HealthCheck),
        print_blob=False,
        report_multiple_bugs=False,
    )
    @hypothesis.given(st.integers(0, 2**20), st.data())
    def one(number: int, data: st.DataObject) -> None:
        if number == 0:
            return
        program = data.draw(drawn)
        if concerns is not None and not concerns(program):
            return
        try:
            run(program, homes, tally)
        except DisagreementError as error:
            last.append((program, str(error)))
            raise

    try:
        with _same_everywhere():
            one()
    except DisagreementError:
        return FailedSeed(seed, *last[-1])
    return None


@contextmanager
def _same_everywhere() -> Iterator[None]:
    """Let a seed be one program in every process.

    Hypothesis mixes constants into what it draws, which it finds in the code of imported modules.  It has no
    setting for that; in a version with other internals, only this is lost.
    """
    provider: Any = providers.HypothesisProvider
    known = getattr(provider, "_maybe_draw_constant", None)
    if known is not None:
        provider._maybe_draw_constant = lambda *_, **__: None  # noqa: SLF001 - as said
    try:
        yield
    finally:
        if known is not None:
            provider._maybe_draw_constant = known  # noqa: SLF001 - as said
