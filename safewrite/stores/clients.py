"""Makes the AWS clients of a process, all configured alike, and keeps those that were used last."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from safewrite.errors import StorageError
from safewrite.stores.advice import cause_of, note_answer
from safewrite.stores.call_limit import CONNECT_S, REQUEST_S, bound_client
from safewrite.stores.reach import Reach, configured_endpoint, find
from safewrite.text.masking import note, note_credentials
from safewrite.text.rendering import said

if TYPE_CHECKING:
    import boto3

CLIENTS_MAX = 16
"""Clients that a process keeps."""
CONNECTIONS = 168
"""Connections that a client keeps open where they are used: a job has up to 64 threads, and its process 48 for requests side by side.
With fewer, each request above them opens one of its own and throws it away."""


def client(
    service: str,
    *,
    session: boto3.Session | None = None,
    options: Mapping[str, str] | None = None,
    connections: int = CONNECTIONS,
) -> Any:
    """A client that sends each request once: the protocol repeats (A3, C3).

    S3 and DynamoDB are asked by signed requests of our own where :mod:`safewrite.stores.reach` knows all that they follow, and
    else by boto3's client.  ``options`` are deltalake's keys (``AWS_ENDPOINT_URL``, ``AWS_REGION``, ...), upper or lower case.
    """
    note(options)
    given = {key.upper(): value for key, value in (options or {}).items()}
    reach = _reach(service, session, given)
    if isinstance(reach, str):
        return _boto3_client(service, session, given, connections)
    from safewrite.stores.signed import SignedDynamoDB, SignedS3

    note_credentials(reach.keys)
    if service == "dynamodb":
        return SignedDynamoDB(reach, connections)
    return SignedS3(reach, connections, partial(_boto3_client, service, session, given, connections))


def _reach(service: str, session: boto3.Session | None, given: Mapping[str, str]) -> Reach | str:
    """Where requests go, or why boto3's client sends them."""
    if service not in ("s3", "dynamodb"):
        return f"the service {service}"
    if session is not None:
        return "boto3_session="
    return find(service, given.get("AWS_PROFILE"), given)


def described(service: str, session: boto3.Session | None, options: Mapping[str, str] | None) -> str:
    """Which client this process uses for a service, and why; for ``doctor``."""
    reach = _reach(service, session, {key.upper(): value for key, value in (options or {}).items()})
    return f"boto3 ({reach})" if isinstance(reach, str) else "signed requests"


def _boto3_client(
    service: str, session: boto3.Session | None, given: Mapping[str, str], connections: int
) -> Any:
    from botocore.config import Config

    endpoint = next(
        (given[key] for key in (f"AWS_ENDPOINT_URL_{service.upper()}", "AWS_ENDPOINT_URL") if given.get(key)),
        None,
    )
    region = given.get("AWS_REGION") or given.get("AWS_DEFAULT_REGION")
    if session is None:
        region = region or os.environ.get("AWS_REGION")  # which deltalake reads and boto3 does not
    config = Config(
        retries={"total_max_attempts": 1, "mode": "standard"},
        connect_timeout=CONNECT_S,
        read_timeout=REQUEST_S,
        max_pool_connections=connections,
        tcp_keepalive=True,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        # DynamoDB checks it all again, and of 100 ledger entries it is half of the client's work.
        parameter_validation=service != "dynamodb",
        s3={"addressing_style": "path"} if configured_endpoint(service, given) else None,
    )
    maker: Any = session or _session(given.get("AWS_PROFILE"))
    made = maker.client(
        service,
        config=config,
        endpoint_url=endpoint,
        region_name=region,
        aws_access_key_id=given.get("AWS_ACCESS_KEY_ID"),
        aws_secret_access_key=given.get("AWS_SECRET_ACCESS_KEY"),
        aws_session_token=given.get("AWS_SESSION_TOKEN"),
    )
    made.meta.events.register("after-call", note_answer)
    note_credentials(getattr(getattr(made, "_request_signer", None), "_credentials", None))
    return bound_client(made)


