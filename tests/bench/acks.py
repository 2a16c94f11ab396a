"""Eight processes acknowledge one checkpoint, against bare UPDATEs.

Ours: `Acks.acknowledge` as an agent calls it, 100 acks in each call, from `Ack` objects to a commit: encoding, the
guards (still pending, the checkpoint waits, the attempt is current), the outcome of every ack, the index of pending
participants.

Theirs: a table with the same primary key and the same written columns, no other index, no foreign key, no check; each
process has one raw connection (sqlite3, or psycopg with its pipelined `executemany` and prepared statements) and sends
`UPDATE bare SET … WHERE pipeline = ? AND checkpoint = ? AND participant = ?` for the same participants with the same
JSON, encoded the same way in the time that counts. 100 to a transaction as well; on SQLite with the same
pragmas, busy timeout and BEGIN IMMEDIATE. Whether a row changed is not asked.

The statements differ, the work that reaches the disk does not. Both run in turns on the same database.
"""

import itertools
import json
import sqlite3
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Protocol

import psycopg

from airflow_provider_ckpt.metastore.rows import ack_to_json
from airflow_provider_ckpt.protocol.reasons import AckOutcome
from airflow_provider_ckpt.protocol.records import Ack, Ref

from .databases import Database, Servers
from .measure import Goal, Line, Say, Seconds, Sizes, in_turns, median_of
from .processes import Worker, race
from .sample import ATTEMPT, HOST, batches, freeze, make_ack, participants, run_pipeline

Params = tuple[object, ...]


def bench(servers: Servers, sizes: Sizes, say: Say) -> list[Line]:
    return [
        _compare(_Race(servers.fresh("SQLite"), SqliteTable(), sizes), say),
        _compare(_Race(servers.fresh("PostgreSQL"), PostgresqlTable(), sizes), say),
    ]


def _compare(contest: "_Race", say: Say) -> Line:
    sizes, name = contest.sizes, contest.database.name
    pairs = in_turns(contest.ours, contest.bare, sizes.pairs)
    for ours, theirs in zip(pairs.ours, pairs.theirs, strict=True):
        say(f"{name}: ours {_rate(sizes, ours)}, bare {_rate(sizes, theirs)}: {theirs / ours:.2f}")
    return Line(
        what=f"{sizes.participants:,} acks by {sizes.processes} processes, {name}",
        ours=_rate(sizes, median_of(pairs.ours)),
        against=f"bare UPDATEs, {_rate(sizes, median_of(pairs.theirs))}",
        ratio=pairs.speed,
        goal=Goal(least=0.7),
    )


def _rate(sizes: Sizes, seconds: Seconds) -> str:
    return f"{sizes.participants / seconds:,.0f}/s"


class BareTable(Protocol):
    """The raw driver of one database."""

    def make(self, database: Database, rows: Sequence[Params]) -> None:
        """Make the table where it is missing and fill in the participants that wait."""

    def updater(self, database: Database) -> Callable[[list[Params]], None]:
        """A connection that updates one batch in one transaction."""


