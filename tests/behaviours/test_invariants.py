"""The eighteen invariants of the design, each as a test, on SQLite and on PostgreSQL."""

from dataclasses import replace
from datetime import timedelta
from itertools import count

import pytest
import sqlalchemy as sa

from airflow_provider_ckpt.coordinator.cleanup import cleanup, plan_cleanup
from airflow_provider_ckpt.coordinator.commit import commit, resolve
from airflow_provider_ckpt.coordinator.complete import complete
from airflow_provider_ckpt.coordinator.health import health
from airflow_provider_ckpt.coordinator.rebuild import rebuild
from airflow_provider_ckpt.coordinator.restore import RestoreOptions, plan_restore, restore
from airflow_provider_ckpt.metastore import look
from airflow_provider_ckpt.metastore.schema import checkpoints
from airflow_provider_ckpt.protocol.cut import Graph, Query
from airflow_provider_ckpt.protocol.errors import (
    CkptError,
    Fenced,
    LeaseLost,
    LostRace,
    Misused,
    OutcomeUnknown,
    Refused,
    TryAgain,
)
from airflow_provider_ckpt.protocol.phases import TRANSITIONS, Phase
from airflow_provider_ckpt.protocol.reasons import AckOutcome, FailureReason, SkipReason
from airflow_provider_ckpt.protocol.records import (
    Ack,
    AttemptStatus,
    Capture,
    CaptureOutcome,
    Consumed,
    Cut,
    Participant,
    Ref,
    Rung,
    SinkStatus,
    Verdict,
)
from airflow_provider_ckpt.protocol.recovery import Policy, SinkMarker, Target
from airflow_provider_ckpt.protocol.timeline import current_timeline
from airflow_provider_ckpt.testing import CrashAt, Crashed, truth, watch_storage, watch_store
from airflow_provider_ckpt.testing.scripted import SINK, ScriptedSink
from tests.house import NAME, SETTINGS, House


def test_invariant_01_at_most_one_checkpoint_of_a_pipeline_is_in_flight(house: House) -> None:
    driver = house.pipeline()
    first = house.in_flight(driver)
    second = house.trigger()
    assert second.skipped is SkipReason.IN_FLIGHT
    assert str(first) in second.detail
    with house.store.engine.read() as tx:
        row = tx.connection.execute(sa.select(checkpoints)).mappings().one()
    another = sa.insert(checkpoints).values({**row, "id": 99, "trigger_key": "other"})
    with house.store.engine.sa.connect() as connection, pytest.raises(sa.exc.IntegrityError):
        connection.execute(another)  # the database itself refuses


def test_invariant_02_ids_increase_and_are_never_reused(house: House) -> None:
    driver = house.pipeline()
    first = house.checkpoint(driver)
    failed = house.in_flight(driver)
    house.store.checkpoints.fail(failed, FailureReason.ABORTED, "no", actor="tester")
    house.restore(to=first.id)
    again = house.driver()
    again.start()
    after_restore = house.checkpoint(again)
    house.restore(
        policy=Policy(allow_fresh_start=True), target=Target(as_of=house.store.checkpoints.now() - timedelta(days=9))
    )
    fresh = house.driver()
    assert fresh.start().rung is Rung.FRESH
    after_fresh_start = house.checkpoint(fresh)
    assert first.id < failed.id < after_restore.id < after_fresh_start.id


def test_invariant_03_the_same_key_gives_the_same_checkpoint_unless_it_failed(house: House) -> None:
    driver = house.pipeline()
    first = house.trigger("dag/run/task/-1")
    again = house.trigger("dag/run/task/-1")
    assert first.checkpoint is not None
    assert again.checkpoint == first.checkpoint
    assert (first.is_new, again.is_new) == (True, False)
    house.store.checkpoints.fail(first.checkpoint.ref, FailureReason.ABORTED, "no", actor="tester")
    retried = house.trigger("dag/run/task/-1")
    assert retried.checkpoint is not None
    assert retried.checkpoint.ref.id > first.checkpoint.ref.id
    assert retried.checkpoint.retry_of == first.checkpoint.ref.id
    driver.capture(retried.checkpoint.ref)
    driver.acknowledge(retried.checkpoint.ref)
    complete(house.context, retried.checkpoint.ref)
    cleared = house.trigger("dag/run/task/-1")
    assert cleared.checkpoint is not None
    assert (cleared.checkpoint.ref, cleared.checkpoint.phase) == (retried.checkpoint.ref, Phase.COMPLETED)


def _claim(house: House, graph: Graph) -> None:
    house.store.pipelines.create(NAME, SETTINGS, identity="tester", actor="tester")
    restore(house.context, NAME)
    house.store.attempts.claim(NAME, 1, "driver", graph)


