"""T3-S4: no secret that a user gave is in a text, a log, a traceback with its causes, a repr, a receipt, an event or a file."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import boto3
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import safewrite as sw
from safewrite.cdc import config as cdc
from safewrite.cdc.connect.registry import Registry
from safewrite.cli.app import app
from safewrite.medallion import Pipeline
from safewrite.medallion.config import job as medallion
from safewrite.text.masking import masked
from tests.canaries import SPELLINGS, Seen, call, canary, watched

pytestmark = pytest.mark.usefixtures("no_aws_settings")

ROWS = pa.table({"id": [1, 2]})
KEYS = {"AWS_ACCESS_KEY_ID": "AKIAHARMLESS", "AWS_REGION": "us-east-1"}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """A port where nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


Place = Callable[[str, int, Path, pytest.MonkeyPatch, Seen], None]
PLACES: dict[str, Place] = {}


def place(given: Place) -> Place:
    """Where a user can put a secret, and calls with it: some succeed, most fail."""
    PLACES[given.__name__] = given
    return given


def _s3(seen: Seen, options: Any, *, address: str = "s3://lake/t", **more: Any) -> None:
    more = {"storage_options": options, "timeout_s": 0.5, **more}
    events: list[Any] = []
    call(seen, lambda: sw.open(address, arbiter="object-store", on_event=events.append, **more))
    call(seen, lambda: sw.open(address, lock_table="locks", on_event=events.append, **more))
    for event in events:
        seen.thing("an event", event)


@place
def in_storage_options(secret: str, port: int, folder: Path, patch: pytest.MonkeyPatch, seen: Seen) -> None:
    far = KEYS | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}
    _s3(seen, far | {"AWS_SECRET_ACCESS_KEY": secret})
    _s3(seen, far | {"AWS_SECRET_ACCESS_KEY": "b" * 20, "AWS_SESSION_TOKEN": secret})
    _s3(seen, far | {"AWS_SECRET_ACCESS_KEY": "b" * 20, "token": secret})


@place
def under_a_wrong_name(secret: str, port: int, folder: Path, patch: pytest.MonkeyPatch, seen: Seen) -> None:
    for name in ("AWS_SECRET_ACESS_KEY", "secret", "key", "aws_secret_key", "MY_OWN_SECRET"):
        call(seen, lambda name=name: sw.open("s3://lake/t", storage_options={name: secret}))  # type: ignore[misc]
    doubled = {"AWS_SECRET_ACCESS_KEY": secret, "secret_access_key": "other"}
    call(seen, lambda: sw.open("s3://lake/t", storage_options=doubled))


@place
def of_a_wrong_type(secret: str, port: int, folder: Path, patch: pytest.MonkeyPatch, seen: Seen) -> None:
    options = {"AWS_SECRET_ACCESS_KEY": secret}
    wrong: list[Any] = [
        json.dumps(options), str(options), [("AWS_SECRET_ACCESS_KEY", secret)], {"AWS_SECRET_ACCESS_KEY": secret.encode()},
        {"AWS_SECRET_ACCESS_KEY": [secret]}, {"AWS_SECRET_ACCESS_KEY": {"value": secret}}, secret, secret.encode(),
        {"AWS_SECRET_ACCESS_KEY": f"{secret}\0"}, {secret.encode(): "x"},
    ]  # fmt: skip
    for one in wrong:
        call(seen, lambda one=one: sw.open("s3://lake/t", storage_options=one))  # type: ignore[misc]
        call(seen, lambda one=one: sw.open(folder / "t", storage_options=one, create=True))  # type: ignore[misc]


@place
def in_the_environment(secret: str, port: int, folder: Path, patch: pytest.MonkeyPatch, seen: Seen) -> None:
    patch.setenv("AWS_ACCESS_KEY_ID", "AKIAHARMLESS")
    patch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    patch.setenv("AWS_SESSION_TOKEN", secret)
    _s3(seen, {"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"})


@place
def in_a_boto3_session(secret: str, port: int, folder: Path, patch: pytest.MonkeyPatch, seen: Seen) -> None:
    session = boto3.Session("AKIAHARMLESS", secret, secret, "us-east-1")
    _s3(seen, {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}, boto3_session=session)