class _Race:
    """Runs ours and theirs, each time with participants that nobody has acknowledged."""

    def __init__(self, database: Database, table: BareTable, sizes: Sizes) -> None:
        self.database = database
        self.sizes = sizes
        self._table = table
        self._rounds = itertools.count(1)
        self._names = participants(sizes.participants)

    def ours(self) -> Seconds:
        store = self.database.open()
        pipeline = f"orders-{next(self._rounds)}"
        run_pipeline(store, pipeline)
        ref = freeze(store, pipeline, self._names)
        seconds = race([partial(_acknowledger, self.database, ref, share) for share in self._shares(ref)])
        assert not store.acks.has_pending(ref)
        return seconds

    def bare(self) -> Seconds:
        ref = Ref("orders", next(self._rounds))
        self._table.make(self.database, [(ref.pipeline, ref.id, name, "pending", "captured") for name in self._names])
        workers: list[Worker] = [
            partial(_updater, self._table, self.database, ref, share) for share in self._shares(ref)
        ]
        return race(workers)

    def _shares(self, ref: Ref) -> list[list[Sequence[Ack]]]:
        """The batches of each process: every Spark task has partitions that lie side by side."""
        mine = -(-len(self._names) // self.sizes.processes)
        acks = [make_ack(name, ref) for name in self._names]
        return [batches(share, self.sizes.batch) for share in batches(acks, mine)]


def _acknowledger(database: Database, ref: Ref, share: list[Sequence[Ack]]) -> Callable[[], None]:
    store = database.open()
    store.acks.has_pending(ref)  # connected, as the driver of the bare table is

    def work() -> None:
        for batch in share:
            outcomes = store.acks.acknowledge(ref, ATTEMPT, batch, host=HOST)
            assert all(outcome is AckOutcome.ACCEPTED for outcome in outcomes.values())

    return work


def _updater(table: BareTable, database: Database, ref: Ref, share: list[Sequence[Ack]]) -> Callable[[], None]:
    update = table.updater(database)

    def work() -> None:
        for batch in share:
            now = datetime.now(UTC).replace(tzinfo=None).isoformat(" ")
            update([_params(ref, ack, now) for ack in batch])

    return work


def _params(ref: Ref, ack: Ack, now: str) -> Params:
    document = json.dumps(ack_to_json(ack), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    key = (ref.pipeline, ref.id, ack.participant)
    return ("acked", "acked", now, now, HOST, document, ack.new_bytes, ack.full_bytes, *key)


_TABLE = """
CREATE TABLE IF NOT EXISTS bare (
    pipeline VARCHAR(100), checkpoint INTEGER, participant VARCHAR(500), status VARCHAR(20), stage VARCHAR(40),
    stage_at {time}, acked_at {time}, host TEXT, ack {json}, new_bytes BIGINT, full_bytes BIGINT,
    PRIMARY KEY (pipeline, checkpoint, participant)
)
"""
_INSERT = "INSERT INTO bare (pipeline, checkpoint, participant, status, stage) VALUES (?, ?, ?, ?, ?)"
_UPDATE = (
    "UPDATE bare SET status = ?, stage = ?, stage_at = ?, acked_at = ?, host = ?, ack = ?, new_bytes = ?, "
    "full_bytes = ? WHERE pipeline = ? AND checkpoint = ? AND participant = ?"
)


class SqliteTable:
    def make(self, database: Database, rows: Sequence[Params]) -> None:
        connection = self._connect(database)
        connection.execute(_TABLE.format(time="DATETIME", json="JSON"))
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(_INSERT, rows)
        connection.execute("COMMIT")
        connection.close()

    def updater(self, database: Database) -> Callable[[list[Params]], None]:
        connection = self._connect(database)

        def update(rows: list[Params]) -> None:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(_UPDATE, rows)
            connection.execute("COMMIT")

        return update

    def _connect(self, database: Database) -> sqlite3.Connection:
        connection = sqlite3.connect(database.url.removeprefix("sqlite:///"), timeout=60, isolation_level=None)
        for pragma in ("foreign_keys = ON", "journal_mode = WAL", "synchronous = FULL"):
            connection.execute(f"PRAGMA {pragma}")
        return connection


class PostgresqlTable:
    def make(self, database: Database, rows: Sequence[Params]) -> None:
        with psycopg.connect(database.url) as connection, connection.cursor() as cursor:
            cursor.execute(_TABLE.format(time="TIMESTAMPTZ", json="JSONB").encode())
            cursor.executemany(_INSERT.replace("?", "%s").encode(), rows)

    def updater(self, database: Database) -> Callable[[list[Params]], None]:
        connection = psycopg.connect(database.url)
        statement = _UPDATE.replace("?", "%s").encode()

        def update(rows: list[Params]) -> None:
            with connection.cursor() as cursor:
                cursor.executemany(statement, rows)
            connection.commit()

        return update
