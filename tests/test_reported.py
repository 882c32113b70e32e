"""What fresh users reported: a refusal names the cause, and a warning is seen without a configuration of logging."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyiceberg.catalog.glue import GlueCatalog
from typer.main import get_command

import safewrite as sw
from bench.stress.__main__ import app as stress
from safewrite.cli.app import app
from safewrite.wrangler import to_deltalake

ROW = {"id": 5, "v": 1}
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])


class Page(BaseHTTPRequestHandler):
    """A page for people, whatever is asked."""

    def do_GET(self) -> None:
        body = b"<html><body>Sign in</body></html>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serving() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_rest_catalog_that_answers_with_a_page_is_an_error_of_the_environment() -> None:
    with serving() as address, pytest.raises(sw.StorageError, match=r"does not answer as .* \(uri\)"):
        sw.open("a.b", catalog={"type": "rest", "uri": address})


@pytest.mark.parametrize("call", [sw.open, lambda *args, **how: sw.create(args[0], SCHEMA, **how)])
def test_a_table_of_glue_has_two_names(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing listens there: it is refused before a request."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    catalog = GlueCatalog(
        "g", **{"glue.region": "us-east-1", "glue.access-key-id": "a", "glue.secret-access-key": "b"}
    )
    with pytest.raises(sw.InvalidInputError, match=r"'awsdatacatalog.db.t' has 3 parts.*'db.t'"):
        call("awsdatacatalog.db.t", catalog=catalog)
    catalog.glue.close()


@pytest.mark.parametrize("name", ["x", "ab"])
def test_a_lock_table_of_a_letter_is_refused_before_a_request(name: str) -> None:
    options = {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_REGION": "us-east-1"}
    options |= {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    with pytest.raises(sw.InvalidInputError, match="3 to 255"):
        sw.open("s3://bucket/t", lock_table=name, storage_options=options)


@pytest.mark.parametrize("name", ["ContentType", "Metadata", "GrantRead"])
def test_arguments_of_requests_are_no_keys_of_deltalake(name: str, tmp_path: Path) -> None:
    with pytest.raises(sw.InvalidInputError, match=f"{name}.*no effect"):
        to_deltalake(pd.DataFrame([ROW]), str(tmp_path / "t"), s3_additional_kwargs={name: "x"})
    assert not (tmp_path / "t").exists()


def test_a_new_field_of_a_struct_is_not_advised_to_merge(tmp_path: Path) -> None:
    inner = pa.struct([("a", pa.int64())])
    table = sw.create(str(tmp_path / "t"), pa.schema([("id", pa.int64()), ("s", inner)]))
    rows = [{"id": 1, "s": {"a": 1, "b": 2}}]
    for call in (lambda: table.append(rows, schema_mode="merge"), lambda: table.overwrite(rows)):
        with pytest.raises(sw.WouldAlterError, match=r"ADD COLUMNS \(outer.inner") as met:
            call()
        assert "add it to the table with schema_mode='merge'" not in str(met.value)


def test_texts_of_slips_say_what_was_given(tmp_path: Path) -> None:
    table = sw.create(str(tmp_path / "t"), SCHEMA)
    with pytest.raises(sw.InvalidInputError, match="'' is not a name") as met:
        table.append([ROW], positions={"": (None, 1)})
    assert "Ellipsis" not in str(met.value)
    with pytest.raises(sw.InvalidInputError, match=r"\['id', 'id,v', 'v'\], and 'id,v' is one name"):
        table.apply_changes([ROW], keys=["id"], sequence_by="v", columns="id,v")
    table.append([ROW])
    table.append([ROW])
    with pytest.raises(sw.InvalidInputError) as met:
        table.apply_changes([{"id": 5, "v": 2}], keys=["id"], sequence_by="v")
    assert str(met.value).count("{'id': 5}") == 1


WARNS = {
    "a setting of a table that is there": (
        "import safewrite as sw; sw.open({path!r}, create=True, partition_by=['v'])", "no effect: partition_by",
    ),
    "an option that nothing knows": (
        "import safewrite as sw; sw.open({path!r}, storage_options={{'colour': 'red'}})", "colour, which has no effect",
    ),
}  # fmt: skip


@pytest.mark.sweep("an option that nothing knows")
@pytest.mark.parametrize("case", WARNS)
def test_a_warning_is_seen_where_nobody_configured_logging(case: str, tmp_path: Path) -> None:
    code, told = WARNS[case]
    path = str(tmp_path / "t")
    sw.create(path, SCHEMA)
    done = subprocess.run(
        [sys.executable, "-c", code.format(path=path)], capture_output=True, text=True, check=True
    )
    assert told in done.stderr


def test_no_time_of_a_stress_run_may_be_below_zero() -> None:
    """Asked of the options: a run that takes such a time begins servers."""
    least = {one.name: one.min for one in get_command(stress).params if one.name.endswith("_s")}  # type: ignore[attr-defined]
    assert set(least) >= {"limit_s", "pause_s", "lease_s"}
    assert all(one is not None and one >= 0 for one in least.values())


def test_what_a_command_reads_of_the_environment_means_the_same_to_all() -> None:
    """SAFEWRITE_LAMBDA was a function's name to doctor and a number to stress."""
    kinds: dict[str, set[str]] = {}

    def visit(command: Any) -> None:
        for option in command.params:
            for name in [option.envvar] if isinstance(option.envvar, str) else option.envvar or ():
                kinds.setdefault(name, set()).add(str(option.bare_type()))
        for under in getattr(command, "commands", {}).values():
            visit(under)

    for one in (app, stress):
        visit(get_command(one))
    assert len(kinds) > 20
    del kinds["SAFEWRITE_OUTPUT"]  # text or json everywhere, once as an enum
    assert {name: found for name, found in kinds.items() if len(found) > 1} == {}


def test_an_option_that_is_read_of_the_environment_is_so_in_every_command() -> None:
    """SAFEWRITE_VERSION, which images and pipelines set to a release, was the snapshot of a fast-forward."""
    read: dict[str, set[bool]] = {}

    def visit(command: Any) -> None:
        for option in command.params:
            for spelling in option.opts:
                read.setdefault(spelling, set()).add(option.envvar is not None)
        for under in getattr(command, "commands", {}).values():
            visit(under)

    for one in (app, stress):
        visit(get_command(one))
    assert read["--lock-table"] == {True}
    del read["--catalog"]  # `medallion from-dms` writes it to a file, and asks no catalog
    del read[
        "--config"
    ]  # of `maintain` it is in the place of a table, which the environment does not name either
    assert [name for name, found in read.items() if len(found) > 1] == []
