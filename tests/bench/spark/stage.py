"""Where a section runs: one Spark session, a store, storages, agents on them, and the way back to who reports."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession

from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.coordinator.follow import follow
from airflow_provider_ckpt.coordinator.places import Places
from airflow_provider_ckpt.metastore import Metastore, open_metastore
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import Checkpoint, Ref, TriggerRequest
from airflow_provider_ckpt.protocol.settings import Settings
from airflow_provider_ckpt.spark.agent import CheckpointAgent
from airflow_provider_ckpt.spark.attachment import Attachment
from airflow_provider_ckpt.spark.checkpointing import Checkpointing
from airflow_provider_ckpt.spark.claiming import claim_attempt
from airflow_provider_ckpt.spark.conf import AgentConf
from airflow_provider_ckpt.spark.folders import AttemptFolder
from airflow_provider_ckpt.spark.holding import Known
from airflow_provider_ckpt.spark.queries import Queries
from airflow_provider_ckpt.storage.opening import open_storage
from tests.bench.measure import Line, Seconds, Sizes, timed
from tests.bench.spark.launching import MARK

_DROP = Path("/proc/sys/vm/drop_caches")
_took: dict[Ref, Seconds] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A completed checkpoint, and how long it took."""

    checkpoint: Checkpoint
    by_agent: Seconds  # from when the agent has seen the barrier to COMPLETED
    to_last_ack: (
        Seconds  # from the barrier to the last acknowledgement, by the store's clock, the agent's poll included
    )

    @property
    def ref(self) -> Ref:
        return self.checkpoint.ref

    @property
    def new_bytes(self) -> int:
        assert self.checkpoint.decision is not None
        return self.checkpoint.decision.new_bytes

    @property
    def new_files(self) -> int:
        assert self.checkpoint.decision is not None
        return self.checkpoint.decision.new_files

    @property
    def full_bytes(self) -> int:
        assert self.checkpoint.decision is not None
        return self.checkpoint.decision.full_bytes


@dataclass
class Stage:
    spark: SparkSession
    store: Metastore
    metastore_url: str
    folder: Path
    storages: Mapping[str, str]
    sizes: Sizes
    agents: dict[str, CheckpointAgent] = field(default_factory=dict)

    # what is reported

    def tell(self, document: Mapping[str, object]) -> None:
        sys.stdout.write(f"{MARK}{json.dumps(document)}\n")
        sys.stdout.flush()

    def say(self, text: str) -> None:
        self.tell({"say": text})

    def report(self, line: Line) -> None:
        self.tell({"line": line.to_json()})

    # pipelines

    def context(self, storage: str) -> Context:
        return Context(store=self.store, storage=open_storage(self.storages[storage]), actor="bench")

    @contextmanager
    def attached(self, pipeline: str, storage: str, *, poll: float = 0.5) -> Iterator[CheckpointAgent]:
        """An agent as `CheckpointAgent.from_conf` makes it, but for a pipeline and a storage of our choice."""
        self.store.pipelines.create(pipeline, Settings(), identity=pipeline, actor="bench")
        conf = AgentConf(pipeline=pipeline, places=self._places(storage), poll=poll)
        claimed = claim_attempt(conf, pipeline, self.spark.sparkContext.applicationId)
        queries = Queries(self.spark)
        attachment = Attachment(self.spark, claimed, queries)
        attachment.start()
        agent = self.agents[pipeline] = CheckpointAgent(self.spark, conf, attachment, queries)
        try:
            yield agent
        finally:
            agent.close()

    def folder_of(self, pipeline: str, attempt: int = 1) -> AttemptFolder:
        return AttemptFolder(work=self.folder / "work", pipeline=pipeline, attempt=attempt)

    def known_of(self, pipeline: str) -> Known:
        """What the agent of a pipeline knows to lie in the storage; when it forgets, the next checkpoint is full."""
        attachment = self.agents[pipeline]._attachment
        assert attachment is not None
        return attachment._site.known

    def trigger(self, pipeline: str) -> Ref:
        triggered = self.store.barriers.trigger(
            TriggerRequest(pipeline=pipeline, key=uuid4().hex, requested_by="bench")
        )
        assert triggered.checkpoint is not None, triggered.detail
        return triggered.checkpoint.ref

    def take(self, pipeline: str, storage: str) -> Taken:
        return self.see(self.trigger(pipeline), storage)

    def see(self, ref: Ref, storage: str) -> Taken:
        """Wait until a checkpoint has completed and its agent is done with it."""
        ended = follow(self.context(storage), ref, timeout=300)
        assert ended.phase is Phase.COMPLETED, f"{ended.phase}: {ended.failure}"
        until(lambda: ref in _took)
        rows = self.store.acks.rows(ref)
        last = max(row.acked_at for row in rows if row.acked_at is not None)
        return Taken(checkpoint=ended, by_agent=_took[ref], to_last_ack=(last - ended.triggered_at).total_seconds())

    def _places(self, storage: str) -> Places:
        return Places(
            home=self.folder,
            metastore=self.metastore_url,
            storage=self.storages[storage],
            work_folder=str(self.folder / "work"),
        )


def open_stage(given: dict[str, Any]) -> Stage:
    _note_how_long_checkpoints_take()
    sizes: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in given["sizes"].items()
    }
    return Stage(
        spark=SparkSession.builder.getOrCreate(),
        store=open_metastore(given["metastore"]),
        metastore_url=given["metastore"],
        folder=Path(given["folder"]),
        storages=given["storages"],
        sizes=Sizes(**sizes),
    )


def _note_how_long_checkpoints_take() -> None:
    run = Checkpointing.run

    def noted(self: Checkpointing) -> Checkpoint | None:
        began = time.perf_counter()
        checkpoint = run(self)
        _took[self._ref] = time.perf_counter() - began
        return checkpoint

    Checkpointing.run = noted  # type: ignore[method-assign]


def until(condition: Callable[[], object], timeout: Seconds = 600) -> None:
    give_up = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < give_up, "It did not come to that."
        time.sleep(0.01)


# files


def flush() -> None:
    """Nothing of what was done before is still on its way to the disk."""
    os.sync()


def drop_caches() -> bool:
    """Whether files are read from the disk from now on, not from memory."""
    os.sync()
    try:
        _DROP.write_text("3")
    except OSError:
        return False
    return True


def copy_folder(source: Path, target: Path, *, is_strict: bool = True) -> Seconds:
    """`cp -r`, timed; the copy stays. Files that go away meanwhile are an error only when strict."""
    target.parent.mkdir(parents=True, exist_ok=True)
    errors = None if is_strict else subprocess.DEVNULL
    return timed(partial(subprocess.run, ["cp", "-r", str(source), str(target)], check=is_strict, stderr=errors))


def link_folder(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-rl", str(source), str(target)], check=True)


def remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def files_below(folder: Path) -> list[Path]:
    """Without the checksums that Hadoop keeps beside each, which are hidden."""
    return [file for file in folder.rglob("*") if file.is_file() and not file.name.startswith(".")]


def size_of(files: list[Path]) -> int:
    return sum(file.stat().st_size for file in files)


def megabytes(count: float) -> str:
    return f"{count / 1e6:,.1f} MB"
