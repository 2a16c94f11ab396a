"""A store with a past: pipelines that went through what a page has to show, hours of it in a second.

The past happens on a clock in the test's hand, which ends at the real present; whatever comes then is real time.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from airflow_provider_ckpt.coordinator.complete import complete
from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.coordinator.restore import RestoreOptions, restore
from airflow_provider_ckpt.metastore import Beat, open_metastore
from airflow_provider_ckpt.protocol.codec import canonical
from airflow_provider_ckpt.protocol.objectives import Objectives
from airflow_provider_ckpt.protocol.records import (
    AttemptStatus,
    FileRef,
    Member,
    Ref,
    TriggerRequest,
)
from airflow_provider_ckpt.protocol.recovery import Target
from airflow_provider_ckpt.protocol.retention import Retention
from airflow_provider_ckpt.protocol.settings import Settings
from airflow_provider_ckpt.storage.local import LocalStorage
from airflow_provider_ckpt.testing import ManualClock, ScriptedPipeline

EVERY = timedelta(minutes=5)
SETTINGS = Settings(
    interval=EVERY / 2,
    objectives=Objectives(recovery_point=timedelta(minutes=15)),
    timeout=timedelta(minutes=2),
    attempt_ttl=timedelta(minutes=1),
    retention=Retention(last=8),
)
LATE = "totals/state/11"  # the one that is always last


class PastClock(ManualClock):
    """Moves when told, until it is let go: from then on it is the real one."""

    is_let_go = False

    def __call__(self) -> datetime:
        return datetime.now(UTC) if self.is_let_go else super().__call__()


class SlowDriver(ScriptedPipeline):
    """A scripted pipeline whose state has some weight, on four hosts, one of which is slow."""

    def __init__(self, context: Context, name: str, *, partitions: int, claim: str) -> None:
        super().__init__(context, name, partitions=partitions, claim=claim, application_id=f"app-20261116-{claim}")
        self.store = context.store
        self.random = random.Random(7)

    def beat(self) -> Beat:
        """Beat, and learn what there is to do."""
        return self.store.attempts.heartbeat(self.name, self.attempt, self._claim)

    def host_of(self, participant: str) -> str:
        partition = participant.rpartition("/")[2]
        return f"executor-{int(partition) % 4 + 1}" if partition.isdecimal() else "driver"

    def ack(self, ref: Ref, participant: str, **timings: float) -> None:
        """One participant acknowledges."""
        made = replace(self._make_durable(ref, participant), timings=timings)
        self.store.acks.acknowledge(ref, self.attempt, [made], host=self.host_of(participant))

    def ack_all(self, ref: Ref, clock: ManualClock, *, but: Sequence[str] = ()) -> None:
        """All but some acknowledge, in a random order, the one that is always late last."""
        order = [each for each in self.participants if each not in (LATE, *but)]
        self.random.shuffle(order)
        for each in order:
            copy = self.random.uniform(0.05, 0.35)
            clock.advance(seconds=copy)
            self.ack(ref, each, capture=0.04, copy=copy)
        if LATE in self.participants and LATE not in but:
            copy = self.random.uniform(2.0, 6.0)
            clock.advance(seconds=copy)
            self.ack(ref, LATE, capture=0.04, copy=copy)

    def _write(self, ref: Ref, participant: str, data: bytes) -> FileRef:
        weight = "x" * self.random.randint(20_000, 60_000)
        file = super()._write(ref, participant, canonical({**json.loads(data), "weight": weight}))
        return _as_pack(file) if participant == LATE else file


def _as_pack(file: FileRef) -> FileRef:
    """The same bytes, as what two small files make."""
    half = file.size // 2
    members = (
        Member(name=f"{file.name}/1.delta", offset=0, size=half),
        Member(name=f"{file.name}/2.delta", offset=half, size=file.size - half),
    )
    return replace(file, members=members)


class Past:
    """What happened to one pipeline, told in a few words."""

    def __init__(self, url: str, storage: Path, name: str, *, hours: float, partitions: int = 16) -> None:
        self.clock = PastClock(datetime.now(UTC) - timedelta(hours=hours))
        self.store = open_metastore(url, self.clock)
        self.context = Context(store=self.store, storage=LocalStorage(storage), actor="airflow", sleep=self._sleep)
        self.name = name
        self._partitions = partitions
        self.store.pipelines.create(name, SETTINGS, identity=name, actor="airflow")
        self.driver = self._start(Target(), "first")

    def _sleep(self, seconds: float) -> None:
        self.clock.advance(seconds=seconds)

    def _start(self, target: Target, claim: str) -> SlowDriver:
        restore(self.context, self.name, RestoreOptions(target=target, take_over=True, is_proven_dead=True))
        self.clock.advance(seconds=8)
        driver = SlowDriver(self.context, self.name, partitions=self._partitions, claim=claim)
        driver.start()
        self.clock.advance(seconds=5)
        self.store.attempts.note_progress(self.name, driver.attempt, claim)
        return driver

    def trigger(self, *, by: str | None = None, savepoint: str | None = None, reason: str = "") -> Ref:
        key = f"airflow {self.name}__checkpoint/scheduled__{self.clock():%Y-%m-%dT%H:%M:%S}/trigger"
        self.store.attempts.heartbeat(self.name, self.driver.attempt, self.driver._claim)
        request = TriggerRequest(
            pipeline=self.name, key=key, requested_by=by or key, savepoint=savepoint, reason=reason
        )
        done = self.store.barriers.trigger(request)
        assert done.checkpoint is not None, done
        self.clock.advance(seconds=0.4)
        self.driver.process(9)
        self.driver.capture(done.checkpoint.ref)
        return done.checkpoint.ref

    def completed(self, **wish: str) -> Ref:
        ref = self.trigger(**wish)
        self.driver.ack_all(ref, self.clock)
        complete(self.context, ref)
        self.driver.completed(ref)
        self.clock.advance(seconds=EVERY.total_seconds() - 10)
        return ref

    def timed_out(self, *missing: str) -> Ref:
        """A checkpoint that some never acknowledged."""
        ref = self.trigger()
        self.driver.ack_all(ref, self.clock, but=missing)
        self.store.acks.report_stage(ref, self.driver.attempt, list(missing), "copying", host="executor-4")
        self.clock.advance(minutes=3)
        self.store.checkpoints.fail_overdue(self.name, actor="airflow orders__sla/watch")
        self.clock.advance(minutes=2)
        return ref

    def died(self, why: str, claim: str, target: Target | None = None) -> None:
        """The attempt fails, and the next one comes back."""
        self.store.attempts.end(
            self.name, self.driver.attempt, AttemptStatus.FAILED, actor=f"airflow {self.name}__run", failure=why
        )
        self.clock.advance(seconds=11)
        self.driver = self._start(target or Target(rewind=True), claim)

    def until_now(self) -> None:
        """The store's clock is the real one from here on."""
        self.clock.is_let_go = True

    def close(self) -> None:
        self.store.close()