@place
def in_an_address(secret: str, port: int, folder: Path, patch: pytest.MonkeyPatch, seen: Seen) -> None:
    spelled = secret.replace("\n", "").replace("'", "").replace('"', "").replace("/", "").replace("@", "")
    _s3(
        seen,
        KEYS
        | {"AWS_SECRET_ACCESS_KEY": "b" * 20, "AWS_ENDPOINT_URL": f"http://me:{spelled}@127.0.0.1:{port}"},
    )
    for address in (f"s3://me:{spelled}@lake/t", f"https://me:{spelled}@host/t", f"gs://me:{spelled}@lake/t"):
        call(seen, lambda address=address: sw.open(address))  # type: ignore[misc]


@place
def in_a_catalog(secret: str, port: int, folder: Path, patch: pytest.MonkeyPatch, seen: Seen) -> None:
    spelled = secret.replace("\n", "").replace("'", "").replace('"', "").replace("/", "").replace("@", "")
    catalogs: list[Any] = [
        {"type": "sql", "uri": f"postgresql+psycopg2://me:{spelled}@127.0.0.1:{port}/x"},
        {"type": "sql", "uri": f"nonsense://me:{spelled}@127.0.0.1:{port}/x"},
        {"type": "rest", "uri": f"http://127.0.0.1:{port}", "token": secret},
        {"type": "rest", "uri": f"http://127.0.0.1:{port}", "credential": f"me:{secret}"},
        {"type": "rest", "uri": f"http://me:{spelled}@127.0.0.1:{port}"},
        {"type": "rest", "uri": f"http://127.0.0.1:{port}", "header.X-Api-Key": secret},
        {"type": "glue", "glue.endpoint": f"http://127.0.0.1:{port}", "glue.region": "us-east-1",
         "glue.access-key-id": "a", "glue.secret-access-key": secret, "glue.session-token": secret, "glue.max-retries": "1"},
        {"type": "wrong", "s3.secret-access-key": secret},
        {"s3.secret-access-key": secret},
        json.dumps({"type": "sql", "uri": f"postgresql://me:{spelled}@h/x"}),
        [("s3.secret-access-key", secret)],
    ]  # fmt: skip
    for one in catalogs:
        call(seen, lambda one=one: sw.open("db.t", catalog=one, timeout_s=0.5))  # type: ignore[misc]


@place
def in_calls_that_succeed(
    secret: str, port: int, folder: Path, patch: pytest.MonkeyPatch, seen: Seen
) -> None:
    options = KEYS | {"AWS_SECRET_ACCESS_KEY": secret, "AWS_SESSION_TOKEN": secret}
    catalog = {
        "type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse",
        "s3.secret-access-key": secret, "credential": secret,
    }  # fmt: skip
    events: list[Any] = []
    delta: Any = sw.create(folder / "delta", ROWS.schema, storage_options=options, on_event=events.append)
    iceberg: Any = sw.create(
        "db.t", ROWS.schema, catalog=catalog, storage_options=options, on_event=events.append
    )
    for table in (delta, iceberg):
        seen.thing("a receipt", table.append(ROWS, key="a"))
        for receipt in table.append_many([("b", ROWS), ("c", pa.table({"id": ["x"]}))]):
            seen.thing("a receipt or an error", receipt)
        call(seen, lambda table=table: table.delete("nonsense = 1"))  # type: ignore[misc]
        call(seen, lambda table=table: table.overwrite(ROWS, where="id = 1 garbage"))  # type: ignore[misc]
        seen.note("repr of a table", repr(table))
        seen.note("history", table.history())
    for event in events:
        seen.thing("an event", event)
    seen.folder(folder)


def _refusal(model: Any, given: Any) -> str:
    """What a model says of wrong settings, where a user asks it himself; the error's pickle holds them, which is pydantic's."""
    with pytest.raises(ValueError) as caught:
        model.model_validate(given)
    return f"{caught.value} {caught.value!r}"


