"""``python -m bench.perf.kept_libraries`` times parts of safewrite beside libraries that could stand in for them.

Each pair does the same work on the same input, and the results are compared before they are timed.  The figures
are of decision 0025.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from functools import partial
from statistics import median
from typing import Any

import h11
import pyarrow as pa
from pyiceberg.exceptions import NotInstalledError
from pyiceberg.transforms import BucketTransform, DayTransform, Transform, TruncateTransform
from pyiceberg.types import DateType, LongType, PrimitiveType, StringType

from bench.stress.proxies.http1 import read_reply, read_request
from safewrite.frames.predicate import Compare, Either, In, truths
from safewrite.iceberg.data.transforms import physical, transformed

ROUNDS = 5
ROWS = 200_000
Pair = tuple[str, Callable[[], Any], Callable[[], Any]]
"""What is done, our way of it, and the library's."""


def timed(work: Callable[[], Any]) -> float:
    """Milliseconds, the median of some rounds."""
    took = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        work()
        took.append((time.perf_counter() - started) * 1000)
    return median(took)


# --- IN: one comparison for each value, and pyarrow's is_in ------------------------------------------------
def lists() -> Iterator[Pair]:
    rows = pa.table({"id": pa.array(range(100_000), pa.int64())})
    for count in (2, 10, 100, 1_000, 10_000, 100_000):
        values = tuple(range(0, 2 * count, 2))
        # As where= made them before; of a longer chain a part is timed.
        some = values[:1_000]
        chain = Either(tuple(Compare("id", "=", value) for value in some))
        looked_up = In("id", values)
        assert truths(chain, rows).to_pylist() == truths(In("id", some), rows).to_pylist()
        scale = f" (of {len(some)} values, times {count // len(some)})" if count > len(some) else ""
        yield (
            f"IN of {count} values over 100,000 rows{scale}",
            lambda c=chain: truths(c, rows),
            lambda i=looked_up: truths(i, rows),
        )


# --- Iceberg's transforms: ours, and pyiceberg-core --------------------------------------------------------
def transforms() -> Iterator[Pair]:
    days = pa.array([date(2020, 1, 1) + timedelta(days=n % 2_000) for n in range(ROWS)])
    cases: list[tuple[str, Transform[Any, Any], PrimitiveType, pa.Array]] = [
        (
            "bucket(16, long), all distinct",
            BucketTransform(16),
            LongType(),
            pa.array(range(ROWS), pa.int64()),
        ),
        (
            "bucket(16, long), 1,000 distinct",
            BucketTransform(16),
            LongType(),
            pa.array([n % 1_000 for n in range(ROWS)], pa.int64()),
        ),
        (
            "bucket(16, string), all distinct",
            BucketTransform(16),
            StringType(),
            pa.array([f"key-{n}" for n in range(ROWS)]),
        ),
        ("truncate(10, long)", TruncateTransform(10), LongType(), pa.array(range(ROWS), pa.int64())),
        (
            "truncate(4, string), all distinct",
            TruncateTransform(4),
            StringType(),
            pa.array([f"{n:07}" for n in range(ROWS)]),
        ),
        ("day(date)", DayTransform(), DateType(), days),
    ]
    for name, transform, kind, values in cases:
        ours = transformed(values, transform, kind, "c")
        yield (
            f"{name}, {ROWS:,} rows, beside {_other(transform, kind, values, ours)}",
            partial(transformed, values, transform, kind, "c"),
            partial(_theirs(transform, kind), values),
        )


def _theirs(transform: Transform[Any, Any], kind: PrimitiveType) -> Callable[[pa.Array], Any]:
    """PyIceberg's transform of an array, which is pyiceberg-core's; where that is missing, its own of each value."""
    try:
        return transform.pyarrow_transform(kind)
    except NotInstalledError:
        by_value = transform.transform(kind)
        return lambda values: [by_value(value) for value in physical(values).to_pylist()]


