"""Declares what the columns of a change log mean, and checks what can be checked without the table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from safewrite.arguments.reading import SchemaMode, reading
from safewrite.arguments.reading import schema_mode as check_mode
from safewrite.errors import InvalidInputError
from safewrite.frames.predicate import Predicate
from safewrite.frames.where import Where
from safewrite.text.rendering import shown
from safewrite.text.strings import is_text, plain

if TYPE_CHECKING:
    from safewrite.changes.meaning.row_rule import RowRule

AllLate = Literal["error", "count"]
Check = Callable[[Any, Mapping[str, int]], object]
"""Is called with the rows that a commit would write, and its counts; what it raises stops the commit."""


@dataclass(frozen=True, slots=True)
class Spec:
    """What a caller declares of a change log; conditions are as for ``where=``, or the name of a boolean column."""

    keys: tuple[str, ...]
    sequence_by: tuple[str, ...]
    delete_when: Where | Predicate | None = None
    truncate_when: Where | Predicate | None = None
    all_late: AllLate = "error"
    unchanged: str | None = None
    """The column that lists, for each change, the columns that it does not bring."""
    check: Check | None = None
    columns: tuple[str, ...] | None = None
    """The columns of the data that are the table's; None for all that no condition has for itself."""
    full_refresh: bool = False
    """The batch is all there is: rows and remembered deletions of before go."""
    marks: str | None = None
    """The column that is true in rows which are deleted and stay: NULL is what such a change does not bring and nobody has."""
    rule: RowRule | None = None
    """Says which rows come and go, in the place of the sequence."""
    schema_mode: SchemaMode | None = None
    computed: tuple[str, ...] = ()
    """The columns that the table computes: with a ``schema_mode``, too, no upsert may lack them, and be given NULL."""

    @property
    def looked_up(self) -> tuple[str, ...]:
        """The columns by which changes find rows of the table."""
        return self.keys if self.rule is None else self.rule.keys

    @property
    def tied_by(self) -> tuple[str, ...]:
        """The columns by which a row ties with a truncate; none where a rule decides in their place."""
        return self.sequence_by if self.rule is None else ()


@reading("keys= or sequence_by=")
def declared(  # noqa: PLR0917 - the arguments of one verb, in its order
    keys: object,
    sequence_by: object,
    delete_when: Any = None,
    truncate_when: Any = None,
    all_late: Any = "error",
    unchanged: Any = None,
    check: Any = None,
    columns: Any = None,
    full_refresh: Any = False,
    schema_mode: Any = None,
) -> Spec:
    """Check what does not depend on the table.

    Raises:
        InvalidInputError: no names, or one name twice; ``columns`` without a key or a sequence.
    """
    if all_late not in {"error", "count"}:
        raise InvalidInputError(
            f"all_late= is 'error' or 'count', not {shown(all_late)}. Nothing was written."
        )
    if unchanged is not None and not is_text(unchanged):
        raise InvalidInputError(
            "unchanged= is the name of a column of lists, which name what a change does not bring, not "
            f"{shown(unchanged)}. Nothing was written."
        )
    if check is not None and not callable(check):
        raise InvalidInputError(
            f"check= is a function of rows and counts, not {shown(check)}. Nothing was written."
        )
    if not isinstance(full_refresh, bool):
        raise InvalidInputError(
            f"full_refresh= is True or False, not {shown(full_refresh)}. Nothing was written."
        )
    mode = check_mode(schema_mode, "widen")
    names = _names("keys", keys), _names("sequence_by", sequence_by)
    lacks = None if unchanged is None else plain(unchanged)
    wanted = None if columns is None else _names("columns", columns)
    spec = Spec(*names, delete_when, truncate_when, all_late, lacks, check, wanted, full_refresh)
    spec = replace(spec, schema_mode=mode)
    both = sorted(set(spec.keys) & set(spec.sequence_by))
    if both:
        raise InvalidInputError(
            f"{both} are keys= and sequence_by= too: a key cannot order its own changes. Nothing was written. Take them out "
            "of one."
        )
    left_out = [name for name in (*spec.keys, *spec.sequence_by) if wanted is not None and name not in wanted]
    if left_out and is_text(columns):
        raise InvalidInputError(
            f"columns= is a list of names of columns, such as {sorted({*left_out, *(wanted or ())})}, and {shown(columns)} is one name. Nothing was written."
        )
    if left_out:
        raise InvalidInputError(
            f"columns= leaves out {left_out}, which are keys= or sequence_by= and are kept in the table. Nothing was written. "
            "Name them there too."
        )
    return spec


def _names(what: str, given: object) -> tuple[str, ...]:
    found = (given,) if is_text(given) else tuple(given) if isinstance(given, Iterable) else ()
    names = tuple(plain(name) for name in found if is_text(name))
    if not names or len(names) < len(found) or len(set(names)) < len(names):
        raise InvalidInputError(
            f"{what}= is a list of names of columns, each once, not {shown(given)}. Nothing was written."
        )
    return names
