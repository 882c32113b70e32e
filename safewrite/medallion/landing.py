"""Lands new raw files in bronze, each once: the file's path is the key of its rows in bronze's own commit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from safewrite import Outcome, Receipt
from safewrite.errors import InvalidInputError, ReplayMismatchError, SafewriteError
from safewrite.medallion.job import TableJob, quarantine_rows, short_key
from safewrite.medallion.layout import SourceFile
from safewrite.medallion.lineage import BronzeGapError
from safewrite.medallion.mixed import MixedFiles, numbered
from safewrite.medallion.putting_back import lines_in_bronze, lost, put_back
from safewrite.medallion.records import BadRecord, Records, split
from safewrite.medallion.rows import BronzeRows, all_bad, bronze_rows
from safewrite.medallion.state import KnownFile, State

FILES_MAX = 64
BYTES_MAX = 128 * 2**20
"""So much of raw files goes into one commit."""


@dataclass
class Landed:
    """What a run landed of one table: ``rows_in_files = rows + quarantined``."""

    files: int = 0
    rows_in_files: int = 0
    rows: int = 0
    quarantined: int = 0
    overwritten: list[str] = field(default_factory=list)
    again: bool = False
    """Whether files whose rows were removed from bronze are landed again."""
    versions: set[int] = field(default_factory=set)
    """Those of bronze that this run made."""

    def add(self, rows: int, quarantined: int) -> None:
        self.files += 1
        self.rows_in_files += rows + quarantined
        self.rows += rows
        self.quarantined += quarantined


def is_news(state: State | None, sources: Sequence[SourceFile]) -> bool:
    """Whether a listing holds a file that is not known as it is."""
    return state is None or any(not state.knows(source.path, source.raw.mark) for source in sources)


def land(
    job: TableJob, state: State, sources: Sequence[SourceFile], mixed: MixedFiles, *, again: bool = False
) -> Landed:
    """Land what ``state`` does not know, and note it there; ``again``: also what was removed from bronze.

    Raises:
        InvalidInputError: a file cannot be read, or has other columns; too many records are bad.
        ReplayMismatchError: a file was written again with other content.
        BronzeGapError: rows of a file that bronze knows were removed from it.
        SafewriteError: as ``append_many``; what was landed before stays, and is not landed again.
    """
    landed = Landed(again=again)
    news = (source for source in sources if not state.knows(source.path, source.raw.mark))
    for group in _groups(news):
        _land_group(job, state, group, mixed, landed)
    return landed


def _groups(sources: Iterator[SourceFile]) -> Iterator[list[SourceFile]]:
    group: list[SourceFile] = []
    size = 0
    for source in sources:
        if group and (len(group) == FILES_MAX or size + source.raw.size > BYTES_MAX):
            yield group
            group, size = [], 0
        group.append(source)
        size += source.raw.size
    if group:
        yield group


def _land_group(
    job: TableJob, state: State, group: Sequence[SourceFile], mixed: MixedFiles, landed: Landed
) -> None:
    ready: list[BronzeRows] = []
    for source in group:
        rows = _read(job, state, source, mixed, landed)
        if rows is not None:
            ready.append(rows)
    _check_share(job, ready)
    _quarantine(job, ready)
    members = [one for one in ready if one.rows.num_rows or not one.source.is_mixed]
    answers = job.bronze.append_many([(_key(one, state), one.rows) for one in members]) if members else []
    _repair(
        job, state, [one for one, answer in zip(members, answers, strict=True) if _is_repeat(answer)], landed
    )
    for one, answer in zip(members, answers, strict=True):
        if isinstance(answer, ReplayMismatchError) and _may_come_again(job, one.source):
            _note_other_content(job, state, one, landed)
        elif isinstance(answer, ReplayMismatchError):
            _refuse_or_put_aside(job, state, one.source, mixed, landed)
        elif isinstance(answer, SafewriteError):
            raise answer
        else:
            landed.versions.add(answer.version)
            _note(state, one, landed)
    for one in ready:
        if not one.rows.num_rows and one.source.is_mixed:
            _note(state, one, landed)


def _is_repeat(answer: object) -> bool:
    return isinstance(answer, Receipt) and answer.outcome == Outcome.ALREADY_COMMITTED


def _repair(job: TableJob, state: State, repeats: Sequence[BronzeRows], landed: Landed) -> None:
    """A repeat proves that rows were committed; a RESTORE or an overwrite may have removed them since."""
    asked = [one for one in repeats if one.rows.num_rows]
    if asked:
        job.lineage.look()
        if catch_up(job, state, landed.versions):  # another run has just landed them, as a rule
            asked = [one for one in asked if one.tag not in state.files.get(one.source.path, {})]
    missing = lost(lines_in_bronze(job), asked) if asked else []
    if missing and not landed.again:
        raise job.lineage.gap(
            f"it knows {len(missing)} files whose rows were removed from it, such as {missing[0].source.path}"
        )
    versions, _ = put_back(job, missing)
    landed.versions |= versions


def land_lost(job: TableJob, sources: Sequence[SourceFile], mixed: MixedFiles, landed: Landed) -> None:
    """Land again what was removed from bronze, of all files that are still there; reads all of them.

    Raises:
        SafewriteError: as :func:`land`.
    """
    there = lines_in_bronze(job)
    for group in _groups(iter(sources)):
        files = [_rows_of(job, source, mixed) for source in group]
        missing = lost(there, (one for one in files if (one.source.path, one.tag) in there))
        versions, rows = put_back(job, missing)
        landed.rows += rows
        landed.rows_in_files += rows
        landed.versions |= versions


def _note(state: State, one: BronzeRows, landed: Landed) -> None:
    rows, quarantined = one.rows.num_rows, len(one.bad)
    state.note(one.source.path, one.tag, KnownFile(one.source.raw.mark, rows, quarantined))
    landed.add(rows, quarantined)


def _may_come_again(job: TableJob, source: SourceFile) -> bool:
    return source.is_load and job.config.restarted_load == "fold"


def _note_other_content(job: TableJob, state: State, one: BronzeRows, landed: Landed) -> None:
    """Of a load that began again bronze knew more than was remembered: its first file had been taken away."""
    (answer,) = job.bronze.append_many([(_key_of_content(one), one.rows)])
    if isinstance(answer, SafewriteError):
        raise answer
    landed.versions.add(answer.version)
    _note(state, one, landed)


def _key_of_content(one: BronzeRows) -> str:
    return short_key(f"{one.source.path}#{one.tag}")


def _key(one: BronzeRows, state: State) -> str:
    """The path alone, so that bronze itself refuses other content under it; but for a load that began again."""
    return _key_of_content(one) if one.source.path in state.files else short_key(one.source.path)


def _read(
    job: TableJob, state: State, source: SourceFile, mixed: MixedFiles, landed: Landed
) -> BronzeRows | None:
    """The rows of a file; None where nothing is to be landed."""
    known = state.files.get(source.path)
    _, tag = records_of(job, source, mixed) if known is not None else (None, "")
    if known is not None and tag in known:  # a local file that was touched, and holds the same
        state.note(source.path, tag, replace(known[tag], mark=source.raw.mark))
        return None
    if known is not None and not _may_come_again(job, source):
        _refuse_or_put_aside(job, state, source, mixed, landed)
        return None
    return _rows_of(job, source, mixed)


def _rows_of(job: TableJob, source: SourceFile, mixed: MixedFiles) -> BronzeRows:
    records, tag = records_of(job, source, mixed)
    beside = job.places.config.beside if source.is_mixed else ()
    return bronze_rows(source, tag, records, job.config, job.columns, beside=beside)


def records_of(job: TableJob, source: SourceFile, mixed: MixedFiles) -> tuple[Records, str]:
    """The records of a file that are this table's, and the tag of the file's content.  Raises as :func:`land`."""
    files, columns, beside = job.config.files, job.columns.names, job.places.config.beside
    if not source.is_mixed:
        content, tag = job.places.raw.read(source.raw)
        return split(source, content, files, columns, beside), tag
    whole = mixed.get(source)
    part = whole.parts[job.name]
    # Unpacked already, and numbered as in the whole file.
    plain = replace(source, raw=replace(source.raw, path=source.path.removesuffix(".gz").removesuffix(".GZ")))
    found = split(plain, bytes(part.data), files, columns, beside)
    if found.count != len(part.lines):
        raise InvalidInputError(
            f"{source.path} cannot be read: two readers find {found.count} and {len(part.lines)} records of {job.name} in it, "
            "as where a quote stands within a value that is not in quotes. Nothing of it was written. Mend the file."
        )
    numbers = numbered(part.lines)
    bad = [BadRecord(int(numbers[one.line - 1]), one.reason, one.text) for one in found.bad]
    return Records(found.rows, numbers[found.lines - 1], True, bad), whole.tag


def _refuse_or_put_aside(
    job: TableJob, state: State, source: SourceFile, mixed: MixedFiles, landed: Landed
) -> None:
    """A file was written again with other content under its name."""
    if job.config.on_overwritten == "raise":
        raise ReplayMismatchError(
            f"{source.path} of {job.name} was written again with other content: bronze has the rows of the first. Nothing "
            "of it was landed, and nothing of the files that came with it. Put the first content back, or give the new one "
            'a name of its own; on_overwritten: "quarantine" puts such files aside, restarted_load: "fold" takes those '
            "of a full load that was begun again."
        )
    records, tag = records_of(job, source, mixed)
    bad = all_bad(source, tag, records, "the file was written again with other content under its name")
    rows = quarantine_rows(job.name, "raw", source.path, tag, bad)
    job.places.put_aside(job.name, "raw", [(f"{source.path}#{tag}", rows)] if bad else [])
    state.note(source.path, tag, KnownFile(source.raw.mark, 0, len(bad)))
    landed.add(0, len(bad))
    landed.overwritten.append(source.path)


def _check_share(job: TableJob, ready: Sequence[BronzeRows]) -> None:
    """Refuse a batch with too many bad records: a changed source looks so."""
    bad = sum(len(one.bad) for one in ready)
    count = bad + sum(one.rows.num_rows for one in ready)
    share_max = job.config.quality.quarantined_share_max
    if bad > share_max * count:
        first = next(one for one in ready if one.bad)
        raise InvalidInputError(
            f"{bad} of {count} records of {job.name} cannot be taken, and quarantined_share_max is {share_max}. The first: "
            f"{first.source.path}, record {first.bad[0].line}: {first.bad[0].reason}. Nothing of these files was written, "
            "neither to bronze nor to quarantine. Correct files or columns of the configuration, or raise the limit."
        )


def _quarantine(job: TableJob, ready: Sequence[BronzeRows]) -> None:
    """Before bronze's commit: a crash between the two leaves records in quarantine that the repeat finds there."""
    job.places.put_aside(
        job.name,
        "raw",
        [
            (
                f"{one.source.path}#{one.tag}",
                quarantine_rows(job.name, "raw", one.source.path, one.tag, one.bad),
            )
            for one in ready
            if one.bad
        ],
    )


