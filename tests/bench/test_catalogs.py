"""The catalogs that tests stand on: real ones that compare and set, and faults that hit their commits."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import psycopg2
import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException

from bench.servers import catalogs
from bench.servers.catalogs import (
    CatalogKind,
    IcebergRest,
    Postgres,
    catalog_properties,
    load,
)
from bench.servers.servers import ServerError
from safewrite.testing.faults import FaultKind, RequestStep, Rule
from tests.bench.processes import is_alive, listening_addresses, until_gone

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.servers.servers import Ministack, SeaweedFS
    from tests.servers import CatalogLab

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
KINDS = get_args(CatalogKind)
WRITERS = 4
REPOSITORY = Path(__file__).resolve().parents[2]
# PyIceberg and botocore send nothing twice: the test sees each answer.
NO_RETRY = {"commit.retry.num-retries": "0"}
NO_RESEND: dict[str, Any] = {"glue.max-retries": 0}  # as text, PyIceberg 0.12 hands it to botocore unread

PERFORMED = (
    FaultKind.LOST_ANSWER,
    FaultKind.LOST_ANSWER_500,
    FaultKind.LOST_ANSWER_502,
    FaultKind.LOST_ANSWER_503,
    FaultKind.LOST_ANSWER_504,
    FaultKind.PRECONDITION_412,
)
NOT_PERFORMED = (
    FaultKind.ERROR_500,
    FaultKind.ERROR_502,
    FaultKind.ERROR_503,
    FaultKind.ERROR_504,
    FaultKind.CONFLICT_409,
    FaultKind.THROTTLE,
    FaultKind.FORBIDDEN_403,
    FaultKind.CUT,
)


def create(catalog: Any, namespace: str) -> Any:
    return catalog.create_table(f"{namespace}.t", schema=ROWS.schema, properties=NO_RETRY)


def race(tables: list[Any]) -> list[str]:
    """Append by all tables at once, each from what it knew; the name of each one's error, or ``"ok"``."""
    barrier = threading.Barrier(len(tables))
    results = [""] * len(tables)

    def run(index: int) -> None:
        barrier.wait()
        try:
            tables[index].append(ROWS)
        except CommitFailedException as error:
            results[index] = type(error).__name__
        else:
            results[index] = "ok"

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(tables))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def assert_one_of_many_wins(new_catalog: Callable[[], Any], namespace: str, rounds: int = 3) -> None:
    name = f"{namespace}.t"
    create(new_catalog(), namespace)
    writers = [new_catalog() for _ in range(WRITERS)]
    for round_ in range(1, rounds + 1):
        results = race([writer.load_table(name) for writer in writers])
        assert sorted(results) == ["CommitFailedException"] * (WRITERS - 1) + ["ok"]
        table = new_catalog().load_table(name)
        assert len(table.snapshots()) == round_
        assert table.scan().to_arrow().num_rows == round_ * ROWS.num_rows


# --- the servers ------------------------------------------------------------------------------
@pytest.mark.sweep("glue", "rest")
@pytest.mark.parametrize("kind", KINDS)
def test_a_catalog_lets_one_of_many_racing_commits_win(
    catalog_lab: Callable[[CatalogKind], CatalogLab], kind: CatalogKind
) -> None:
    lab = catalog_lab(kind)
    assert_one_of_many_wins(lab.load, lab.namespace)


@pytest.mark.long
def test_a_rest_catalog_on_postgresql_lets_one_win_and_ends_when_told(
    ministack: Ministack, bucket: str, postgres: Postgres, tmp_path: Path
) -> None:
    warehouse = f"s3://{bucket}/w"
    with IcebergRest(
        tmp_path, s3=ministack, warehouse=warehouse, jdbc_uri=postgres.jdbc_database()
    ) as server:
        pid = server.pid
        assert listening_addresses(pid) == {"0100007F"}
        properties = catalog_properties(
            "rest", uri=server.uri, s3_url=ministack.endpoint_url, warehouse=warehouse
        )
        made: list[Any] = []

        def new_catalog() -> Any:
            made.append(load(properties))
            return made[-1]

        new_catalog().create_namespace("ns")
        assert_one_of_many_wins(new_catalog, "ns")
        for catalog in made:
            catalog.close()
    assert not is_alive(pid)