def _session(profile: str | None) -> Any:
    """A session that reads AWS's service models, which take most of a client's memory, once in a process."""
    import boto3
    import botocore.session

    core = botocore.session.Session(profile=profile)
    core.register_component("data_loader", _loader(core.get_config_variable("data_path")))
    return boto3.Session(botocore_session=core)


@cache
def _loader(data_path: str | None) -> Any:
    from pathlib import Path

    import boto3
    from botocore.loaders import Loader, create_loader

    class OneLoader(Loader):
        """Each session of boto3 adds its folder to the list of a loader; a copy keeps the list from growing for ever."""

        @property
        def search_paths(self) -> list[str]:
            return list(super().search_paths)

    paths = [*create_loader(data_path).search_paths, str(Path(boto3.__file__).parent / "data")]
    return OneLoader(paths, include_default_search_paths=False)


class _Clients:
    """The clients of this process that were used last, by service, session and settings.

    Credentials that are lent for a time are new settings each time, so old clients must go: each holds megabytes of
    memory, and connections.
    """

    def __init__(self) -> None:
        self.found: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        self.lock = threading.Lock()

    def get(self, mark: tuple[Any, ...]) -> Any:
        """The client of these settings, if it is kept."""
        with self.lock:
            found = self.found.get(mark)
            if found is not None:
                self.found.move_to_end(mark)
            return found

    def keep(self, mark: tuple[Any, ...], made: Any) -> Any:
        """Keep a client, or the one that another thread made meanwhile; the one that was used longest ago goes."""
        with self.lock:
            kept = self.found.setdefault(mark, made)
            gone = [self.found.popitem(last=False)[1] for _ in range(len(self.found) - CLIENTS_MAX)]
        for client in [*gone, *([made] if kept is not made else [])]:
            client.close()  # its idle connections; a request under way goes on to its end
        return kept


_clients = _Clients()
# A forked child has none of the threads that may hold the lock, and must not talk over its parent's connections.
os.register_at_fork(after_in_child=_clients.__init__)  # type: ignore[misc]


def shared_client(service: str, session: boto3.Session | None, options: Mapping[str, str] | None) -> Any:
    """One client per service and settings in a process: making one costs more than a small append.

    The result may be kept over a fork: the child uses a client of its own.

    Raises:
        StorageError: no client can be made of these settings.
    """
    shared = _SharedClient(service, session, tuple(sorted((options or {}).items())))
    shared.here()
    return shared


def kept_client(service: str, properties: Mapping[str, Any], make: Callable[[], Any]) -> Any:
    """A client that a library makes of its own properties and of AWS's variables; one for all who give the same."""
    variables = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    mark = (service, tuple(sorted(properties.items())), tuple(sorted(variables.items())))
    try:
        found = _clients.get(mark)
    except TypeError:  # a property that cannot be compared by its hash
        return make()
    if found is None:
        found = make()
        return found if _has_none(found) else _clients.keep(mark, found)
    return found


def _has_none(made: Any) -> bool:
    """Whether a client found no credentials; it is not kept, for they may be set before the next call."""
    if isinstance(reach := getattr(made, "reach", None), Reach):
        return reach.keys is None
    signer = getattr(made, "_request_signer", None)
    return signer is not None and getattr(signer, "_credentials", signer) is None


class _SharedClient:
    """The client of the process that asks: two processes on one connection get each other's answers."""

    def __init__(
        self, service: str, session: boto3.Session | None, options: tuple[tuple[str, str], ...]
    ) -> None:
        self._mark = (service, session, options)

    def here(self) -> Any:
        """The client of this process."""
        found = _clients.get(self._mark)
        if found is not None:
            return found
        service, session, options = self._mark
        try:
            made = client(service, session=session, options=dict(options))
        except Exception as error:
            cause = cause_of(error)
            raise StorageError(
                f"No {service} client could be made: {said(error).rstrip('.')}. Nothing was written. "
                + (cause.advice if cause else "Check region, endpoint and credentials.")
            ) from error
        return made if _has_none(made) else _clients.keep(self._mark, made)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.here(), name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _SharedClient) and other._mark == self._mark

    def __hash__(self) -> int:
        return hash(self._mark)
