"""Finds a session's jars: ours in this package, and Delta's, Iceberg's and Kafka's at pinned versions."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from safewrite.errors import InvalidInputError, Kind, MissingExtraError, UnsafeConfigError
from safewrite.text.rendering import shown

HOOK_VERSION = "1"
"""The jar's statement of its version; it changes when Java and Python must change together."""

_HERE = Path(__file__).parent
_TITLE = "safewrite-logstore"


@dataclass(frozen=True, slots=True)
class Pin:
    """One jar at one version, with its digest: ``part`` names the part of a session that needs it."""

    spark: str
    part: str
    coordinates: str
    sha256: str

    @property
    def file_name(self) -> str:
        _, artifact, number = self.coordinates.split(":")
        return f"{artifact}-{number}.jar"


def logstore_jar() -> Path:
    """The jar with safewrite's log store.

    Raises:
        MissingExtraError: it is missing, or belongs to another safewrite.
    """
    path = _HERE / "jars" / f"{_TITLE}.jar"
    mend = "Reinstall safewrite from its wheel; in a checkout run `make jars`."
    if not path.is_file():
        raise MissingExtraError(
            f"{path.name}, the jar that hands Spark's commits to safewrite, is not in this installation. "
            f"Nothing was written. {mend}"
        )
    try:
        with zipfile.ZipFile(path) as jar:
            manifest = jar.read("META-INF/MANIFEST.MF").decode()
    except (zipfile.BadZipFile, KeyError) as error:
        raise MissingExtraError(f"{path} is damaged ({error}). Nothing was written. {mend}") from error
    said = dict(line.split(": ", 1) for line in manifest.splitlines() if ": " in line)
    if (said.get("Implementation-Title"), said.get("Implementation-Version")) != (_TITLE, HOOK_VERSION):
        raise MissingExtraError(f"{path} is of another version of safewrite. Nothing was written. {mend}")
    return path


def pins(
    *, delta: bool = True, iceberg: bool = False, s3: bool = True, kafka: bool = False
) -> tuple[Pin, ...]:
    """The jars that a plain Spark of the installed PySpark's version needs; managed clusters bring their own.

    ``kafka`` is for streams that read it.

    Raises:
        UnsafeConfigError: no versions are pinned for this PySpark.
    """
    line = _spark_line()
    asked = {"delta": delta, "iceberg": iceberg, "s3": s3, "kafka": kafka}
    parts = {part for part, wanted in asked.items() if wanted}
    found = tuple(pin for pin in _all_pins() if pin.spark == line and pin.part in parts)
    if missing := parts - {pin.part for pin in found}:
        known = ", ".join(sorted({pin.spark for pin in _all_pins() if pin.part in missing}))
        raise UnsafeConfigError(
            f"safewrite pins the jars for {', '.join(sorted(missing))} for PySpark {known}, not for {line}. Nothing "
            "was written. Name the jars yourself: jars=[...], or leave jars= out where the cluster brings them.",
        )
    return found


def packages(
    *, delta: bool = True, iceberg: bool = False, s3: bool = True, kafka: bool = False
) -> tuple[str, ...]:
    """Maven coordinates of ``pins``, for ``spark.jars.packages`` or a build of your own."""
    return tuple(pin.coordinates for pin in pins(delta=delta, iceberg=iceberg, s3=s3, kafka=kafka))


def jars_from(
    folder: Path | str, *, delta: bool = True, iceberg: bool = False, s3: bool = True, kafka: bool = False
) -> tuple[Path, ...]:
    """The pinned jars in a folder, or in its ``spark`` folder as ``make jars`` leaves them, each checked by its digest.

    Raises:
        MissingExtraError: one is missing; the message holds the command that fetches it.
        UnsafeConfigError: one has other bytes.
        InvalidInputError: ``folder`` is not a path.
    """
    if not isinstance(folder, str | os.PathLike):
        raise InvalidInputError(
            f"jars_from() takes the folder of the jars, not {shown(folder)}. Nothing was written."
        )
    wanted = pins(delta=delta, iceberg=iceberg, s3=s3, kafka=kafka)
    folder = _spark_folder(Path(folder), wanted)
    _must_be_there(folder, wanted)
    damaged = [pin.file_name for pin in wanted if _sha256(Path(folder) / pin.file_name) != pin.sha256]
    if damaged:
        raise UnsafeConfigError(
            f"{', '.join(damaged)} in {folder} does not have the bytes that were published. Nothing was "
            "written. Remove it and fetch it again.",
        )
    return tuple(Path(folder) / pin.file_name for pin in wanted)


def _spark_folder(folder: Path, wanted: Iterable[Pin]) -> Path:
    """The folder itself, or the one inside it where ``make jars`` of a checkout puts Spark's jars."""
    names = [pin.file_name for pin in wanted]
    inside = (folder, folder / "spark", folder / f"spark-{_spark_line()}" / "spark")
    return next((place for place in inside if any((place / name).is_file() for name in names)), folder)


def _must_be_there(folder: Path, wanted: Iterable[Pin]) -> None:
    missing = [pin for pin in wanted if not (folder / pin.file_name).is_file()]
    if missing:
        commands = "\n".join(
            f"  mvn dependency:copy -Dartifact={pin.coordinates} -DoutputDirectory={folder}"
            for pin in missing
        )
        raise MissingExtraError(
            f"Jars are missing in {folder}. Nothing was written. Fetch them once, with Maven:\n{commands}"
        )


def _all_pins() -> tuple[Pin, ...]:
    lines = (_HERE / "jars.lock").read_text().splitlines()
    return tuple(Pin(*line.split()) for line in lines if line and not line.startswith("#"))


def _spark_line() -> str:
    """Major and minor version of the installed PySpark."""
    try:
        number = version("pyspark")
    except PackageNotFoundError as error:
        raise MissingExtraError(
            f"PySpark is not installed. Nothing was written. Install it: {MissingExtraError.command('spark')}",
            kind=Kind.MISSING_EXTRA,
        ) from error
    return ".".join(number.split(".")[:2])


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
