"""Every command of ``safewrite`` as the command line itself defines it, a folder in which each works, and cases of what is wrong.

A new command joins by itself; where it needs an argument that ``SAMPLES`` does not have, a test says so.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
from typer.main import get_command

import safewrite as sw
from safewrite.cli.app import app
from tests.cdc.events import record
from tests.cdc.jobs import Job, change
from tests.cdc.test_recipe import ARGUMENTS, TABLE
from tests.iceberg.command_line import sqlite_place
from tests.medallion.test_from_dms import ENDPOINTS, TASK
from tests.medallion.test_jobs import HEAD, Shop

LONG_KEY = "medallion/shop/shop.customers/bronze/0943e131-aec5-4704-bb02-bfb95ecb815e/None/new/1/0"
LETTER, ASIDE = "topic/0/1", "shop/orders/20261101-000000001.csv#2"
SAMPLES: dict[str, list[str]] = {
    "table": ["./orders"], "key": ["event-1"], "ledger": ["keys.txt"], "lock_table": ["locks"], "note": ["not needed"],
    "cdc config": ["cdc/job.json"], "cdc restart table": ["db.a"], "cdc convert tables": ["recipe.json"],
    "cdc dead-letters show name": [LETTER], "cdc dead-letters replay names": [LETTER], "cdc dead-letters retire names": [LETTER],
    "medallion config": ["medallion/job.json"], "medallion table": ["shop.orders"], "medallion from-dms endpoint": ["endpoint.json"],
    "medallion from-dms task": ["task.json"], "medallion from-dms lake": ["./lake"], "medallion quarantine show name": [ASIDE],
    "medallion quarantine replay names": [ASIDE], "medallion quarantine retire names": [ASIDE],
    "locks watch once": [], "maintain table": ["./orders"],
    "stress": ["--help"],
}  # fmt: skip
"""What a command is given, by its name and that of the argument, or by that of the argument alone; also what need not be given."""
ICEBERG = [
    "--catalog",
    "here",
    "--catalog-property",
    "type=sql",
    "--catalog-property",
    "uri=sqlite:///catalog.db",
]
NO_JAVA = {"JAVA_HOME": "/nope", "PATH": "/nope"}
AWS = {
    "AWS_ACCESS_KEY_ID": "safewrite",
    "AWS_SECRET_ACCESS_KEY": "safewrite-secret",
    "AWS_REGION": "us-east-1",
    "AWS_ALLOW_HTTP": "true",
}


@dataclass(frozen=True)
class Command:
    """A command, and the words with which it works in the world."""

    path: tuple[str, ...]
    params: tuple[Any, ...]

    @property
    def name(self) -> str:
        return " ".join(self.path)

    def has(self, name: str) -> bool:
        return any(one.name == name for one in self.params)

    def words(self, given: Mapping[str, list[str]] | None = None) -> list[str]:
        """The words of the command, with these values of arguments in place of the samples."""
        found = [*self.path, *SAMPLES.get(self.name, [])]
        for one in self.params:
            values = (given or {}).get(one.name, self.sample(one))
            if values is None:
                continue
            if is_argument(one):
                found += values
            else:
                found += [word for value in values for word in (one.opts[0], value)] or [one.opts[0]]
        return found

    def sample(self, param: Any) -> list[str] | None:
        for name in (f"{self.name} {param.name}", f"{self.path[0]} {param.name}", param.name):
            if name in SAMPLES and (param.required or name.startswith(f"{self.name} ")):
                return SAMPLES[name]
        assert not param.required, (
            f"say in SAMPLES of tests/cli/commands.py what {self.name} takes as {param.name}"
        )
        return None


def is_argument(param: Any) -> bool:
    return not param.opts[0].startswith("-")


def commands() -> list[Command]:
    """All of them, as the command line defines them."""

    def walk(one: Any, path: tuple[str, ...]) -> Iterator[Command]:
        if found := getattr(one, "commands", {}):
            for name, inner in found.items():
                yield from walk(inner, (*path, name))
        else:
            yield Command(path, tuple(one.params))

    return list(walk(get_command(app), ()))


def kind_of(param: Any) -> type:
    """The type of an option's values."""
    annotation = param.type_descriptor.annotation
    found: type = next(iter(get_args(annotation)), annotation)
    return found


