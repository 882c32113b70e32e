"""Measures what a message costs in Lambda: billed milliseconds of functions fed by SQS, beside awswrangler's."""

from __future__ import annotations

import json
import statistics
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ..servers.aws_lambda.function import Function, Invocation
from ..servers.aws_lambda.mapping import EventSourceMapping, Feed
from ..servers.aws_lambda.sandbox import Setup
from ..servers.aws_lambda.sqs import Queue
from . import writers
from .figures import Aim, Line, Scenario, at_most, interleave, paired
from .harness import ROOT, Harness
from .imports import wrangler_python
from .scale import Scale

WRANGLER, WRANGLER_EACH = "awswrangler", "awswrangler, a commit per message"
RATIO_MAX = 1.0
STARTING_MAX = 2
"""Environments that start at once: more would take the CPU from each other, which they do not in Lambda."""
LIMIT_S = 60.0
"""The time limit of a function."""
PATIENCE_S = 300.0
RECEIVED_MAX = 50
"""Receives after which a message is a dead letter; a call that loses a race fails its batch, and that comes again."""
_HANDLERS = Path(__file__).resolve().parent / "handlers"
_THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TOKIO_WORKER_THREADS"), "1")


@dataclass(slots=True)
class Cell:
    """One arm in one round: its bill, and what became of messages and rows."""

    billed_ms: int = 0
    warm_ms: list[float] = field(default_factory=list)
    """Of each invocation, without the start of its environment."""
    init_ms: list[float] = field(default_factory=list)
    acked: int = 0
    unacked: int = 0
    failed: int = 0
    """Deliveries that failed; the message came again."""
    lost: int = 0
    doubled: int = 0
    errors: Counter[str] = field(default_factory=Counter)

    def add(self, invocation: Invocation) -> None:
        """Put an invocation on the bill, whether it failed or not."""
        self.billed_ms += invocation.billed_ms
        self.warm_ms.append(invocation.duration_ns / 1e6)
        if invocation.init_ns:
            self.init_ms.append(invocation.init_ns / 1e6)
        if invocation.status != "result":
            self.errors[f"{invocation.error_type}: {invocation.value.get('errorMessage', '')}"[:120]] += 1

    @property
    def per_ack(self) -> float:
        """Billed milliseconds for each acked message; with none acked, all of them for nothing."""
        return self.billed_ms / self.acked if self.acked else float("inf")

    @property
    def warm_per_ack(self) -> float:
        """The same without the starts of environments."""
        return sum(self.warm_ms) / self.acked if self.acked else float("inf")


def run(scale: Scale, folder: Path) -> Scenario:
    """Let each arm's function work off the same messages, turn by turn."""
    python = wrangler_python()
    arms = [*writers.SAFE]
    if python is not None:
        arms += [WRANGLER_EACH, WRANGLER] if scale.function_each else [WRANGLER]
    with Harness(folder) as lab:
        cells: dict[str, Callable[[], Cell]] = {
            arm: partial(work_off, lab, arm, scale, sys.executable if arm in writers.SAFE else str(python))
            for arm in arms
        }
        found = interleave(cells, scale.function_rounds)
    return Scenario(
        name="lambda",
        title="What a message costs in Lambda",
        measures=f"Billed milliseconds of a Lambda function per acked message: {scale.function_messages} SQS messages of "
        f"{scale.function_rows} rows in batches of 1 to 10, AWS's Python runtime in {scale.functions} environments, no faults. The sum over "
        "all invocations, failed ones too, of start and duration, rounded up to 1 ms, as Lambda bills since August 2025. Ratios are of the same round.",
        lines=tuple(_lines(found, scale)),
        aims=tuple(_aims(found)),
        notes=tuple(_notes(python)),
        broken=tuple(_broken(found)),
    )  # fmt: skip


def _notes(python: Path | None) -> Iterable[str]:
    yield (
        "All environments share the cores of this machine, where each has its own in Lambda; they start "
        f"{STARTING_MAX} at a time, before the messages come. warm: without the start. init, call: medians of one start and of one invocation."
    )
    yield (
        "awswrangler: the messages of a batch as one frame, one commit; if that raises, the whole batch comes again. "
        "`failed` deliveries are messages that came again; `lost` and `doubled` rows are of acked messages, as deltalake reads the table."
    )
    if python is None:
        yield "awswrangler was not measured: its environment is not built (make arms)."


# --- one arm ------------------------------------------------------------------------------------------
def work_off(lab: Harness, arm: str, scale: Scale, python: str) -> Cell:
    """Send the messages, let a new function on a new table write them, and read the table back."""
    assert lab.cloud is not None
    place = lab.place("function")
    writers.create(arm if arm in writers.SAFE else writers.DELTALAKE, place, schema())
    name = f"bench-{uuid.uuid4().hex[:8]}"
    client = lab.cloud.dynamodb.boto3_client("sqs")
    queue = Queue(client, name, visibility_s=int(6 * LIMIT_S), received_max=RECEIVED_MAX)
    ids = queue.send([json.dumps(rows_of(number, scale)) for number in range(scale.function_messages)])
    numbers = {message_id: number for number, message_id in enumerate(ids)}
    acked: set[int] = set()
    cell, lock = Cell(), threading.Lock()

    def succeeded(message_id: str) -> None:
        with lock:
            acked.add(numbers[message_id])

    function = _Metered(_setup(arm, place, python, name), lab.folder / name, scale.functions, cell)
    with function:
        function.start_all()
        feed = Feed(retry_s=0, uneven=True, seed=1)
        with EventSourceMapping(queue, function, feed, succeeded=succeeded) as mapping:
            mapping.wait_until_empty(PATIENCE_S)
    if mapping.errors:
        raise RuntimeError("\n".join(mapping.errors))
    cell.acked, cell.unacked = len(acked), len(ids) - len(acked)
    cell.failed = mapping.counts["redelivery"] + cell.unacked
    cell.lost, cell.doubled = flaws(ids_in(place), acked, scale.function_rows)
    return cell


