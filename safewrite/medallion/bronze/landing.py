"""Lands new raw files in bronze, each once: the file's path is the key of its rows in bronze's own commit."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from safewrite import Outcome, Receipt
from safewrite.engine.abc import EngineError, ExecutorsLackPythonError
from safewrite.engine.local import LocalEngine
from safewrite.errors import InvalidInputError, ReplayMismatchError, SafewriteError
from safewrite.medallion.bronze.known_files import catch_up, count_file
from safewrite.medallion.bronze.reading import (
    FileRead,
    content_now,
    key_of_touch,
    read_file,
    tag_in,
    tag_now,
)
from safewrite.medallion.bronze.reset_guard import (
    check_epoch,
    check_order,
    check_reload_in_task,
    new_task_advice,
    note_order,
)
from safewrite.medallion.bronze.restore_rows import (
    contents_ever,
    key_of_content,
    lost,
    past_contents,
    put_back,
)
from safewrite.medallion.bronze.source_truncates import check_load_after_truncate
from safewrite.medallion.bronze.state import BronzeState, KnownFile
from safewrite.medallion.bronze.summary import Lines, contents_in_bronze, lines_in_bronze
from safewrite.medallion.bronze.tasks import BYTES_MAX, FileElsewhere, FileTasks, is_there, rows_here
from safewrite.medallion.files.file_versions import content_of
from safewrite.medallion.files.layout import SourceFile
from safewrite.medallion.files.mixed import MixedFiles
from safewrite.medallion.files.rows import FileRows, all_bad, bronze_schema
from safewrite.medallion.tables.job import TableJob, quarantine_rows, short_key

log = logging.getLogger("safewrite")
TRIES = 3
"""Tasks read files for a commit at most this many times."""
FILES_MAX = 64
"""So many files go into one commit, and ``BYTES_MAX`` of them, whose rows are in the memory of this process."""
TASK_FILES_MAX, TASK_BYTES_MAX = 1000, 16 * 2**30
"""And so much where executors have the rows, in memory or on their disks."""


@dataclass
class LandedFiles:
    """What a run landed of one table: ``rows_in_files = rows + quarantined``."""

    files: int = 0
    rows_in_files: int = 0
    rows: int = 0
    by_executors: int = 0
    """So many of the rows."""
    quarantined: int = 0
    overwritten: list[str] = field(default_factory=list)
    again: bool = False
    """Whether files whose rows were removed from bronze are landed again."""
    versions: set[int] = field(default_factory=set)
    """Those of bronze that this run made."""
    touched: list[tuple[SourceFile, str]] = field(default_factory=list)
    """Files of a full load that were written again as they were, and the tags of what they hold."""

    def add(self, rows: int, quarantined: int) -> None:
        self.files += 1
        self.rows_in_files += rows + quarantined
        self.rows += rows
        self.quarantined += quarantined


def tasks_of(job: TableJob, mixed: MixedFiles, nbytes: int) -> FileTasks:
    """What reads files of so many bytes: tasks of the job's engine, or of this process where it takes less, or executors cannot reach what it reaches.

    Raises:
        InvalidInputError: the columns of bronze do not fit.
    """
    engine = job.places.elsewhere if is_there(job, nbytes) else None
    raw = None if engine is None else job.places.raw.travelling()
    if engine is None or raw is None or (job.has_bronze and job.bronze.in_tasks() is None):
        raw, engine = job.places.raw, LocalEngine()
    return FileTasks(job, engine, raw, mixed)


def is_news(state: BronzeState | None, sources: Sequence[SourceFile]) -> bool:
    """Whether a listing holds a file that is not known as it is."""
    return state is None or any(not state.knows(source.raw, is_load=source.is_load) for source in sources)


def land(
    job: TableJob, state: BronzeState, sources: Sequence[SourceFile], mixed: MixedFiles, landed: LandedFiles
) -> None:
    """Land what ``state`` does not know, and note it there and in ``landed``; if that says so, also what was removed from bronze.

    Raises:
        InvalidInputError: a file cannot be read, or has other columns; too many records are bad; its changes would be older than
            what bronze has, by their epoch or their order.
        ReplayMismatchError: a file was written again with other content.
        BronzeGapError: rows of a file that bronze knows were removed from it.
        SafewriteError: as ``append_many``; what was landed before stays, and is not landed again.
    """
    try:
        _land(job, state, sources, mixed, landed)
    except ExecutorsLackPythonError as error:
        if not job.places.work.leaves(error):
            raise
        _land(job, state, sources, mixed, landed)


def _land(
    job: TableJob, state: BronzeState, sources: Sequence[SourceFile], mixed: MixedFiles, landed: LandedFiles
) -> None:
    news = [source for source in sources if not state.knows(source.raw, is_load=source.is_load)]
    tasks = tasks_of(job, mixed, _nbytes(news))
    is_here = isinstance(tasks.engine, LocalEngine)
    for number, group in enumerate(_groups(iter(news), is_here=is_here)):
        # Another run, of a later configuration, may have landed files of the next task meanwhile.
        if number and job.has_bronze:
            job.lineage.look()
            catch_up(job, state, landed.versions)
        check_epoch(job, state, group, again=landed.again)
        _land_group(job, state, group, tasks, landed)


def _groups(sources: Iterator[SourceFile], *, is_here: bool = True) -> Iterator[list[SourceFile]]:
    """The files of each commit.  Where executors read, files of all tables, which this process splits, have commits of their own."""
    group: list[SourceFile] = []
    size = 0
    for source in sources:
        is_for_tasks = not is_here and not source.is_mixed
        files_max, bytes_max = (TASK_FILES_MAX, TASK_BYTES_MAX) if is_for_tasks else (FILES_MAX, BYTES_MAX)
        is_other = not is_here and group and group[-1].is_mixed != source.is_mixed
        if group and (is_other or len(group) == files_max or size + source.raw.size > bytes_max):
            yield group
            group, size = [], 0
        group.append(source)
        size += source.raw.size
    if group:
        yield group


def _nbytes(sources: Iterable[SourceFile]) -> int:
    return sum(one.raw.size for one in sources)


def _land_group(
    job: TableJob, state: BronzeState, group: Sequence[SourceFile], tasks: FileTasks, landed: LandedFiles
) -> None:
    mixed = tasks.mixed
    files = list(_tagged(job, state, group, mixed, landed))
    ready, answers = _read_and_written(job, state, tasks, files)
    members = [one for one in ready if _is_member(one)]
    _repair(
        job, state, [one for one, answer in zip(members, answers, strict=True) if _is_repeat(answer)], landed
    )
    for one, answer in zip(members, answers, strict=True):
        if one.source.is_load and (isinstance(answer, ReplayMismatchError) or _is_repeat(answer)):
            _land_known_load(job, state, one.source, mixed, landed)
        elif isinstance(answer, ReplayMismatchError):
            _repair_or_refuse(job, state, one, mixed, landed)
        elif isinstance(answer, SafewriteError):
            raise answer
        else:
            landed.versions.add(answer.version)
            _note(job, state, one, landed)
    _note_touched(job, state, landed)
    for one in ready:
        if not one.count and one.source.is_mixed:
            _note(job, state, one, landed)


def _read_and_written(
    job: TableJob, state: BronzeState, tasks: FileTasks, files: Sequence[tuple[SourceFile, str]]
) -> tuple[list[FileRows], list[Receipt | SafewriteError]]:
    """Read files, judge them, and append their rows: bronze gets no file before all of a commit's are judged.

    An executor that dies takes with it what its tasks gave, which is read again.
    """
    if not files:
        return [], []
    left = TRIES - 1
    while True:
        begun = time.perf_counter()
        try:
            with tasks.read(files) as found:
                check_order(job, state, found.files)
                _check_share(job, found.files)
                _quarantine(job, found.files)
                members = [one for one in found.files if _is_member(one)]
                rows = found.members(job, members) if members else []
                keyed = [(_key(one, state), data) for one, data in zip(members, rows, strict=True)]
                answers = job.bronze.append_many(keyed) if members else []
                by_executors, nbytes = type(found.engine) is not LocalEngine, _nbytes(one for one, _ in files)
                job.places.work.files.took(nbytes, time.perf_counter() - begun, is_there=by_executors)
                return found.files, answers
        except EngineError as error:
            if not left:
                raise
            left -= 1
            log.warning("files of %s are read once more: %s", job.name, error)


def _is_member(one: FileRows) -> bool:
    """Whether a file is named in bronze: one of all tables is not where it has nothing of this table."""
    return bool(one.count) or not one.source.is_mixed


def _is_repeat(answer: object) -> bool:
    return isinstance(answer, Receipt) and answer.outcome == Outcome.ALREADY_COMMITTED


def _repair(job: TableJob, state: BronzeState, repeats: Sequence[FileRows], landed: LandedFiles) -> None:
    """A repeat proves that rows were committed; a RESTORE or an overwrite may have removed them since."""
    asked = [one for one in repeats if one.count]
    if asked:
        job.lineage.look()
        if catch_up(job, state, landed.versions):  # another run has just landed them, as a rule
            asked = [one for one in asked if one.tag not in state.files.get(one.source.path, {})]
    there = lines_in_bronze(job, {one.source.path for one in asked}) if asked else Lines()
    missing = lost(there, (one.again() for one in asked))
    if missing and not landed.again:
        raise job.lineage.gap(
            f"it knows {len(missing)} files whose rows were removed from it, such as {missing[0].source.path}"
        )
    versions, _ = put_back(job, missing)
    landed.versions |= versions


def land_lost(job: TableJob, sources: Sequence[SourceFile], mixed: MixedFiles, landed: LandedFiles) -> None:
    """Land again what was removed from bronze, of all its files that are still there; reads all of them.

    Raises:
        SafewriteError: as :func:`land`.
    """
    there, known = lines_in_bronze(job), contents_in_bronze(job)
    for group in _groups(iter(sources)):
        tagged = [(one, tag_now(job, one, mixed, known.get(one.path, {}))) for one in group]
        files = rows_here(job, mixed, [(one, tag) for one, tag in tagged if (one.path, tag) in there])
        missing = lost(there, files)
        versions, rows = put_back(job, missing)
        landed.rows += rows
        landed.rows_in_files += rows
        landed.versions |= versions


def _note(job: TableJob, state: BronzeState, one: FileRows, landed: LandedFiles) -> None:
    rows, quarantined = one.count, len(one.bad)
    raw = one.source.raw
    state.note(raw.path, one.tag, KnownFile(raw.mark, rows, quarantined, job.config.epoch, raw.changed_ms))
    note_order(job, state, one)
    landed.add(rows, quarantined)
    landed.by_executors += rows if isinstance(one, FileElsewhere) else 0


def _may_come_again(job: TableJob, source: SourceFile) -> bool:
    return source.is_load and job.config.restarted_load == "fold"


def _land_known_load(
    job: TableJob, state: BronzeState, source: SourceFile, mixed: MixedFiles, landed: LandedFiles
) -> None:
    """Of a full load bronze knew more than was remembered, as where its file had been taken away: it is asked what it has."""
    count_file(job, state, source.path)
    content = content_now(job, source, mixed)
    known = state.contents(source.path) or past_contents(job, source.path, content)
    tag = tag_in(job, source, content, known)
    is_there = tag in known
    if known and not is_there and not _may_come_again(job, source):
        _refuse_or_put_aside(job, state, read_file(job, source, mixed, known), landed)
        return
    (one,) = rows_here(job, mixed, [(source, tag)])
    if not is_there and one.rows.num_rows:
        check_reload_in_task(job, source, known)
        (answer,) = job.bronze.append_many([(key_of_content(one.source.path, one.tag), one.rows)])
        if isinstance(answer, SafewriteError):
            raise answer
        landed.versions.add(answer.version)
        is_there = _is_repeat(answer)
    if is_there:
        _repair(job, state, [one], landed)
        if tag in known and known[tag].changed_ms < source.raw.changed_ms:
            landed.touched.append((source, tag))
    _note(job, state, one, landed)


def _repair_or_refuse(
    job: TableJob, state: BronzeState, one: FileRows, mixed: MixedFiles, landed: LandedFiles
) -> None:
    """Bronze knows a file with other rows: as those of an earlier epoch, or with other content."""
    if one.tag in contents_ever(job, one.source.path, one.tag):
        _repair(job, state, [one], landed)
        _note(job, state, one, landed)
    else:
        _refuse_or_put_aside(job, state, read_file(job, one.source, mixed, {}), landed)


def _key(one: FileRows, state: BronzeState) -> str:
    """The path alone, so that bronze itself refuses other content under it; but for a load that began again."""
    return (
        key_of_content(one.source.path, one.tag)
        if one.source.path in state.files
        else short_key(one.source.path)
    )


def _tagged(
    job: TableJob, state: BronzeState, group: Sequence[SourceFile], mixed: MixedFiles, landed: LandedFiles
) -> Iterator[tuple[SourceFile, str]]:
    """The files of which rows are to be landed, and the tags of what they hold."""
    for source in group:
        known = state.contents(source.path)
        tag = tag_now(job, source, mixed, known)
        if _is_new(job, state, (source, tag), partial(read_file, job, source, mixed, known), landed):
            yield source, tag


def _is_new(
    job: TableJob,
    state: BronzeState,
    now: tuple[SourceFile, str],
    read: Callable[[], FileRead],
    landed: LandedFiles,
) -> bool:
    """Whether the rows of a file, which has a tag now, are to be landed."""
    source, tag = now
    known = state.files.get(source.path)
    if known is not None and tag in known:
        _note_again(state, source, tag, landed)
        return False
    if known is not None and not _may_come_again(job, source):
        _refuse_or_put_aside(job, state, read(), landed)
        return False
    check_reload_in_task(job, source, state.contents(source.path))
    if state.truncated == job.config.epoch:
        check_load_after_truncate(job, source, tag)
    return True


def _note_again(state: BronzeState, source: SourceFile, tag: str, landed: LandedFiles) -> None:
    """A file was touched, and holds the same."""
    here = state.files[source.path][tag]
    if source.is_load and here.rows and here.changed_ms < source.raw.changed_ms:
        landed.touched.append((source, tag))
    else:
        state.note(source.path, tag, replace(here, mark=source.raw.mark))


def _note_touched(job: TableJob, state: BronzeState, landed: LandedFiles) -> None:
    """Name in bronze the times of full load files that were written again as they were: a later task's would look so."""
    files, landed.touched = landed.touched, []
    none = bronze_schema(job.config, job.columns).empty_table()
    members = [(key_of_touch(source, tag), none) for source, tag in files]
    for (source, tag), answer in zip(files, job.bronze.append_many(members) if members else [], strict=True):
        if isinstance(answer, SafewriteError):
            raise answer
        landed.versions.add(answer.version)
        known = state.files[source.path][tag]
        state.note(source.path, tag, replace(known, mark=source.raw.mark, changed_ms=source.raw.changed_ms))


