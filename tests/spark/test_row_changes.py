"""``changes_since`` says what Spark says of its own commits: Delta's change data feed, and Iceberg's changelog view where that is right."""

from __future__ import annotations

import json
import random
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

import safewrite as sw
from tests.spark.session import Spark

Change = tuple[Any, ...]


def a_program(seed: int, steps: int) -> list[str]:
    """Random SQL on ``{t}``, each statement of which makes one commit of Delta's, or none."""
    rng = random.Random(seed)

    def values() -> str:
        rows = (f"({rng.randrange(8)}, '{rng.choice('ab')}', {rng.randrange(4)})" for _ in range(4))
        return ", ".join(rows)

    source = "SELECT k, 'a' p, 100 + k v FROM (SELECT explode(array(1, 3, 20)) k)"
    merge = (
        f"MERGE INTO {{t}} t USING ({source}) s ON t.k = s.k AND t.v > 100 WHEN MATCHED AND s.k = 3 THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET v = t.v + 1 WHEN NOT MATCHED THEN INSERT (k, p, v) VALUES (s.k, s.p, s.v)"
    )
    kinds: list[Callable[[], str]] = [
        lambda: f"INSERT INTO {{t}} VALUES {values()}",
        lambda: f"DELETE FROM {{t}} WHERE k = {rng.randrange(8)}",
        lambda: "DELETE FROM {t} WHERE p = 'b'",
        lambda: f"UPDATE {{t}} SET v = v + {rng.randrange(1, 3)} WHERE k < {rng.randrange(6)}",
        lambda: f"INSERT OVERWRITE {{t}} VALUES {values()}",
        lambda: merge,
    ]
    first = rng.sample(kinds, len(kinds))
    chosen = [*first, *rng.choices(kinds, k=max(steps - len(first), 0))][:steps]
    return [f"INSERT INTO {{t}} VALUES {values()}, {values()}", *(kind() for kind in chosen)]


def counted(rows: Iterable[Any]) -> dict[int, Counter[Change]]:
    """Of each version the changes with their types."""
    found: dict[int, Counter[Change]] = {}
    for row in rows:
        found.setdefault(row["_commit_version"], Counter())[
            row["k"], row["p"], row["v"], row["_change_type"]
        ] += 1
    return found


def net(changes: Counter[Change]) -> tuple[Counter[Change], Counter[Change]]:
    """The rows that went and came, without those that did both."""
    sides: tuple[Counter[Change], Counter[Change]] = (Counter(), Counter())
    for (*row, kind), count in changes.items():
        sides[kind in {"insert", "update_postimage"}][tuple(row)] += count
    return sides[0] - sides[1], sides[1] - sides[0]


def nets(found: dict[int, Counter[Change]]) -> dict[int, Any]:
    every = {version: net(changes) for version, changes in found.items()}
    return {version: sides for version, sides in every.items() if any(sides)}


def net_of_all(changes: Counter[Change]) -> tuple[Counter[Change], Counter[Change]]:
    """Both sides as they are, for changes that need no netting."""
    went = Counter({(*row,): count for (*row, kind), count in changes.items() if kind == "delete"})
    came = Counter({(*row,): count for (*row, kind), count in changes.items() if kind == "insert"})
    return went, came


HISTORIES, PIECE, AT_ONCE = 200, 8, 4
"""Random histories of each format, in pieces that take half a minute; Spark plans so many statements at once."""
PIECES = range(0, HISTORIES, PIECE)
VECTORS = ", 'delta.enableDeletionVectors' = 'true'"


def in_pieces(spark: Spark, check: Callable[[int], None], first: int) -> None:
    """Check the histories of a piece; which of them differ, and how, is told of all."""
    told = list[str]()

    def tell(seed: int) -> None:
        try:
            check(seed)
        except AssertionError as error:
            told.append(f"seed {seed}: {error}")

    with spark.careless(), ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(tell, range(first, first + PIECE)))
    assert not told, "\n\n".join(told)


