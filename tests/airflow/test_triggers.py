"""Triggers on a real store, in an event loop as the triggerer has one."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_ckpt.coordinator.complete import complete
from airflow_provider_ckpt.hooks.ckpt import CkptHook
from airflow_provider_ckpt.protocol.cut import Graph
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import AttemptStatus, DesiredState, Ref
from airflow_provider_ckpt.protocol.settings import change_settings
from airflow_provider_ckpt.triggers import events, watching
from airflow_provider_ckpt.triggers.attempt import AttemptTrigger, Running, stop_pipeline
from airflow_provider_ckpt.triggers.checkpoint import CheckpointTrigger
from airflow_provider_ckpt.triggers.events import ATTEMPT_FAILED, CHECKPOINT_COMPLETED, CkptEventTrigger
from airflow_provider_ckpt.triggers.pipeline import PipelineTrigger
from tests.house import NAME, SETTINGS, House

CONN = "ckpt_default"


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CKPT__POLL_INTERVAL", "0.05")
    monkeypatch.setattr(events, "_SETTLED", 0.1)


def within_seconds(work: Awaitable[Any]) -> Any:
    async def limited() -> Any:
        return await asyncio.wait_for(work, 20)

    return asyncio.run(limited())


async def first_of(trigger: Any) -> Any:
    async for event in trigger.run():
        return event.payload
    return None


async def until(is_true: Callable[[], bool]) -> None:
    while not is_true():  # noqa: ASYNC110 - nobody says when it becomes true
        await asyncio.sleep(0.05)


async def after(seconds: float, do: Callable[[], object]) -> None:
    await asyncio.sleep(seconds)
    await asyncio.to_thread(do)


@pytest.mark.parametrize(
    "trigger",
    [
        CheckpointTrigger(ckpt_conn_id=CONN, pipeline=NAME, checkpoint=3, until_ended=True),
        AttemptTrigger(ckpt_conn_id=CONN, pipeline=NAME, attempt=2, savepoint="last", stopper="me"),
        CkptEventTrigger(ckpt_conn_id=CONN, pipeline=NAME, event=ATTEMPT_FAILED),
        PipelineTrigger(ckpt_conn_id=CONN, pipeline=NAME, every=1.0),
    ],
    ids=lambda trigger: type(trigger).__name__,
)
def test_a_trigger_is_made_again_from_what_it_serializes(trigger: Any) -> None:
    path, arguments = trigger.serialize()
    assert path == f"{type(trigger).__module__}.{type(trigger).__name__}"
    assert type(trigger)(**arguments).serialize() == (path, arguments)


def test_a_checkpoint_that_all_have_acknowledged_wakes_its_task(house: House) -> None:
    driver = house.pipeline()
    ref = house.in_flight(driver)

    async def wait() -> Any:
        waiting = asyncio.create_task(first_of(CheckpointTrigger(ckpt_conn_id=CONN, pipeline=NAME, checkpoint=ref.id)))
        await _looked(2)
        assert not waiting.done()
        await asyncio.to_thread(driver.acknowledge, ref)
        return await waiting

    assert within_seconds(wait()) == {"phase": "IN_PROGRESS"}


def test_a_checkpoint_whose_cuts_are_not_taken_yet_wakes_nobody(house: House) -> None:
    driver = house.pipeline()
    ref = house.in_flight_ref()

    async def wait() -> Any:
        waiting = asyncio.create_task(first_of(CheckpointTrigger(ckpt_conn_id=CONN, pipeline=NAME, checkpoint=ref.id)))
        await _looked(2)
        assert not waiting.done(), "nobody has to acknowledge yet, which does not mean that all have"
        await asyncio.to_thread(driver.capture, ref)
        await asyncio.to_thread(driver.acknowledge, ref)
        return await waiting

    assert within_seconds(wait()) == {"phase": "IN_PROGRESS"}


def test_who_waits_for_the_end_is_not_woken_while_sinks_commit(house: House) -> None:
    driver = house.pipeline(with_sink=True)
    driver.process(1)
    ref = house.in_flight(driver)
    driver.acknowledge(ref)
    assert complete(house.context, ref).phase is Phase.COMMITTING

    async def wait() -> Any:
        trigger = CheckpointTrigger(ckpt_conn_id=CONN, pipeline=NAME, checkpoint=ref.id, until_ended=True)
        waiting = asyncio.create_task(first_of(trigger))
        await _looked(2)
        assert not waiting.done()
        await asyncio.to_thread(driver.commit, ref)
        return await waiting

    assert within_seconds(wait()) == {"phase": "COMPLETED"}


async def _looked(times: int) -> None:
    """Until the triggers' one query has been made so often."""
    await until(lambda: bool(watching._shared))
    (shared,) = watching._shared.values()
    await until(lambda: shared.loop.looks >= times)


