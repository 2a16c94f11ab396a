"""`make demo-spark`: a Spark pipeline is checkpointed, killed with -9 twice and brought back, without Airflow.

Everything is done through the `ckpt` command and a Spark driver, in processes of their own, on the embedded defaults
(SQLite, a local folder, local Spark). Orders come in all the time. What the pipeline publishes is read as an outside
reader would, all the time while it runs: no row twice, no checkpoint by half. At the end it is compared row by row with
what came in.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import accumulate
from pathlib import Path
from typing import IO, Any

from airflow_provider_ckpt.testing.orders import Orders, Reader

_EXAMPLE = Path(__file__).parents[1] / "spark" / "example.py"
_CKPT = (sys.executable, "-m", "airflow_provider_ckpt.cli")
_SPARK = (
    "spark.ckpt.pipeline=orders spark.ui.enabled=false spark.sql.shuffle.partitions=4 spark.log.level=ERROR "
    "spark.ui.showConsoleProgress=false spark.scheduler.mode=FAIR"
)
_QUERIES = 3
_PATIENCE = 180.0  # seconds until Spark has come to something


def main() -> int:
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        sys.exit("Spark needs Java 17 or newer, and there is none: install one, or set JAVA_HOME to it.")
    with tempfile.TemporaryDirectory(prefix="ckpt-demo-") as folder:
        home = Path(folder)
        with Orders(home / "orders") as orders, Reader(home / "out" / "published") as reader:
            return _Demo(home, orders, reader).run()


class _Demo:
    def __init__(self, home: Path, orders: Orders, reader: Reader) -> None:
        self._home = home
        self._orders = orders
        self._reader = reader
        self._attempt = 0
        self._rows: dict[int, int] = {}  # of each checkpoint
        self._environment = {**os.environ, "CKPT_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
        for name in ("CKPT_METASTORE", "CKPT_STORAGE", "CKPT_WORK"):
            self._environment.pop(name, None)
        options = " ".join(f"--conf {each}" for each in _SPARK.split())
        self._environment["PYSPARK_SUBMIT_ARGS"] = f"--master local[2] {options} pyspark-shell"

    def run(self) -> int:
        _title("A store, a storage and a pipeline")
        self._ckpt("init", "orders", "--set", "attempt_ttl=5s", "keep_last=2", "orphan_grace=0s")
        with self._spark() as driver:
            _title("Checkpoints and a savepoint of the running pipeline")
            for _ in range(3):
                self._ckpt("trigger", "orders")
            self._ckpt("savepoint", "orders", "before-upgrade", "--reason", "to show that it stays")
            _title("Retention lets go what it does not keep")
            self._note_published()
            self._ckpt("cleanup", "orders")
            _title(f"kill -9 of the driver, process {driver.pid}, in the middle of a checkpoint")
            self._ckpt("trigger", "orders", "--no-wait")
            _kill(driver)
        with self._spark() as driver:
            _title("It restored by itself, from its own tip: nothing is replayed")
            self._ckpt("trigger", "orders")
            _title(f"kill -9 of process {driver.pid} again, and its folder is gone as well")
            _kill(driver)
        shutil.rmtree(self._home / "work")
        self._ckpt("restore", "orders", "--old-attempt-is-dead")
        with self._spark():
            _title("It goes on where the newest completed checkpoint was, laid out from its manifest")
            came_in = self._orders.stop()
            self._until(lambda: self._has_checkpointed(len(came_in)))
            self._ckpt("stop", "orders", "--savepoint", "the-end", "--reason", "the end of the demo")
        self._ckpt("list", "orders")
        self._ckpt("show", "orders")
        self._reader.stop()
        self._ckpt("verify", "orders")
        return self._compare(came_in)

    def _ckpt(self, *words: str) -> None:
        print(f"\n\033[1m$ ckpt {' '.join(words)}\033[0m", flush=True)
        done = subprocess.run([*_CKPT, *words], env=self._environment, check=False)  # noqa: S603 - our own command
        if done.returncode != 0:
            raise SystemExit(f"`ckpt {' '.join(words)}` ended with {done.returncode}.")

    @contextmanager
    def _spark(self) -> Iterator[subprocess.Popen[bytes]]:
        """The example pipeline as a Spark driver, once it has published something."""
        print("\n\033[1m$ spark-submit --conf spark.ckpt.pipeline=orders example.py orders/ out/ &\033[0m", flush=True)
        (self._home / "out").mkdir(exist_ok=True)
        self._attempt += 1
        log = self._home / f"driver-{self._attempt}.log"
        words = [sys.executable, str(_EXAMPLE), str(self._home / "orders"), str(self._home / "out")]
        with log.open("wb") as said, self._process(words, said) as driver:
            try:
                self._until(lambda: self._has_published(driver, log))
                print(*(line for line in log.read_text().splitlines() if line.startswith("Attempt")), sep="\n")
                yield driver
                driver.wait(_PATIENCE)
            finally:
                _kill(driver)

    def _process(self, words: list[str], said: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 - our own program
            words, env=self._environment, stdout=said, stderr=said, start_new_session=True
        )

    def _has_published(self, driver: subprocess.Popen[bytes], log: Path) -> bool:
        if driver.poll() is not None:
            raise SystemExit(f"{log.read_text()[-3000:]}\nThe Spark driver has ended; above is what it said.")
        queries = self._home / "work" / "orders" / str(self._attempt) / "queries"
        laid_out = {file for file in queries.glob("*/commits/[0-9]*") if file.stat().st_nlink > 1}
        committed = set(queries.glob("*/commits/[0-9]*")) - laid_out
        return len({file.parent.parent.name for file in committed}) == _QUERIES

    def _until(self, condition: Callable[[], bool]) -> None:
        give_up = time.monotonic() + _PATIENCE
        while not condition():
            if time.monotonic() > give_up:
                raise SystemExit("The pipeline did not come to that in time.")
            time.sleep(0.5)

    def _has_checkpointed(self, orders: int) -> bool:
        """Take another checkpoint; whether all orders are published with it."""
        self._ckpt("trigger", "orders")
        return len(self._reader.read()) >= orders

    def _told(self, *words: str) -> Any:
        done = subprocess.run(  # noqa: S603 - our own command
            [*_CKPT, *words, "--json"], env=self._environment, check=True, capture_output=True
        )
        return json.loads(done.stdout)

    def _note_published(self) -> None:
        """What each checkpoint says it has published: retention lets go that as well."""
        for checkpoint in self._told("list", "orders", "--limit", "100")["checkpoints"]:
            for sink in self._told("show", f"orders/{checkpoint['id']}")["sinks"]:
                self._rows[checkpoint["id"]] = sink["published"].get("rows", 0)

    def _compare(self, came_in: Counter[tuple[int, int]]) -> int:
        _title("What an outside reader of the output sees, against what came in")
        published = Counter(self._reader.read())
        lost, doubled = came_in - published, published - came_in
        print(f"{published.total():,} rows published: lost {lost.total()}, duplicated {doubled.total()}")
        self._note_published()
        whole = set(accumulate((self._rows[each] for each in sorted(self._rows)), initial=0))
        halves, twice = self._reader.sizes - whole, self._reader.twice
        print(f"{self._reader.looks:,} looks while it ran: {twice} rows twice, {len(halves)} checkpoints by half")
        totals = json.loads((self._home / "out" / "totals.json").read_text())
        counted = sum(orders for orders, _ in totals.values())
        print(f"{counted:,} orders in the running totals: {counted - came_in.total():+,} against what came in")
        is_exact = not (lost or doubled or halves or twice) and bool(published)
        return 0 if is_exact and counted == came_in.total() else 1


def _kill(driver: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(driver.pid, signal.SIGKILL)


def _title(text: str) -> None:
    print(f"\n\033[36m── {text}\033[0m", flush=True)


if __name__ == "__main__":
    sys.exit(main())
