"""A Spark driver of its own, which writes rows to one table and may be killed: ``python -m tests.spark.driver``."""

from __future__ import annotations

import base64
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from safewrite.delta.spark.session import hook_of
from safewrite.spark import attach
from safewrite.testing.steps import KillAt, side_of
from tests.integration.places import Place, rows
from tests.spark.session import Spark

_ROOT = Path(__file__).resolve().parents[2]


def append(place: Place, ids: Sequence[int], *, kill_at: str) -> int:
    """Append in a driver that is killed at a point; how its process ended."""
    task = base64.b64encode(pickle.dumps((place, tuple(ids), kill_at)))
    with tempfile.TemporaryDirectory(prefix="driver-") as folder:
        command = [sys.executable, "-m", __name__, folder]
        done = subprocess.run(command, cwd=_ROOT, input=task, check=False, timeout=300)
    return done.returncode


def main() -> None:
    """Start Spark, attach, append."""
    place, ids, kill_at = pickle.loads(base64.b64decode(sys.stdin.buffer.read()))
    uri = place.uri.replace("s3://", "s3a://")
    with Spark(Path(sys.argv[1])) as spark:
        spark.reach(place.uri.split("/")[2], place.storage_options["AWS_ENDPOINT_URL"])
        attach(spark.session, lock_table=place.lock_table, storage_options=place.storage_options)
        table = hook_of(spark.session).commits.table(uri)
        table.world = KillAt(table.world, *side_of(kill_at))
        spark.write(uri, rows(*ids))


if __name__ == "__main__":
    main()
