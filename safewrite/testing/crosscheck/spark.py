"""Has Spark make, write and read tables, and bring frames for safewrite to write."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from safewrite.testing.crosscheck import conditions, kinds
from safewrite.testing.crosscheck.delta import DeltaHome
from safewrite.testing.crosscheck.frames import CannotBringError
from safewrite.testing.crosscheck.home import Deed, ids, typed, upsert
from safewrite.testing.crosscheck.iceberg import IcebergHome
from safewrite.testing.crosscheck.oracle import ID, ProgramOracle
from safewrite.testing.crosscheck.program import Column, Program, Row, Step, Where
from safewrite.testing.crosscheck.readers import Found, Reader, Types, meanings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def data_frame(session: SparkSession, rows: pa.Table) -> DataFrame:
    """The rows in Spark; times without a zone stay without one, which Spark by itself does not do."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return session.createDataFrame(rows, schema=from_arrow_schema(rows.schema, prefer_timestamp_ntz=True))


@dataclass
class Hands:
    """Spark's deeds on one table; ``name`` is the table's name in its SQL."""

    session: SparkSession
    name: str

    def frame(self, rows: Sequence[Row], columns: tuple[Column, ...]) -> DataFrame:
        """The rows as a DataFrame.

        Raises:
            CannotBringError: Spark makes other values of them.
        """
        from safewrite.testing.crosscheck.frames import frame

        given: pa.Table = frame("arrow", rows, columns)
        made = data_frame(self.session, given).coalesce(1)
        known = {column.name: kinds.arrow(column.kind) for column in columns}
        if sorted(map(repr, meanings(made.toArrow(), known))) != sorted(map(repr, meanings(given, known))):
            raise CannotBringError("Spark makes other values of these rows")
        return made

    def read(self, types: Types, where: Where | None) -> Found:
        """The rows as Spark sees them."""
        chosen = "" if where is None else f" WHERE {conditions.sql(where, 'spark', types)}"
        return meanings(self.session.sql(f"SELECT * FROM {self.name}{chosen}").toArrow(), types)

    @contextmanager
    def settings(self, given: Sequence[tuple[str, str]]) -> Iterator[None]:
        """Set settings of the session for the length of the block."""
        before = {name: self.session.conf.get(name, None) for name, _ in given}
        for name, value in given:
            self.session.conf.set(name, value)
        try:
            yield
        finally:
            for name, old in before.items():
                if old is None:
                    self.session.conf.unset(name)
                else:
                    self.session.conf.set(name, old)

    def run(self, statement: str) -> None:
        """Run SQL in which ``{t}`` is the table."""
        self.session.sql(statement.format(t=self.name)).collect()

    def delete(self, step: Step, oracle: ProgramOracle) -> None:
        """DELETE by ids."""
        self.run(f"DELETE FROM {{t}} WHERE {ids(step.detail)}")
        oracle.remove(step.detail)

    def merge(self, step: Step, oracle: ProgramOracle) -> None:
        """MERGE rows by id."""
        data_frame(self.session, typed(step.rows, oracle)).createOrReplaceTempView("crosscheck_source")
        self.run(
            f"MERGE INTO {{t}} t USING crosscheck_source s ON t.{ID} = s.{ID} "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        upsert(step.rows, oracle)

    def create(self, program: Program, using: str) -> None:
        """An empty table with the program's columns."""
        made = data_frame(self.session, kinds.schema(program.columns).empty_table())
        fields = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in made.schema.fields)
        parts = ", ".join(f"`{name}`" for name in program.partition_by)
        partitioned = f" PARTITIONED BY ({parts})" if parts else ""
        listed = {**dict(program.properties)}
        if using == "iceberg":
            listed["format-version"] = str(program.version)
        told = ", ".join(f"'{name}' = '{value}'" for name, value in listed.items())
        properties = f" TBLPROPERTIES ({told})" if told else ""
        self.run(f"CREATE TABLE {{t}} ({fields}) USING {using}{partitioned}{properties}")


