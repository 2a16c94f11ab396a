"""A pipeline that runs beside a test in real time, and in which one participant can be made late."""

import threading
import time
from types import TracebackType

from airflow_provider_ckpt.coordinator.complete import complete
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import AttemptStatus, Checkpoint, Ref
from tests.ui.scene import Past, SlowDriver


class Running:
    """The driver of a pipeline: beats, takes part in checkpoints, ends when it is fenced, and is started again.

    :param past: what has happened so far; its clock has been let go.
    """

    def __init__(self, past: Past) -> None:
        self._past = past
        self._driver = past.driver
        self._store = past.store
        self._held: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Running":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def hold(self, participant: str) -> None:
        """It does not acknowledge, until it is let go."""
        self._held.add(participant)

    def let_go(self) -> None:
        self._held.clear()

    def _run(self) -> None:
        while not self._stop.wait(0.2):
            driver = self._driver
            beat = driver.beat()
            if not beat.is_current:
                self._start_again()
            elif beat.in_flight is not None:
                self._take_part(driver, beat.in_flight)

    def _start_again(self) -> None:
        """As the run Dag would, once a restore has planned the next attempt."""
        number = self._store.pipelines.get(self._past.name).current_attempt or 0
        if self._store.attempts.get(self._past.name, number).status is not AttemptStatus.PLANNED:
            return
        claim = f"attempt-{number}"
        self._driver = SlowDriver(self._past.context, self._past.name, partitions=self._driver.partitions, claim=claim)
        self._driver.start()
        self._store.attempts.note_progress(self._past.name, number, claim)

    def _take_part(self, driver: SlowDriver, flying: Checkpoint) -> None:
        if flying.phase is Phase.TRIGGERED:
            driver.process(9)
            driver.capture(flying.ref)
        if flying.phase is Phase.IN_PROGRESS:
            self._acknowledge(driver, flying.ref)

    def _acknowledge(self, driver: SlowDriver, ref: Ref) -> None:
        rows = self._store.acks.pending(ref)
        ready = [row.participant for row in rows if row.participant not in self._held]
        for name in ready[:4]:
            began = time.monotonic()
            driver.ack(ref, name, capture=0.04, copy=round(time.monotonic() - began + 0.1, 3))
        late = [row.participant for row in rows if row.participant in self._held and row.stage != "copying"]
        if late and not ready:
            self._store.acks.report_stage(ref, driver.attempt, late, "copying", host="executor-4")
        if not rows:
            complete(self._past.context, ref)
            driver.completed(ref)
