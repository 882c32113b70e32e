"""Plans a write of a caller's data: which plan its verb is, and what names it.  What is unlike in formats they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from safewrite.errors import InternalError
from safewrite.frames.prepare import Prepared, joined
from safewrite.frames.task_files import files_of
from safewrite.protocol import keys
from safewrite.table.group import changes_of
from safewrite.table.operation import Planned

if TYPE_CHECKING:
    import pyarrow as pa

    from safewrite.arguments.reading import SchemaMode
    from safewrite.changes.meaning.member_batches import MemberChanges
    from safewrite.changes.meaning.reading import Changes, NewColumns
    from safewrite.changes.meaning.spec import Spec
    from safewrite.engine.task_files import TableInTasks
    from safewrite.frames.fingerprint import Counted, Fingerprint
    from safewrite.frames.predicate import Predicate
    from safewrite.protocol.keys import Identity
    from safewrite.table.group import Member
    from safewrite.table.operation import Operation

VersionT = TypeVar("VersionT")
VersionT_contra = TypeVar("VersionT_contra", contravariant=True)
PlanT = TypeVar("PlanT", bound=Planned)
PlanT_co = TypeVar("PlanT_co", bound=Planned, covariant=True)


class Plans(Protocol[VersionT_contra, PlanT_co]):
    """Makes the plans of one format; ``on`` is the version of the table that they are made for."""

    @property
    def new_id(self) -> Callable[[], str]:
        """Draws ids."""

    # --- rows -------------------------------------------------------------------------------------
    def schema_of(self, on: VersionT_contra, /) -> pa.Schema:
        """The schema of the table, which must be there."""

    def prepare(
        self,
        data: Any,
        on: VersionT_contra,
        schema_mode: SchemaMode | None = None,
        volatile: Sequence[str] = (),
        /,
    ) -> Prepared:
        """Check the data against the table's schema, or against that schema with the new columns and wider ones that it tells."""

    def prepare_next(
        self, data: Any, operation: Operation, on: VersionT_contra, earlier: Sequence[Prepared], /
    ) -> Prepared:
        """Check a member's rows against the table's schema and the columns that ``earlier`` members add."""

    def fitting(self, prepared: Prepared, on: VersionT_contra, /) -> Prepared:
        """Rows that were checked together with those of other members, if the table has room for them, and they keep its rules.

        Raises:
            WouldAlterError: it has none, or a row breaks a rule.
        """

    def count(self, data: Any, operation: Operation, on: VersionT_contra, /) -> Prepared:
        """The rows under the table's schema, which may have more columns than they."""

    def read(
        self, data: Any, spec: Spec, on: VersionT_contra, earlier: NewColumns | None = None, /
    ) -> Changes:
        """Check changes against the table's schema, and the columns that ``earlier`` members of their commit bring."""

    def in_tasks(self, on: VersionT_contra, /) -> TableInTasks | None:
        """How tasks reach the table; None where another process cannot reach it as this one does."""

    # --- names ------------------------------------------------------------------------------------
    def base_of(self, on: VersionT_contra, /) -> int:
        """The version that a generated key names."""

    def name(self, counted: Counted, name: Identity, on: VersionT_contra, /) -> Any:
        """Name the write by the caller's key or batch, or by a generated key."""

    def name_changes(self, fingerprint: Fingerprint, name: Identity, on: VersionT_contra, /) -> Any:
        """The same of changes, of which only the commit tells how many rows come."""

    # --- plans ------------------------------------------------------------------------------------
    def appending(self, prepared: Prepared, write: Any, on: VersionT_contra, /) -> PlanT_co:
        """The plan that adds rows."""

    def replacing(
        self, prepared: Prepared, write: Any, predicate: Predicate, on: VersionT_contra, /, *, deletes: bool
    ) -> PlanT_co:
        """The plan that takes out the rows for which ``predicate`` is true, and adds rows unless it ``deletes``."""

    def changing(
        self,
        write: Any,
        spec: Spec,
        on: VersionT_contra,
        /,
        *,
        changes: Changes | None = None,
        group: tuple[MemberChanges, ...] = (),
    ) -> tuple[PlanT_co, Callable[[], Any]]:
        """The plan that applies changes of one call, or of the members of a ``group``; and what encodes its rows."""

    def encode(self, prepared: Prepared, plan: Any, /) -> Iterable[Any]:
        """Parquet files of the rows, made one by one as they are asked for."""

    def encode_group(self, prepared: Prepared, written: Iterable[Any], plan: Any, /) -> Iterable[Any]:
        """The same of members, some of which come with files that tasks have ``written``."""


