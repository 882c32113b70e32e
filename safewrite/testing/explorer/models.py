"""Names the models of Delta: which writers share a table, with which arbiter, under how many faults."""

from __future__ import annotations

import uuid
from dataclasses import replace

from safewrite.protocol import keys
from safewrite.protocol.delta.commit import Arbiter
from safewrite.testing.explorer.delta_models import (
    AT_FIRST,
    HOLDERS,
    MARKS,
    MARKS_TOO,
    SHARED_DELETE,
    SHARED_INSERT,
    UNEQUAL,
    Model,
    WriterProcess,
)


def _generated(number: int) -> str:
    return keys.generated(str(uuid.UUID(int=number)), 0)


SHARED, SHARED_LOCKS = Arbiter(False, shares=2), Arbiter(True, lease=True, shares=2)
LOCKS, OBJECTS, LEASED = Arbiter(True), Arbiter(False), Arbiter(True, lease=True)
SEALED = Arbiter(True, sealed=True)
_ONE, _TWO = WriterProcess("safewrite", _generated(1)), WriterProcess("safewrite", _generated(2), fresh=True)
_PUT, _SPARK = (
    WriterProcess("conditional-put", "put", restarts=0),
    WriterProcess("spark", "spark", restarts=0),
)
_OLD = WriterProcess("old-locks", "old", restarts=0)
_ENGINE = WriterProcess("engine", "engine")
_SAME = WriterProcess("safewrite", "event")
_AGAIN = replace(_SAME, restarts=0, fresh=True)
_WAITS = WriterProcess("sharing", "waits", queue_first=True)
_JOINS = WriterProcess("sharing", "joins", queue_first=True, fresh=True)
_GROUP, _MEMBER = WriterProcess("group", "a+b"), WriterProcess("group", "b")
_OTHER = WriterProcess("group", "b+c", restarts=0, fresh=True)
_DELETE = WriterProcess("changes", "delete", change=(5, True))
_INSERT = WriterProcess("changes", "insert", change=(3, False), fresh=True)
_COMPACT = WriterProcess("compacting", "compact")
_STAMPED = WriterProcess("stamping", _generated(3)), WriterProcess("stamping", _generated(4), fresh=True)
_SHARED_UPDATE = replace(SHARED_INSERT, key="update", change=(4, False), restarts=0)

