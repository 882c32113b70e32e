"""Answers, for a commit attempt on a log, what sharing a commit asks of any format."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from safewrite.errors import NotCommittedError
from safewrite.protocol.delta import claim as claims
from safewrite.protocol.delta.candidate import Anchor, Try
from safewrite.protocol.delta.catch_up import catch_up, digest_of, leave_queue, proves, queue, read_anchor
from safewrite.protocol.effects import Effect, Get, Ok, Outcome, Together
from safewrite.protocol.member_queue import Steps
from safewrite.protocol.members import Found


class LogTry(Try):
    """A commit attempt as ``safewrite.protocol.sharing.SharedTry``."""

    __slots__ = ()

    @property
    def has_turns(self) -> bool:
        return self.arbiter.lease

    def wait_ticket(self) -> Generator[Effect, Outcome, bool]:
        return (yield from queue(self))

    def leave_tickets(self) -> Steps:
        yield from leave_queue(self)

    def catch_up(self) -> Generator[Effect, Outcome, Found | None]:
        return (yield from catch_up(self))

    def poll(self) -> Generator[Effect, Outcome, tuple[bool, Found | None]]:
        version = self.seen + 1
        got = yield Get(claims.commit_path(version), name="share.poll")
        if not isinstance(got, Ok) or not isinstance(got.value, bytes):
            return False, None
        if self.share is not None and self.share.sharer.is_in(version, got.value):
            return True, self.candidate.examine(version, got.value)
        return True, (yield from self._examine(version, got.value))

    def _examine(self, version: int, body: bytes) -> Generator[Effect, Outcome, Found | None]:
        """Examine a version that was read alone: the proof of the log comes with the next look at it, in no trip of its own.

        What would end the write is proved at once, for another table may say it (A17).
        """
        anchor = self.anchor
        if anchor is None or not proves(anchor, self):
            return (yield from catch_up(self))
        try:
            found = self.candidate.examine(version, body)
        except NotCommittedError:
            yield from read_anchor(self, anchor)
            raise
        if found is not None:
            yield from read_anchor(self, anchor)
        else:
            self.seen, self.beyond = version, Anchor(version, claims.commit_path(version), digest_of(body))
        return found

    def read_known(self, versions: Sequence[int]) -> Steps:
        assert self.share is not None
        gets = tuple(Get(claims.commit_path(version), name="share.get_commit") for version in versions)
        both = yield Together(gets, name="share.read_commits")
        assert isinstance(both, Ok)
        assert isinstance(both.value, tuple)
        for version, answer in zip(versions, both.value, strict=True):
            if isinstance(answer, Ok) and isinstance(answer.value, bytes):
                self.share.sharer.note(version, answer.value)
