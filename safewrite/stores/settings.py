"""Reads ``storage_options=``: one spelling for each of deltalake's keys; refuses slips, names what has no effect."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from safewrite.errors import InvalidInputError
from safewrite.text.rendering import shown

log = logging.getLogger("safewrite")


def _keys(text: str) -> frozenset[str]:
    return frozenset(text.split())


_USED = frozenset(
    {
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
        "AWS_PROFILE",
        "AWS_ENDPOINT_URL",
        "AWS_ENDPOINT_URL_S3",
        "AWS_ENDPOINT_URL_DYNAMODB",
        "DELTA_DYNAMO_TABLE_NAME",
        "AWS_SERVER_SIDE_ENCRYPTION",
        "AWS_SSE_KMS_KEY_ID",
        "AWS_SSE_BUCKET_KEY_ENABLED",
    }
)
# Other names of the same settings, which deltalake's object_store takes.
_ALIASES = {
    "ACCESS_KEY_ID": "AWS_ACCESS_KEY_ID",
    "SECRET_ACCESS_KEY": "AWS_SECRET_ACCESS_KEY",
    "SESSION_TOKEN": "AWS_SESSION_TOKEN",
    "TOKEN": "AWS_SESSION_TOKEN",
    "AWS_TOKEN": "AWS_SESSION_TOKEN",
    "REGION": "AWS_REGION",
    "DEFAULT_REGION": "AWS_DEFAULT_REGION",
    "ENDPOINT": "AWS_ENDPOINT_URL",
    "ENDPOINT_URL": "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT": "AWS_ENDPOINT_URL",
}
# Keys of object_store and deltalake that change nothing that safewrite does, or that it decides itself.
_HARMLESS = _keys(
    """
    ALLOW_HTTP ALLOW_INVALID_CERTIFICATES AWS_ALLOW_HTTP AWS_BUCKET AWS_BUCKET_NAME AWS_CHECKSUM_ALGORITHM
    AWS_CONDITIONAL_PUT AWS_COPY_IF_NOT_EXISTS AWS_DISABLE_TAGGING AWS_EC2_METADATA_DISABLED AWS_FORCE_CREDENTIAL_LOAD
    AWS_IMDSV1_FALLBACK AWS_METADATA_ENDPOINT AWS_S3_ADDRESSING_STYLE AWS_S3_ALLOW_UNSAFE_RENAME AWS_S3_EXPRESS
    AWS_S3_GET_INTERNAL_SERVER_ERROR_RETRIES AWS_S3_LOCKING_PROVIDER AWS_S3_POOL_IDLE_TIMEOUT_SECONDS
    AWS_STS_POOL_IDLE_TIMEOUT_SECONDS AWS_UNSIGNED_PAYLOAD AWS_VIRTUAL_HOSTED_STYLE_REQUEST BUCKET BUCKET_NAME
    CHECKSUM_ALGORITHM CONDITIONAL_PUT CONNECT_TIMEOUT COPY_IF_NOT_EXISTS DEFAULT_CONTENT_TYPE
    DELTA_DYNAMO_BILLING_MODE DELTA_DYNAMO_MAX_ELAPSED_REQUEST_TIME DELTA_DYNAMO_READ_CAPACITY
    DELTA_DYNAMO_WRITE_CAPACITY DELTA_DYNAMO_OVERRIDE_BUCKET_NAME DISABLE_TAGGING
    HTTP1_ONLY HTTP2_KEEP_ALIVE_INTERVAL HTTP2_KEEP_ALIVE_TIMEOUT HTTP2_KEEP_ALIVE_WHILE_IDLE HTTP2_ONLY IMDSV1_FALLBACK
    MAX_RETRIES METADATA_ENDPOINT MOUNT_ALLOW_UNSAFE_RENAME POOL_IDLE_TIMEOUT POOL_MAX_IDLE_PER_HOST
    RANDOMIZE_ADDRESSES RETRY_TIMEOUT S3_ALLOW_UNSAFE_RENAME ALLOW_UNSAFE_RENAME S3_EXPRESS TIMEOUT
    UNSIGNED_PAYLOAD USER_AGENT VIRTUAL_HOSTED_STYLE_REQUEST
    """
)
# Keys of object_store and deltalake that have a meaning, and that safewrite's own requests do not follow.
_NOT_FOLLOWED = _keys(
    """
    AWS_ACCESS_KEY_ID_DYNAMODB AWS_CONTAINER_CREDENTIALS_RELATIVE_URI AWS_CONTAINER_CREDENTIALS_FULL_URI
    AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE AWS_ENDPOINT_URL_STS AWS_IAM_ROLE_ARN AWS_IAM_ROLE_SESSION_NAME
    AWS_REGION_DYNAMODB AWS_REQUEST_PAYER AWS_ROLE_ARN AWS_ROLE_SESSION_NAME AWS_S3_ASSUME_ROLE_ARN AWS_S3_ROLE_SESSION_NAME
    AWS_SECRET_ACCESS_KEY_DYNAMODB AWS_SESSION_TOKEN_DYNAMODB AWS_SKIP_SIGNATURE
    AWS_SSE_CUSTOMER_KEY_BASE64 AWS_WEB_IDENTITY_TOKEN_FILE
    PROXY_CA_CERTIFICATE PROXY_EXCLUDES PROXY_URL REQUEST_PAYER SKIP_SIGNATURE
    """
)
# Keys of s3fs and pandas; their values would be ignored in silence.
_OTHERS = {
    "key": "AWS_ACCESS_KEY_ID",
    "secret": "AWS_SECRET_ACCESS_KEY",
    "client_kwargs": "AWS_ENDPOINT_URL, AWS_REGION",
    "config_kwargs": "boto3_session=",
    "profile": "AWS_PROFILE",
    "anon": "credentials: writers need them",
    "aws_access_key": "AWS_ACCESS_KEY_ID",
    "aws_secret_key": "AWS_SECRET_ACCESS_KEY",
}
_WHERE_AND_WHO = {
    "endpoint": "AWS_ENDPOINT_URL",
    "region": "AWS_REGION",
    "sessiontoken": "AWS_SESSION_TOKEN",
    "accesskey": "AWS_ACCESS_KEY_ID",
    "keyid": "AWS_ACCESS_KEY_ID",
    "secret": "AWS_SECRET_ACCESS_KEY",
    "profile": "AWS_PROFILE",
    "credential": "boto3_session=",
    "role": "boto3_session=",
    "proxy": "HTTPS_PROXY in the environment",
}
"""Words in keys of Hadoop (``fs.s3a.endpoint``), PyArrow (``endpoint_override``), DuckDB or boto3 by which requests go elsewhere."""
ICEBERG = ("s3.", "glue.", "client.")
"""The prefixes of PyIceberg's properties that set its clients."""
_DEFAULTS = {
    "s3.endpoint": "AWS_ENDPOINT_URL_S3",
    "s3.access-key-id": "AWS_ACCESS_KEY_ID",
    "s3.secret-access-key": "AWS_SECRET_ACCESS_KEY",
    "s3.session-token": "AWS_SESSION_TOKEN",
    "s3.region": "AWS_REGION",
}
_ICEBERG_KEYS = (
    *_DEFAULTS,
    "s3.signer",
    "s3.signer.uri",
    "s3.signer.endpoint",
    "s3.resolve-region",
    "s3.proxy-uri",
    "s3.connect-timeout",
    "s3.request-timeout",
    "s3.role-arn",
    "s3.role-session-name",
    "s3.force-virtual-addressing",
    "s3.retry-strategy-impl",
    "s3.anonymous",
    "glue.endpoint",
    "glue.region",
    "glue.access-key-id",
    "glue.secret-access-key",
    "glue.session-token",
    "glue.profile-name",
    "glue.id",
    "glue.max-retries",
    "glue.retry-mode",
    "glue.skip-archive",
    "glue.connection-s3-tables",
    "client.access-key-id",
    "client.secret-access-key",
    "client.session-token",
    "client.region",
    "client.profile-name",
    "client.role-arn",
    "client.role-session-name",
)
_KNOWN = (*_USED, *_ALIASES, *_HARMLESS, *_NOT_FOLLOWED)


