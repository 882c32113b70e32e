"""Says which settings and credentials of this process another one needs to reach the same objects."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

_PLACES = ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_CA_BUNDLE")
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_OF_MACHINES = frozenset({"iam-role", "container-role", "assume-role-with-web-identity"})
"""Ways to credentials that every machine of a cluster has, as botocore calls them."""


def travelling(options: Mapping[str, str] | None) -> dict[str, str] | None:
    """These settings, and those of this process that another one may lack; None where its credentials cannot be sent.

    Credentials that do not run out are sent.  Those of a machine's role are not: each machine has its own.
    """
    given = {key.upper(): value for key, value in (options or {}).items()}
    for name in _PLACES:
        if name in os.environ:
            given.setdefault(name, os.environ[name])
    if "AWS_ACCESS_KEY_ID" in given:
        return given
    if "AWS_PROFILE" not in given and os.environ.get("AWS_ACCESS_KEY_ID"):
        return given | {name: os.environ[name] for name in _KEYS if name in os.environ}
    return _of_session(given)


def _of_session(given: dict[str, str]) -> dict[str, str] | None:
    """What botocore's session finds in files and on this machine."""
    import botocore.session
    from botocore.credentials import RefreshableCredentials

    session: Any = botocore.session.Session(profile=given.pop("AWS_PROFILE", None))
    region = session.get_config_variable("region")
    if region:
        given.setdefault("AWS_REGION", region)
    found = session.get_credentials()
    if found is None or found.method in _OF_MACHINES:
        return given
    if isinstance(found, RefreshableCredentials):
        return None
    texts = (found.access_key, found.secret_key, found.token)
    return given | {name: text for name, text in zip(_KEYS, texts, strict=True) if text}
