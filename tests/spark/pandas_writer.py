"""A process that appends rows one by one with safewrite, beside Spark: ``python -m tests.spark.pandas_writer``."""

from __future__ import annotations

import base64
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.integration.places import Place, rows

_ROOT = Path(__file__).resolve().parents[2]


def start(place: Place, ids: Sequence[int]) -> subprocess.Popen[bytes]:
    """A process that has opened the table when it has said a line, and appends when it is told one."""
    process = subprocess.Popen(
        [sys.executable, "-m", __name__], cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(base64.b64encode(pickle.dumps((place, list(ids)))) + b"\n")
    process.stdin.flush()
    process.stdout.readline()
    return process


def main() -> None:
    """Open, say so, wait for a word, append."""
    place, ids = pickle.loads(base64.b64decode(sys.stdin.buffer.readline()))
    table = place.open(lease_s=3.0)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.buffer.readline()
    for number in ids:
        table.append(rows(number), key=f"event-{number}")


if __name__ == "__main__":
    main()
