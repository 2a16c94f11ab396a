"""A real Airflow whose connection leads to a store that the test reads as well."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from airflow_provider_ckpt.metastore import open_metastore
from airflow_provider_ckpt.protocol.records import Attempt, AttemptStatus
from airflow_provider_ckpt.testing.airflow import COMPONENTS, Airflow, until
from tests.harness.nursery import NURSERY
from tests.harness.processes import signal_session

DAGS = Path(__file__).parents[2] / "dags"
_LOADED_BEFORE_TASKS = """
import sys

__all__ = []
if "scheduler" in sys.argv:  # every task is a fork of its executor: what it has loaded, no task loads again
    import airflow.sdk.execution_time.task_runner
    import airflow_provider_ckpt.dag_factory
    import airflow_provider_ckpt.hooks.ckpt
    import airflow_provider_ckpt.coordinator.restore
    import airflow_provider_ckpt.metastore
    import airflow_provider_ckpt.sensors.acks
    import airflow_provider_ckpt.sensors.pipeline
    import airflow_provider_ckpt.storage.opening
"""


class Stage(Airflow):
    """One Airflow with its pipelines."""

    def __init__(
        self,
        folder: Path,
        dags: Path,
        metastore_url: str,
        *,
        environment: Mapping[str, str],
        database_url: str | None = None,
    ) -> None:
        extra = {"storage": str(folder / "storage"), "work": str(folder / "work")}
        connections = {
            "AIRFLOW_CONN_CKPT_DEFAULT": json.dumps({"conn_type": "ckpt", "password": metastore_url, "extra": extra}),
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
            "PYSPARK_PYTHON": NURSERY.python,
        }
        super().__init__(folder, dags, environment={**connections, **environment}, database_url=database_url)
        (folder / "config").mkdir(exist_ok=True)
        (folder / "config" / "airflow_local_settings.py").write_text(_LOADED_BEFORE_TASKS)
        self.metastore_url = metastore_url
        self.store = open_metastore(metastore_url)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill_drivers()
        super().__exit__(kind, error, trace)

    def kill_drivers(self) -> list[int]:
        """All at once: a Python that sees its JVM die would say so."""
        pids = self.drivers()
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for session in [each for pid in pids for each in (pid, *NURSERY.sessions_of(pid))]:
                signal_session(session, number)
        return pids

    def migrate(self) -> None:
        """A copy of a database that one test of this run has made; on PostgreSQL each makes its own."""
        if "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN" in self.environment:
            return super().migrate()
        template = Path(tempfile.gettempdir()) / "airflow-template"
        template.mkdir(exist_ok=True)
        with (template / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (template / "airflow.db").exists():
                super().migrate()
                (self.folder / "airflow.db").rename(template / "airflow.db")
        shutil.copy(template / "airflow.db", self.folder)
        return None

    def attempt(self, pipeline: str) -> Attempt | None:
        """The current one."""
        if not any(each.name == pipeline for each in self.store.pipelines.all()):
            return None
        number = self.store.pipelines.get(pipeline).current_attempt
        return None if number is None else self.store.attempts.get(pipeline, number)

    def until_running(self, pipeline: str, attempt: int) -> None:
        """Until at least this attempt runs, and has committed a batch of its own."""

        def is_running() -> bool:
            current = self.attempt(pipeline)
            if current is None or current.number < attempt or current.status is not AttemptStatus.RUNNING:
                return False
            return self.store.events.last(pipeline, "attempt.progressed", attempt=current.number) is not None

        until(is_running, f"attempt {attempt} of {pipeline} runs", self.say)

    def until_completed(self, pipeline: str, count: int) -> None:
        """Until so many checkpoints more have completed."""
        position, kinds = self.store.events.position(pipeline), frozenset({"checkpoint.completed"})
        until(
            lambda: len(self.store.events.since({pipeline: position}, kinds)) >= count,
            f"{count} checkpoints of {pipeline} complete",
            self.say,
        )

    def ckpt(self, *arguments: str) -> str:
        """Run the command as a person would, and give what it printed."""
        command = [sys.executable, "-m", "airflow_provider_ckpt.cli", *arguments]
        environment = {**os.environ, "CKPT_METASTORE": self.metastore_url, "COLUMNS": "200"}
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
        return ran.stdout

    def say(self) -> str:
        """What a person would look at first, for an assertion that fails."""
        lines = []
        for component in COMPONENTS:
            lines += [f"--- {component}", (self.folder / f"{component}.log").read_text()[-1500:]]
        for pipeline in self.store.pipelines.all():
            for task in ("decide", "approve", "restore"):
                lines += [f"--- {pipeline.name}__restore {task}", self.logs(f"{pipeline.name}__restore", task)[-1500:]]
            lines.append(f"--- {pipeline.name}")
            events = self.store.events.newest(pipeline.name, limit=40)
            lines += [
                f"{each.at:%H:%M:%S} {each.kind} {each.attempt} {each.checkpoint} {each.reason}" for each in events
            ]
        return "\n".join(lines)
