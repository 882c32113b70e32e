"""Settings of a Spark session, its jars, and what is refused before anything is written; no Java runs here."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import types
import xml.etree.ElementTree as ET
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.pandas import types as spark_types
from pyspark.sql.types import LongType, StructType, TimestampType
from typer.testing import CliRunner

import safewrite as sw
from safewrite.cli.app import app
from safewrite.delta.spark import options
from safewrite.delta.spark.log_store import parse_commit_path, transaction_of
from safewrite.frames.spark.columns import arrow_schema
from safewrite.spark import (
    attach,
    conf,
    configure,
    jars,
    jars_from,
    landed,
    logstore_jar,
    packages,
)
from tests.spark.session import JARS

HERE = Path(__file__).parent
JAVA = HERE.parents[1] / "safewrite" / "spark" / "java"


def test_the_settings_name_the_log_store_for_every_spelling_of_s3_and_never_for_all_schemes() -> None:
    found = conf(lock_table="locks")
    for scheme in ("s3", "s3a", "s3n"):
        assert found[f"spark.delta.logStore.{scheme}.impl"] == "io.safewrite.SafewriteLogStore"
    assert "spark.delta.logStore.class" not in found
    assert "spark.delta.logStore.file.impl" not in found
    assert found["spark.safewrite.lockTable"] == "locks"
    assert found["spark.jars"] == str(logstore_jar())
    assert "spark.delta.logStore.file.impl" in conf(local_files=True)


def test_iceberg_catalogs_bring_their_extension_and_their_properties() -> None:
    found = conf(iceberg={"prod": {"type": "rest", "uri": "http://127.0.0.1:1"}}, delta=False)
    assert (
        found["spark.sql.extensions"] == "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
    )
    assert found["spark.sql.catalog.prod.uri"] == "http://127.0.0.1:1"
    assert not any("logStore" in name or name == "spark.jars" for name in found)


def test_jars_and_extensions_of_ones_own_are_joined_with_ours() -> None:
    """T3-E9: who adds the settings by hand would lose his own, for Spark takes the last value."""
    mine = {"spark.jars": "udfs.jar", "spark.sql.extensions": "org.Mine", "spark.app.name": "mine"}
    found = conf(own=mine)
    assert found["spark.jars"] == f"udfs.jar,{logstore_jar()}"
    assert found["spark.sql.extensions"] == "org.Mine,io.delta.sql.DeltaSparkSessionExtension"
    assert found["spark.app.name"] == "mine"
    assert conf(own=found) == found
    with pytest.raises(sw.InvalidInputError, match="own="):
        conf(own="spark.jars=udfs.jar")  # type: ignore[arg-type]


def test_a_lock_table_with_the_object_store_as_arbiter_is_refused() -> None:
    with pytest.raises(sw.InvalidInputError, match="one arbiter"):
        conf(lock_table="locks", arbiter="object-store")


def test_jars_and_extensions_that_a_builder_has_already_stay() -> None:
    builder = SparkSession.Builder().config("spark.jars", "mine.jar").config("spark.sql.extensions", "mine.X")
    configured: Any = configure(builder)
    assert configured._options["spark.jars"] == f"mine.jar,{logstore_jar()}"
    assert configured._options["spark.sql.extensions"] == "mine.X,io.delta.sql.DeltaSparkSessionExtension"


def test_without_java_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(sw.MissingExtraError, match="openjdk-17"):
        configure(SparkSession.Builder())


def test_the_pinned_jars_are_those_that_the_tests_run_with(tmp_path: Path) -> None:
    found = jars_from(JARS, iceberg=True, kafka=True)
    assert {path.name for path in JARS.glob("*.jar")} - {path.name for path in found} == {
        "postgresql-42.7.7.jar"
    }
    space = {"m": "http://maven.apache.org/POM/4.0.0"}
    named = {node.text for node in ET.parse(HERE / "pom.xml").iterfind(".//m:artifactId", space)}
    assert {name.split(":")[1] for name in packages(iceberg=True, kafka=True)} <= named


def test_jars_that_are_not_pinned_for_a_spark_are_not_left_out_in_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jars, "_spark_line", lambda: "4.0")
    with pytest.raises(sw.UnsafeConfigError, match=r"for kafka, s3 for PySpark 3\.5, 4\.1, not for 4\.0"):
        packages(delta=False, kafka=True)


def test_the_folder_that_make_jars_fills_is_searched_for_its_spark_folder(tmp_path: Path) -> None:
    names = [path.name for path in jars_from(JARS)]
    (tmp_path / "spark").mkdir()
    for name in names:
        (tmp_path / "spark" / name).symlink_to(JARS / name)
    assert list(jars_from(tmp_path)) == [tmp_path / "spark" / name for name in names]


def test_a_missing_jar_is_named_with_the_command_that_fetches_it(tmp_path: Path) -> None:
    for path in jars_from(JARS, s3=False)[1:]:
        (tmp_path / path.name).symlink_to(path)
    with pytest.raises(sw.MissingExtraError) as raised:
        jars_from(tmp_path, s3=False)
    commands = re.findall(r"mvn dependency:copy -Dartifact=(\S+)", str(raised.value))
    assert commands == ["io.delta:delta-spark_4.1_2.13:4.4.0"]


def test_a_jar_with_other_bytes_is_refused(tmp_path: Path) -> None:
    for path in jars_from(JARS, s3=False):
        shutil.copy(path, tmp_path)
    with (tmp_path / "delta-storage-4.4.0.jar").open("ab") as file:
        file.write(b"x")
    with pytest.raises(sw.UnsafeConfigError, match=r"delta-storage-4\.4\.0\.jar"):
        jars_from(tmp_path, s3=False)


def test_our_jar_missing_damaged_or_of_another_version_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(jars, "_HERE", tmp_path)
    with pytest.raises(sw.MissingExtraError, match="make jars"):
        logstore_jar()
    (tmp_path / "jars").mkdir()
    path = tmp_path / "jars" / "safewrite-logstore.jar"
    path.write_bytes(b"torn")
    with pytest.raises(sw.MissingExtraError, match="damaged"):
        logstore_jar()
    with zipfile.ZipFile(path, "w") as jar:
        jar.writestr(
            "META-INF/MANIFEST.MF", "Implementation-Title: safewrite-logstore\nImplementation-Version: 0\n"
        )
    with pytest.raises(sw.MissingExtraError, match="another version"):
        logstore_jar()


@pytest.mark.long
def test_the_jar_is_what_its_source_gives_byte_for_byte(tmp_path: Path) -> None:
    command = ["mvn", "-q", "-B", "-f", str(JAVA / "pom.xml"), "package", f"-Dbuilt={tmp_path}"]
    subprocess.run(command, check=True, timeout=300)
    assert (tmp_path / "safewrite-logstore.jar").read_bytes() == logstore_jar().read_bytes()


class _Connect:
    """A session as Spark Connect's client has it."""


