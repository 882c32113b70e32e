"""Signed requests go where boto3's client sends them, by the same settings; what they do not follow is left to that client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import botocore.client
import botocore.handlers
import pytest
from botocore.awsrequest import AWSResponse

from safewrite.stores import clients, endpoints
from safewrite.stores.signed import SignedDynamoDB, SignedS3
from tests.stores.two_clients import DYNAMODB_STEPS, S3_STEPS

pytestmark = pytest.mark.usefixtures("no_aws_settings")

KEYS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
REGIONS = [
    "us-east-1",
    "eu-west-1",
    "cn-north-1",
    "us-gov-west-1",
    "us-iso-east-1",
    "us-isob-east-1",
    "eusc-de-east-1",
    "ap-south-2",
]


class _Raw:
    def stream(self, **_: Any) -> list[bytes]:
        return [b"{}"]

    def read(self, *_: Any) -> bytes:
        return b""


def _address(made: Any, step: Callable[[Any], Any]) -> list[str]:
    """Where a client sends a request, which is not sent."""
    seen: list[str] = []

    if isinstance(made, SignedS3 | SignedDynamoDB):

        def send(method: str, url: str, *_: Any, **__: Any) -> AWSResponse:
            seen.append(f"{method} {url}")
            return AWSResponse(url, 400, {}, _Raw())

        made.sender.send = send  # type: ignore[method-assign,assignment]
    else:

        def hook(request: Any, **_: Any) -> AWSResponse:
            return seen.append(f"{request.method} {request.url}") or AWSResponse(request.url, 400, {}, _Raw())  # type: ignore[func-returns-value]

        made.meta.events.register("before-send", hook)
    step(made)
    return seen


@pytest.mark.sweep("us-iso-east-1", "us-isob-east-1", "ap-south-2", "eusc-de-east-1")
@pytest.mark.parametrize("region", REGIONS)
def test_requests_to_aws_go_where_boto3_sends_them(region: str) -> None:
    options = {**KEYS, "AWS_REGION": region}
    for service, step in (
        ("s3", S3_STEPS["get"]),
        ("s3", S3_STEPS["list"]),
        ("dynamodb", DYNAMODB_STEPS["newest"]),
    ):
        used, other = (
            clients.client(service, options=options),
            clients._boto3_client(service, None, options, 1),
        )
        assert isinstance(used, SignedS3 | SignedDynamoDB)
        assert _address(used, step) == _address(other, step) != []
        assert used.meta.endpoint_url == other.meta.endpoint_url
        assert used.meta.region_name == other.meta.region_name


def test_a_bucket_with_dots_stands_in_the_path_as_boto3_has_it() -> None:
    from safewrite.stores.s3 import S3Objects

    options = {**KEYS, "AWS_REGION": "eu-west-1"}
    made = [clients.client("s3", options=options), clients._boto3_client("s3", None, options, 1)]
    for step in (
        lambda made: S3Objects(made, "my.lake", "t").get("a"),
        lambda made: S3Objects(made, "my.lake", "t").list("", "", 0),
    ):
        used, other = (_address(one, step) for one in made)
        assert used == other
        assert "amazonaws.com/my.lake" in used[0]


ENDPOINTS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "options": ({"AWS_ENDPOINT_URL": "http://one:1"}, {}),
    "options of the service": (
        {"AWS_ENDPOINT_URL": "http://one:1", "AWS_ENDPOINT_URL_S3": "http://two:2/base/"},
        {},
    ),
    "the environment": ({}, {"AWS_ENDPOINT_URL": "http://one:1"}),
    "the environment's, of the service": (
        {},
        {"AWS_ENDPOINT_URL": "http://one:1", "AWS_ENDPOINT_URL_S3": "https://two:2"},
    ),
    "options before the environment": (
        {"AWS_ENDPOINT_URL": "http://one:1"},
        {"AWS_ENDPOINT_URL_S3": "http://two:2"},
    ),
}


@pytest.mark.parametrize("name", ENDPOINTS)
def test_endpoints_are_found_as_boto3_finds_them(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given, environment = ENDPOINTS[name]
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    options = {**KEYS, "AWS_REGION": "eu-west-1", **given}
    used, other = clients.client("s3", options=options), clients._boto3_client("s3", None, options, 1)
    assert isinstance(used, SignedS3)
    for step in ("get", "list", "put_if_absent"):
        assert _address(used, S3_STEPS[step]) == _address(other, S3_STEPS[step]) != []


CONFIGS = {
    "addressing": "[default]\ns3 =\n  addressing_style = path\n",
    "fips": "[default]\nuse_fips_endpoint = true\n",
    "dual stack": "[default]\nuse_dualstack_endpoint = true\n",
    "an endpoint of a profile": "[default]\nendpoint_url = http://there:1\n",
    "services of a profile": "[default]\nservices = mine\n[services mine]\ns3 =\n  endpoint_url = http://there:1\n",
    "signing for many regions": "[default]\nsigv4a_signing_region_set = *\n",
}


@pytest.mark.sweep("fips", "an endpoint", "signing")
@pytest.mark.parametrize("name", CONFIGS)
def test_settings_that_only_botocores_client_follows_are_left_to_it(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    options = {**KEYS, "AWS_REGION": "eu-west-1"}
    config = tmp_path / "config"
    config.write_text("[default]\nregion = eu-west-1\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    assert isinstance(clients.client("s3", options=options), SignedS3)
    config.write_text(CONFIGS[name])
    made = clients.client("s3", options=options)
    assert isinstance(made, botocore.client.BaseClient)
    assert clients.described("s3", None, options).startswith("boto3 (")


@pytest.mark.parametrize(
    "given",
    [
        {"AWS_ENDPOINT_URL": "http://[::1]:9000"}, {"AWS_REGION": "mars-north-1"}, {"AWS_USE_FIPS_ENDPOINT": "true"},
        {"AWS_S3_US_EAST_1_REGIONAL_ENDPOINT": "regional"}, {"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"},
    ],
)  # fmt: skip
def test_an_environment_that_is_not_known_is_left_to_boto3(
    given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in (KEYS | {"AWS_REGION": "us-east-1"} | given).items():
        monkeypatch.setenv(key, value)
    assert isinstance(clients.client("s3"), botocore.client.BaseClient)


@pytest.mark.parametrize(
    "bucket", ["arn:aws:s3:eu-west-1:1:accesspoint/a", "lake--euw1-az1--x-s3", "Lake", "lake_x", "ab"]
)
def test_buckets_of_other_kinds_are_left_to_boto3(bucket: str) -> None:
    assert not endpoints.is_usual(bucket)
    made = clients.client("s3", options={**KEYS, "AWS_REGION": "eu-west-1"})
    seen: list[str] = []

    class Other:
        def __getattr__(self, name: str) -> Callable[..., dict[str, Any]]:
            return lambda **given: seen.append(f"{name} {given['Bucket']}") or {}  # type: ignore[func-returns-value]

    made._other = Other
    for call in (made.get_object, made.put_object, made.delete_object, made.list_objects_v2):
        call(Bucket=bucket, Key="k")
    assert seen == [
        f"{name} {bucket}" for name in ("get_object", "put_object", "delete_object", "list_objects_v2")
    ]
    made.get_bucket_lifecycle_configuration(Bucket="lake")
    assert seen[-1] == "get_bucket_lifecycle_configuration lake"


def test_a_session_of_the_user_is_asked_by_its_own_client() -> None:
    session = boto3.Session(aws_access_key_id="a", aws_secret_access_key="b", region_name="eu-west-1")
    assert isinstance(clients.client("s3", session=session), botocore.client.BaseClient)
    assert clients.described("s3", session, None) == "boto3 (boto3_session=)"


def _watch(**_: Any) -> None:
    """What a mock of AWS registers."""


def test_who_watches_botocores_requests_goes_on_seeing_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mock of AWS, a tracer: they hook botocore's handlers, or wrap its client."""
    options = {**KEYS, "AWS_REGION": "eu-west-1"}
    assert clients.described("s3", None, options) == "signed requests"
    with monkeypatch.context() as patch:
        hooked = [*botocore.handlers.BUILTIN_HANDLERS, ("before-send", _watch)]
        patch.setattr(botocore.handlers, "BUILTIN_HANDLERS", hooked)
        assert f"{__name__} watches botocore's requests" in clients.described("s3", None, options)
    with monkeypatch.context() as patch:
        patch.setattr(botocore.client.BaseClient, "_make_api_call", _watch)
        assert "watches botocore's calls" in clients.described("dynamodb", None, options)
    assert clients.described("s3", None, options) == "signed requests"


