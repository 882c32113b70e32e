"""Drawn programs that change the environment of a process between its calls: who signs, and which store is asked (T4-A1, T4-A2).

The oracle is a new ``boto3.Session()`` at the time of the open.  What was opened before stays with its store and its keys.
"""

from __future__ import annotations

import os
import pickle
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import boto3
import botocore.session
import pytest
from botocore.loaders import create_loader
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

import safewrite as sw
from safewrite.stores.clients import shared_client
from safewrite.wrangler.delta import opened
from tests.stateful.signers import SigningStore

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

PROFILES, KEYS = ("dev", "prod"), ("AKIAONE", "AKIATWO", "AKIATHREE")
VARIABLES = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL_DYNAMODB")
HOW = ("here", "thread", "child")


class Reached(NamedTuple):
    """Which store is asked, by its number, and which key signs."""

    store: int
    key: str


class Environment(RuleBasedStateMachine):
    """One process: its variables, files and default session, two stores, and the tables that it has open."""

    def __init__(self) -> None:
        super().__init__()
        self.before = dict(os.environ)
        self.folder = tempfile.TemporaryDirectory()
        self.stores = [SigningStore(), SigningStore()]
        self.config, self.credentials = (Path(self.folder.name) / name for name in ("config", "credentials"))
        self.authorities = Path(self.folder.name) / "authorities.pem"
        for name in [
            name for name in os.environ if name.startswith("AWS_") or name.lower().endswith("_proxy")
        ]:
            del os.environ[name]
        os.environ.update(
            AWS_CONFIG_FILE=str(self.config), AWS_SHARED_CREDENTIALS_FILE=str(self.credentials), AWS_EC2_METADATA_DISABLED="true",
            AWS_REGION="us-east-1", AWS_DEFAULT_REGION="us-east-1", AWS_ENDPOINT_URL=self.stores[0].url,
            AWS_ACCESS_KEY_ID=KEYS[0], AWS_SECRET_ACCESS_KEY="s",
        )  # fmt: skip
        self.of_profile = dict.fromkeys(PROFILES, (KEYS[0], 0))
        self.write_files()
        boto3.DEFAULT_SESSION = None
        self.tables: list[tuple[Any, Reached]] = []
        self.count = 0
        self.program: list[str] = []

    def teardown(self) -> None:
        boto3.DEFAULT_SESSION = None
        for store in self.stores:
            store.close()
        self.folder.cleanup()
        os.environ.clear()
        os.environ.update(self.before)

    def write_files(self) -> None:
        places = (
            f"[profile {name}]\nendpoint_url = {self.stores[store].url}\n"
            for name, (_, store) in self.of_profile.items()
        )
        self.config.write_text("".join(places))
        keys = (
            f"[{name}]\naws_access_key_id = {key}\naws_secret_access_key = s\n"
            for name, (key, _) in self.of_profile.items()
        )
        self.credentials.write_text("".join(keys))

    # --- what changes -----------------------------------------------------------------------------
    @rule(name=st.sampled_from(VARIABLES), store=st.sampled_from((0, 1, None)))
    def name_a_store(self, name: str, store: int | None) -> None:
        self._set(name, None if store is None else self.stores[store].url)

    @rule(key=st.sampled_from((*KEYS, None)), token=st.sampled_from(("t", None)))
    def set_keys(self, key: str | None, token: str | None) -> None:
        self._set("AWS_ACCESS_KEY_ID", key)
        self._set("AWS_SECRET_ACCESS_KEY", key and "s")
        self._set("AWS_SESSION_TOKEN", token)

    @rule(
        profile=st.sampled_from((*PROFILES, None)),
        name=st.sampled_from(("AWS_PROFILE", "AWS_DEFAULT_PROFILE")),
    )
    def choose_a_profile(self, profile: str | None, name: str) -> None:
        self._set(name, profile)

    @rule(profile=st.sampled_from(PROFILES), key=st.sampled_from(KEYS), store=st.sampled_from((0, 1)))
    def write_a_profile(self, profile: str, key: str, store: int) -> None:
        self.of_profile[profile] = (key, store)
        self.write_files()

    @rule(
        region=st.sampled_from(("us-east-1", "eu-west-1", "ap-south-2")),
        name=st.sampled_from(("AWS_REGION", "AWS_DEFAULT_REGION")),
    )
    def set_a_region(self, region: str, name: str) -> None:
        self._set(name, region)

    @rule(name=st.sampled_from(("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE")), is_set=st.booleans())
    def name_authorities(self, name: str, is_set: bool) -> None:
        self._set(name, str(self.authorities) if is_set else None)

    @rule(key=st.sampled_from((*KEYS, None)))
    def set_default_session(self, key: str | None) -> None:
        self.program.append(f"default session {key}")
        if key is None:
            boto3.DEFAULT_SESSION = None
        else:
            boto3.setup_default_session(
                aws_access_key_id=key, aws_secret_access_key="s", region_name="us-east-1"
            )

    # --- what is asked ----------------------------------------------------------------------------
    @rule(service=st.sampled_from(("s3", "dynamodb")), ignored=st.booleans())
    def make_a_client(self, service: str, ignored: bool) -> None:
        """No request is sent: who would sign it, and where it would go."""
        self._set("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true" if ignored else None)
        oracle: Any = self._oracle(service)
        try:
            if oracle is None:
                return
            made = shared_client(service, None, None)
            keys: Any = (
                getattr(made, "reach", made).keys
                if hasattr(made, "reach")
                else made._request_signer._credentials
            )
            theirs = oracle._request_signer._credentials
            ours = (made.meta.endpoint_url, made.meta.region_name, keys.access_key, keys.token)
            self.judge(
                "client",
                ours,
                (oracle.meta.endpoint_url, oracle.meta.region_name, theirs.access_key, theirs.token),
            )
        finally:
            self._set("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", None)

    @rule(how=st.sampled_from(HOW))
    def open_a_table(self, how: str) -> None:
        wanted = self._wanted(self._oracle("s3"))
        if wanted is None:
            return
        self.count += 1
        uri = f"s3://lake/t{self.count}"

        def work() -> Any:
            table = sw.open(uri, arbiter="object-store", create=True)
            table.append([{"id": 1}], key="first")
            return table

        self._judged("open", how, work, wanted)
        self.keep(uri, wanted)

    @precondition(lambda self: self.tables)
    @rule(pick=st.integers(0, 9), how=st.sampled_from(HOW))
    def go_on(self, pick: int, how: str) -> None:
        table, wanted = self.tables[pick % len(self.tables)]
        self._judged("open table", how, lambda: table.append([{"id": 2}], key=os.urandom(4).hex()), wanted)

    @precondition(lambda self: self.tables)
    @rule(pick=st.integers(0, 9), how=st.sampled_from((*HOW, "sent")))
    def run_a_task(self, pick: int, how: str) -> None:
        """In this process, or as an executor gets it."""
        table, wanted = self.tables[pick % len(self.tables)]
        address = table._format.connection.store()
        address = pickle.loads(pickle.dumps(address)) if how == "sent" else address
        self._judged("task", how, lambda: address.world().objects.put("task", b"body"), wanted)

    @rule()
    def wrangle(self) -> None:
        """The wrangler takes boto3's default session, where one is set."""
        session: Any = boto3.DEFAULT_SESSION
        wanted = self._wanted(self._oracle("s3") if session is None else session.client("s3"))
        if wanted is not None:
            self.count += 1
            self._judged(
                "wrangler", "here", lambda: opened(f"s3://lake/w{self.count}", None, None, None), wanted
            )

    def keep(self, uri: str, wanted: Reached) -> None:
        """Have the table open from here on."""
        self.tables.append((sw.open(uri, arbiter="object-store"), wanted))
        self.judge("open again", self._take(), {wanted})

    # --- judging ----------------------------------------------------------------------------------
    def judge(self, what: str, found: object, wanted: object) -> None:
        assert found == wanted, f"{what}: {found} is not {wanted}, after {self.program}"

    def _set(self, name: str, value: str | None) -> None:
        self.program.append(f"{name}={value}")
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value

    def _oracle(self, service: str) -> Any:
        """A client of boto3's as it is made now; None where there are no keys or no place.  The region is also AWS_REGION's."""
        try:
            session = boto3.Session(botocore_session=_core())
            if session.get_credentials() is None:
                return None
            return session.client(service, region_name=os.environ.get("AWS_REGION"))  # type: ignore[call-overload]
        except Exception:  # noqa: BLE001 - a session that cannot be made has no say
            return None

    def _wanted(self, oracle: Any) -> Reached | None:
        urls = [store.url for store in self.stores]
        if oracle is None or oracle.meta.endpoint_url not in urls:
            return None
        return Reached(urls.index(oracle.meta.endpoint_url), oracle._request_signer._credentials.access_key)

    def _judged(self, what: str, how: str, work: Callable[[], Any], wanted: Reached) -> None:
        self._take()
        self.program.append(f"{what} ({how})")
        _RUN[how](work)
        self.judge(f"{what} ({how})", self._take(), {wanted})

    def _take(self) -> set[Reached]:
        return {Reached(number, key) for number, store in enumerate(self.stores) for key in store.taken()}


