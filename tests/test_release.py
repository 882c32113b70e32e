"""T3-S7: what a release is made of: the wheel's content, locked runtime packages, jars with sums."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from safewrite.version import __version__

ROOT = Path(__file__).parent.parent
MAKEFILE = (ROOT / "Makefile").read_text()
SUM = re.compile(r"[0-9a-f]{64}  [\w.-]+\.jar")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The names in the wheel, as `make build` makes it."""
    from hatchling.builders.wheel import WheelBuilder

    made = next(
        WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("wheel")), versions=["standard"])
    )
    assert Path(made).name == f"safewrite_lake-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(made) as opened:
        return opened.namelist()


def test_the_wheel_has_the_packages_and_the_licence_and_nothing_else(wheel: list[str]) -> None:
    """T3-S7: no tests, locks, examples, reports or settings of a machine."""
    info = f"safewrite_lake-{__version__}.dist-info"
    assert {name.partition("/")[0] for name in wheel} == {
        "safewrite",
        "safewrite_bench",
        "pyspark_safewrite.py",
        info,
    }
    assert {f"{info}/licenses/LICENSE", f"{info}/entry_points.txt", "safewrite/py.typed"} <= set(wheel)
    endings = {Path(name).suffix for name in wheel if not name.startswith(info)}
    assert endings <= {"", ".jar", ".java", ".j2", ".lock", ".py", ".typed", ".xml"}
    assert not [
        name
        for name in wheel
        if re.search(r"(^|/)(tests?|out|\.\w+)/|\.pyc$|\.env$|\.pem$|credentials", name)
    ]


def test_the_wheel_has_of_the_benches_what_stress_runs(wheel: list[str]) -> None:
    """Benches of speed, truth runs and their servers stay in the checkout; the processes of stress run under the wheel's name."""
    shipped = [name.removeprefix("safewrite_bench/") for name in wheel if name.startswith("safewrite_bench/")]
    assert {name.partition("/")[0] for name in shipped} == {
        "__init__.py",
        "screen.py",
        "stress",
        "servers",
        "java",
    }
    assert not [name for name in shipped if re.search(r"kafka|connect|sink|avro|Producer", name)]
    for name in shipped:
        text = (ROOT / "bench" / name).read_text()
        for dots, module in re.findall(r"^ *from (\.\.+)([\w.]+) import", text, re.MULTILINE):
            wanted = (Path(name).parents[len(dots) - 1] / module.replace(".", "/")).as_posix()
            assert {f"{wanted}.py", f"{wanted}/__init__.py"} & set(shipped), f"{name} imports {module}"
        assert not re.search(r"""["'](python )?bench\.|(from|import) bench\b""", text), (
            f"{name} goes by the name `bench`"
        )


def test_every_tracked_module_of_safewrite_is_in_the_wheel(wheel: list[str]) -> None:
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "safewrite").rglob("*.py")}
    assert modules - set(wheel) == {"safewrite/spark/discovered.py"}
    assert "pyspark_safewrite.py" in wheel  # this one: Spark finds sources by such names, and nowhere deeper


def test_every_set_of_jars_has_its_sums() -> None:
    """T3-S7: Maven's jars of tests were run as they came."""
    targets = re.findall(r"^\$\(JARS\)/([\w./-]+)/\.copied:", MAKEFILE, re.MULTILINE)
    named = re.search(r"^JAR_SETS := (.*)$", MAKEFILE, re.MULTILINE)
    assert named
    assert sorted(targets) == sorted(named[1].split())
    for target in targets:
        lines = (
            (ROOT / "requirements/jar-sums" / f"{target.replace('/', '-')}.sha256").read_text().splitlines()
        )
        assert lines
        assert [line for line in lines if not SUM.fullmatch(line)] == []
        assert len({line.split()[1] for line in lines}) == len(lines)


def test_jars_are_compared_with_their_sums_before_they_are_there() -> None:
    copy = MAKEFILE[MAKEFILE.index("define copy-jars") :]
    assert (
        copy.index("dependency:copy-dependencies") < copy.index("sha256sum") < copy.index("mv $(@D).partial")
    )


def test_what_users_need_is_locked_as_development_has_it() -> None:
    """The SBOM is made of this lock: another version there would be one that no test has seen."""
    pins = re.compile(r"^([\w.-]+)==(\S+)", re.MULTILINE)
    runtime, dev = (
        dict(pins.findall((ROOT / "requirements" / f"{name}.txt").read_text())) for name in ("runtime", "dev")
    )
    assert len(runtime) > 30
    assert {name: version for name, version in runtime.items() if dev.get(name) != version} == {}
    assert not {"pytest", "ruff", "mypy", "cyclonedx-bom"} & set(runtime)


def test_an_audit_that_cannot_judge_does_not_pass() -> None:
    audit = MAKEFILE[MAKEFILE.index("\naudit:") :].split("\n\n", 1)[0]
    assert "--strict" in audit
    assert "exit 1" in audit
    assert "|| true" not in audit


def test_the_policy_says_whom_to_tell_what_is_trusted_and_what_is_not_handled() -> None:
    """T3-S7"""
    policy = (ROOT / "SECURITY.md").read_text()
    assert re.findall(r"^## (.*)$", policy, re.MULTILINE)[0] == "Whom to tell"
    for word in (
        "log of a Delta table",
        "catalog",
        "ledger",
        "onfigurations",
        "What is not handled",
        "pickle",
    ):
        assert word in policy
    assert (ROOT / "docs" / "security.md").read_text() == policy
    assert "security.md" in (ROOT / "mkdocs.yml").read_text()


def test_what_pip_may_install_beside_numpy_1_can_be_imported() -> None:
    """T4-E1: pyarrow 26 imports with NumPy 2 only and does not say so: `make test-numpy-1` runs what the bounds allow."""
    bounds = [
        Requirement(one)
        for one in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    ]
    by_python = {
        python: {
            one.name: one.specifier
            for one in bounds
            if one.marker is None or one.marker.evaluate({"python_version": python})
        }
        for python in ("3.11", "3.12", "3.13")
    }
    assert [python for python, found in by_python.items() if "26.0.0" in found["pyarrow"]] == [
        "3.13"
    ]  # which has no NumPy 1
    run = dict(
        re.findall(r"^(\S+)==(\S+) ", (ROOT / "requirements/arm-numpy-1.txt").read_text(), re.MULTILINE)
    )
    assert all(run[name] in by_python["3.11"][name] for name in ("numpy", "pyarrow", "boto3"))
    assert run["numpy"].startswith("1.")


def test_libraries_that_do_not_go_together_are_told_in_one_line() -> None:
    """T4-E1: a raw ImportError of pyarrow's met who had NumPy 1."""
    broken = "import sys; sys.modules['pyarrow'] = None; sys.argv = ['safewrite', 'doctor', 'x']\n"
    for use in (
        "from safewrite.cli import main; main()",
        "import safewrite as sw\ntry: sw.open\nexcept sw.MissingExtraError as error: sys.exit(str(error))",
    ):
        done = subprocess.run(
            [sys.executable, "-c", broken + use], capture_output=True, text=True, check=False
        )
        assert done.returncode in (1, 2)
        assert "pip then takes versions that go together" in done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