@place
def in_a_job_of_change_data(
    secret: str, port: int, folder: Path, patch: pytest.MonkeyPatch, seen: Seen
) -> None:
    good = {
        "job": "j", "kafka": {"servers": "h:9092", "topics": ["t"], "options": {"kafka.sasl.jaas.config": f'x password="{secret}";'}},
        "envelope": "debezium-avro", "registry": {"url": "http://h:1", "user": "u", "password": "env:REGISTRY_PASSWORD"},
        "checkpoint": "c", "warehouse": str(folder), "storage_options": {"AWS_SECRET_ACCESS_KEY": secret},
        "catalog": {"uri": f"postgresql://u:{secret}@h/x", "credential": secret}, "job_tables": {"format": "iceberg"},
        "tables": [{"source": "a", "database": "d", "table": "t"}],
    }  # fmt: skip
    patch.setenv("REGISTRY_PASSWORD", secret)
    made = cdc.load(good)
    seen.note("repr", repr(made))
    seen.note("str", str(made))
    wrong: list[dict[str, Any]] = [
        good | {"storage_options": {"AWS_SECRET_ACCESS_KEY": [secret]}},
        good | {"storage_options": secret},
        good | {"catalog": {"credential": {"a": secret}}},
        good | {"registry": {"url": f"http://u:{secret}@h:1"}},
        good | {"registry": {"url": "http://h", "user": "u", "password": secret}},
        good | {"storage_option": {"AWS_SECRET_ACCESS_KEY": secret}},
        good | {"kafka": {"servers": "h", "options": {"a": secret}, "topic": secret}},
        good | {"password": secret},
    ]
    for one in wrong:
        call(seen, lambda one=one: cdc.load(one))  # type: ignore[misc]
        call(seen, lambda one=one: cdc.load(json.dumps(one)))  # type: ignore[misc]
        call(seen, lambda one=one: cdc.load(json.dumps(one)[:-3]))  # type: ignore[misc]
        seen.note("pydantic's own text", _refusal(cdc.Config, one))


@place
def in_a_registry(secret: str, port: int, folder: Path, patch: pytest.MonkeyPatch, seen: Seen) -> None:
    spelled = secret.replace("\n", "").replace("'", "").replace('"', "")
    call(seen, lambda: Registry(f"http://127.0.0.1:{port}", "u", secret, patience_s=0.01)(1))
    call(seen, lambda: Registry(f"http://u:{spelled}@127.0.0.1:{port}", patience_s=0.01)(1))
    call(
        seen,
        lambda: Registry(
            f"http://127.0.0.1:{port}?apikey={quote(spelled)}&token={quote(spelled)}", patience_s=0.01
        )(1),
    )
    seen.note("repr", repr(Registry("http://h", "u", secret)))


@place
def in_a_medallion_job(secret: str, port: int, folder: Path, patch: pytest.MonkeyPatch, seen: Seen) -> None:
    good = {
        "job": "shop", "raw": {"location": f"{folder}/raw"}, "state": f"{folder}/state", "quarantine": f"{folder}/aside",
        "storage_options": KEYS | {"AWS_SECRET_ACCESS_KEY": secret, "AWS_SESSION_TOKEN": secret},
        "tables": {"shop.orders": {
            "format": "delta", "keys": ["id"], "bronze": f"{folder}/bronze", "silver": f"{folder}/silver",
            "columns": {"id": "int64"}, "files": {"kind": "csv", "header": True},
        }},
    }  # fmt: skip
    raw = folder / "raw" / "shop" / "orders"
    raw.mkdir(parents=True)
    (raw / "LOAD00000001.csv").write_text("id\n1\nx\n")
    call(seen, lambda: Pipeline(good).run())
    far: Any = good["storage_options"]
    far = far | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}
    call(seen, lambda: Pipeline(good | {"storage_options": far, "raw": {"location": "s3://lake/raw"}}).run())
    call(
        seen,
        lambda: Pipeline(good | {"storage_options": far, "state": "s3://lake/state"}).reset(["shop.orders"]),
    )
    seen.note("repr", repr(medallion.load(good)))
    for wrong in (
        good | {"storage_options": {"AWS_SECRET_ACCESS_KEY": [secret]}},
        good | {"storage_options": [secret]},
        good | {"catalog": {"uri": f"postgresql://u:{secret}@h/x"}},
        good | {"storage_option": secret},
        good | {"tables": secret},
    ):
        call(seen, lambda wrong=wrong: medallion.load(wrong))  # type: ignore[misc]
        seen.note("pydantic's own text", _refusal(medallion.Config, wrong))
    (folder / "raw").rename(folder / "other")
    seen.folder(folder)


