"""Finds where a service's requests go, and who signs them, as botocore does for a client but without its service models."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

_UNUSUAL = (
    "s3", "use_fips_endpoint", "use_dualstack_endpoint", "ignore_configured_endpoint_urls", "sigv4a_signing_region_set",
    "auth_scheme_preference",
)  # fmt: skip
"""Settings of botocore's that change requests, and that only its own client follows."""
_BOTOCORES = frozenset(
    {
        "AWS_PROFILE",
        "AWS_DEFAULT_PROFILE",
        "AWS_CREDENTIAL_EXPIRATION",
        "AWS_USE_FIPS_ENDPOINT",
        "AWS_USE_DUALSTACK_ENDPOINT",
        "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
        "AWS_SIGV4A_SIGNING_REGION_SET",
        "AWS_AUTH_SCHEME_PREFERENCE",
        "BOTOCORE_EXPERIMENTAL__PLUGINS",
    }
)
"""Variables that only botocore's session judges."""
_ADDRESS = re.compile(r"https?://[A-Za-z0-9.-]+(:\d+)?(/[^?#]*)?")
_DIRECTORY_BUCKETS = ("--x-s3", "--xa-s3", "--op-s3", "--table-s3")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


@dataclass(frozen=True, slots=True)
class Reach:
    """Where the requests of a service go, and what signs them.

    ``endpoint`` has no bucket in it; ``own_store`` says that somebody named it, so that buckets stand in the path.
    ``keys`` gives the credentials that hold now, as botocore's do.
    """

    service: str
    region: str
    endpoint: str
    own_store: bool
    keys: Any
    verify: bool | str

    def in_path(self, bucket: str) -> bool:
        """Whether a bucket stands in the path of its address; a certificate has one name before that of the service."""
        return self.own_store or "." in bucket

    def url_of(self, bucket: str, region: str) -> str:
        """The address of a bucket that is in ``region``, without a slash at its end."""
        same = self.own_store or region == self.region
        host = self.endpoint if same else endpoint_of("s3", region)
        if self.in_path(bucket):
            return f"{host}/{bucket}"
        return host.replace("https://", f"https://{bucket}.", 1)


@dataclass(frozen=True, eq=False)
class Keys:
    """Credentials that do not change, as botocore's signer reads them, and as texts are masked by them."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    token: str | None = field(repr=False)

    def get_frozen_credentials(self) -> Keys:
        """Themselves."""
        return self

    def get_deferred_property(self, property_name: str) -> Callable[[], Any]:
        """What boto3's clients ask credentials for later, such as the account; these know no more than the keys."""
        return lambda: getattr(self, property_name, None)


def find(service: str, profile: str | None, given: Mapping[str, str]) -> Reach | str:
    """Where requests go by ``given`` (deltalake's keys, upper case) and the environment; or why that is a matter of boto3's client.

    Raises:
        BotoCoreError: a profile or credentials that botocore refuses.
    """
    hooked = _hooks()
    if hooked:
        return hooked
    key, secret = given.get("AWS_ACCESS_KEY_ID"), given.get("AWS_SECRET_ACCESS_KEY")
    if (key is None) != (secret is None):
        return "half a key"
    plain = _of_environment(given) if profile is None else None
    settings = plain or _of_botocore(profile, ask_keys=key is None)
    if isinstance(settings, str):
        return settings
    keys: Any = settings.keys
    if key is not None and secret is not None:
        keys = Keys(key, secret, given.get("AWS_SESSION_TOKEN"))
    region = given.get("AWS_REGION") or given.get("AWS_DEFAULT_REGION") or os.environ.get("AWS_REGION")
    region = region or settings.region or ""
    own = configured_endpoint(service, given)
    endpoint = (own or endpoint_of(service, region)).rstrip("/")
    if not region or not endpoint or (own and not _ADDRESS.fullmatch(own)):
        return "a region or an endpoint that is not known here"
    bundle = settings.bundle or os.environ.get("REQUESTS_CA_BUNDLE") or sent_bundle(given)
    if bundle is not None and not bundle.strip():
        return "an empty name of a CA bundle"
    return Reach(service, region, endpoint, bool(own), keys, True if bundle is None else bundle)


class _Settings(NamedTuple):
    """What the environment, or a profile, says of all services."""

    keys: Any
    region: str | None
    bundle: str | None


