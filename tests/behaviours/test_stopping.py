"""Stopping a pipeline, and the refusal of a rewind that would break a sink: on both databases, without Spark."""

import threading
import time
from dataclasses import replace

import pytest

from airflow_provider_ckpt.cli.commands.stop import stop
from airflow_provider_ckpt.cli.parser import build_parser
from airflow_provider_ckpt.cli.session import Session
from airflow_provider_ckpt.coordinator.complete import complete
from airflow_provider_ckpt.coordinator.places import places
from airflow_provider_ckpt.coordinator.restore import RestoreOptions, plan_restore, restore
from airflow_provider_ckpt.protocol.cut import Graph, Query
from airflow_provider_ckpt.protocol.errors import Fenced, Refused
from airflow_provider_ckpt.protocol.reasons import FailureReason, SkipReason
from airflow_provider_ckpt.protocol.records import (
    Ack,
    AttemptStatus,
    Capture,
    CaptureOutcome,
    Cut,
    DesiredState,
    Participant,
    Ref,
    TriggerRequest,
)
from airflow_provider_ckpt.protocol.recovery import Policy, Target
from tests.house import NAME, SETTINGS, House

REQUEST = TriggerRequest(pipeline=NAME, key="k", requested_by="person")


@pytest.fixture(autouse=True)
def _pipeline(house: House) -> None:
    house.store.pipelines.create(NAME, SETTINGS, identity="test", actor="tester")


def _claim(house: House, *queries: str) -> int:
    attempt = restore(house.context, NAME).attempt.number
    graph = Graph(tuple(Query(name=each) for each in queries))
    house.store.attempts.claim(NAME, attempt, "mine", graph)
    return attempt


def test_a_stop_with_a_savepoint_is_one_transaction(house: House) -> None:
    _claim(house, "totals")
    request = replace(REQUEST, savepoint="end", is_last=True, then_stop=True)
    triggered = house.store.barriers.trigger(request)
    assert triggered.checkpoint is not None
    assert house.store.pipelines.get(NAME).desired_state is DesiredState.STOPPED


def test_a_stop_that_can_take_no_savepoint_stops_nothing(house: House) -> None:
    request = replace(REQUEST, savepoint="end", is_last=True, then_stop=True)
    assert house.store.barriers.trigger(request).skipped is SkipReason.NO_ATTEMPT
    assert house.store.pipelines.get(NAME).desired_state is DesiredState.RUNNING


def test_a_pipeline_that_is_to_stop_takes_only_its_last_checkpoint(house: House) -> None:
    _claim(house, "totals")
    house.store.pipelines.desire(NAME, DesiredState.STOPPED, actor="person")
    assert house.store.barriers.trigger(REQUEST).skipped is SkipReason.STOPPED
    assert house.store.barriers.trigger(replace(REQUEST, is_last=True)).checkpoint is not None


def test_queries_that_are_declared_later_are_expected_by_the_next_checkpoint(house: House) -> None:
    attempt = _claim(house)
    house.store.attempts.declare(NAME, attempt, "mine", Graph((Query(name="a"), Query(name="b"))))
    triggered = house.store.barriers.trigger(REQUEST)
    assert triggered.checkpoint is not None
    ref = triggered.checkpoint.ref
    assert _capture(house, ref, attempt, "a") is CaptureOutcome.CAPTURED
    assert _capture(house, ref, attempt, "b") is CaptureOutcome.FROZEN


def test_a_driver_that_was_replaced_declares_nothing_and_sees_that_it_is_not_current(house: House) -> None:
    attempt = _claim(house, "a")
    assert house.store.attempts.look(NAME, attempt, "mine").is_current
    assert not house.store.attempts.look(NAME, attempt, "another's").is_current
    policy = Policy(allow_fresh_start=True)
    restore(house.context, NAME, RestoreOptions(policy=policy, take_over=True, is_proven_dead=True))
    assert not house.store.attempts.look(NAME, attempt, "mine").is_current
    with pytest.raises(Fenced):
        house.store.attempts.declare(NAME, attempt, "mine", Graph((Query(name="a"),)))


@pytest.mark.parametrize("is_rebuilt", [False, True], ids=["", "only the manifest knows"])
def test_a_rewind_that_would_break_a_sink_is_refused_by_name(house: House, is_rebuilt: bool) -> None:
    attempt = _claim(house, "totals")
    triggered = house.store.barriers.trigger(REQUEST)
    assert triggered.checkpoint is not None
    ref = triggered.checkpoint.ref
    _capture(house, ref, attempt, "totals", is_rewindable=False)
    house.store.acks.acknowledge(ref, attempt, [Ack(participant="totals/log")])
    complete(house.context, ref)
    if is_rebuilt:
        with house.store.engine.write() as tx:
            tx.connection.exec_driver_sql("DELETE FROM ckpt_cuts")
    options = RestoreOptions(target=Target(rewind=True), is_proven_dead=True)
    with pytest.raises(Refused, match=f"{ref} can not be restored: a rewind would break totals/sink"):
        restore(house.context, NAME, options)
    assert house.store.pipelines.get(NAME).current_attempt == attempt, "nothing was fenced"
    accepting = replace(options, policy=Policy(accept_duplicates=frozenset({"totals/sink"})))
    assert plan_restore(house.context, NAME, accepting).price.duplicated == ("totals/sink",)


def _capture(house: House, ref: Ref, attempt: int, query: str, *, is_rewindable: bool = True) -> CaptureOutcome:
    cut = Cut(query=query, batch=3, properties={"is_rewindable": is_rewindable})
    capture = Capture(cut=cut, participants=(Participant(name=f"{query}/log"),))
    return house.store.barriers.capture(ref, attempt, capture)


@pytest.mark.parametrize(("ends", "code", "text"), [("failed", 10, "failed (aborted)"), ("flying", 7, "still runs")])
def test_a_stop_says_when_there_is_no_savepoint(house: House, ends: str, code: int, text: str) -> None:
    """Somebody calls the savepoint off while the command waits, or the driver does not answer in time."""
    attempt = _claim(house, "totals")

    def end() -> None:
        while (flying := house.store.checkpoints.in_flight(NAME)) is None:
            time.sleep(0.01)
        if ends == "failed":
            house.store.checkpoints.fail(flying.ref, FailureReason.ABORTED, "no", actor="other")
            house.store.attempts.end(NAME, attempt, AttemptStatus.STOPPED, actor="other")

    other = threading.Thread(target=end)
    other.start()
    args = build_parser().parse_args(["stop", NAME, "--savepoint", "end", "--wait", "1"])
    session = Session(places(house.url, str(house.folder)), "person")
    session.store = house.store
    result = stop(args, session)
    other.join()
    assert result.code == code
    printed = " ".join(str(each) for each in result.view)
    assert text in printed
    assert house.store.pipelines.get(NAME).desired_state is DesiredState.STOPPED
