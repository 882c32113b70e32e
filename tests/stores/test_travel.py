"""How an executor reaches what the driver reaches: which credentials go with a task, and which do not."""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from botocore.credentials import Credentials, RefreshableCredentials

from safewrite.engine.settings_sent import travelling
from safewrite.stores.addresses import StoreAddress


@pytest.fixture(autouse=True)
def _no_aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_PROFILE",
        "AWS_ENDPOINT_URL",
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
        "AWS_CA_BUNDLE",
    ):
        monkeypatch.delenv(name, raising=False)
    with mock.patch("botocore.session.Session.get_config_variable", return_value="eu-west-1"):
        yield


def _session(found: object) -> Any:
    return mock.patch("botocore.session.Session.get_credentials", return_value=found)


def test_keys_that_do_not_run_out_travel(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"aws_access_key_id": "A", "AWS_SECRET_ACCESS_KEY": "B"}
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://store")
    assert travelling(given) == {
        "AWS_ACCESS_KEY_ID": "A",
        "AWS_SECRET_ACCESS_KEY": "B",
        "AWS_ENDPOINT_URL": "http://store",
    }
    with _session(Credentials("K", "S", method="shared-credentials-file")):
        assert travelling(None) == {
            "AWS_ENDPOINT_URL": "http://store",
            "AWS_REGION": "eu-west-1",
            "AWS_ACCESS_KEY_ID": "K",
            "AWS_SECRET_ACCESS_KEY": "S",
        }
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "E")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "F")
    found = travelling({})
    assert found is not None
    assert (found["AWS_ACCESS_KEY_ID"], found["AWS_SECRET_ACCESS_KEY"]) == ("E", "F")


@pytest.mark.parametrize(("method", "travels"), [("iam-role", True), ("sso", False), ("assume-role", False)])
def test_those_of_a_role_stay(method: str, travels: bool) -> None:
    """A machine's role is each machine's own; nothing is sent then.  What else runs out cannot be sent."""
    later = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    role = RefreshableCredentials("K", "S", "T", later, dict, method)
    with _session(role):
        assert travelling(None) == ({"AWS_REGION": "eu-west-1"} if travels else None)


def test_an_address_shows_no_secret() -> None:
    address = StoreAddress("s3://b/t", "b", "t", (("AWS_SECRET_ACCESS_KEY", "hidden"),))
    assert "hidden" not in repr(address)
    assert pickle.loads(pickle.dumps(address)) == address