def test_any_number_of_waiting_triggers_share_one_query_and_leave_nothing_behind(house: House) -> None:
    driver = house.pipeline()
    ref = house.in_flight(driver)

    async def wait() -> tuple[int, float]:
        began = time.monotonic()
        trigger: dict[str, Any] = {"ckpt_conn_id": CONN, "pipeline": NAME, "checkpoint": ref.id}
        waiting = [asyncio.create_task(first_of(CheckpointTrigger(**trigger))) for _ in range(50)]
        await until(lambda: [each.users for each in watching._shared.values()] == [50])
        (shared,) = watching._shared.values()
        await until(lambda: shared.loop.looks > 0)
        looks, seconds = shared.loop.looks, time.monotonic() - began
        await asyncio.to_thread(driver.acknowledge, ref)
        await asyncio.gather(*waiting)
        return looks, seconds

    looks, seconds = within_seconds(wait())
    assert looks <= 1 + seconds / 0.05, "one query for all of them at each look"
    assert not watching._shared


def test_a_checkpoint_that_does_not_exist_is_waited_for(house: House) -> None:
    driver = house.pipeline()

    async def wait() -> Any:
        waiting = asyncio.create_task(
            first_of(CheckpointTrigger(ckpt_conn_id=CONN, pipeline=NAME, checkpoint=1, until_ended=True))
        )
        await asyncio.sleep(0.2)
        await asyncio.to_thread(house.checkpoint, driver)
        return await waiting

    assert within_seconds(wait()) == {"phase": "COMPLETED"}


def test_a_task_that_a_person_marks_aborts_its_checkpoint(house: House) -> None:
    driver = house.pipeline()
    ref = house.in_flight(driver)
    within_seconds(CheckpointTrigger(ckpt_conn_id=CONN, pipeline=NAME, checkpoint=ref.id).on_kill())
    found = house.get(ref)
    assert found.phase is Phase.FAILED
    assert found.failure is not None
    assert found.failure.reason == "aborted"


def an_attempt(**given: Any) -> AttemptTrigger:
    return AttemptTrigger(
        **{"ckpt_conn_id": CONN, "pipeline": NAME, "attempt": 1, "savepoint": "", "stopper": "me", **given}
    )


def test_an_attempt_that_ends_or_falls_silent_wakes_its_task(house: House) -> None:
    house.pipeline()

    async def wait() -> Any:
        waiting = asyncio.create_task(first_of(an_attempt()))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        await asyncio.to_thread(
            lambda: house.store.pipelines.change(
                NAME, lambda was: change_settings(was, {"attempt_ttl": "1ms"}), actor="me"
            )
        )
        return await waiting

    assert within_seconds(wait()) == {"attempt": 1, "why": "it was not heard of any more"}


def test_a_killed_run_stops_its_pipeline_with_a_savepoint_where_one_can_be_had(house: House) -> None:
    house.pipeline()
    within_seconds(an_attempt(savepoint="last").on_kill())
    assert house.store.pipelines.get(NAME).desired_state is DesiredState.STOPPED
    flying = house.store.checkpoints.in_flight(NAME)
    assert flying is not None
    assert flying.name == "last"
    within_seconds(an_attempt(savepoint="another").on_kill())  # one is in flight: it is stopped without
    stopped = house.store.events.last(NAME, "pipeline.stopped")
    assert stopped is not None
    assert stopped.actor == "me"


