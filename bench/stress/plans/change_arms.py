"""Plans the arms under a change log: writers of one log on one table, with safewrite and as users of other libraries do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from safewrite.testing.faults import FaultKind, RequestStep, Rule

from ...servers.catalogs import CatalogKind
from ..writers import change_log
from ..writers.change_log import LogPlan
from . import delta_arms, iceberg_arms, spark_writers
from .plan import CALLER_STEP, ArmPlan, Settings, WriterPlan

SHARED = ("changes-shared", "changes-shared-rest")
"""Writers that share commits from their first try on."""
CATALOGS: dict[str, CatalogKind] = {
    "changes-sql": "sql", "changes-rest": "rest", "changes-glue": "glue", "changes-shared-rest": "rest",
}  # fmt: skip
ARBITERS = {
    "changes-dynamodb": "dynamodb", "changes-object-store": "object-store", "changes-shared": "dynamodb",
}  # fmt: skip
SAFE_ARMS = (*ARBITERS, *CATALOGS)
MERGE, UNGUARDED, UPSERT = "changes-merge", "changes-kafka2delta", "changes-upsert"
NAIVE_ARMS = (MERGE, UNGUARDED, UPSERT)
USUAL = ("changes-dynamodb", "changes-sql", *NAIVE_ARMS)
"""The arms of ``--changes``."""
ICEBERG_ARMS = (*CATALOGS, UPSERT)
NAIVE_WRITERS = 4
CHANGES = 1200
"""How many changes a log has where nobody says."""
_FEW = 500
"""Of a log with fewer changes there may be nothing left to compact after the first time."""
_NAIVE_SHARE, _NAIVE_MAX = 2, 2000
"""Naive writers get a log that is so much shorter, and no longer than this: their arms run beside, on the same cores."""


def make_arm(name: str, settings: Settings, base: int) -> ArmPlan:
    """The plan of one arm, before kills are placed."""
    size = settings.changes or CHANGES
    if name in SAFE_ARMS:
        kind = CATALOGS.get(name)
        log = _log(size, settings.change_keys, settings.change_batch)
        keeper = _caretaker(settings, base, log, is_delta=kind is None)
        rules = (
            delta_arms.faults_of(settings.seed, ARBITERS[name])
            if kind is None
            else iceberg_arms.safewrite_faults(settings.seed)
        )
        title = (
            f"safewrite on Delta, {delta_arms.ARBITERS[ARBITERS[name]]}"
            if kind is None
            else f"safewrite on Iceberg, {iceberg_arms.TITLES[kind]}"
        )
        shares = {"group": "always"} if name in SHARED else {}
        title += ", writers that share commits" * bool(shares)
        rules = (*rules, *delta_arms.member_faults()) if shares else rules
        writers = _safewrite(settings, base, log, is_delta=kind is None, **shares)
        return ArmPlan(
            name, f"{title}: a change log", (*writers, keeper), (*memory_faults(), *rules),
            arbiter=ARBITERS.get(name, "catalog"), catalog=kind, log=log,
            shares=bool(shares),
        )  # fmt: skip
    log = _log(max(2, min(_NAIVE_MAX, size // _NAIVE_SHARE)))
    faults = delta_arms.peer_faults() if name != UPSERT else iceberg_arms.naive_faults("sql")
    match name:
        case "changes-merge":
            title = "deltalake merge, deletes and updates guarded by sequence"
            writers = _naive(settings, base, log, title, "changes_deltalake.py", rule="guarded", calls_max=30)
        case "changes-kafka2delta":
            title = "deltalake merge, updates guarded by sequence, deletes not (kafka2delta's rule)"
            writers = _naive(
                settings, base, log, title, "changes_deltalake.py", rule="unguarded", calls_max=30
            )
        case "changes-upsert":
            # A truncate that PyIceberg does not get through would leave every key in doubt.
            log = replace(log, truncates=0)
            title = "PyIceberg upsert, PostgreSQL"
            writers = _naive(settings, base, log, title, "changes_pyiceberg.py", calls_max=8)
        case _:
            raise ValueError(f"no arm under a change log is named {name!r}")
    catalog: CatalogKind | None = "sql" if name == UPSERT else None
    return ArmPlan(name, title, writers, peer_faults=faults, catalog=catalog, naive=True, log=log)


def arms_of(format_: str | None, kinds: Sequence[CatalogKind]) -> tuple[str, ...]:
    """The arms of a format and its catalogs; of both where none is named."""
    if format_ is None:
        return USUAL
    if format_ == "delta":
        return ("changes-dynamodb", MERGE, UNGUARDED)
    return (
        *(name for name, kind in CATALOGS.items() if kind in kinds and name not in SHARED),
        *((UPSERT,) if "sql" in kinds else ()),
    )


def memory_faults() -> tuple[Rule, ...]:
    """What befalls the file of what is remembered of deleted keys, each at least once."""
    put = (RequestStep.PUT_MEMORY,)
    return (
        Rule(kind=FaultKind.LOST_ANSWER, steps=put, nth=2),
        Rule(kind=FaultKind.ERROR_503, steps=put, nth=3),
        Rule(kind=FaultKind.LOST_ANSWER_500, steps=put, nth=4),
        Rule(kind=FaultKind.TRUNCATE_BODY, steps=put, method="PUT", nth=6),
        Rule(kind=FaultKind.CUT, steps=(RequestStep.GET_MEMORY,), nth=2),
        Rule(kind=FaultKind.LOST_ANSWER, steps=put, probability=0.02),
        Rule(kind=FaultKind.ERROR_500, steps=(*put, RequestStep.GET_MEMORY), probability=0.02),
    )


def _log(changes: int, keys: int = 0, batch: int = 0) -> LogPlan:
    return LogPlan(
        changes=changes, keys=keys or max(12, changes // 10), batch=batch or max(4, min(40, changes // 40))
    )


_FRAMES = (
    ("pandas", "safewrite pandas"),
    ("polars", "safewrite polars"),
    ("arrow", "safewrite Arrow"),
    ("dicts", "safewrite dicts"),
)


def _safewrite(
    settings: Settings, base: int, log: LogPlan, *, is_delta: bool, **more: str
) -> tuple[WriterPlan, ...]:
    """Processes of each kind of frame, and Spark's streams where they are asked for."""
    common = {
        "keyed": True, "on_error": "retry", "on_unknown": "retry", "calls_max": 12, "lease_s": settings.lease_s, **more,
    }  # fmt: skip
    count = min(settings.writers, settings.change_writers)
    places = count + settings.spark
    ours = tuple(
        _writer(
            base, number, places, settings.seed, log, kind=_FRAMES[number % 4][1], program="changes_safewrite.py",
            judged=True, habits={**common, "frame": _FRAMES[number % 4][0]},
        )
        for number in range(count)
    )  # fmt: skip
    if not settings.spark:
        return ours
    commit = spark_writers.COMMITS["delta" if is_delta else "iceberg"]
    streams = tuple(
        _writer(
            base, number, places, settings.seed, log, kind="safewrite Spark stream, sink",
            program="changes_stream.py", judged=True, habits={"lease_s": settings.lease_s},
        )
        for number in range(count, places)
    )  # fmt: skip
    return (
        *(
            spark_writers.slowed(one, settings, lives_s=spark_writers.LIFE_S * settings.spark) for one in ours
        ),
        *(
            replace(
                one, spark=True, traps=spark_writers.ends(settings, one.number, spark_writers.EPOCH_STEP, commit)
            )
            for one in streams
        ),
    )  # fmt: skip


