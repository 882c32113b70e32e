"""Writes each batch of a Spark stream to the table exactly once, when ``foreachBatch`` calls."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, cast

from safewrite.arguments.reading import SchemaMode, reading
from safewrite.arguments.reading import schema_mode as check_mode
from safewrite.boundary.public import after_ack, public
from safewrite.errors import InvalidInputError, Kind, NotCommittedError
from safewrite.protocol import keys
from safewrite.receipt import Receipt
from safewrite.text.rendering import shown
from safewrite.text.strings import is_text, plain

log = logging.getLogger("safewrite")


class _Table(Protocol):
    """The table that a sink needs."""

    def append(self, data: Any, *, txn: tuple[str, int], **settings: Any) -> Receipt: ...

    def overwrite(self, data: Any, *, txn: tuple[str, int], **settings: Any) -> Receipt: ...

    def apply_changes(self, data: Any, *, txn: tuple[str, int], **settings: Any) -> Receipt: ...


Mode = Literal["append", "overwrite", "apply_changes"]
_MODES = ("append", "overwrite", "apply_changes")
_GONE = (Kind.TABLE_REPLACED, Kind.TABLE_NOT_FOUND)


@dataclass
class _Live:
    """What a sink has opened and done in this process; it is not sent to others."""

    table: _Table | None = None
    receipt: Receipt | None = None


@dataclass(frozen=True)
class Sink:
    """Writes the batches of one stream: ``stream.writeStream.foreachBatch(sink)``.

    Spark calls it again with a batch that it is not sure of; by ``(app_id, epoch_id)`` in the commit itself
    the second call finds the first.  A sink holds no connection: each process that receives it opens the
    table for itself, as ``safewrite.open`` did.
    """

    reopen: Callable[[], Any]
    app_id: str
    mode: Mode = "append"
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of each ``append``, ``overwrite`` or ``apply_changes``."""
    _live: _Live = field(default_factory=_Live, init=False, repr=False, compare=False)

    @public
    def __call__(self, batch_df: Any, epoch_id: int) -> None:
        """Write one batch; returns None, as Spark expects, and keeps ``last_receipt``.

        Raises:
            ReplayMismatchError: the epoch was written before with other rows, from other offsets of the stream's
                sources, or as another frame of this batch.  Nothing was written.  Where the stream's checkpoint
                was deleted, start it under a new ``app_id``.
            SafewriteError: as ``append``, ``overwrite`` and ``apply_changes``; Spark ends the query and, once restarted, calls again
                with the same batch.
        """
        if self._live.table is None:
            self._live.table = self.reopen()
        write = getattr(self._live.table, self.mode)
        try:
            receipt: Receipt = write(batch_df, txn=(self.app_id, epoch_id), **self.settings)
        except NotCommittedError as error:
            if error.kind in _GONE:
                self._live.table = None  # the next batch opens what is there then
                raise _of_other_table(error, self.app_id) from error
            raise
        self._live.receipt = receipt
        with after_ack(receipt.table):
            epoch = operator.index(epoch_id)
            log.info(
                "batch %d of %s: %s, %d rows in version %d of %s",
                epoch,
                self.app_id,
                receipt.outcome.value,
                receipt.rows,
                receipt.version,
                receipt.table,
                extra={"receipt": receipt.to_dict(), "app_id": self.app_id, "epoch_id": epoch},
            )

    @property
    def last_receipt(self) -> Receipt | None:
        """The receipt of the last batch that was written in this process."""
        return self._live.receipt

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reopen, self.app_id, self.mode, self.settings)


def _of_other_table(error: NotCommittedError, app_id: str) -> NotCommittedError:
    """The error with what helps a stream: it cannot open a table, and its next batch would be the new table's first."""
    first = error.message.partition(" Open it again")[0]
    return type(error)(
        f"{first} To go on with the new table, start the stream again: this sink opens the table that is there then, and this "
        f"batch is the first in it. To have the earlier batches too, start with a new checkpoint and another app_id than {app_id!r}.",
        kind=error.kind,
        key=error.key,
    )


def portable(reopen: Callable[[], Any] | None) -> Callable[[], Any]:
    """The opener of a table for another process.

    Raises:
        InvalidInputError: the table was made of something that cannot be sent.
    """
    if reopen is None:
        raise InvalidInputError(
            "This table cannot be opened again by another process: it was not made with safewrite.open() or "
            "safewrite.create(), or with boto3_session=, which does not travel, or its catalog lives in the memory of this "
            "process. Nothing was written. Open it with storage_options= or settings of the environment, and with a "
            "catalog that other processes reach."
        )
    return reopen


def reopened(reopen: Callable[[], Any]) -> Any:
    """A table that was sent to this process."""
    return reopen()


def sink(
    reopen: Callable[[], Any] | None,
    mode: Mode,
    app_id: object,
    schema_mode: SchemaMode | None,
    extra: Mapping[str, Any] | None = None,
) -> Sink:
    """A sink with checked arguments.

    Raises:
        InvalidInputError: one of them cannot be.
    """
    opens = portable(reopen)
    if not is_text(mode) or plain(mode) not in _MODES:
        raise InvalidInputError(
            f"A sink's mode is one of {', '.join(map(repr, _MODES))}, not {shown(mode)}. Nothing was written."
        )
    applies = plain(mode) == "apply_changes"
    check_mode(schema_mode, *(("widen",) if applies else ()))
    if not is_text(app_id) or not plain(app_id).strip():
        raise InvalidInputError(
            f"app_id names the stream, for as long as its checkpoint lives: a non-empty text, not {shown(app_id)}. "
            "Nothing was written."
        )
    with reading("app_id"):
        stream, _ = keys.check_txn((plain(app_id), 0))
    return Sink(opens, stream, cast("Mode", plain(mode)), {"schema_mode": schema_mode, **(extra or {})})
