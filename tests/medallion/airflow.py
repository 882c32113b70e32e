"""Starts a real Airflow in a folder: its own database, API server, DAG processor and scheduler, and asks it about runs."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HOME = Path(os.environ.get("SAFEWRITE_AIRFLOW") or ROOT / ".envs" / "airflow")
PARTS = (("api-server", "--workers", "1"), ("dag-processor",), ("scheduler",))
ENOUGH_S = 600
"""It may start beside a whole run of the tests, which leaves it little."""


class Airflow:
    """Airflow with the DAGs of a folder; ``with Airflow(...) as airflow: airflow.run("dag")``."""

    def __init__(self, folder: Path, dags: Path, **environment: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.folder = folder
        settings = {
            "CORE__DAGS_FOLDER": str(dags), "CORE__LOAD_EXAMPLES": "False", "CORE__EXECUTOR": "LocalExecutor", "CORE__PARALLELISM": "2", "CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{self.port}/execution/",
            "API__HOST": "127.0.0.1", "API__PORT": str(self.port), "API_AUTH__JWT_SECRET": "of a test, which nobody else asks",
            "DAG_PROCESSOR__REFRESH_INTERVAL": "5", "SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
            "SCHEDULER__ENABLE_HEALTH_CHECK": "False", "USAGE_DATA_COLLECTION__ENABLED": "False",
        }  # fmt: skip
        self.environment = {
            **{name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")},
            **{f"AIRFLOW__{name}": value for name, value in settings.items()},
            "AIRFLOW_HOME": str(folder), "PATH": f"{HOME / 'bin'}:{os.environ['PATH']}", **environment,
        }  # fmt: skip
        self._parts: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Airflow:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.command("db", "migrate")
        for part in PARTS:
            output = (self.folder / f"{part[0]}.log").open("wb")
            given = [str(HOME / "bin" / "airflow"), *part]
            self._parts.append(
                subprocess.Popen(
                    given, env=self.environment, stdout=output, stderr=output, start_new_session=True
                )
            )
            output.close()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for part in reversed(self._parts):
            part.terminate()
        for part in self._parts:
            try:
                part.wait(timeout=30)
            except subprocess.TimeoutExpired:
                os.killpg(part.pid, 9)
                part.wait(timeout=30)

    def command(self, *given: str) -> str:
        """What a command of Airflow prints."""
        done = subprocess.run(
            [str(HOME / "bin" / "airflow"), *given], env=self.environment, capture_output=True, text=True, timeout=300, check=False
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def run(self, dag: str, *, timeout_s: float) -> str:
        """Start a run of a DAG, wait for its end, and tell its state."""
        self._until(lambda: self._ask(f"dags/{dag}") is not None, ENOUGH_S, f"the DAG {dag}")
        self._ask(f"dags/{dag}", "PATCH", {"is_paused": False})
        self.last = self._ask(f"dags/{dag}/dagRuns", "POST", {"logical_date": None})["dag_run_id"]
        where = f"dags/{dag}/dagRuns/{self.last}"
        self._until(
            lambda: self._ask(where)["state"] in ("success", "failed"), timeout_s, "the end of the run"
        )
        return str(self._ask(where)["state"])

    def tasks(self, dag: str) -> list[dict[str, Any]]:
        """The task instances of the last run."""
        found: list[dict[str, Any]] = []
        while True:
            page = self._ask(f"dags/{dag}/dagRuns/{self.last}/taskInstances?limit=50&offset={len(found)}")
            found += page["task_instances"]
            if len(found) >= page["total_entries"]:
                return found

    def _ask(self, path: str, method: str = "GET", given: Any = None) -> Any:
        """The API's answer; None where there is none yet."""
        try:
            token = self._request("/auth/token", "GET", None, {})["access_token"]
            return self._request(f"/api/v2/{path}", method, given, {"Authorization": f"Bearer {token}"})
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise AssertionError(f"{method} {path}: {error.code} {error.read().decode()}") from error
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            assert method == "GET", path
            return None

    def _request(self, path: str, method: str, given: Any, headers: dict[str, str]) -> Any:
        body = None if given is None else json.dumps(given).encode()
        asked = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            body,
            {**headers, "Content-Type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return json.loads(answer.read())

    def _until(self, is_so: Any, timeout_s: float, what: str) -> None:
        end_s = time.monotonic() + timeout_s
        while not is_so():
            ended = [part.args for part in self._parts if part.poll() is not None]
            assert not ended, f"{ended} ended; see {self.folder}"
            assert time.monotonic() < end_s, f"{what} did not come in {timeout_s} s; see {self.folder}"
            time.sleep(1)