@pytest.mark.long
def test_postgresql_listens_on_loopback_only_and_ends_though_somebody_is_connected(tmp_path: Path) -> None:
    with Postgres(tmp_path) as server:
        pid, data = server.pid, server._data
        assert data is not None
        assert listening_addresses(pid) == {"0100007F"}
        connection = psycopg2.connect(f"{server.endpoint_url}/postgres")
    assert until_gone(pid)
    connection.close()
    assert data.is_relative_to(tmp_path) or not data.exists()


def test_every_database_is_new(postgres: Postgres) -> None:
    assert postgres.database() != postgres.database() != postgres.uri


def test_postgresql_that_is_not_installed_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogs, "_DEBIAN_BIN", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerError, match="apt-get install postgresql"):
        Postgres(tmp_path).start()


def test_tables_on_a_real_object_store_are_written_and_read(postgres: Postgres, seaweed: SeaweedFS) -> None:
    properties = catalog_properties(
        "sql",
        uri=postgres.database(),
        s3_url=seaweed.endpoint_url,
        warehouse=f"s3://{seaweed.bucket}/iceberg",
    )
    catalog = load(properties)
    catalog.create_namespace("ns")
    create(catalog, "ns").append(ROWS)
    assert catalog.load_table("ns.t").scan().to_arrow().equals(ROWS)
    catalog.close()


# --- faults at their commits ------------------------------------------------------------------
def set_property(table: Any, key: str) -> None:
    with table.transaction() as transaction:
        transaction.set_properties({key: "set"})


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_every_fault_at_a_commit_fails_it_and_is_performed_only_if_it_says_so(
    catalog_lab: Callable[[CatalogKind], CatalogLab], kind: CatalogKind
) -> None:
    """Goal: whether the catalog performed the commit is known from the fault alone."""
    lab = catalog_lab(kind)
    lab.proxied.update(NO_RESEND)
    create(lab.load(), lab.namespace)
    table = lab.load(proxied=True).load_table(f"{lab.namespace}.t")
    for fault in (*PERFORMED, *NOT_PERFORMED):
        table.refresh()
        lab.commits.plan(Rule(kind=fault, steps=(RequestStep.CATALOG_COMMIT,), nth=1))
        with pytest.raises(Exception):  # noqa: B017 - each fault and catalog has one of its own
            set_property(table, fault)
        stored = lab.load().load_table(f"{lab.namespace}.t").properties
        assert (fault in stored) == (fault in PERFORMED), fault
    expected = {(RequestStep.CATALOG_COMMIT, fault): 1 for fault in (*PERFORMED, *NOT_PERFORMED)}
    assert lab.commits.counts() == expected


@pytest.mark.long
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.long if kind != "rest" else ()) for kind in KINDS]
)
def test_a_commit_is_delayed_or_comes_late(
    catalog_lab: Callable[[CatalogKind], CatalogLab], kind: CatalogKind
) -> None:
    lab = catalog_lab(kind)
    lab.proxied.update(NO_RESEND)
    create(lab.load(), lab.namespace)
    table = lab.load(proxied=True).load_table(f"{lab.namespace}.t")
    lab.commits.plan(Rule(kind=FaultKind.DELAY, steps=(RequestStep.CATALOG_COMMIT,), nth=1, delay_s=0.05))
    set_property(table, "delayed")
    lab.commits.plan(Rule(kind=FaultKind.LATE, steps=(RequestStep.CATALOG_COMMIT,), nth=1, delay_s=3.0))
    with pytest.raises(Exception):  # noqa: B017 - each catalog has one of its own
        set_property(table, "late")
    observer = lab.load()
    assert "late" not in observer.load_table(f"{lab.namespace}.t").properties
    for _ in range(300):
        stored = observer.load_table(f"{lab.namespace}.t").properties
        if "late" in stored:
            break
        time.sleep(0.1)
    assert stored.keys() >= {"delayed", "late"}
    assert lab.commits.fired() == 2


