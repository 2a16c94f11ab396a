"""The tables of a PostgreSQL sink, beside its target: where batches are staged, who staged them, what is published.

`ckpt_staged_…` hold the staged rows, `ckpt_sink_runs` says who staged them and where, and `ckpt_sink_markers` what each
sink has published. A staging table takes the batches of one attempt from one cut to the next, and is dropped when all
of them are published: to drop a table costs nothing, to delete its rows as much as to write them.
"""

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from uuid import uuid4

import psycopg
from psycopg.errors import LockNotAvailable
from psycopg.sql import SQL, Identifier

from airflow_provider_ckpt.protocol.errors import NotFound, OutcomeUnknown
from airflow_provider_ckpt.protocol.recovery import SinkMarker
from airflow_provider_ckpt.spark.sinks.base import Leftover, Name, Publication, Slot

_log = logging.getLogger("airflow_provider_ckpt.spark")
_SETUP_LOCK = 0x636B7073  # two drivers that make the tables at once take turns
_FORGET_LOCK = 0x636B7074  # of two that forget the last runs of a table, the second one drops it
_SINK_LOCK = 0x636B7075  # with the hash of its name: whoever changes a sink's marker holds it
_PATIENCE = "2s"  # for a table that is held, perhaps by a task of a driver that sleeps