def _of_environment(given: Mapping[str, str]) -> _Settings | None:
    """The settings where variables say it all, as in a Lambda function; None where botocore has more places to look in.

    Botocore's session, which knows them, takes 40 ms of CPU to import and make.
    """
    variables = os.environ
    if any(name in _BOTOCORES or name.startswith("AWS_S3_") for name in variables) or _has_files():
        return None
    keys = None
    if "AWS_ACCESS_KEY_ID" not in given:
        key, secret = variables.get("AWS_ACCESS_KEY_ID"), variables.get("AWS_SECRET_ACCESS_KEY")
        if not key or not secret:
            return None
        keys = Keys(key, secret, variables.get("AWS_SESSION_TOKEN") or variables.get("AWS_SECURITY_TOKEN"))
    return _Settings(keys, variables.get("AWS_DEFAULT_REGION"), variables.get("AWS_CA_BUNDLE"))


def _has_files() -> bool:
    """Whether botocore finds a file with settings or credentials."""
    named = (
        os.environ.get("AWS_CONFIG_FILE", "~/.aws/config"),
        os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
    )
    return any(Path(os.path.expandvars(name)).expanduser().exists() for name in named)


def _of_botocore(profile: str | None, *, ask_keys: bool) -> _Settings | str:
    """The settings as botocore's session finds them, or one that only its client follows."""
    import botocore.session

    core = botocore.session.Session(profile=profile)
    scoped = core.get_scoped_config()
    unusual = next((name for name in _UNUSUAL if core.get_config_variable(name)), None)
    unusual = unusual or next((name for name in ("endpoint_url", "services") if scoped.get(name)), None)
    if unusual or os.environ.get("BOTOCORE_EXPERIMENTAL__PLUGINS"):
        return f"the setting {unusual or 'BOTOCORE_EXPERIMENTAL__PLUGINS'}"
    keys = core.get_credentials() if ask_keys else None
    return _Settings(keys, core.get_config_variable("region"), core.get_config_variable("ca_bundle"))


def sent_bundle(given: Mapping[str, str]) -> str | None:
    """The authorities of the process that sent these settings, where this machine has the file, too."""
    named = given.get("AWS_CA_BUNDLE")
    return named if named and Path(named).is_file() else None


def configured_endpoint(service: str, given: Mapping[str, str]) -> str | None:
    """The endpoint that settings or the environment name for a service."""
    specific = f"AWS_ENDPOINT_URL_{service.upper()}"
    ignored = os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() == "true"
    for place in (given, {} if ignored else os.environ):
        named = place.get(specific) or place.get("AWS_ENDPOINT_URL")
        if named:
            return named
    return None


def endpoint_of_environment(service: str) -> str | None:
    """The endpoint that the environment names for a service, unless a file of settings says that such are ignored."""
    found = configured_endpoint(service, {})
    if found is None:
        return None
    judged = find(
        service, None, {"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    )
    return None if isinstance(judged, str) and "ignore_configured" in judged else found


def is_usual(bucket: str) -> bool:
    """Whether a bucket is one that is asked by its name alone: no ARN, no directory bucket."""
    return _BUCKET.fullmatch(bucket) is not None and not bucket.endswith(_DIRECTORY_BUCKETS)


def endpoint_of(service: str, region: str) -> str:
    """AWS's own endpoint of a service in a region; empty where botocore's list of partitions does not know the region."""
    if service == "s3" and region == "us-east-1":
        return "https://s3.amazonaws.com"  # as botocore has it
    for pattern, suffix in _partitions():
        if pattern.match(region):
            return f"https://{service}.{region}.{suffix}"
    return ""


@cache
def _partitions() -> list[tuple[re.Pattern[str], str]]:
    from importlib.resources import files

    listed = json.loads(files("botocore").joinpath("data/partitions.json").read_bytes())["partitions"]
    return [(re.compile(one["regionRegex"]), one["outputs"]["dnsSuffix"]) for one in listed]


def _hooks() -> str:
    """Who looks into the requests of botocore's clients in this process (a tracer, a mock of AWS); empty where none does."""
    client = sys.modules.get("botocore.client")
    call: Any = vars(getattr(client, "BaseClient", object)).get("_make_api_call")
    # A wrapper may pretend to be what it wraps, but for its type.
    if call is not None and not (type(call) is FunctionType and _is_botocores(call.__globals__["__name__"])):
        return "another library watches botocore's calls"
    handlers: Any = getattr(sys.modules.get("botocore.handlers"), "BUILTIN_HANDLERS", ())
    homes = (str(getattr(one[1], "__module__", None) or type(one[1]).__module__) for one in handlers)
    foreign = next((home for home in homes if not _is_botocores(home)), None)
    return "" if foreign is None else f"{foreign} watches botocore's requests"


def _is_botocores(module: str) -> bool:
    return module.partition(".")[0] in ("botocore", "boto3")
