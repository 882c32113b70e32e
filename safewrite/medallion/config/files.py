"""Says how DMS writes the files of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from safewrite.intake.settings import Strict, Text

if TYPE_CHECKING:
    from typing import Self

REST = "*"
"""Stands in ``order`` for the columns of the table."""
_OF_CSV = ("header", "order", "null_value", "delimiter", "row_delimiter", "rfc4180", "no_sup_value")


class Files(Strict):
    """How DMS writes the files of a table."""

    kind: Literal["csv", "parquet"]
    header: bool | None = None
    """CSV: whether the first record names the columns."""
    order: list[Text] | None = None
    """CSV without header: the columns as they come; ``*`` stands for those of the table."""
    op: Text = "Op"
    op_in_full_load: bool = False
    changes: Literal["all", "inserts", "inserts_and_updates"] = "all"
    """The changes that DMS writes (CdcInsertsOnly, CdcInsertsAndUpdates); ``op`` may then be in no file."""
    timestamp: Text | None = None
    change_seq: Text | None = None
    """The column of AR_H_CHANGE_SEQ; without it changes are ordered by file name and line."""
    before_image: Text | None = None
    """The prefix of columns with the values before an update, such as ``BI_``."""
    ignore: list[Text] = Field(default_factory=list)
    """Columns of the files that bronze does not keep."""
    optional: list[Text] = Field(default_factory=list)
    """Columns that a file may lack: those from before the source had them, or since it has them no longer; NULL then."""
    null_value: str | None = None
    """CSV: the unquoted text that stands for NULL; DMS writes NULL unless CsvNullValue says otherwise."""
    delimiter: Annotated[str, Field(pattern=r'^[^"\r\n]$')] | None = None
    row_delimiter: Annotated[str, Field(pattern=r'^[^"]+$')] | None = None
    """CSV: the text that ends a record, a line end unless said otherwise (CsvRowDelimiter)."""
    rfc4180: bool | None = None
    """CSV: whether values with quotes, delimiters or line ends stand in quotes (DMS's Rfc4180); unsaid, a record that both ways of
    reading make sense of is put aside."""
    no_sup_value: Annotated[str, Field(min_length=1)] | None = None
    """CSV: the text that DMS writes for what the log of an update lacks (CsvNoSupValue): the value stays as it is."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.kind == "parquet":
            needless = [name for name in _OF_CSV if getattr(self, name) is not None]
            if needless:
                raise ValueError(
                    f"{', '.join(needless)}: for CSV only; Parquet files name their columns and have NULL"
                )
            return self
        if self.header is None:
            raise ValueError("header: true or false is needed for CSV")
        if self.header == (self.order is not None):
            raise ValueError("order: needed where CSV has no header, and of no use where it has one")
        if self.optional and not self.header:
            raise ValueError(
                "optional: only where files name their columns; without a header let DMS write one (AddColumnName)"
            )
        if self.no_sup_value is not None and self.no_sup_value == (self.null_value or "NULL"):
            raise ValueError(
                f"no_sup_value: {self.no_sup_value!r} stands for NULL too, and cannot stand for a value that the log lacks; "
                "give CsvNoSupValue of the DMS endpoint a text of its own"
            )
        if self.row_delimiter is not None and (self.delimiter or ",") in self.row_delimiter:
            raise ValueError("row_delimiter: it has the delimiter of columns in it")
        if self.order is not None:
            self._check_order(self.order)
        return self

    def has_op(self, *, is_load: bool) -> bool:
        """Whether DMS writes the operation in files of a full load, or of changes."""
        return self.op_in_full_load or not (is_load or self.changes != "all")

    def _check_order(self, order: list[str]) -> None:
        if order.count(REST) != 1:
            raise ValueError("order: '*' stands once for the columns of the table")
        if len(set(order)) < len(order):
            raise ValueError("order: a column comes twice")
        named = {self.op, *(n for n in (self.timestamp, self.change_seq) if n)}
        missing = sorted(named - set(order))
        if missing:
            raise ValueError(f"order: {missing} are named as op, timestamp or change_seq, and are not in it")
