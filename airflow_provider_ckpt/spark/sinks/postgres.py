"""A PostgreSQL table: Spark tasks COPY into a staging table, and one transaction publishes, with its marker.

Readers see a checkpoint whole or not at all. Each task copies in a transaction of its own, whose number stands in its
rows (`ckpt_part`): so rows of a task that Spark ran twice and counted once are told apart.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

import psycopg
from psycopg.sql import SQL, Composed, Identifier

from airflow_provider_ckpt.protocol.codec import Fields, Json, JsonObject
from airflow_provider_ckpt.protocol.errors import Corrupt, Misused
from airflow_provider_ckpt.protocol.recovery import SinkMarker
from airflow_provider_ckpt.spark.sinks.base import (
    Leftover,
    Name,
    Publication,
    Published,
    Sink,
    Slot,
    Staged,
    must_commit,
    refuse_older,
)
from airflow_provider_ckpt.spark.sinks.copying import Copy, as_lines
from airflow_provider_ckpt.spark.sinks.postgres_tables import SinkTables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """What one run of a batch has staged; what Spark did not count is not named."""

    attempt: int
    batch: int
    run: str
    table: str
    columns: tuple[str, ...]
    rows: int
    bytes: int
    parts: tuple[int, ...]

    def to_staged(self) -> Staged:
        document = asdict(self) | {"columns": list(self.columns), "parts": list(self.parts)}
        return Staged(rows=self.rows, bytes=self.bytes, files=0, document=document)


class PostgresSink(Sink):
    """Appends rows to a table, or upserts them by key.

    ::

        ckpt.start("orders", orders.writeStream, sink=PostgresSink("orders", url_from="ORDERS_DATABASE"))

    The table must exist, with a column for each of the query's; the role may create tables in its schema. A restore
    behind what is published is refused.

    :param table: its name, with a schema where it is not on the search path.
    :param url: `postgresql://…`; it reaches executors with the code that they run, and is printed nowhere.
    :param url_from: the environment variable to take it from instead; `ckpt restore` finds the target by it as well.
    :param key: the columns of a unique constraint: a row replaces the one with the same key. Of several in one
        publication the one of the newest batch wins; a batch must have each key at most once.
    """

    def __init__(
        self, table: str, *, url: str | None = None, url_from: str = "CKPT_SINK_URL", key: Iterable[str] = ()
    ) -> None:
        given = url or os.environ.get(url_from)
        if not given:
            raise Misused(f"The sink of table {table} does not know its database: set {url_from} to its URL.")
        self._url = given.replace("postgresql+psycopg:", "postgresql:", 1)
        self._url_from = url_from
        self._key = tuple(key)
        self._tables = SinkTables(self._url, tuple(table.split(".")))

    def __repr__(self) -> str:
        return f"PostgresSink({self._tables.title!r})"

    # staging

    def stage(self, rows: "DataFrame", slot: Slot) -> Staged:
        table = self._tables.begin(slot)
        copy = Copy(url=self._url, statement=self._copy_statement(table, rows.columns))
        tasks = as_lines(rows).mapInArrow(copy, "part long, rows long, bytes long").collect()
        if not tasks:
            self._tables.turn()  # its table may be dropped
            self._tables.forget(slot.name, SQL("run = %s"), [slot.run])
        return _Run(
            attempt=slot.attempt,
            batch=slot.batch,
            run=slot.run,
            table=table,
            columns=tuple(rows.columns),
            rows=sum(task["rows"] for task in tasks),
            bytes=sum(task["bytes"] for task in tasks),
            parts=tuple(task["part"] for task in tasks),
        ).to_staged()

    def prepare(self, batches: Sequence[JsonObject]) -> JsonObject:
        """What comes after the cut goes into another table: this one goes when its batches are published."""
        self._tables.turn()
        return super().prepare(batches)

    def discard(self, name: Name, attempt: int, keep: Sequence[JsonObject]) -> None:
        self._tables.turn()
        kept = [_run(name, dict(document)).run for document in keep]
        self._tables.forget(name, SQL("attempt < %s AND run <> ALL(%s)"), [attempt, kept])

    def leftovers(self, name: Name) -> Iterable[Leftover]:
        return self._tables.leftovers(name)

    # publishing

    def commit(self, publication: Publication) -> Published:
        name, runs = publication.name, [_run(publication.name, each) for each in _batches(publication)]
        with self._tables.transaction() as cursor:
            if must_commit(publication, self._tables.lock_marker(cursor, name)):
                self._publish(cursor, publication, runs)
                self._tables.note(cursor, publication)
            version = cursor.execute("SELECT txid_current()").fetchone()
        batches = [[run.attempt for run in runs], [run.batch for run in runs]]
        self._tables.forget(
            name, SQL("(attempt, batch) IN (SELECT * FROM unnest(%s::bigint[], %s::bigint[]))"), batches
        )
        return Published(
            rows=sum(run.rows for run in runs),
            bytes=sum(run.bytes for run in runs),
            files=0,
            version=f"transaction {version and version[0]}",
        )

    def recover(self, name: Name, attempt: int) -> SinkMarker:
        with self._tables.transaction() as cursor:
            refuse_older(name, attempt, self._tables.read_marker(cursor, name).attempt)
            self._tables.end_commits(cursor, name)
            found = self._tables.lock_marker(cursor, name)
            refuse_older(name, attempt, found.attempt)
            self._tables.note_attempt(cursor, name, attempt)
        return replace(found, attempt=attempt)

    def marker(self, name: Name) -> SinkMarker:
        with self._tables.transaction() as cursor:
            return self._tables.read_marker(cursor, name)

    def describe(self) -> JsonObject:
        return {"kind": "postgres", "table": self._tables.title, "url_from": self._url_from, "key": list(self._key)}

    # inside

    def _publish(self, cursor: psycopg.Cursor, publication: Publication, runs: Sequence[_Run]) -> None:
        """One statement for all batches in a row that lie in one table and have the same columns."""
        for (table, columns), group in groupby(runs, lambda run: (run.table, run.columns)):
            batches = list(group)
            expected = sum(run.rows for run in batches)
            found = 0 if self._tables.size(cursor, table) is None else self._insert(cursor, table, columns, batches)
            if found != expected:
                raise Corrupt(
                    f"{publication.ref} can not be committed through {publication.name}: {found} of {expected} staged "
                    f"rows are in {table}. Bring them back, or give it up with `ckpt resolve {publication.ref} --sink "
                    f"{publication.name.sink} --as abandoned --reason …`."
                )

    def _insert(self, cursor: psycopg.Cursor, table: str, columns: tuple[str, ...], runs: Sequence[_Run]) -> int:
        """How many staged rows there were."""
        parts = [[part for run in runs for part in run.parts]]
        listed = SQL(", ").join(map(Identifier, columns))
        into = SQL("INSERT INTO {} ({}) ").format(self._tables.target, listed)
        source = SQL("FROM {} WHERE ckpt_part = ANY(%s::bigint[])").format(self._tables.beside(table))
        if not self._key:
            return cursor.execute(into + SQL("SELECT {} ").format(listed) + source, parts).rowcount
        found = cursor.execute(SQL("SELECT count(*) ") + source, parts).fetchone()
        cursor.execute(into + self._newest_of_each_key(SQL("{} ").format(listed) + source, columns), parts)
        return found[0] if found else 0

    def _newest_of_each_key(self, source: Composed, columns: tuple[str, ...]) -> Composed:
        """A later batch was copied by later transactions."""
        key = SQL(", ").join(map(Identifier, self._key))
        others = [Identifier(column) for column in columns if column not in self._key]
        sets = SQL(", ").join(SQL("{0} = excluded.{0}").format(column) for column in others)
        action = SQL("UPDATE SET {}").format(sets) if others else SQL("NOTHING")
        return SQL(
            "SELECT DISTINCT ON ({key}) {source} ORDER BY {key}, ckpt_part DESC ON CONFLICT ({key}) DO {action}"
        ).format(key=key, source=source, action=action)

    def _copy_statement(self, table: str, columns: Sequence[str]) -> str:
        listed = SQL(", ").join(map(Identifier, columns))
        return SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(self._tables.beside(table), listed).as_string(None)


def _batches(publication: Publication) -> Sequence[Json]:
    return Fields(f"what {publication.name} publishes", dict(publication.staged)).sequence("batches")


def _run(name: Name, document: Json) -> _Run:
    fields = Fields(f"what {name} has staged", document)
    return _Run(
        attempt=fields.whole("attempt"),
        batch=fields.whole("batch"),
        run=fields.text("run"),
        table=fields.text("table"),
        columns=fields.texts("columns"),
        rows=fields.whole("rows"),
        bytes=fields.whole("bytes"),
        parts=tuple(part for part in fields.sequence("parts") if isinstance(part, int)),
    )
