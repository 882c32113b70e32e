"""Says why AWS, or a store that speaks like it, refused a request, and what helps."""

from __future__ import annotations

import errno
import logging
import os
import re
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
        "ProfileNotFound",
    }
)
NOT_RENEWED = frozenset(
    {
        "CredentialRetrievalError",
        "MetadataRetrievalError",
        "NoAuthTokenError",
        "SSOTokenLoadError",
        "TokenRetrievalError",
        "UnauthorizedSSOTokenError",
    }
)
"""Errors of a way to credentials that is set up, and gave none; the request was not sent."""
_UNREACHED = frozenset({"EndpointConnectionError", "ConnectTimeoutError", "ProxyConnectionError"})
_KEY_SCHEMA = re.compile(
    r"key element|key schema|required keys|number of conditions on the keys", re.IGNORECASE
)
"""What DynamoDB says of a request that is for a table with other keys."""
_ACTION = re.compile(r"not authorized to perform: ([\w-]+:\w+)(?: on resource: (\S+))?")
_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"})
_UNKNOWN_KEYS = ("InvalidAccessKeyId", "InvalidClientTokenId", "UnrecognizedClientException", "InvalidToken")
_WRONG_SECRET = ("SignatureDoesNotMatch", "InvalidSignatureException", "IncompleteSignature")
_KEYS_REFUSED = _EXPIRED.union(_UNKNOWN_KEYS, _WRONG_SECRET)
_ADVICE = {
    _UNKNOWN_KEYS: (
        "The access key, or its session token, is not known there: check AWS_ACCESS_KEY_ID and AWS_SESSION_TOKEN, and that the "
        "address is the service that they are for."
    ),
    _WRONG_SECRET: (
        "The secret key does not fit the access key: check AWS_SECRET_ACCESS_KEY, AWS_REGION and the machine's clock."
    ),
    ("RequestTimeTooSkewed",): "The clock of this machine is wrong: set it.",
    ("MissingAuthenticationToken", "MissingAuthenticationTokenException", "NoAuthHandlerFound"): _CREDENTIALS,
    ("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"): (
        "The bucket is in another region: set AWS_REGION to its own."
    ),
    (
        "KMS.DisabledException",
        "KMS.NotFoundException",
        "KMS.KMSInvalidStateException",
        "KMS.InvalidStateException",
    ): (
        "The KMS key with which the bucket or the table encrypts cannot be used: enable it, cancel its deletion, or make another key the "
        "default, as KMS says in the text above."
    ),
    ("InvalidObjectState",): (
        "A file of the table was archived (S3 Glacier, or a tier of Intelligent-Tiering): restore it, and take the table's folder out of the "
        "lifecycle rule. Files of a table are read for as long as a version names them, whatever their age."
    ),
    ("NotImplemented",): (
        "The store does not know this request. Conditional creates (If-None-Match) are what safewrite needs: take a newer version of the "
        "store, or another one."
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
    is_denial: bool = False
    """Whether the credentials are known, and lack a permission."""


_PASSED_OVER = {
    "UpdateItem": "claims and turns of writers are never closed, and stand in the lock table as if they were stuck",
    "DeleteItem": "items that are done with stay in the lock table",
    "DeleteObject": "temp files of finished writes stay in the bucket",
    "DescribeTable": "nobody sees whether the lock table is sound",
}
"""Requests that a write can do without, so that it ends well where they are refused, and what that leaves."""
_told: set[str] = set()
_log = logging.getLogger("safewrite")


def tell_denied(error: BaseException) -> None:
    """Warn once a process of a right that is missing, where a write goes on without it."""
    operation = str(getattr(error, "operation_name", ""))
    left = _PASSED_OVER.get(operation)
    if left is None or operation in _told:
        return
    cause = cause_of(error)
    if cause is not None and cause.is_denial:
        _told.add(operation)
        service = "dynamodb" if operation in _DYNAMODB else "s3"
        _log.warning(
            "the role or user lacks %s:%s. Writes land all the same, but %s. %s",
            service,
            operation,
            left,
            cause.advice,
        )


def refuses_keys(code: str) -> bool:
    """Whether a service's code says that it does not take these keys at all: others may be there by now."""
    return code in _KEYS_REFUSED


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
    if isinstance(error, OSError) and error.errno in _OF_DISKS:
        return Cause(_OF_DISKS[error.errno], None if error.errno in (errno.EMFILE, errno.ENFILE) else 1)
    names = {cls.__name__ for cls in type(error).__mro__}
    if not any(cls.__module__.startswith("botocore") for cls in type(error).__mro__):
        return None
    if names & _NO_CREDENTIALS:
        return Cause(f"No AWS credentials were found. {_CREDENTIALS}")
    if names & NOT_RENEWED:
        return Cause(
            "The AWS credentials could not be fetched or renewed: the place that lends them (a container's or machine's role, a "
            "credential_process, SSO) gave none, as the text above says. See that it answers (SSO: `aws sso login`), then call again.",
            _REFUSED_ASKS_MAX,
        )
    if "SSLError" in names:
        return _untrusted(error)
    if names & _UNREACHED:
        return _unreached(error)
    if "HTTPClientError" in names and "Invalid header value" in str(error):
        return Cause(
            "A credential has a line break or another control character in it, often the end of the file that it was read from: "
            "strip AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN."
        )
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
    message = str(response.get("Error", {}).get("Message", ""))
    if code == "ValidationException" and _KEY_SCHEMA.search(message):
        return Cause(
            "That table has other keys than a lock table (tablePath and fileName, both texts), so it is one of something else: give the "
            "lock table's name, or make one: `safewrite locks create --lock-table NAME`."
        )
    if "HTTP request was sent to HTTPS" in message or "HTTP request to an HTTPS server" in message:
        return Cause("The address takes https and was asked by http: write https:// in AWS_ENDPOINT_URL.")
    if code in _DENIED or status in (401, 403):
        return Cause(_permission(error), _REFUSED_ASKS_MAX, is_denial=True)
    return None


def _permission(error: BaseException) -> str:
    told = _action_in(str(error))
    if told:
        return told
    operation = str(getattr(error, "operation_name", ""))
    service = "dynamodb" if operation in _DYNAMODB else "glue" if operation in _GLUE else ""
    action = _ACTIONS.get(operation) or (f"{service}:{operation}" if service else "what the request needs")
    return (
        f"The credentials may not do this, which does not pass by itself: allow {action} in the policies of the role or "
        "user, and of the bucket or table; or check whose credentials these are (aws sts get-caller-identity)."
    )


def _action_in(text: str) -> str:
    """What to allow, where the service names the action that it refused; empty if it does not."""
    named = _ACTION.search(text)
    if named is None:
        return ""
    on = " on " + named[2].strip('"') if named[2] else ""
    denied = ", or take back the explicit deny" if "explicit deny" in text else ""
    key = " The key is that of the bucket's encryption." if named[1].startswith("kms:") else ""
    return (
        f"The credentials may not do this, which does not pass by itself: allow {named[1]}{on}{denied}.{key}"
    )


def named_in(text: str) -> str:
    """Advice for the error of a library that hands on only a text of the store's; empty where it says nothing known."""
    plain = text.upper().replace("_", "").replace(" ", "")
    for code, advice in _BY_CODE.items():
        if len(code) >= 10 and code.upper() in plain:
            return advice
    if "WRONGVERSIONNUMBER" in plain:
        return "The address speaks http, and was asked by https: write http:// in its endpoint (s3.endpoint, AWS_ENDPOINT_URL)."
    return _action_in(text)


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


def _untrusted(error: BaseException) -> Cause:
    """The cause where the encrypted connection was not made."""
    text, host = str(error), _host(getattr(error, "kwargs", {}).get("endpoint_url")) or "the address"
    if "WRONG_VERSION_NUMBER" in text.upper().replace(" ", "_") or "record layer" in text.lower():
        return Cause(f"{host} speaks http, and was asked by https: write http:// in AWS_ENDPOINT_URL.")
    if "No such file" in text or "NO_CERTIFICATE_OR_CRL" in text.upper().replace(" ", "_"):
        named = [
            f"{name}={os.environ[name]}"
            for name in ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE")
            if os.environ.get(name)
        ]
        return Cause(
            f"The file of authorities ({named[0] if named else 'ca_bundle in the profile'}) is not there, or holds no certificate, so "
            f"nothing was sent to {host}: correct its name, then open the table again."
        )
    if "CERTIFICATE_VERIFY_FAILED" in text.upper() or "certificate verify failed" in text:
        return Cause(
            f"The certificate of {host} is not one that this machine trusts: set AWS_CA_BUNDLE to the file of its authority, or correct "
            "the address."
        )
    return Cause(
        f"No encrypted connection to {host} was made: check whether AWS_ENDPOINT_URL should say http://, and proxies in between.",
        UNREACHED_ASKS_MAX,
    )


_OF_DISKS = {
    errno.ENOSPC: "The disk is full: make room, then call again with the same key.",
    errno.EDQUOT: "The quota of this user on the disk is used up: make room, then call again with the same key.",
    errno.EROFS: "The file system is mounted read-only: write to another one, or mount it for writing.",
    errno.EACCES: "Allow this user to read and write the table's folder.",
    errno.EPERM: "Allow this user to read and write the table's folder.",
    errno.EMFILE: "This process has too many files open: raise its limit (ulimit -n), or close some.",
    errno.ENFILE: "This machine has too many files open: raise its limit, or close some.",
    errno.ENAMETOOLONG: "The path is longer than the file system takes: put the table into a folder with a shorter one.",
}
"""What helps where a disk refuses, by the number of the error."""


def _host(url: object) -> str:
    return urlsplit(str(url)).netloc.rpartition("@")[2] if url else ""
