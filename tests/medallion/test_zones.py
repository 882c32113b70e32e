"""Raw zones as users have them: silver, quarantine and counts of each engine are those of a model of a few lines.

A failing story prints what was done.  The gate's are drawn by their number; Hypothesis draws those of the sweep, makes a failing one
smaller, and prints the line that repeats it.
"""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from safewrite.intake.letters import STATES
from safewrite.medallion import Pipeline, verify
from safewrite.medallion.audit.quarantine import Quarantine
from tests.medallion import test_tasks
from tests.medallion.test_evolution import FORMATS, shop
from tests.medallion.test_jobs import set_in
from tests.medallion.test_tasks import Twin, by_tasks, read, tables
from tests.medallion.zone import ODD, PARQUET, TABLE, Model, Zone

small_parts = test_tasks.small_parts


class Story:
    """Two jobs on one raw zone, one in this process and one by tasks, and the model beside them."""

    def __init__(
        self, folder: Path, draw: random.Random, table_format: str = "delta", kind: str | None = None
    ) -> None:
        self.draw = draw
        kind = kind or draw.choice(("csv", "parquet"))
        lacking = kind == "csv" and draw.random() < 0.25
        self.zone = Zone(
            folder, draw, kind, draw.choice(sorted(PARQUET)), header=draw.random() < 0.7,
            by_column=lacking or draw.random() < 0.6, lacking=lacking,
        )  # fmt: skip
        self.model = Model(self.zone.by_column)
        self.takes_deletes = (
            kind == "csv" and not self.zone.header
        ) or draw.random() < 0.7  # else each change has no op
        self.has_rule = not lacking and draw.random() < 0.6
        jobs = []
        for name in ("plain", "tasks"):
            (folder / name).mkdir()
            job = shop(
                folder / name, table_format, {"id": "int64", "v": self.zone.declared, "note": "string"}
            )
            set_in(job, "raw", "location", to=str(folder / "raw"))
            job.config["ignored_tables"] = ["awsdms-manifests*"]
            if table_format == "iceberg":
                job.config |= {"quarantine": "aside.records", "quarantine_format": "iceberg"}
            jobs.append(job)
        (folder / "raw").mkdir()
        self.twin = Twin(folder, *jobs)
        self._configure()

    def _configure(self) -> None:
        files = self.zone.settings | {"changes": "all" if self.takes_deletes else "inserts_and_updates"}
        rule = {"conditions": [f"note <> '{ODD}'"]} if self.has_rule else {}
        for job in (self.twin.plain, self.twin.tasks):
            set_in(job, "defaults", "files", to=files)
            set_in(job, "defaults", "quality", to={"quarantined_share_max": 1.0} | rule)

    @property
    def said(self) -> str:
        zone = self.zone
        return "\n".join([f"{zone.settings} {zone.declared}", *zone.told])

    def tell(self, steps_told: int = 5) -> None:
        zone = self.zone
        steps = [zone.load, zone.change, zone.change_that_waits, zone.release, zone.nothing, zone.again, zone.marker, self.other_rule,
                 self.other_changes, self.replay]  # fmt: skip
        if zone.lacking:  # values that a change keeps are those of the changes before it
            steps = [zone.load, zone.change, zone.nothing, zone.again, zone.marker, self.replay]
        for step in self.draw.choices(
            steps, ([3, 5, 2, 2, 1, 2, 1, 1, 1, 2] if not zone.lacking else [2, 5, 1, 2, 1, 2]), k=steps_told
        ):
            zone.told.append(step.__name__)
            step()
            if self.draw.random() < 0.6:
                self.run()
        zone.release()
        self.run()
        self.replay()
        self.replay()

    def other_rule(self) -> None:
        self.has_rule = not self.has_rule
        self._configure()

    def other_changes(self) -> None:
        self.takes_deletes = True
        self._configure()

    def run(self) -> None:
        self.zone.told.append("run")
        aside, raw, files = len(self.model.aside), len(self.model.raw), set(self.model.files)
        self.model.run(self.zone.files, takes_deletes=self.takes_deletes, has_rule=self.has_rule)
        new = [one for path, one in self.model.files.items() if path not in files]
        for pipeline in self.twin.pipelines():
            (done,) = pipeline.run().tables
            assert done.error is None, f"{self.said}\n{done.error}"
            landed = done.landed
            assert (landed.files, landed.rows_in_files, landed.quarantined) == (
                len(new), sum(len(one.records) for one in new), len(self.model.raw) - raw
            ), self.said  # fmt: skip
            assert done.refined.quarantined == len(self.model.aside) - aside, self.said
        self.check()

    def replay(self) -> None:
        """Of what waits, by the command; the second time takes nothing."""
        self.zone.told.append("replay")
        self.model.run(self.zone.files, takes_deletes=self.takes_deletes, has_rule=self.has_rule, again=True)
        wanted = self.model.states()
        for pipeline in self.twin.pipelines():
            quarantine = Quarantine(pipeline)
            chosen = quarantine.find()
            if not chosen:
                run = pipeline.replay([TABLE])
                assert run.ok, f"{self.said}\n{run.tables[0].error}"
                continue
            done = quarantine.replay()
            assert done.failed == {}, f"{self.said}\n{done.failed}"
            assert {*done.dead} == {
                one.name for one in chosen if wanted[str(one.stage), one.name] == "waiting"
            }, self.said
        self.check()

    def check(self) -> None:
        wanted = {key: _known(row) for key, row in self.model.silver().items()}
        plain, tasks = (tables(job) for job in (self.twin.plain, self.twin.tasks))
        for name, rows in plain.items():  # reasons and texts of records in quarantine too
            assert rows == tasks[name], self.said
        found = read(self.twin.plain, "silver/orders")
        assert {row["id"]: _known((row["v"], row["note"])) for row in found} == wanted, self.said
        assert len(found) == len(wanted), self.said
        for pipeline in (Pipeline(self.twin.plain.config), by_tasks(self.twin.tasks.config)):
            (audit,) = verify(pipeline)
            assert (audit.flaws, audit.error) == ([], None), f"{self.said}\n{audit}"
            assert (audit.bronze_rows, audit.silver_rows) == (len(self.model.rows), len(wanted)), self.said
        states = {
            (str(one.stage), one.name): one.state
            for one in Quarantine(Pipeline(self.twin.plain.config)).find(states=STATES)
        }
        assert states == self.model.states(), self.said


def _known(row: tuple[Any, ...]) -> str:
    """Exact, the sign of a zero too; libraries have several objects for UTC."""
    value, note = row
    return repr(
        (value.astimezone(dt.UTC) if isinstance(value, dt.datetime) and value.tzinfo else value, note)
    )


@pytest.mark.sweep("1")
@pytest.mark.parametrize("seed", [0, 1])
def test_silver_and_quarantine_of_a_raw_zone_are_those_of_the_model(
    seed: int, tmp_path: Path, small_parts: None
) -> None:
    """T4-C2, T4-C4, T4-C6, T4-C7 and T4-A10 in one world; of CSV and of Parquet files."""
    Story(tmp_path, random.Random(seed), kind=("csv", "parquet")[seed]).tell()


@pytest.mark.long
@pytest.mark.parametrize("table_format", FORMATS)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(draw=st.randoms(use_true_random=False))
def test_raw_zones_of_all_kinds_hold(
    table_format: str, draw: random.Random, tmp_path_factory: pytest.TempPathFactory, small_parts: None
) -> None:
    Story(tmp_path_factory.mktemp("zone"), draw, table_format).tell(8)