_loader = create_loader()


def _core() -> Any:
    """A session of botocore, as boto3 makes one; the models of services, which take long to read, are read once."""
    made = botocore.session.Session()
    made.register_component("data_loader", _loader)
    return made


def _in_thread(work: Callable[[], Any]) -> None:
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - it is raised below
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


def _in_child(work: Callable[[], Any]) -> None:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _here(work: Callable[[], Any]) -> None:
    work()


_RUN = {"here": _here, "sent": _here, "thread": _in_thread, "child": _in_child}


@pytest.mark.long
def test_the_environment_of_the_moment_says_who_signs_and_which_store_is_asked(tmp_path: Path) -> None:
    sw.open(str(tmp_path / "t"), create=True).append(
        [{"id": 1}]
    )  # else each child imports what an append needs
    run_state_machine_as_test(
        Environment,
        settings=settings(deadline=None, max_examples=2, stateful_step_count=12, derandomize=True),
    )


@pytest.mark.long
def test_many_environments_say_who_signs_and_which_store_is_asked() -> None:
    run_state_machine_as_test(
        Environment, settings=settings(deadline=None, max_examples=300, stateful_step_count=30)
    )


def test_keys_that_were_refused_are_asked_for_again_by_the_next_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_aws_settings: None
) -> None:
    """T4-A1: a program lends keys without saying how long they hold, so that no variable and no file shows that there are others."""
    store, lent = SigningStore(), tmp_path / "lent.json"
    try:
        config = tmp_path / "config"
        config.write_text(f"[default]\ncredential_process = cat {lent}\n")
        for name, value in {
            "AWS_CONFIG_FILE": str(config),
            "AWS_ENDPOINT_URL": store.url,
            "AWS_REGION": "us-east-1",
        }.items():
            monkeypatch.setenv(name, value)
        keys = '{"Version": 1, "AccessKeyId": "%s", "SecretAccessKey": "s", "SessionToken": "t"}'
        lent.write_text(keys % "AKIAOLD")
        table = sw.open("s3://lake/t", arbiter="object-store", create=True, timeout_s=5)
        table.append([{"id": 1}], key="a")
        store.expired.add("AKIAOLD")
        lent.write_text(keys % "AKIANEW")
        with pytest.raises(sw.SafewriteError, match="get new credentials, and open the table again"):
            table.append([{"id": 2}], key="b")
        store.taken()
        again = sw.open("s3://lake/t", arbiter="object-store")
        assert again.append([{"id": 2}], key="b").outcome == "committed"
        assert store.taken() == {"AKIANEW"}
    finally:
        store.close()
