"""Deletes the rows that match ``where`` in one commit: an overwrite in which no rows come."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from safewrite.delta.write.overwrite import OverwriteTransaction
from safewrite.text.rendering import shortened


@dataclass
class DeleteTransaction(OverwriteTransaction):
    """A delete of the rows for which ``predicate`` is TRUE; call ``plan`` before it is committed."""

    operation: str = "DELETE"

    def parameters(self, partition_by: Sequence[str]) -> dict[str, str]:
        """``operationParameters`` as Spark writes them: a list of one predicate."""
        return {"predicate": json.dumps([shortened(str(self.predicate))], ensure_ascii=False)}

    def metrics(self) -> dict[str, int]:
        """``operationMetrics`` as Spark names them, without numbers that were not counted."""
        counted = self.removed_rows()
        rows = {} if counted is None else {"numDeletedRows": counted}
        return {**self.file_metrics(), "numAddedFiles": len(self.rewritten), **rows}
