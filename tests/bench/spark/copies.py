"""A location of a GB of RocksDB state: checkpoints and restores of it against plain copies of it.

`CKPT_BENCH_STATE_MB` sets its size. One query aggregates keys whose values do not compress; input files arrive one at
a time, and each is a batch. While measured, the query is idle. What is measured, three times each, in turns:

- *first*: a checkpoint that knows of no earlier one: everything is stored;
- *next*: a checkpoint after 0.1 % of the keys have changed;
- against `cp -r` of the location, which is not flushed to the disk as ours is (one line shows it flushed); on S3
  against boto3's `upload_file` of every file of the location, by as many threads as Spark runs tasks at once. All from
  warm caches. A location has more bytes than its newest batch needs (Spark keeps old versions), up to three times as
  many: both are therefore also set against a copy of just the files that the checkpoint names, measured right after.
- *restore*: a new attempt's folder from the manifest, against `cp -r` (S3: `get_object`) of exactly the same files to a
  new place; cold caches where the system lets us. On S3 the server shares our caches and cores. Verifying, which reads
  and hashes every byte, is shown by itself.

The time of a checkpoint is from when the agent has seen the barrier to COMPLETED. Then 1 % of the keys change, and
what the next checkpoint moves is compared with everything, and with what is new in the location: RocksDB writes the
changed keys into new files, and its compaction writes others anew, which have to move as well. At the end, the storage
must hold each file (a name and its content) once, and after a cleanup that keeps one checkpoint it must be intact.
"""

import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from boto3.s3.transfer import TransferConfig
from pyspark.sql import functions as F  # noqa: N812

from airflow_provider_ckpt.coordinator.cleanup import cleanup
from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.coordinator.manifests import load_manifest
from airflow_provider_ckpt.coordinator.verify import Verification, inspect, verify
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import Checkpoint
from airflow_provider_ckpt.protocol.retention import Retention
from airflow_provider_ckpt.protocol.settings import Settings
from airflow_provider_ckpt.spark.agent import CheckpointAgent
from airflow_provider_ckpt.spark.laying_out import lay_out_checkpoint
from airflow_provider_ckpt.spark.streaming.location import Location
from tests.bench.measure import Goal, Line, Pairs, Seconds, in_turns, median_of, show, timed
from tests.bench.spark.s3_server import BUCKET, plain_client
from tests.bench.spark.stage import (
    Stage,
    Taken,
    copy_folder,
    drop_caches,
    files_below,
    flush,
    link_folder,
    megabytes,
    remove,
    size_of,
    until,
)

COLUMNS = 32  # of eight bytes that do not compress, for each key
BYTES_OF_KEY = 8 * COLUMNS + 32  # as it lies in RocksDB's files, about
KEYS_OF_BATCH = 250_000
WARM = 10  # checkpoints before anything is measured
CORES = 2  # so many tasks run at once
_MIB = 2**20
_PLAIN = TransferConfig(use_threads=False, multipart_threshold=16 * _MIB, multipart_chunksize=16 * _MIB)


def run(stage: Stage) -> None:
    stage.spark.conf.set("spark.sql.shuffle.partitions", "4")
    megabytes_wanted = int(os.environ.get("CKPT_BENCH_STATE_MB", stage.sizes.state_mb))
    keys = megabytes_wanted * 1_000_000 // BYTES_OF_KEY
    source = Source(stage, keys)
    built = _build(stage, source)
    for storage in stage.storages:
        with ExitStack() as stack:
            subject = _open(stack, stage, storage, source, built)
            turns = 1 if stage.sizes.pairs == 1 else 3
            _checkpoints(subject, turns)
            _keep_one(subject)  # measuring firsts has stored the same files again and again
            _changes(subject)
            _restores(subject, turns)


