"""The Lambda layer: its size in bytes, and that Delta tables can be written with nothing else on the path."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import deltalake
import pytest

from bench.servers.servers import Ministack
from examples.lambda_layer import build

ROOT = Path(__file__).resolve().parents[2]
UV = Path(os.environ.get("SAFEWRITE_ARMS_DIR", ROOT / ".envs")) / "uv" / "bin" / "uv"
LOCKED = re.findall(
    r"^([a-z0-9-]+)==", (ROOT / "requirements" / "lambda-layer.txt").read_text(), re.MULTILINE
)
BYTECODE = 20_000_000
"""What compiling adds at most; the quick form leaves it out."""
SAFEWRITE_BYTES_MAX = 2_400_000


def linked(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy(source, target)


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The layer as it would be of the packages that are installed here: nothing is downloaded."""
    python = tmp_path_factory.mktemp("layer") / "python"
    for name in LOCKED:
        for file in distribution(name).files or ():
            source = Path(str(file.locate()))
            if ".." not in file.parts and source.is_file():
                linked(source, python / file)
    for source in (ROOT / "safewrite").rglob("*"):
        if source.is_file():
            linked(source, python / source.relative_to(ROOT))
    build.trim(python)
    return python


def check(python: Path, uri: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    """Run the check of the layer in an interpreter that knows no other packages, and no variables of ours."""
    config = json.dumps({"layer": str(python), "uri": uri, "settings": settings})
    command = [sys.executable, "-I", "-S", "-B", ROOT / "examples" / "lambda_layer" / "check.py"]
    return subprocess.run(
        command, input=config, capture_output=True, text=True, check=False, timeout=300, env={}
    )


def judge(done: subprocess.CompletedProcess[str], uri: str, options: dict[str, str] | None = None) -> None:
    """The writes did what they say, by another reader, and loaded nothing from outside."""
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["outcomes"] == ["committed", "already_committed"]
    assert said["answers"] == [
        {"batchItemFailures": []}, {"batchItemFailures": [{"itemIdentifier": "m-4"}]}
    ]  # fmt: skip
    assert said["strangers"] == []
    assert "pyarrow._parquet" in said["extensions"]
    rows = deltalake.DeltaTable(uri, storage_options=options).to_pyarrow_table().sort_by("id").to_pylist()
    assert rows == [{"id": 1, "name": "one"}, {"id": 2, "name": "two"}, {"id": 3, "name": None}]


def test_the_trimmed_layer_is_small_enough(layer: Path) -> None:
    assert build.LAYER_BYTES_MAX <= 215_000_000 < build.LAMBDA_BYTES_MAX == 250 * 2**20
    assert build.size(layer) + BYTECODE <= build.LAYER_BYTES_MAX


def test_safewrite_itself_stays_small(layer: Path) -> None:
    assert 500_000 < build.size(layer / "safewrite") < SAFEWRITE_BYTES_MAX


def test_a_delta_table_on_s3_is_written_with_nothing_but_the_layer(
    layer: Path, ministack: Ministack, bucket: str, dynamodb_table: str
) -> None:
    uri, options = f"s3://{bucket}/orders", ministack.storage_options()
    done = check(layer, uri, lock_table=dynamodb_table, storage_options=options)
    judge(done, uri, options)


def test_an_iceberg_table_is_refused_in_the_layer_with_where_to_go(layer: Path) -> None:
    program = "import safewrite as sw\ntry: sw.open('a.b', catalog={'type': 'glue'})\nexcept sw.MissingExtraError as error: print(error)"
    said = subprocess.run(
        [sys.executable, "-S", "-c", program],
        cwd=layer, env={}, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert "container image" in said.stdout


def test_a_library_that_is_missing_is_noticed(layer: Path, tmp_path: Path) -> None:
    broken = tmp_path / "python"
    shutil.copytree(layer, broken, copy_function=os.link)
    for path in (broken / "pyarrow").glob("libarrow_dataset.so.*"):
        path.unlink()
    assert "libarrow_dataset" in check(broken, str(tmp_path / "orders")).stderr


@pytest.mark.long
def test_a_module_from_elsewhere_is_noticed(layer: Path, tmp_path: Path) -> None:
    """Of a layer without powertools, and a site-packages folder that has them."""
    partial, elsewhere, uri = tmp_path / "python", tmp_path / "site-packages", str(tmp_path / "orders")
    shutil.copytree(layer, partial, copy_function=os.link)
    elsewhere.mkdir()
    (partial / "aws_lambda_powertools").rename(elsewhere / "aws_lambda_powertools")
    assert "aws-lambda-powertools, which is not installed" in check(partial, uri).stderr
    module = partial / "safewrite" / "aws_lambda" / "__init__.py"
    first, text = "from __future__ import annotations\n", module.read_text()
    assert first in text
    module.unlink()  # a link to the original
    module.write_text(text.replace(first, f"{first}import sys\n\nsys.path.append({str(elsewhere)!r})\n", 1))
    shutil.rmtree(uri)
    strangers = json.loads(check(partial, uri).stdout.splitlines()[-1])["strangers"]
    assert strangers
    assert all(path.startswith(str(elsewhere)) for path in strangers)


@pytest.mark.parametrize(
    ("name", "dropped"),
    [
        ("botocore/data/s3/2006-03-01/service-2.json.gz", False),
        ("botocore/data/ec2/2016-11-15/service-2.json.gz", True),
        ("botocore/data/endpoints.json", False),
        ("botocore/cacert.pem", False),
        ("numpy/lib/tests/test_io.py", True),
        ("numpy/testing/__init__.py", False),
        ("pyarrow/libarrow_flight.so.2600", True),
        ("pyarrow/libarrow_python.so.2600", False),
        ("safewrite/testing/checker.py", False),
        ("safewrite/testing/explorer/models.py", True),
        ("safewrite/iceberg/table.py", True),  # a container image has it
        ("safewrite/protocol/iceberg/head.py", False),
        ("safewrite/cli/app.py", True),  # its libraries are not there
        ("safewrite/py.typed", False),
    ],
)
def test_what_is_dropped(name: str, dropped: bool) -> None:
    assert build.is_dropped(Path(name)) is dropped


def test_the_lock_of_the_layer_holds_what_safewrite_needs() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["lambda"]]
    asked = (ROOT / "requirements" / "lambda-layer.in").read_text().splitlines()
    assert sorted(wanted) == sorted(line for line in asked if line and not line.startswith("#"))


@pytest.mark.long
def test_the_layer_of_the_lock_is_built_and_written_with(
    tmp_path: Path, ministack: Ministack, bucket: str, dynamodb_table: str
) -> None:
    """As ``make lambda-layer`` does: with Lambda's older pyarrow and numpy, compiled and zipped; it downloads them."""
    command = [sys.executable, "-m", "examples.lambda_layer.build", tmp_path / "out", "--uv", UV]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert build.size(tmp_path / "out" / "python") <= build.LAYER_BYTES_MAX
    assert (tmp_path / "out" / "safewrite-layer.zip").stat().st_size <= build.ZIP_BYTES_MAX
    uri, options = f"s3://{bucket}/orders", ministack.storage_options()
    settings = {"lock_table": dynamodb_table, "storage_options": options}
    judge(check(tmp_path / "out" / "python", uri, **settings), uri, options)
