"""The world that the model checker explores: one scripted pipeline, its actors, and what must always be true of it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta

from airflow_provider_ckpt.coordinator.cleanup import cleanup
from airflow_provider_ckpt.coordinator.complete import complete
from airflow_provider_ckpt.coordinator.restore import RestoreOptions, restore
from airflow_provider_ckpt.metastore.schema import acks, checkpoints
from airflow_provider_ckpt.protocol.manifest import digest, read_manifest
from airflow_provider_ckpt.protocol.paths import decided_path, home_of_manifest
from airflow_provider_ckpt.protocol.phases import ENDED, IN_FLIGHT, TRANSITIONS, UNDECIDED, Phase
from airflow_provider_ckpt.protocol.records import (
    SINK_DONE,
    AckStatus,
    CaptureOutcome,
    Checkpoint,
    LeaseKind,
    Ref,
    TriggerRequest,
    Verdict,
)
from airflow_provider_ckpt.protocol.recovery import Target
from airflow_provider_ckpt.protocol.retention import Retention
from airflow_provider_ckpt.protocol.settings import Settings
from airflow_provider_ckpt.protocol.timeline import current_timeline
from airflow_provider_ckpt.testing import ScriptedPipeline, ScriptedSink, truth
from airflow_provider_ckpt.testing.scripted import SINK
from tests.model.checker import Actor, Program, Snapshot, World
from tests.rescue import checkpoint_now, rescue

NAME = "orders"
PARTITIONS = 1  # with the source that is two participants; with the sink three
SETTINGS = Settings(
    timeout=timedelta(minutes=10),
    lease_ttl=timedelta(minutes=2),
    attempt_ttl=timedelta(days=365),
    max_deferral=timedelta(minutes=30),
    orphan_grace=timedelta(minutes=1),
    quarantine=timedelta(minutes=1),
)


def pipeline_of(context_of: Actor | World, name: str, *, with_sink: bool, claim: str = "driver") -> ScriptedPipeline:
    context = context_of.context if isinstance(context_of, Actor) else context_of.context(name)
    sink = ScriptedSink(context.storage) if with_sink else None
    return ScriptedPipeline(context, NAME, partitions=PARTITIONS, sink=sink, claim=claim)


def request(key: str) -> TriggerRequest:
    return TriggerRequest(pipeline=NAME, key=key, requested_by=key)


# preparing


def prepare(
    *,
    completed: int,
    kept: int = 1,
    with_sink: bool = False,
    rewound_to: int | None = None,
    flying: Phase | None = None,
) -> Callable[[World], None]:
    """A running attempt with so many completed checkpoints behind it, of which retention keeps so many.

    :param rewound_to: a second attempt started from this checkpoint and has completed one of its own.
    :param flying: one more is under way: IN_PROGRESS with all acknowledged, or COMMITTING with nothing committed.
    """

    def run(world: World) -> None:
        settings = replace(SETTINGS, retention=Retention(last=kept))
        world.store.pipelines.create(NAME, settings, identity="test", actor="test")
        restore(world.context("first"), NAME)
        driver = pipeline_of(world, "driver", with_sink=with_sink)
        driver.start()
        for number in range(completed):
            driver.process(1)
            checkpoint_now(world.context("test"), driver, f"before-{number}")
            world.clock.advance(minutes=5)
        if flying is not None:
            _leave_in_flight(world, driver, flying)
        if rewound_to is not None:
            options = RestoreOptions(target=Target(id=rewound_to), is_proven_dead=True)
            restore(world.context("rewind"), NAME, options)
            second = pipeline_of(world, "second", with_sink=with_sink, claim="second")
            second.start()
            second.process(1)
            checkpoint_now(world.context("test"), second, "after the rewind")

    return run


def _leave_in_flight(world: World, driver: ScriptedPipeline, phase: Phase) -> None:
    driver.process(1)
    checkpoint = world.store.barriers.trigger(request("in flight")).checkpoint
    assert checkpoint is not None
    driver.capture(checkpoint.ref)
    driver.acknowledge(checkpoint.ref)
    if phase is Phase.COMMITTING:
        complete(world.context("test"), checkpoint.ref)


# actors


def triggers(key: str) -> Program:
    return lambda actor: _ignore(actor.store.barriers.trigger(request(key)))


def agent(*, after: int = 1, with_sink: bool = False, declines: bool = False, times: int = 1) -> Program:
    """The driver of attempt 1 after so many checkpoints; it builds on none of them, so its next one is full."""

    def run(actor: Actor) -> None:
        driver = pipeline_of(actor, "agent", with_sink=with_sink)
        driver.attempt = 1
        driver.position, driver.totals = after, [sum(range(after + 1))]
        driver.process(2)
        for _ in range(times):
            actor.wait_until(lambda world: _flying(world, Phase.TRIGGERED) is not None)
            flying = actor.store.checkpoints.in_flight(NAME)
            if flying is None:
                return
            if driver.capture(flying.ref) is not CaptureOutcome.FROZEN:
                return
            if declines:
                actor.store.acks.decline(flying.ref, driver.attempt, driver.participants[0], "no")
                return
            for participant in driver.participants:
                driver.acknowledge(flying.ref, [participant])
            if with_sink:
                actor.wait_until(lambda world: _flying(world, Phase.COMMITTING) is not None)
                driver.commit(flying.ref)

    return run


def reusing_agent(base: int) -> Program:
    """A driver that means to use the files of an older checkpoint again, and has been asleep since it learnt of it."""

    def run(actor: Actor) -> None:
        driver = pipeline_of(actor, "agent", with_sink=False)
        driver.attempt = 1
        driver.adopt(actor.store.checkpoints.get(Ref(NAME, base)))
        actor.wait_until(lambda world: _flying(world, Phase.TRIGGERED) is not None)
        flying = actor.store.checkpoints.in_flight(NAME)
        if flying is None:
            return
        if driver.capture(flying.ref) is CaptureOutcome.FROZEN:
            driver.acknowledge(flying.ref)

    return run


def completes(actor: Actor) -> None:
    """Whoever finds everything acknowledged completes it."""
    actor.wait_until(_all_acknowledged)
    flying = actor.store.checkpoints.in_flight(NAME)
    if flying is not None:
        complete(actor.context, flying.ref)


def commits(id_: int) -> Program:
    """The old driver, which was about to commit."""

    def run(actor: Actor) -> None:
        driver = pipeline_of(actor, "old", with_sink=True)
        driver.attempt = 1
        actor.wait_until(lambda world: _flying(world, Phase.COMMITTING) is not None)
        driver.commit(Ref(NAME, id_))

    return run


def times_out(actor: Actor) -> None:
    actor.advance_clock(minutes=11)
    actor.store.checkpoints.fail_overdue(NAME, actor="clock")


def cleans(actor: Actor) -> None:
    cleanup(actor.context, NAME)


def clock(**duration: float) -> Program:
    return lambda actor: actor.advance_clock(**duration)


def restores(
    *, to: int | None = None, with_sink: bool = False, reaches_sink: bool = True, claim: str = "second"
) -> Program:
    """Restore and start the next driver; where the restore does not reach the sink, that one finishes its commit."""

    def run(actor: Actor) -> None:
        sinks = {SINK: ScriptedSink(actor.storage)} if with_sink and reaches_sink else {}
        options = RestoreOptions(target=Target(id=to), take_over=True, is_proven_dead=True, committers=sinks)
        restore(actor.context, NAME, options)
        driver = pipeline_of(actor, claim, with_sink=with_sink, claim=claim)
        driver.start()
        driver.process(1)
        if with_sink and not reaches_sink:
            driver.tick(0)

    return run


def judges(id_: int) -> Program:
    """Somebody finds a checkpoint corrupt."""
    return lambda actor: actor.store.checkpoints.judge(Ref(NAME, id_), Verdict.CORRUPT, "seen", actor="verify")


def pins(id_: int) -> Program:
    return lambda actor: actor.store.pins.add(Ref(NAME, id_), owner="person", reason="needed")


# what must always be true


def check(world: World, before: Snapshot, now: Snapshot, *, partitions: int = PARTITIONS) -> None:
    """The invariants of DESIGN.md: of one moment, and of one step."""
    check_safety(world, before, now, partitions=partitions)
    rows = world.store.checkpoints.page(NAME, limit=100).checkpoints
    pipeline = world.store.pipelines.get(NAME)
    in_flight = [each for each in rows if each.phase in IN_FLIGHT]
    assert len(in_flight) <= 1, f"two in flight: {[str(each.ref) for each in in_flight]}"
    assert all(each.ref.id < pipeline.next_checkpoint for each in rows), "an id was given out twice"
    for each in in_flight:
        if each.phase in UNDECIDED:
            assert each.attempt == pipeline.current_attempt, f"{each.ref} of a fenced attempt is {each.phase}"
    leases = {lease.kind for lease in world.store.leases.held(NAME)}
    assert not (in_flight and LeaseKind.CLEANUP in leases), "a checkpoint in flight during a cleanup"


def check_safety(world: World, before: Snapshot, now: Snapshot, *, partitions: int = PARTITIONS) -> None:
    """Nothing is lost, nothing is doubled: the invariants without those on who may work at the same time."""
    _check_step(before, now)
    rows = world.store.checkpoints.page(NAME, limit=100).checkpoints
    for each in rows:
        _check_bytes(world, each)
    _check_published(world, partitions)
    _check_something_to_restore(world, before, rows)


def _check_step(before: Snapshot, now: Snapshot) -> None:
    """Phases change by the table only; ids keep their attempt; what has ended is not acknowledged any more."""
    old, new = ({row["id"]: row for row in each.rows(checkpoints)} for each in (before, now))
    for id_, row in old.items():
        was, phase = Phase(str(row["phase"])), Phase(str(new[id_]["phase"]))
        assert phase in _following(was), f"checkpoint {id_} went from {was} to {phase}"
        assert new[id_]["attempt"] == row["attempt"], f"checkpoint {id_} changed its attempt"
        if was in ENDED:
            acked, still = (_acks_of(each, id_) for each in (before, now))
            assert still in (acked, []), f"checkpoint {id_} is {was} and was acknowledged"


def _following(phase: Phase) -> set[Phase]:
    """Where it can be next; one call of a program, as in the state machine, may do several steps."""
    return {phase}.union(*(_following(each) for each in TRANSITIONS[phase]))


def _acks_of(snapshot: Snapshot, checkpoint: object) -> list[Mapping[str, object]]:
    return [row for row in snapshot.rows(acks) if row["checkpoint"] == checkpoint]


def _check_bytes(world: World, checkpoint: Checkpoint) -> None:
    files = world.storage.snapshot()
    ref = checkpoint.ref
    if checkpoint.phase is Phase.IN_PROGRESS:
        acked = world.store.acks.rows(ref)
        assert len(acked) == checkpoint.participants, f"membership of {ref} changed after it was frozen"
        for row in acked:
            for file in row.ack.files if row.ack else ():
                assert f"{NAME}/{file.path}" in files, f"{ref} acknowledged {file.path}, which is gone"
    if checkpoint.phase in (Phase.COMMITTING, Phase.COMPLETED):
        assert checkpoint.decision is not None
        data = files.get(checkpoint.decision.manifest_path)
        assert data is not None, f"the manifest of {ref} is gone"
        assert digest(data) == checkpoint.decision.manifest_sha256, f"the manifest of {ref} is another one"
        manifest = read_manifest("manifest", data)
        condemned = {each.path for each in world.store.files.condemned(NAME)}
        for file in manifest.files.values():
            assert manifest.located(file) in files, f"{ref} is {checkpoint.phase} and {file.path} is gone"
            assert manifest.located(file) not in condemned, f"{ref} is {checkpoint.phase} and {file.path} is condemned"
        assert all(row.status is AckStatus.ACKED for row in world.store.acks.rows(ref)), f"{ref} decided too early"
    if checkpoint.phase is Phase.COMPLETED:
        assert checkpoint.decision is not None
        marker = decided_path(home_of_manifest(checkpoint.decision.manifest_path))
        assert marker in files, f"{ref} is completed without its marker"
        undone = [sink.sink for sink in world.store.sinks.of(ref) if sink.status not in SINK_DONE]
        assert not undone, f"{ref} is completed and {undone} have not committed"
    if checkpoint.phase is Phase.FAILED:
        marker = f"{NAME}/checkpoints/{ref.id}/decided"
        assert marker not in files, f"{ref} has failed and is marked as decided"


def _check_published(world: World, partitions: int) -> None:
    published = ScriptedSink(world.storage).read(NAME)
    assert published == truth(len(published), partitions), f"published {published}"


def _check_something_to_restore(world: World, before: Snapshot, rows: tuple[Checkpoint, ...]) -> None:
    """What is condemned on the current timeline leaves a good one there."""
    old = {row["id"]: row["phase"] for row in before.rows(checkpoints)}
    timeline = current_timeline(world.store.attempts.of(NAME))
    line = [each for each in rows if timeline.holds(each.attempt, each.ref.id)]
    condemned = [each for each in line if each.phase is Phase.DISCARDING and old.get(each.ref.id) == Phase.COMPLETED]
    assert not condemned or any(each.is_restorable for each in line), "the last good checkpoint was condemned"


# recovering


def recover(*, with_sink: bool = False) -> Callable[[World], None]:
    """Others put right what is left when everybody has died."""

    def run(world: World) -> None:
        rescue(world.context("rescue"), world.clock, NAME, partitions=PARTITIONS, with_sink=with_sink)
        tidy = world.snapshot()
        check(world, tidy, tidy)

    return run


# inside


def _flying(world: World, phase: Phase) -> Checkpoint | None:
    flying = world.store.checkpoints.in_flight(NAME)
    return flying if flying is not None and flying.phase is phase else None


def _all_acknowledged(world: World) -> bool:
    flying = world.store.checkpoints.in_flight(NAME)
    if flying is None or flying.phase is Phase.TRIGGERED:
        return False
    return not world.store.acks.has_pending(flying.ref)


def _ignore(_: object) -> None: ...
