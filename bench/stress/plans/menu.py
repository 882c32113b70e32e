"""Lists every arm by its name: which there are, and which run when none is named."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from ...servers.catalogs import CatalogKind
from . import delta_arms, iceberg_arms, lambda_arms, spark_writers
from .plan import WRITERS_PER_ARM_MAX, ArmPlan, Settings

Format: TypeAlias = Literal["delta", "iceberg"]

SPARK_ARMS = delta_arms.SPARK_ARMS
LAMBDA_ARMS = lambda_arms.SAFE_ARMS + lambda_arms.NAIVE_ARMS
SAFE_ARMS = delta_arms.SAFE_ARMS + iceberg_arms.SAFE_ARMS + lambda_arms.SAFE_ARMS
NAIVE_ARMS = delta_arms.NAIVE_ARMS + iceberg_arms.NAIVE_ARMS + SPARK_ARMS + lambda_arms.NAIVE_ARMS
ARMS = (
    *delta_arms.SAFE_ARMS, *delta_arms.NAIVE_ARMS, *iceberg_arms.SAFE_ARMS, *iceberg_arms.NAIVE_ARMS,
    *SPARK_ARMS, *LAMBDA_ARMS,
)  # fmt: skip
SHORT_PAIR = ("safewrite-sql", "pyiceberg-sql")
"""The arms that end a run which names no format, after those on Delta."""


def make_arm(name: str, settings: Settings) -> ArmPlan:
    """The plan of one arm, before kills are placed (:func:`bench.stress.plans.plan.place_traps`)."""
    if name not in ARMS:
        raise ValueError(f"no arm is named {name!r}; there are {', '.join(ARMS)}")
    base = WRITERS_PER_ARM_MAX * (1 + ARMS.index(name))
    make = (
        iceberg_arms.make_arm if is_iceberg(name)
        else lambda_arms.make_arm if name in LAMBDA_ARMS
        else delta_arms.make_arm
    )  # fmt: skip
    return spark_writers.join(make(name, settings, base), settings, base)


def is_iceberg(name: str) -> bool:
    """Whether an arm's table is an Iceberg table."""
    return name in iceberg_arms.SAFE_ARMS + iceberg_arms.NAIVE_ARMS


def choose(
    format_: Format | None,
    *,
    arbiter: str = "both",
    catalog: CatalogKind | None = None,
    own: bool = False,
    spark: bool = False,
    lambda_: bool = False,
) -> tuple[str, ...]:
    """The arms of a format; of Delta and then a short pair of Iceberg where none is named.

    ``own``: the store is the user's own, where arms that lose rows run only if asked for by name.  ``spark``:
    with the naive arms that need Spark.  ``lambda_``: with those in Lambda.
    """
    if format_ == "iceberg" or catalog is not None:
        kinds = get_args(CatalogKind) if catalog is None else (catalog,)
        return tuple(name for kind in kinds for name in iceberg_arms.arms_of(kind))
    safe = tuple(
        name for name in delta_arms.SAFE_ARMS if arbiter in ("both", name.removeprefix("safewrite-"))
    )
    if own:
        return safe
    naive = delta_arms.NAIVE_ARMS + (SPARK_ARMS if spark else ())
    return safe + naive + (LAMBDA_ARMS if lambda_ else ()) + (SHORT_PAIR if format_ is None else ())
