"""A small house for tests: a store, a storage, a clock, and scripted drivers that live in it."""

from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

from airflow_provider_ckpt.coordinator.complete import complete
from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.coordinator.restore import Restored, RestoreOptions, restore
from airflow_provider_ckpt.metastore import Metastore, open_metastore
from airflow_provider_ckpt.protocol.records import Checkpoint, Ref, Triggered, TriggerRequest
from airflow_provider_ckpt.protocol.recovery import Target
from airflow_provider_ckpt.protocol.retention import Retention
from airflow_provider_ckpt.protocol.settings import Settings
from airflow_provider_ckpt.storage.base import Storage
from airflow_provider_ckpt.storage.local import LocalStorage
from airflow_provider_ckpt.testing import ManualClock, ScriptedPipeline, ScriptedSink
from airflow_provider_ckpt.testing.scripted import SINK

NAME = "orders"
SETTINGS = Settings(
    timeout=timedelta(minutes=10),
    lease_ttl=timedelta(minutes=2),
    attempt_ttl=timedelta(minutes=1),
    max_deferral=timedelta(minutes=10),
    orphan_grace=timedelta(hours=1),
    quarantine=timedelta(hours=24),
    retention=Retention(last=2),
)


class RemoteFolder(LocalStorage):
    """A folder that behaves as if each file cost a request; tests/spark has S3 and HDFS."""

    @property
    def is_remote(self) -> bool:
        return True


@dataclass
class House:
    """Everything in one place; `pipeline()` and `checkpoint()` make the ordinary things short."""

    url: str
    folder: Path  # of the local storage
    clock: ManualClock | None = field(default_factory=ManualClock)
    remote: Storage | None = None  # instead of the folder
    storage: Storage = field(init=False)
    store: Metastore = field(init=False)
    context: Context = field(init=False)
    sink: ScriptedSink = field(init=False)
    _keys: int = 0

    def __post_init__(self) -> None:
        self.store = open_metastore(self.url, self.clock)
        self.storage = LocalStorage(self.folder) if self.remote is None else self.remote
        self.context = Context(
            store=self.store,
            storage=self.storage,
            actor="tester",
            workers=2,
            sleep=lambda seconds: self.pass_time(seconds=seconds),
        )
        self.sink = ScriptedSink(self.storage)

    def pass_time(self, **duration: float) -> None:
        assert self.clock is not None
        self.clock.advance(**duration)

    def pipeline(
        self, *, partitions: int = 2, with_sink: bool = False, settings: Settings = SETTINGS
    ) -> ScriptedPipeline:
        """A new pipeline with a running first attempt."""
        self.store.pipelines.create(NAME, settings, identity="tester", actor="tester")
        restore(self.context, NAME)
        driver = self.driver(partitions=partitions, with_sink=with_sink)
        driver.start()
        return driver

    def driver(self, *, partitions: int = 2, with_sink: bool = False, claim: str = "driver") -> ScriptedPipeline:
        sink = self.sink if with_sink else None
        return ScriptedPipeline(self.context, NAME, partitions=partitions, sink=sink, claim=claim)

    def trigger(self, key: str | None = None, **options: object) -> Triggered:
        self._keys += 1
        request = TriggerRequest(pipeline=NAME, key=key or f"key-{self._keys}", requested_by="tester")
        return self.store.barriers.trigger(replace(request, **options))  # type: ignore[arg-type]

    def in_flight_ref(self) -> Ref:
        """A checkpoint that was triggered, and nothing more."""
        triggered = self.trigger()
        assert triggered.checkpoint is not None, triggered
        return triggered.checkpoint.ref

    def in_flight(self, driver: ScriptedPipeline, **options: object) -> Ref:
        """A checkpoint that is frozen and not acknowledged by anybody."""
        triggered = self.trigger(**options)  # type: ignore[arg-type]
        assert triggered.checkpoint is not None, triggered
        driver.capture(triggered.checkpoint.ref)
        return triggered.checkpoint.ref

    def checkpoint(self, driver: ScriptedPipeline, events: int = 1, **options: object) -> Ref:
        """Process some events and complete a checkpoint over them."""
        driver.process(events)
        ref = self.in_flight(driver, **options)
        driver.acknowledge(ref)
        complete(self.context, ref)
        driver.commit(ref)
        driver.completed(ref)
        return ref

    def restore(self, *, to: int | None = None, with_sink: bool = False, **options: object) -> Restored:
        committers = {SINK: self.sink} if with_sink else {}
        chosen = RestoreOptions(target=Target(id=to), take_over=True, is_proven_dead=True, committers=committers)
        return restore(self.context, NAME, replace(chosen, **options))  # type: ignore[arg-type]

    def get(self, ref: Ref) -> Checkpoint:
        return self.store.checkpoints.get(ref)

    def files(self) -> set[str]:
        return {file.path for file in self.storage.list("")}