def _other(transform: Transform[Any, Any], kind: PrimitiveType, values: pa.Array, ours: pa.Array) -> str:
    found = _theirs(transform, kind)(values)
    listed = isinstance(found, list)
    physically = found if listed else physical(found).to_pylist()
    assert ours.to_pylist() == physically, transform
    return "PyIceberg by value (no pyiceberg-core here)" if listed else "pyiceberg-core"


# --- the proxy's HTTP/1.1: ours, and h11 --------------------------------------------------------------------
REQUEST = (
    b"PUT /lake/t/_delta_log/00000000000000000007.json HTTP/1.1\r\nHost: 127.0.0.1:9000\r\nAccept-Encoding: identity\r\n"
    b"User-Agent: Boto3/1.43 md/Botocore#1.43 ua/2.1 os/linux md/arch#x86_64 lang/python#3.11\r\nIf-None-Match: *\r\n"
    b"X-Amz-Date: 20261122T230000Z\r\nX-Amz-Content-SHA256: UNSIGNED-PAYLOAD\r\nAuthorization: AWS4-HMAC-SHA256 "
    b"Credential=test/20261122/us-east-1/s3/aws4_request, SignedHeaders=host;x-amz-date, Signature=0123456789abcdef\r\n"
    b"Content-Length: 1200\r\n\r\n" + b"x" * 1200
)
REPLY = b'HTTP/1.1 200 OK\r\nETag: "0123"\r\nDate: Sun, 22 Nov 2026 23:00:00 GMT\r\nContent-Length: 0\r\n\r\n'
MESSAGES = 2_000


async def _by_ours() -> tuple[str, int, int]:
    requests, replies = asyncio.StreamReader(limit=1 << 22), asyncio.StreamReader(limit=1 << 22)
    requests.feed_data(REQUEST * MESSAGES)
    replies.feed_data(REPLY * MESSAGES)
    for _ in range(MESSAGES):
        request = await read_request(requests, None)  # type: ignore[arg-type]  # nothing here expects a 100
        assert request is not None
        sent = request.encode()
        reply = await read_reply(replies, request.method)
        reply.encode()
    return request.method, reply.status, len(sent)


def _by_h11() -> tuple[str, int, int]:
    """The same: read a request, write it to the server, read the reply, write it to the client."""
    client, server = h11.Connection(h11.SERVER), h11.Connection(h11.CLIENT)
    for _ in range(MESSAGES):
        client.receive_data(REQUEST)
        sent = _carry(client, server)
        server.receive_data(REPLY)
        _carry(server, client)
        method, status = _known.method, _status
        client.start_next_cycle()
        server.start_next_cycle()
    return method.decode(), status, len(sent)


_known: h11.Request = h11.Request(method="GET", target="/", headers=[("Host", "x")])
_status = 0


def _carry(source: h11.Connection, target: h11.Connection) -> bytes:
    global _known, _status  # noqa: PLW0603 - a bench
    out = []
    while True:
        event = source.next_event()
        if isinstance(event, h11.Request):
            _known = event
        elif isinstance(event, h11.Response):
            _status = event.status_code
        out.append(target.send(event) or b"")
        if isinstance(event, h11.EndOfMessage):
            return b"".join(out)


def messages() -> Iterator[Pair]:
    ours, theirs = asyncio.run(_by_ours()), _by_h11()
    assert ours[:2] == theirs[:2] == ("PUT", 200), (ours, theirs)
    yield (
        f"{MESSAGES} requests of 1.2 kB and their replies, read and written",
        lambda: asyncio.run(_by_ours()),
        _by_h11,
    )


def main() -> None:
    """Print a line for each pair."""
    print(f"pyarrow {pa.__version__}, h11 {h11.__version__}, medians of {ROUNDS} rounds")
    for pairs in (lists, transforms, messages):
        for name, ours, theirs in pairs():
            print(f"{name}: ours {timed(ours):.1f} ms, library {timed(theirs):.1f} ms", flush=True)


if __name__ == "__main__":
    main()