_Connect.__module__ = "pyspark.sql.connect.session"


def test_a_spark_connect_session_is_refused() -> None:
    with pytest.raises(sw.InvalidInputError, match=r"Spark Connect.*Nothing was written"):
        attach(_Connect())  # type: ignore[arg-type]


def _session(settings: dict[str, str], *, jar: bool = True) -> Any:
    """A session that is all settings."""
    kind = type("JavaClass" if jar else "JavaPackage", (), {})
    jvm = types.SimpleNamespace(
        io=types.SimpleNamespace(safewrite=types.SimpleNamespace(SafewriteLogStore=kind()))
    )
    return types.SimpleNamespace(
        sparkContext=types.SimpleNamespace(_jvm=jvm, getConf=lambda: types.SimpleNamespace(get=settings.get))
    )


@pytest.mark.parametrize(
    "settings",
    [
        {},
        conf() | {"spark.delta.logStore.s3.impl": "io.delta.storage.S3SingleDriverLogStore"},
        conf() | {"spark.delta.logStore.class": "io.delta.storage.S3SingleDriverLogStore"},
    ],
    ids=["none", "another for s3", "one for all"],
)
def test_a_session_whose_commits_would_go_past_safewrite_is_refused(settings: dict[str, str]) -> None:
    with pytest.raises(sw.UnsafeConfigError, match=r"past safewrite: spark\.delta\.logStore"):
        attach(_session(settings))


def test_a_session_without_our_jar_is_refused() -> None:
    with pytest.raises(sw.MissingExtraError, match="without safewrite's jar"):
        attach(_session(conf(), jar=False))


HADOOP = {
    "fs.s3a.endpoint": "127.0.0.1:9000",
    "fs.s3a.connection.ssl.enabled": "false",
    "fs.s3a.access.key": "general",
    "fs.s3a.secret.key": "secret",
    "fs.s3a.session.token": "token",
    "fs.s3a.bucket.special.access.key": "special",
    "fs.s3a.bucket.amazon.endpoint": "s3.eu-west-1.amazonaws.com",
    "fs.s3a.endpoint.region": "eu-west-1",
}