def plan(
    of: Plans[VersionT, PlanT], data: Any, operation: Operation, name: Identity, on: VersionT
) -> tuple[PlanT, Callable[[], Any]]:
    """Check the data and plan its write; the plan brings the encoder of its files."""
    if operation.verb == "apply_changes":
        return applying(of, data, declared(operation), name, on)
    if operation.verb == "delete":
        nothing = of.prepare(of.schema_of(on).empty_table(), on)
        return overwriting(of, nothing, operation.where, of.name(nothing, name, on), on, verb="delete"), tuple
    prepared = of.prepare(data, on, operation.schema_mode, operation.volatile)
    write = of.name(prepared, name, on)
    if operation.verb == "append":
        made = of.appending(prepared, write, on)
    else:
        made = overwriting(of, prepared, operation.where, write, on)
    return made, partial(of.encode, prepared, made)


def applying(
    of: Plans[VersionT, PlanT], data: Any, spec: Spec, name: Identity, on: VersionT
) -> tuple[PlanT, Callable[[], Any]]:
    """The plan that applies changes by key and sequence."""
    changes = of.read(data, spec, on)
    return of.changing(named_changes(of, changes.fingerprint, spec, name, on), spec, on, changes=changes)


def overwriting(
    of: Plans[VersionT, PlanT],
    prepared: Prepared,
    where: Any,
    write: Any,
    on: VersionT,
    *,
    verb: str = "overwrite",
) -> PlanT:
    """The plan that replaces the rows where ``where`` is true, or deletes them; a repeat is the same operation, by its fingerprint."""
    from safewrite.frames.replace_where import EVERYTHING, check_rows, digest
    from safewrite.frames.where import parse

    if where is None and verb == "overwrite":
        predicate = EVERYTHING
    else:  # no delete takes all rows because its condition was forgotten
        predicate = parse(where, prepared.schema)
    if verb == "overwrite":
        check_rows(prepared, predicate)
    covering = write.covering(digest(predicate, verb))
    return of.replacing(prepared, covering, predicate, on, deletes=verb == "delete")


def named_changes(
    of: Plans[VersionT, Any], fingerprint: Fingerprint, spec: Spec, name: Identity, on: VersionT
) -> Any:
    """The write of changes with this fingerprint."""
    write = of.name_changes(fingerprint, name, on)
    if not spec.full_refresh:
        return write
    from safewrite.frames.replace_where import EVERYTHING, digest

    return write.covering(digest(EVERYTHING, "full_refresh"))


def group(
    of: Plans[VersionT, PlanT], members: Sequence[Member], operation: Operation, on: VersionT
) -> tuple[PlanT, Callable[[Sequence[Any]], Any]]:
    """One plan of all members; its encoder takes those whose files it is to make."""
    writes: list[Any] = [member.write for member in members if member.write is not None]
    write = type(writes[0]).group(keys.generated(of.new_id(), of.base_of(on)), writes)
    if operation.verb == "apply_changes":
        made, encode = of.changing(write, declared(operation), on, group=changes_of(members))
        return made, lambda left: encode()
    parts = {member.write.key: member.prepared for member in members if member.write and member.prepared}
    schema = list(parts.values())[-1].schema
    whole = joined(list(parts.values()), schema)
    made = of.appending(whole, write, on)

    def encode_left(left: Sequence[Any]) -> Iterable[Any]:
        some = [parts[write.key] for write in left]
        rows = whole if len(left) == len(parts) else joined(some, schema)
        return of.encode_group(rows, files_of(some), made)

    return made, encode_left


def declared(operation: Operation) -> Spec:
    """What the caller declares of changes."""
    if operation.changes is None:
        raise InternalError("Changes need keys. Nothing was written. Please report it.")
    return operation.changes
