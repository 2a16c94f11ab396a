"""`make demo`: Airflow runs and checkpoints a Spark pipeline, and brings it back after kill -9: lost 0, duplicated 0.

Everything is real and on embedded defaults: Airflow's processes on free ports, SQLite, a local folder, local Spark.
Orders come in all the time. What the pipeline publishes is read as an outside reader would, all the time while it runs;
at the end it is compared row by row with what came in.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import accumulate
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from airflow_provider_ckpt.metastore import Metastore, open_metastore
from airflow_provider_ckpt.protocol.codec import Fields
from airflow_provider_ckpt.protocol.errors import CkptError
from airflow_provider_ckpt.protocol.objectives import ProblemKind
from airflow_provider_ckpt.protocol.records import Attempt, AttemptStatus, Event, Ref, Rung
from airflow_provider_ckpt.testing.airflow import Airflow, until
from airflow_provider_ckpt.testing.orders import Orders, Reader

_NAME = "orders"
_PATIENCE = 300.0  # seconds
_DECLARATION = '''"""All five Dags of the pipeline."""

import os
from pathlib import Path

import airflow_provider_ckpt
from airflow_provider_ckpt import checkpoint_dags, every, keep

checkpoint_dags(
    "orders",
    application=str(Path(airflow_provider_ckpt.__file__).parent / "spark" / "example.py"),
    checkpoint=every(seconds=8),
    cleanup=every(seconds=30),
    look=every(seconds=10),
    retention=keep(last=4),
    recovery_point="1m",
    restart="exponential(10 in 1h, 1s to 10s)",
    settings={"attempt_ttl": "10s", "orphan_grace": "0s"},
    submit={
        "application_args": [os.environ["ORDERS_SOURCE"], os.environ["ORDERS_TARGET"]],
        "conf": {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "4", "spark.scheduler.mode": "FAIR"},
    },
)
'''


def main() -> int:
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        sys.exit("Spark needs Java 17 or newer, and there is none: install one, or set JAVA_HOME to it.")
    signal.signal(signal.SIGTERM, _interrupt)
    with tempfile.TemporaryDirectory(prefix="ckpt-demo-") as folder:
        try:
            return _Demo(Path(folder)).run()
        except KeyboardInterrupt:
            print("\nEnded; no process is left behind.", flush=True)
            return 130


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


class _Demo:
    def __init__(self, home: Path) -> None:
        self._home = home
        (home / "dags").mkdir()
        (home / "dags" / "orders.py").write_text(_DECLARATION)
        self._orders = Orders(home / "orders")
        self._target = home / "out"
        self._target.mkdir()
        self._airflow = Airflow(home / "airflow", home / "dags", environment=self._environment())

    def _environment(self) -> dict[str, str]:
        spark = json.dumps({"conn_type": "spark", "host": "local[2]"})
        given = {"ORDERS_SOURCE": str(self._home / "orders"), "ORDERS_TARGET": str(self._target)}
        return {**given, "AIRFLOW_CONN_SPARK_DEFAULT": spark}

    def run(self) -> int:
        _title("Airflow starts: API server, scheduler, Dag processor, triggerer (about half a minute)")
        print(f"\033[2m{_DECLARATION}\033[0m", flush=True)
        with self._airflow as airflow, self._orders, Reader(self._target / "published") as reader:
            print(
                f"Airflow's UI: {airflow.url} (no login is asked for; it is reachable from this host only)", flush=True
            )
            self._store = self._open_store()
            with _Narrator(self._store) as narrator:
                self._tell_the_story()
            is_exact = self._compare(reader, narrator.whole)
            if is_exact and sys.stdin.isatty() and os.environ.get("DEMO_EXIT") != "1":
                self._linger()
            self._store.close()
        return 0 if is_exact else 1

    def _open_store(self) -> Metastore:
        """The embedded one, once the first task has made it."""
        file = self._home / "airflow" / "ckpt" / "metastore.db"
        until(file.exists, "the first Dag runs", self._last_words, patience=_PATIENCE)
        time.sleep(1.0)  # its tables are being made
        return open_metastore(f"sqlite:///{file}")

    def _tell_the_story(self) -> None:
        _title("The sla Dag sees that the pipeline was never started; the restore Dag plans attempt 1 and starts it")
        self._until_running(1)
        _title("Scheduled checkpoints, a cleanup, and a trigger that was skipped for it")
        self._until_completed(3)
        self._until(lambda: self._count("checkpoint.discarded") >= 1, "a cleanup lets something go")
        self._until(self._was_skipped_for_cleanup, "a trigger is skipped while a cleanup run is active")
        _title(f"kill -9 of the Spark driver, process {self._airflow.drivers()}")
        self._airflow.kill_drivers()
        self._until_running(2, Rung.TIP)
        self._until_completed(2)
        _title(f"kill -9 of process {self._airflow.drivers()}, and its checkpointLocations are destroyed")
        self._airflow.kill_drivers()
        shutil.rmtree(self._home / "airflow" / "ckpt" / "work" / _NAME / "2")
        self._until_running(3, Rung.CHECKPOINT)
        _title("No more orders come in; what is in flight is published")
        self._orders.stop()
        self._until_completed(3)
        _title("The pipeline is stopped, with a savepoint")
        self._stop()

    def _stop(self) -> None:
        self._ckpt("stop", _NAME, "--savepoint", "the-end", "--reason", "the end of the demo")
        self._until(lambda: self._attempt().status is AttemptStatus.STOPPED, "the driver has stopped")

    # what the story waits for

    def _until(self, is_true: Callable[[], bool], what: str) -> None:
        until(is_true, what, self._last_words, patience=_PATIENCE)

    def _until_running(self, number: int, rung: Rung | None = None) -> None:
        self._until(lambda: self._count("attempt.progressed", attempt=number) > 0, f"attempt {number} has committed")
        attempt = self._store.attempts.get(_NAME, number)
        if rung is not None and attempt.rung is not rung:
            raise SystemExit(f"Attempt {number} started from {attempt.rung}; {rung} was to be shown.")

    def _until_completed(self, more: int) -> None:
        wanted = self._count("checkpoint.completed") + more
        self._until(lambda: self._count("checkpoint.completed") >= wanted, f"{more} checkpoints complete")

    def _events(self, kind: str) -> list[Event]:
        return self._store.events.since({_NAME: 0}, frozenset({kind}))

    def _count(self, kind: str, *, attempt: int | None = None) -> int:
        return sum(attempt in (None, each.attempt) for each in self._events(kind))

    def _was_skipped_for_cleanup(self) -> bool:
        return any("cleanup" in each.reason for each in self._events("trigger.skipped"))

    def _attempt(self) -> Attempt:
        number = self._store.pipelines.get(_NAME).current_attempt
        return self._store.attempts.get(_NAME, number or 1)

    def _last_words(self) -> str:
        logs = self._home / "airflow"
        return "\n".join(f"--- {file.name}\n{file.read_text()[-1500:]}" for file in sorted(logs.glob("*.log")))

    def _ckpt(self, *words: str) -> None:
        print(f"\n\033[1m$ ckpt {' '.join(words)}\033[0m", flush=True)
        environment = {**os.environ, "CKPT_HOME": str(self._home / "airflow" / "ckpt")}
        for name in ("CKPT_METASTORE", "CKPT_STORAGE", "CKPT_WORK"):
            environment.pop(name, None)
        command = [sys.executable, "-m", "airflow_provider_ckpt.cli", *words]
        if subprocess.run(command, env=environment, check=False).returncode != 0:  # noqa: S603 - our own command
            raise SystemExit(f"`ckpt {' '.join(words)}` did not succeed.")

    # the proof

    def _compare(self, reader: Reader, whole: set[int]) -> bool:
        self._ckpt("list", _NAME)
        _title("What an outside reader of the output sees, against what came in")
        came_in, published = self._orders.stop(), Counter(reader.read())
        lost, doubled = came_in - published, published - came_in
        print(f"{published.total():,} rows published: lost {lost.total()}, duplicated {doubled.total()}")
        halves, twice = reader.sizes - whole, reader.twice
        print(f"{reader.looks:,} looks while it ran: {twice} rows twice, {len(halves)} checkpoints by half")
        totals = json.loads((self._target / "totals.json").read_text())
        counted = sum(orders for orders, _ in totals.values())
        print(
            f"{counted:,} orders in the running totals: {counted - came_in.total():+,} against what came in", flush=True
        )
        return not (lost or doubled or halves or twice) and bool(published) and counted == came_in.total()

    def _linger(self) -> None:
        print(f"\nAirflow is still there: {self._airflow.url}. Ctrl-C ends it.", flush=True)
        while True:
            time.sleep(1.0)


class _Narrator:
    """Tells on the console what happens to the pipeline, as it happens."""

    _TOLD = frozenset(
        {
            "attempt.planned",
            "attempt.claimed",
            "attempt.failed",
            "attempt.silent",
            "attempt.progressed",
            "attempt.stopped",
            "checkpoint.triggered",
            "checkpoint.completed",
            "checkpoint.failed",
            "checkpoint.discarded",
            "cleanup.started",
            "restore.started",
            "trigger.skipped",
            *(f"alert.{kind}.{state}" for kind in ProblemKind for state in ("raised", "over")),
        }
    )

    def __init__(self, store: Metastore) -> None:
        self._store = store
        self._position = 0
        self._published: dict[int, int] = {}  # rows by checkpoint; noted at once, as retention lets that go
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="narrator", daemon=True)
        self._console = Console(highlight=False)
        self._live = Live(console=self._console, refresh_per_second=4, transient=True)

    def __enter__(self) -> "_Narrator":
        self._live.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._live.stop()
        self._tell()

    @property
    def whole(self) -> set[int]:
        """How many rows there may be at any moment: those of the first so many checkpoints."""
        return set(accumulate((self._published[each] for each in sorted(self._published)), initial=0))

    def _run(self) -> None:
        while not self._stopped.wait(0.5):
            with suppress(CkptError):
                self._tell()
                self._live.update(self._state())

    def _tell(self) -> None:
        for event in self._store.events.since({_NAME: self._position}, self._TOLD):
            self._position = event.seq
            self._console.print(_sentence(event))
            if event.kind == "checkpoint.completed" and event.checkpoint is not None:
                self._published[event.checkpoint] = self._rows(Ref(_NAME, event.checkpoint))

    def _rows(self, ref: Ref) -> int:
        """What its sink says that it has published."""
        return sum(Fields(str(ref), dict(each.published)).whole("rows") for each in self._store.sinks.of(ref))

    def _state(self) -> Table:
        """What a person would look at: one line for each of the last checkpoints."""
        table = Table(title=self._headline(), title_justify="left", box=None)
        for column in ("checkpoint", "phase", "attempt", "acknowledged", "new", "of"):
            table.add_column(column)
        for each in self._store.checkpoints.page(_NAME, limit=5).checkpoints:
            progress = self._store.acks.progress(each.ref)
            sizes = (
                ("", "") if each.decision is None else (f"{each.decision.new_bytes:,}", f"{each.decision.full_bytes:,}")
            )
            table.add_row(
                str(each.ref), each.phase, str(each.attempt), f"{progress.acked} of {progress.expected}", *sizes
            )
        return table

    def _headline(self) -> str:
        number = self._store.pipelines.get(_NAME).current_attempt
        if number is None:
            return "no attempt yet"
        attempt = self._store.attempts.get(_NAME, number)
        return f"attempt {number} is {attempt.status}, from {attempt.rung}"


def _sentence(event: Event) -> str:
    what = f"{_NAME}/{event.checkpoint}" if event.checkpoint is not None else f"attempt {event.attempt}"
    about = "" if event.checkpoint is None and event.attempt is None else f" {what}"
    why = f": {event.reason[:160]}" if event.reason else ""
    colour = _COLOURS.get(event.kind.rpartition(".")[2], "default")
    return f"[dim]{event.at:%H:%M:%S}[/] [{colour}]{event.kind}[/]{about}{escape(why)}"


_COLOURS = {
    "completed": "green",
    "progressed": "green",
    "failed": "red",
    "silent": "red",
    "skipped": "yellow",
    "raised": "red",
}


def _title(text: str) -> None:
    print(f"\n\033[36m── {text}\033[0m", flush=True)


if __name__ == "__main__":
    sys.exit(main())