@dataclass
class SparkDeltaHome(DeltaHome):
    """A Delta table on S3 that Spark reaches too."""

    session: Any = None

    @property
    def hands(self) -> Hands:
        """Spark's."""
        return Hands(self.session, f"delta.`{self.uri.replace('s3://', 's3a://')}`")

    def make(self, program: Program, oracle: ProgramOracle) -> None:
        if program.maker != "spark":
            super().make(program, oracle)
            return
        self.hands.create(program, "delta")
        oracle.foreign = True

    def readers(self, program: Program) -> dict[str, Reader]:
        return {**super().readers(program), "spark": self.hands.read}

    def deeds(self) -> dict[tuple[str, str], Deed]:
        hands = self.hands
        mine: dict[str, Deed] = {
            "append": self._spark_append,
            "delete": hands.delete,
            "merge": hands.merge,
            "optimize": lambda step, oracle: hands.run("OPTIMIZE {t}"),
            "restore": self._spark_restore,
        }
        return super().deeds() | {("spark", what): deed for what, deed in mine.items()}

    def _spark_append(self, step: Step, oracle: ProgramOracle) -> None:
        frame = data_frame(self.session, typed(step.rows, oracle)).coalesce(1)
        frame.write.format("delta").mode("append").save(self.uri.replace("s3://", "s3a://"))
        oracle.add(oracle.meant(step.rows))

    def _spark_restore(self, step: Step, oracle: ProgramOracle) -> None:
        earlier = oracle.earlier(step.detail[0])
        self.hands.run(f"RESTORE TABLE {{t}} TO VERSION AS OF {earlier}")
        oracle.take_back(earlier)


@dataclass
class SparkIcebergHome(IcebergHome):
    """An Iceberg table of a catalog that Spark reaches too; ``known_as`` is Spark's name for the catalog."""

    session: Any = None
    known_as: str = ""

    @property
    def hands(self) -> Hands:
        """Spark's."""
        return Hands(self.session, f"{self.known_as}.{self.name}")

    def make(self, program: Program, oracle: ProgramOracle) -> None:
        if program.maker != "spark":
            super().make(program, oracle)
            return
        self.hands.create(program, "iceberg")
        oracle.foreign = True

    def readers(self, program: Program) -> dict[str, Reader]:
        found = super().readers(program)
        return {"pyiceberg": found["pyiceberg"], "spark": self._read}

    def _read(self, types: Types, where: Where | None) -> Found:
        self._afresh()
        return self.hands.read(types, where)

    def _afresh(self) -> None:
        self.hands.run("REFRESH TABLE {t}")

    def deeds(self) -> dict[tuple[str, str], Deed]:
        hands = self.hands
        mine: dict[str, Deed] = {
            "append": self._spark_append,
            "delete": hands.delete,
            "merge": hands.merge,
            "optimize": lambda step, oracle: self._call("rewrite_data_files", "table => '{n}'"),
            "pick": self._pick,
            "drop partition": self._spark_drop_partition,
            "drop column": self._spark_drop_column,
        }
        return super().deeds() | {("spark", what): self._fresh(deed) for what, deed in mine.items()}

    def _fresh(self, deed: Deed) -> Callable[[Step, ProgramOracle], None]:
        def act(step: Step, oracle: ProgramOracle) -> None:
            self._afresh()
            deed(step, oracle)

        return act

    def _call(self, procedure: str, arguments: str) -> None:
        self.session.sql(
            f"CALL {self.known_as}.system.{procedure}({arguments.format(n=self.name)})"
        ).collect()

    def _spark_append(self, step: Step, oracle: ProgramOracle) -> None:
        frame = data_frame(self.session, typed(step.rows, oracle)).coalesce(1)
        frame.writeTo(self.hands.name).append()
        oracle.add(oracle.meant(step.rows))

    def _pick(self, step: Step, oracle: ProgramOracle) -> None:
        """Roll the newest append back, append something else, and cherry-pick what was rolled back."""
        table = self._table()
        newest = table.current_snapshot()
        if newest is None or newest.parent_snapshot_id is None or newest.summary is None:
            raise ValueError("there is no append on another one")
        if newest.summary.operation.value != "append":
            raise ValueError("only appends are picked")
        rows = typed(step.rows, oracle)
        self._call("rollback_to_snapshot", f"'{{n}}', {newest.parent_snapshot_id}")
        self._afresh()
        data_frame(self.session, rows).coalesce(1).writeTo(self.hands.name).append()
        self._call("cherrypick_snapshot", f"'{{n}}', {newest.snapshot_id}")
        oracle.add(oracle.meant(step.rows))

    def _spark_drop_partition(self, step: Step, oracle: ProgramOracle) -> None:
        self.hands.run(f"ALTER TABLE {{t}} DROP PARTITION FIELD `{step.detail[0]}`")

    def _spark_drop_column(self, step: Step, oracle: ProgramOracle) -> None:
        self.hands.run(f"ALTER TABLE {{t}} DROP COLUMN `{step.detail[0]}`")
        oracle.drop(step.detail[0])
