"""Starts a benchmark's driver, hands it where everything is, and passes on what it says and finds."""

import ctypes
import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.databases import Servers
from tests.bench.measure import Goal, Line, Say, Sizes
from tests.bench.spark.s3_server import CREDENTIALS, s3_server

MARK = "@bench "  # Spark writes to the same output
CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "3g",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
    "spark.scheduler.mode": "FAIR",
    "spark.python.unix.domain.socket.enabled": "true",  # as docs/spark.md tells people to
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}


PACKAGES = {  # that Spark fetches for a section: PostgreSQL's JDBC driver, and sockets of a file system for it
    "sinks": "org.postgresql:postgresql:42.7.7,com.kohlschutter.junixsocket:junixsocket-core:2.10.1",
}


def launch(section: str, servers: Servers, sizes: Sizes, say: Say) -> list[Line]:
    """Run one section in a driver; its lines come back."""
    database = servers.fresh("SQLite")
    with s3_server(database.folder) as s3_url:
        given: dict[str, object] = {
            "metastore": database.url,
            "folder": str(database.folder),
            "storages": {"local disk": str(database.folder / "storage"), "S3": s3_url},
            "sizes": dataclasses.asdict(sizes),
        }
        os.environ["BENCH_POSTGRES"] = servers.fresh("PostgreSQL").url.replace("+psycopg", "")
        with _driver(section, given, database.folder / "driver.log") as driver:
            return list(_listen(driver, say, database.folder / "driver.log"))


@contextmanager
def _driver(section: str, given: dict[str, object], log: Path) -> Iterator["subprocess.Popen[str]"]:
    conf = CONF | ({"spark.jars.packages": PACKAGES[section]} if section in PACKAGES else {})
    options = " ".join(f"--conf {key}={value}" for key, value in conf.items())
    environment = {
        **os.environ,
        **CREDENTIALS,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": f"--master local[2] {options} pyspark-shell",
        "PYTHONPATH": str(Path(__file__).parents[3]),
        "PYTHONUNBUFFERED": "1",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(log.parent / "spark"),
    }
    with log.open("wb") as errors:
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.spark.driver", section, json.dumps(given)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
    try:
        yield driver
    finally:
        with_group(driver.pid, signal.SIGKILL)  # the JVM and the Python workers as well
        driver.wait()


def _listen(driver: "subprocess.Popen[str]", say: Say, log: Path) -> Iterator[Line]:
    assert driver.stdout is not None
    for text in driver.stdout:
        if not text.startswith(MARK):
            continue
        message = json.loads(text.removeprefix(MARK))
        if "say" in message:
            say(message["say"])
        elif "line" in message:
            line = _line(message["line"])
            say(f"→ {_sentence(line)}")  # at once: whatever happens later, this was found
            yield line
        else:
            return
    raise RuntimeError(f"The driver ended early. The end of its log:\n{log.read_text()[-4000:]}")


def _line(document: dict[str, object]) -> Line:
    goal = document.pop("goal")
    del document["is_met"]
    return Line(**document, goal=None if goal is None else Goal(**goal))  # type: ignore[arg-type]


def _sentence(line: Line) -> str:
    verdict = {None: "shown only", True: f"goal {line.goal}: met", False: f"goal {line.goal}: NOT met"}[line.is_met]
    return f"{line.what}: {line.ours} against {line.against}: {line.ratio:.3f}, {verdict}"


def die_with_parent() -> None:
    """Whatever ends the benchmark ends its processes; a JVM ends when its Python does."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def with_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return
