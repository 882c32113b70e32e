"""Lists every arm by its name: which there are, and which run when none is named."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from ...servers.catalogs import CatalogKind
from . import change_arms, delta_arms, iceberg_arms, lambda_arms, spark_writers
from .plan import WRITERS_PER_ARM_MAX, ArmPlan, Settings

Format: TypeAlias = Literal["delta", "iceberg"]

SPARK_ARMS = delta_arms.SPARK_ARMS
LAMBDA_ARMS = lambda_arms.SAFE_ARMS + lambda_arms.NAIVE_ARMS
CHANGE_ARMS = change_arms.SAFE_ARMS + change_arms.NAIVE_ARMS
SAFE_ARMS = (
    delta_arms.SAFE_ARMS + iceberg_arms.SAFE_ARMS + lambda_arms.SAFE_ARMS + change_arms.SAFE_ARMS + delta_arms.SHARED_ARMS
    + iceberg_arms.SHARED_ARMS
)  # fmt: skip
NAIVE_ARMS = (
    delta_arms.NAIVE_ARMS + iceberg_arms.NAIVE_ARMS + SPARK_ARMS + lambda_arms.NAIVE_ARMS + change_arms.NAIVE_ARMS
)  # fmt: skip
ARMS = (
    *delta_arms.SAFE_ARMS, *delta_arms.NAIVE_ARMS, *iceberg_arms.SAFE_ARMS, *iceberg_arms.NAIVE_ARMS,
    *SPARK_ARMS, *LAMBDA_ARMS, *CHANGE_ARMS, *delta_arms.SHARED_ARMS, *iceberg_arms.SHARED_ARMS,
)  # fmt: skip
SHORT_PAIR = ("safewrite-sql", "pyiceberg-sql")
"""The arms that end a run which names no format, after those on Delta."""


def make_arm(name: str, settings: Settings) -> ArmPlan:
    """The plan of one arm, before kills are placed (:func:`bench.stress.plans.plan.place_traps`)."""
    if name not in ARMS:
        raise ValueError(f"no arm is named {name!r}; there are {', '.join(ARMS)}")
    base = WRITERS_PER_ARM_MAX * (1 + ARMS.index(name))
    make = (
        change_arms.make_arm if name in CHANGE_ARMS
        else iceberg_arms.make_arm if is_iceberg(name)
        else lambda_arms.make_arm if name in LAMBDA_ARMS
        else delta_arms.make_arm
    )  # fmt: skip
    arm = make(name, settings, base)
    return arm if arm.log is not None else spark_writers.join(arm, settings, base)


def is_iceberg(name: str) -> bool:
    """Whether an arm's table is an Iceberg table."""
    return name in (
        iceberg_arms.SAFE_ARMS + iceberg_arms.SHARED_ARMS + iceberg_arms.NAIVE_ARMS + change_arms.ICEBERG_ARMS
    )


def choose(
    format_: Format | None,
    *,
    arbiter: str = "both",
    catalog: CatalogKind | None = None,
    own: bool = False,
    spark: bool = False,
    lambda_: bool = False,
    changes: bool = False,
) -> tuple[str, ...]:
    """The arms of a format; of Delta and then a short pair of Iceberg where none is named.

    ``own``: the store is the user's own, where arms that lose rows run only if asked for by name.  ``spark``:
    with the naive arms that need Spark.  ``lambda_``: with those in Lambda.  ``changes``: with those under
    a change log.
    """
    if format_ == "iceberg" or catalog is not None:
        kinds = get_args(CatalogKind) if catalog is None else (catalog,)
        found = tuple(name for kind in kinds for name in iceberg_arms.arms_of(kind))
        return found + (change_arms.arms_of("iceberg", kinds) if changes else ())
    safe = tuple(
        name for name in delta_arms.SAFE_ARMS if arbiter in ("both", name.removeprefix("safewrite-"))
    )
    if arbiter in ("both", "dynamodb"):
        safe += delta_arms.SHARED_ARMS
    if own:
        return safe
    naive = delta_arms.NAIVE_ARMS + (SPARK_ARMS if spark else ())
    more = (LAMBDA_ARMS if lambda_ else ()) + (change_arms.arms_of(format_, ()) if changes else ())
    return safe + naive + more + (SHORT_PAIR if format_ is None else ())