# --- what bronze itself says -----------------------------------------------------------------------
def known_state(job: TableJob, state: State | None) -> State:
    """What the tables have: what was remembered, if bronze is still that table and grew from there; else read anew.

    Raises:
        SafewriteError: bronze cannot be read.
    """
    lineage = job.lineage
    lineage.look()
    if state is not None and state.bronze_id == lineage.table_id and catch_up(job, state):
        return state
    fresh = State(bronze_id=lineage.table_id, bronze_head=lineage.head)
    _count(fresh, lineage.read(lineage.whole(), ["_file", "_tag"]), "rows")
    # What quarantine alone has proves nothing: its commit comes first, and bronze's may never have come.
    _count(fresh, _put_aside_before(job), "quarantined", only_known=True)
    return fresh


def catch_up(job: TableJob, state: State, own: Set[int] = frozenset()) -> bool:
    """Note what other runs landed since, up to the head that the lineage saw; False where bronze did not grow from there."""
    lineage = job.lineage
    if state.bronze_head != lineage.head:
        try:
            commits = lineage.since(state.bronze_head)
            foreign = [file for one in commits if one.version not in own for file in one.files]
            _count(state, lineage.read(foreign, ["_file", "_tag"]), "rows")
        except BronzeGapError:
            return False
        state.bronze_head = lineage.head
    return True


def _count(state: State, rows: pa.Table, what: str, *, only_known: bool = False) -> None:
    counts = rows.group_by(["_file", "_tag"]).aggregate([([], "count_all")]).to_pylist()
    for one in counts:
        path, tag = one["_file"], one["_tag"]
        known = state.files.get(path, {}).get(tag)
        if known is None:
            if only_known:
                continue
            known = KnownFile(tag, 0, 0)
        state.note(path, tag, replace(known, **{what: one["count_all"]}))


def _put_aside_before(job: TableJob) -> pa.Table:
    config = job.places.config
    _ = job.places.quarantine
    lineage = job.places.lineage(job.name, config.quarantine, config.quarantine_format)
    lineage.look()
    rows = lineage.read(lineage.whole(), ["table", "stage", "file", "tag", "line"])
    rows = rows.filter(pc.and_(pc.equal(rows["table"], job.name), pc.equal(rows["stage"], "raw")))
    rows = rows.group_by(["file", "tag", "line"]).aggregate([])
    return pa.table({"_file": rows["file"], "_tag": rows["tag"]})
