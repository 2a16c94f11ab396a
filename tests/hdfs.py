"""A real HDFS for tests: Hadoop's mini cluster, a name node and a data node in one Java process.

Its jar (55 MB, of the Hadoop that Spark brings along) is fetched once, by the Ivy that Spark brings along, into
`CKPT_TEST_JARS` (`~/.cache/ckpt-test-jars`, if nothing is said). Everything else is among Spark's own jars.
"""

import ctypes
import fcntl
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4
from xml.etree import ElementTree as ET

import pytest

JAR = "hadoop-client-minicluster"
FETCH_SECONDS, START_SECONDS = 300, 180


@dataclass(frozen=True, kw_only=True)
class Hdfs:
    rpc: str  # "localhost:40879"
    http: str

    def new_url(self) -> str:
        """Of a folder that nobody has used."""
        return f"hdfs://{self.rpc}/test-{uuid4().hex}?webhdfs={self.http}"


@contextmanager
def mini_cluster(folder: Path) -> Iterator[Hdfs]:
    """Skips where it can not run; gone at the end, with everything in it."""
    java = _java()
    told, log = folder / "core-site.xml", folder / "hdfs.log"
    command = [
        *(java, "-Xmx512m", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=WARN"),
        *("-cp", f"{_spark_jars()}/*:{_fetched_jar(java)}", "org.apache.hadoop.mapreduce.MiniHadoopClusterManager"),
        *("-nomr", "-format", "-datanodes", "1", "-writeConfig", str(told)),
        *("-D", f"hdfs.minidfs.basedir={folder / 'hdfs'}", "-D", f"hadoop.tmp.dir={folder / 'hadoop'}"),
    ]
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=folder, stdout=out, stderr=out, start_new_session=True, preexec_fn=_die_with_parent
        )
    try:
        yield _until_healthy(process, told, log)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _die_with_parent() -> None:
    """Whatever ends the tests ends it."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    if java is None:
        pytest.skip("HDFS needs Java 17 or newer: install one, or set JAVA_HOME to it.")
    return java


def _spark_jars() -> Path:
    pyspark = pytest.importorskip("pyspark", reason="HDFS runs on Spark's jars: install the extra 'spark'.")
    return Path(pyspark.__file__).parent / "jars"


def _fetched_jar(java: str) -> Path:
    """The mini cluster's jar, fetched by one of all that want it at once."""
    version = next(_spark_jars().glob("hadoop-client-api-*.jar")).stem.rpartition("-")[2]
    home = Path(os.environ.get("CKPT_TEST_JARS") or Path.home() / ".cache" / "ckpt-test-jars")
    home.mkdir(parents=True, exist_ok=True)
    jar = home / f"{JAR}-{version}.jar"
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not jar.exists():
            _fetch(java, version, jar)
    return jar


def _fetch(java: str, version: str, jar: Path) -> None:
    with TemporaryDirectory(dir=jar.parent) as folder:
        command = [
            *(java, "-cp", f"{_spark_jars()}/*", "org.apache.ivy.Main", "-warn", "-cache", f"{folder}/ivy"),
            *("-dependency", "org.apache.hadoop", JAR, version, "-notransitive", "-types", "jar"),
            *("-retrieve", f"{folder}/[artifact].[ext]"),
        ]
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(command, capture_output=True, check=False, timeout=FETCH_SECONDS)
        if not (fetched := Path(folder, f"{JAR}.jar")).is_file():
            pytest.skip(f"{jar.name} can not be fetched from Maven Central: let it be reached, or put it at {jar}.")
        fetched.rename(jar)


def _until_healthy(process: "subprocess.Popen[bytes]", told: Path, log: Path) -> Hdfs:
    """It writes its configuration when the name node and the data node have found each other."""
    give_up = time.monotonic() + START_SECONDS
    while time.monotonic() < give_up:
        assert process.poll() is None, f"HDFS did not start:\n{log.read_text()[-4000:]}"
        with suppress(FileNotFoundError, ET.ParseError):
            known = {each.findtext("name"): each.findtext("value") for each in ET.parse(told).iter("property")}
            return Hdfs(rpc=known["dfs.namenode.rpc-address"] or "", http=known["dfs.namenode.http-address"] or "")
        time.sleep(0.1)
    raise AssertionError(f"HDFS did not come up in {START_SECONDS} s:\n{log.read_text()[-4000:]}")
