"""Says why AWS, or a store that speaks like it, refused a request, and what helps."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

UNREACHED_ASKS_MAX = 3
"""How often to ask an address that never answered in this process: it may be a wrong one."""

_REFUSED_ASKS_MAX = 3
"""How often to ask after a refusal: a credential may renew itself, and a policy takes a moment to spread."""

_CREDENTIALS = (
    "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or AWS_PROFILE, or give storage_options= or boto3_session=; a Lambda "
    "function, a container or a machine has them from its role."
)
_NO_CREDENTIALS = frozenset(
    {
        "NoCredentialsError",
        "PartialCredentialsError",
        "CredentialRetrievalError",
        "NoAuthTokenError",
        "ProfileNotFound",
        "SSOTokenLoadError",
        "TokenRetrievalError",
        "UnauthorizedSSOTokenError",
    }
)
_UNREACHED = frozenset({"EndpointConnectionError", "ConnectTimeoutError", "ProxyConnectionError", "SSLError"})
_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"})
_ADVICE = {
    ("InvalidAccessKeyId", "InvalidClientTokenId", "UnrecognizedClientException", "InvalidToken"): (
        "The access key, or its session token, is not known there: check AWS_ACCESS_KEY_ID and AWS_SESSION_TOKEN, and that the "
        "address is the service that they are for."
    ),
    ("SignatureDoesNotMatch", "InvalidSignatureException", "IncompleteSignature"): (
        "The secret key does not fit the access key: check AWS_SECRET_ACCESS_KEY, AWS_REGION and the machine's clock."
    ),
    ("RequestTimeTooSkewed",): "The clock of this machine is wrong: set it.",
    ("MissingAuthenticationToken", "MissingAuthenticationTokenException", "NoAuthHandlerFound"): _CREDENTIALS,
    ("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"): (
        "The bucket is in another region: set AWS_REGION to its own."
    ),
}
_BY_CODE = {code: text for codes, text in _ADVICE.items() for code in codes}
_DENIED = frozenset({"AccessDenied", "AccessDeniedException", "AllAccessDisabled", "Forbidden", "403"})
_ACTIONS = {
    "GetObject": "s3:GetObject (and s3:ListBucket: without it an object that is not there is a refusal, too)",
    "HeadObject": "s3:GetObject and s3:ListBucket",
    "ListObjectsV2": "s3:ListBucket",
    "PutObject": "s3:PutObject",
    "DeleteObject": "s3:DeleteObject",
}


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a request failed: what to do about it, and how often it is worth asking again (None: it may pass)."""

    advice: str
    asks_max: int | None = 1


def cause_of(error: BaseException) -> Cause | None:
    """The cause of a botocore error, also of one that another library wrapped; None where none is known."""
    seen: BaseException | None = error
    for _ in range(8):
        if seen is None:
            return None
        found = _cause_of(seen)
        if found is not None:
            return found
        seen = seen.__cause__ or seen.__context__
    return None


def _cause_of(error: BaseException) -> Cause | None:
    names = {cls.__name__ for cls in type(error).__mro__}
    if not any(cls.__module__.startswith("botocore") for cls in type(error).__mro__):
        return None
    if names & _NO_CREDENTIALS:
        return Cause(f"No AWS credentials were found. {_CREDENTIALS}")
    if names & _UNREACHED:
        return _unreached(error)
    if names & {"NoRegionError", "InvalidRegionError"}:
        return Cause("Set AWS_REGION, or give it in storage_options=.")
    return _refusal(error)


def _refusal(error: BaseException) -> Cause | None:
    """The cause behind an answer of the service."""
    response: dict[str, Any] = getattr(error, "response", None) or {}
    code = str(response.get("Error", {}).get("Code", ""))
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) or 0)
    if code in _EXPIRED:
        return Cause(
            "The session token has expired: get new credentials, and open the table again.", _REFUSED_ASKS_MAX
        )
    if code == "NoSuchBucket":
        name = response.get("Error", {}).get("BucketName")
        bucket = f"The bucket {name!r}" if name else "The bucket"
        return Cause(
            f"{bucket} does not exist there: check its name, AWS_ENDPOINT_URL and AWS_REGION, or make it."
        )
    if code in _BY_CODE:
        return Cause(_BY_CODE[code])
    if code in _DENIED or status in (401, 403):
        return Cause(_permission(error), _REFUSED_ASKS_MAX)
    return None


def _permission(error: BaseException) -> str:
    operation = str(getattr(error, "operation_name", ""))
    service = "dynamodb" if operation in _DYNAMODB else "glue" if operation in _GLUE else ""
    action = _ACTIONS.get(operation) or (f"{service}:{operation}" if service else "what the request needs")
    return (
        f"The credentials may not do this, which does not pass by itself: allow {action} in the policies of the role or "
        "user, and of the bucket or table; or check whose credentials these are (aws sts get-caller-identity)."
    )


_DYNAMODB = frozenset(
    {
        "CreateTable",
        "DeleteItem",
        "DescribeContinuousBackups",
        "DescribeTable",
        "DescribeTimeToLive",
        "GetItem",
        "PutItem",
        "Query",
        "Scan",
        "UpdateContinuousBackups",
        "UpdateItem",
        "UpdateTimeToLive",
    }
)
_GLUE = frozenset({"GetTable", "UpdateTable", "GetDatabase", "CreateDatabase", "GetTables", "DeleteTable"})


# --- addresses that never answered ------------------------------------------------------------------
_answered: set[str] = set()
_noting = threading.Lock()


def note_answer(http_response: Any = None, **_: Any) -> None:
    """Remember that an address answers: a handler of botocore's event ``after-call``."""
    host = _host(getattr(http_response, "url", None))
    if host and host not in _answered:
        with _noting:
            _answered.add(host)


def _unreached(error: BaseException) -> Cause:
    """The cause where nothing listens at an address; it may pass where something did before."""
    url = str(getattr(error, "kwargs", {}).get("endpoint_url") or "")
    host = _host(url)
    advice = (
        f"Nobody answers at {host or 'the address'}: check AWS_ENDPOINT_URL (also AWS_ENDPOINT_URL_S3 and "
        "AWS_ENDPOINT_URL_DYNAMODB), AWS_REGION and the network (VPC endpoint, proxy, firewall)."
    )
    return Cause(advice, None if host in _answered else UNREACHED_ASKS_MAX)


def _host(url: object) -> str:
    return urlsplit(str(url)).netloc if url else ""
