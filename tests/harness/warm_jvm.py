"""JVMs with Spark in them that outlive the Python drivers which use them, one after the other.

A cold JVM costs more processor than all that most drivers of tests do. A Python driver finds one that already runs by
`PYSPARK_GATEWAY_PORT`, as it does below `spark-submit`; its configuration comes through system properties, as there.
When a driver ends by itself, its Spark context is stopped and the JVM serves the next. When it is killed, its JVM is
killed as well, at once and with -9: nothing that was killed is used again.
"""

import atexit
import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from tests.harness.nursery import NURSERY, Fork
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
        self._control, self._orders, self._answers = _control(self.log, self.environment)
        address = json.loads(self._answer())
        self.session = int(address["pid"])
        self._told = {"PYSPARK_GATEWAY_PORT": str(address["port"]), "PYSPARK_GATEWAY_SECRET": address["secret"]}
        self._drivers = 0
        self.is_killed = False
        self._lock = threading.Lock()  # a driver's end may be seen by two threads

    @property
    def is_alive(self) -> bool:
        return not self.is_killed and self._control.poll() is None

    @property
    def is_fresh(self) -> bool:
        return self.is_alive and self._drivers < MOST_DRIVERS

    def lend(self, conf: Mapping[str, str]) -> dict[str, str]:
        """Make it ready for a driver with this configuration; what the driver must be told by its environment."""
        self._drivers += 1
        self._order({"lend": dict(conf)})
        return self._told

    def clean(self) -> None:
        """End what the last driver has left."""
        self._order({"clean": True})

    def kill(self) -> None:
        """With -9, and its Python workers as well."""
        with self._lock:
            if self.is_killed:
                return
            self.is_killed = True
            for session in (self.session, *NURSERY.sessions_of(self.session)):
                signal_session(session, signal.SIGKILL)
            signal_session(self._control.pid, signal.SIGKILL)
            self._answers.close()
            with suppress(BrokenPipeError):
                self._orders.close()

    def _order(self, order: Mapping[str, object]) -> None:
        self._orders.write(f"{json.dumps(order)}\n")
        self._orders.flush()
        assert self._answer() == "done\n", f"the JVM is out of order:\n{self.log.read_text()[-4000:]}"

    def _answer(self) -> str:
        answer = self._answers.readline()
        assert answer, f"the JVM did not start:\n{self.log.read_text()[-4000:] if self.log.exists() else ''}"
        return answer


def _control(log: Path, environment: Mapping[str, str]) -> tuple[Fork, TextIO, TextIO]:
    """The process that holds the JVM, and the two ends of its pipes."""
    (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()
    with Path(os.devnull).open("wb") as nothing:
        command = ["-m", "tests.harness.jvm_control", str(log)]
        fork = NURSERY.start(command, environment, stdin=theirs_in, stdout=theirs_out, stderr=nothing.fileno())
    os.close(theirs_in)
    os.close(theirs_out)
    return fork, os.fdopen(ours_out, "w"), os.fdopen(ours_in)


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
            with suppress(AssertionError, OSError, ValueError):  # whatever is wrong with it, there are others
                jvm.clean()
                self._idle.append(jvm)
                return
        jvm.kill()

    def close(self) -> None:
        for jvm in self._idle:
            jvm.kill()


POOL = Pool()


def die_together(driver: "Fork | subprocess.Popen[bytes]", jvm: Jvm, is_spared: threading.Event) -> None:
    """When the driver is killed its JVM is killed with it, unless somebody has spared that before."""

    def watch() -> None:
        if driver.wait() < 0 and not is_spared.is_set():
            jvm.kill()

    threading.Thread(target=watch, daemon=True).start()
