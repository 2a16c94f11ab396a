"""`ckpt doctor`: tries for real what everything else relies on, and says what to do where it fails."""

import argparse
import platform
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from airflow_provider_ckpt.cli.exit_codes import ExitCode, code_of
from airflow_provider_ckpt.cli.output import Result, Row, line, table
from airflow_provider_ckpt.cli.session import Session
from airflow_provider_ckpt.metastore.migrating import current, head
from airflow_provider_ckpt.protocol.codec import JsonObject
from airflow_provider_ckpt.protocol.duration import approximate
from airflow_provider_ckpt.protocol.errors import AlreadyExists, CkptError, Corrupt, Misused, NotFound
from airflow_provider_ckpt.storage.base import Storage
from airflow_provider_ckpt.version import __version__

_TOLERABLE = timedelta(seconds=5)
_PACKAGES = ("SQLAlchemy", "alembic", "boto3", "psycopg", "rich", "pendulum")


class Status(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


_STYLES = {Status.OK: "green", Status.WARNING: "yellow", Status.FAILED: "red", Status.SKIPPED: "dim"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    name: str
    status: Status
    detail: str
    code: ExitCode = ExitCode.DONE


def doctor(args: argparse.Namespace, session: Session) -> Result:  # noqa: ARG001 - as every command
    reached = _check("metastore", lambda: _reach(session))
    needs_store = _after(reached)
    checks = [
        reached,
        needs_store("migrations", lambda: _migrations(session)),
        _check("storage", lambda: _probe(session.open_storage())),
        needs_store("clock", lambda: _clock(session)),
        _check("versions", _versions),
    ]
    return Result(
        document={"is_well": not any(_failed(checks)), "checks": [_document(each) for each in checks]},
        view=[table(("=CHECK", "=STATUS", ""), [_row(each) for each in checks])],
        code=next(iter(_failed(checks)), ExitCode.DONE),
    )


def _failed(checks: list[Check]) -> list[ExitCode]:
    return [each.code for each in checks if each.status is Status.FAILED]


def _check(name: str, work: Callable[[], str | Check]) -> Check:
    """Run one check; an error's text says what to do."""
    try:
        found = work()
    except CkptError as error:
        return Check(name=name, status=Status.FAILED, detail=str(error), code=code_of(error))
    return found if isinstance(found, Check) else Check(name=name, status=Status.OK, detail=found)


def _after(reached: Check) -> Callable[[str, Callable[[], str | Check]], Check]:
    """Checks that make no sense, and would only wait, while the metastore does not answer."""
    if reached.status is Status.OK:
        return _check
    return lambda name, _: Check(name=name, status=Status.SKIPPED, detail="the metastore does not answer")


def _reach(session: Session) -> str:
    session.store.checkpoints.now()
    return f"{session.store.engine.name} answers"


def _migrations(session: Session) -> str:
    found, needed = current(session.store.engine), head()
    if found != needed:
        has = "no tables" if found is None else f"tables of version {found}"
        raise Misused(f"The metastore has {has}; this package needs version {needed}. Run `ckpt init`.")
    return f"at version {found}, as this package needs"


def _probe(storage: Storage) -> str:
    """Write, read, list and delete a file of our own, and write it twice, which must not work."""
    path, data = f".doctor/{uuid4().hex}", uuid4().bytes
    storage.create(path, data)
    try:
        _expect(storage, storage.read(path) == data, "does not give back what was written")
        _expect(storage, path in [file.path for file in storage.list(".doctor/")], "does not list what was written")
        _overwrite(storage, path)
        _finish_upload_over(storage, path)
        _expect_kept(storage, storage.read(path) == data)
    finally:
        storage.delete(path)
    _expect(storage, storage.stat(path) is None, "still has what was deleted")
    return f"{storage.url} writes, reads, lists and deletes, and overwrites nothing"


def _overwrite(storage: Storage, path: str) -> None:
    with suppress(AlreadyExists):
        storage.create(path, b"other bytes")


def _finish_upload_over(storage: Storage, path: str) -> None:
    """On S3 an upload in parts is another way to write, and a server may know the condition for one of them only."""
    if not storage.url.startswith("s3://"):
        return
    from airflow_provider_ckpt.storage.s3 import S3Storage  # noqa: PLC0415 - boto3, for those who use it

    if isinstance(storage, S3Storage):
        with TemporaryDirectory() as folder, suppress(NotFound):
            source = Path(folder) / "other"
            source.write_bytes(b"more other bytes")
            storage.finish_upload(path, storage.begin_upload(path, source), source.stat().st_size)
        for partial in storage.partials(path):
            storage.discard(partial)


def _expect_kept(storage: Storage, is_true: bool) -> None:  # noqa: FBT001
    if not is_true:
        raise Corrupt(
            f"The storage {storage.url} overwrites what is there, although it is told not to (If-None-Match): two "
            "drivers could destroy each other's checkpoints. Use a server with conditional writes, as Amazon's."
        )


def _expect(storage: Storage, is_true: bool, otherwise: str) -> None:  # noqa: FBT001
    if not is_true:
        raise Corrupt(f"The storage {storage.url} {otherwise}: it is not consistent. Use another one.")


def _clock(session: Session) -> str | Check:
    before = datetime.now(UTC)
    store = session.store.checkpoints.now()
    host = before + (datetime.now(UTC) - before) / 2
    apart = abs(store - host)
    detail = f"the metastore's clock and this host's differ by {approximate(apart)}; nothing depends on it"
    if apart <= _TOLERABLE:
        return detail
    return Check(name="clock", status=Status.WARNING, detail=f"{detail}, but logs are hard to compare: check NTP.")


def _versions() -> str:
    packages = [f"{name} {_version(name)}" for name in _PACKAGES]
    ours = [f"airflow-provider-ckpt {__version__}", f"Python {platform.python_version()}"]
    return ", ".join([*ours, *packages, f"SQLite {sqlite3.sqlite_version}"])


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "is not installed"


def _document(check: Check) -> JsonObject:
    return {"name": check.name, "status": check.status, "detail": check.detail}


def _row(check: Check) -> Row:
    return check.name, line(check.status, _STYLES[check.status]), check.detail