class Source:
    """Input files, each of which is one batch."""

    def __init__(self, stage: Stage, keys: int) -> None:
        self._stage = stage
        self.written = 0
        self.keys = keys
        self.folder = stage.folder / "input"

    def add(self, step: int, offset: int = 0, start: int = 0, end: int | None = None) -> None:
        """A file with every `step`th key, each with a value that it never had before."""
        self.written += 1
        rows = self._stage.spark.range(start + offset, self.keys if end is None else end, step, 1).toDF("k")
        staged = self._stage.folder / f"staged-{self.written}"
        rows.withColumn("v", F.lit(self.written)).write.parquet(str(staged))
        (written,) = staged.glob("part-*.parquet")
        self.folder.mkdir(exist_ok=True)
        written.rename(self.folder / f"{self.written:05}.parquet")
        remove(staged)


@dataclass
class Subject:
    """One running pipeline on one storage."""

    stage: Stage
    storage: str
    pipeline: str
    source: Source
    context: Context

    @property
    def is_s3(self) -> bool:
        return self.storage == "S3"

    @property
    def location(self) -> Path:
        return self.stage.folder_of(self.pipeline).location("totals")

    def change(self, step: int, offset: int) -> int:
        """Change every `step`th key; how many bytes are new in the location then."""
        before = _identities(self.location)
        self.source.add(step, offset)
        until(lambda: Location(self.location).committed == self.source.written - 1)
        flush()
        return sum(size for file, size in _identities(self.location).items() if file not in before)

    def take(self) -> Taken:
        return self.stage.take(self.pipeline, self.storage)

    def take_first(self) -> Taken:
        self.stage.known_of(self.pipeline).forget()
        return self.take()

    def copy(self, folder: Path | None = None) -> Seconds:
        """A plain copy of the location, as one would make it without us, or of another folder."""
        source = folder or self.location
        flush()
        if self.is_s3:
            return timed(partial(_upload_all, self.url, source, f"plain{source}"))
        target = self.stage.folder / "copy"
        seconds = copy_folder(source, target)
        remove(target)
        flush()
        return seconds

    def copy_and_flush(self) -> Seconds:
        target = self.stage.folder / "copy"
        flush()
        seconds = copy_folder(self.location, target) + timed(flush)
        remove(target)
        flush()
        return seconds

    @property
    def url(self) -> str:
        return self.stage.storages[self.storage]

    def lay_out(self, checkpoint: Checkpoint, attempt: int) -> Path:
        """A folder with the files of a checkpoint, no more and no fewer."""
        folder = self.stage.folder_of(self.pipeline, attempt)
        lay_out_checkpoint(self.context, load_manifest(self.context, checkpoint), folder)
        return folder.root


def _build(stage: Stage, source: Source) -> Path:
    """The location of a query that has read all keys."""
    with stage.attached("build", "local disk") as agent:
        seconds = timed(partial(_feed, stage, agent, source))
    location = stage.folder_of("build").location("totals")
    built = stage.folder / "built"
    link_folder(location, built)
    files = files_below(built)
    stage.say(f"{source.keys:,} keys, {megabytes(size_of(files))} in {len(files)} files, built in {show(seconds)}")
    flush()
    return built


def _feed(stage: Stage, agent: CheckpointAgent, source: Source) -> None:
    starts = range(0, source.keys, KEYS_OF_BATCH)
    for start in starts:
        source.add(1, start=start, end=min(start + KEYS_OF_BATCH, source.keys))
    query = _start(stage, agent, source)
    location = Location(stage.folder_of("build").location("totals"))
    until(lambda: query.exception() or location.committed == len(starts) - 1)
    query.stop()
    assert query.exception() is None, query.exception()


def _open(stack: ExitStack, stage: Stage, storage: str, source: Source, built: Path) -> Subject:
    """The query goes on in a pipeline of its own, from second names of what was built."""
    pipeline = storage.replace(" ", "-")
    agent = stack.enter_context(stage.attached(pipeline, storage))
    link_folder(built, stage.folder_of(pipeline).location("totals"))
    query = _start(stage, agent, source)
    stack.callback(query.stop)
    subject = Subject(stage, storage, pipeline, source, stage.context(storage))
    subject.change(10_000, 1)  # it runs, and has loaded its state
    very_first = subject.take()  # also starts the Python workers of the tasks, once in the life of a driver
    young = median_of([_warm_up(subject, offset) for offset in range(2, 2 + WARM)])
    stage.say(
        f"{storage}: the very first of the driver: {show(very_first.by_agent)}; the {WARM} after it: {show(young)}"
    )
    return subject


