"""Sinks that publish exactly once: their throughput, and how a commit grows with the number of staged files.

Throughput: batches are staged, two for each checkpoint, and published as the agent does it, each checkpoint while the
batches of the next one are staged; against Spark's own writer appending the same batches to the same format and target
without exactly-once, in turns, tables made before. Delta and Iceberg are compared with Spark's Parquet writer, which
writes no log at all. PostgreSQL is compared with Spark's JDBC writer, its batches rewritten into statements of many
rows as fast as its driver can; and, shown only, with the same COPY straight into the table, which moves each row once
where exactly-once has to move it twice.

Commits: more and more small Parquet files are staged and published, each time ten times as many, timed per file.
"""

import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from urllib.parse import urlencode
from uuid import uuid4

import psycopg
from psycopg.conninfo import conninfo_to_dict
from pyspark.sql import DataFrame

from airflow_provider_ckpt.protocol.codec import Json, JsonObject
from airflow_provider_ckpt.protocol.records import Ref
from airflow_provider_ckpt.spark.sinks import (
    DeltaSink,
    FilesSink,
    IcebergSink,
    Name,
    PostgresSink,
    Publication,
    Sink,
    Slot,
)
from airflow_provider_ckpt.spark.sinks.copying import Copy, as_lines
from tests.bench.measure import Goal, Line, Seconds, in_turns, median_of, show, timed
from tests.bench.spark.stage import Stage, flush, remove

ROWS = 1_000_000  # of a batch
BATCHES = 2  # of a checkpoint
CHECKPOINTS = 3
NAME = Name(pipeline="bench", sink="query/sink")
GOAL = Goal(least=0.9)
LINEAR = Goal(most=1.2)
ROUNDS = 3
Make = Callable[[Path], Sink]


def run(stage: Stage) -> None:
    rows = _rows(stage)
    makes: dict[str, Make] = {"files": _files, "Delta": _delta, "Iceberg": _iceberg}
    for kind, make in makes.items():
        _compare(stage, kind, rows, partial(_publish, make), partial(_write_parquet), "Spark's Parquet writer")
    _compare(stage, "PostgreSQL", rows, _publish_rows, _insert_rows, "Spark's JDBC writer")
    _compare(stage, "PostgreSQL", rows, _publish_rows, _copy_rows, "the same COPY into the table", goal=None)
    for kind, make in makes.items():
        _commits(stage, kind, make)


def _rows(stage: Stage) -> DataFrame:
    count = ROWS // 10 if stage.sizes.pairs < 5 else ROWS
    text = "id, id % 1000 AS shop, id * 7 % 100000 AS amount, concat('order ', id) AS note"
    rows = stage.spark.range(0, count, numPartitions=2).selectExpr(*text.split(", ", 3)).cache()
    rows.count()
    return rows


def _files(folder: Path) -> Sink:
    return FilesSink(str(folder / "table"))


def _delta(folder: Path) -> Sink:
    return DeltaSink(str(folder / "table"))


def _iceberg(folder: Path) -> Sink:
    properties = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/lake"}
    return IcebergSink("lake.rows", catalog="bench", properties=properties)


# throughput


def _compare(
    stage: Stage,
    kind: str,
    rows: DataFrame,
    ours: Callable[[Path, DataFrame], Seconds],
    theirs: Callable[[Path, DataFrame], Seconds],
    against: str,
    goal: Goal | None = GOAL,
) -> None:
    def once(work: Callable[[Path, DataFrame], Seconds]) -> Seconds:
        folder = stage.folder / "sinks" / uuid4().hex
        folder.mkdir(parents=True)
        flush()
        try:
            return work(folder, rows)
        finally:
            remove(folder)

    once(ours), once(theirs)  # Java compiles what it runs often
    pairs = in_turns(partial(once, ours), partial(once, theirs), ROUNDS)
    count = rows.count() * BATCHES * CHECKPOINTS
    stage.report(
        Line(
            what=f"{kind}: rows/s through the sink, {count:,} rows in {CHECKPOINTS} checkpoints",
            ours=f"{count / median_of(pairs.ours):,.0f}/s",
            against=f"{against}: {count / median_of(pairs.theirs):,.0f}/s",
            ratio=pairs.speed,
            goal=goal,
        )
    )


def _publish(make: Make, folder: Path, rows: DataFrame) -> Seconds:
    sink = make(folder)
    sink.stage(rows.limit(1), _slot(folder, 0))  # makes the table

    def work() -> None:
        with ThreadPoolExecutor(1) as manager:
            publishing = None
            for checkpoint in range(1, CHECKPOINTS + 1):
                batches = range(checkpoint * BATCHES, (checkpoint + 1) * BATCHES)
                staged = [sink.stage(rows, _slot(folder, batch)).document for batch in batches]
                if publishing is not None:
                    publishing.result()  # no two at once
                publishing = manager.submit(sink.commit, _publication(sink, staged, checkpoint))

    return timed(work)


