"""What a Spark task does for a checkpoint: makes its participants' files durable, and acknowledges them.

Runs in a Python worker of an executor and needs no pyspark itself. The store and the storage are opened once per
worker and kept. A store or a storage that does not answer is tried again for a while; a task that Spark runs a second
time finds its files there already, and its acknowledgements are duplicates: both change nothing.
"""

import gc
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import count
from pathlib import Path
from typing import TypeVar

from airflow_provider_ckpt.metastore import Metastore, open_metastore
from airflow_provider_ckpt.protocol.codec import JsonObject
from airflow_provider_ckpt.protocol.errors import Corrupt, OutcomeUnknown, TryAgain
from airflow_provider_ckpt.protocol.paths import file_path
from airflow_provider_ckpt.protocol.records import Ack, FileRef, Ref
from airflow_provider_ckpt.spark.packing import NewFile, pack, plan_packs
from airflow_provider_ckpt.spark.streaming.hadoop_crc import checksums_of, find_damage
from airflow_provider_ckpt.storage.base import Storage, digest_bytes
from airflow_provider_ckpt.storage.opening import open_storage

_PATIENCE = 120.0  # seconds that one call is tried again for
_FLUSH_EVERY = 1.0  # seconds between two statements of acknowledgements
_AT_ONCE = 4  # participants that a task makes durable at once: mostly it waits for the disk or the network
_BYTES_PER_FILE = 256 * 1024  # naming and flushing a file takes as long as moving so many bytes, about

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One checkpoint, and where its bytes and acknowledgements go. Travels to the executors, is printed nowhere."""

    ref: Ref
    attempt: int
    metastore_url: str
    storage_url: str

    def __repr__(self) -> str:
        return f"Order({self.ref})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one participant has to make durable; `stored` lies in the storage since an earlier checkpoint."""

    participant: str
    stored: tuple[FileRef, ...]
    new: tuple[NewFile, ...]
    positions: JsonObject
    timings: dict[str, float]
    staged: JsonObject = field(default_factory=dict)

    @property
    def weight(self) -> int:
        """What it costs to make it durable: its new bytes, and something for each file."""
        return sum(file.size + _BYTES_PER_FILE for file in self.new)


def persist(order: Order, shares: Iterable[Share]) -> None:
    """Make each share durable and acknowledge it, unless somebody was faster.

    :raises NotFound: when a file is gone: it was not held, and Spark's maintenance took it away.
    """
    store, storage = _store(order.metastore_url), _storage(order.storage_url)
    told: set[str] = set()
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="ckpt") as pool:
        working = {pool.submit(_make_durable, order, storage, share): share.participant for share in shares}
        while working:
            done, _ = wait(working, _FLUSH_EVERY, FIRST_EXCEPTION)
            if done:
                _acknowledge(order, store, [each.result() for each in done])
            working = {each: name for each, name in working.items() if each not in done}
            late = {name for each, name in working.items() if each.running()} - told
            if late:
                _tell(order, store, sorted(late))
                told |= late
    _keep_loaded()


@cache
def _keep_loaded() -> None:
    """PySpark collects garbage after every task of a worker: what is loaded for good is not looked through again."""
    gc.freeze()


def _tell(order: Order, store: Metastore, late: list[str]) -> None:
    """Who takes longer than a moment is seen, with its host, while it works; that nobody hears of it harms nothing."""
    with suppress(TryAgain, OutcomeUnknown):
        store.acks.report_stage(order.ref, order.attempt, late, "copying", host=platform.node())


def _make_durable(order: Order, storage: Storage, share: Share) -> Ack:
    began = time.monotonic()
    new = _put_all(order, storage, share)
    return Ack(
        participant=share.participant,
        files=(*share.stored, *new),
        new_bytes=sum(file.size for file in new),
        positions=share.positions,
        timings={**share.timings, "copy": round(time.monotonic() - began, 6)},
        staged=share.staged,
    )


def _put_all(order: Order, storage: Storage, share: Share) -> tuple[FileRef, ...]:
    if not storage.is_remote:
        return tuple(_put(order, storage, file) for file in share.new)
    alone, packs = plan_packs(share.new)
    names = (f"packs/{share.participant}.{number}" for number in count())
    return (
        *(_put(order, storage, file) for file in alone),
        *(_put_pack(order, storage, name, files) for name, files in zip(names, packs, strict=False)),
    )


def _put(order: Order, storage: Storage, file: NewFile) -> FileRef:
    _refuse_damaged(order, file)
    path = file_path(order.attempt, order.ref.id, file.name)
    digest = patiently(lambda: storage.put_file(f"{order.ref.pipeline}/{path}", Path(file.source)))
    return FileRef(path=path, name=file.name, size=digest.size, sha256=digest.sha256)


def _put_pack(order: Order, storage: Storage, name: str, files: Sequence[NewFile]) -> FileRef:
    for file in files:
        _refuse_damaged(order, file)
    data, members = pack(files)
    path, digest = file_path(order.attempt, order.ref.id, name), digest_bytes(data)
    patiently(lambda: storage.create(f"{order.ref.pipeline}/{path}", data))
    return FileRef(path=path, name=name, size=digest.size, sha256=digest.sha256, members=members)


def _refuse_damaged(order: Order, file: NewFile) -> None:
    """A file of a running query that does not match Spark's checksums would be stored, and trusted, as it is."""
    source = Path(file.source)
    if checksums_of(source).exists() and (damage := find_damage(source)) is not None:
        raise Corrupt(
            f"{damage}: it has changed since Spark wrote it, and is not stored. Look after the disk of the work "
            f"folder; then let the pipeline go back with `ckpt restore {order.ref.pipeline} --rewind --take-over`."
        )


def _acknowledge(order: Order, store: Metastore, acks: list[Ack]) -> None:
    patiently(lambda: store.acks.acknowledge(order.ref, order.attempt, acks, host=platform.node()))


def patiently(call: Callable[[], _Result], patience: float = _PATIENCE) -> _Result:
    """Try again while nothing answers: writes are create-only and acknowledgements count once, so that is safe."""
    give_up = time.monotonic() + patience
    pause = 0.05
    while True:
        try:
            return call()
        except (TryAgain, OutcomeUnknown):
            if time.monotonic() + pause > give_up:
                raise
        time.sleep(pause)
        pause = min(pause * 2, 5.0)


@lru_cache(maxsize=4)
def _store(url: str) -> Metastore:
    return open_metastore(url)


@lru_cache(maxsize=4)
def _storage(url: str) -> Storage:
    return open_storage(url)