def _warm_up(subject: Subject, offset: int) -> Seconds:
    """A driver lives for days: what its JVM has not compiled yet is shown, and not measured."""
    subject.change(10_000, offset)
    return subject.take().by_agent


def _start(stage: Stage, agent: CheckpointAgent, source: Source) -> Any:
    reader = stage.spark.readStream.schema("k long, v int").option("maxFilesPerTrigger", 1)
    rows = reader.parquet(str(source.folder))
    values = [F.max(F.xxhash64("k", "v", F.lit(n))).alias(f"v{n}") for n in range(COLUMNS)]
    writer = rows.groupBy("k").agg(*values).writeStream.outputMode("update").format("noop")
    return agent.start("totals", writer.trigger(processingTime="100 milliseconds"))


# checkpoints


def _checkpoints(subject: Subject, turns: int) -> None:
    offsets = iter(range(1, 1000))
    taken: list[Taken] = []
    written: list[int] = []

    def first() -> Seconds:
        flush()
        written.append(size_of(files_below(subject.location)))
        taken.append(subject.take_first())
        return taken[-1].by_agent

    def next_() -> Seconds:
        written.append(subject.change(1_000, next(offsets)))
        taken.append(subject.take())
        return taken[-1].by_agent

    pairs = in_turns(first, subject.copy, turns)
    _report_copies(subject, "first", pairs, taken[-turns:], written[-turns:])
    _report_same_bytes(subject, "first", pairs, taken[-1])
    turns = turns if subject.is_s3 else 2 * turns - 1
    pairs = in_turns(next_, subject.copy, turns)
    _report_copies(subject, "next", pairs, taken[-turns:], written[-turns:], Goal(most=0.1))
    _report_same_bytes(subject, "next", pairs, taken[-1])
    if not subject.is_s3:
        _report_flushed(subject, pairs, taken[-1])


def _report_copies(
    subject: Subject, name: str, pairs: Pairs, taken: list[Taken], written: list[int], goal: Goal | None = None
) -> None:
    stage, storage = subject.stage, subject.storage
    theirs = f"boto3 upload by {CORES} threads" if subject.is_s3 else "cp -r"
    located = size_of(files_below(subject.location))
    for each, new, ours, copied in zip(taken, written, pairs.ours, pairs.theirs, strict=True):
        stage.say(
            f"{storage}: {name} {show(ours)}: {megabytes(each.new_bytes)} moved of {megabytes(each.full_bytes)}, "
            f"{megabytes(new)} new in the location; barrier to last ack {show(each.to_last_ack)}; {theirs} "
            f"{show(copied)}: {ours / copied:.3f}"
        )
    stage.report(
        Line(
            what=f"{name} checkpoint of {megabytes(taken[-1].full_bytes)}, {storage}",
            ours=f"{show(median_of(pairs.ours))}, {megabytes(median(each.new_bytes for each in taken))} new",
            against=f"{theirs} of the location of {megabytes(located)}, {show(median_of(pairs.theirs))}",
            ratio=pairs.slowness,
            goal=goal,
        )
    )


def _report_same_bytes(subject: Subject, name: str, pairs: Pairs, taken: Taken) -> None:
    folder, ours = subject.lay_out(taken.checkpoint, 900), median_of(pairs.ours)
    theirs = median_of([subject.copy(folder) for _ in pairs.ours])
    subject.stage.report(
        Line(
            what=f"{name} checkpoint of {megabytes(taken.full_bytes)}, {subject.storage}",
            ours=show(ours),
            against=f"a plain copy of just its files, {megabytes(size_of(files_below(folder)))}, {show(theirs)}",
            ratio=ours / theirs,
        )
    )
    remove(folder)


