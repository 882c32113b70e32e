"""Draws mutants by machine, and counts how many of them the fast tests of their part notice.

    python -m tests.mutants.draw --sample 100 --seed 1
    python -m tests.mutants.draw --only protocol/keys.py --all

Each mutant is one change of ``tests.mutants.operators``, run against the killers of its part one after
another until one fails.  A survivor is a change that none of them notices: a test is missing, or the change
is none.  ``equivalent.txt`` lists those that are none, with the reason; they are not counted.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.killers import HISTORIES, ROOT, Killer, Run, Warm, model
from tests.mutants.operators import Change, changes

EQUIVALENT = Path(__file__).with_name("equivalent.txt")
LIMIT_S = 240.0


def quick(*nodes: str) -> Killer:
    """Tests of some modules that need no server, until the first failure."""
    way = ("-q", "-x", "--tb=line", "-p", "no:cacheprovider", "--noconftest")
    return Killer("pytest", (*way, *(f"tests/{node}" for node in nodes)))


DELTA = (
    quick("mutants/test_protections.py", "test_place.py", "stateful/test_found.py"),
    model("objects-put", 1),
    model("create-objects", 1),
    model("put", 1),
    model("retry-objects", 1),
    model("objects", 1),
    model("retry-locks", 1),
    Killer("tests.stateful.histories", ("0", "8")),
    model("engine", 1),
    model("sealed", 1),
    model("spark", 1),
    model("create-locks", 1),
    model("lease", 1),
)
ICEBERG = (
    quick("iceberg/test_protocol.py"),
    model("iceberg-set", 2),
    model("iceberg-set-sql", 2),
    model("iceberg-two", 1),
    model("iceberg-retry", 2),
    model("iceberg-empty", 2),
    model("iceberg-rollback", 1),
    model("iceberg-queue", 1),
    model("iceberg-expire-bare", 1),
    model("iceberg-expire", 1),
)
OWN = quick("protocol")
PROPERTIES = "order_chunks or another_value or every_kind_of_frame or parses_back or hashed_together"
FINGERPRINT = tuple(
    quick("frames/test_fingerprint.py").only(names) for names in (f"not ({PROPERTIES})", PROPERTIES)
)
CHANGES = (
    quick("changes/test_decide.py", "changes/test_positions.py", "changes/test_reading.py"),
    quick("changes/test_unchanged.py"),
    quick("changes/test_tables.py"),
    quick("changes/test_outside.py", "changes/test_merge_on_read.py"),
)
EVENTS = (
    quick(
        "cdc/test_sequence.py",
        "cdc/test_debezium.py",
        "cdc/test_avro.py",
        "cdc/test_dms.py",
        "cdc/test_values.py",
    ),
    quick("cdc/test_schemas.py"),
    quick("cdc/test_landing.py").only("not s3"),
)
VALUES = (quick("frames/test_conform.py", "frames/test_objects.py", "values"),)
LOG = (
    quick("delta/test_log.py", "delta/test_state.py", "delta/test_checkpoint.py", "delta/test_features.py"),
)
PARTS: tuple[tuple[str, tuple[Killer, ...]], ...] = (
    ("protocol/iceberg", (OWN, *ICEBERG)),
    ("protocol/delta", (OWN, *DELTA)),
    ("protocol", (OWN, *DELTA[:8], *ICEBERG[:4], DELTA[-1])),
    ("frames/fingerprint.py", FINGERPRINT),
    (
        "delta/write/transaction.py",
        (quick("mutants/test_protections.py", "stateful/test_found.py"), HISTORIES),
    ),
    ("iceberg/write/append.py", (quick("iceberg/test_protocol.py"),)),
    ("iceberg/catalog/commit_request.py", (quick("iceberg/test_protocol.py"),)),
    ("changes", CHANGES),
    *(
        (f"cdc/{name}.py", EVENTS)
        for name in (
            "envelopes/position",
            "envelopes/debezium/positions",
            "envelopes/debezium/rows",
            "envelopes/dms/metadata",
            "rows/snapshot_boundary",
            "envelopes/debezium/events",
            "envelopes/dms/events",
            "connect/avro",
            "connect/values",
        )
    ),
    *(
        (
            f"cdc/{name}.py",
            (
                quick(
                    "cdc/test_column_batches.py",
                    "cdc/test_column_batches_avro.py",
                    "cdc/test_column_batches_bare.py",
                ),
                *EVENTS,
            ),
        )
        for name in (
            "envelopes/by_columns",
            "envelopes/event_fields",
            "connect/columns",
            "connect/logical_types/column",
            "connect/logical_types/decimals",
            "connect/logical_types/declared",
            "connect/logical_types/plain",
            "connect/logical_types/schemas",
            "connect/logical_types/times",
            "connect/converters",
            "connect/inference",
            "envelopes/dms/event_columns",
            "envelopes/debezium/event_columns",
            "envelopes/debezium/position_columns",
            "rows/project_columns",
            "rows/table_changes",
            "records/change_set",
            "records/records",
            "records/prefixes",
        )
    ),
    ("frames/conform.py", VALUES),
    ("values/casts.py", VALUES),
    ("values/decimals.py", VALUES),
    ("delta/data/partitions.py", (quick("delta/test_datafiles.py"),)),
    ("delta/data/stats.py", (quick("delta/test_datafiles.py"),)),
    ("delta/data/vectors.py", (quick("changes/test_vectors.py", "changes/test_marks.py"),)),
    ("delta/log/segment.py", LOG),
    ("delta/log/snapshot.py", LOG),
    ("delta/log/checkpoint.py", LOG),
    ("delta/log/features.py", LOG),
    ("delta/write/conflicts.py", (quick("delta/test_overwrite.py"), quick("test_positions.py"))),
    ("delta/write/restored_positions.py", (quick("delta/test_restores.py"),)),
    ("delta/read/added_rows.py", (quick("test_added_since.py"),)),
    ("iceberg/read/added_rows.py", (quick("test_added_since.py"),)),
    ("stores/memory.py", (*DELTA[:1], HISTORIES)),
    ("stores/dynamodb.py", DELTA[:1]),
    ("stores/dynamodb_ledger.py", DELTA[:1]),
    ("stores/s3.py", DELTA[:1]),
)
"""The modules and folders of safewrite from which mutants are drawn, with what must notice them."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A mutant that was drawn: a change of one file, named from the folder of safewrite."""

    file: str
    change: Change
    killers: tuple[Killer, ...]

    def __str__(self) -> str:
        return f"safewrite/{self.file}:{self.change.line}: {self.change}"

    @property
    def listed(self) -> str:
        """How ``equivalent.txt`` names it: by the text of its line, for the number moves."""
        return f"{self.file}: {self.change.at} | {self.change}"


