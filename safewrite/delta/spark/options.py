"""Translates a Spark session's settings of its store to ``storage_options=``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

HadoopConf: TypeAlias = Callable[[str], str | None]
"""Looks up one Hadoop setting of the session; None where it is not set."""

_KEYS = {
    "access.key": "AWS_ACCESS_KEY_ID",
    "secret.key": "AWS_SECRET_ACCESS_KEY",
    "session.token": "AWS_SESSION_TOKEN",
    "endpoint.region": "AWS_REGION",
}
_AMAZON = ".amazonaws.com"


def from_hadoop(conf: HadoopConf, bucket: str) -> dict[str, str]:
    """S3A's settings for a bucket: commits must go to the store that the data goes to.

    Amazon's own addresses are left out: their region says the same, and is right for DynamoDB too.
    """
    found = {name: value for key, name in _KEYS.items() if (value := _setting(conf, bucket, key))}
    endpoint = _setting(conf, bucket, "endpoint") or ""
    if endpoint and not endpoint.rstrip("/").endswith((_AMAZON, f"{_AMAZON}.cn")):
        found["AWS_ENDPOINT_URL_S3"] = _with_scheme(
            endpoint, _setting(conf, bucket, "connection.ssl.enabled")
        )
    return found


def joined(conf: HadoopConf, bucket: str, given: Mapping[str, str] | None) -> dict[str, str]:
    """The session's settings, overridden by what the caller named.

    A caller that names credentials or an endpoint means them whole: neither a session token of other
    credentials nor another way to the same store is kept.
    """
    named = {key.upper(): value for key, value in (given or {}).items()}
    found = from_hadoop(conf, bucket)
    if "AWS_ACCESS_KEY_ID" in named:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
            found.pop(name, None)
    if "AWS_ENDPOINT_URL" in named:
        found.pop("AWS_ENDPOINT_URL_S3", None)
    return found | named


def _setting(conf: HadoopConf, bucket: str, key: str) -> str | None:
    """A setting of S3A; one for the bucket goes before the general one."""
    return conf(f"fs.s3a.bucket.{bucket}.{key}") or conf(f"fs.s3a.{key}")


def _with_scheme(endpoint: str, encrypted: str | None) -> str:
    if "://" in endpoint:
        return endpoint
    return f"{'http' if (encrypted or '').lower() == 'false' else 'https'}://{endpoint}"