@place
def on_the_command_line(secret: str, port: int, folder: Path, patch: pytest.MonkeyPatch, seen: Seen) -> None:
    runner = CliRunner()
    far = ["--endpoint-url", f"http://127.0.0.1:{port}", "--region", "us-east-1"]
    for more in (
        [
            "--storage-option",
            f"AWS_SECRET_ACCESS_KEY={secret}",
            "--storage-option",
            "AWS_ACCESS_KEY_ID=AKIAHARMLESS",
        ],
        ["--storage-option", secret.split("=", maxsplit=1)[0]],
        ["--storage-option", f"secret={secret}"],
    ):
        for command in (
            ["doctor", "s3://lake/t"],
            ["resolve", "s3://lake/t", "key"],
            ["--output", "json", "doctor", "s3://lake/t"],
        ):
            done = runner.invoke(app, [*command, *far, *more])
            seen.note(f"the answer of {command[0]}", done.output)


@pytest.mark.sweep(
    "in_a_job_of_change_data-with a line break",
    "in_a_medallion_job-with a line break",
    "on_the_command_line-with a line break",
    "in_calls_that_succeed-with",
    "in_storage_options-with",
    "in_a_catalog-with",
    "in_a_boto3_session-with",
    "in_the_environment-with",
    "in_a_registry-with",
    "of_a_wrong_type-with",
)
@pytest.mark.parametrize("spelling", ["as it is", "with a line break in it"])
@pytest.mark.parametrize("where", PLACES)
def test_a_secret_that_was_given_is_seen_nowhere(
    where: str, spelling: str, port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T3-S4"""
    _plant(where, spelling, port, tmp_path, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("where", PLACES)
def test_a_secret_in_any_spelling_is_seen_nowhere(
    where: str, spelling: str, port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T3-S4"""
    _plant(where, spelling, port, tmp_path, monkeypatch)


def _plant(where: str, spelling: str, port: int, folder: Path, patch: pytest.MonkeyPatch) -> None:
    secret = SPELLINGS[spelling](canary())
    with watched() as seen:
        PLACES[where](secret, port, folder, patch, seen)
    assert len(seen.texts) > 3, "something was looked at"
    assert seen.found(secret) == []
    assert seen.raw == [], "each of these wrong calls and settings ends in an error of safewrite"


# --- errors of libraries that repeat what they were given ---------------------------------------------------
def _library_errors(secret: str) -> list[Exception]:
    from botocore.exceptions import ClientError, ConnectionClosedError, HTTPClientError, SSLError

    answer: Any = {
        "Error": {"Code": "InvalidToken", "Message": f"The token {secret} is bad"},
        "ResponseMetadata": {"HTTPStatusCode": 400},
    }
    return [
        HTTPClientError(error=ValueError(f"Invalid header value {secret.encode()!r}")),
        ConnectionClosedError(endpoint_url=f"http://u:{secret}@h/x"),
        SSLError(endpoint_url="http://h", error=secret),
        ClientError(answer, "GetObject"),
        RuntimeError("it failed", {"password": secret}),
        OSError(5, f"password={secret}", f"/mnt/{secret}"),
        ValueError(json.dumps({"AWS_SECRET_ACCESS_KEY": secret})),
        KeyError(secret),
        MemoryError(secret),
    ]


VERBS: dict[str, Callable[[Any], Any]] = {
    "append": lambda table: table.append(ROWS, key="k"),
    "append_many": lambda table: table.append_many([("a", ROWS), ("b", ROWS)]),
    "overwrite": lambda table: table.overwrite(ROWS, where="id = 1"),
    "delete": lambda table: table.delete("id = 2"),
    "apply_changes": lambda table: table.apply_changes(
        pa.table({"id": [1], "s": [1]}), keys=["id"], sequence_by="s"
    ),
    "resolve": lambda table: table.resolve("k"),
    "history": lambda table: table.history(),
}


def _shaken(folder: Path, seed: int) -> None:
    """A table whose store raises a library's error, which repeats a secret, at some request of some verb."""
    draw = random.Random(seed)
    secret = SPELLINGS[draw.choice(["as it is", "with a line break in it"])](canary())
    table: Any = sw.create(
        folder / f"t{seed}",
        pa.schema({"id": pa.int64()}),
        storage_options={"AWS_SECRET_ACCESS_KEY": secret},
        timeout_s=0.2,
    )
    table.append(ROWS)
    error, at = draw.choice(_library_errors(secret)), draw.randrange(6)
    inner, count = table.world.perform, iter(range(1000))

    def perform(effect: Any) -> Any:
        if next(count) == at:
            raise error
        return inner(effect)

    table.world.perform = perform
    with watched() as seen:
        call(seen, lambda: VERBS[draw.choice(list(VERBS))](table))
    assert seen.found(secret) == [], (seed, error)


def test_errors_of_libraries_that_repeat_a_secret_are_masked_with_their_causes(tmp_path: Path) -> None:
    """T3-S4: the short form of the machine."""
    for seed in range(25):
        _shaken(tmp_path, seed)


@pytest.mark.long
def test_many_errors_of_libraries_that_repeat_a_secret_are_masked(tmp_path: Path) -> None:
    """T3-S4"""
    for seed in range(100, 800):
        _shaken(tmp_path, seed)


# --- what is not masked ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "text",
    [
        "The session token has expired: get new credentials, and open the table again.",
        "Set AWS_SECRET_ACCESS_KEY or AWS_PROFILE, or give storage_options= or boto3_session=.",
        "The table s3://lake/orders of catalog 'prod' has column 'password' of type string.",
        "registry.password is env:NAME: where the password is",
        "postgresql://h/x and https://docs.example/page#password=",
        "Basic authentication of the registry",
        "key='orders/2026/11/25', txn=('tokens', 5)",
    ],
)
def test_a_text_without_secrets_stays_as_it_is(text: str) -> None:
    assert masked(text) == text