def _capture(query: str, *names: str, batch: int = 7, consumed: tuple[Consumed, ...] = ()) -> Capture:
    participants = tuple(Participant(name=name) for name in names)
    return Capture(cut=Cut(query=query, batch=batch, consumed=consumed), participants=participants)


_TWO = Graph((Query(name="up", writes=frozenset({"files"})), Query(name="down", reads=frozenset({"files"}))))


def test_invariant_04_membership_freezes_with_the_last_cut_downstream_first(house: House) -> None:
    _claim(house, _TWO)
    ref = house.in_flight_ref()
    with pytest.raises(Misused, match="its readers down come first"):
        house.store.barriers.capture(ref, 1, _capture("up", "up/a"))
    assert house.store.barriers.capture(ref, 1, _capture("down", "down/a")) is CaptureOutcome.CAPTURED
    assert house.store.acks.rows(ref) == []
    assert house.store.barriers.capture(ref, 1, _capture("down", "down/b")) is CaptureOutcome.DUPLICATE
    assert house.store.barriers.capture(ref, 1, _capture("up", "up/a", "up/b")) is CaptureOutcome.FROZEN
    assert [row.participant for row in house.store.acks.rows(ref)] == ["down/a", "up/a", "up/b"]
    assert house.store.barriers.capture(ref, 1, _capture("up", "up/c")) is CaptureOutcome.DUPLICATE
    assert house.get(ref).participants == 3


def test_invariant_04_a_query_that_does_not_reach_its_cut_is_blamed_by_the_time_out(house: House) -> None:
    _claim(house, _TWO)
    ref = house.in_flight_ref()
    house.store.barriers.capture(ref, 1, _capture("down", "down/a"))
    house.pass_time(minutes=11)
    house.store.checkpoints.fail_overdue(NAME, actor="tester")
    failure = house.get(ref).failure
    assert failure is not None
    assert failure.reason is FailureReason.TIMED_OUT
    assert [each["name"] for each in failure.blame["named"]] == ["up"]  # type: ignore[union-attr, index, call-overload]


def test_invariant_04_nobody_to_acknowledge_is_a_failure_and_not_a_hang(house: House) -> None:
    _claim(house, Graph((Query(name="q"),)))
    ref = house.in_flight_ref()
    assert house.store.barriers.capture(ref, 1, _capture("q")) is CaptureOutcome.FAILED
    failure = house.get(ref).failure
    assert failure is not None
    assert failure.reason is FailureReason.NO_PARTICIPANTS


def test_invariant_04_a_reader_ahead_of_its_upstream_is_refused(house: House) -> None:
    _claim(house, _TWO)
    ref = house.in_flight_ref()
    ahead = (Consumed(channel="files", writer="up", batch=9),)
    house.store.barriers.capture(ref, 1, _capture("down", "down/a", consumed=ahead))
    assert house.store.barriers.capture(ref, 1, _capture("up", "up/a", batch=8)) is CaptureOutcome.FAILED
    failure = house.get(ref).failure
    assert failure is not None
    assert failure.reason is FailureReason.INCONSISTENT_CUT
    assert "down had consumed batch 9 of up" in failure.message


def test_invariant_05_every_ack_has_an_outcome_and_only_accepted_changes_anything(house: House) -> None:
    driver = house.pipeline()
    driver.process(2)
    ref = house.in_flight(driver)
    state, source = "totals/state/0", "totals/source"
    assert driver.acknowledge(ref, [state]) == {state: AckOutcome.ACCEPTED}
    before = house.store.acks.rows(ref)
    assert driver.acknowledge(ref, [state]) == {state: AckOutcome.DUPLICATE}
    stranger = house.store.acks.acknowledge(ref, 1, [Ack(participant="stranger")])
    assert stranger == {"stranger": AckOutcome.UNKNOWN}
    assert house.store.acks.rows(ref) == before
    house.store.checkpoints.fail(ref, FailureReason.ABORTED, "no", actor="tester")
    assert driver.acknowledge(ref, [source]) == {source: AckOutcome.LATE}
    house.restore(policy=Policy(allow_fresh_start=True))
    assert driver.acknowledge(ref, [source]) == {source: AckOutcome.FENCED}
    assert house.store.acks.rows(ref) == before
    kept = [(each["participant"], each["outcome"]) for each in house.store.acks.evidence(ref)]
    assert kept == [("stranger", "unknown"), (source, "late"), (source, "fenced")]


def test_invariant_05_a_duplicate_counts_no_bytes_twice(house: House) -> None:
    driver = house.pipeline()
    driver.process(2)
    ref = house.in_flight(driver)
    driver.acknowledge(ref)
    driver.acknowledge(ref)
    decision = complete(house.context, ref).decision
    assert decision is not None
    stored = [file.size for file in house.storage.list(f"{NAME}/files/")]
    assert (decision.new_bytes, decision.new_files) == (sum(stored), len(stored))


