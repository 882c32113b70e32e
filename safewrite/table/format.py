"""Defines what a table format answers to the verbs and the loop around a write; Delta and Iceberg implement it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from safewrite.errors import Kind
from safewrite.receipt import Done, Named, Receipt
from safewrite.table.operation import GroupDone, Operation, Planned
from safewrite.table.planning import Plans

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext

    from safewrite.changes.members.task_changes import TaskChanges
    from safewrite.engine.abc import Engine
    from safewrite.frames.row_rules import TableRules
    from safewrite.frames.spark.computed_frame import ComputedFrame
    from safewrite.protocol.ask import Limits
    from safewrite.protocol.keys import Identity
    from safewrite.stores.world import Performer
    from safewrite.table.added_rows import AddedFile, AddedRows
    from safewrite.table.history import CommittedWrite, HistoryEntry
    from safewrite.table.lookup import RowFilter
    from safewrite.table.new_table import Layout
    from safewrite.table.row_changes import ChangeSource
    from safewrite.upkeep.groups import Group as FileGroup
    from safewrite.upkeep.groups import Inventory
    from safewrite.upkeep.maintain import Compacted, Settled, Settling

VersionT = TypeVar("VersionT")
VersionT_contra = TypeVar("VersionT_contra", contravariant=True)
PlanT = TypeVar("PlanT", bound=Planned)
PlanT_co = TypeVar("PlanT_co", bound=Planned, covariant=True)
DoneT = TypeVar("DoneT", bound=Done)

FRESH_S = 1.0
"""A version read or committed within this time is written on without another look; a guess, for speed only."""


class Format(Protocol[VersionT, PlanT, DoneT]):
    """One table of a format: what it is, how it is planned on, committed to and looked up."""

    world: Performer
    """The world that performs the effects of a write; tests replace it."""
    limits: Limits
    """The limits of the call that is under way."""
    unlike: Callable[[], object] | None
    """Warns of settings of a new table that the table lacks which another writer made meanwhile."""

    @property
    def planner(self) -> Plans[VersionT, PlanT]:
        """Plans the writes of this table."""

    @property
    def replanned(self) -> frozenset[Kind]:
        """Conflicts after which every write is planned again, besides those of its verb."""

    # --- what it is -------------------------------------------------------------------------------
    @property
    def uri(self) -> str:
        """The address of a Delta table, the name of an Iceberg table in its catalog."""

    @property
    def table_id(self) -> str:
        """The id of the table, which another one at its address does not have."""

    @property
    def arbiter(self) -> str:
        """Who decides which writer's commit comes next."""

    @property
    def version(self) -> int:
        """The newest version that was seen; -1 before there is one."""

    @property
    def schema(self) -> pa.Schema:
        """The table's schema in Arrow."""

    @property
    def unread(self) -> Mapping[str, str]:
        """The table's other columns, whose types are not known, with the reason."""

    @property
    def partition_by(self) -> tuple[str, ...]:
        """Partition columns or fields."""

    @property
    def properties(self) -> dict[str, str]:
        """Table properties."""

    def row_rules(self) -> TableRules:
        """What the table asks of each row, as of the newest version that was seen."""

    def made_as(self, given: Layout) -> tuple[Layout, Layout, Mapping[str, str]]:
        """The layout that was given for a new table and that of this one, in the same spelling; its properties.

        Raises:
            TableNotFoundError: there is no table yet.
        """

    # --- the newest version -----------------------------------------------------------------------
    def create(self, schema: pa.Schema) -> None:
        """Create the table, empty."""

    def after_fork(self) -> None:
        """Stop using the parent's connections and clocks in a forked child."""

    def refresh(self, *, afresh: bool = False) -> VersionT:
        """Load the newest version, past the checks of ``safewrite.open``; ``afresh``: without use of what was known."""

    def mark(self) -> object:
        """The mark that tells one known version of the table from another; None before there is a table."""

    # --- steps of a write -------------------------------------------------------------------------
    def planned_on(self, operation: Operation, data: Any, *, alone: bool = True) -> VersionT:
        """The version that a write is planned on.

        A write that is ``alone`` is planned again if it is refused by a version of a moment ago; a member is not.
        """

    def check_writable(self) -> None:
        """Refuse a table that may only be read, by what is known of it or, where that forbids it, by how it is now."""

    def commit(
        self, plan: PlanT, operation: Operation, encode: Callable[[], Any], *, queue_first: bool
    ) -> DoneT:
        """Upload and commit a plan."""

    def commit_group(
        self, plan: PlanT, encode: Callable[..., Any], *, queue_first: bool
    ) -> GroupDone[DoneT, Named]:
        """Upload and commit a group's plan."""

    def after(self, done: DoneT, elapsed_s: float) -> None:
        """Keep what the commit showed of the table, and maintain its metadata."""

    def apply_shared(
        self, given: TaskChanges, operation: Operation, name: Identity, *, queue_first: bool
    ) -> tuple[DoneT, Named]:
        """Let tasks apply changes that they have, and commit what they did.

        Raises:
            UnfitError: tasks cannot reach the table's files, or cannot take its changes.
        """

    # --- upkeep -----------------------------------------------------------------------------------
    def inventory(self) -> Inventory:
        """The live files of the newest version.

        Raises:
            UnsupportedTableError: they may not be put together.
        """

    def compact(self, groups: Sequence[FileGroup], on: Inventory, engine: Engine[Any] | None) -> Compacted:
        """Put the files of each group together, in one commit of those groups that are still there.

        ``engine``: by its tasks, if they reach the table's files; else by those of this process.

        Raises:
            EngineError: the engine could not run its tasks.  Nothing was committed.
            ConflictError: kind SCHEMA_CHANGED; another writer changed what new files must be like.
        """

    def settle(self, asked: Settling) -> Settled:
        """End a run of upkeep; remove metadata that is older than the table keeps it, and files that nothing needs if that is asked for."""

    # --- Spark ------------------------------------------------------------------------------------
    def in_session(self, catalog: str | None) -> str | None:
        """Check a Spark session's name for the table's catalog."""

    def write_spark(
        self, held: ComputedFrame, operation: Operation, name: Identity, *, queue_first: bool
    ) -> tuple[DoneT, Named] | Receipt:
        """Let Spark write the files of its DataFrame, and commit them as those of any other frame.

        Returns:
            What was committed, or the receipt of an earlier call that committed these rows.
        """

    def tell_spark(self, context: SparkContext) -> None:
        """Let the Spark of this process read the table again."""

    # --- lookups ----------------------------------------------------------------------------------
    def resolve(self, key: str) -> tuple[int, Mapping[str, Any]] | None:
        """The version that holds a write, and the history's entry of it; None if it did not land."""

    def recorded(self, version: int) -> Sequence[Mapping[str, Any]]:
        """The writes that a version carries, as the history describes them."""

    def as_of(self, version: int) -> VersionT | None:
        """The table with the columns and defaults that it had in a version; None where the version is gone."""

    def history(self, limit: int | None) -> list[HistoryEntry]:
        """The newest commits that are still there."""

    def committed_writes(self, version: int) -> list[CommittedWrite] | None:
        """The writes of a commit; None if the table does not have it."""

    def positions(self) -> Mapping[str, int]:
        """The positions of the newest version."""

    # --- reading the known version ------------------------------------------------------------------
    def rows(self, wanted: RowFilter) -> pa.Table:
        """The rows that are wanted."""

    def row_count(self) -> int:
        """How many rows there are."""

    def added_since(self, position: int | None) -> list[AddedRows]:
        """What each commit after a position brought, oldest first; None: all rows, under the version."""

    def added_by(self, version: int) -> AddedRows:
        """What one commit brought."""

    def read_added(self, files: Sequence[AddedFile], columns: tuple[str, ...] | None) -> pa.Table:
        """The live rows of such files, with all columns or some."""

    def changes(self, columns: tuple[Any, ...] | None, /) -> ChangeSource:
        """What commits did to rows, up to the known version, with all columns or some."""
