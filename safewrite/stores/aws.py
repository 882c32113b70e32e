"""Says what a failed request to AWS means for the protocol, and keeps time by the servers' clocks."""

from __future__ import annotations

import email.utils
import time
from collections.abc import Iterator, Mapping
from typing import Any

from safewrite.protocol.effects import Busy, Exists, Failed, Missing, Outcome, Unknown
from safewrite.stores import call_limit
from safewrite.stores.advice import NOT_RENEWED, cause_of, tell_denied
from safewrite.text.rendering import said

_THROTTLED = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "ThrottlingException",
        "Throttling",
        "RequestLimitExceeded",
        "LimitExceededException",
        "SlowDown",
        "TooManyRequestsException",
    }
)
_COLLIDED = frozenset({"TransactionConflictException", "TransactionInProgressException"})
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
    if call_limit.has_ended(error):
        return Unknown(detail, call_limit.ADVICE, asks_max=1)
    tell_denied(error)
    cause = cause_of(error)
    advice, asks_max = (cause.advice, cause.asks_max) if cause else ("", None)
    if isinstance(error, NoCredentialsError | ParamValidationError):
        return Failed(detail, advice)
    if NOT_RENEWED & {cls.__name__ for cls in type(error).__mro__}:
        return Busy(detail, advice, asks_max)  # there was nothing to sign it with, so it was not sent
    if not isinstance(error, ClientError):
        return Unknown(detail, advice, asks_max)
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if code in _CONDITION or status == 412:
        return Exists()
    if status < 500 and (code in _THROTTLED | _COLLIDED | _REFUSED_FOR_NOW or status in (409, 429)):
        return Busy(detail, advice, asks_max, throttled=code in _THROTTLED or status == 429)
    if status >= 500 or status == 0 or code == "RequestTimeout":
        return Unknown(detail, advice, asks_max, throttled=code in _THROTTLED)
    if status == 404 and not write and code != "NoSuchBucket":
        return Missing()
    if status == 403 and not write:
        return Unknown(detail, advice, asks_max)
    return Failed(detail, advice)


def scanned(client: Any, **request: Any) -> Iterator[dict[str, Any]]:
    """The pages of a scan of a DynamoDB table.  Raises botocore errors."""
    while True:
        call_limit.check()
        page = client.scan(**request)
        yield page
        if not page.get("LastEvaluatedKey"):
            return
        request["ExclusiveStartKey"] = page["LastEvaluatedKey"]
