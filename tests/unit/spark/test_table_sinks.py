"""Sinks of files and tables without Spark: the conformance kit, and what a table may hold that we do not write."""

import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException

from airflow_provider_ckpt.protocol.codec import canonical
from airflow_provider_ckpt.protocol.errors import Refused
from airflow_provider_ckpt.protocol.records import Ref
from airflow_provider_ckpt.protocol.recovery import SinkMarker
from airflow_provider_ckpt.spark.sinks import (
    DeltaSink,
    FilesSink,
    IcebergSink,
    Name,
    Publication,
    Sink,
    Slot,
    files_log,
)
from airflow_provider_ckpt.spark.sinks.base import Published
from airflow_provider_ckpt.spark.sinks.iceberg import _Mark
from airflow_provider_ckpt.storage.base import StoredFile
from airflow_provider_ckpt.storage.local import LocalStorage
from airflow_provider_ckpt.storage.opening import open_storage
from airflow_provider_ckpt.testing.conformance import (
    a_crash_anywhere_in_a_commit_is_finished_by_the_next,
    a_crash_anywhere_in_recover_is_harmless,
    find_faults,
)
from tests import frames

LANDING = "airflow_provider_ckpt.spark.sinks.landing"


class _Subject:
    is_atomic = True

    def rows(self, numbers: Sequence[int]) -> Any:
        return frames.numbers(numbers)


class Files(_Subject):
    is_atomic = False

    def __init__(self, folder: Path) -> None:
        self.path = folder / uuid.uuid4().hex

    def open(self) -> Sink:
        return FilesSink(str(self.path))

    def read(self) -> list[int]:
        files = [str(file) for file in self.path.glob("*.parquet")]
        return [row["n"] for row in ds.dataset(files).to_table().to_pylist()] if files else []


class Delta(_Subject):
    def __init__(self, folder: Path) -> None:
        self.path = str(folder / uuid.uuid4().hex)

    def open(self) -> Sink:
        return DeltaSink(self.path)

    def read(self) -> list[int]:
        if not DeltaTable.is_deltatable(self.path):
            return []
        return [row["n"] for row in DeltaTable(self.path).to_pyarrow_table().to_pylist()]


class Iceberg(_Subject):
    def __init__(self, folder: Path) -> None:
        home = folder / uuid.uuid4().hex
        home.mkdir(parents=True)
        self.properties = {"type": "sql", "uri": f"sqlite:///{home}/catalog.db", "warehouse": f"file://{home}/lake"}

    def open(self) -> Sink:
        return IcebergSink("lake.rows", catalog="lake", properties=self.properties)

    def load(self) -> Any:
        return load_catalog("lake", **self.properties).load_table("lake.rows")

    def read(self) -> list[int]:
        if not load_catalog("lake", **self.properties).table_exists("lake.rows"):
            return []
        return [row["n"] for row in self.load().scan().to_arrow().to_pylist()]


@pytest.mark.slow
@pytest.mark.parametrize("subject", [Files, Delta, Iceberg])
def test_sinks_of_files_and_tables_pass_the_conformance_kit(
    subject: Callable[[Path], Files | Delta | Iceberg], tmp_path: Path
) -> None:
    """Before every thirteenth line; tests/spark comes to all of them."""
    assert find_faults(lambda: subject(tmp_path), tmp_path / "scratch", [LANDING], lines=range(0, 2000, 13)) == []


NAME = Name(pipeline="orders", sink="totals/sink")


def _commit(target: Files | Delta | Iceberg, id_: int, folder: Path, attempt: int = 1) -> Published:
    sink = target.open()
    slot = Slot(name=NAME, attempt=attempt, batch=id_, run=uuid.uuid4().hex, scratch=folder / uuid.uuid4().hex)
    staged = sink.prepare([sink.stage(target.rows([id_]), slot).document])
    ref, after = Ref("orders", id_), sink.marker(NAME).committed
    return sink.commit(Publication(ref=ref, name=NAME, attempt=attempt, after=after, staged=staged))


def test_an_iceberg_table_that_others_write_to_keeps_its_own_retries(tmp_path: Path) -> None:
    target = Iceberg(tmp_path)
    _commit(target, 1, tmp_path)
    assert "commit.retry.num-retries" not in target.load().properties
    with target.load().transaction() as transaction:
        transaction.set_properties({"commit.retry.num-retries": "7"})
    _commit(target, 2, tmp_path)
    target.open().recover(NAME, 2)
    assert target.load().properties["commit.retry.num-retries"] == "7"
    assert sorted(target.read()) == [1, 2]