def test_invariant_05_a_decline_fails_this_checkpoint_only(house: House) -> None:
    driver = house.pipeline()
    ref = house.in_flight(driver)
    assert house.store.acks.decline(ref, 1, "totals/state/0", "a file vanished") is AckOutcome.ACCEPTED
    failure = house.get(ref).failure
    assert failure is not None
    assert (failure.reason, failure.message) == (FailureReason.DECLINED, "totals/state/0 declined: a file vanished")
    assert driver.tick().is_current
    assert house.get(house.checkpoint(driver)).phase is Phase.COMPLETED


def test_invariant_06_whoever_loses_the_race_learns_it(house: House) -> None:
    driver = house.pipeline()
    driver.process(1)
    ref = house.in_flight(driver)
    driver.acknowledge(ref)
    done = complete(house.context, ref)
    assert done.decision is not None
    assert house.store.checkpoints.decide(ref, done.decision, actor="late") is False
    assert house.store.checkpoints.complete(ref, actor="late") is False
    assert house.store.checkpoints.fail(ref, FailureReason.ABORTED, "too late", actor="late") is False
    assert complete(house.context, ref) == done


def test_invariant_06_a_second_driver_of_the_same_attempt_ends_itself(house: House) -> None:
    house.pipeline()
    second = house.driver(claim="another")
    with pytest.raises(LostRace, match="claimed by another driver"):
        second.start()
    again = house.driver()
    assert again.start().status is AttemptStatus.RUNNING


def test_invariant_07_whoever_looks_judges_the_time_out_by_the_stores_clock(house: House) -> None:
    driver = house.pipeline()
    ref = house.in_flight(driver)
    assert not look(house.store.engine, [ref])[ref].is_overdue
    house.pass_time(minutes=10)
    assert look(house.store.engine, [ref])[ref].is_overdue
    house.store.attempts.heartbeat(NAME, 1, "driver")
    following = house.trigger()
    assert following.is_new, "the next trigger looked, failed the overdue one and went on"
    assert house.get(ref).phase is Phase.FAILED


def test_invariant_07_the_database_is_asked_for_the_time(wall_house: House) -> None:
    house = wall_house
    driver = house.pipeline()
    house.checkpoint(driver)
    newest = house.store.checkpoints.page(NAME, limit=1).checkpoints[0]
    assert newest.ended_at is not None
    assert newest.triggered_at <= newest.ended_at <= house.store.checkpoints.now()


def test_invariant_08_a_failed_checkpoint_never_happened_and_leaves_a_blame_report(house: House) -> None:
    driver = house.pipeline(with_sink=True)
    driver.process(3)
    failed = house.in_flight(driver)
    driver.acknowledge(failed, ["totals/source", "totals/state/1", SINK])
    house.store.acks.report_stage(failed, 1, ["totals/state/0"], "uploading", host="worker-7")
    house.pass_time(minutes=11)
    house.store.checkpoints.fail_overdue(NAME, actor="tester")
    failure = house.get(failed).failure
    assert failure is not None
    (named,) = failure.blame["named"]  # type: ignore[misc, str-unpack]
    assert (named["name"], named["stage"], named["host"]) == ("totals/state/0", "uploading", "worker-7")  # type: ignore[index, call-overload]
    assert named["since"] == "2026-01-01T00:00:00.000000Z"  # type: ignore[index, call-overload]
    driver.tick(0)
    house.checkpoint(driver)
    assert house.sink.read(NAME) == truth(driver.position, 2), "what was staged rolled into the next one"


def test_invariant_08_the_slowest_are_named_first(house: House) -> None:
    driver = house.pipeline()
    ref = house.in_flight(driver)
    driver.acknowledge(ref, ["totals/state/0"])
    house.pass_time(seconds=1)
    driver.acknowledge(ref, ["totals/state/1"])
    slowest = house.store.acks.slowest(ref, limit=2)
    assert [row.participant for row in slowest] == ["totals/source", "totals/state/1"]


def test_invariant_08_the_blame_report_says_how_often_somebody_was_late_before(house: House) -> None:
    driver = house.pipeline()
    for _ in range(3):
        driver.process(2)
        ref = house.in_flight(driver)
        driver.acknowledge(ref, ["totals/source", "totals/state/0"])
        house.pass_time(seconds=5)
        driver.acknowledge(ref, ["totals/state/1"])
        complete(house.context, ref)
        assert house.get(ref).last_participant == "totals/state/1"
    late = house.in_flight(driver)
    driver.acknowledge(late, ["totals/source", "totals/state/0"])
    house.pass_time(minutes=11)
    house.store.checkpoints.fail_overdue(NAME, actor="tester")
    failure = house.get(late).failure
    assert failure is not None
    (named,) = failure.blame["named"]  # type: ignore[misc, str-unpack]
    assert (named["late_before"], failure.blame["recent"]) == (3, 3)  # type: ignore[index, call-overload]


