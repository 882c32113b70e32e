"""Makes the AWS clients of a process, all configured alike, and keeps those that were used last."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from safewrite.errors import StorageError
from safewrite.stores.advice import cause_of, note_answer, refuses_keys
from safewrite.stores.call_limit import CONNECT_S, REQUEST_S, bound_client
from safewrite.stores.endpoints import Reach, configured_endpoint, find, sent_bundle
from safewrite.surroundings import CA_BUNDLES, surroundings
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

    S3 and DynamoDB are asked by signed requests of our own where :mod:`safewrite.stores.endpoints` knows all that they follow, and
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
    return SignedS3(reach, connections, partial(_boto3_client_of, reach, connections))


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
    if session is None or getattr(session, "region_name", None) is None:
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
        verify=None if any(os.environ.get(name) for name in CA_BUNDLES) else sent_bundle(given),
        aws_access_key_id=given.get("AWS_ACCESS_KEY_ID"),
        aws_secret_access_key=given.get("AWS_SECRET_ACCESS_KEY"),
        aws_session_token=given.get("AWS_SESSION_TOKEN"),
    )
    note_credentials(keys_of(made))
    return noting_answers(made)


def noting_answers(made: Any) -> Any:
    """Let the requests of a client of botocore end, and note its answers; returns the client."""

    def look(parsed: Mapping[str, Any] | None = None, **_: Any) -> None:
        code = str(((parsed or {}).get("Error") or {}).get("Code", ""))
        made.keys_refused = made.keys_refused or refuses_keys(code)

    made.keys_refused = False
    made.meta.events.register("after-call", note_answer, unique_id="safewrite.answers")
    made.meta.events.register("after-call", look, unique_id="safewrite.keys")
    return bound_client(made)


def _boto3_client_of(reach: Reach, connections: int) -> Any:
    """Boto3's client that asks where a signed client asks, and signs as it does, whatever the environment says by now."""
    import boto3
    from botocore.config import Config
    from botocore.session import Session

    class Lender:
        def load_credentials(self) -> Any:
            return reach.keys

    core: Any = Session()
    core.register_component("data_loader", _loader(core.get_config_variable("data_path")))
    core.register_component("credential_provider", Lender())
    alone: Any = Config
    core.set_default_client_config(alone(ignore_configured_endpoint_urls=True))
    session = boto3.Session(botocore_session=core)
    given = {"AWS_REGION": reach.region}
    if isinstance(reach.verify, str):
        given["AWS_CA_BUNDLE"] = reach.verify
    if reach.own_store:
        given[f"AWS_ENDPOINT_URL_{reach.service.upper()}"] = reach.endpoint
    return _boto3_client(reach.service, session, given, connections)


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
    """The clients of this process that were used last, by service, session, settings, and what these leave to the environment.

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
            if found is None:
                return None
            if getattr(found, "keys_refused", False) is True:
                # There may be newer ones where no mark shows it: a program that lends them, a session of the user's.
                del self.found[mark]
                return None
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
    """One client per service, settings and surroundings in a process: making one costs more than a small append.

    What the settings leave to the environment is taken as it is now, and stays so for whoever keeps the result: a table
    does not change its store in the middle.  The result may be kept over a fork: the child uses a client of its own.

    Raises:
        StorageError: no client can be made of these settings.
    """
    shared = _SharedClient(service, session, tuple(sorted((options or {}).items())))
    shared.here()
    return shared


def kept_client(service: str, properties: Mapping[str, Any], make: Callable[[], Any]) -> Any:
    """A client that a library makes of its own properties and of the surroundings; one for all who give the same."""
    mark = (service, tuple(sorted(properties.items())), surroundings())
    try:
        found = _clients.get(mark)
    except TypeError:  # a property that cannot be compared by its hash
        return make()
    if found is None:
        found = make()
        return found if _has_none(found) else _clients.keep(mark, found)
    return found


def keys_of(made: Any) -> Any:
    """What a client signs with: an object of botocore's, or ours; None where it found nothing."""
    if isinstance(reach := getattr(made, "reach", None), Reach):
        return reach.keys
    return getattr(getattr(made, "_request_signer", None), "_credentials", None)


def _has_none(made: Any) -> bool:
    """Whether a client found no credentials; it is not kept, for they may be set before the next call."""
    is_known = isinstance(getattr(made, "reach", None), Reach) or hasattr(made, "_request_signer")
    return is_known and keys_of(made) is None


def forked(made: Any) -> Any:
    """In a forked child: a client that asks and signs as its parent's does, over connections of its own."""
    keys = keys_of(made)
    if hasattr(keys, "_refresh_lock"):
        keys._refresh_lock = threading.Lock()  # noqa: SLF001 - a thread that the child lacks may hold it
    if isinstance(getattr(made, "reach", None), Reach):
        return made.again()
    http: Any = getattr(getattr(made, "_endpoint", None), "http_session", None)
    if http is not None:
        from urllib3 import PoolManager

        # The object is this process's copy.  To close the parent's connections here could end them there.
        http._manager = PoolManager(**http._get_pool_manager_kwargs())  # noqa: SLF001
        http._manager.pool_classes_by_scheme = http._pool_classes_by_scheme  # noqa: SLF001
        http._proxy_managers = {}  # noqa: SLF001
    return made


class _SharedClient:
    """The client of the process that asks: two processes on one connection get each other's answers."""

    def __init__(
        self, service: str, session: boto3.Session | None, options: tuple[tuple[str, str], ...]
    ) -> None:
        self._settings = (service, session, options)
        self._mark: tuple[Any, ...] = (*self._settings, surroundings())
        self._held: tuple[int, Any] = (0, None)
        """The process that holds a client, and the client: it stays, however many others the process keeps."""

    def here(self) -> Any:
        """The client of this process."""
        process, held = self._held
        if process == os.getpid():
            return held
        return self._held_here(held)

    def _held_here(self, parents: Any) -> Any:
        found = _clients.get(self._mark)
        if found is None:
            found = self._made() if parents is None else forked(parents)
            if _has_none(found):
                return found
            found = _clients.keep(self._mark, found)
        self._held = (os.getpid(), found)
        return found

    def _made(self) -> Any:
        service, session, options = self._settings
        self._mark = (*self._settings, surroundings())  # it may have found no credentials before
        try:
            return client(service, session=session, options=dict(options))
        except Exception as error:
            cause = cause_of(error)
            raise StorageError(
                f"No {service} client could be made: {said(error).rstrip('.')}. Nothing was written. "
                + (cause.advice if cause else "Check region, endpoint and credentials.")
            ) from error

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.here(), name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _SharedClient) and other._mark == self._mark

    def __hash__(self) -> int:
        return hash(self._settings)