def test_a_commit_to_an_iceberg_table_that_has_changed_is_not_tried_again_by_the_library(tmp_path: Path) -> None:
    """It would add the same files to a table whose marker nobody has looked at."""
    target = Iceberg(tmp_path)
    _commit(target, 1, tmp_path)
    sink = IcebergSink("lake.rows", catalog="lake", properties=target.properties)
    stale = sink._load()
    assert stale is not None
    _commit(target, 2, tmp_path)
    with pytest.raises(CommitFailedException):
        sink._write(stale, NAME, _Mark(checkpoint=3, attempt=1), [])
    assert target.open().marker(NAME).committed == 2


def test_what_is_committed_has_the_name_that_readers_of_the_table_know(tmp_path: Path) -> None:
    target = Iceberg(tmp_path)
    _commit(target, 1, tmp_path)
    version = _commit(target, 2, tmp_path).version
    assert version == f"snapshot {target.load().metadata.current_snapshot_id}"


@pytest.mark.parametrize("is_nullable", [True, False])
def test_an_iceberg_column_that_is_required_is_never_staged_empty(tmp_path: Path, is_nullable: bool) -> None:
    """The library would refuse the files, when the checkpoint is decided and nothing can be changed any more."""
    target = Iceberg(tmp_path)
    catalog = load_catalog("lake", **target.properties)
    catalog.create_namespace("lake")
    catalog.create_table("lake.rows", pa.schema([pa.field("n", pa.int64(), nullable=False)]))
    schema = pa.schema([pa.field("n", pa.int64(), nullable=is_nullable)])
    target.rows = lambda numbers: frames.Frame(pa.table({"n": numbers}, schema=schema))  # type: ignore[method-assign]
    if is_nullable:
        with pytest.raises(Refused, match=r"its column n is required, and may be empty in the query.*coalesce\(n, …\)"):
            _commit(target, 1, tmp_path)
    else:
        _commit(target, 1, tmp_path)
        assert target.read() == [1]


@pytest.mark.parametrize("is_older", [True, False])
def test_what_an_older_version_has_put_into_an_iceberg_table_is_taken_out_and_what_a_person_has_stays(
    tmp_path: Path, is_older: bool
) -> None:
    target = Iceberg(tmp_path)
    _commit(target, 1, tmp_path)
    with target.load().transaction() as transaction:
        transaction.set_properties({"commit.retry.num-retries": "0"})
        if is_older:
            transaction.remove_properties("ckpt.layout")
    _commit(target, 2, tmp_path)
    assert target.load().properties.get("commit.retry.num-retries") == (None if is_older else "0")


