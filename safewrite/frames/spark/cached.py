"""Has the Spark of this process read a table anew after a commit, where it caches what it read before.

Spark's own writes do so.  It looks a cached frame up by its table, whatever the table's version, so a frame from before
would serve every later query of all sessions, and the next write from one would bring removed rows back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


def read_anew(context: SparkContext, is_of: Callable[[Any], bool]) -> int:
    """Drop what is cached of the tables for which ``is_of`` is true of Java's relation; the next query reads it again.

    Returns how many relations that was.
    """
    from pyspark.sql import SparkSession

    # A job commits to many tables a second, and each word to Java takes 0.1 ms of Python: one is enough while nothing is cached.
    own = SparkSession._instantiatedSession  # noqa: SLF001 - PySpark has no other way to it
    found = _seen.get(context)
    if found is None or own is None or found.own is not own:
        jvm: Any = context._jvm  # noqa: SLF001 - as safewrite.delta.spark.session
        session = jvm.SparkSession.getDefaultSession()
        if not session.isDefined():
            return 0
        session = session.get()
        _seen[context] = found = _Seen(own, session, session.sharedState().cacheManager())
    if found.manager.isEmpty():
        return 0
    known = [relation for relation in _relations(found.manager) if is_of(relation)]
    for relation in known:
        found.manager.recacheByPlan(found.session, relation)
    return len(known)


class _Seen(NamedTuple):
    """The default session of a context, and what it caches, as Java has them; ``own`` is PySpark's of that time."""

    own: SparkSession | None
    session: Any
    manager: Any


_seen: WeakKeyDictionary[SparkContext, _Seen] = WeakKeyDictionary()


def _relations(manager: Any) -> Iterator[Any]:
    """What cached plans read; Spark itself looks for a table's plans in this list, which it keeps private."""
    listed = manager.getClass().getDeclaredField("cachedData")
    listed.setAccessible(True)
    entries = listed.get(manager)
    for number in range(entries.size()):
        leaves = entries.apply(number).plan().collectLeaves()
        yield from (leaves.apply(at) for at in range(leaves.size()))