class SinkTables:
    def __init__(self, url: str, target: tuple[str, ...]) -> None:
        self._url = url
        self._target = target
        self._is_set_up = False
        self._staging: str | None = None  # the table that takes the next batch
        self._turning = threading.Lock()  # batches begin in one thread, cuts are taken in another

    @property
    def title(self) -> str:
        return ".".join(self._target)

    @property
    def target(self) -> Identifier:
        return Identifier(*self._target)

    def beside(self, table: str) -> Identifier:
        """In the target's schema."""
        return Identifier(*self._target[:-1], table)

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Cursor]:
        if not self._is_set_up:
            with self._session() as cursor:
                self._set_up(cursor)
            self._is_set_up = True
        with self._session() as cursor:
            yield cursor

    # what is staged

    def begin(self, slot: Slot) -> str:
        """Note the run, and say which table takes it. One of the same batch before it goes when the batch goes."""
        with self._turning:
            with self.transaction() as cursor:
                table = self._staging or self._create_staging(cursor)
                cursor.execute(
                    SQL("INSERT INTO {} VALUES (%s, %s, %s, %s, %s, %s, %s)").format(self._runs),
                    [*self._who(slot.name), slot.attempt, slot.batch, slot.run, table],
                )
            self._staging = table
        return table

    def turn(self) -> None:
        """The next batch goes into another table: this one may be dropped when nobody needs its batches."""
        with self._turning:
            self._staging = None

    def forget(self, name: Name, which: SQL, values: Sequence[object]) -> None:
        """Nobody needs these runs any more, nor a table that no other run is in.

        Where a table is held its runs stay as well: the next attempt discards them.
        """
        forget = SQL("DELETE FROM {runs} WHERE {whose} AND {which} RETURNING staged")
        try:
            with self.transaction() as cursor:
                cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_FORGET_LOCK])
                cursor.execute("SELECT set_config('lock_timeout', %s, true)", [_PATIENCE])
                cursor.execute(forget.format(runs=self._runs, whose=_WHOSE, which=which), [*self._who(name), *values])
                self._drop_unused(cursor, {row[0] for row in cursor.fetchall()})
        except LockNotAvailable:
            _log.warning("What %s has staged stays for now: somebody holds its table.", name)

    def leftovers(self, name: Name) -> Iterator[Leftover]:
        with self.transaction() as cursor:
            cursor.execute(
                SQL("SELECT attempt, staged, count(*) FROM {runs} WHERE {whose} GROUP BY 1, 2 ORDER BY 1, 2").format(
                    runs=self._runs, whose=_WHOSE
                ),
                self._who(name),
            )
            for attempt, table, batches in cursor.fetchall():
                what = f"{batches} batches for {self.title} in {table}"
                yield Leftover(attempt=attempt, what=what, bytes=self.size(cursor, table) or 0)

    def size(self, cursor: psycopg.Cursor, table: str) -> int | None:
        """None when there is no such table."""
        cursor.execute("SELECT pg_table_size(to_regclass(%s))", [self.beside(table).as_string(cursor)])
        found = cursor.fetchone()
        return found[0] if found else None

    # what is published

    def lock_marker(self, cursor: psycopg.Cursor, name: Name) -> SinkMarker:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", [_SINK_LOCK, str(name)])
        cursor.execute(
            SQL("INSERT INTO {} VALUES (%s, %s, %s, 0, 0) ON CONFLICT DO NOTHING").format(self._markers),
            self._who(name),
        )
        return self.read_marker(cursor, name)

    def read_marker(self, cursor: psycopg.Cursor, name: Name) -> SinkMarker:
        cursor.execute(
            SQL("SELECT checkpoint, attempt FROM {} WHERE {}").format(self._markers, _WHOSE), self._who(name)
        )
        found = cursor.fetchone()
        return SinkMarker(committed=found[0] or None, attempt=found[1]) if found else SinkMarker(committed=None)

    def end_commits(self, cursor: psycopg.Cursor, name: Name) -> None:
        """A driver that was replaced may sleep in the middle of a commit: nobody waits for it to wake up."""
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_database ON pg_database.oid = database "
            "WHERE datname = current_database() AND locktype = 'advisory' AND granted "
            "AND classid = %s AND objid::bigint = hashtext(%s)::bigint & 4294967295",
            [_SINK_LOCK, str(name)],
        )

    def note_attempt(self, cursor: psycopg.Cursor, name: Name, attempt: int) -> None:
        cursor.execute(
            SQL("UPDATE {markers} SET attempt = %s WHERE {whose}").format(markers=self._markers, whose=_WHOSE),
            [attempt, *self._who(name)],
        )

    def note(self, cursor: psycopg.Cursor, publication: Publication) -> None:
        cursor.execute(
            SQL("UPDATE {markers} SET checkpoint = %s, attempt = %s WHERE {whose}").format(
                markers=self._markers, whose=_WHOSE
            ),
            [publication.ref.id, publication.attempt, *self._who(publication.name)],
        )

    # inside

    @contextmanager
    def _session(self) -> Iterator[psycopg.Cursor]:
        with psycopg.connect(self._url, autocommit=False) as connection, connection.cursor() as cursor:
            yield cursor
            try:
                connection.commit()
            except psycopg.OperationalError as error:
                raise OutcomeUnknown(
                    f"PostgreSQL did not say whether it has committed: {type(error).__name__}."
                ) from error

    def _set_up(self, cursor: psycopg.Cursor) -> None:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_SETUP_LOCK])
        cursor.execute("SELECT to_regclass(%s)", [self.target.as_string(cursor)])
        found = cursor.fetchone()
        if found is None or found[0] is None:
            raise NotFound(f"There is no table {self.title} to publish into: create it first.")
        for statement in _SET_UP:
            cursor.execute(statement.format(runs=self._runs, markers=self._markers))

    def _create_staging(self, cursor: psycopg.Cursor) -> str:
        table = f"ckpt_staged_{uuid4().hex}"
        cursor.execute(
            SQL("CREATE TABLE {staged} (LIKE {table}, ckpt_part bigint NOT NULL DEFAULT txid_current())").format(
                staged=self.beside(table), table=self.target
            )
        )
        return table

    def _drop_unused(self, cursor: psycopg.Cursor, tables: set[str]) -> None:
        cursor.execute(SQL("SELECT DISTINCT staged FROM {}").format(self._runs))
        used = {row[0] for row in cursor.fetchall()}
        for table in sorted(tables - used):
            cursor.execute(SQL("DROP TABLE IF EXISTS {}").format(self.beside(table)))

    def _who(self, name: Name) -> list[str]:
        return [self.title, name.pipeline, name.sink]

    @property
    def _runs(self) -> Identifier:
        return self.beside("ckpt_sink_runs")

    @property
    def _markers(self) -> Identifier:
        return self.beside("ckpt_sink_markers")


_WHOSE = SQL("target = %s AND pipeline = %s AND sink = %s")
_SET_UP = (
    SQL(
        "CREATE TABLE IF NOT EXISTS {markers} (target text, pipeline text, sink text, checkpoint bigint NOT NULL, "
        "attempt bigint NOT NULL, PRIMARY KEY (target, pipeline, sink))"
    ),
    SQL(
        "CREATE TABLE IF NOT EXISTS {runs} (target text, pipeline text, sink text, attempt bigint, batch bigint, "
        "run text PRIMARY KEY, staged text NOT NULL)"
    ),
)