# --- credentials --------------------------------------------------------------------------------------
def _signed_by(made: Any) -> str:
    keys: list[str] = []

    def send(method: str, url: str, headers: dict[str, str], *_: Any, **__: Any) -> AWSResponse:
        keys.append(headers["Authorization"].partition("Credential=")[2].partition("/")[0])
        return AWSResponse(url, 400, {}, _Raw())

    made.sender.send = send
    S3_STEPS["get"](made)
    return keys[0]


def test_credentials_come_from_where_botocore_finds_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Options, a profile, the environment, a process; each for the next request, not only for the first."""
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    lent = {"Version": 1, "AccessKeyId": "process", "SecretAccessKey": "s", "SessionToken": "t"}
    program = tmp_path / "lend.py"
    program.write_text(f"print({json.dumps(json.dumps(lent))})")
    config, shared = tmp_path / "config", tmp_path / "credentials"
    config.write_text(
        f"[profile lent]\ncredential_process = {sys.executable} {program}\n[profile kept]\nregion = eu-west-1\n"
    )
    shared.write_text("[kept]\naws_access_key_id = profile\naws_secret_access_key = s\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(shared))
    assert _signed_by(clients.client("s3", options={"AWS_PROFILE": "kept"})) == "profile"
    assert _signed_by(clients.client("s3", options={"AWS_PROFILE": "lent"})) == "process"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    assert _signed_by(clients.client("s3")) == "environment"
    assert _signed_by(clients.client("s3", options=KEYS)) == "a"


def test_renewed_credentials_sign_the_next_request(monkeypatch: pytest.MonkeyPatch) -> None:
    from botocore.credentials import ReadOnlyCredentials

    made = clients.client("s3", options={**KEYS, "AWS_REGION": "eu-west-1"})

    class Lent:
        keys = iter(["first", "second"])

        def get_frozen_credentials(self) -> ReadOnlyCredentials:
            return ReadOnlyCredentials(next(self.keys), "s", None)

    made.reach = endpoints.Reach(
        **{**{name: getattr(made.reach, name) for name in endpoints.Reach.__slots__}, "keys": Lent()}
    )
    assert [_signed_by(made), _signed_by(made)] == ["first", "second"]


def test_what_the_environment_says_is_what_botocore_finds_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a Lambda function variables say it all, and botocore's session is not made; what they say is the same."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret-of-this-test")
    for more in (
        {"AWS_SESSION_TOKEN": "token"},
        {"AWS_SECURITY_TOKEN": "old"},
        {"AWS_CA_BUNDLE": "/ca.pem"},
        {"AWS_REGION": "us-east-2"},
    ):
        with monkeypatch.context() as patch:
            for name, value in more.items():
                patch.setenv(name, value)
            plain, asked = endpoints._of_environment({}), endpoints._of_botocore(None, ask_keys=True)
            assert isinstance(plain, endpoints._Settings)
            assert isinstance(asked, endpoints._Settings)
            assert plain[1:] == asked[1:]
            theirs = asked.keys.get_frozen_credentials()
            assert [plain.keys.access_key, plain.keys.secret_key, plain.keys.token] == list(theirs[:3])
    assert "a-secret-of-this-test" not in repr(endpoints.find("s3", None, {}))


@pytest.mark.parametrize("name", sorted(endpoints._BOTOCORES | {"AWS_S3_USE_ARN_REGION"}))
def test_what_only_botocore_judges_is_asked_of_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert endpoints._of_environment(KEYS) is not None
    monkeypatch.setenv(name, "x")
    assert endpoints._of_environment(KEYS) is None


# --- what it brings along -----------------------------------------------------------------------------
def test_signed_requests_bring_no_service_models_along() -> None:
    program = (
        "import sys\n"
        "from safewrite.stores import clients\n"
        "clients.client('s3'); clients.client('dynamodb')\n"
        "print(*(name for name in ('boto3', 'botocore.handlers', 'botocore.docs', 's3transfer') if name in sys.modules))"
    )
    environment = {**os.environ, **KEYS, "AWS_REGION": "eu-west-1", "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert "boto3" not in done.stdout.split()
    assert "s3transfer" not in done.stdout.split()