def storage_options(given: Mapping[str, str] | None) -> dict[str, str] | None:
    """The options under one spelling of each key; None stays None.

    Raises:
        InvalidInputError: a key that is a slip, or another library's, so that its value would be ignored in silence; or an
            encryption that S3 does not have.
    """
    if given is None:
        return None
    found: dict[str, str] = {}
    for key, value in given.items():
        name = _canonical(key)
        if name in found and found[name] != value:
            raise InvalidInputError(
                f"storage_options= gives {name} twice, with two values. Nothing was written. Leave one of them out."
            )
        found[name] = value
    for theirs, ours in _DEFAULTS.items():
        if theirs in found:
            found.setdefault(ours, found[theirs])
    encryption(found)
    return found


_KMS = {"aws:kms": "aws:kms", "sse-kms": "aws:kms", "aws:kms:dsse": "aws:kms:dsse"}
_FLAGS = {"true": True, "1": True, "false": False, "0": False}


def encryption(options: Mapping[str, str] | None) -> dict[str, Any]:
    """What each upload asks of S3 about encryption, as arguments of ``put_object``; nothing where the bucket decides.

    Raises:
        InvalidInputError: settings that S3 would refuse, or that would have no effect.
    """
    given = options or {}
    asked, key = given.get("AWS_SERVER_SIDE_ENCRYPTION"), given.get("AWS_SSE_KMS_KEY_ID")
    bucket_key = given.get("AWS_SSE_BUCKET_KEY_ENABLED")
    if asked == "AES256" and key is None and bucket_key is None:
        return {"ServerSideEncryption": asked}
    if asked is None and key is None and bucket_key is None:
        return {}
    if asked not in _KMS or str(bucket_key or "true").lower() not in _FLAGS:
        named = {name: given[name] for name in _ENCRYPTION if name in given}
        raise InvalidInputError(
            f"{shown(named)} says no encryption that uploads ask for. Nothing was written. AWS_SERVER_SIDE_ENCRYPTION is 'aws:kms', "
            "'aws:kms:dsse' or 'AES256'; AWS_SSE_KMS_KEY_ID and AWS_SSE_BUCKET_KEY_ENABLED ('true', 'false') go with 'aws:kms'. Keys of "
            "your own (SSE-C) are not sent."
        )
    found: dict[str, Any] = {"ServerSideEncryption": _KMS[asked]}
    if key is not None:
        found["SSEKMSKeyId"] = key
    if bucket_key is not None:
        found["BucketKeyEnabled"] = _FLAGS[str(bucket_key).lower()]
    return found