def test_invariant_09_a_crash_between_any_two_steps_is_resumed(house: House) -> None:
    driver = house.pipeline(with_sink=True)
    for moment in count():
        driver.process(2)
        ref = house.in_flight(driver)
        driver.acknowledge(ref)
        has_crashed = _complete_and_crash(house, ref, CrashAt(moment))
        complete(house.context, ref)
        driver.commit(ref)
        driver.completed(ref)
        assert house.get(ref).phase is Phase.COMPLETED
        assert house.sink.read(NAME) == truth(driver.position, 2)
        if not has_crashed:
            break
    assert moment > 20, "two moments for each of more than ten calls"
    assert plan_cleanup(house.context, NAME).missing == {}


def _complete_and_crash(house: House, ref: Ref, crash: CrashAt) -> bool:
    dying = replace(house.context, store=watch_store(house.store, crash), storage=watch_storage(house.storage, crash))
    try:
        complete(dying, ref)
        commit(dying, ref, 1, {SINK: house.sink})
    except Crashed:
        return True
    return False


def test_invariant_09_a_manifest_without_its_marker_is_nothing(house: House) -> None:
    driver = house.pipeline()
    house.checkpoint(driver)
    ref = house.in_flight(driver)
    driver.acknowledge(ref)

    class CrashBeforeTheDecision:
        def before(self, call: str) -> None:
            if call == "checkpoints.decide":
                raise Crashed

        def after(self, call: str) -> None: ...

    with pytest.raises(Crashed):
        complete(replace(house.context, store=watch_store(house.store, CrashBeforeTheDecision())), ref)
    assert f"{NAME}/checkpoints/{ref.id}/manifest" in house.files()
    report = rebuild(house.context, dry_run=True)
    assert ref not in {each.manifest.ref for each in report.found}


def test_invariant_09_an_unknown_outcome_deletes_nothing(house: House) -> None:
    driver = house.pipeline()
    driver.process(1)
    ref = house.in_flight(driver)
    driver.acknowledge(ref)

    class Lost:
        def before(self, call: str) -> None: ...

        def after(self, call: str) -> None:
            if call == "storage.create":
                raise OutcomeUnknown("the answer was lost")

    with pytest.raises(OutcomeUnknown):
        complete(replace(house.context, storage=watch_storage(house.storage, Lost())), ref)
    assert house.get(ref).phase is Phase.IN_PROGRESS
    assert complete(house.context, ref).phase is Phase.COMPLETED


def test_invariant_10_cleanup_and_triggering_exclude_each_other_both_ways(house: House) -> None:
    driver = house.pipeline()
    lease = house.store.leases.acquire_cleanup(NAME, owner="cleaner", token="t")
    assert house.trigger().skipped is SkipReason.CLEANUP_ACTIVE
    house.store.leases.release(lease)
    house.in_flight(driver)
    with pytest.raises(TryAgain, match="a checkpoint is in flight"):
        house.store.leases.acquire_cleanup(NAME, owner="cleaner", token="t")


def test_invariant_10_active_cleanup_runs_of_airflow_are_asked_too(house: House) -> None:
    house.pipeline()
    skipped = house.trigger(active_cleanup_runs=2)
    assert skipped.skipped is SkipReason.CLEANUP_RUN_ACTIVE
    events = [event for event in house.store.events.newest(NAME) if event.kind == "trigger.skipped"]
    assert "2 cleanup Dag run(s) are queued or running" in events[0].reason


def test_invariant_10_cleanup_can_not_starve_checkpoints(house: House) -> None:
    driver = house.pipeline(settings=replace(SETTINGS, lease_ttl=timedelta(hours=9)))
    lease = house.store.leases.acquire_cleanup(NAME, owner="hung", token="t")
    assert house.trigger(active_cleanup_runs=1).skipped is SkipReason.CLEANUP_ACTIVE
    house.pass_time(minutes=9)
    driver.tick()
    assert house.trigger(active_cleanup_runs=1).skipped is SkipReason.CLEANUP_ACTIVE
    house.pass_time(minutes=1)
    driver.tick()
    assert house.trigger(active_cleanup_runs=1).is_new, "after the maximum deferral the trigger goes first"
    with pytest.raises(LeaseLost):
        house.store.leases.renew(lease)


def test_invariant_10_an_expired_lease_blocks_nobody(house: House) -> None:
    driver = house.pipeline()
    house.store.leases.acquire_cleanup(NAME, owner="dead", token="t")
    house.pass_time(minutes=3)
    driver.tick()
    assert house.trigger().is_new


