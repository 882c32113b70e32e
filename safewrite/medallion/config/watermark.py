"""Says how silver follows a bronze table that others write: by a column of times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from safewrite.intake.settings import Strict, Text

if TYPE_CHECKING:
    from typing import Self

UPSERTS = ("I", "U", "L")
DELETES = ("D",)
"""What ``op`` says in bronze tables of ours and of DMS."""
OVERLAP_MAX_S = 10 * 366 * 86_400


class Sync(Strict):
    """A bronze table that others write, and may rewrite: its rows are taken by time, and ordered by ``sequence``."""

    time: Text
    """The column of the time at which a row came into bronze: a timestamp or a date."""
    overlap_s: Annotated[int, Field(ge=0, le=OVERLAP_MAX_S)]
    """Rows that are older than the newest by no more than this are looked at again."""
    sequence: Annotated[list[Text], Field(min_length=1)]
    """Columns that order the changes of one key; silver has them too."""
    op: Text | None = None
    """The column that says which rows are deletes; without it no row is a delete."""
    upserts: Annotated[list[Text], Field(min_length=1)] | None = None
    deletes: Annotated[list[Text], Field(min_length=1)] | None = None
    late: Literal["raise", "take"] = "raise"
    """What becomes of rows that come later than the overlap."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        needless = [name for name in ("upserts", "deletes") if getattr(self, name) is not None]
        if self.op is None and needless:
            raise ValueError(
                f"{', '.join(needless)}: of no use without op, the column that they are values of"
            )
        both = sorted(set(self.upsert_values) & set(self.delete_values))
        if both:
            raise ValueError(f"deletes: {both} are in upserts too")
        if len(set(self.sequence)) < len(self.sequence):
            raise ValueError("sequence: a column comes twice")
        if self.op in {self.time, *self.sequence}:
            raise ValueError(f"op: {self.op} is the column of time or of the sequence too")
        return self

    @property
    def upsert_values(self) -> list[str]:
        """What ``op`` says of an insert or update."""
        return self.upserts or list(UPSERTS)

    @property
    def delete_values(self) -> list[str]:
        """What ``op`` says of a delete."""
        return self.deletes or list(DELETES)
