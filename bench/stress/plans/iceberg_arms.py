"""Plans the arms on Iceberg, for each catalog: safewrite under every class of fault, and PyIceberg."""

from __future__ import annotations

import random
from typing import Any, get_args

from safewrite.testing.faults import FaultKind, RequestStep, Rule

from ...servers.catalogs import CatalogKind
from .delta_arms import member_faults
from .plan import CALLER_STEP, FAULT_CLASSES, PEER_THINK_S, ArmPlan, Settings, WriterPlan

KINDS: tuple[CatalogKind, ...] = get_args(CatalogKind)
TITLES = {"rest": "REST catalog", "glue": "Glue", "sql": "PostgreSQL"}
SAFE_ARMS = tuple(f"safewrite-{kind}" for kind in KINDS)
SHARED_ARMS = tuple(f"safewrite-shared-{kind}" for kind in KINDS)
"""Writers that share snapshots from their first try on, while those who commit for the others are killed."""
LAST_ATTEMPT = {kind: f"last-attempt-{kind}" for kind in KINDS if kind != "sql"}
"""Catalogs that answer over HTTP can report a conflict for what has landed; PyIceberg takes no error of
PostgreSQL's for one.
"""
NAIVE_ARMS = (*(f"pyiceberg-{kind}" for kind in KINDS), *LAST_ATTEMPT.values())
CHORES = ("compact", "expire", "evolve")
"""The chores of maintenance while writers are at work; the last of them once, the others again and again."""
ATTEMPTS = 5
"""How often PyIceberg tries a commit: once, and ``commit.retry.num-retries`` times (default 4) again."""

_COMMIT, _LEDGER = (RequestStep.CATALOG_COMMIT,), (RequestStep.PUT_LEDGER, RequestStep.UPDATE_LEDGER)
_UPLOADS = (RequestStep.PUT_DATA, RequestStep.PUT_MANIFEST, RequestStep.PUT_MANIFEST_LIST)
CLASSES = (*FAULT_CLASSES, FaultKind.LOST_ANSWER_502, FaultKind.LOST_ANSWER_504)
"""Balancers in front of a catalog answer 502 and 504 to what was performed."""


def arms_of(kind: CatalogKind) -> tuple[str, ...]:
    """The arms of one catalog."""
    last = (LAST_ATTEMPT[kind],) if kind in LAST_ATTEMPT else ()
    return (f"safewrite-{kind}", f"pyiceberg-{kind}", *last)