def without_feed(fed: Path, twin: Path) -> None:
    """Copy a table as Spark would have made it without the feed: it writes the same files, and names no change files."""
    shutil.copytree(fed, twin, ignore=shutil.ignore_patterns("_change_data", "*.crc"))
    for path in (twin / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        for action in actions:
            action.get("metaData", {}).get("configuration", {}).pop("delta.enableChangeDataFeed", None)
        path.write_text("\n".join(json.dumps(one) for one in actions if "cdc" not in one))


def check_delta(spark: Spark, folder: Path, seed: int, steps: int, properties: str) -> None:
    """Of a table with the feed what Spark reads of it; of a twin without one the same rows."""
    fed = f"delta.`{folder}/fed`"
    spark.session.sql(
        f"CREATE TABLE {fed} (k INT, p STRING, v INT) USING delta PARTITIONED BY (p) "
        f"TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true'{properties})"
    )
    for statement in a_program(seed, steps):
        spark.session.sql(statement.format(t=fed))
    if seed % 2:
        spark.session.sql(f"OPTIMIZE {fed}")
    without_feed(folder / "fed", folder / "twin")
    read = spark.session.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
    theirs = counted(row.asDict() for row in read.load(f"{folder}/fed").collect())
    ours = counted(sw.open(folder / "fed").changes_since(-1).read().to_pylist())
    assert nets(ours) == nets(theirs), seed
    images = {"update_preimage", "update_postimage"}
    for version, changes in theirs.items():
        if any(kind in images for *_, kind in changes):  # by change files, whose rows are given as they are
            assert ours[version] == changes, (seed, version)
    alone = sw.open(folder / "twin").changes_since(-1)
    assert nets(counted(alone.read().to_pylist())) == nets(theirs), seed


def test_changes_of_sparks_delta_commits_are_those_of_its_change_data_feed(
    spark: Spark, tmp_path: Path
) -> None:
    with spark.careless():
        check_delta(spark, tmp_path / "0", 12, 2, VECTORS)


@pytest.mark.long
@pytest.mark.parametrize(("seed", "more"), [(1, VECTORS), (2, "")])
def test_changes_of_each_kind_of_sparks_delta_commits_are_too(
    spark: Spark, tmp_path: Path, seed: int, more: str
) -> None:
    with spark.careless():
        check_delta(spark, tmp_path / "0", seed, 6, more)


@pytest.mark.long
@pytest.mark.parametrize("first", PIECES)
def test_changes_of_200_histories_of_spark_are_those_of_its_change_data_feed(
    spark: Spark, tmp_path: Path, first: int
) -> None:
    def check(seed: int) -> None:
        check_delta(spark, tmp_path / str(seed), seed, 5, VECTORS if seed % 3 else "")

    in_pieces(spark, check, first)


def a_local_lake(spark: Spark, folder: Path) -> str:
    """A catalog of Spark's in a folder, by its name: most of a history's time would else go to a server of S3."""
    name = f"local_{uuid.uuid4().hex}"
    settings = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "hadoop", ".warehouse": folder.as_uri()}
    for key, value in settings.items():
        spark.session.conf.set(f"spark.sql.catalog.{name}{key}", value)
    return name


def opened(folder: Path, table: str) -> sw.Table:
    """A table of that catalog, as safewrite opens it: registered by its newest metadata file."""
    metadata = folder / "n" / table / "metadata"
    newest = f"{metadata}/v{(metadata / 'version-hint.text').read_text()}.metadata.json"
    catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/{table}.db", warehouse=folder.as_uri())
    catalog.create_namespace("n")
    catalog.register_table(f"n.{table}", newest)
    return sw.open(f"n.{table}", catalog=catalog)


def check_iceberg(spark: Spark, lake: str, folder: Path, seed: int, steps: int) -> None:
    """Where the view is right: it refuses delete files, so files are copied; a twin that marks rows has the same changes."""
    copies, twin = f"copies_{seed}", f"marks_{seed}"
    for name, mode in ((copies, "copy-on-write"), (twin, "merge-on-read")):
        properties = ", ".join(f"'write.{verb}.mode' = '{mode}'" for verb in ("delete", "update", "merge"))
        spark.session.sql(
            f"CREATE TABLE {lake}.n.{name} (k INT, p STRING, v INT) USING iceberg PARTITIONED BY (p) "
            f"TBLPROPERTIES ('format-version' = '{2 + seed % 2}', {properties})"
        )
        for statement in a_program(seed, steps):
            spark.session.sql(statement.format(t=f"{lake}.n.{name}"))
    view = f"changes_{uuid.uuid4().hex}"
    spark.session.sql(
        f"CALL {lake}.system.create_changelog_view(table => 'n.{copies}', changelog_view => '{view}')"
    )
    theirs: dict[int, Counter[Change]] = {}
    for row in spark.session.sql(f"SELECT * FROM {view}").collect():
        changes = theirs.setdefault(row["_commit_snapshot_id"], Counter())
        changes[row["k"], row["p"], row["v"], row["_change_type"].lower()] += 1
    copied, marked = (
        counted(opened(folder, name).changes_since(-1, keys=[]).read().to_pylist()) for name in (copies, twin)
    )
    assert nets(copied) == nets(theirs), seed
    assert all(net(changes) == net_of_all(changes) for changes in copied.values()), seed
    assert [*nets(marked).values()] == [*nets(copied).values()], seed


@pytest.mark.long
def test_changes_of_sparks_iceberg_commits_are_those_of_its_changelog_view(
    spark: Spark, tmp_path: Path
) -> None:
    with spark.careless():
        check_iceberg(spark, a_local_lake(spark, tmp_path), tmp_path, 8, 8)


@pytest.mark.long
@pytest.mark.parametrize("first", PIECES)
def test_changes_of_200_histories_of_sparks_iceberg_commits_are_those_of_its_changelog_view(
    spark: Spark, tmp_path: Path, first: int
) -> None:
    lake = a_local_lake(spark, tmp_path)
    in_pieces(spark, lambda seed: check_iceberg(spark, lake, tmp_path, seed, 5), first)
