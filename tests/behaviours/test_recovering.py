"""Before a query with a sink starts: its target is brought to where the attempt starts, or the start is refused."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_ckpt.coordinator.manifests import load_manifest
from airflow_provider_ckpt.protocol.codec import JsonObject
from airflow_provider_ckpt.protocol.errors import Fenced, Refused
from airflow_provider_ckpt.protocol.manifest import Manifest
from airflow_provider_ckpt.protocol.records import Ref, SinkStatus
from airflow_provider_ckpt.protocol.recovery import SinkMarker
from airflow_provider_ckpt.spark.sinks.base import Name, Publication, Published, Sink, Slot, Staged
from airflow_provider_ckpt.spark.sinks.ledger import Ledger
from airflow_provider_ckpt.spark.sinks.recovering import Beginning, recover
from airflow_provider_ckpt.spark.sinks.seat import Seat
from airflow_provider_ckpt.testing.scripted import SINK
from tests.house import NAME, House


class Target(Sink):
    """Only a marker, and what was done to it."""

    def __init__(self, committed: int | None, *, history: Collection[int] = ()) -> None:
        self.at = SinkMarker(committed=committed)
        self._history = frozenset(history)
        self.done: list[Any] = []

    def stage(self, rows: Any, slot: Slot) -> Staged:
        raise NotImplementedError

    def commit(self, publication: Publication) -> Published:
        self.done.append(("commit", publication.ref.id, publication.staged))
        self.at = replace(self.at, committed=publication.ref.id)
        return Published(rows=0, bytes=0, files=0, version="")

    def recover(self, name: Name, attempt: int) -> SinkMarker:
        self.done.append(("fence", attempt))
        return self.at

    def marker(self, name: Name) -> SinkMarker:
        return self.at

    def history(self, name: Name) -> frozenset[int]:
        return self._history

    def discard(self, name: Name, attempt: int, keep: Sequence[JsonObject]) -> None:
        self.done.append("discard")

    def roll_back(self, name: Name, attempt: int, to: int) -> None:
        self.done.append(("back", to))
        self.at = replace(self.at, committed=to)


@pytest.fixture
def refs(house: House) -> list[Ref]:
    driver = house.pipeline(with_sink=True)
    return [house.checkpoint(driver), house.checkpoint(driver), house.checkpoint(driver)]


def _manifest(house: House, ref: Ref, after: int | None) -> Manifest:
    """As a Spark pipeline would have written it."""
    manifest = load_manifest(house.context, house.get(ref))
    staged: JsonObject = {"after": after, "publish": {"batches": [ref.id]}}
    parts = tuple(replace(part, staged=staged) if part.participant == SINK else part for part in manifest.parts)
    return replace(manifest, parts=parts)


def _recover(house: House, target: Target, ref: Ref, *, after: int | None = None, accepted: str = "") -> Seat:
    name = Name(pipeline=NAME, sink=SINK)
    seat = Seat(name=name, attempt=1, sink=target, ledger=Ledger(Path("/nowhere")), scratch=Path("/nowhere"))
    beginning = Beginning(decided=_manifest(house, ref, after), accepted=frozenset({accepted}), batch=None)
    recover(house.context, seat, beginning)
    return seat


def test_a_target_that_is_there_is_left_alone_but_for_leftovers(house: House, refs: list[Ref]) -> None:
    target = Target(2)
    assert _recover(house, target, refs[1]).published == 2
    assert target.done == [("fence", 1), "discard"]


def test_a_target_that_is_beyond_is_refused_by_name(house: House, refs: list[Ref]) -> None:
    target = Target(3)
    with pytest.raises(Refused, match=f"has published checkpoint 3, .* accept it with --accept-duplicates {SINK}"):
        _recover(house, target, refs[0])
    assert target.done == [("fence", 1)]


def test_duplicates_that_a_person_accepted_are_let_through(house: House, refs: list[Ref]) -> None:
    target = Target(3)
    assert _recover(house, target, refs[0], accepted=SINK).published == 3
    assert target.done == [("fence", 1), "discard"]


def test_a_target_that_can_roll_back_does_and_the_store_knows(house: House, refs: list[Ref]) -> None:
    target = Target(3, history=(0, 1, 3))
    assert _recover(house, target, refs[0]).published == 1
    assert ("back", 1) in target.done
    statuses = [house.store.sinks.of(ref)[0].status for ref in refs]
    assert statuses == [SinkStatus.COMMITTED, SinkStatus.ROLLED_BACK, SinkStatus.ROLLED_BACK]


def test_a_publication_that_is_missing_is_finished_from_the_manifest(house: House, refs: list[Ref]) -> None:
    target = Target(1)
    assert _recover(house, target, refs[1], after=1).published == 2
    assert ("commit", 2, {"batches": [2]}) in target.done


def test_a_target_that_lacks_more_than_the_manifest_has_is_refused(house: House, refs: list[Ref]) -> None:
    target = Target(1)
    with pytest.raises(Refused, match="is at checkpoint 1, and orders/3 continues 2: what lies between is not there"):
        _recover(house, target, refs[2], after=2)
    assert target.done == [("fence", 1)]


def test_an_attempt_that_was_replaced_does_not_touch_the_target(house: House, refs: list[Ref]) -> None:
    house.restore()
    target = Target(3)
    with pytest.raises(Fenced):
        _recover(house, target, refs[2])
    assert target.done == []


def test_a_target_that_was_rolled_back_goes_forward_again_and_the_store_knows(house: House, refs: list[Ref]) -> None:
    house.store.sinks.rolled_back(NAME, SINK, 1, 1)
    target = Target(1, history=(1, 3))
    assert _recover(house, target, refs[2], after=2).published == 3
    assert target.done == [("fence", 1), ("back", 3), "discard"]
    statuses = [house.store.sinks.of(ref)[0].status for ref in refs]
    assert statuses == [SinkStatus.COMMITTED, SinkStatus.ROLLED_BACK, SinkStatus.COMMITTED]


def test_a_target_that_was_never_there_does_not_go_where_it_has_never_been(house: House, refs: list[Ref]) -> None:
    """It has older versions, and not the one that is wanted."""
    target = Target(1, history=(0, 1))
    with pytest.raises(Refused, match=r"Restore what the target is at with `ckpt restore orders --to 1`"):
        _recover(house, target, refs[2], after=2)
    assert target.done == [("fence", 1)]


def test_a_target_that_was_emptied_is_to_be_brought_back(house: House, refs: list[Ref]) -> None:
    target = Target(None)
    with pytest.raises(Refused, match=r"has nothing of it, and orders/3 is committed there.*Bring it back as it was"):
        _recover(house, target, refs[2], after=2)