# --- the world ------------------------------------------------------------------------------------
def build(place: Path) -> None:
    """Tables of both formats, a change data job with a dead letter, a medallion job with a quarantined record, and files."""
    table = sw.open(place / "orders", create=True)
    table.append(pa.table({"id": [1, 2]}), key="event-1")
    table.append(pa.table({"id": [3]}), key=LONG_KEY)
    with sqlite_place(place):
        pass
    (place / "keys.txt").write_text(f"event-1\n{LONG_KEY}\n")
    (place / "cdc").mkdir()
    job = Job(place / "cdc", [{"table": "a"}, {"table": "customers_of_the_shop"}])
    job.land(change("c", "a", 1, {"id": 1}, lsn=1, offset=0), record(b"?", offset=1))
    (place / "cdc/job.json").write_text(job.landing().config.model_dump_json())
    (place / "medallion").mkdir()
    shop = Shop(place / "medallion")
    shop.config["tables"]["shop.customers"] = {"columns": {"id": "int64"}}
    shop.put("shop/orders/20261101-000000001.csv", HEAD + "I,1,1.00,10\nI,x,2.00,11\n")
    shop.put("shop/customers/20261101-000000001.csv", "Op,id,seq\nI,1,10\n")
    assert shop.run().ok
    shop.put("shop/customers/20261101-000000002.csv", "Op,id,seq\nI,2,11\n")
    (place / "medallion/job.json").write_text(json.dumps(shop.config))
    (place / "recipe.json").write_text(json.dumps([TABLE]))
    (place / "arguments.json").write_text(json.dumps(ARGUMENTS))
    (place / "endpoint.json").write_text(json.dumps(ENDPOINTS))
    (place / "task.json").write_text(json.dumps(TASK))


@dataclass
class Case:
    """One thing wrong (or nothing), and one command in one form."""

    command: Command
    what: str
    form: str
    given: dict[str, list[str]] = field(default_factory=dict)
    more: list[str] = field(default_factory=list)
    files: dict[str, str | None] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    must_fail: bool = False

    def __str__(self) -> str:
        return f"{self.command.name}: {self.what} ({self.form})"

    def to_dict(self, world: Path, template: Path) -> dict[str, Any]:
        words = [*self.command.words(self.given), *self.more]
        if self.form == "json":
            words = ["--output", "json", *words]
        env = {"HOME": str(world), "LANG": "C.UTF-8", "TERM": "xterm", **AWS, **NO_JAVA, **self.env}
        for name in ("VIRTUAL_ENV", "TMPDIR"):
            if name in os.environ:
                env[name] = os.environ[name]
        return {
            "words": words, "terminal": self.form == "terminal", "files": self.files, "env": env, "missing": self.missing,
            "world": str(world), "template": str(template),
        }  # fmt: skip


def text(content: str | bytes) -> str:
    return base64.b64encode(content.encode() if isinstance(content, str) else content).decode()


