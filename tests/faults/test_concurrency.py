"""Real processes at the same time, on both databases."""

import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Barrier

import pytest
import sqlalchemy as sa

from airflow_provider_ckpt.coordinator.complete import complete
from airflow_provider_ckpt.metastore import Metastore, Watcher, open_metastore
from airflow_provider_ckpt.metastore.schema import events
from airflow_provider_ckpt.protocol.errors import NotFound, TryAgain
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.reasons import AckOutcome, FailureReason
from airflow_provider_ckpt.protocol.records import Ack, Capture, Cut, Participant, Ref, TriggerRequest
from airflow_provider_ckpt.protocol.settings import Settings
from tests.harness import campaign
from tests.house import NAME, SETTINGS, House

pytestmark = pytest.mark.slow

_FORK = multiprocessing.get_context("fork")
_WALL = replace(SETTINGS, attempt_ttl=timedelta(hours=1))


def _in_processes(count: int, work: Callable[..., object], *args: object) -> list[object]:
    """Start so many processes with fresh connections; give back what each returned."""
    with _FORK.Manager() as manager:
        results = manager.dict()
        started = _FORK.Barrier(count)
        processes = [
            _FORK.Process(target=_store_result, args=(results, number, started, work, *args)) for number in range(count)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join(300)
        assert [process.exitcode for process in processes] == [0] * count
        return [results[number] for number in range(count)]


def _store_result(
    results: dict[int, object], number: int, started: Barrier, work: Callable[..., object], *args: object
) -> None:
    started.wait()
    results[number] = work(number, *args)


def _trigger(number: int, url: str, key: str) -> tuple[bool, int | None]:
    store = open_metastore(url)
    request = TriggerRequest(pipeline=NAME, key=key.format(number), requested_by=f"process {number}")
    triggered = store.barriers.trigger(request)
    return triggered.is_new, triggered.checkpoint.ref.id if triggered.checkpoint else None


def test_eight_processes_that_trigger_at_once_give_one_checkpoint(wall_house: House) -> None:
    wall_house.pipeline(settings=_WALL)
    results = _in_processes(8, _trigger, wall_house.url, "key-{}")
    assert sorted(results, key=str) == [(False, None)] * 7 + [(True, 1)]


def test_eight_processes_with_the_same_key_get_the_same_checkpoint(wall_house: House) -> None:
    wall_house.pipeline(settings=_WALL)
    results = _in_processes(8, _trigger, wall_house.url, "the same")
    assert sorted(results, key=str) == [(False, 1)] * 7 + [(True, 1)]


def _play(number: int, url: str, rounds: "Synchronized[int]", wanted: int) -> int:
    """Even numbers trigger, odd ones clean up, all at the same time until there were enough rounds; says how many."""
    store = open_metastore(url)
    turns = 0
    while rounds.value < wanted:
        if _take_a_checkpoint(store, number, turns) if number % 2 == 0 else _hold_the_lease(store, number):
            turns += 1
            with rounds.get_lock():
                rounds.value += 1
    return turns


def _take_a_checkpoint(store: Metastore, number: int, turn: int) -> bool:
    request = TriggerRequest(
        pipeline=NAME, key=f"{number}-{turn}-{time.monotonic_ns()}", requested_by=f"trigger {number}"
    )
    checkpoint = store.barriers.trigger(request).checkpoint
    if checkpoint is None:
        return False
    store.checkpoints.fail(checkpoint.ref, FailureReason.ABORTED, "the round is over", actor=f"trigger {number}")
    return True


def _hold_the_lease(store: Metastore, number: int) -> bool:
    try:
        lease = store.leases.acquire_cleanup(NAME, owner=f"cleaner {number}", token=f"{number}-{time.monotonic_ns()}")
    except TryAgain:
        return False
    with store.engine.write() as tx:  # the end of a cleanup as an event, in the transaction that ends it
        tx.record("cleanup.ended", NAME, actor=f"cleaner {number}")
        tx.connection.execute(sa.text("DELETE FROM ckpt_leases WHERE token = :token"), {"token": lease.token})
    return True


@pytest.mark.campaign
def test_four_triggers_and_four_cleanups_never_overlap_and_neither_starves(wall_house: House) -> None:
    """Whoever is quicker has most turns; the other one gets its own when it has waited for `max_deferral`."""
    house, deferral = wall_house, 0.5
    house.pipeline(settings=replace(_WALL, max_deferral=timedelta(seconds=deferral), lease_ttl=timedelta(minutes=5)))
    rounds = campaign.size(gate=250, long=1000)
    began = time.monotonic()
    turns = [int(str(each)) for each in _in_processes(8, _play, house.url, _FORK.Value("i", 0), rounds)]
    fewest = (time.monotonic() - began) / (4 * deferral)  # it has to come to the database first
    triggers, cleanups = sum(turns[::2]), sum(turns[1::2])
    assert triggers + cleanups >= rounds
    assert min(triggers, cleanups) >= fewest, f"{triggers} checkpoints, {cleanups} cleanups: one side starves"
    assert _overlaps(house) == []


def _overlaps(house: House) -> list[str]:
    """Replay the events in the order of the transactions that wrote them."""
    busy: str | None = None
    overlaps = []
    begins = {"cleanup.started": "cleanup", "checkpoint.triggered": "checkpoint"}
    ends = {"cleanup.ended", "cleanup.revoked", "checkpoint.failed"}
    with house.store.engine.read() as tx:
        for row in tx.connection.execute(sa.select(events.c.kind, events.c.actor).order_by(events.c.seq)):
            if row.kind in begins:
                if busy is not None:
                    overlaps.append(f"{row.kind} by {row.actor} during {busy}")
                busy = f"{row.kind} by {row.actor}"
            elif row.kind in ends:
                busy = None
    return overlaps


def _acknowledge(number: int, url: str, per_process: int) -> dict[str, AckOutcome]:
    """Everybody acknowledges its own, and, like a speculative task, everything of its neighbour."""
    store = open_metastore(url)
    outcomes = {}
    for owner in (number, (number + 1) % 8):
        acks = [Ack(participant=f"q/{owner}/{index}") for index in range(per_process)]
        outcomes.update(
            {f"{owner}: {key}": value for key, value in store.acks.acknowledge(Ref(NAME, 1), 1, acks).items()}
        )
    return outcomes


def test_acks_from_eight_processes_are_each_accepted_exactly_once(wall_house: House) -> None:
    house = wall_house
    driver = house.pipeline(settings=_WALL)
    ref = house.in_flight_ref()
    names = [f"q/{owner}/{index}" for owner in range(8) for index in range(50)]
    capture = Capture(cut=Cut(query="totals", batch=1), participants=tuple(Participant(name=name) for name in names))
    house.store.barriers.capture(ref, driver.attempt, capture)
    with Watcher(house.store.engine, every=0.05) as watcher:
        results = _in_processes(8, _acknowledge, house.url, 50)
        sight = watcher.wait(ref, timeout=30)
    outcomes = [outcome for each in results for outcome in dict(each).values()]  # type: ignore[call-overload]
    assert outcomes.count(AckOutcome.ACCEPTED) == 400
    assert outcomes.count(AckOutcome.DUPLICATE) == 400
    assert sight is not None
    assert not sight.has_pending


def test_a_forked_process_uses_connections_of_its_own(wall_house: House) -> None:
    """The store of the parent is used in its children, as PySpark's workers do, without opening it anew."""
    house = wall_house
    house.pipeline(settings=_WALL)

    def use(number: int) -> str:
        for _ in range(20):
            house.store.pipelines.desire(NAME, house.store.pipelines.get(NAME).desired_state, actor=f"child {number}")
        return house.store.pipelines.get(NAME).name

    assert _in_processes(4, use) == [NAME] * 4
    assert house.store.pipelines.get(NAME).name == NAME


def test_one_query_per_tick_serves_any_number_of_waiting_callers(wall_house: House) -> None:
    house = wall_house
    for number in range(20):
        house.store.pipelines.create(f"p{number}", Settings(), identity=str(number), actor="tester")
    refs = [Ref(f"p{number}", 1) for number in range(20)]
    queries = []
    sa.event.listen(house.store.engine.sa, "after_cursor_execute", lambda *args: queries.append(args[2]))
    with Watcher(house.store.engine, every=0.05) as watcher:
        with ThreadPoolExecutor(len(refs)) as pool:
            waiting = [pool.submit(watcher.wait, ref, timeout=20) for ref in refs]
            errors = [type(each.exception()) for each in waiting]
        ticks = watcher.ticks
    assert errors == [NotFound] * len(refs)
    assert len([query for query in queries if "ckpt_checkpoints" in query]) == ticks


def test_everybody_who_completes_at_once_agrees(wall_house: House) -> None:
    house = wall_house
    driver = house.pipeline(settings=_WALL)
    driver.process(2)
    ref = house.in_flight(driver)
    driver.acknowledge(ref)

    def work(number: int) -> str:
        mine = House(house.url, house.folder, clock=None)
        return str(complete(mine.context, ref).phase)

    assert _in_processes(8, work) == [str(Phase.COMPLETED)] * 8
    completed = [event for event in house.store.events.newest(NAME) if event.kind == "checkpoint.completed"]
    assert len(completed) == 1