@pytest.mark.parametrize(
    ("kind", "conflict", "forbidden"),
    [
        ("rest", "CommitFailedException", "ForbiddenError"),
        ("glue", "CommitFailedException", "AccessDeniedException"),
        ("sql", "OperationalError", "ProgrammingError"),
    ],
)
def test_errors_are_worded_so_that_pyiceberg_knows_them(
    catalog_lab: Callable[[CatalogKind], CatalogLab], kind: CatalogKind, conflict: str, forbidden: str
) -> None:
    lab = catalog_lab(kind)
    lab.proxied.update(NO_RESEND)
    create(lab.load(), lab.namespace)
    table = lab.load(proxied=True).load_table(f"{lab.namespace}.t")
    for fault, expected in ((FaultKind.CONFLICT_409, conflict), (FaultKind.FORBIDDEN_403, forbidden)):
        lab.commits.plan(Rule(kind=fault, steps=(RequestStep.CATALOG_COMMIT,), nth=1))
        with pytest.raises(Exception) as refused:
            set_property(table, "k")
        assert type(refused.value).__name__ == expected


@pytest.mark.sweep("glue", "rest")
@pytest.mark.parametrize("kind", KINDS)
def test_the_steps_of_an_append_are_seen(
    catalog_lab: Callable[[CatalogKind], CatalogLab], kind: CatalogKind
) -> None:
    lab = catalog_lab(kind)
    catalog = lab.load(proxied=True)
    create(catalog, lab.namespace).append(ROWS)
    catalog.load_table(f"{lab.namespace}.t").append(ROWS)
    objects = lab.proxy.requests()
    assert (
        objects[RequestStep.PUT_DATA]
        == objects[RequestStep.PUT_MANIFEST]
        == objects[RequestStep.PUT_MANIFEST_LIST]
        == 2
    )
    assert objects[RequestStep.PUT_METADATA] == (0 if kind == "rest" else 3)
    of_catalog = lab.commits.requests()
    assert of_catalog[RequestStep.CATALOG_COMMIT] == 2
    assert of_catalog[RequestStep.CATALOG_CREATE] == 1
    assert of_catalog[RequestStep.CATALOG_LOAD] > 0
    assert lab.proxy.upstream_failures() == 0


def test_an_unreadable_commit_is_refused_by_a_rest_catalog(
    catalog_lab: Callable[[CatalogKind], CatalogLab],
) -> None:
    lab = catalog_lab("rest")
    create(lab.load(), lab.namespace)
    table = lab.load(proxied=True).load_table(f"{lab.namespace}.t")
    lab.commits.plan(Rule(kind=FaultKind.TRUNCATE_BODY, steps=(RequestStep.CATALOG_COMMIT,)))
    with pytest.raises(Exception):  # noqa: B017 - the server's words are not ours to fix
        set_property(table, "k")
    assert "k" not in lab.load().load_table(f"{lab.namespace}.t").properties
    assert lab.commits.fired() == 1


def test_the_benches_import_on_a_machine_without_pyiceberg() -> None:
    program = "import sys; sys.modules.update(dict.fromkeys(['pyiceberg', 'psycopg2', 'sqlalchemy']));"
    program += "import bench.servers.catalogs, bench.stress.proxies.pgproxy, bench.stress.proxies.proxy"
    done = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_postgresql_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    program = (
        "import sys, time; from bench.servers.catalogs import Postgres\n"
        "server = Postgres(sys.argv[1]).start()\n"
        "print(server.pid, server._data, flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=REPOSITORY, text=True) as parent:
        assert parent.stdout is not None
        pid, data = parent.stdout.readline().split()
        assert is_alive(int(pid))
        parent.kill()
    gone = until_gone(int(pid))
    if not gone:
        os.kill(int(pid), signal.SIGKILL)
    shutil.rmtree(data)
    assert gone
