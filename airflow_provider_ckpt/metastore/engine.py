"""Connections, transactions and the store's clock.

Every public call of the metastore is one transaction through `Engine.write` or `Engine.read`. On PostgreSQL a
transaction that changes a pipeline first locks the pipeline's row; SQLite's `BEGIN IMMEDIATE` locks everything.
An error before the commit changed nothing (`Unreachable`); an error of the commit itself is `OutcomeUnknown`.
"""

import logging
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import NoReturn

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.pool import ConnectionPoolEntry, Pool, StaticPool
from sqlalchemy.sql.compiler import SQLCompiler

from airflow_provider_ckpt.metastore.schema import Time, events
from airflow_provider_ckpt.protocol.codec import JsonObject
from airflow_provider_ckpt.protocol.errors import Misused, OutcomeUnknown, TryAgain, Unreachable

_log = logging.getLogger("airflow_provider_ckpt")

Clock = Callable[[], datetime]
_BUSY_SECONDS = 60
_MAX_TEXT = 4000


class StoreNow(sa.sql.functions.FunctionElement[datetime]):
    """The store's own clock, read when the statement runs."""

    inherit_cache = True
    type = Time()


@compiles(StoreNow, "postgresql")
def _now_on_postgresql(element: StoreNow, compiler: SQLCompiler, **kwargs: object) -> str:  # noqa: ARG001
    return "clock_timestamp()"


@compiles(StoreNow, "sqlite")
def _now_on_sqlite(element: StoreNow, compiler: SQLCompiler, **kwargs: object) -> str:  # noqa: ARG001
    return "strftime('%Y-%m-%d %H:%M:%f000', 'now')"  # as SQLAlchemy writes a DateTime, so that text compares as time


@dataclass(frozen=True, slots=True)
class Tx:
    """One transaction, with the clock that everything in it is judged by."""

    connection: sa.Connection
    clock: Clock | None
    recorded: list[str] = field(default_factory=list)  # a line for the log, once it is committed

    @property
    def now_sql(self) -> sa.ColumnElement[datetime]:
        """The clock as an expression, for statements that must not cost a second round trip."""
        return StoreNow() if self.clock is None else sa.literal(self.clock(), Time())

    def now(self) -> datetime:
        if self.clock is not None:
            return self.clock()
        return self.connection.execute(sa.select(sa.type_coerce(StoreNow(), Time()))).scalar_one()

    def record(
        self,
        kind: str,
        pipeline: str,
        *,
        actor: str,
        reason: str = "",
        attempt: int | None = None,
        checkpoint: int | None = None,
        detail: JsonObject | None = None,
    ) -> None:
        """Append an event: what happened, who asked, why."""
        self.connection.execute(
            sa.insert(events).values(
                pipeline=pipeline,
                at=self.now_sql,
                kind=kind,
                attempt=attempt,
                checkpoint=checkpoint,
                actor=clean(actor),
                reason=clean(reason),
                detail=detail or {},
            )
        )
        what = pipeline if checkpoint is None else f"{pipeline}/{checkpoint}"
        self.recorded.append(f"{what} {kind} by {clean(actor)}" + (f": {clean(reason)}" if reason else ""))


class Engine:
    """A database, safe to carry over a fork."""

    def __init__(self, engine: sa.Engine, clock: Clock | None = None) -> None:
        self.sa = engine
        self._clock = clock
        _forget_connections_after_fork(engine)

    @property
    def name(self) -> str:
        """For people: without the password, wherever in the URL it is."""
        secrets = {key: "***" for key in self.sa.url.query if "pass" in key.lower()}
        return self.sa.url.update_query_dict(secrets).render_as_string(hide_password=True)

    @property
    def dialect(self) -> str:
        return self.sa.dialect.name

    @contextmanager
    def write(self, *, is_one_statement: bool = False) -> Iterator[Tx]:
        """A transaction that changes something.

        :param is_one_statement: the first statement changes what is to be changed. SQLite then keeps all others out
            from there on only, not from the beginning.
        """
        with self._connect(**({"ckpt_begin": "BEGIN"} if is_one_statement else {})) as connection:
            transaction = self._begin(connection)
            tx = Tx(connection, self._clock)
            try:
                yield tx
            except sa.exc.DBAPIError as error:
                _let_go(transaction)
                self._nothing_changed(error)
            except BaseException:
                _let_go(transaction)
                raise
            self._commit(transaction)
        for line in tx.recorded:
            _log.info(line)

    @contextmanager
    def read(self) -> Iterator[Tx]:
        """One snapshot of the store; nothing is locked."""
        with self._connect(ckpt_begin="BEGIN") as connection:
            transaction = self._begin(connection)
            try:
                yield Tx(connection, self._clock)
            except sa.exc.DBAPIError as error:
                self._nothing_changed(error)
            finally:
                _let_go(transaction)

    @contextmanager
    def _connect(self, **options: str) -> Iterator[sa.Connection]:
        try:
            connection = self.sa.connect().execution_options(**options)
        except sa.exc.DBAPIError as error:
            self._nothing_changed(error)
        with connection:
            yield connection

    def _begin(self, connection: sa.Connection) -> sa.RootTransaction:
        try:
            return connection.begin()
        except sa.exc.DBAPIError as error:
            self._nothing_changed(error)

    def _commit(self, transaction: sa.RootTransaction) -> None:
        try:
            transaction.commit()
        except sa.exc.DBAPIError as error:
            raise OutcomeUnknown(
                f"The metastore {self.name} was lost during a commit ({_first_line(error)}). "
                "Read again what became of it before doing anything else."
            ) from error

    def _nothing_changed(self, error: sa.exc.DBAPIError) -> NoReturn:
        if isinstance(error, sa.exc.IntegrityError):
            raise error
        if isinstance(error, sa.exc.DataError):
            raise Misused(f"The metastore {self.name} can not hold that: {_first_line(error)}.") from error
        if "no such table" in str(error.orig) or "does not exist" in str(error.orig):
            raise Misused(
                f"The metastore {self.name} has no tables of this version ({_first_line(error)}). Run `ckpt init`."
            ) from error
        if any(sign in str(error.orig) for sign in ("readonly database", "not a database", "malformed")):
            raise Misused(
                f"The metastore {self.name} can not be used: {_first_line(error)}. Check the file and its permissions."
            ) from error
        if isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError):
            raise Unreachable(
                f"The metastore {self.name} did not answer: {_first_line(error)}. Nothing was changed; "
                "check that it runs and can be reached, then try again."
            ) from error
        raise TryAgain(f"The metastore {self.name} refused: {_first_line(error)}. Nothing was changed.") from error


