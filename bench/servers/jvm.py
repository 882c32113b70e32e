"""Starts servers on Java; a pom names their jars and Maven copies them, once."""

from __future__ import annotations

import os
import shutil
import subprocess
from abc import abstractmethod
from pathlib import Path

from .servers import Server, ServerError

_JAVA_DIR = Path(__file__).resolve().parents[1] / "java"
# A server of a test lives for minutes: what the second compiler takes it never gives back.
_SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class JvmServer(Server):
    """A server in a Java virtual machine; needs Java 17, and Maven the first time.

    ``jars_dir`` keeps its jars; by default ``jars/NAME`` next to this package, or under the folder
    that the environment variable ``SAFEWRITE_JARS`` names.
    """

    title: str
    pom: str
    main_jar: str
    """A pattern of the jar without which the others are of no use."""
    main: str
    """The server's program: a class of its jars, or a Java source of ours that Java compiles as it runs it."""

    def __init__(
        self, run_dir: Path | str, *, jars_dir: Path | str | None = None, start_timeout_s: float = 120.0
    ) -> None:
        super().__init__(run_dir, start_timeout_s=start_timeout_s)
        default = Path(os.environ.get("SAFEWRITE_JARS", _JAVA_DIR.parents[1] / "jars")) / self.name
        self.jars_dir = Path(jars_dir or default).resolve()

    @abstractmethod
    def _arguments(self) -> tuple[list[str], list[str]]:
        """The arguments for Java and those for ``main``."""

    def _command(self) -> tuple[list[str], dict[str, str]]:
        home = os.environ.get("JAVA_HOME")
        java = (home and shutil.which("java", path=f"{home}/bin")) or shutil.which("java")
        if java is None:
            raise ServerError(f"{self.title} needs Java 17: apt-get install openjdk-17-jre-headless")
        self._copy_jars()
        for_java, for_main = self._arguments()
        main = str(_JAVA_DIR / self.main) if self.main.endswith(".java") else self.main
        return [java, *_SHORT_LIVED, *for_java, "-cp", f"{self.jars_dir}/*", main, *for_main], {}

    def _copy_jars(self) -> None:
        if any(self.jars_dir.glob(self.main_jar)):
            return
        # Into a folder of our own, renamed when whole: a cut download must not pass for the cache.
        partial = self.jars_dir.with_name(f"{self.jars_dir.name}.{os.getpid()}")
        command = ["mvn", "-q", "-B", "-f", str(_JAVA_DIR / self.pom), "dependency:copy-dependencies"]
        command += [f"-DoutputDirectory={partial}"]
        maven = shutil.which("mvn")
        if maven is None:
            raise ServerError(f"{self.title} needs Maven, once, for its jars: apt-get install maven")
        done = subprocess.run([maven, *command[1:]], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ServerError(f"this failed: {' '.join(command)}\n{done.stdout[-2000:]}")
        try:
            partial.rename(self.jars_dir)
        except OSError:  # another process was faster
            shutil.rmtree(partial)


class DynamoDBLocal(JvmServer):
    """Amazon's own DynamoDB for one machine, in memory."""

    name = "dynamodb-local"
    services = frozenset({"dynamodb"})
    title = "DynamoDB Local"
    pom = "dynamodb_local.pom.xml"
    main_jar = "DynamoDBLocal-*.jar"
    main = "DdbLoopback.java"

    def _arguments(self) -> tuple[list[str], list[str]]:
        for_main = ["-inMemory", "-sharedDb", "-disableTelemetry", "-port", str(self.port)]
        return ["-Xmx512m", f"-Djava.library.path={self.jars_dir}"], for_main

    def _command(self) -> tuple[list[str], dict[str, str]]:
        command, _ = super()._command()
        return command, {"DDB_LOCAL_TELEMETRY": "0"}