BROKEN_FILES: dict[str, str | None] = {
    "is missing": None,
    "is a folder": "folder",
    "cannot be read": "loop",
    "is empty": text(""),
    "is not text": text(b"\xff\xfe\x00\x80"),
    "is not JSON": text("{"),
    "is a list": text("[]"),
    "is a number": text("3"),
    "is null": text("null"),
    "has fields of nothing": text('{"nothing": {"a": [1]}}'),
    "is nested too deep": text("[" * 100_000),
}
TABLES: dict[str, dict[str, Any]] = {
    "the table is missing": {"given": {"table": ["./nothing"]}},
    "the table is a file": {"given": {"table": ["keys.txt"]}},
    "the table is a folder without a log": {"given": {"table": ["cdc"]}},
    "the table cannot be read": {"files": {"orders": "loop"}},
    "a commit is no JSON": {"files": {f"orders/_delta_log/{0:020d}.json": text("{")}},
    "a commit is empty": {"files": {f"orders/_delta_log/{0:020d}.json": text("")}},
    "a commit is a folder": {"files": {f"orders/_delta_log/{0:020d}.json": "folder"}},
    "the log has a hole": {"files": {f"orders/_delta_log/{0:020d}.json": None}},
    "the address is empty": {"given": {"table": [""]}},
    "the address is of another store": {"given": {"table": ["gs://bucket/orders"]}},
    "the address has no bucket": {"given": {"table": ["s3://"]}},
}
CATALOGS: dict[str, dict[str, Any]] = {
    "nothing is wrong": {"more": ICEBERG},
    "the table is missing": {"given": {"table": ["db.nothing"]}, "more": ICEBERG},
    "the namespace is missing": {"given": {"table": ["no.orders"]}, "more": ICEBERG},
    "the name has one part": {"given": {"table": ["orders"]}, "more": ICEBERG},
    "the branch is missing": {"more": [*ICEBERG, "--branch", "audit"]},
    "the catalog is not known": {"more": ["--catalog", "nowhere"]},
    "the catalog's type is not known": {"more": ["--catalog", "x", "--catalog-property", "type=nonsense"]},
    "the catalog is away": {"more": ["--catalog", "x", "--catalog-property", "type=rest", "--catalog-property", "uri=http://127.0.0.1:9"]},
    "Glue is away": {"more": ["--catalog", "x", "--catalog-property", "type=glue"], "env": {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}},
    "the catalog's database is missing": {
        "more": ["--catalog", "x", "--catalog-property", "type=sql", "--catalog-property", "uri=sqlite:////nope/c.db"]
    },
    "the catalog's database is not one": {"more": ICEBERG, "files": {"catalog.db": text("no database at all, but longer than that")}},
    "the catalog's address is none": {"more": ["--catalog", "x", "--catalog-property", "type=sql", "--catalog-property", "uri=nonsense"]},
    "the tables of the catalog's database are missing": {"more": ICEBERG, "files": {"catalog.db": text("")}},
    "the metadata is missing": {"more": ICEBERG, "files": {"lake/db/orders/metadata": None}},
}  # fmt: skip
SERVERS: dict[str, dict[str, str]] = {
    "the server is away": {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"},
    "all rights are denied": {"AWS_ENDPOINT_URL": "DENIED"},
    "S3 is denied and DynamoDB is away": {"AWS_ENDPOINT_URL": "DENIED", "AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:9"},
    "DynamoDB is denied and S3 is away": {"AWS_ENDPOINT_URL_DYNAMODB": "DENIED", "AWS_ENDPOINT_URL": "http://127.0.0.1:9"},
    "the endpoint is no URL": {"AWS_ENDPOINT_URL": "nonsense"},
    "no credentials": {"AWS_ENDPOINT_URL": "DENIED", "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_EC2_METADATA_DISABLED": "true"},
    "no region": {"AWS_ENDPOINT_URL": "DENIED", "AWS_REGION": ""},
    "the profile is missing": {"AWS_PROFILE": "nobody"},
    "the certificates are missing": {"AWS_ENDPOINT_URL": "https://127.0.0.1:9", "AWS_CA_BUNDLE": "/nope.pem"},
}  # fmt: skip
WRONG: dict[type, list[str]] = {
    int: ["nonsense", "-1", "0", "9" * 30],
    float: ["nonsense", "nan", "inf", "-1", "1e400"],
    str: ["", "\u00fc\U0001f600", "x" * 3000, "-", "a\nb", "*", "../..", "="],
}
PACKAGES = (
    "pyiceberg", "pyspark", "sqlglot", "pyroaring", "deltalake", "sqlalchemy", "fastavro", "tenacity", "jinja2", "duckdb",
    "opentelemetry", "google.protobuf", "rich", "matplotlib", "polars", "pandas",
)  # fmt: skip
FORMS = ("terminal", "pipe", "json")


def with_table(command: Command) -> bool:
    return command.has("catalog") and command.has("table")


def cases(make: Maker) -> list[Case]:
    """Every command with each thing that a maker has, in every form; of wrong values one form tells as much as three."""
    return [
        Case(command, what, form, **more)
        for command in commands()
        for number, (what, more) in enumerate(make(command))
        for form in (FORMS if make is not wrong_values else FORMS[number % 3 : number % 3 + 1])
    ]


def sample() -> list[Case]:
    """Some of each kind, on diagonals: another command has another fault in another form.

    A case in which a package is missing loads all others, so few are in it.
    """
    found = []
    for at, make in enumerate(MAKERS):
        every = 40 if make is missing_packages else 20
        for number, command in enumerate(commands()):
            if number % every == at and (listed := list(make(command))):
                what, more = listed[number % len(listed)]
                found.append(Case(command, what, FORMS[number % 3], **more))
    return found


def missing_packages(command: Command) -> Iterator[tuple[str, dict[str, Any]]]:
    for package in PACKAGES:
        yield f"without {package}", {"missing": [package]}
        if with_table(command) and package in {"pyiceberg", "sqlalchemy", "rich"}:
            yield (
                f"without {package}, Iceberg",
                {"missing": [package], "more": ICEBERG, "given": {"table": ["db.orders"]}},
            )


def nothing_wrong(command: Command) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "nothing is wrong", {}
    for one in command.params:
        if one.name == "engine":
            yield "without Java", {"more": ["--engine", "spark"], "must_fail": True}
        if one.name == "kafka":
            yield "without Java", {"more": ["--kafka"], "must_fail": True}
        if one.name == "html":
            yield "a page where none can be", {"more": ["--html", "nothing/page.html"], "must_fail": True}
            yield "a page over a folder", {"more": ["--html", "orders"], "must_fail": True}
            yield "a page", {"more": ["--html", "page.html"]}
        if one.name == "write":
            yield "a file that is there", {"more": ["--write", "keys.txt"], "must_fail": True}
            yield "a new file", {"more": ["--write", "new.json"]}
        if getattr(one, "is_bool_flag", False) and one.name != "kafka":
            yield f"with {one.opts[0]}", {"more": [one.opts[0]]}


def broken_files(command: Command) -> Iterator[tuple[str, dict[str, Any]]]:
    for one in command.params:
        sample = command.sample(one) or [""]
        if (
            "." not in sample[0]
            or sample[0].startswith("./")
            or one.name not in {"config", "ledger", "tables", "endpoint", "task"}
        ):
            continue
        for how, content in BROKEN_FILES.items():
            yield f"{one.name} {how}", {"files": {sample[0]: content}, "must_fail": one.name != "ledger"}
        if one.name == "config":
            yield from settings(command, sample[0])


def settings(command: Command, file: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield (
        "the job's folder is gone",
        {
            "files": {
                **dict.fromkeys(
                    ("cdc/db", "cdc/cdc", "cdc/lake")
                    if command.path[0] == "cdc"
                    else (
                        "medallion/raw",
                        "medallion/state",
                        "medallion/bronze",
                        "medallion/silver",
                        "medallion/aside",
                    )
                )
            }
        },
    )
    yield (
        "a log of the job's is no JSON",
        {
            "files": {
                f"{place}/_delta_log/{0:020d}.json": text("{")
                for place in ("cdc/cdc/job_ledger", "medallion/bronze/orders")
            }
        },
    )


def broken_tables(command: Command) -> Iterator[tuple[str, dict[str, Any]]]:
    if with_table(command):
        for what, more in TABLES.items():
            yield what, more
        for what, more in CATALOGS.items():
            yield f"Iceberg, {what}", {"given": {"table": ["db.orders"]}, **more}


def servers(command: Command) -> Iterator[tuple[str, dict[str, Any]]]:
    if not command.has("endpoint_url"):
        return
    given: dict[str, list[str]] = {"table": ["s3://lake/orders"]} if command.has("table") else {}
    for what, env in SERVERS.items():
        yield what, {"given": given, "env": env, "must_fail": True}
        if command.has("table"):
            yield (
                f"{what}, by the lock table",
                {"given": given, "env": env, "more": ["--lock-table", "locks"], "must_fail": True},
            )
        if command.has("function"):
            yield f"{what}, of a function", {"more": ["--lambda", "f"], "env": env, "must_fail": True}


def wrong_values(command: Command) -> Iterator[tuple[str, dict[str, Any]]]:
    for one in command.params:
        if getattr(one, "is_bool_flag", False) or one.name == "output":
            continue
        kind = kind_of(one)
        for value in WRONG.get(kind, ["nonsense", ""] if issubclass(kind, str) else ["", "nothing/at/all"]):
            yield f"{one.name} is {value[:40]!r}", {"given": {one.name: [value]}}
    yield "an option that is none", {"more": ["--nonsense"], "must_fail": command.name != "stress"}


Maker = Callable[[Command], Iterator[tuple[str, dict[str, Any]]]]
MAKERS: tuple[Maker, ...] = (
    missing_packages,
    nothing_wrong,
    broken_files,
    broken_tables,
    servers,
    wrong_values,
)


class Denied(BaseHTTPRequestHandler):
    """Answers every request of S3, DynamoDB, Glue or Lambda with 403."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        target = self.headers.get("X-Amz-Target", "")
        if target or "/functions/" in self.path:
            told = {
                "__type": "com.amazon.coral.service#AccessDeniedException",
                "message": f"User: arn:aws:sts::1:assumed-role/w is not authorized to perform: {target}",
            }
            body, kind = json.dumps(told).encode(), "application/x-amz-json-1.0"
        else:
            body, kind = (
                b"<?xml version='1.0'?><Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>",
                "application/xml",
            )
        self.send_response(400 if target else 403)
        self.send_header("Content-Type", kind)
        self.send_header("x-amzn-ErrorType", "AccessDeniedException")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer  # noqa: N815 - the names that the library asks for
