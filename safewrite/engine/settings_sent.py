"""Says which settings and credentials of this process another one needs to reach the same objects."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

_PLACES = ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_CA_BUNDLE")
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_OF_MACHINES = frozenset({"iam-role", "container-role", "assume-role-with-web-identity"})
"""Ways to credentials that every machine of a cluster has, as botocore calls them."""
_OF_AWS = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")
"""How names of AWS's own endpoints end, which botocore finds by the region."""


def travelling(options: Mapping[str, str] | None, client: Any = None) -> dict[str, str] | None:
    """These settings, and those of this process that another one may lack; None where its credentials cannot be sent.

    Credentials that do not run out are sent.  Those of a machine's role are not: each machine has its own.  ``client`` is one
    that was made of the settings: what it was made of holds, for the environment may be another by now.
    """
    given = {key.upper(): value for key, value in (options or {}).items()}
    if client is not None:
        return _of_client(given, client)
    for name in _PLACES:
        if name in os.environ:
            given.setdefault(name, os.environ[name])
    if "AWS_ACCESS_KEY_ID" in given:
        return given
    if "AWS_PROFILE" not in given and os.environ.get("AWS_ACCESS_KEY_ID"):
        return given | {name: os.environ[name] for name in _KEYS if name in os.environ}
    return _of_session(given)


def _of_client(given: dict[str, str], client: Any) -> dict[str, str] | None:
    """What a client of S3 goes by: botocore's, or one of ours (``safewrite.stores.signed``)."""
    given.pop("AWS_PROFILE", None)
    if client.meta.region_name:
        given["AWS_REGION"] = client.meta.region_name
    endpoint, reach = str(client.meta.endpoint_url), getattr(client, "reach", None)
    if not (reach and not reach.own_store) and not (urlsplit(endpoint).hostname or "").endswith(_OF_AWS):
        given["AWS_ENDPOINT_URL_S3"] = endpoint
    verify = reach.verify if reach else client._endpoint.http_session._verify  # noqa: SLF001
    if isinstance(verify, str):
        given["AWS_CA_BUNDLE"] = verify
    if "AWS_ACCESS_KEY_ID" in given:
        return given
    return _with_keys(given, reach.keys if reach else client._request_signer._credentials)  # noqa: SLF001


def _of_session(given: dict[str, str]) -> dict[str, str] | None:
    """What botocore's session finds in files and on this machine."""
    import botocore.session

    session: Any = botocore.session.Session(profile=given.pop("AWS_PROFILE", None))
    region = session.get_config_variable("region")
    if region:
        given.setdefault("AWS_REGION", region)
    return _with_keys(given, session.get_credentials())


def _with_keys(given: dict[str, str], found: Any) -> dict[str, str] | None:
    from botocore.credentials import RefreshableCredentials

    method = getattr(found, "method", "env")
    if found is None or method in _OF_MACHINES:
        return given
    if isinstance(found, RefreshableCredentials) and method != "env":
        return None
    frozen = found.get_frozen_credentials()
    texts = (frozen.access_key, frozen.secret_key, frozen.token)
    return given | {name: text for name, text in zip(_KEYS, texts, strict=True) if text}
