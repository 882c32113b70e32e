"""Tells a long story of a source, kills the job again and again, and compares silver with the truth."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.medallion.dms import SourceTable
from bench.medallion.engines import ON_CLUSTERS, leave_executors, lent_session, ran
from bench.medallion.harness import Harness, lab, mixed_lab
from bench.medallion.killed_run import POINTS
from bench.medallion.recipe import Damage, damage
from safewrite.medallion import Pipeline, verify

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 1800
_LIFE_S, _LIFE_SPARK_S, _LIFE_WHOLE_S = (1.5, 8.0), (4.0, 40.0), (40.0, 90.0)
"""How long a run lives that is killed at random; one with a Java of its own begins with some seconds in which there is no executor."""
CHANGES = 12
"""Of each table in a round."""
QUIET_SHARE = 0.2
"""Of the tables have no news in a round."""
Tell = Callable[[str], None]


@dataclass
class Verdict:
    """One job: ``flaws`` is empty if silver is the truth, and everything adds up."""

    table_format: str
    layout: str
    tables: int
    files: int = 0
    deliveries: int = 0
    kills: dict[str, int] = field(default_factory=dict)
    runs: int = 0
    rows_in_files: int = 0
    landed: int = 0
    put_aside: int = 0
    bronze_rows: int = 0
    silver_rows: int = 0
    truth_rows: int = 0
    wrong_tables: int = 0
    flaws: list[str] = field(default_factory=list)
    recipe: Damage | None = None
    """What the copied recipe lost and left on the same rows, by comparing snapshot ids."""
    recipe_each_round: Damage | None = None
    """The same if it took each round of files, so that its MERGE alone is to blame."""

    @property
    def killed(self) -> int:
        return sum(self.kills.values())


class Story:
    """One job over ``tables`` tables, told until there are so many files and so many kills."""

    def __init__(
        self, job: Harness, seed: int, *, mixed: bool, tell: Tell, engine: str = "local", rounds: int = 1
    ) -> None:
        self.job, self.mixed, self.tell, self.engine, self.rounds_a_run = job, mixed, tell, engine, rounds
        self.random = random.Random(seed)
        self.rounds: list[list[str]] = []
        self.verdict = Verdict(job.table_format, "mixed" if mixed else "per table", len(job.tables))
        self._told = 0

    def run(self, files: int, kills: int) -> Verdict:
        """Tell it, and judge."""
        self.job.begin(20, loads=3)
        self._work(killed=False)
        while self._files() < files or self.verdict.killed < kills:
            for _ in range(self.rounds_a_run):
                self._source()
            missing = kills - self.verdict.killed
            self._work(killed=missing > 0)
            self.tell(
                f"{self.job.table_format}, {self.verdict.layout}: {self._files()} of {files} files, "
                f"{self.verdict.killed} of {kills} kills"
            )
        self._end()
        return self.verdict

    # --- the source ---------------------------------------------------------------------------------------
    def _source(self) -> None:
        dms, draw = self.job.dms, self.random
        for table in self.job.tables:
            if draw.random() >= QUIET_SHARE:
                dms.change(table, CHANGES)
            self._operate(table)
        hold = draw.random() < 0.3
        if self.mixed:
            dms.flush_mixed(hold=hold)
        for table in self.job.tables:
            if not self.mixed:
                dms.flush(table, hold=draw.random() < 0.3)
            if draw.random() < 0.3:
                dms.deliver_held(table)

    def _operate(self, table: SourceTable) -> None:
        """What operators and DMS do now and then: a file delivered once more, or under another name."""
        draw = self.random
        if draw.random() < 0.2 and table.written:
            self.job.dms.deliver_again(table)
        if draw.random() < 0.1:
            self.job.dms.deliver_copy(table)

    # --- the job ------------------------------------------------------------------------------------------
    def _work(self, *, killed: bool, refuses: str | None = None, whole: bool = False) -> None:
        arrivals = self.job.dms.arrivals
        self.rounds.append(arrivals[self._told :])
        self._told = len(arrivals)
        self.verdict.runs += 1
        if not killed:
            run = ran(self.job.config, self.engine)
            errors = [*run.errors, *(f"{one.table}: {one.error}" for one in run.tables if one.error)]
            told = [one for one in errors if refuses is not None and refuses in one]
            if refuses is not None and not told:
                self.verdict.flaws.append("a load that came again after changes of its task was taken")
            self._note_errors([one for one in errors if one not in told])
        elif not whole and self.random.random() < 0.5:
            times = len(self.job.tables) // (6 if self.engine in ON_CLUSTERS else 2)
            self._kill_at(self.random.choice(POINTS), self.random.randrange(1, max(2, times)))
        else:
            life_s = _LIFE_WHOLE_S if whole else _LIFE_SPARK_S if self.engine in ON_CLUSTERS else _LIFE_S
            self._kill_after(self.random.uniform(*life_s), whole=whole)

    def _note_errors(self, errors: list[str]) -> None:
        self.verdict.flaws += [f"a run failed: {error}" for error in errors]

    def _kill_at(self, point: str, times: int) -> None:
        victim = _victim(self.job, point, times, self.engine)
        said, _ = victim.communicate(timeout=TIMEOUT_S)
        self._judge_victim(victim.returncode, said, point)

    def _kill_after(self, delay_s: float, *, whole: bool) -> None:
        victim = _victim(self.job, "nowhere:before", 1, self.engine, whole=whole)
        try:
            said, _ = victim.communicate(timeout=delay_s)
        except subprocess.TimeoutExpired:
            victim.kill()
            said, _ = victim.communicate(timeout=TIMEOUT_S)
        self._judge_victim(victim.returncode, said, "at random")

    def _judge_victim(self, code: int, said: str, point: str) -> None:
        if code == -signal.SIGKILL:
            self.verdict.kills[point] = self.verdict.kills.get(point, 0) + 1
        elif code or said != "ok":
            self._note_errors([f"exit {code}: {said[:2000]}"])

    # --- the end ------------------------------------------------------------------------------------------
    def _end(self) -> None:
        for table in self.job.tables:
            self.job.dms.deliver_held(table)
        self._work(killed=False)
        before = self._wrong("before files were overwritten")
        self._recipe()
        before |= self._new_task()
        owners = [table for table in self.job.tables if any("LOAD" not in path for path in table.written)]
        overwritten = {self.job.dms.overwrite(table) for table in owners}
        run = ran(self.job.config, self.engine)
        told = {path for one in run.tables for path in one.landed.overwritten}
        if told != overwritten:
            self.verdict.flaws.append(f"{len(overwritten)} files were overwritten, and {len(told)} noticed")
        if any(one.news for one in ran(self.job.config, self.engine).tables):
            self.verdict.flaws.append("a run after the last file has news")
        self.verdict.wrong_tables = len(before | self._wrong("in the end"))
        self._account()

    def _new_task(self) -> set[str]:
        """Another DMS task loads each table anew; its job is killed in between."""
        dms = self.job.dms
        for table in self.job.tables:
            dms.load(table)
        self._work(killed=False, refuses="was written again with other content")
        dms.new_task()
        self._work(killed=True, whole=not self.mixed and self.engine in ON_CLUSTERS)
        self._work(killed=False)
        wrong = self._wrong("after the load of a new task")
        self.job.go_on(CHANGES)
        self._work(killed=False)
        return wrong | self._wrong("after changes of a new task")

    def _wrong(self, when: str) -> set[str]:
        wrong = self.job.wrong()
        self.verdict.flaws += [
            f"{name} {when}: {len(told)} flaws: {told[:3]}" for name, told in wrong.items()
        ]
        return set(wrong)

    def _account(self) -> None:
        found = self.verdict
        audits = verify(Pipeline(self.job.config))
        found.flaws += [f"{one.table}: {one.flaws} {one.error or ''}" for one in audits if not one.clean]
        for one in audits:
            found.rows_in_files += one.rows_in_files
            found.landed += one.landed
            found.put_aside += one.put_aside
            found.bronze_rows += one.bronze_rows
            found.silver_rows += one.silver_rows
        found.truth_rows = sum(len(table.truth) for table in self.job.tables)
        found.files, found.deliveries = self._files(), len(self.job.dms.arrivals)
        if found.rows_in_files != found.landed + found.put_aside:
            found.flaws.append("rows in files are not those that were landed or put aside")
        if any(one.behind for one in audits):
            found.flaws.append("silver is behind bronze")

    def _recipe(self) -> None:
        bronze = {name: self.job.read("bronze", name) for name in self.job.dms.tables}
        truths = {name: table.truth for name, table in self.job.dms.tables.items()}
        as_it_is, each_round = damage(self.job.folder / "recipe", bronze, self.rounds, truths)
        self.verdict.recipe, self.verdict.recipe_each_round = as_it_is, each_round

    def _files(self) -> int:
        return sum(len(table.written) for table in self.job.tables)


def tell_story(
    folder: Path,
    table_format: str,
    *,
    mixed: bool,
    tables: int,
    files: int,
    kills: int,
    seed: int,
    tell: Tell,
    engine: str = "local",
    rounds: int = 1,
) -> Verdict:
    """One job in a folder of its own; the source writes files so often between two runs."""
    make = mixed_lab if mixed else lab
    more = {"workers": 4} if engine in ON_CLUSTERS else {}  # most of the time a table waits for Spark
    job = make(folder, table_format, seed=seed, tables=tables, more=more)
    return Story(job, seed, mixed=mixed, tell=tell, engine=engine, rounds=rounds).run(files, kills)


def _victim(
    job: Harness, point: str, times: int, engine: str, *, whole: bool = False
) -> subprocess.Popen[str]:
    """A run in a process of its own; on Spark in the session of this one, whose Java goes on, if it is not to die as a whole."""
    if whole:
        leave_executors()
    lent = lent_session() if engine in ON_CLUSTERS and not whole else {}
    given = [
        sys.executable,
        "-m",
        "bench.medallion.killed_run",
        str(job.write_config()),
        point,
        str(times),
        engine,
    ]
    return subprocess.Popen(
        given, cwd=ROOT, env=os.environ | lent, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
