"""`make test DURATIONS=file.md`: seconds of wall and of processor, by area and by test, as a table.

The processor's seconds are those of the test process and of every process that it started, directly or not. They are
looked up twice a second in `/proc`, so what a process used in its last half second is missing. Fixtures that
many tests share are paid for by the first of them.
"""

import os
import threading
import time
from collections import defaultdict
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.harness.processes import TICK, below, processes

AREAS = {  # the folder below tests/, and what people call it
    "unit": "unit",
    "behaviours": "behaviours",
    "model": "model",
    "faults": "faults",
    "spark": "spark",
    "airflow": "airflow",
    "ui": "ui",
    "bench": "bench smoke",
}
LOOK_EVERY = 0.5
WALL, PROCESSOR = "ckpt_wall", "ckpt_processor"  # what a report carries from the worker to the controller


@dataclass
class ProcessorClock:
    """The processor's seconds of this process and of all that it started, also of those that have ended."""

    _ended: float = 0.0
    _living: dict[tuple[int, int], float] = field(default_factory=dict)  # by pid and start
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        threading.Thread(target=self._look_for_ever, daemon=True).start()

    def read(self) -> float:
        with self._lock:
            self._look()
            return time.process_time() + self._ended + sum(self._living.values())

    def _look_for_ever(self) -> None:
        while True:
            time.sleep(LOOK_EVERY)
            with self._lock:
                self._look()

    def _look(self) -> None:
        running = {process.pid: process for process in processes()}
        known = {pid for pid, start in self._living if pid in running and running[pid].start == start}
        ours = below(running, known | {os.getpid()}) - {os.getpid()}
        now = {(pid, running[pid].start): running[pid].processor for pid in ours}
        self._ended += sum(seconds for key, seconds in self._living.items() if key not in now)
        self._living = now


class Measuring:
    """In the process that runs tests: what each phase of a test took goes with its report."""

    def __init__(self) -> None:
        self._clock = ProcessorClock()
        self._clock.start()
        self._last = self._clock.read(), time.perf_counter()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now = self._clock.read(), time.perf_counter()
        setattr(report, PROCESSOR, now[0] - self._last[0])
        setattr(report, WALL, now[1] - self._last[1])
        self._last = now
        return report


@dataclass
class Cost:
    tests: int = 0
    wall: float = 0.0
    processor: float = 0.0

    def row(self, name: str) -> str:
        return f"| {name} | {self.tests} | {self.wall:.1f} | {self.processor:.1f} |"


class Table:
    """In the process that sees all reports: adds up, and writes the table at the end."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._began = time.monotonic(), os.times()
        self._busy = _machine_busy()
        self._tests: dict[str, Cost] = defaultdict(Cost)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        measured: dict[str, Any] = vars(report)
        cost = self._tests[report.nodeid]
        cost.tests = 1
        cost.wall += measured.get(WALL, 0.0)
        cost.processor += measured.get(PROCESSOR, 0.0)

    def pytest_sessionfinish(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text("\n".join(self._lines()) + "\n")

    def _lines(self) -> Iterable[str]:
        took, busy = time.monotonic() - self._began[0], _machine_busy() - self._busy
        yield f"{len(self._tests)} tests in {took:.0f} s; the machine's processors were busy for {busy:.0f} s."
        yield ""
        yield from _head("area")
        areas: dict[str, Cost] = defaultdict(Cost)
        for test, cost in self._tests.items():
            for area in (areas[_area(test)], areas["all"]):
                area.tests += cost.tests
                area.wall += cost.wall
                area.processor += cost.processor
        yield from (areas[name].row(name) for name in [*AREAS.values(), "all"] if name in areas)
        yield ""
        yield from _head("test")
        dearest = sorted(self._tests.items(), key=lambda item: item[1].processor + item[1].wall, reverse=True)
        yield from (cost.row(f"`{test}`".replace("|", "\\|")) for test, cost in dearest)


def _head(name: str) -> Iterable[str]:
    yield f"| {name} | tests | wall s | processor s |"
    yield "|---|---|---|---|"


def _area(test: str) -> str:
    folder = test.split("/")[1]
    return AREAS.get(folder, folder)


def _machine_busy() -> float:
    """The seconds that all processors of this machine have worked since it started."""
    user, nice, system, _idle, _iowait, irq, softirq, *_ = Path("/proc/stat").read_text().split("\n")[0].split()[1:]
    return sum(map(int, (user, nice, system, irq, softirq))) * TICK


def register(config: pytest.Config, file: str) -> None:
    """Measure in every process that runs tests; write in the one that sees all reports."""
    is_worker = hasattr(config, "workerinput")
    if is_worker or not config.getoption("numprocesses", default=None):
        config.pluginmanager.register(Measuring(), "ckpt-measuring")
    if not is_worker:
        config.pluginmanager.register(Table(Path(file)), "ckpt-durations")