def drawable(only: Collection[str] = ()) -> Iterator[Drawn]:
    """Every mutant of every part, or of the files whose names begin with one of ``only``."""
    seen: set[str] = set()
    for part, killers in PARTS:
        place = ROOT / "safewrite" / part
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            file = path.relative_to(ROOT / "safewrite").as_posix()
            if file in seen or (only and not file.startswith(tuple(only))):
                continue
            seen.add(file)
            yield from (Drawn(file, change, killers) for change in changes(path.read_text()))


def equivalent() -> dict[str, str]:
    """The changes that are none, each with its reason."""
    lines = [line for line in EQUIVALENT.read_text().splitlines() if line and not line.startswith("#")]
    found: dict[str, str] = {}
    for change, reason in zip(lines[::2], lines[1::2], strict=True):
        if not reason.startswith("    "):
            raise ValueError(f"{EQUIVALENT}: no reason below {change!r}")
        found[change] = reason.strip()
    return found


def noticed_by(drawn: Drawn, run: Run) -> str:
    """What noticed a mutant; "" if nothing did."""
    if run.code == 0:
        return ""
    if run.code < 0:
        return "the time limit"
    failed = re.search(r"^(?:FAILED|ERROR) \S*?(\w+\.py(?:::\w+)?)", run.printed, re.MULTILINE)
    return failed[1] if failed else str(drawn.killers[run.killer])


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw mutants and print what became of them; 1 if one survived that is not listed as equivalent."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.draw", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--sample", type=int, default=100, help="how many are drawn (default: 100)")
    parser.add_argument("--seed", type=int, default=1, help="which ones are drawn (default: 1)")
    parser.add_argument("--all", action="store_true", help="all that there are")
    parser.add_argument(
        "--only", action="append", default=[], help="of files that begin so (may be repeated)"
    )
    chosen = parser.parse_args(arguments)
    known = equivalent()
    every = [drawn for drawn in drawable(chosen.only) if drawn.listed not in known]
    sample = every
    if not chosen.all and chosen.sample < len(every):
        sample = random.Random(chosen.seed).sample(every, chosen.sample)
    _say(f"{len(sample)} of {len(every)} mutants; {len(known)} listed as equivalent are left out")
    with Warm() as warm:
        _check_sound(warm, sample)
        survivors, noticed, cpu_s = _run(warm, sample)
    for killer, count in noticed.most_common():
        _say(f"{count:>6} noticed by {killer}")
    for drawn in survivors:
        _say(f"survived: {drawn}")
    percent = 100 * (1 - len(survivors) / max(len(sample), 1))
    _say(f"{len(sample) - len(survivors)} of {len(sample)} noticed ({percent:.1f} %), {cpu_s:.0f} CPU s")
    return int(bool(survivors))


def _check_sound(warm: Warm, sample: Sequence[Drawn]) -> None:
    """Killers that fail on sound code would notice everything."""
    for killer in dict.fromkeys(killer for drawn in sample for killer in drawn.killers):
        done = warm.run([killer], limit_s=LIMIT_S)
        if done.code != 0:
            raise RuntimeError(f"{killer} fails on the code as it is:\n{done.printed}")


def _run(warm: Warm, sample: Sequence[Drawn]) -> tuple[list[Drawn], Counter[str], float]:
    survivors: list[Drawn] = []
    noticed: Counter[str] = Counter()
    cpu_s = 0.0
    for number, drawn in enumerate(sample, start=1):
        path = str(ROOT / "safewrite" / drawn.file)
        run = warm.run(drawn.killers, {path: drawn.change.text}, limit_s=LIMIT_S)
        cpu_s += run.cpu_s
        killer = noticed_by(drawn, run)
        _say(f"{number:>4} {run.cpu_s:5.1f} s {killer or 'SURVIVED':<70} {drawn}")
        if killer:
            noticed[killer] += 1
        else:
            survivors.append(drawn)
    return survivors, noticed, cpu_s


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