def test_invariant_10_checkpoints_can_not_starve_cleanup(house: House) -> None:
    driver = house.pipeline()
    ref = house.in_flight(driver)
    with pytest.raises(TryAgain):
        cleanup(house.context, NAME)
    house.pass_time(minutes=10)
    house.store.checkpoints.fail_overdue(NAME, actor="tester")
    driver.tick()
    assert house.get(ref).phase is Phase.FAILED
    assert house.trigger().skipped is SkipReason.CLEANUP_DUE, "the cleanup goes first now"
    cleanup(house.context, NAME)
    assert house.trigger().is_new


def test_invariant_11_nobody_builds_on_what_is_condemned(house: House) -> None:
    driver = house.pipeline(settings=replace(SETTINGS, retention=replace(SETTINGS.retention, last=1)))
    first = house.checkpoint(driver, events=2)
    sleepy = house.driver()
    sleepy.attempt = 1
    sleepy.adopt(house.get(first))
    house.checkpoint(driver, events=2)
    cleanup(house.context, NAME)
    triggered = house.trigger()
    assert triggered.checkpoint is not None
    ref = triggered.checkpoint.ref
    stale = _capture("totals", *sleepy.participants)
    assert house.store.barriers.capture(ref, 1, replace(stale, bases=(first.id,))) is CaptureOutcome.BASE_GONE
    assert sleepy.capture(ref) is CaptureOutcome.FROZEN, "it copied everything anew instead"
    sleepy.acknowledge(ref)
    complete(house.context, ref)
    assert plan_cleanup(house.context, NAME).missing == {}


def test_invariant_11_cleanup_honours_pins_savepoints_restores_newest_and_validated(house: House) -> None:
    driver = house.pipeline(settings=replace(SETTINGS, retention=replace(SETTINGS.retention, last=1)))
    pinned = house.checkpoint(driver)
    savepoint = house.checkpoint(driver, savepoint="before-upgrade")
    validated = house.checkpoint(driver)
    house.store.checkpoints.judge(validated, Verdict.VALIDATED, "", actor="tester")
    for _ in range(3):
        house.checkpoint(driver)
    newest = house.checkpoint(driver)
    house.store.pins.add(pinned, owner="me", reason="audit")
    report = cleanup(house.context, NAME)
    assert set(report.kept) == {pinned.id, savepoint.id, validated.id, newest.id}
    assert house.restore(to=validated.id).attempt.restored_from == validated.id
    assert plan_cleanup(house.context, NAME).missing == {}


def test_invariant_11_nobody_can_wish_away_what_is_needed(house: House) -> None:
    driver = house.pipeline()
    first, second = house.checkpoint(driver), house.checkpoint(driver)
    with pytest.raises(Refused, match=f"{second} stays: it is the last good one"):
        cleanup(house.context, NAME, discard=[first.id, second.id])
    house.restore(to=first.id)
    for act in (plan_cleanup, cleanup):
        with pytest.raises(Refused, match=f"{first} stays: the current attempt starts from it"):
            act(house.context, NAME, discard=[first.id])
    house.store.pins.add(second, owner="me", reason="audit")
    with pytest.raises(Refused, match="is pinned by me: audit"):
        cleanup(house.context, NAME, discard=[second.id])
    assert (house.get(first).phase, house.get(second).phase) == (Phase.COMPLETED, Phase.COMPLETED)


def test_invariant_11_a_cleaner_that_wakes_up_late_finds_its_plan_void(house: House) -> None:
    driver = house.pipeline(settings=replace(SETTINGS, retention=replace(SETTINGS.retention, last=1)))
    old = house.checkpoint(driver)
    house.checkpoint(driver)
    lease = house.store.leases.acquire_cleanup(NAME, owner="sleepy", token="t")
    revision = house.store.pipelines.get(NAME).revision
    house.store.pins.add(old, owner="me", reason="needed after all")
    house.store.pins.remove(old, owner="me", actor="me")
    assert house.store.checkpoints.discard([old.id], lease, revision=revision, actor="sleepy") == ()
    with pytest.raises(LostRace, match="out of date"):
        house.store.files.condemn({"x": "y"}, lease, revision=revision, after=timedelta(0))
    assert house.get(old).phase is Phase.COMPLETED


def test_invariant_12_a_file_that_will_not_go_is_reported_retried_and_stops_nothing_else(house: House) -> None:
    driver = house.pipeline(settings=replace(SETTINGS, retention=replace(SETTINGS.retention, last=1)))
    first, second = house.checkpoint(driver, events=2), house.checkpoint(driver, events=2)
    newest = house.checkpoint(driver, events=2)
    stubborn = f"{NAME}/files/1/{first.id}/totals/state/0"

    class Stubborn:
        def before(self, call: str) -> None: ...

        def after(self, call: str) -> None: ...

    storage = watch_storage(house.storage, Stubborn())
    original = house.storage.delete

    def delete(path: str) -> bool:
        if path == stubborn:
            raise TryAgain(f"{path} is busy")
        return original(path)

    storage.delete = delete  # type: ignore[method-assign]
    report = cleanup(replace(house.context, storage=storage), NAME)
    assert report.failed == {stubborn: f"{stubborn} is busy"}
    assert (house.get(first).phase, house.get(second).phase) == (Phase.DISCARDING, Phase.DISCARDED)
    report = cleanup(house.context, NAME)
    assert report.deleted == (stubborn,)
    assert house.get(first).phase is Phase.DISCARDED
    assert house.get(newest).phase is Phase.COMPLETED


