"""Sets up where the scenarios run: servers on loopback, a slower way to them, buckets of their own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ..servers import servers
from ..stress.proxies.proxy import FaultProxy
from .writers import Place

ROOT = Path(__file__).resolve().parents[2]
LOCK_TABLE = "locks"


class ChildError(RuntimeError):
    """A measured process failed; the message ends with what it said."""


class Harness:
    """S3 and DynamoDB on loopback; a context manager.

    ``seaweed`` takes SeaweedFS for S3: its listings start where they are asked to, as those of S3 do, while
    ministack sorts the whole bucket for each.  ``delay_s`` is held back before each request of the slow way.
    """

    def __init__(self, folder: Path | str, *, seaweed: bool = False, delay_s: float = 0.03) -> None:
        self.folder = Path(folder).resolve()
        self._seaweed = seaweed
        self._delay_s = delay_s
        self._stack = contextlib.ExitStack()
        self._proxy: FaultProxy | None = None
        self.cloud: servers.Cloud | None = None

    def place(self, name: str, *, slow: bool = False) -> Place:
        """A place for a new table, in a bucket of its own: ministack's listings sort the whole bucket."""
        assert self.cloud is not None
        name = f"{name.replace(' ', '-')}-{uuid.uuid4().hex[:8]}"
        if self._seaweed:
            uri = f"s3://{servers.SEAWEED_BUCKET}/{name}"
        else:
            self.cloud.boto3_client("s3").create_bucket(Bucket=name)
            uri = f"s3://{name}/table"
        return Place(uri, LOCK_TABLE, (self.proxy if slow else self.cloud).storage_options())

    @property
    def proxy(self) -> FaultProxy:
        """The slow way, which also counts requests; started when first asked for."""
        if self._proxy is None:
            assert self.cloud is not None
            dynamodb_url = self.cloud.dynamodb.endpoint_url
            self._proxy = self._stack.enter_context(
                FaultProxy(
                    self.cloud.endpoint_url,
                    self.folder,
                    dynamodb_upstream=dynamodb_url,
                    extra_latency_s=self._delay_s,
                )
            )
        return self._proxy

    def requests(self) -> Counter[str]:
        """Requests that took the slow way so far, by what they are for."""
        return Counter({str(step): count for step, count in self.proxy.requests().items()})

    def local(self, name: str) -> Place:
        """A place for a table on local disk."""
        return Place(str(self.folder / "tables" / f"{name.replace(' ', '-')}-{uuid.uuid4().hex[:8]}"))

    def s3(self) -> Any:
        """A boto3 client."""
        assert self.cloud is not None
        return self.cloud.boto3_client("s3")

    def __enter__(self) -> Self:
        ministack = self._stack.enter_context(servers.Ministack(self.folder))
        s3 = self._stack.enter_context(servers.SeaweedFS(self.folder)) if self._seaweed else ministack
        self.cloud = servers.Cloud(s3, ministack)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


def child(
    command: list[str],
    config: dict[str, Any],
    *,
    timeout_s: float,
    variables: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Run a measured process with its configuration as JSON on stdin; its last line of output is its answer."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        command, input=json.dumps(config), capture_output=True, text=True, timeout=timeout_s, check=False,
        env={**os.environ, "PYTHONPATH": path, **(variables or {})},
    )  # fmt: skip
    if done.returncode != 0 or not done.stdout.strip():
        raise ChildError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def module(name: str) -> list[str]:
    """The command that runs a module of this folder."""
    return [sys.executable, "-m", f"{__package__}.{name}"]