def _refuse_or_put_aside(job: TableJob, state: BronzeState, file: FileRead, landed: LandedFiles) -> None:
    """A file was written again, with other content or by what may be a new task."""
    source, tag = file.source, file.tag
    what = "with other content" if content_of(tag) == tag else "since bronze took the same rows from it"
    cure = (
        new_task_advice(job)
        if source.is_load
        else "Put the first content back, or give the new one a name of its own."
    )
    if job.config.on_overwritten == "raise":
        raise ReplayMismatchError(
            f"{source.path} of {job.name} was written again {what}: bronze has the rows of the first. Nothing "
            f"of it was landed, and nothing of the files that came with it. {cure} "
            'on_overwritten: "quarantine" puts such files aside.'
        )
    bad = all_bad(source, tag, file.records, f"the file was written again {what} under its name")
    rows = quarantine_rows(job.name, "raw", source.path, tag, bad)
    job.places.put_aside(job.name, "raw", [(f"{source.path}#{tag}", rows)] if bad else [])
    raw = source.raw
    state.note(raw.path, tag, KnownFile(raw.mark, 0, len(bad), job.config.epoch, raw.changed_ms))
    landed.add(0, len(bad))
    landed.overwritten.append(source.path)


def _check_share(job: TableJob, ready: Sequence[FileRows]) -> None:
    """Refuse a batch with too many bad records: a changed source looks so."""
    bad = sum(len(one.bad) for one in ready)
    count = bad + sum(one.count for one in ready)
    share_max = job.config.quality.quarantined_share_max
    if bad > share_max * count:
        first = next(one for one in ready if one.bad)
        raise InvalidInputError(
            f"{bad} of {count} records of {job.name} cannot be taken, and quarantined_share_max is {share_max}. The first: "
            f"{first.source.path}, record {first.bad[0].line}: {first.bad[0].reason}. Nothing of these files was written, "
            "neither to bronze nor to quarantine. Correct files or columns of the configuration, or raise the limit."
        )


def _quarantine(job: TableJob, ready: Sequence[FileRows]) -> None:
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