def test_invariant_12_a_checkpoint_is_forgotten_only_after_its_files_are_gone(house: House) -> None:
    driver = house.pipeline(settings=replace(SETTINGS, retention=replace(SETTINGS.retention, last=1)))
    first = house.checkpoint(driver, events=2)
    house.checkpoint(driver, events=2)
    order: list[str] = []

    class Order:
        def before(self, call: str) -> None: ...

        def after(self, call: str) -> None:
            if call in ("storage.delete", "checkpoints.discard", "files.condemn", "checkpoints.forget"):
                order.append(call)

    hook = Order()
    cleanup(
        replace(house.context, store=watch_store(house.store, hook), storage=watch_storage(house.storage, hook)), NAME
    )
    assert order[:2] == ["checkpoints.discard", "files.condemn"]
    assert order[-1] == "checkpoints.forget"
    assert "storage.delete" in order
    assert house.get(first).phase is Phase.DISCARDED


def test_invariant_13_retention_is_computed_from_the_store_and_the_listing(house: House, database: str) -> None:
    driver = house.pipeline()
    refs = [house.checkpoint(driver) for _ in range(6)]
    newcomer = House(database, house.folder, clock=house.clock)  # a process that remembers nothing
    report = cleanup(newcomer.context, NAME)
    assert set(report.kept) == {ref.id for ref in refs[-2:]}
    assert {ref.id for ref in refs[:-2]} == set(report.discarded)
    newcomer.store.close()


def test_invariant_14_what_never_started_a_query_may_start_afresh(house: House) -> None:
    """A program that failed before its first query: it is mended, and started again."""
    house.store.pipelines.create(NAME, SETTINGS, identity="tester", actor="tester")
    for number in (1, 2):
        assert house.restore().choice.rung is Rung.FRESH
        house.store.attempts.claim(NAME, number, f"driver {number}", Graph(()))
        house.store.attempts.end(NAME, number, AttemptStatus.FAILED, actor="driver", failure="a typing error")
    assert house.restore().choice.rung is Rung.FRESH


def test_invariant_14_no_silent_fresh_start(house: House) -> None:
    house.pipeline()
    with pytest.raises(Refused, match="--allow-fresh-start"):
        house.restore()
    assert house.restore(policy=Policy(allow_fresh_start=True)).choice.rung is Rung.FRESH


def test_invariant_14_a_corrupt_newest_checkpoint_is_marked_and_the_next_older_one_taken_with_its_price(
    house: House,
) -> None:
    driver = house.pipeline()
    older, newest = house.checkpoint(driver), house.checkpoint(driver)
    _flip_a_bit(house, newest)
    with pytest.raises(Refused, match="falling back is not allowed"):
        house.restore(policy=Policy(allow_fallback=False))
    restored = house.restore()
    assert restored.choice.checkpoint is not None
    assert restored.choice.checkpoint.ref == older
    assert f"passes over {newest.id}" in str(restored.choice.price)
    assert house.get(newest).verdict is Verdict.CORRUPT


def test_invariant_14_a_rewind_behind_what_a_sink_has_committed_is_refused(house: House) -> None:
    driver = house.pipeline(with_sink=True)
    older, newest = house.checkpoint(driver), house.checkpoint(driver)
    with pytest.raises(Refused, match=f"sink {SINK} has already committed {newest}"):
        house.restore(to=older.id, with_sink=True)
    with pytest.raises(Refused, match="--accept-duplicates"):  # the store knows it too, when nobody can ask the target
        house.restore(to=older.id)
    accepted = house.restore(to=older.id, with_sink=True, policy=Policy(accept_duplicates=frozenset({SINK})))
    assert accepted.choice.price.duplicated == (SINK,)


