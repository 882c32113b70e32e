"""Configures every AWS client alike, and says what a failed request means for the protocol."""

from __future__ import annotations

import email.utils
import os
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from safewrite.errors import StorageError
from safewrite.protocol.effects import Busy, Exists, Failed, Missing, Outcome, Unknown
from safewrite.stores.advice import cause_of, note_answer
from safewrite.texts import said

if TYPE_CHECKING:
    import boto3

_THROTTLED = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "ThrottlingException",
        "Throttling",
        "RequestLimitExceeded",
        "LimitExceededException",
        "TransactionConflictException",
        "TransactionInProgressException",
    }
)
# Refused before anything was stored, and worth another try (body damaged on the way, token renewed by then).
_REFUSED_FOR_NOW = frozenset({"BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch", "ExpiredToken"})
_CONDITION = frozenset({"PreconditionFailed", "ConditionalCheckFailedException", "412"})


class ServerClock:
    """Epoch milliseconds by the servers' ``Date`` headers, so that a wrong local clock does no harm (A10)."""

    def __init__(self, local_ms: Any = None) -> None:
        self._local_ms = local_ms or (lambda: time.time_ns() // 1_000_000)
        self.skew_ms = 0

    def observe(self, headers: Mapping[str, str]) -> None:
        """Take the server's time from a response; within a second it counts as equal."""
        try:
            server_ms = int(email.utils.parsedate_to_datetime(headers["date"]).timestamp() * 1000)
        except (KeyError, ValueError, TypeError):
            return
        skew_ms = server_ms - int(self._local_ms())
        self.skew_ms = skew_ms if abs(skew_ms) > 2_000 else 0

    def __call__(self) -> int:
        return int(self._local_ms()) + self.skew_ms


def client(
    service: str,
    *,
    session: boto3.Session | None = None,
    options: Mapping[str, str] | None = None,
    connections: int = 32,
) -> Any:
    """A boto3 client that sends each request once: the protocol repeats (A3, C3).

    ``options`` are deltalake's keys (``AWS_ENDPOINT_URL``, ``AWS_REGION``, ...), upper or lower case.
    """
    import boto3
    from botocore.config import Config

    given = {key.upper(): value for key, value in (options or {}).items()}
    specific = f"AWS_ENDPOINT_URL_{service.upper()}"
    endpoint = given.get(specific) or given.get("AWS_ENDPOINT_URL")
    own_store = endpoint or os.environ.get(specific) or os.environ.get("AWS_ENDPOINT_URL")
    region = given.get("AWS_REGION") or given.get("AWS_DEFAULT_REGION")
    if session is None:
        region = region or os.environ.get("AWS_REGION")  # which deltalake reads and boto3 does not
    config = Config(
        retries={"total_max_attempts": 1, "mode": "standard"},
        connect_timeout=3,
        read_timeout=15,
        max_pool_connections=connections,
        tcp_keepalive=True,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        # DynamoDB checks it all again, and of 100 ledger entries it is half of the client's work.
        parameter_validation=service != "dynamodb",
        s3={"addressing_style": "path"} if own_store else None,
    )
    maker: Any = session or boto3.Session(
        profile_name=given.get("AWS_PROFILE")
    )  # typed per service: the name is not a literal here
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
    return made


def is_empty(error: Exception) -> bool:
    """Whether a range was refused because it begins behind the end of the object (416)."""
    from botocore.exceptions import ClientError

    return isinstance(error, ClientError) and "InvalidRange" in str(
        error.response.get("Error", {}).get("Code")
    )


def classify_error(error: Exception, *, write: bool) -> Outcome:
    """Classify a client exception: was the request performed?

    Any answer but a clear refusal is ``Unknown``: a proxy or a resend may have turned "performed"
    into an error (A2).  409 is "ask again", not "exists" (A18); 403 on a read is not "absent" (G10).
    """
    from botocore.exceptions import ClientError, NoCredentialsError, ParamValidationError

    detail = f"{type(error).__name__}: {said(error)}"
    cause = cause_of(error)
    advice, asks_max = (cause.advice, cause.asks_max) if cause else ("", None)
    if isinstance(error, NoCredentialsError | ParamValidationError):
        return Failed(detail, advice)
    if not isinstance(error, ClientError):
        return Unknown(detail, advice, asks_max)
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if code in _CONDITION or status == 412:
        return Exists()
    if code in _THROTTLED or code in _REFUSED_FOR_NOW or status in (409, 429):
        return Busy(detail, advice, asks_max)
    if status >= 500 or status == 0 or code == "RequestTimeout":
        return Unknown(detail)
    if status == 404 and not write and code != "NoSuchBucket":
        return Missing()
    if status == 403 and not write:
        return Unknown(detail, advice, asks_max)
    return Failed(detail, advice)


# --- one client per process -------------------------------------------------------------------------
class _Clients:
    """The clients of this process, by service, session and settings."""

    def __init__(self) -> None:
        self.found: dict[tuple[Any, ...], Any] = {}
        self.lock = threading.Lock()


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


def _has_none(made: Any) -> bool:
    """Whether a client found no credentials; it is not kept, for they may be set before the next call."""
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
        found = _clients.found.get(self._mark)
        if found is not None:
            return found
        service, session, options = self._mark
        with _clients.lock:
            if self._mark not in _clients.found:
                try:
                    made = client(service, session=session, options=dict(options))
                except Exception as error:
                    cause = cause_of(error)
                    raise StorageError(
                        f"No {service} client could be made: {said(error).rstrip('.')}. Nothing was written. "
                        + (cause.advice if cause else "Check region, endpoint and credentials.")
                    ) from error
                if _has_none(made):
                    return made
                _clients.found[self._mark] = made
            return _clients.found[self._mark]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.here(), name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _SharedClient) and other._mark == self._mark

    def __hash__(self) -> int:
        return hash(self._mark)