class _Metered(Function):
    """A function whose invocations are put on a bill."""

    def __init__(self, setup: Setup, run_dir: Path, concurrency: int, cell: Cell) -> None:
        super().__init__(setup, run_dir, concurrency=concurrency, starting_max=STARTING_MAX)
        self._cell = cell
        self._lock = threading.Lock()

    def invoke(self, event: Any) -> Invocation:
        invocation = super().invoke(event)
        with self._lock:
            self._cell.add(invocation)
        return invocation


def _setup(arm: str, place: writers.Place, python: str, name: str) -> Setup:
    config: dict[str, Any] = {**asdict(place), "each": arm == WRANGLER_EACH}
    variables = dict(_THREADS)
    handler = "by_awswrangler"
    if arm in writers.SAFE:
        handler = "by_safewrite"
        config["settings"] = writers.settings(arm, place)
        variables["PYTHONPATH"] = str(ROOT)
    variables["BENCH_FUNCTION"] = json.dumps(config)
    return Setup(
        f"{handler}.lambda_handler", _HANDLERS, python, name=name, timeout_s=LIMIT_S, variables=variables
    )


# --- messages and rows --------------------------------------------------------------------------------
def schema() -> Any:
    """The schema of the table; ``id`` names a row of a message."""
    import pyarrow as pa

    return pa.schema([("id", pa.int64()), ("sensor", pa.string()), ("value", pa.float64())])


def rows_of(number: int, scale: Scale) -> list[dict[str, Any]]:
    """The rows of a message."""
    first = number * scale.function_rows
    return [
        {"id": first + row, "sensor": f"sensor-{row % 7}", "value": row / 7}
        for row in range(scale.function_rows)
    ]


def ids_in(place: writers.Place) -> list[int]:
    """The ids of all rows, as deltalake reads them."""
    from deltalake import DeltaTable

    table = DeltaTable(place.uri, storage_options=dict(place.storage_options))
    ids: list[int] = table.to_pyarrow_table(columns=["id"])["id"].to_pylist()
    return ids


def flaws(ids: Sequence[int], acked: Iterable[int], rows: int) -> tuple[int, int]:
    """How many rows of acked messages are not there, and how many of any are there once too often."""
    times = Counter(ids)
    wanted = {message * rows + row for message in acked for row in range(rows)}
    return len(wanted - times.keys()), times.total() - len(times)


# --- figures ------------------------------------------------------------------------------------------
def _lines(found: Mapping[str, list[Cell]], scale: Scale) -> list[Line]:
    case = f"{scale.functions} functions"
    bills = {arm: tuple(cell.per_ack for cell in cells) for arm, cells in found.items()}
    lines = []
    for arm, cells in found.items():
        has_peer = WRANGLER in found and arm != WRANGLER
        lines.append(
            Line(
                case=case, arm=arm, unit="billed ms/message", values=bills[arm], extra=_extra(cells),
                peer=WRANGLER if has_peer else None,
                ratios=paired(bills[arm], bills[WRANGLER]) if has_peer else (),
            )
        )  # fmt: skip
    return lines


def _extra(cells: Sequence[Cell]) -> dict[str, Any]:
    errors: Counter[str] = sum((cell.errors for cell in cells), Counter())
    return {
        "warm": round(statistics.median(cell.warm_per_ack for cell in cells), 1),
        "init": round(statistics.median(ms for cell in cells for ms in cell.init_ms)),
        "call": round(statistics.median(ms for cell in cells for ms in cell.warm_ms)),
        "invocations": sum(len(cell.warm_ms) for cell in cells),
        **{name: sum(getattr(cell, name) for cell in cells) for name in ("acked", "unacked", "failed", "lost", "doubled")},
        "error_texts": dict(errors.most_common(5)),
    }  # fmt: skip


def _aims(found: Mapping[str, list[Cell]]) -> list[Aim]:
    """A message costs no more than with awswrangler, with the starts of environments and without."""
    if WRANGLER not in found:
        return []
    aims = []
    for arm in writers.SAFE:
        for what, name in (("billed ms", "per_ack"), ("billed ms without starts", "warm_per_ack")):
            ours, theirs = ([getattr(cell, name) for cell in found[one]] for one in (arm, WRANGLER))
            ratio = statistics.median(paired(ours, theirs))
            aims.append(at_most(f"{what} per acked message, {arm} : {WRANGLER}", RATIO_MAX, ratio))
    return aims


def _broken(found: Mapping[str, list[Cell]]) -> list[str]:
    """What safewrite owes where nothing goes wrong: each message acked at its first delivery, each row there once."""
    return [
        f"{arm}: {getattr(cell, name)} {what}"
        for arm in writers.SAFE
        for cell in found[arm]
        for name, what in (
            ("unacked", "messages without an ack"), ("failed", "failed deliveries"),
            ("lost", "acked rows are lost"), ("doubled", "rows are doubled"),
        )
        if getattr(cell, name)
    ]  # fmt: skip
