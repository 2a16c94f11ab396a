"""Holds one JVM for `warm_jvm`, and does what it is told on its input, a line of JSON at a time.

A process of its own, so that nothing of py4j (its threads, its sockets) is in the process that runs the tests.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.java_gateway import launch_gateway


class Control:
    def __init__(self, log: Path) -> None:
        with log.open("wb") as out:
            quiet = {"stdout": out, "stderr": subprocess.STDOUT, "start_new_session": True, "cwd": log.parent}
            self._gateway: Any = launch_gateway(popen_kwargs=quiet)  # type: ignore[no-untyped-call]
        self._own = self._names()
        parameters = self._gateway.java_parameters
        self.address = {"pid": self._gateway.proc.pid, "port": parameters.port, "secret": parameters.auth_token}

    def lend(self, conf: Mapping[str, str]) -> None:
        """Take away what the last driver was told, and tell the next one."""
        system = self._gateway.jvm.java.lang.System
        for name in self._names() - self._own:
            system.clearProperty(name)
        for name, value in conf.items():
            system.setProperty(name, value)

    def clean(self) -> None:
        """End what the last driver has left: its context, its sessions, and its state stores."""
        spark = self._gateway.jvm.org.apache.spark
        context = spark.SparkContext.getActive()
        if context.isDefined():
            context.get().stop()
        spark.sql.execution.streaming.state.StateStore.stop()
        spark.sql.classic.SparkSession.clearActiveSession()
        spark.sql.classic.SparkSession.clearDefaultSession()

    def _names(self) -> set[str]:
        names: Any = self._gateway.jvm.java.lang.System.getProperties().stringPropertyNames()
        return {name for name in names if name.startswith("spark.")}


def main(log: Path) -> None:
    control = Control(log)
    print(json.dumps(control.address), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        if "lend" in order:
            control.lend(order["lend"])
        else:
            control.clean()
        print("done", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