def _report_flushed(subject: Subject, pairs: Pairs, taken: Taken) -> None:
    """A copy that would survive a loss of power, as a completed checkpoint does."""
    ours, theirs = median_of(pairs.ours), median_of([subject.copy_and_flush() for _ in pairs.ours])
    subject.stage.report(
        Line(
            what=f"next checkpoint of {megabytes(taken.full_bytes)}, {subject.storage}",
            ours=show(ours),
            against=f"cp -r of the location, flushed to the disk as ours is, {show(theirs)}",
            ratio=ours / theirs,
        )
    )


def _upload_all(url: str, folder: Path, prefix: str) -> None:
    client = plain_client(url)

    def upload(file: Path) -> None:
        client.upload_file(str(file), BUCKET, f"{prefix}/{file.relative_to(folder)}", Config=_PLAIN)

    with ThreadPoolExecutor(CORES) as pool:
        list(pool.map(upload, files_below(folder)))


# 1 % of the keys


def _changes(subject: Subject) -> None:
    stage, storage = subject.stage, subject.storage
    new = subject.change(100, 7)
    taken = subject.take()
    share = taken.new_bytes / taken.full_bytes
    stage.say(
        f"{storage}: 1 % of the keys: {megabytes(taken.new_bytes)} moved of {megabytes(taken.full_bytes)}; new in the "
        f"location {megabytes(new)} (the changed keys, and what RocksDB compacted); "
        f"{show(taken.by_agent)}"
    )
    stage.report(
        Line(
            what=f"bytes moved after 1 % of the keys changed, {storage}",
            ours=megabytes(taken.new_bytes),
            against=f"everything, {megabytes(taken.full_bytes)}",
            ratio=share,
        )
    )
    stage.report(
        Line(
            what=f"bytes moved after 1 % of the keys changed, {storage}",
            ours=megabytes(taken.new_bytes),
            against=f"new in the location, {megabytes(new)}",
            ratio=taken.new_bytes / new,
            goal=Goal(most=1.01),
        )
    )
    _report_stored(subject)


def _identities(location: Path) -> dict[tuple[str, int, int], int]:
    found = ((file, file.stat()) for file in files_below(location))
    return {(str(file), stat.st_ino, stat.st_mtime_ns): stat.st_size for file, stat in found}


# restores


def _restores(subject: Subject, turns: int) -> None:
    checkpoint = subject.take().checkpoint
    manifest = load_manifest(subject.context, checkpoint)
    plain = _plain_copy(subject, checkpoint)
    attempts = iter(range(1000, 2000))

    def ours() -> Seconds:
        folder = subject.stage.folder_of(subject.pipeline, next(attempts))
        drop_caches()
        seconds = timed(partial(lay_out_checkpoint, subject.context, manifest, folder))
        remove(folder.root)
        return seconds

    def theirs() -> Seconds:
        target = subject.stage.folder / "copied-back"
        drop_caches()
        seconds = _copy_back(subject, plain, target)
        remove(target)
        return seconds

    pairs = in_turns(ours, theirs, turns)
    is_cold = drop_caches()
    verified: list[Verification] = []
    verifying = timed(lambda: verified.append(inspect(subject.context, checkpoint)))
    assert verified[0].is_intact
    remove(plain)
    _report_restores(subject, pairs, verifying, verified[0].bytes, "cold" if is_cold else "warm")


def _plain_copy(subject: Subject, checkpoint: Checkpoint) -> Path:
    """Exactly the files of a checkpoint, as copies that share nothing with it."""
    laid_out, plain = subject.lay_out(checkpoint, 901), subject.stage.folder / "plain-copy"
    copy_folder(laid_out, plain)
    remove(laid_out)
    if subject.is_s3:
        _upload_all(subject.url, plain, "plain-copy")
    return plain


def _copy_back(subject: Subject, plain: Path, target: Path) -> Seconds:
    if subject.is_s3:
        return timed(partial(_download_all, subject.url, target, subject.context.workers))
    return copy_folder(plain, target)


