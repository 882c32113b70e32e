"""Says who is compared, where, and against which aims: the same scenarios serve Delta and Iceberg."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ..stress.proxies.proxy import FaultProxy
from . import writers
from .harness import Harness
from .iceberg_harness import Catalog, IcebergHarness
from .iceberg_writers import LEASED, PLAIN, PYICEBERG, V3


class Place(Protocol):
    """Servers on loopback, near and by a slower way that counts requests."""

    folder: Path

    def place(self, name: str, *, slow: bool = False) -> Any: ...

    def requests(self) -> Counter[str]: ...

    @property
    def proxy(self) -> FaultProxy: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """The arms of one format.

    ``writers`` is the name of the module in this folder that calls them.  ``beside`` says what the peer does
    warm and cold, ``attempt_step`` which request each of its attempts makes once.  ``queued`` are the contending arms
    that are held to few attempts per ack.
    """

    writers: str
    safe: tuple[str, ...]
    queued: tuple[str, ...]
    peer: str
    beside: Mapping[str, str]
    attempt_step: str
    lone: Mapping[str, tuple[float, ...]]
    """For each arm the most that a lone append may take of the peer's: near and warm, near and cold, away and warm, away and cold."""
    variants: Mapping[str, tuple[str, float]]
    """Arms of lone appends that are held against another one of ours: that one, and the most that they may take of it."""
    contended: Mapping[str, tuple[float, float]]
    """The arms that contend, and for each the least that they must commit of what the peer's do: near and away."""
    contending: str
    """How safewrite's contenders are opened."""
    sharing: float
    """Writers that share commits must commit at least so many times what the peer's do."""
    notes: tuple[str, ...]
    ground: Callable[[Path, float], AbstractContextManager[Place]]

    @property
    def arms(self) -> tuple[str, ...]:
        """Every arm, the peer last."""
        return (*self.safe, self.peer)

    @property
    def calls(self) -> Any:
        """The module that calls them."""
        return module_of(self.writers)


def module_of(name: str) -> Any:
    """The module of writers of that name."""
    return importlib.import_module(f".{name}", __package__)


def alone(arms: tuple[str, ...]) -> tuple[str, ...]:
    """The arms whose writers share no commit."""
    return tuple(f"{arm} {writers.ALONE}" for arm in arms)


_ALONE = alone(writers.SAFE)
_MAKES_ITS_OWN = 'safewrite is opened with group="never": each writer makes its own commits, as {} does.'
DELTA = Contest(
    writers="writers",
    safe=writers.SAFE,
    queued=_ALONE,
    peer=writers.DELTALAKE,
    beside={"warm": "write_deltalake(handle)", "cold": "write_deltalake(uri)"},
    attempt_step="put_commit",
    lone={
        writers.DYNAMODB: (0.9, 0.6, 0.8, 0.55),
        writers.OBJECT_STORE: (0.7, 0.4, 0.5, 0.4),
        f"{writers.DYNAMODB}, keyed": (1.1,),
        f"{writers.OBJECT_STORE}, keyed": (0.9,),
    },
    variants={},
    contended=dict(zip(_ALONE, ((4.0, 1.5), (3.0, 2.0)), strict=True)),
    contending=_MAKES_ITS_OWN.format("deltalake"),
    sharing=50.0,
    notes=(
        (
            "Medians leave out the appends that write a checkpoint: safewrite's every 10 versions (its default), "
            "within the append that is due; deltalake's every 100. They show in max."
        ),
        (
            "deltalake has no idempotency key, reads nothing back and verifies nothing; keyed lines are held "
            "against its plain append."
        ),
    ),
    ground=lambda folder, delay_s: Harness(folder, delay_s=delay_s),
)


def iceberg(catalog: Catalog) -> Contest:
    """The arms on one kind of catalog; a SQL catalog's writers always have the queue in its database."""
    safe = (PLAIN,) if catalog == "sql" else (LEASED, PLAIN)
    return Contest(
        writers="iceberg_writers",
        safe=safe,
        queued=alone(safe[:1]),
        peer=PYICEBERG,
        beside={"warm": "Table.append (one handle)", "cold": "load_catalog().load_table().append"},
        attempt_step="put_manifest_list",
        lone=dict.fromkeys((LEASED, PLAIN), (0.7,) * 4),
        variants={V3: (PLAIN, 1.1)},
        contended=dict.fromkeys(alone(safe), (2.0, 2.0)),
        contending=_MAKES_ITS_OWN.format("PyIceberg"),
        sharing=20.0,
        notes=(
            (
                "PyIceberg has no idempotency key, checks no data file and looks at nothing afterwards; keyed lines "
                "are held against its plain append."
            ),
        ),
        ground=lambda folder, delay_s: IcebergHarness(folder, catalog, delay_s=delay_s),
    )