def _caretaker(settings: Settings, base: int, log: LogPlan, *, is_delta: bool) -> WriterPlan:
    """What other engines do to the table meanwhile: deltalake compacts it, or PyIceberg expires its snapshots."""
    program, chore = ("changes_caretaker.py", "compact") if is_delta else ("caretaker.py", "expire")
    habits = {
        "chore": chore, "think_s": 1.5, "lease_s": settings.lease_s, "kept_s": 2 * settings.pause_s,
    }  # fmt: skip
    return WriterPlan(
        base + 80,
        f"chores: {chore}",
        program,
        chores=True,
        foreign=is_delta,
        appends=1 if log.changes < _FEW else 2,
        habits=tuple(habits.items()),
    )


def _naive(
    settings: Settings, base: int, log: LogPlan, kind: str, program: str, **habits: Any
) -> tuple[WriterPlan, ...]:
    user = {"on_error": "retry", "on_unknown": "retry", **habits}
    killed = ({"seq": 2, "step": CALLER_STEP, "when": "before", "action": "kill"},)
    found = [
        _writer(
            base,
            number,
            NAIVE_WRITERS,
            settings.seed,
            log,
            kind=kind,
            program=program,
            judged=False,
            habits=user,
        )
        for number in range(NAIVE_WRITERS)
    ]
    return (replace(found[0], traps=killed), *found[1:])


def _writer(
    base: int, place: int, places: int, seed: int, log: LogPlan, *, kind: str, program: str, judged: bool,
    habits: dict[str, Any],
) -> WriterPlan:  # fmt: skip
    deliveries = len(change_log.drawn(seed, log).of_writer(place, places))
    more = {"log": asdict(log), "place": place, "places": places}
    return WriterPlan(
        base + place, kind, program, judged=judged, appends=deliveries, rows=log.batch,
        habits=tuple({**habits, **more}.items()),
    )  # fmt: skip