MODELS = {
    model.name: model
    for model in (
        Model("locks", "two writers, lock table", (_ONE, _TWO), LOCKS, 2, 3),
        Model("objects", "two writers, object store alone", (_ONE, _TWO), OBJECTS, 2, 3),
        Model(
            "lease",
            "two writers, lock table and ticket queue",
            (_ONE, replace(_TWO, queue_first=True)),
            LEASED,
            1,
            2,
        ),
        Model("retry-locks", "a zombie and its retry with one key, lock table", (_SAME, _AGAIN), LOCKS, 1, 2),
        Model(
            "retry-objects",
            "a zombie and its retry with one key, object store",
            (_SAME, _AGAIN),
            OBJECTS,
            1,
            2,
        ),
        Model(
            "retry-early",
            "the same, where the retry asks the ledger before it uploads",
            (_SAME, replace(_AGAIN, light=False)),
            OBJECTS,
            1,
            2,
        ),
        Model(
            "create-locks",
            "two writers create the table, lock table",
            (WriterProcess("safewrite", "a"), WriterProcess("safewrite", "b", fresh=True)),
            LOCKS,
            1,
            2,
            exists=False,
        ),
        Model(
            "create-objects",
            "two writers create the table, object store",
            (WriterProcess("safewrite", "a"), WriterProcess("safewrite", "b", fresh=True)),
            OBJECTS,
            1,
            2,
            exists=False,
        ),
        Model(
            "stamps-objects",
            "two writers of a table with row ids and commit times, object store",
            _STAMPED,
            OBJECTS,
            1,
            2,
        ),
        Model("stamps-locks", "the same, lock table", _STAMPED, LOCKS, 1, 2),
        Model("group-objects", "two groups that share a key, object store", (_GROUP, _OTHER), OBJECTS, 1, 2),
        Model(
            "group-early",
            "the same, where one of them asks the ledger before it uploads",
            (_GROUP, replace(_OTHER, light=False)),
            OBJECTS,
            1,
            2,
        ),
        Model(
            "group-locks",
            "two groups that share a key, lock table",
            (replace(_GROUP, restarts=0), replace(_MEMBER, fresh=True)),
            LOCKS,
            1,
            1,
        ),
        Model(
            "group-lease",
            "a group that waits for its turn, and one that commits a member of it at once",
            (replace(_GROUP, restarts=0, fresh=True), replace(_MEMBER, queue_first=True)),
            LEASED,
            1,
            1,
        ),
        Model(
            "group-turns",
            "two groups that share a key and take turns",
            (
                replace(_GROUP, restarts=0, queue_first=True),
                replace(_OTHER, restarts=1, fresh=False, queue_first=True),
            ),
            LEASED,
            0,
            1,
        ),
        Model(
            "group-one",
            "a group, and one of its members alone",
            (_GROUP, replace(_MEMBER, program="safewrite", restarts=0, fresh=True)),
            OBJECTS,
            1,
            2,
        ),
        Model(
            "changes-objects",
            "an early delete and a late insert of one key, object store",
            (_DELETE, _INSERT),
            OBJECTS,
            1,
            2,
        ),
        Model("changes-locks", "the same with a lock table", (_DELETE, _INSERT), LOCKS, 1, 2),
        Model(
            "changes-lease",
            "the same, planned again within turns",
            (replace(_DELETE, queue_first=True), _INSERT),
            LEASED,
            1,
            1,
        ),
        Model(
            "compact-objects",
            "a compaction, and a delete that marks the row which it moves, object store",
            (_COMPACT, _DELETE),
            OBJECTS,
            1,
            2,
        ),
        Model("compact-locks", "the same with a lock table", (_COMPACT, _DELETE), LOCKS, 0, 2),
        Model(
            "compact-two",
            "a compaction, and two changes that mark the row, object store",
            (_COMPACT, replace(_DELETE, restarts=0), replace(_INSERT, restarts=0)),
            OBJECTS,
            0,
            1,
        ),
        Model(
            "compact-rewritten",
            "a compaction, and a delete that writes the row's file again, object store",
            (_COMPACT, replace(_DELETE, program="rewriting")),
            OBJECTS,
            1,
            2,
        ),
        Model(
            "compact-twice",
            "two compactions, and a delete of the row that they move, object store",
            (
                replace(_COMPACT, restarts=0),
                replace(_COMPACT, key="again", restarts=0),
                replace(_DELETE, restarts=0),
            ),
            OBJECTS,
            0,
            1,
        ),
        Model(
            "unions-objects",
            "two deletions of rows of one file, one of them the same, deletion vectors, object store",
            (MARKS, MARKS_TOO),
            OBJECTS,
            1,
            2,
        ),
        Model("unions-locks", "the same with a lock table", (MARKS, MARKS_TOO), LOCKS, 1, 1),
        Model(
            "unions-three",
            "three deletions of rows of one file, deletion vectors, object store",
            (
                replace(MARKS, restarts=0),
                replace(MARKS_TOO, restarts=0),
                replace(MARKS, key="marks-third", rows=(7,), restarts=0),
            ),
            OBJECTS,
            0,
            1,
        ),
        Model(
            "held-three",
            "the same, where who loses a try holds the table by a version without rows",
            HOLDERS,
            OBJECTS,
            0,
            1,
        ),
        Model(
            "share-objects", "two writers that share a commit, object store", (_WAITS, _JOINS), SHARED, 1, 2
        ),
        Model(
            "share-asking",
            "the same, where it is not known whether the queue can be used, and who waits sees one name of it",
            (_WAITS, _JOINS),
            replace(SHARED, queue_known=False, names_max=1),
            1,
            1,
        ),
        Model(
            "share-fresh",
            "one that shares and one that commits at once, object store",
            (_WAITS, replace(_JOINS, queue_first=False)),
            replace(SHARED, listens=True),
            1,
            2,
        ),
        Model(
            "share-again",
            "a zombie and its retry with one key, both sharing, and one of them asks the ledger before it uploads",
            (_WAITS, replace(_WAITS, restarts=0, light=False)),
            SHARED,
            1,
            2,
        ),
        Model(
            "share-resolve",
            "one that shares, gives up and asks, and one that leads, object store",
            (WriterProcess("resolving", "asks"), replace(_JOINS, restarts=0)),
            SHARED,
            1,
            1,
        ),
        Model(
            "share-locks", "two writers that share a commit, lock table", (_WAITS, _JOINS), SHARED_LOCKS, 1, 1
        ),
        Model(
            "share-three",
            "two writers that share a commit within one version, and one that commits at once, object store",
            (
                _WAITS,
                replace(_JOINS, restarts=0),
                replace(_JOINS, key="third", restarts=0, queue_first=False),
            ),
            Arbiter(False, shares=1),
            0,
            1,
        ),
        Model(
            "share-changes",
            "an early delete and a late insert of one key that share a commit, object store",
            (SHARED_DELETE, SHARED_INSERT),
            SHARED,
            1,
            2,
        ),
        Model(
            "share-changes-three",
            "the same with an update, within one version",
            (SHARED_DELETE, replace(SHARED_INSERT, restarts=0), _SHARED_UPDATE),
            Arbiter(False, shares=1),
            0,
            1,
        ),
        Model(
            "share-refused",
            "two unequal changes with one sequence that share a commit: the second of them is refused",
            (SHARED_INSERT, UNEQUAL),
            SHARED,
            0,
            1,
        ),
        Model(
            "share-withdrawn",
            "a change that is refused until another is applied, and that one, which may still carry it",
            (AT_FIRST, SHARED_INSERT),
            SHARED,
            0,
            1,
        ),
        Model(
            "share-withdrawn-locks",
            "the same with a lock table",
            (replace(AT_FIRST, restarts=0), replace(SHARED_INSERT, restarts=0)),
            SHARED_LOCKS,
            0,
            1,
        ),
        Model("put", "lock table, with a conditional-PUT writer", (_ONE, _PUT), LOCKS, 1, 2),
        Model("objects-put", "object store, with a conditional-PUT writer", (_TWO, _PUT), OBJECTS, 1, 2),
        Model("spark", "lock table, with Spark's S3DynamoDBLogStore", (_TWO, _SPARK), LOCKS, 1, 2),
        Model("old-locks", "lock table, with deltalake before 1.6", (_TWO, _OLD), LOCKS, 1, 2),
        Model(
            "fleet",
            "lock table, with deltalake before 1.6 and a conditional-PUT writer",
            (_TWO, _OLD, _PUT),
            SEALED,
            1,
            1,
        ),
        Model(
            "fleet-unseen",
            "the same, while the conditional-PUT writer has not been noticed",
            (_TWO, _OLD, _PUT),
            LOCKS,
            0,
            1,
            flaw=("doubled", "zombie"),
        ),
        Model(
            "spark-put",
            "lock table, with Spark and a conditional-PUT writer",
            (_TWO, _SPARK, _PUT),
            SEALED,
            1,
            1,
        ),
        Model("sealed", "two writers, lock table, sealed claims", (_ONE, _TWO), SEALED, 1, 2),
        Model("sealed-spark", "sealed claims, with Spark", (_TWO, _SPARK), SEALED, 1, 2),
        Model(
            "engine",
            "Spark through the hook with safewrite, lock table",
            (_TWO, replace(_ENGINE, fresh=True)),
            LOCKS,
            1,
            2,
        ),
        Model(
            "engine-lease",
            "the same with a ticket queue, in which Spark keeps its turn from try to try",
            (replace(_ONE, queue_first=True), _ENGINE),
            LEASED,
            1,
            1,
        ),
        Model(
            "engine-put",
            "Spark through the hook with a conditional-PUT writer, object store alone",
            (replace(_ENGINE, fresh=True), _PUT),
            OBJECTS,
            1,
            2,
        ),
        Model(
            "engines",
            "two Spark drivers through the hook",
            (_ENGINE, replace(_ENGINE, key="b", fresh=True)),
            LOCKS,
            1,
            2,
        ),
        Model(
            "three-locks",
            "three writers, lock table",
            (_ONE, _TWO, WriterProcess("safewrite", _generated(3))),
            LOCKS,
            0,
            1,
        ),
    )
}