def _let_go(transaction: sa.RootTransaction) -> None:
    """Nothing of it shall stay; when the connection is lost by now, nothing does, and what was read was read."""
    with suppress(sa.exc.DBAPIError):
        transaction.rollback()


def open_engine(url: str, clock: Clock | None = None) -> Engine:
    """Connect lazily to SQLite (`sqlite:////absolute/file.db`) or PostgreSQL (`postgresql://…`)."""
    parsed = _parse(url)
    match parsed.get_backend_name():
        case "sqlite":
            engine = sa.create_engine(parsed, **_sqlite_arguments(parsed))
            sa.event.listen(engine, "connect", _prepare_sqlite)
            sa.event.listen(engine, "begin", _begin_on_sqlite)
        case "postgresql":
            engine = _postgresql(parsed)
        case other:
            raise Misused(f"The metastore can be on sqlite or postgresql, not on {other}.")
    return Engine(engine, clock)


def clean(text: str) -> str:
    """Free text that both databases take: no NUL, not endless."""
    text = text.replace("\0", "")
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…"


def _parse(url: str) -> sa.URL:
    try:
        return sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError) as error:
        raise Misused(
            "The metastore's URL can not be read. Use sqlite:////absolute/path/metastore.db or postgresql://user@host/database."
        ) from error


def _sqlite_arguments(url: sa.URL) -> dict[str, object]:
    arguments: dict[str, object] = {"connect_args": {"timeout": _BUSY_SECONDS, "check_same_thread": False}}
    if url.database in (None, "", ":memory:"):
        arguments["poolclass"] = StaticPool
    return arguments


def _postgresql(url: sa.URL) -> sa.Engine:
    try:
        return sa.create_engine(
            url.set(drivername="postgresql+psycopg"),
            pool_pre_ping=True,
            pool_size=4,
            connect_args={
                "connect_timeout": 10,
                "keepalives_idle": 10,  # a host that is gone is noticed within half a minute
                "keepalives_interval": 5,
                "keepalives_count": 3,
                "tcp_user_timeout": 30_000,
                "application_name": "ckpt",
                "options": f"-c lock_timeout={_BUSY_SECONDS}s",
            },
        )
    except ModuleNotFoundError as error:
        raise Misused(
            "PostgreSQL needs its driver: install airflow-provider-ckpt with the extra `postgres`."
        ) from error


def _prepare_sqlite(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # transactions begin where we say so
    cursor = connection.cursor()
    try:
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA synchronous = FULL")  # a decision that was acknowledged survives a power cut
    except BaseException:
        connection.close()  # no database: nobody else would close it
        raise
    cursor.close()


def _begin_on_sqlite(connection: sa.Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("ckpt_begin", "BEGIN IMMEDIATE"))


_inherited: list[Pool] = []  # kept alive in a child: closing them there would harm the parent


def _forget_connections_after_fork(engine: sa.Engine) -> None:
    reference = weakref.ref(engine)

    def in_child() -> None:
        inherited = reference()
        if inherited is not None and not isinstance(inherited.pool, StaticPool):
            _inherited.append(inherited.pool)
            inherited.dispose(close=False)

    os.register_at_fork(after_in_child=in_child)


def _first_line(error: sa.exc.DBAPIError) -> str:
    return str(error.orig).strip().splitlines()[0] if str(error.orig).strip() else type(error.orig).__name__