def test_invariant_15_an_older_attempt_can_not_harm(house: House) -> None:
    old = house.pipeline(with_sink=True)
    house.checkpoint(old)
    old.process(1)
    stuck = house.in_flight(old)
    house.restore(with_sink=True)
    new = house.driver(with_sink=True, claim="new")
    new.start()
    assert set(old.acknowledge(stuck).values()) == {AckOutcome.FENCED}
    assert house.get(stuck).failure is not None
    assert old.tick().is_current is False
    with pytest.raises(Fenced):
        house.driver(claim="old again").start(1)
    triggered = house.trigger()
    assert triggered.checkpoint is not None
    assert old.capture(triggered.checkpoint.ref) is CaptureOutcome.FENCED
    new.process(1)
    new.capture(triggered.checkpoint.ref)
    new.acknowledge(triggered.checkpoint.ref)
    complete(house.context, triggered.checkpoint.ref)
    with pytest.raises(Fenced):
        old.commit(triggered.checkpoint.ref)
    new.commit(triggered.checkpoint.ref)
    assert house.sink.read(NAME) == truth(new.position, 2)


def test_invariant_15_restore_waits_for_the_time_to_live_unless_the_old_one_is_proven_dead(house: House) -> None:
    driver = house.pipeline()
    house.checkpoint(driver)
    with pytest.raises(Refused, match="is alive"):
        restore(house.context, NAME)
    before = house.store.checkpoints.now()
    restore(house.context, NAME, RestoreOptions(take_over=True))
    assert house.store.checkpoints.now() - before == SETTINGS.attempt_ttl
    house.driver(claim="second").start()
    before = house.store.checkpoints.now()
    restore(house.context, NAME, RestoreOptions(is_proven_dead=True))
    assert house.store.checkpoints.now() == before


def test_invariant_18_a_rewind_starts_from_the_committing_checkpoint_also_where_the_tip_is_intact(house: House) -> None:
    driver = house.pipeline(with_sink=True)
    driver.process(3)
    ref = house.in_flight(driver)
    driver.acknowledge(ref)
    complete(house.context, ref)
    intact = RestoreOptions(target=Target(rewind=True), tip_damage=lambda dead: None, is_proven_dead=True)
    restored = restore(house.context, NAME, intact)
    assert restored.attempt.restored_from == ref.id
    assert house.get(ref).phase is Phase.COMMITTING


def test_a_target_that_can_not_be_asked_leaves_it_to_the_store_and_one_that_was_rolled_back_is_believed(
    house: House,
) -> None:
    driver = house.pipeline(with_sink=True)
    first, second = house.checkpoint(driver), house.checkpoint(driver)

    class OutOfReach(ScriptedSink):
        def marker(self, pipeline: str) -> SinkMarker:
            raise OSError("no route to host")

    options = RestoreOptions(target=Target(id=first.id), is_proven_dead=True)
    unreachable = replace(options, committers={SINK: OutOfReach(house.storage)})
    with pytest.raises(Refused, match=f"has already committed {second}"):
        plan_restore(house.context, NAME, unreachable)
    assert house.store.sinks.rolled_back(NAME, SINK, first.id, attempt=1) == 1
    assert plan_restore(house.context, NAME, unreachable).price.duplicated == ()


def test_invariant_16_tolerable_failures_mark_the_pipeline_unhealthy_and_do_not_kill_it(house: House) -> None:
    driver = house.pipeline()
    for failures in range(1, 4):
        ref = house.in_flight(driver)
        house.store.acks.decline(ref, 1, "totals/state/0", "no")
        assert health(house.context, NAME).is_well is (failures < 3)
    aborted = house.in_flight(driver)
    house.store.checkpoints.fail(aborted, FailureReason.ABORTED, "by a person", actor="tester")
    assert health(house.context, NAME).failures == 3, "an abort does not count against the pipeline"
    assert driver.tick().is_current
    house.checkpoint(driver)
    assert health(house.context, NAME).is_well


def test_invariant_17_newest_and_retention_follow_the_current_timeline(house: House) -> None:
    driver = house.pipeline()
    first, left_behind = house.checkpoint(driver), house.checkpoint(driver)
    house.restore(to=first.id)
    second = house.driver(claim="second")
    second.start()
    branch = house.checkpoint(second)
    timeline = current_timeline(house.store.attempts.of(NAME))
    assert [timeline.holds(house.get(ref).attempt, ref.id) for ref in (first, left_behind, branch)] == [
        True,
        False,
        True,
    ]
    assert plan_restore(house.context, NAME, RestoreOptions(target=Target(rewind=True))).checkpoint == house.get(branch)
    chosen = house.restore(to=left_behind.id)
    assert chosen.attempt.parent == 1, "an abandoned one is restored by explicit id"


def test_invariant_17_a_person_s_choice_is_kept_until_a_driver_has_claimed_it(house: House) -> None:
    driver = house.pipeline()
    first = house.checkpoint(driver)
    house.checkpoint(driver)
    house.restore(to=first.id)
    again = house.restore()
    assert again.attempt.restored_from == first.id
    assert again.attempt.number == 3


