"""Finds what Kafka's offsets leave out: their topic, and whether its records were all read.

Offsets count from 0 again in a topic that was deleted and created again, and in another cluster's of the same
name.  But a controller draws a random id for each topic that it creates, and no other topic has it.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping
from typing import Any

SOURCE = "org.apache.spark.sql.kafka010.KafkaMicroBatchStream"
"""The class of Spark's stream of Kafka; we read its private parts, so any of this may be an error of Py4J's."""


def piece(source: Any, start: Mapping[str, Any] | None, end: Mapping[str, Any] | None) -> list[Any] | None:
    """The source's share of a batch: its offsets and the ids of its topics; None if they do not tell its rows."""
    if not _all_or_nothing(source):
        return None
    if end is None:  # nothing so far
        return [SOURCE, start, end]
    if start is None:
        # The offsets that Spark noted do not hold where the first batch begins; a file of the source does.
        start = json.loads(source.initialOffset().json())
    topics = _topic_ids(source, sorted(end))
    return None if topics is None else [SOURCE, start, end, topics]


def _all_or_nothing(source: Any) -> bool:
    """Whether a batch fails that cannot read all its records; else one attempt may have less than another."""
    flag = source.getClass().getDeclaredField("failOnDataLoss")
    flag.setAccessible(True)
    return bool(flag.getBoolean(source))


def _topic_ids(source: Any, names: list[str]) -> dict[str, str] | None:
    """The ids of topics as they are now; None if the cluster gives none, or none that is drawn at random.

    The source's own client asks, as Spark asks with each batch for their partitions: it has the rights, and
    its limit (``default.api.timeout.ms``).
    """
    described = source.kafkaOffsetReader().admin().describeTopics(names).allTopicNames().get()
    ids = {name: str(described[name].topicId().toString()) for name in names}
    return ids if all(_is_random(one) for one in ids.values()) else None


def _is_random(topic_id: str) -> bool:
    """A UUID of version 4; clusters without ids of topics say 0, and a hash of the name would be another version."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(f"{topic_id}==")).version == 4
