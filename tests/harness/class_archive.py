"""Spark's classes, archived once for a virtual environment: a JVM that maps them starts with a third less processor.

The archive lies in the environment, and goes with it. A JVM that it does not fit starts without it, and says nothing.
`python -m tests.harness.class_archive` makes it where there is none; tests run without it as well, only longer.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

# A driver lives for seconds here: compiling its code well takes longer than it saves.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"


def jvm_options() -> str:
    """For every JVM that the tests start, directly or through Airflow."""
    mapped = f" -XX:SharedArchiveFile={ARCHIVE} -Xlog:disable -Xlog:all=error:stderr" if ARCHIVE.exists() else ""
    return SHORT_LIVED + mapped


def make() -> None:
    """Run what drivers do, and keep the classes that this has loaded."""
    partial = ARCHIVE.with_suffix(".partial")
    options = f"{SHORT_LIVED} -XX:ArchiveClassesAtExit={partial} -Xlog:disable -Xlog:all=error:stderr"
    with tempfile.TemporaryDirectory(prefix="ckpt-") as folder:
        environment = {
            **os.environ,
            "SPARK_SUBMIT_OPTS": options,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": folder,
            "PYSPARK_PYTHON": sys.executable,
        }
        program = Path(__file__).with_name("class_archive_program.py")
        subprocess.run([sys.executable, str(program), folder], env=environment, check=True, timeout=300)
    partial.rename(ARCHIVE)


if __name__ == "__main__" and not ARCHIVE.exists():
    make()
