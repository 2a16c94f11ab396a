"""A stage for real drivers: a store, a storage and a work folder, and Spark programs in processes of their own."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.coordinator.follow import follow
from airflow_provider_ckpt.coordinator.restore import Restored, RestoreOptions, restore
from airflow_provider_ckpt.metastore import Metastore, open_metastore
from airflow_provider_ckpt.protocol.errors import TryAgain
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import Attempt, AttemptStatus, Checkpoint, DesiredState, TriggerRequest
from airflow_provider_ckpt.protocol.recovery import Target
from airflow_provider_ckpt.protocol.settings import Settings
from airflow_provider_ckpt.storage.opening import open_storage
from tests.harness.nursery import NURSERY, Fork, die_with_parent
from tests.harness.processes import Process, of_session, signal_session
from tests.harness.quick_spark import use_plain_files
from tests.harness.warm_jvm import POOL, Jvm, die_together

NAME = "orders"
LOCAL = "local[2]"
PROGRAMS = Path(__file__).parent / "programs"
QUIET = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    "spark.sql.streaming.stateStore.maintenanceInterval": "3s",
    "spark.log.level": "WARN",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.scheduler.mode": "FAIR",
}


@dataclass
class Driver:
    """A Spark program in its own session, and the JVM that it uses, if that was there before."""

    process: Fork | subprocess.Popen[bytes]
    log: Path
    jvm: Jvm | None = None
    is_spared: threading.Event = field(default_factory=threading.Event)  # its JVM outlives it

    def kill(self) -> None:
        """kill -9, the JVM and the Python workers as well."""
        self._signal(signal.SIGKILL)
        self.process.wait()
        if self.jvm is not None:
            self.jvm.kill()

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Its Python first, as when one starts the other: the agent looks whether it was replaced."""
        for session in reversed(self._sessions):
            signal_session(session, signal.SIGCONT)

    def end(self) -> None:
        """At the end of a test, when nobody looks any more: what still runs is killed, and its JVM serves others."""
        self.thaw()
        self.is_spared.set()
        signal_session(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self.jvm is not None:
            POOL.give_back(self.jvm)
            self.jvm = None

    def processes(self) -> list[Process]:
        return [process for session in self._sessions for process in of_session(session)]

    def _signal(self, number: int) -> None:
        for session in self._sessions:
            signal_session(session, number)

    @property
    def _sessions(self) -> list[int]:
        """Of its JVM and that one's Python workers, then of itself."""
        own = self.process.pid
        return [own] if self.jvm is None else [self.jvm.session, *NURSERY.sessions_of(self.jvm.session), own]

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def wait(self, timeout: float = 240) -> int:
        """Until it has ended; its JVM then serves others, unless it was killed."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"The driver still runs. Its log:\n{self.said()}") from None
        if code >= 0:
            self.end()
        return code

    def said(self) -> str:
        return self.log.read_text()[-40_000:]


def _start(command: list[str], environment: dict[str, str], out: int) -> Fork | subprocess.Popen[bytes]:
    """As a fork, if it is Python."""
    if command[0] == sys.executable:
        with Path(os.devnull).open("rb") as nothing:
            return NURSERY.start(command[1:], environment, stdin=nothing.fileno(), stdout=out, stderr=out)
    return subprocess.Popen(
        command, env=environment, stdout=out, stderr=out, start_new_session=True, preexec_fn=die_with_parent
    )


@dataclass
class Stage:
    folder: Path
    url: str
    storage_url: str
    settings: Settings = field(default_factory=Settings)
    master: str = LOCAL
    driver_url: str | None = None  # where drivers find the store; None: where the test finds it
    environment: dict[str, str] = field(default_factory=dict)  # of drivers, besides the usual
    is_made: bool = True  # False: the pipeline comes from elsewhere
    drivers: list[Driver] = field(default_factory=list)
    store: Metastore = field(init=False)
    context: Context = field(init=False)

    def __post_init__(self) -> None:
        self.store = open_metastore(self.url)
        self.context = Context(store=self.store, storage=open_storage(self.storage_url), actor="tester")
        if self.is_made:
            self.store.pipelines.create(NAME, self.settings, identity="test", actor="tester")

    @property
    def work(self) -> Path:
        return self.folder / "work"

    def attempt_folder(self, attempt: int) -> Path:
        return self.work / NAME / str(attempt)

    def freeze(self, driver: Driver) -> None:
        """Stop a driver for good, but not while it holds SQLite's lock: that would stop everybody."""
        for _ in range(20):
            driver.freeze()
            try:
                self.store.pipelines.desire(NAME, DesiredState.RUNNING, actor="tester")
            except TryAgain:
                driver.thaw()
                time.sleep(0.3)
            else:
                return
        raise AssertionError("the driver holds the lock whenever it is stopped")

    def start(
        self,
        program: str,
        *arguments: object,
        conf: Mapping[str, str] | None = None,
        is_plain: bool = False,
        secrets: Mapping[str, str] | None = None,
    ) -> Driver:
        """Start a program of `programs/`; plain means without a pipeline, secrets come in a file for its owner alone.

        A driver with secrets is not told by its environment where the store is.
        """
        told = self._told(is_plain=is_plain) | dict(conf or {})
        command = [sys.executable, str(PROGRAMS / f"{program}.py"), *map(str, arguments)]
        environment = {**self._environment(), **self.environment}
        if secrets is None and self.master == LOCAL:
            return self._launch_warm(command, environment, told)
        use_plain_files(environment)
        options = " ".join(f"--conf {shlex.quote(f'{key}={value}')}" for key, value in told.items())
        if secrets is not None:
            options += f" --properties-file {shlex.quote(str(self._write_secrets(secrets)))}"
            del environment["CKPT_METASTORE"]
        environment["PYSPARK_SUBMIT_ARGS"] = f"--master {self.master} {options} pyspark-shell"
        return self._launch(command, environment)

    def submit(self, spark_submit: str, program: Path, *arguments: object) -> Driver:
        """Hand any program to spark-submit."""
        options = [word for key, value in self._told().items() for word in ("--conf", f"{key}={value}")]
        command = [spark_submit, "--master", self.master, *options, str(program), *map(str, arguments)]
        environment = self._environment()
        use_plain_files(environment)
        return self._launch(command, environment)

    def _told(self, *, is_plain: bool = False) -> dict[str, str]:
        told = {} if is_plain else {"spark.ckpt.pipeline": NAME, "spark.ckpt.storage": self.storage_url}
        return told | {"spark.ckpt.work": str(self.work), **QUIET}

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "CKPT_METASTORE": self.driver_url or self.url,
            "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }

    def _launch_warm(self, command: list[str], environment: dict[str, str], conf: dict[str, str]) -> Driver:
        """In a JVM that may have served others; its Python workers get their environment through Spark."""
        jvm = POOL.take()
        environment = {**environment, "PYSPARK_PYTHON": NURSERY.python}
        inherited = {
            f"spark.executorEnv.{name}": value
            for name, value in environment.items()
            if jvm.environment.get(name) != value
        }
        driver = self._launch(command, environment | jvm.lend({"spark.master": self.master, **inherited, **conf}))
        driver.jvm = jvm
        link = driver.log.with_suffix(".jvm.log")
        link.unlink(missing_ok=True)  # another stage may have used this folder
        link.symlink_to(jvm.log)
        die_together(driver.process, jvm, driver.is_spared)
        return driver

    def _launch(self, command: list[str], environment: dict[str, str]) -> Driver:
        log = self.folder / f"driver-{len(self.drivers)}.log"
        with log.open("wb") as out:
            driver = Driver(_start(command, environment, out.fileno()), log)
        self.drivers.append(driver)
        return driver

    def _write_secrets(self, secrets: Mapping[str, str]) -> Path:
        file = self.folder / "secrets.properties"
        file.touch(mode=0o600)
        file.write_text("".join(f"{key} {value}\n" for key, value in secrets.items()))
        return file

    def close(self) -> None:
        for driver in self.drivers:
            driver.end()
        self.store.close()

    # the store

    def attempt(self) -> Attempt | None:
        number = self.store.pipelines.get(NAME).current_attempt
        return None if number is None else self.store.attempts.get(NAME, number)

    def committed(self, query: str, attempt: int = 1) -> int:
        """The newest batch that a query has committed; -1 before the first."""
        folder = self.attempt_folder(attempt) / "queries" / query / "commits"
        return max((int(each.name) for each in folder.glob("[0-9]*")), default=-1)

    def until(self, condition: Callable[[], object], driver: Driver | None = None, timeout: float = 180) -> None:
        give_up = time.monotonic() + timeout
        while not condition():
            in_time = time.monotonic() < give_up
            assert in_time, f"It did not come to that in {timeout} s.\n{driver.said() if driver else ''}"
            assert driver is None or not driver.has_ended, f"The driver has ended.\n{driver.said()}"
            time.sleep(0.1)

    def running(self, driver: Driver) -> Attempt:
        self.until(lambda: (a := self.attempt()) is not None and a.status is AttemptStatus.RUNNING, driver)
        attempt = self.attempt()
        assert attempt is not None
        return attempt

    def trigger(self, *, savepoint: str | None = None) -> Checkpoint:
        request = TriggerRequest(
            pipeline=NAME, key=f"k{time.monotonic_ns()}", requested_by="tester", savepoint=savepoint
        )
        triggered = self.store.barriers.trigger(request)
        assert triggered.checkpoint is not None, triggered.detail
        return triggered.checkpoint

    def checkpoint(self, driver: Driver, *, savepoint: str | None = None, timeout: float = 120) -> Checkpoint:
        """Take one and see it completed."""
        ended = follow(self.context, self.trigger(savepoint=savepoint).ref, timeout=timeout)
        assert ended.phase is Phase.COMPLETED, f"{ended.phase}: {ended.failure}\n{driver.said()}"
        return ended

    def restore(self, *, to: int | None = None, is_rewind: bool = True) -> Restored:
        options = RestoreOptions(target=Target(id=to, rewind=is_rewind and to is None), is_proven_dead=True)
        return restore(self.context, NAME, options)

    def ckpt(self, *arguments: str) -> str:
        """Run the command, and give what it printed."""
        command = [sys.executable, "-m", "airflow_provider_ckpt.cli", "--storage", self.storage_url, *arguments]
        environment = {**self._environment(), "CKPT_METASTORE": self.url, "CKPT_WORK": str(self.work), "COLUMNS": "200"}
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    def delete_work(self, attempt: int) -> None:
        shutil.rmtree(self.attempt_folder(attempt))


def quick_to_die(settings: Settings) -> Settings:
    """For a pipeline whose dead driver nobody waits for."""
    return replace(settings, attempt_ttl=timedelta(seconds=6))


def feed(folder: Path, files: int, rows: int = 40, start: int = 0) -> None:
    """Input files in a known order: each is one batch."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(start, start + files):
        partial = folder / f".{number}"
        partial.write_text("\n".join(json.dumps(row) for row in _rows(number, rows)))
        os.utime(partial, (1_700_000_000 + number, 1_700_000_000 + number))
        partial.rename(folder / f"{number:05}.json")


def _rows(file: int, rows: int) -> Iterator[dict[str, object]]:
    for row in range(rows):
        seconds = file * 15 + row % 15
        yield {
            "k": row % 7,
            "v": file * 50 + row,
            "u": (file * 31 + row) % 60,
            "t": f"2026-01-01T00:{seconds // 60:02}:{seconds % 60:02}Z",
        }


def outputs(folder: Path) -> dict[str, str]:
    """What every batch of every query has written."""
    return {
        str(file.relative_to(folder)): file.read_text()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and not file.name.startswith(".")
    }


@contextmanager
def staged(stage: Stage) -> Iterator[Stage]:
    try:
        yield stage
    finally:
        stage.close()
