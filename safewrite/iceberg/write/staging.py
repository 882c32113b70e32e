"""Uploads the data files of an Iceberg write, and checks them before each commit (B1, M27)."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from safewrite.protocol import staging, ticket_queue
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome, Put
from safewrite.protocol.staging import Mark

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile

    from safewrite.iceberg.data.datafiles import StagedFile


@dataclass
class Staging:
    """The data files of one write."""

    limits: Limits
    data_files: list[DataFile] = field(default_factory=list)
    _marks: list[Mark] = field(default_factory=list, repr=False)
    _checked_s: float | None = None

    def upload(self, files: Iterable[StagedFile]) -> Generator[Effect, Outcome, None]:
        """Upload data files, a window at a time.

        Raises:
            StorageError: an upload failed for good; nothing was committed.
        """
        for window in staging.windows(files, lambda file: len(file.body)):
            for file in window:
                size = file.data_file.file_size_in_bytes
                self._marks.append(Mark.of_parquet(file.path, size, file.body))
                self.data_files.append(file.data_file)
            yield from staging.upload([(file.path, file.body) for file in window], self.limits)

    def complete(self, puts: tuple[Put, ...]) -> Generator[Effect, Outcome, None]:
        """Upload an attempt's own files, and check the data files unless that was done lately.

        Raises:
            StorageError: kind DATA_FILE_DAMAGED if a data file is gone or differs; nothing was committed.
        """
        now_s = yield from ticket_queue.now()
        due = self._checked_s is None or now_s - self._checked_s > self.limits.recheck_s
        marks = self._marks if due else []
        effects = (*puts, *staging.tails(marks))
        answers = yield from staging.perform_all(effects, self.limits, "stage.complete")
        seen = yield from staging.judge(marks, answers[len(puts) :], self.limits)
        if due:
            self._marks, self._checked_s = seen, now_s
