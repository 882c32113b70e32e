"""Answers Java for each commit, in text: an exception would lose its meaning on the way."""

from __future__ import annotations

import logging

from safewrite.delta.spark.log_store import Commits, parse_commit_path, transaction_of
from safewrite.errors import CommitUnknownError, SafewriteError
from safewrite.text.rendering import said

LANDED, EXISTS = "", "exists"

log = logging.getLogger("safewrite")


class CommitHook:
    """Implements ``io.safewrite.CommitHook``; called by any thread of the JVM."""

    def __init__(self, commits: Commits) -> None:
        self.commits = commits

    def commit(self, path: str, body: str) -> str:
        """Make ``body`` the commit file at ``path``: "" if it is, "exists" if another's is, else what went wrong."""
        try:
            return LANDED if self.commits.commit(path, body) else EXISTS
        except CommitUnknownError as error:
            return _in_doubt(path, body, error.message)
        except SafewriteError as error:
            return f"{type(error).__name__}: {error.message}"
        except Exception as error:
            # Whatever the error was, Spark must hear that the outcome is open.
            log.exception("The commit of %s ended in an error that safewrite does not know.", path)
            return _in_doubt(path, body, f"{type(error).__name__}: {said(error)}")

    class Java:
        """What py4j needs to know."""

        implements = ("io.safewrite.CommitHook",)


def _in_doubt(path: str, body: str, why: str) -> str:
    """What Delta's own error would not say: this commit may be there, and a repeat may double its rows."""
    _, version = parse_commit_path(path)
    transaction = transaction_of(body.encode())
    return (
        f"CommitUnknownError: it is not known whether this commit became version {version} of the table "
        f"({why}). Its files were left in place. Do not write the rows again before you know: once the store "
        f"answers, safewrite.spark.landed(session, {path.rpartition('/_delta_log/')[0]!r}, {version}, "
        f"{transaction!r}) says whether it did, and settles it if it was left half-way."
    )