def test_commits_go_where_s3a_takes_the_data() -> None:
    assert options.from_hadoop(HADOOP.get, "any") == {
        "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9000",
        "AWS_ACCESS_KEY_ID": "general",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_SESSION_TOKEN": "token",
        "AWS_REGION": "eu-west-1",
    }
    assert options.from_hadoop(HADOOP.get, "special")["AWS_ACCESS_KEY_ID"] == "special"
    assert "AWS_ENDPOINT_URL_S3" not in options.from_hadoop(HADOOP.get, "amazon")


def test_credentials_that_the_caller_names_are_not_mixed_with_the_sessions() -> None:
    given = {
        "aws_access_key_id": "mine",
        "aws_secret_access_key": "own",
        "aws_endpoint_url": "http://127.0.0.1:1",
    }
    assert options.joined(HADOOP.get, "any", given) == {
        "AWS_ACCESS_KEY_ID": "mine",
        "AWS_SECRET_ACCESS_KEY": "own",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_REGION": "eu-west-1",
    }


@pytest.mark.parametrize("root", ["s3a://lake/a b/t", "file:/data/t", "s3://lake/_delta_log/t"])
def test_a_commits_path_is_taken_apart(root: str) -> None:
    assert parse_commit_path(f"{root}/_delta_log/{7:020d}.json") == (root, 7)


@pytest.mark.parametrize("path", ["s3a://lake/t/00000000000000000007.json", "s3a://lake/t/_delta_log/7.json"])
def test_a_path_that_is_no_commits_is_an_error(path: str) -> None:
    with pytest.raises(sw.InternalError, match="no commit file"):
        parse_commit_path(path)


def test_the_transaction_of_a_commit_is_found_behind_other_actions() -> None:
    body = b'{"protocol":{"minReaderVersion":1}}\n{"commitInfo":{"operation":"WRITE","txnId":"abc"}}\n'
    assert transaction_of(body) == "abc"
    assert transaction_of(b'{"add":{"path":"x"}}\n') is None
    assert transaction_of(b'{"commitInfo":{"operation":"WRITE"}}\n') is None


def test_the_hash_of_a_wide_row_is_a_flat_expression() -> None:
    """T3-E9: as one chain of 500 columns its planning took time by their square."""
    from pyspark.sql.types import LongType, StructField, StructType

    from safewrite.frames.spark.hashes import row_hash

    def depth(columns: int) -> int:
        text = row_hash(StructType([StructField(f"c{number}", LongType()) for number in range(columns)]))
        open_ = [
            text[:at].count("(") - text[:at].count(")") for at, letter in enumerate(text) if letter == "("
        ]
        return max(open_)

    assert depth(512) <= depth(64) + 3


BUILDER = SparkSession.Builder
WRONG: dict[str, tuple[Any, str]] = {
    "lock_table is a number": (lambda: conf(lock_table=5), "lock_table="),
    "lock_table is empty": (lambda: conf(lock_table=" "), "lock_table="),
    "lock_table is bytes": (lambda: conf(lock_table=b"locks"), "lock_table="),
    "arbiter has a slip": (lambda: conf(arbiter="object_store"), "'object-store'"),
    "arbiter is a number": (lambda: conf(arbiter=1), "'object-store'"),
    "catalogs are a name": (lambda: conf(iceberg="prod"), "iceberg="),
    "catalogs are a list": (lambda: conf(iceberg=["prod"]), "iceberg="),
    "a catalog is a text": (lambda: conf(iceberg={"prod": "rest"}), "prod"),
    "a property is None": (lambda: conf(iceberg={"prod": {"uri": None}}), "prod"),
    "a property is a number": (lambda: conf(iceberg={"prod": {"uri": 80}}), "prod"),
    "a catalog has a dot": (lambda: conf(iceberg={"a.b": {}}), "letters, digits"),
    "a catalog has no name": (lambda: conf(iceberg={"": {}}), "letters, digits"),
    "a catalog is a number": (lambda: conf(iceberg={5: {}}), "letters, digits"),
    "jars are a number": (lambda: conf(jars=5), "jars="),
    "a jar is a number": (lambda: conf(jars=[5]), "jars="),
    "jars have commas": (lambda: conf(jars="a.jar,b.jar"), r"jars=\[...\]"),
    "own is a number": (lambda: conf(own=5), "own="),
    "own has None": (lambda: conf(own={"spark.jars": None}), "own="),
    "no builder": (lambda: configure(None), "SparkSession.builder"),
    "a text for a builder": (lambda: configure("local[1]", lock_table="locks"), "SparkSession.builder"),
    "no session": (lambda: attach(None), "running SparkSession"),
    "a builder for a session": (lambda: attach(BUILDER()), "getOrCreate"),
    "a session that was stopped": (
        lambda: attach(types.SimpleNamespace(sparkContext=types.SimpleNamespace(_jsc=None))),
        "was stopped",
    ),
    "landed without a session": (lambda: landed(None, "s3a://lake/t", 1, "x"), "running SparkSession"),
    "no folder of jars": (lambda: jars_from(None), "folder"),
    "a number for a folder": (lambda: jars_from(5), "folder"),
}