def _report_restores(subject: Subject, pairs: Pairs, verifying: Seconds, size: int, cache: str) -> None:
    theirs = f"boto3 download by {subject.context.workers} threads" if subject.is_s3 else "cp -r back"
    against = f"{theirs}, {show(median_of(pairs.theirs))}"
    storage = subject.storage
    subject.stage.say(
        f"{storage}: restore of {megabytes(size)} {', '.join(map(show, pairs.ours))}; {theirs} "
        f"{', '.join(map(show, pairs.theirs))}; {cache} caches; verifying {show(verifying)}"
    )
    subject.stage.report(
        Line(
            what=f"restore of {megabytes(size)}, {cache}, {storage}",
            ours=show(median_of(pairs.ours)),
            against=against,
            ratio=pairs.slowness,
            goal=None if subject.is_s3 else Goal(most=0.5),
        )
    )
    subject.stage.report(
        Line(
            what=f"verifying before a restore, {cache}, {storage}",
            ours=show(verifying),
            against=against,
            ratio=verifying / median_of(pairs.theirs),
        )
    )


def _download_all(url: str, target: Path, threads: int) -> None:
    client = plain_client(url)
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix="plain-copy/")
    keys = [item["Key"] for page in pages for item in page.get("Contents", [])]

    def download(key: str) -> None:
        file = target / key.removeprefix("plain-copy/")
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("wb") as stream:
            shutil.copyfileobj(client.get_object(Bucket=BUCKET, Key=key)["Body"], stream, _MIB)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(download, keys))


# the storage


def _report_stored(subject: Subject) -> None:
    """Each file is stored once, however many checkpoints name it; what retention keeps stays whole."""
    stored = {file.path: file.size for file in subject.context.storage.list(f"{subject.pipeline}/files/")}
    named = _named_files(subject)
    subject.stage.report(
        Line(
            what=f"stored bytes of {len(_completed(subject))} checkpoints, {subject.storage}",
            ours=megabytes(sum(stored.values())),
            against=f"each file once, {megabytes(sum(named.values()))}",
            ratio=sum(stored.values()) / sum(named.values()),
            goal=Goal(most=1.01 if subject.is_s3 else 1),  # a pack may hold what nobody needs any more
        )
    )
    _keep_one(subject)
    (kept,) = _completed(subject)
    checked = verify(subject.context, kept.ref)
    left = sum(file.size for file in subject.context.storage.list(f"{subject.pipeline}/files/"))
    problems = "intact" if checked.is_intact else f"{len(checked.problems)} problems: {checked.problems[0]}"
    subject.stage.say(f"{subject.storage}: {kept.ref} after keep_last=1: {checked.files} files, {problems}")
    subject.stage.report(
        Line(
            what=f"what is left after keep_last=1, every byte verified, {subject.storage}",
            ours=f"{megabytes(left)}, {problems}",
            against=f"the kept checkpoint, {megabytes(checked.bytes)}",
            ratio=left / checked.bytes if checked.is_intact else float("inf"),
            goal=Goal(most=1),
        )
    )


def _keep_one(subject: Subject) -> None:
    keep_one: Callable[[Settings], Settings] = lambda _: Settings(retention=Retention(last=1))  # noqa: E731
    subject.stage.store.pipelines.change(subject.pipeline, keep_one, actor="bench")
    report = cleanup(subject.context, subject.pipeline)
    assert not report.failed, report.failed
    assert len(report.kept) == 1, report.kept


def _completed(subject: Subject) -> tuple[Checkpoint, ...]:
    completed = frozenset({Phase.COMPLETED})
    return subject.stage.store.checkpoints.page(subject.pipeline, limit=100, phases=completed).checkpoints


def _named_files(subject: Subject) -> dict[tuple[str, str | int], int]:
    """By name and content, so that a second copy of the same file would not count; what lies in a pack, by its size."""
    manifests = [load_manifest(subject.context, each) for each in _completed(subject)]
    files = [file for manifest in manifests for file in manifest.laid_out]
    alone = {(file.name, file.sha256): file.size for file in files if not file.members}
    return alone | {(member.name, member.size): member.size for file in files for member in file.members}
