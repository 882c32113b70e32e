"""Classifies errors of catalogs and file systems: not performed, refused, or unknown.

Nothing here says that a commit landed or not: the table's metadata does.  A wrong "unknown" costs a
look, a wrong "failed" at worst an early error, for the metadata is looked at before it is raised.
"""

from __future__ import annotations

from typing import Any

from safewrite.errors import UnsafeConfigError, UnsupportedTableError
from safewrite.protocol.effects import Busy, Exists, Failed, Missing, Outcome, Unknown
from safewrite.stores import call_limit
from safewrite.stores.advice import cause_of, named_in
from safewrite.text.rendering import said

_REFUSED_CODES = {
    "AccessDeniedException",
    "ExpiredTokenException",
    "InvalidInputException",
    "InvalidSignatureException",
    "MissingAuthenticationTokenException",
    "UnrecognizedClientException",
    "ValidationException",
}
_BUSY_CODES = {"ThrottlingException", "Throttling", "TooManyRequestsException"}
_BUSY_TEXTS = ("database is locked", "deadlock detected", "could not serialize access")


def classify_error(error: Exception) -> Outcome:
    """The outcome that an exception of a catalog call stands for.

    A refusal says nothing of earlier requests.  A client may send the call more than once by itself (botocore
    does, ten times for PyIceberg's Glue catalog), and one without an answer may still be on its way.
    """
    outcome = _meaning(error)
    if isinstance(outcome, Exists | Busy | Failed) and _metadata(error).get("RetryAttempts", 0):
        throttled = isinstance(outcome, Busy) and outcome.throttled
        return Unknown(f"{type(error).__name__} after repeats: {said(error)}"[:500], throttled=throttled)
    return outcome


def _meaning(error: Exception) -> Outcome:
    from pyiceberg import exceptions as iceberg

    detail = f"{type(error).__name__}: {said(error)}"[:500]
    if call_limit.has_ended(error):
        return Unknown(detail, call_limit.ADVICE, asks_max=1)
    cause = cause_of(error)
    advice, asks_max = (cause.advice, cause.asks_max) if cause else ("", None)
    if isinstance(error, iceberg.CommitFailedException) and "table metadata is missing" in detail:
        return Missing()  # PyIceberg looked before it asked, and found no table
    if isinstance(error, iceberg.CommitFailedException | iceberg.TableAlreadyExistsError):
        return Exists()
    if isinstance(error, iceberg.NoSuchTableError | iceberg.NoSuchNamespaceError):
        return Missing()
    if type(error) is iceberg.RESTError and "NoSuchTableException" in detail:  # 404, which has no class there
        return Missing()
    if isinstance(
        error,
        iceberg.BadRequestError
        | iceberg.ForbiddenError
        | iceberg.UnauthorizedError
        | iceberg.OAuthError
        | iceberg.ValidationError,
    ):
        return Failed(detail, _login(error))
    if isinstance(
        error, UnsafeConfigError | UnsupportedTableError
    ):  # of our own: no request changed anything
        is_unsupported = isinstance(error, UnsupportedTableError)
        return Failed(error.message if is_unsupported else detail, unsupported=is_unsupported)
    if type(error) is ValueError:  # PyIceberg's checks before it asks; subclasses may come from an answer
        return Failed(detail)
    code = _aws_code(error)
    if code == "ConcurrentModificationException":
        return Exists()
    if code in _REFUSED_CODES:
        return Failed(detail, advice)
    if code in _BUSY_CODES:
        return Busy(detail, advice, throttled=True)
    if any(text in detail for text in _BUSY_TEXTS):
        return Busy(detail, advice)
    # Botocore has sent it more than once, to an address that never answered.
    return Unknown(detail, advice or _unreached(error), None if asks_max is None else 1)


def _login(error: Exception) -> str:
    """Advice where a REST catalog refused the credentials or the request."""
    from pyiceberg import exceptions as iceberg

    if isinstance(error, iceberg.UnauthorizedError | iceberg.OAuthError):
        return "Check the catalog's token or credential: it does not know who asks."
    return "Ask for the permission in the catalog." if isinstance(error, iceberg.ForbiddenError) else ""


def _unreached(error: Exception) -> str:
    """Advice where nothing listens at the catalog's address; that may pass."""
    if not any(cls.__name__ in ("ConnectionError", "ConnectTimeout") for cls in type(error).__mro__):
        return ""
    return "Check the catalog's address (uri) and the network; if it passes, call again with the same key."


def classify_file_error(error: Exception) -> Outcome:
    """The outcome that an exception of a file system stands for; files have names of their own."""
    detail = f"{type(error).__name__}: {said(error)}"[:500]
    if isinstance(error, FileNotFoundError):
        return Missing(said(error))
    told = named_in(said(error))
    if isinstance(error, PermissionError) or "ACCESS_DENIED" in detail:
        return Failed(
            detail,
            told
            or "The credentials or the user may not do this: allow it, or give others (s3.access-key-id).",
        )
    cause = cause_of(error)
    return Unknown(detail, told or (cause.advice if cause else ""), 1 if told or cause else None)


def _aws_code(error: Exception) -> str:
    """The service's code of a botocore error, if it is one."""
    return str(_response(error).get("Error", {}).get("Code", ""))


def _metadata(error: Exception) -> dict[str, Any]:
    """How botocore got a response, if the error is botocore's."""
    found: dict[str, Any] = _response(error).get("ResponseMetadata", {})
    return found


def _response(error: Exception) -> dict[str, Any]:
    """The response of a botocore error, if it is one; PyIceberg may have wrapped it."""
    seen: BaseException | None = error
    while seen is not None:
        response = getattr(seen, "response", None)
        if isinstance(response, dict):
            return response
        seen = seen.__cause__
    return {}
