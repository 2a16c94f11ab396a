"""The parts of sinks that need no Spark: the ledger, the seat, what a document may name, and what nobody may read."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_ckpt.protocol.codec import JsonObject
from airflow_provider_ckpt.protocol.errors import Corrupt, Fenced, Misused, Refused, UnsafePath
from airflow_provider_ckpt.protocol.pledge import has_nothing
from airflow_provider_ckpt.protocol.records import Ref
from airflow_provider_ckpt.protocol.recovery import SinkMarker
from airflow_provider_ckpt.spark.sinks import DeltaSink, FilesSink, Name, PostgresSink, Publication, Sink, Slot, Staged
from airflow_provider_ckpt.spark.sinks.base import Published, refuse_older
from airflow_provider_ckpt.spark.sinks.copying import Copy
from airflow_provider_ckpt.spark.sinks.hdfs_landing import HdfsLanding
from airflow_provider_ckpt.spark.sinks.landing import read_batch, read_batches
from airflow_provider_ckpt.spark.sinks.landings import open_landing, open_table_landing
from airflow_provider_ckpt.spark.sinks.ledger import Ledger
from airflow_provider_ckpt.spark.sinks.seat import Seat

NAME = Name(pipeline="orders", sink="totals/sink")


class Listed(Sink):
    """Publishes into a list."""

    def __init__(self) -> None:
        self.target: list[int] = []
        self.at: int | None = None
        self.kept: Sequence[JsonObject] = ()

    def stage(self, rows: Any, slot: Slot) -> Staged:
        assert slot.scratch.parent.name == "scratch"
        return Staged(rows=len(rows), bytes=8 * len(rows), files=1, document={"rows": rows})

    def commit(self, publication: Publication) -> Published:
        batches: Any = publication.staged["batches"]
        self.target += [row for batch in batches for row in batch["rows"]]
        return Published(rows=len(self.target), bytes=0, files=0, version="v")

    def recover(self, name: Name, attempt: int) -> SinkMarker:
        return SinkMarker(committed=None)

    def marker(self, name: Name) -> SinkMarker:
        return SinkMarker(committed=self.at)

    def discard(self, name: Name, attempt: int, keep: Sequence[JsonObject]) -> None:
        self.kept = keep


@pytest.fixture
def sink() -> Listed:
    return Listed()


@pytest.fixture
def seat(tmp_path: Path, sink: Listed) -> Seat:
    return Seat(name=NAME, attempt=1, sink=sink, ledger=Ledger(tmp_path / "staged"), scratch=tmp_path / "scratch")


def _stage(seat: Seat, batch: int, *rows: int) -> None:
    seat(list(rows), batch)  # type: ignore[arg-type] # stands for a data frame


def test_a_pledge_names_every_batch_since_the_last_publication(seat: Seat, sink: Listed) -> None:
    _stage(seat, 0, 1, 2)
    _stage(seat, 1, 3)
    pledge = seat.pledge(1)
    assert pledge["batches"] == [0, 1]
    assert (pledge["rows"], pledge["bytes"], pledge["files"], pledge["after"]) == (3, 24, 2, None)
    seat.commit(Ref("orders", 1), pledge, 1)
    seat.completed(1, is_resolved=False)
    _stage(seat, 2, 4)
    assert seat.pledge(2)["batches"] == [2]
    assert seat.pledge(2)["after"] == 1
    assert sink.target == [1, 2, 3]


def test_a_failed_checkpoint_rolls_into_the_next(seat: Seat) -> None:
    _stage(seat, 0, 1)
    seat.pledge(0)  # and its checkpoint fails
    _stage(seat, 1, 2)
    assert seat.pledge(1)["batches"] == [0, 1]


def test_hearing_again_of_an_old_checkpoint_loses_nothing_that_a_newer_one_had_pledged(seat: Seat) -> None:
    _stage(seat, 0, 1)
    seat.pledge(0)
    seat.completed(0, is_resolved=False)
    _stage(seat, 1, 2)
    seat.pledge(1)  # of checkpoint 2, which fails
    seat.completed(0, is_resolved=False)
    assert seat.pledge(1)["batches"] == [1]


@pytest.mark.parametrize("found", [None, 1])
def test_after_a_person_has_said_what_became_of_a_commit_the_target_is_asked_where_it_is(
    seat: Seat, sink: Listed, found: int | None
) -> None:
    """Whatever the person said: it may have been committed or not, and the next commit continues what is there."""
    _stage(seat, 0, 1)
    sink.at = found
    seat.completed(0, is_resolved=True)
    _stage(seat, 1, 2)
    assert seat.pledge(1)["batches"] == [1]
    assert seat.pledge(1)["after"] == found


def test_batches_without_rows_are_never_committed(seat: Seat) -> None:
    _stage(seat, 0)
    assert has_nothing(seat.pledge(0))
    _stage(seat, 1, 7)
    assert seat.pledge(1)["publish"] == {"batches": [{"rows": [7]}]}


def test_only_committed_batches_are_pledged_and_the_rest_is_let_go_at_the_end(seat: Seat, sink: Listed) -> None:
    _stage(seat, 0, 1)
    _stage(seat, 1, 2)
    assert seat.pledge(0)["batches"] == [0]
    assert seat.pledge(None)["batches"] == []
    seat.clear(0)
    assert sink.kept == [{"rows": [1]}]


def test_a_batch_that_runs_again_replaces_its_entry(seat: Seat) -> None:
    _stage(seat, 0, 1, 2, 3)
    _stage(seat, 0, 1)
    assert seat.pledge(0)["rows"] == 1


def test_a_committed_batch_that_nobody_staged_is_refused(tmp_path: Path, seat: Seat) -> None:
    _stage(seat, 1, 1)
    with pytest.raises(Refused, match=r"Batch 0 is committed and .* does not know what was staged"):
        seat.pledge(1)


def test_a_restart_from_the_tip_adopts_what_is_after_the_floor(tmp_path: Path, seat: Seat) -> None:
    for batch in range(4):
        _stage(seat, batch, batch)
    new = Ledger(tmp_path / "new", floor=1)
    new.adopt(tmp_path / "staged", upto=2)
    assert list(new.upto(2)) == [2]
    with pytest.raises(Refused, match="Batch 3"):
        new.upto(3)


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../b", ""])
def test_a_document_names_nothing_outside_of_its_folder(name: str) -> None:
    with pytest.raises(UnsafePath):
        read_batch(NAME, {"folder": "1/0-a", "rows": 1, "files": [[name, 1]]})
    with pytest.raises(UnsafePath):
        read_batch(NAME, {"folder": name, "rows": 1, "files": []})


def test_a_damaged_document_is_refused_by_name() -> None:
    with pytest.raises(Corrupt, match="does not name a staged file"):
        read_batch(NAME, {"folder": "1/0-a", "rows": 1, "files": [["a"]]})
    with pytest.raises(Corrupt, match="what orders/totals/sink publishes lacks the field 'batches'"):
        read_batches(NAME, {})


def test_secrets_are_printed_nowhere() -> None:
    sink = PostgresSink("orders", url="postgresql://me:secret@host/db")
    copy = Copy(url="postgresql://me:secret@host/db", statement="COPY")
    assert "secret" not in repr(sink) + str(sink.describe()) + repr(copy)


def test_a_sink_that_does_not_know_its_database_says_which_variable_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ORDERS_DATABASE", raising=False)
    with pytest.raises(Misused, match="set ORDERS_DATABASE to its URL"):
        PostgresSink("orders", url_from="ORDERS_DATABASE")


def test_files_land_where_they_can(tmp_path: Path) -> None:
    assert open_table_landing(str(tmp_path)).root == str(tmp_path)
    assert isinstance(open_landing("hdfs://namenode:8020/orders"), HdfsLanding)
    with pytest.raises(Misused, match="begins with 'ftp'"):
        open_landing("ftp://host/folder")
    with pytest.raises(Misused, match="There is no sink for files of the format 'orc'"):
        FilesSink(str(tmp_path), format="orc")
    with pytest.raises(Misused, match="Delta and Iceberg tables can not be on HDFS yet"):
        DeltaSink("hdfs://namenode:8020/orders")


def test_a_target_that_knows_a_newer_attempt_refuses_an_older_one() -> None:
    refuse_older(NAME, 2, 2)
    with pytest.raises(Fenced, match="its target knows attempt 3"):
        refuse_older(NAME, 2, 3)