def test_invariant_17_a_choice_that_can_not_be_kept_says_so(house: House) -> None:
    driver = house.pipeline(with_sink=True)
    first, second = house.checkpoint(driver), house.checkpoint(driver)
    house.restore(to=first.id, with_sink=True, policy=Policy(accept_duplicates=frozenset({SINK})))
    house.store.checkpoints.judge(first, Verdict.CORRUPT, "a bit flipped.", actor="tester")
    with pytest.raises(Refused, match="Attempt 2 was planned to start there"):
        house.restore(with_sink=True)
    assert house.restore(with_sink=True, target=Target(id=second.id)).attempt.restored_from == second.id


def test_invariant_14_a_corrupt_checkpoint_is_not_recommended(house: House) -> None:
    driver = house.pipeline(with_sink=True)
    house.checkpoint(driver, events=2)
    newest = house.checkpoint(driver, events=2)
    _flip_a_bit(house, newest)
    with pytest.raises(Refused, match=f"{newest} is corrupt: repair it, or accept duplicates"):
        house.restore(with_sink=True)


def test_invariant_18_committing_ends_by_the_current_agent_a_restore_or_a_person(house: House) -> None:
    driver = house.pipeline(with_sink=True)
    driver.process(1)
    ref = house.in_flight(driver)
    driver.acknowledge(ref)
    assert complete(house.context, ref).phase is Phase.COMMITTING
    assert house.store.checkpoints.fail(ref, FailureReason.ABORTED, "no", actor="x") is False
    assert Phase.FAILED not in TRANSITIONS[Phase.COMMITTING]
    assert house.trigger().skipped is SkipReason.IN_FLIGHT
    with pytest.raises(TryAgain, match="orders/1 is being committed by attempt 1, which is alive: try again"):
        plan_restore(house.context, NAME, RestoreOptions(target=Target(id=99), take_over=True))
    with pytest.raises(Refused, match="can not go back before orders/1 is committed"):
        house.restore(to=99)
    restored = house.restore(with_sink=True)
    assert house.get(ref).phase is Phase.COMPLETED
    assert restored.attempt.restored_from == ref.id
    second = house.driver(with_sink=True, claim="second")
    second.start()
    second.process(1)
    other = house.in_flight(second)
    second.acknowledge(other)
    complete(house.context, other)
    resolve(house.context, other, SINK, SinkStatus.ABANDONED, reason="the target is gone for good")
    assert house.get(other).phase is Phase.COMPLETED
    events = [event for event in house.store.events.newest(NAME) if event.kind == "sink.resolved"]
    assert (events[0].actor, events[0].reason) == ("tester", "the target is gone for good")


def test_invariant_18_a_restore_without_the_sinks_leaves_the_commit_to_the_new_driver(house: House) -> None:
    driver = house.pipeline(with_sink=True)
    house.checkpoint(driver, events=2)
    driver.process(3)
    ref = house.in_flight(driver)
    driver.acknowledge(ref)
    complete(house.context, ref)
    assert plan_restore(house.context, NAME).checkpoint == house.get(ref)
    restored = house.restore()  # by somebody who can not reach the target
    assert (restored.attempt.restored_from, house.get(ref).phase) == (ref.id, Phase.COMMITTING)
    second = house.driver(with_sink=True, claim="second")
    second.start()
    second.tick(2)
    assert house.get(ref).phase is Phase.COMPLETED
    house.checkpoint(second, events=1)
    assert house.sink.read(NAME) == truth(8, 2)


def test_invariant_15_a_restore_that_is_refused_fences_nobody(house: House) -> None:
    driver = house.pipeline(with_sink=True)
    older = house.checkpoint(driver)
    house.checkpoint(driver)
    for options in ({"to": 77}, {"to": older.id}, {"target": Target(savepoint="typo")}):
        with pytest.raises(CkptError):
            house.restore(with_sink=True, **options)
    assert driver.tick().is_current
    assert house.store.pins.of(NAME) == []


def test_invariant_15_a_restore_that_was_interrupted_does_not_shorten_the_wait(house: House) -> None:
    driver = house.pipeline()
    house.checkpoint(driver)

    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        restore(replace(house.context, sleep=interrupted), NAME, RestoreOptions(take_over=True))
    before = house.store.checkpoints.now()
    restore(house.context, NAME)
    assert house.store.checkpoints.now() - before == SETTINGS.attempt_ttl


def test_a_driver_completes_what_nobody_follows(house: House) -> None:
    driver = house.pipeline(with_sink=True)
    ref = house.in_flight_ref()
    for _ in range(4):
        driver.tick()
    assert house.get(ref).phase is Phase.COMPLETED


def _flip_a_bit(house: House, ref: Ref) -> None:
    path = house.folder / NAME / f"files/1/{ref.id}"
    file = next(each for each in sorted(path.rglob("*")) if each.is_file())
    data = bytearray(file.read_bytes())
    data[0] ^= 1
    file.write_bytes(data)