@pytest.mark.parametrize("kind", [Delta, Iceberg])
def test_to_read_the_marker_and_to_commit_nobody_goes_through_the_history(
    kind: Callable[[Path], Delta | Iceberg], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("somebody goes through the history")

    target = kind(tmp_path)
    monkeypatch.setattr("airflow_provider_ckpt.spark.sinks.delta._own_entries", refuse)
    monkeypatch.setattr("airflow_provider_ckpt.spark.sinks.iceberg._own_snapshots", refuse)
    for id_ in (1, 2):
        _commit(target, id_, tmp_path)
    assert target.open().recover(NAME, 2) == target.open().marker(NAME) == SinkMarker(committed=2, attempt=2)


# the notes of files that are committed


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three checkpoints are a hundred."""
    monkeypatch.setattr(files_log, "SPAN", 3)


def _home(target: Files) -> Path:
    return target.path / ".ckpt" / NAME.pipeline / NAME.sink


def _named(target: Files) -> Counter[str]:
    committed = FilesSink(str(target.path)).committed_files(NAME)
    return Counter(file for files in committed.values() for file in files)


@pytest.mark.usefixtures("short")
def test_notes_of_committed_files_are_folded_and_a_crash_anywhere_loses_none(tmp_path: Path) -> None:
    """Before every line; the kit does not look at what readers are told, so that is compared here."""
    targets: list[Files] = []

    def make() -> Files:
        targets.append(Files(tmp_path))
        return targets[-1]

    also = [LANDING, files_log.__name__]
    checks = (a_crash_anywhere_in_a_commit_is_finished_by_the_next, a_crash_anywhere_in_recover_is_harmless)
    assert find_faults(make, tmp_path / "scratch", also, checks) == []
    commits, recovers = targets
    (home,) = commits.path.glob(".ckpt/*/*/sink")
    name = Name(pipeline=home.parts[-3], sink="query/sink")
    named = FilesSink(str(commits.path)).committed_files(name)
    assert Counter(file for files in named.values() for file in files) == Counter(
        file.name for file in commits.path.glob("*.parquet")
    )
    assert list(named) == list(range(1, len(named) + 1))
    assert len(list((home / "committed").iterdir())) <= 4
    assert len(list((home / "history").iterdir())) >= len(named) // 3 - 1
    assert len(list(recovers.path.glob(".ckpt/*/*/sink/attempts/*"))) == 1


@pytest.mark.usefixtures("short")
def test_a_commit_of_files_looks_at_as_many_notes_after_a_long_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Files(tmp_path)
    listed: list[int] = []
    real = LocalStorage.list

    def listing(storage: LocalStorage, prefix: str) -> Iterator[StoredFile]:
        found = list(real(storage, prefix))
        listed.append(len(found))
        return iter(found)

    monkeypatch.setattr(LocalStorage, "list", listing)
    for id_ in range(1, 31):
        target.open().recover(NAME, id_)
        _commit(target, id_, tmp_path, attempt=id_)
    assert max(listed) <= 4
    assert sorted(target.read()) == list(range(1, 31))
    assert _named(target) == Counter(file.name for file in target.path.glob("*.parquet"))


def test_notes_of_an_older_version_are_read_and_folded_by_and_by(tmp_path: Path) -> None:
    target = Files(tmp_path)
    committed, attempts = _home(target) / "committed", _home(target) / "attempts"
    committed.mkdir(parents=True)
    attempts.mkdir()
    for id_ in range(1, 2501):
        (committed / str(id_)).write_bytes(canonical({"rows": 1, "bytes": 9, "files": [f"{id_}.parquet"]}))
        (attempts / str(id_)).write_bytes(canonical({"attempt": id_}))
    assert target.open().marker(NAME) == SinkMarker(committed=2500, attempt=2500)
    for id_ in range(2501, 2504):
        target.open().recover(NAME, id_)
        _commit(target, id_, tmp_path, attempt=id_)
    assert len(list(committed.iterdir())) <= 100
    assert len(list(attempts.iterdir())) == 1
    named = FilesSink(str(target.path)).committed_files(NAME)
    assert list(named) == list(range(1, 2504))
    assert named[7] == ("7.parquet",)


@pytest.mark.usefixtures("short")
def test_two_that_fold_at_once_lose_no_name(tmp_path: Path) -> None:
    """One has listed what is there, the other one folds it, and the first one comes too late."""
    target = Files(tmp_path)
    for id_ in range(1, 6):
        _commit(target, id_, tmp_path)
    late = files_log.FilesLog(open_storage(str(target.path)), f".ckpt/{NAME}")
    everything = _named(target)
    late._fold([1, 2, 3, 4, 5])
    (_home(target) / "history" / "0").unlink()
    late._fold([1, 2, 3, 4, 5])
    assert not (_home(target) / "history" / "0").exists(), "what it can not read whole it does not write"
    assert len(everything) == 5
    assert target.open().marker(NAME).committed == 5


# going back


def test_files_go_back_to_any_checkpoint_whose_files_and_those_after_are_there(tmp_path: Path) -> None:
    target = Files(tmp_path)
    for id_ in (1, 2, 3):
        _commit(target, id_, tmp_path)
    sink = FilesSink(str(target.path))
    assert sink.history(NAME) == {0, 1, 2, 3}
    before = sink.committed_files(NAME)
    sink.roll_back(NAME, 2, 1)
    assert sink.marker(NAME) == SinkMarker(committed=1, attempt=2)
    assert sink.committed_files(NAME) == {1: before[1]}
    assert {file.name for file in target.path.glob("*.parquet")} == set(before[1])


def test_where_somebody_has_taken_a_file_away_files_do_not_go_back_beyond_it(tmp_path: Path) -> None:
    """Whoever has it would get its rows once more."""
    target = Files(tmp_path)
    for id_ in (1, 2, 3):
        _commit(target, id_, tmp_path)
    sink = FilesSink(str(target.path))
    (target.path / sink.committed_files(NAME)[2][0]).unlink()
    assert sink.history(NAME) == {2, 3}
    with pytest.raises(Refused, match=r"can not go back to checkpoint 1: .* --accept-duplicates"):
        sink.roll_back(NAME, 2, 1)
    sink.roll_back(NAME, 2, 2)
    assert sink.marker(NAME).committed == 2


def test_a_roll_back_that_died_is_finished_by_the_next_one_of_the_same_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Files(tmp_path)
    for id_ in (1, 2, 3):
        _commit(target, id_, tmp_path)
    sink = FilesSink(str(target.path))
    with monkeypatch.context() as dies:
        dies.setattr(files_log.FilesLog, "finish_taking_back", lambda _: None)
        sink.roll_back(NAME, 2, 2)
    assert sink.marker(NAME).committed == 2, "it is decided by its note"
    sink.roll_back(NAME, 2, 1)
    assert {file.name for file in target.path.glob("*.parquet")} == set(sink.committed_files(NAME)[1])
