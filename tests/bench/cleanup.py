"""A cleanup of ten thousand files, against removing as many equal files.

Twenty completed checkpoints of one pipeline hold 10,000 files of 4 KiB on the local disk; retention keeps two. Ours is
`cleanup`: it reads the manifests that stay, lists the storage, explains every file, condemns what goes in the store,
and deletes it in batches under its lease. Theirs is `rm -r` of equal folders with as many files, which does none of
that. Afterwards what was kept must be there, and nothing else. Run in a child, whose memory is looked at.
"""

import hashlib
import subprocess
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from airflow_provider_ckpt.coordinator.cleanup import CleanupReport, cleanup
from airflow_provider_ckpt.coordinator.complete import complete
from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.protocol.paths import file_path
from airflow_provider_ckpt.protocol.records import Ack, FileRef, Ref
from airflow_provider_ckpt.protocol.retention import Retention
from airflow_provider_ckpt.protocol.settings import Settings
from airflow_provider_ckpt.storage.local import LocalStorage

from .databases import Database, Servers
from .measure import Line, Say, Seconds, Sizes, show, timed
from .processes import alone
from .sample import ATTEMPT, freeze, run_pipeline

CHECKPOINTS, KEPT = 20, 2
CONTENT = b"x" * 4096
SHA256 = hashlib.sha256(CONTENT).hexdigest()
PIPELINE = "orders"


def bench(servers: Servers, sizes: Sizes, say: Say) -> list[Line]:
    return [line for kind in ("SQLite", "PostgreSQL") for line in _compare(servers.fresh(kind), sizes, say)]


def _compare(database: Database, sizes: Sizes, say: Say) -> list[Line]:
    root = database.folder / "storage"
    each = sizes.files // CHECKPOINTS
    alone(partial(_fill, database, root, each))  # what it takes must not be there already when we measure
    theirs = _remove_equal_files(database.folder / "rm", each)
    ours, memory = alone(partial(_clean, database, root))
    _check(ours, root, each)
    say(
        f"{database.name}: {ours.deleted:,} of {sizes.files:,} files gone after {show(ours.seconds)}, rm {show(theirs)}"
    )
    return [
        Line(
            what=f"cleanup of {ours.deleted:,} of {sizes.files:,} files, {database.name}",
            ours=show(ours.seconds),
            against=f"rm -r, {show(theirs)}",
            ratio=ours.seconds / theirs,
        ),
        Line(
            what=f"memory of that cleanup, {database.name}",
            ours=f"{memory / 2**20:.1f} MiB more",
            against=f"bytes for each of {sizes.files:,} files",
            ratio=memory / sizes.files,
        ),
    ]


@dataclass(frozen=True, slots=True)
class _Cleaned:
    seconds: Seconds
    deleted: int
    kept: frozenset[int]


def _clean(database: Database, root: Path) -> _Cleaned:
    reports: list[CleanupReport] = []
    seconds = timed(lambda: reports.append(cleanup(_context(database, root), PIPELINE)))
    (report,) = reports
    assert not report.failed
    assert not report.missing
    return _Cleaned(seconds, len(report.deleted), frozenset(report.kept))


def _check(cleaned: _Cleaned, root: Path, each: int) -> None:
    """What was kept is there, and nothing else."""
    left = {file.path for file in LocalStorage(root).list(f"{PIPELINE}/files/")}
    newest = range(CHECKPOINTS - KEPT + 1, CHECKPOINTS + 1)
    assert cleaned.kept == set(newest)
    assert left == {f"{PIPELINE}/{_path(id_, n)}" for id_ in newest for n in range(each)}


def _context(database: Database, root: Path) -> Context:
    return Context(store=database.open(), storage=LocalStorage(root), actor="bench")


def _fill(database: Database, root: Path, each: int) -> None:
    context = _context(database, root)
    run_pipeline(context.store, PIPELINE, Settings(retention=Retention(last=KEPT)))
    for _ in range(CHECKPOINTS):
        ref = freeze(context.store, PIPELINE, ["totals/log"])
        _write_files(root / PIPELINE, ref.id, each)
        context.store.acks.acknowledge(ref, ATTEMPT, [_ack(ref, each)])
        complete(context, ref)


def _write_files(base: Path, checkpoint: int, each: int) -> None:
    """As the storage lays them out, but not flushed one by one."""
    for path in (base / _path(checkpoint, n) for n in range(each)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(CONTENT)


def _ack(ref: Ref, each: int) -> Ack:
    paths = (_path(ref.id, n) for n in range(each))
    files = (FileRef(path=path, name=path, size=len(CONTENT), sha256=SHA256) for path in paths)
    return Ack(participant="totals/log", files=tuple(files))


def _path(checkpoint: int, n: int) -> str:
    return file_path(ATTEMPT, checkpoint, f"{n % 4}/{n}.delta")


def _remove_equal_files(base: Path, each: int) -> Seconds:
    for checkpoint in range(CHECKPOINTS - KEPT):
        _write_files(base, checkpoint, each)
    return timed(partial(subprocess.run, ["rm", "-r", str(base)], check=True))
