"""When a restart takes the tip, and whose: on both databases, without Spark."""

from pathlib import Path

import pytest

from airflow_provider_ckpt.coordinator.complete import complete
from airflow_provider_ckpt.coordinator.places import Places
from airflow_provider_ckpt.protocol.cut import Graph, Query
from airflow_provider_ckpt.protocol.errors import Corrupt, Refused
from airflow_provider_ckpt.protocol.records import Ack, Attempt, AttemptStatus, Capture, Cut, Participant, Rung
from airflow_provider_ckpt.protocol.recovery import Target
from airflow_provider_ckpt.spark.claiming import claim_attempt
from airflow_provider_ckpt.spark.conf import AgentConf
from tests.house import NAME, SETTINGS, House


def _restart(house: House, target: Target | None = None) -> Attempt:
    """As a driver does it that finds every folder intact."""
    return house.restore(target=target or Target(), tip_damage=lambda dead: None).attempt


def _run(house: House, attempt: Attempt, *queries: str) -> None:
    graph = Graph(tuple(Query(name=name) for name in queries))
    house.store.attempts.claim(NAME, attempt.number, f"driver {attempt.number}", graph)


def _first(house: House) -> Attempt:
    house.store.pipelines.create(NAME, SETTINGS, identity="tester", actor="tester")
    first = _restart(house)
    _run(house, first, "totals")
    return first


def _complete(house: House, attempt: Attempt, *, is_rewindable: bool) -> None:
    ref = house.in_flight_ref()
    cut = Cut(query="totals", batch=3, properties={"is_rewindable": is_rewindable})
    house.store.barriers.capture(ref, attempt.number, Capture(cut=cut, participants=(Participant(name="totals/log"),)))
    house.store.acks.acknowledge(ref, attempt.number, [Ack(participant="totals/log")])
    complete(house.context, ref)


def test_a_tip_that_failed_once_is_tried_again_where_there_is_no_checkpoint(house: House) -> None:
    first = _first(house)
    second = _restart(house)
    assert (second.rung, second.parent) == (Rung.TIP, first.number)
    _run(house, second, "totals")
    third = _restart(house)
    assert (third.rung, third.parent) == (Rung.TIP, second.number)


def test_a_refused_start_says_why_the_tip_can_not_be_used(house: House) -> None:
    _first(house)
    with pytest.raises(
        Refused, match=r"--allow-fresh-start`\. \(Nor can the tip of attempt 1 be used: 1\.delta is gone"
    ):
        house.restore(tip_damage=lambda dead: "1.delta is gone")


@pytest.mark.parametrize(("is_rewindable", "rung"), [(True, Rung.CHECKPOINT), (False, Rung.TIP)])
def test_a_tip_that_failed_once_is_left_for_a_checkpoint_unless_a_rewind_would_break_a_sink(
    house: House, is_rewindable: bool, rung: Rung
) -> None:
    first = _first(house)
    _complete(house, first, is_rewindable=is_rewindable)
    second = _restart(house)
    assert second.rung is Rung.TIP
    _run(house, second, "totals")
    assert _restart(house).rung is rung


def test_one_who_asks_for_a_rewind_is_not_given_the_tip(house: House) -> None:
    _complete(house, _first(house), is_rewindable=False)
    with pytest.raises(Refused, match="a rewind would break totals/sink"):
        _restart(house, Target(rewind=True))


def test_an_attempt_that_died_before_it_ran_a_query_leaves_the_tip_that_it_began_at(house: House) -> None:
    first = _first(house)
    for _ in range(2):
        again = _restart(house)
        assert (again.rung, again.parent) == (Rung.TIP, first.number)
        _run(house, again)
    assert _restart(house).parent == first.number


def test_an_attempt_that_ran_nothing_leaves_no_tip_whatever_lies_in_its_folder(house: House) -> None:
    """Its folder was made for another metastore: it was refused, and the next one must not start from there."""
    house.store.pipelines.create(NAME, SETTINGS, identity="tester", actor="tester")
    _run(house, _restart(house))
    assert _restart(house).rung is Rung.FRESH


def test_a_driver_that_does_not_see_the_tip_which_was_planned_does_not_start_from_nothing(
    house: House, tmp_path: Path
) -> None:
    first = _first(house)
    _complete(house, first, is_rewindable=True)
    planned = _restart(house)
    assert planned.rung is Rung.TIP
    work = tmp_path / "elsewhere"
    places = Places(home=tmp_path, metastore=house.url, storage=str(house.folder), work_folder=str(work))
    with pytest.raises(Corrupt, match="was to start from the tip of attempt 1"):
        claim_attempt(AgentConf(pipeline=NAME, places=places), NAME, "application")
    assert house.store.attempts.get(NAME, planned.number).status is AttemptStatus.FAILED
    assert house.restore().attempt.rung is Rung.CHECKPOINT, "where no tip is to be seen, down the ladder"