def _write_parquet(folder: Path, rows: DataFrame) -> Seconds:
    def work() -> None:
        for _ in range(CHECKPOINTS * BATCHES):
            rows.write.mode("append").parquet(f"file://{folder}/table")

    return timed(work)


def _publish_rows(folder: Path, rows: DataFrame) -> Seconds:
    _create_table("published")
    return _publish(lambda _: PostgresSink("published", url=os.environ["BENCH_POSTGRES"]), folder, rows)


def _insert_rows(folder: Path, rows: DataFrame) -> Seconds:
    _create_table("plain")
    options = {"url": _jdbc_url(), "dbtable": "plain", "driver": "org.postgresql.Driver", "batchsize": "10000"}

    def work() -> None:
        for _ in range(CHECKPOINTS * BATCHES):
            rows.write.format("jdbc").options(**options).mode("append").save()

    return timed(work)


def _jdbc_url() -> str:
    """Over the same socket, with statements of many rows."""
    known = conninfo_to_dict(os.environ["BENCH_POSTGRES"])
    settings = {
        "user": known["user"],
        "reWriteBatchedInserts": "true",
        "socketFactory": "org.newsclub.net.unix.AFUNIXSocketFactory$FactoryArg",
        "socketFactoryArg": f"{known['host']}/.s.PGSQL.5432",
    }
    return f"jdbc:postgresql://localhost/{known['dbname']}?{urlencode(settings)}"


def _copy_rows(folder: Path, rows: DataFrame) -> Seconds:
    """What a foreachBatch with COPY does."""
    _create_table("plain")
    statement = f"COPY plain ({', '.join(rows.columns)}) FROM STDIN (FORMAT csv)"
    copy = Copy(url=os.environ["BENCH_POSTGRES"], statement=statement)

    def work() -> None:
        for _ in range(CHECKPOINTS * BATCHES):
            as_lines(rows).mapInArrow(copy, "part long, rows long, bytes long").collect()

    return timed(work)


def _create_table(name: str) -> None:
    with _connect() as connection:
        connection.execute(f"DROP TABLE IF EXISTS {name}, ckpt_sink_runs, ckpt_sink_markers".encode())
        connection.execute(f"CREATE TABLE {name} (id bigint, shop bigint, amount bigint, note text)".encode())


def _connect() -> "psycopg.Connection[tuple[object, ...]]":
    return psycopg.connect(os.environ["BENCH_POSTGRES"], autocommit=True)


# commits


def _commits(stage: Stage, kind: str, make: Make) -> None:
    few, some, many = (stage.sizes.files // part for part in (100, 10, 1))

    def per_file(files: int) -> Seconds:
        return _commit(stage, make, files) / files

    pairs = in_turns(partial(per_file, many), partial(per_file, some), ROUNDS)
    least = median_of([per_file(few) for _ in range(ROUNDS)])
    each = median_of(pairs.ours)
    stage.report(
        Line(
            what=f"{kind}: commit of {many:,} staged files, for each file",
            ours=f"{show(each)} ({show(each * many)} in all)",
            against=f"of {some:,} files: {show(median_of(pairs.theirs))} (of {few:,}: {show(least)})",
            ratio=pairs.slowness,
            goal=LINEAR,
        )
    )


def _commit(stage: Stage, make: Make, files: int) -> Seconds:
    folder = stage.folder / "sinks" / uuid4().hex
    folder.mkdir(parents=True)
    try:
        sink = make(folder)
        empty = stage.spark.createDataFrame([(1,)], "n long").coalesce(1)
        document = sink.stage(empty, _slot(folder, 0)).document  # makes the table, and says where staged files lie
        publication = _publication(sink, [_multiplied(folder, document, files)])
        flush()
        return timed(lambda: sink.commit(publication))
    finally:
        remove(folder)


def _multiplied(folder: Path, document: JsonObject, files: int) -> JsonObject:
    """As if the batch had staged so many files."""
    (staged,) = (each for each in folder.rglob(f"staged/{document['folder']}"))
    (first,) = staged.glob("*.parquet")
    named: list[Json] = []
    for number in range(files):
        copy = staged / f"part-{number:05}-{uuid4().hex}.parquet"
        shutil.copyfile(first, copy)
        named.append([copy.name, copy.stat().st_size])
    return {**document, "files": named, "rows": files}


def _slot(folder: Path, batch: int) -> Slot:
    run = uuid4().hex
    return Slot(name=NAME, attempt=1, batch=batch, run=run, scratch=folder / "scratch" / run)


def _publication(sink: Sink, staged: list[JsonObject], checkpoint: int = 1) -> Publication:
    ref, after = Ref("bench", checkpoint), sink.marker(NAME).committed
    return Publication(ref=ref, name=NAME, attempt=1, after=after, staged=sink.prepare(staged))
