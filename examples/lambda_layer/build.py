"""Builds a Lambda layer of safewrite and what its Delta tables need, trimmed to what they use.

    make lambda-layer

The versions are those of requirements/lambda-layer.txt.  Iceberg is not in it: its writers take a container image.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LAMBDA_BYTES_MAX = 262_144_000
"""What Lambda takes, unzipped, of a function and its layers together."""
LAYER_BYTES_MAX = 215_000_000
"""What this layer may have of them: the rest is for the function's own code."""
ZIP_BYTES_MAX = 65_000_000
SERVICES = ("dynamodb", "glue", "lambda", "s3", "sqs", "sso", "sso-oidc", "sts")
"""The services that safewrite, its credentials and most handlers call; botocore describes four hundred."""
MOUNT = "/opt/python"
"""Where Lambda puts it, so what tracebacks name."""
# The wheels with this tag run on Amazon Linux 2 (glibc 2.26), that is in python3.11, and in all later runtimes.
PLATFORM = "x86_64-manylinux2014"

DROPPED = (
    "bin/*", "*.lock", "*/tests/*", "*.a", "*.c", "*.cc", "*.h", "*.hpp", "*.pxd", "*.pxi", "*.pyi", "*.pyx",
    "*/__pycache__/*", "boto3/examples/*", "numpy/distutils/*", "numpy/f2py/*",
    "pyarrow/include/*", "pyarrow/src/*", "pyarrow/*_flight*", "pyarrow/*gandiva*", "pyarrow/*_pyarrow_cpp_tests*",
    "pyarrow/*parquet_encryption*", "pyarrow/libarrow_s3.*", "pyarrow/_s3fs.*", "pyarrow/_gcsfs.*", "pyarrow/_azurefs.*",
    "pyarrow/_hdfs.*", "pyarrow/_orc.*", "pyarrow/_dataset_orc.*", "pyarrow/_cuda*", "pyarrow/_substrait.*",
    "safewrite_bench/*", "safewrite/iceberg/*", "safewrite/spark/jars/*", "safewrite/spark/java/*", "safewrite/*/spark/*", "safewrite/cdc/*", "safewrite/medallion/*", "safewrite/intake/*",
    "safewrite/testing/faults.py", "safewrite/testing/replies.py", "safewrite/testing/explorer/*", "safewrite/testing/crosscheck/*", "safewrite/cli/*",
)  # fmt: skip
"""Patterns of paths; libarrow_substrait, _dataset and _acero stay, for libarrow_python is linked to them."""


def files(python: Path) -> list[Path]:
    """All files of a layer, in one order everywhere."""
    return sorted(path for path in python.rglob("*") if path.is_file())


def size(python: Path) -> int:
    """Bytes of a folder, unzipped, as Lambda counts them."""
    return sum(path.stat().st_size for path in files(python))


def install(python: Path, uv: str, interpreter: str) -> None:
    """Put the locked packages and this repository's own wheel into the folder, for Lambda's Linux."""
    wheels = python.parent / "dist"
    subprocess.run(
        [uv, "build", "--quiet", "--wheel", "--python", sys.executable, "--no-build-isolation", "--out-dir", wheels, ROOT],
        check=True,
    )  # fmt: skip
    (wheel,) = wheels.glob("*.whl")
    target = [
        uv, "pip", "install", "--quiet", "--no-deps", "--target", python, "--python", interpreter,
        "--python-platform", PLATFORM,
    ]  # fmt: skip
    locked = ROOT / "requirements" / "lambda-layer.txt"
    subprocess.run([*target, "--only-binary", ":all:", "--require-hashes", "-r", locked], check=True)
    subprocess.run([*target, wheel], check=True)


def trim(python: Path) -> None:
    """Remove what no Delta append and no handler of ours loads."""
    for path in files(python):
        if is_dropped(path.relative_to(python)):
            path.unlink()
    for path in _repeated(python / "pyarrow"):
        path.unlink()
    for path in sorted(python.rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()


def is_dropped(path: Path) -> bool:
    """Whether the layer goes without this file; the path is relative to the layer."""
    name = path.as_posix()
    if path.parts[:2] == ("botocore", "data") and len(path.parts) > 3:
        return path.parts[2] not in SERVICES
    return any(fnmatchcase(name, pattern) for pattern in DROPPED)


def _repeated(folder: Path) -> Iterator[Path]:
    """Shared libraries under a second and third name; a wheel has no links, and the loader wants NAME.so.MAJOR."""
    for path in folder.glob("*.so.*.*.*"):
        stem, _, numbers = path.name.partition(".so.")
        if (folder / f"{stem}.so.{numbers.partition('.')[0]}").exists():
            yield path
            if (folder / f"{stem}.so").exists():
                yield folder / f"{stem}.so"


def compiled(python: Path, interpreter: str) -> None:
    """Compile ahead, for a layer cannot be written to: without this each cold start compiles a thousand modules."""
    subprocess.run(
        [
            interpreter, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "-s", python, "-p", MOUNT, python,
        ],
        check=True,
    )  # fmt: skip


def zipped(python: Path, target: Path) -> None:
    """Zip a layer; the same bytes for the same files."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in files(python):
            entry = zipfile.ZipInfo(f"python/{path.relative_to(python).as_posix()}", (1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o755 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())


def report(python: Path) -> Iterable[str]:
    """Sizes, the largest package first."""
    sizes: dict[str, int] = {}
    for path in files(python):
        name = path.relative_to(python).parts[0].removesuffix(".libs").partition("-")[0]
        sizes[name] = sizes.get(name, 0) + path.stat().st_size
    for name, count in sorted(sizes.items(), key=lambda item: -item[1]):
        if count > 500_000:
            yield f"{count:>12,}  {name}"
    yield f"{sum(sizes.values()):>12,}  in all, unzipped; Lambda takes {LAMBDA_BYTES_MAX:,} with the function"


def main() -> None:
    """Build, trim, compile and zip; exit 1 where it is larger than it may be."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="made anew: FOLDER/python, FOLDER/safewrite-layer.zip")
    parser.add_argument("--uv", default="uv", help="the command uv")
    parser.add_argument(
        "--python", default=sys.executable, help="the interpreter whose runtime the layer is for"
    )
    given = parser.parse_args()
    shutil.rmtree(given.folder, ignore_errors=True)
    python, archive = given.folder.resolve() / "python", given.folder / "safewrite-layer.zip"
    python.mkdir(parents=True)
    install(python, given.uv, given.python)
    whole = size(python)
    trim(python)
    compiled(python, given.python)
    zipped(python, archive)
    print(*report(python), sep="\n")
    print(f"{whole:>12,}  before it was trimmed and compiled\n{archive.stat().st_size:>12,}  {archive}")
    if size(python) > LAYER_BYTES_MAX or archive.stat().st_size > ZIP_BYTES_MAX:
        sys.exit(f"Too large: at most {LAYER_BYTES_MAX:,} unzipped, {ZIP_BYTES_MAX:,} zipped.")


if __name__ == "__main__":
    main()