def beginning(url: str, storage: Path) -> Past:
    """A pipeline `orders` with three participants that runs, an hour ago by its own clock."""
    return Past(url, storage, "orders", hours=1, partitions=2)


def orders(url: str, storage: Path) -> Past:
    """Hours of a pipeline that is well: two failed checkpoints, a driver that died, a savepoint, a pin."""
    past = Past(url, storage, "orders", hours=3.29)
    for _ in range(11):
        past.completed()
    past.timed_out(LATE)
    for _ in range(9):
        past.completed()
    past.died("its driver ended with exit code -9; the last it said: Killed", "second")
    for _ in range(5):
        past.completed()
    savepoint = past.completed(by="ada", savepoint="before-upgrade", reason="Spark 4.3 comes tonight")
    past.store.pins.add(savepoint, owner="ada", reason="until the upgrade has settled")
    for _ in range(6):
        past.completed()
    past.timed_out(LATE, "totals/state/3")
    for _ in range(6):
        past.completed()
    past.until_now()
    past.store.attempts.heartbeat("orders", past.driver.attempt, "second")
    return past


def payments(url: str, storage: Path) -> Past:
    """One that is not: its checkpoints fail, one after the other."""
    past = Past(url, storage, "payments", hours=1)
    for _ in range(6):
        past.completed()
    for _ in range(4):
        past.timed_out(LATE)
    past.until_now()
    past.store.attempts.heartbeat("payments", past.driver.attempt, "first")
    return past


def young(url: str, storage: Path) -> Past:
    """One that has just been started."""
    return Past(url, storage, "shipments", hours=0.01)