@pytest.mark.parametrize("call", WRONG)
def test_wrong_settings_are_refused_in_words(call: str) -> None:
    act, says = WRONG[call]
    with pytest.raises(sw.InvalidInputError, match=says):
        act()


def test_types_that_arrow_knows_by_their_parts_alone_are_refused_at_every_depth() -> None:
    """T3-E6: PySpark gives Arrow a VARIANT as a struct of bytes, and Spark casts it to NULL."""
    from pyspark.sql import types as t

    from safewrite.frames.spark.columns import arrow_schema

    variant = t.VariantType()
    inner = t.StructType([t.StructField("x", variant)])
    for kind, path in (
        (variant, "v w"),
        (t.ArrayType(variant), "v w.element"),
        (inner, "v w.x"),
        (t.MapType(t.StringType(), inner), "v w.value.x"),
    ):
        schema = t.StructType([t.StructField("id", t.LongType()), t.StructField("v w", kind)])
        with pytest.raises(
            sw.InvalidInputError, match=re.escape(f"'{path}' has Spark's type variant")
        ) as raised:
            arrow_schema(schema)
        assert "to_json(`v w`)" in str(raised.value)
    for kind in (t.GeometryType(4326), t.GeographyType(4326)):
        with pytest.raises(sw.InvalidInputError, match=kind.typeName()):
            arrow_schema(t.StructType([t.StructField("g", kind)]))


@pytest.mark.parametrize(
    "words",
    [["cdc", "run"], ["cdc", "status", "--kafka"], ["medallion", "run", "--engine", "spark"]],
    ids=" ".join,
)
@pytest.mark.parametrize("output", ["text", "json"])
def test_a_job_without_java_ends_in_one_line(
    words: list[str], output: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """T4-C8: JAVA_HOME counts before PATH, as Spark's launcher reads them; it was a traceback of PySpark, also for JSON."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    monkeypatch.setattr(SparkContext, "_gateway", None)
    table = {"source": "public.orders", "database": "shop", "table": "orders"}
    kafka = {"servers": "127.0.0.1:1", "topics": ["shop.public.orders"]}
    jobs: dict[str, Any] = {
        "cdc": {
            "job": "shop", "kafka": kafka, "envelope": "debezium-json", "checkpoint": str(tmp_path / "checkpoint"),
            "warehouse": str(tmp_path / "lake"), "tables": [table],
        },
        "medallion": {
            "job": "m", "raw": {"location": str(tmp_path / "raw")}, "state": str(tmp_path / "s"), "quarantine": str(tmp_path / "q"),
            "defaults": {
                "format": "delta", "keys": ["id"], "files": {"kind": "csv", "header": True},
                **{layer: f"{tmp_path}/{layer}/{{schema}}/{{table}}" for layer in ("bronze", "silver")},
            },
            "tables": {"shop.orders": {"columns": {"id": "int64"}}},
        },
    }  # fmt: skip
    (tmp_path / "raw/shop/orders").mkdir(parents=True)
    (tmp_path / "raw/shop/orders/LOAD00000001.csv").write_text("id\n1\n")
    (tmp_path / "job.json").write_text(json.dumps(jobs[words[0]]))
    done = CliRunner().invoke(app, [*words, "--config", str(tmp_path / "job.json"), "--output", output])
    assert done.exit_code == 2, done.output
    assert "Spark needs Java 17" in done.output
    assert done.output.count("\n") == 1, done.output
    if output == "json":
        assert json.loads(done.stdout)["error"]["kind"] == "missing_extra"


def test_times_keep_their_zone_where_pyspark_wants_to_be_told_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """T4-C10: PySpark 4.2 asserts a zone.  The suite runs with 4.1; `make test-spark-newest` runs with 4.3."""
    theirs = spark_types.to_arrow_schema

    def newer(schema: StructType, *, timezone: str | None = None) -> pa.Schema:
        assert timezone == "UTC"
        return theirs(schema)

    schema = StructType().add("at", TimestampType()).add("id", LongType())
    for one in (theirs, newer):
        monkeypatch.setattr(spark_types, "to_arrow_schema", one)
        assert arrow_schema(schema) == pa.schema([("at", pa.timestamp("us", "UTC")), ("id", pa.int64())])
