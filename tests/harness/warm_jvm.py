"""JVMs with Spark in them that outlive the Python drivers which use them, one after the other.

A cold JVM costs more processor than all that most drivers of tests do. A Python driver finds one that already runs by
`PYSPARK_GATEWAY_PORT`, as it does below `spark-submit`; its configuration comes through system properties, as there.
When a driver ends by itself, its Spark context is stopped and the JVM serves the next. When it is killed, its JVM is
killed as well, at once and with -9: nothing that was killed is used again.
"""

import atexit
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pyspark.java_gateway import launch_gateway

from tests.harness.processes import signal_session

MOST_DRIVERS = 20  # of one JVM: what a context leaves behind adds up
_ENVIRONMENT = {
    "PYSPARK_SUBMIT_ARGS": "--master local[2] --conf spark.driver.memory=1g pyspark-shell",
    "SPARK_LOCAL_IP": "127.0.0.1",
}


class Jvm:
    """One JVM; `lend` it to a driver, which then is its only one."""

    def __init__(self) -> None:
        self.log = Path(tempfile.mkdtemp(prefix="jvm-")) / "jvm.log"
        self.environment = {**os.environ, **_ENVIRONMENT}  # its Python workers inherit it
        with self.log.open("wb") as out, patch.dict(os.environ, _ENVIRONMENT):
            quiet = {"stdout": out, "stderr": subprocess.STDOUT, "start_new_session": True, "cwd": self.log.parent}
            self._gateway: Any = launch_gateway(popen_kwargs=quiet)  # type: ignore[no-untyped-call]
        self._process: subprocess.Popen[bytes] = self._gateway.proc
        self._own = self._names()
        self._drivers = 0
        self.is_killed = False

    @property
    def session(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def is_fresh(self) -> bool:
        return self.is_alive and self._drivers < MOST_DRIVERS

    def lend(self, conf: Mapping[str, str]) -> dict[str, str]:
        """Make it ready for a driver with this configuration; what the driver must be told by its environment."""
        self._drivers += 1
        system = self._gateway.jvm.java.lang.System
        for name in self._names() - self._own:
            system.clearProperty(name)
        for name, value in conf.items():
            system.setProperty(name, value)
        parameters = self._gateway.java_parameters
        return {"PYSPARK_GATEWAY_PORT": str(parameters.port), "PYSPARK_GATEWAY_SECRET": parameters.auth_token}

    def clean(self) -> None:
        """End what the last driver has left: its context, its sessions, and its state stores."""
        spark = self._gateway.jvm.org.apache.spark
        context = spark.SparkContext.getActive()
        if context.isDefined():
            context.get().stop()
        spark.sql.execution.streaming.state.StateStore.stop()
        spark.sql.classic.SparkSession.clearActiveSession()
        spark.sql.classic.SparkSession.clearDefaultSession()

    def kill(self) -> None:
        """With -9, and its Python workers as well."""
        self.is_killed = True
        signal_session(self.session, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._gateway.close()

    def _names(self) -> set[str]:
        names: Any = self._gateway.jvm.java.lang.System.getProperties().stringPropertyNames()
        return {name for name in names if name.startswith("spark.")}


class Pool:
    """At most one idle JVM: whoever asks gets that one, or a new one."""

    def __init__(self) -> None:
        self._idle: list[Jvm] = []
        atexit.register(self.close)

    def take(self) -> Jvm:
        while self._idle:
            if (jvm := self._idle.pop()).is_alive:
                return jvm
        return Jvm()

    def give_back(self, jvm: Jvm) -> None:
        """Of a driver that has ended."""
        if jvm.is_killed:
            return
        if jvm.is_fresh and not self._idle:
            with suppress(Exception):  # whatever is wrong with it, there are others
                jvm.clean()
                self._idle.append(jvm)
                return
        jvm.kill()

    def close(self) -> None:
        for jvm in self._idle:
            jvm.kill()


POOL = Pool()


def die_together(driver: "subprocess.Popen[bytes]", jvm: Jvm, is_spared: threading.Event) -> None:
    """When the driver is killed its JVM is killed with it, unless somebody has spared that before."""

    def watch() -> None:
        if driver.wait() < 0 and not is_spared.is_set():
            jvm.kill()

    threading.Thread(target=watch, daemon=True).start()
