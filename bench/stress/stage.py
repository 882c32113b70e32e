"""Provides the servers of a run, its own or the user's, and the writers' interpreters."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..servers import catalogs, servers
from ..servers.catalogs import CatalogKind
from . import readers
from .plans.menu import make_arm
from .plans.plan import MAIN, Settings

ROOT = Path(__file__).resolve().parents[2]


class UsageError(ValueError):
    """The run cannot begin as asked for; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The servers of a run: direct (for readers) and how writers reach them."""

    cloud: servers.Endpoint
    bucket: str
    prefix: str
    can_proxy: bool
    catalogs: Mapping[CatalogKind, str] = field(default_factory=dict)
    """The addresses of the catalogs that are needed."""
    sqs_url: str = ""
    """The address of an SQS; empty where there is none."""


@contextlib.contextmanager
def open_stage(settings: Settings, folder: Path) -> Iterator[Stage]:
    """Start local servers, or take the user's own endpoint, bucket and credentials."""
    with contextlib.ExitStack() as stack:
        if settings.table is not None:
            yield _own_stage(settings)
            return
        ministack = stack.enter_context(servers.Ministack(folder / "dynamodb"))
        if settings.store == "seaweed":
            store: Any = stack.enter_context(servers.SeaweedFS(folder / "s3"))
            bucket = servers.SEAWEED_BUCKET
        else:
            store = stack.enter_context(servers.Ministack(folder / "s3"))
            bucket = "stress"
            store.boto3_client("s3").create_bucket(Bucket=bucket)
        cloud = servers.Cloud(store, ministack)
        servers.create_lock_table(cloud.boto3_client("dynamodb"), settings.lock_table)
        kinds = {kind for name in settings.arms if (kind := make_arm(name, settings).catalog) is not None}
        uris = {kind: _start_catalog(kind, cloud, bucket, folder, stack) for kind in sorted(kinds)}
        yield Stage(
            cloud, bucket, "", can_proxy=settings.proxy, catalogs=uris, sqs_url=ministack.endpoint_url
        )


def _start_catalog(
    kind: CatalogKind, cloud: servers.Cloud, bucket: str, folder: Path, stack: contextlib.ExitStack
) -> str:
    """Start the server of a catalog; returns its address."""
    if kind == "glue":
        return cloud.dynamodb.endpoint_url
    postgres = stack.enter_context(catalogs.Postgres(folder / kind))
    if kind == "sql":
        return postgres.database()
    rest = catalogs.IcebergRest(
        folder / kind, s3=cloud.s3, warehouse=f"s3://{bucket}/rest", jdbc_uri=postgres.jdbc_database()
    )
    return stack.enter_context(rest).uri


@dataclass(frozen=True, slots=True)
class OwnCloud:
    """The user's S3 and DynamoDB: endpoint by option, credentials and region from the environment."""

    endpoint: str | None

    @property
    def endpoint_url(self) -> str:
        """The endpoint, or AWS's own."""
        return self.endpoint or ""

    def storage_options(self) -> dict[str, str]:
        """deltalake's keys."""
        given = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
        if self.endpoint:
            given |= {"AWS_ENDPOINT_URL": self.endpoint}
            given.setdefault("AWS_ENDPOINT_URL_DYNAMODB", self.endpoint)
            if self.endpoint.startswith("http://"):
                given["AWS_ALLOW_HTTP"] = "true"
        return given

    def boto3_client(self, service: str, /) -> Any:
        """A boto3 client with the user's own session."""
        import boto3

        options = self.storage_options()
        name = "AWS_ENDPOINT_URL_DYNAMODB" if service == "dynamodb" else "AWS_ENDPOINT_URL"
        return boto3.client(service, endpoint_url=options.get(name))


def _own_stage(settings: Settings) -> Stage:
    place = readers.Place(settings.table or "", {}, None)
    if not (settings.table or "").startswith("s3://") or not place.bucket:
        raise UsageError(f"--table must be s3://bucket/path, not {settings.table!r}")
    can_proxy = settings.proxy and (settings.endpoint or "").startswith("http://")
    if settings.proxy and not can_proxy:
        raise UsageError(
            "the fault proxy speaks http to its upstream: give --endpoint-url http://..., or --no-proxy"
        )
    return Stage(OwnCloud(settings.endpoint), place.bucket, place.prefix, can_proxy)


def python_of(environment: str) -> str:
    """The interpreter of an environment; ``UsageError`` where it was not built."""
    if environment == MAIN:
        return sys.executable
    folder = Path(os.environ.get("SAFEWRITE_ARMS_DIR", ROOT / ".envs"))
    path = folder / environment / "bin" / "python"
    if not path.exists():
        raise UsageError(f"the environment {environment!r} of a naive writer is missing; build it: make arms")
    return str(path)