class Cursor:
    """What Airflow keeps beside an asset."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    async def aget(self, key: str, default: Any = None) -> Any:
        return self.kept.get(key, default)

    async def aset(self, key: str, value: Any) -> None:
        self.kept[key] = value


async def collect(trigger: CkptEventTrigger, seen: list[Any]) -> None:
    async for event in trigger.run():
        seen.append(event.payload)  # noqa: PERF401 - it never ends: what came so far counts


async def watch(event: str, cursor: Cursor, during: Callable[[], object], expected: int) -> list[Any]:
    """Watch like a triggerer that is killed after a while."""
    trigger = CkptEventTrigger(ckpt_conn_id=CONN, pipeline=NAME, event=event)
    trigger.asset_state_store = cursor  # type: ignore[assignment]
    seen: list[Any] = []
    watching_task = asyncio.create_task(collect(trigger, seen))
    await asyncio.sleep(0.3)
    await asyncio.to_thread(during)
    for _ in range(100):
        await asyncio.sleep(0.05)
        if len(seen) >= expected:
            break
    await asyncio.sleep(0.3)
    watching_task.cancel()
    await asyncio.gather(watching_task, return_exceptions=True)
    return seen


def test_every_event_arrives_and_a_restarted_watcher_goes_on_where_it_was(house: House) -> None:
    driver = house.pipeline()
    cursor = Cursor()
    first = within_seconds(watch(CHECKPOINT_COMPLETED, cursor, lambda: [house.checkpoint(driver) for _ in range(3)], 3))
    assert [each["checkpoint"] for each in first] == [1, 2, 3]
    house.checkpoint(driver)  # while nobody watches
    again = within_seconds(watch(CHECKPOINT_COMPLETED, cursor, lambda: house.checkpoint(driver), 2))
    assert [each["checkpoint"] for each in again] == [4, 5]


def test_a_failure_and_a_silence_are_heard(house: House) -> None:
    house.pipeline()
    fail = lambda: house.store.attempts.end(NAME, 1, AttemptStatus.FAILED, actor="me", failure="it broke")  # noqa: E731
    seen = within_seconds(watch(ATTEMPT_FAILED, Cursor(), fail, 1))
    assert [(each["kind"], each["attempt"], each["reason"]) for each in seen] == [("attempt.failed", 1, "it broke")]


def test_silence_is_noticed_by_whoever_watches_and_told_once(house: House) -> None:
    house.pipeline(settings=change_settings(SETTINGS, {"attempt_ttl": "200ms"}))
    seen = within_seconds(watch(ATTEMPT_FAILED, Cursor(), lambda: None, 1))
    assert [(each["kind"], each["attempt"]) for each in seen] == [("attempt.silent", 1)]


def test_what_is_wrong_already_is_heard_by_a_watcher_that_begins(house: House) -> None:
    house.pipeline()
    house.store.attempts.end(NAME, 1, AttemptStatus.FAILED, actor="me", failure="it broke")
    seen = within_seconds(watch(ATTEMPT_FAILED, Cursor(), lambda: None, 1))
    assert [each["attempt"] for each in seen] == [1]


def test_a_sensor_is_woken_when_something_happens(house: House) -> None:
    driver = house.pipeline()

    async def wait() -> Any:
        trigger = PipelineTrigger(ckpt_conn_id=CONN, pipeline=NAME, every=0.05)
        return await asyncio.gather(first_of(trigger), after(0.3, lambda: house.checkpoint(driver)))

    assert within_seconds(wait())[0] == {"pipeline": NAME}
    assert house.get(Ref(NAME, 1)).phase is Phase.COMPLETED


def test_a_task_that_is_killed_again_stops_the_pipeline_again(house: House) -> None:
    """The savepoint of the first time has the name: the second time there is none, and it stops all the same."""
    driver = house.pipeline()
    access = CkptHook(CONN).access()
    stop_pipeline(access, Running(pipeline=NAME, attempt=1), "last", "airflow killed it")
    first = house.store.checkpoints.in_flight(NAME)
    assert first is not None
    assert first.name == "last"
    driver.capture(first.ref)
    driver.acknowledge(first.ref)
    complete(house.context, first.ref)
    for _ in range(2):
        house.store.pipelines.desire(NAME, DesiredState.RUNNING, actor="me")
        house.restore()
        attempt = house.store.pipelines.get(NAME).current_attempt or 0
        house.store.attempts.claim(NAME, attempt, "driver", Graph(()))
        stop_pipeline(access, Running(pipeline=NAME, attempt=attempt), "last", "airflow killed it")
        assert house.store.pipelines.get(NAME).desired_state is DesiredState.STOPPED


def test_a_pipeline_is_waited_for_while_the_store_is_away(house: House) -> None:
    driver = house.pipeline()
    file = Path(house.url.removeprefix("sqlite:///"))

    def go_away() -> None:
        file.rename(file.with_suffix(".away"))
        file.mkdir()

    def come_back() -> None:
        file.rmdir()
        file.with_suffix(".away").rename(file)
        house.checkpoint(driver)

    async def wait() -> Any:
        trigger = PipelineTrigger(ckpt_conn_id=CONN, pipeline=NAME, every=0.05)
        return await asyncio.gather(first_of(trigger), after(0.3, go_away), after(0.8, come_back))

    assert within_seconds(wait())[0] == {"pipeline": NAME}