_ENCRYPTION = ("AWS_SERVER_SIDE_ENCRYPTION", "AWS_SSE_KMS_KEY_ID", "AWS_SSE_BUCKET_KEY_ENABLED")


def warn_of_encryption(options: Mapping[str, str] | None, who: str) -> None:
    """Say that some uploads do not ask for the encryption that the options name; ``who`` makes them."""
    named = [name for name in _ENCRYPTION if name in (options or {})]
    if named:
        log.warning(
            "storage_options= has %s, which %s does not follow: make it the bucket's default.",
            ", ".join(named),
            who,
        )


def _canonical(key: str) -> str:
    """A key in safewrite's spelling."""
    upper = key.upper()
    if upper in _USED or upper in _HARMLESS:
        return upper
    if upper in _ALIASES:
        return _ALIASES[upper]
    if key in _ICEBERG_KEYS:
        return key
    if upper in _NOT_FOLLOWED:
        log.warning(
            "storage_options= has %s, which safewrite's own requests do not follow: set it in the environment or in a profile, "
            "or give boto3_session=.",
            key,
        )
        return upper
    if key.lower() in _OTHERS:
        raise InvalidInputError(
            f"storage_options= has {key!r}, a key of another library. Nothing was written. Here it is "
            f"{_OTHERS[key.lower()]}."
        )
    plain = "".join(letter for letter in key.lower() if letter.isalnum())
    ours = next((name for word, name in _WHERE_AND_WHO.items() if word in plain), None)
    import difflib

    near = difflib.get_close_matches(upper, _KNOWN, n=1, cutoff=0.85) or difflib.get_close_matches(
        key.lower(), _ICEBERG_KEYS, n=1, cutoff=0.85
    )
    if near:
        raise InvalidInputError(
            f"storage_options= has {key!r}, which is no key: requests would go elsewhere, or as somebody else. Nothing was "
            f"written. Did you mean {near[0]!r}?"
        )
    if ours is not None and not key.startswith(ICEBERG):
        raise InvalidInputError(
            f"storage_options= has {key!r}, a key of another library: requests would go elsewhere, or as somebody else. Nothing was "
            f"written. Here it is {ours}."
        )
    if not key.startswith(ICEBERG):
        log.warning("storage_options= has %s, which has no effect here.", key)
    return key