# --- faults -------------------------------------------------------------------------------------
def safewrite_faults(seed: int) -> tuple[Rule, ...]:
    """Every class, each placed once by the seed among the first commits (a torn upload, among the first files)."""
    rng = random.Random(f"{seed}/faults")
    late = {"delay_s": 0.6}
    of_commits = [kind for kind in CLASSES if kind is not FaultKind.TRUNCATE_BODY]
    # After those of the last attempt, and no two rules on one request, for the first would take it.
    first = 2 + ATTEMPTS
    places = rng.sample(range(first, first + len(of_commits) * 3 // 2), len(of_commits))
    once = [
        Rule(kind=kind, steps=_COMMIT, nth=nth, **(late if kind in (FaultKind.LATE, FaultKind.DELAY) else {}))
        for kind, nth in zip(of_commits, places, strict=True)
    ]
    torn = Rule(
        kind=FaultKind.TRUNCATE_BODY, steps=(RequestStep.PUT_DATA,), method="PUT", nth=rng.randrange(1, 8)
    )
    return (
        *last_attempt_faults(),
        *once,
        torn,
        Rule(kind=FaultKind.LOST_ANSWER, steps=_COMMIT, probability=0.06),
        Rule(kind=FaultKind.LOST_ANSWER_500, steps=_COMMIT, probability=0.04),
        Rule(kind=FaultKind.LOST_ANSWER_504, steps=_COMMIT, probability=0.03),
        Rule(kind=FaultKind.PRECONDITION_412, steps=_COMMIT, probability=0.05),
        Rule(kind=FaultKind.CONFLICT_409, steps=_COMMIT, probability=0.04),
        Rule(kind=FaultKind.LATE, steps=_COMMIT, probability=0.02, delay_s=0.6),
        Rule(kind=FaultKind.LOST_ANSWER, steps=(*_UPLOADS, *_LEDGER), probability=0.015),
        Rule(kind=FaultKind.LOST_ANSWER_500, steps=(*_UPLOADS, *_LEDGER), probability=0.015),
        Rule(kind=FaultKind.THROTTLE, steps=(*_UPLOADS, *_LEDGER), probability=0.015),
        Rule(kind=FaultKind.TRUNCATE_BODY, steps=_UPLOADS, method="PUT", probability=0.01),
        Rule(kind=FaultKind.ERROR_500, probability=0.004),
        Rule(kind=FaultKind.ERROR_503, probability=0.004),
        Rule(kind=FaultKind.CUT, probability=0.004),
        Rule(kind=FaultKind.DELAY, probability=0.02, delay_s=0.25),
    )


def peer_faults(kind: CatalogKind) -> tuple[Rule, ...]:
    """The faults that PyIceberg as a peer meets on our table: none that would let its clean-up destroy it.

    Its SDK for Glue asks again after a lost answer and hears of a conflict with itself.  On the last
    attempt PyIceberg would then delete files of the snapshot that landed, and the table with them.
    """
    slow = (Rule(kind=FaultKind.DELAY, probability=0.02, delay_s=0.25),)
    if kind == "glue":
        return slow
    return (Rule(kind=FaultKind.LOST_ANSWER, steps=_COMMIT, probability=0.03), *slow)


def naive_faults(kind: CatalogKind) -> tuple[Rule, ...]:
    """Lost answers, as they come now and then over a real network; here more often."""
    lost = FaultKind.LOST_ANSWER if kind == "sql" else FaultKind.LOST_ANSWER_504
    return (Rule(kind=lost, steps=_COMMIT, every=4),)


def last_attempt_faults() -> tuple[Rule, ...]:
    """Let the first commit through.  Refuse every attempt of the second but the last, which lands and is
    reported as a conflict all the same.
    """
    refused = [
        Rule(kind=FaultKind.CONFLICT_409, steps=_COMMIT, nth=1 + attempt) for attempt in range(1, ATTEMPTS)
    ]
    return (*refused, Rule(kind=FaultKind.PRECONDITION_412, steps=_COMMIT, nth=1 + ATTEMPTS))


# --- arms ---------------------------------------------------------------------------------------
_PANDAS = ("safewrite pandas, key", {"frame": "pandas", "keyed": True, "on_unknown": "retry"})
_POLARS = ("safewrite polars, txn", {"frame": "polars", "txn": True, "on_unknown": "retry"})
_ARROW = ("safewrite Arrow, no key", {"frame": "arrow", "on_restart": "give up"})


def make_arm(name: str, settings: Settings, base: int) -> ArmPlan:
    """The plan of one arm, whose writers are numbered from ``base``, before kills are placed."""
    what, _, last = name.rpartition("-")
    kind = next(kind for kind in KINDS if kind == last)
    match what:
        case "safewrite":
            faults = safewrite_faults(settings.seed)
            return ArmPlan(
                name, f"safewrite on Iceberg, {TITLES[kind]}", _safewrite(settings, base),
                faults, peer_faults(kind), arbiter="catalog", catalog=kind,
            )  # fmt: skip
        case "safewrite-shared":
            faults = (*safewrite_faults(settings.seed), *member_faults())
            return ArmPlan(
                name, f"safewrite on Iceberg, {TITLES[kind]}, writers that share commits",
                _safewrite(settings, base, group="always"), faults, peer_faults(kind), arbiter="catalog", catalog=kind,
                shares=True,
            )  # fmt: skip
        case "pyiceberg":
            title = f"PyIceberg, {TITLES[kind]}: lost answers and kills, called again"
            return ArmPlan(
                name,
                title,
                _naive(base, min(6, settings.writers)),
                peer_faults=naive_faults(kind),
                catalog=kind,
                naive=True,
            )
        case "last-attempt":
            title = f"PyIceberg, {TITLES[kind]}: the last attempt lands and is called a conflict"
            writer = WriterPlan(base, "PyIceberg, one writer", "pyiceberg_append.py", appends=4, habits=_USER)
            return ArmPlan(
                name, title, (writer,), peer_faults=last_attempt_faults(), catalog=kind, naive=True
            )
    raise ValueError(f"no Iceberg arm is named {name!r}")


_USER: tuple[tuple[str, Any], ...] = (("on_unknown", "retry"), ("calls_max", 3))
"""The habit of most callers: an exception is no success, so call again."""


def _naive(base: int, count: int) -> tuple[WriterPlan, ...]:
    killed = ({"seq": 2, "step": CALLER_STEP, "when": "before", "action": "kill"},)
    return tuple(
        WriterPlan(
            base + number,
            "PyIceberg, called again after an error",
            "pyiceberg_append.py",
            appends=5,
            traps=killed if number < 2 else (),
            habits=_USER,
        )
        for number in range(count)
    )


def _safewrite(settings: Settings, base: int, **more: Any) -> tuple[WriterPlan, ...]:
    """Three quarters append by safewrite, the rest by PyIceberg; a caretaker maintains the table."""
    safe = [arm for arm in settings.arms if arm.startswith("safewrite-")]
    # Where a run has several such arms, each is shorter, for the run is to take minutes.
    appends = max(3, settings.appends // max(1, len(safe)))
    peers = max(1, settings.writers // 4)
    kinds = [(_PANDAS, _POLARS, _PANDAS, _ARROW)[index % 4] for index in range(settings.writers - peers)]
    common = {
        "on_error": "retry", "calls_max": 12, "lease_s": settings.lease_s, "schema_mode": "merge",
        "think_s": 0.0, **more,
    }  # fmt: skip
    ours = tuple(
        WriterPlan(
            base + number, title, "safewrite_writer.py", judged=True, appends=appends, rows=settings.rows,
            habits=tuple({**common, **habits}.items()),
        )
        for number, (title, habits) in enumerate(kinds)
    )  # fmt: skip
    theirs = tuple(
        WriterPlan(
            base + 50 + number, "PyIceberg by itself (peer)", "pyiceberg_append.py", appends=appends, rows=50,
            habits=(("think_s", PEER_THINK_S),),
        )
        for number in range(peers)
    )  # fmt: skip
    keepers = tuple(
        WriterPlan(
            base + 80 + number, f"chores: {chore}", "caretaker.py", chores=True,
            appends=1 if chore == "evolve" else max(2, appends // 2),
            habits=(
                ("chore", chore), ("think_s", 1.0), ("lease_s", settings.lease_s), ("kept_s", 2 * settings.pause_s),
                ("of_writers", [base, base + len(ours)]),
            ),
        )
        for number, chore in enumerate(CHORES)
    )  # fmt: skip
    return ours + theirs + keepers