@pytest.mark.parametrize(
    "text",
    ["x" * 300_000, "secret_" * 40_000, "password" * 40_000, '"token ' * 40_000, "://" * 100_000, "sig=" * 50_000, "Basic " * 50_000,
     "password" + " " * 300_000, "a-" * 150_000, "secret" + "." * 300_000],
)  # fmt: skip
def test_a_long_text_is_masked_in_one_pass(text: str) -> None:
    """With a pattern that looks back or forth without a bound, each of these takes minutes, and the run says so."""
    assert len(masked(text)) <= len(text)


@pytest.mark.parametrize("load", [cdc.load, medallion.load])
def test_settings_of_jobs_take_values_from_the_environment(
    load: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """T3-S4: ``storage_options`` and ``catalog`` of both jobs."""
    shared = {
        "job": "j",
        "catalog": {"uri": "env:CATALOG_URI", "type": "sql"},
        "storage_options": {"AWS_SECRET_ACCESS_KEY": "env:HUSH"},
    }
    table = {
        "format": "iceberg",
        "keys": ["id"],
        "bronze": "b.o",
        "silver": "s.o",
        "columns": {"id": "int64"},
        "files": {"kind": "parquet"},
    }
    given = shared | (
        {"kafka": {"servers": "h", "topics": ["t"]}, "envelope": "debezium-json", "checkpoint": "c", "job_tables": {"format": "iceberg"},
         "tables": [{"source": "a", "database": "d", "table": "t", "format": "iceberg"}]}
        if load is cdc.load
        else {"raw": {"location": str(tmp_path)}, "state": f"{tmp_path}2", "quarantine": "q.q", "quarantine_format": "iceberg",
              "tables": {"a.b": table}}
    )  # fmt: skip
    found = load(given)
    with pytest.raises(
        sw.InvalidInputError, match=r"storage_options.AWS_SECRET_ACCESS_KEY .*HUSH, which is not set"
    ):
        found.options()
    with pytest.raises(sw.InvalidInputError, match="CATALOG_URI"):
        found.catalog_settings()
    monkeypatch.setenv("HUSH", "a-secret-of-tests")
    monkeypatch.setenv("CATALOG_URI", "sqlite://")
    assert found.options() == {"AWS_SECRET_ACCESS_KEY": "a-secret-of-tests"}
    assert found.catalog_settings() == {"uri": "sqlite://", "type": "sql"}
    assert "a-secret-of-tests" not in f"{found!r} {found}"
