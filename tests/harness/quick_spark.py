"""What makes Spark quick in tests: archived classes, code that is compiled little, local files without processes.

`python -m tests.harness.quick_spark` makes two files in the virtual environment, once: an archive of Spark's classes,
with which a JVM starts with a third less processor, and a jar with a local file system that starts no `chmod` for every
file (QuickLocalFs.java). A JVM that the archive does not fit starts without it, and says nothing; without the two files
tests run as well, only longer.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

# A driver lives for seconds here: compiling its code well takes longer than it saves. And nobody reads what it logs of
# every batch, which costs most under Airflow: line by line through the task's log.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dspark.sql.codegen.wholeStage=false -Dspark.log.level=WARN"
_QUICK_FILES = (
    "-Dspark.hadoop.fs.file.impl=org.apache.hadoop.fs.local.QuickLocalFs$Checked "
    "-Dspark.hadoop.fs.AbstractFileSystem.file.impl=org.apache.hadoop.fs.local.QuickLocalFs"
)
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"
_ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
_JAR = Path(sys.prefix) / "spark-quick-files.jar"
_OPTIONS, _MORE_CLASSES = "SPARK_SUBMIT_OPTS", "SPARK_DIST_CLASSPATH"  # as Spark's launcher knows them


def be_quick(environment: MutableMapping[str, str]) -> None:
    """For every JVM with Spark that is started with this environment, directly or through Airflow."""
    use_plain_files(environment)
    if _JAR.exists():
        environment[_OPTIONS] += f" {_QUICK_FILES}"
        environment[_MORE_CLASSES] = str(_JAR)


def use_plain_files(environment: MutableMapping[str, str]) -> None:
    """For one that writes local files as it does for users."""
    environment[_OPTIONS] = f"{_SHORT_LIVED} -XX:SharedArchiveFile={_ARCHIVE} {_QUIET}" if _ARCHIVE.exists() else ""
    environment.pop(_MORE_CLASSES, None)


def make() -> None:
    """Run what drivers do, and keep the classes that this has loaded."""
    partial, jar = _ARCHIVE.with_suffix(".partial"), _JAR.with_suffix(".partial")
    with tempfile.TemporaryDirectory(prefix="ckpt-") as folder:
        environment = {
            **os.environ,
            _OPTIONS: f"{_SHORT_LIVED} -XX:ArchiveClassesAtExit={partial} {_QUIET}",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": folder,
            "PYSPARK_PYTHON": sys.executable,
        }
        program = Path(__file__).with_name("quick_spark_program.py")
        subprocess.run([sys.executable, str(program), folder, str(jar)], env=environment, check=True, timeout=300)
    jar.rename(_JAR)
    partial.rename(_ARCHIVE)


if __name__ == "__main__" and not (_ARCHIVE.exists() and _JAR.exists()):
    make()
