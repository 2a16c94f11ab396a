"""A Hypothesis state machine over the shipped code, for sizes that can not be explored to the end.

Several partitions, many checkpoints and attempts, savepoints, pins, rewinds and crashes at random calls; the same
invariants after every step, and a rescue at the end of every run.
"""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import Phase as Stage
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from airflow_provider_ckpt.coordinator.cleanup import cleanup
from airflow_provider_ckpt.coordinator.complete import complete
from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.coordinator.restore import RestoreOptions, restore
from airflow_provider_ckpt.coordinator.verify import verify
from airflow_provider_ckpt.protocol.errors import CkptError
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.reasons import FailureReason
from airflow_provider_ckpt.protocol.records import Checkpoint, Ref, TriggerRequest
from airflow_provider_ckpt.protocol.recovery import Target
from airflow_provider_ckpt.protocol.retention import Retention
from airflow_provider_ckpt.testing import CrashAt, Crashed, ScriptedPipeline, ScriptedSink, watch_storage, watch_store
from airflow_provider_ckpt.testing.scripted import SINK
from tests.harness import campaign
from tests.model.checker import Snapshot, World
from tests.model.world import NAME, SETTINGS, check
from tests.rescue import rescue

pytestmark = [pytest.mark.slow, pytest.mark.campaign]

PARTITIONS = 5
CRASHES = st.one_of(st.none(), st.integers(0, 60))  # the moment of the crash; None: it lives


class Pipeline(RuleBasedStateMachine):
    """One pipeline with one driver at a time; whoever acts may die at any call."""

    world: World
    driver: ScriptedPipeline
    before: Snapshot

    @initialize(kept=st.integers(1, 4))
    def begin(self, kept: int) -> None:
        self.world = World()
        self.keys = 0
        quick = replace(SETTINGS, retention=Retention(last=kept), max_deferral=timedelta(minutes=5))
        self.world.store.pipelines.create(NAME, quick, identity="test", actor="test")
        restore(self.world.context("first"), NAME)
        self._start()
        self._take("first")
        self.before = self.world.snapshot()

    # the driver

    @rule(events=st.integers(1, 7))
    def process(self, events: int) -> None:
        self.driver.process(events)

    @rule()
    def tick(self) -> None:
        self.driver.tick(0)

    @precondition(lambda self: self._flying(Phase.TRIGGERED))
    @rule()
    def capture(self) -> None:
        self.driver.capture(self._flying_ref())

    @precondition(lambda self: self._flying(Phase.IN_PROGRESS) and self._flying_ref() in self.driver._frozen)
    @rule(some=st.sets(st.integers(0, PARTITIONS + 1), min_size=1))
    def acknowledge(self, some: set[int]) -> None:
        names = [name for index, name in enumerate(self.driver.participants) if index in some]
        self.driver.acknowledge(self._flying_ref(), names)

    @precondition(lambda self: self._flying(Phase.IN_PROGRESS))
    @rule(partition=st.integers(0, PARTITIONS - 1))
    def decline(self, partition: int) -> None:
        state = f"totals/state/{partition}"
        self.world.store.acks.decline(self._flying_ref(), self.driver.attempt, state, "no")

    @precondition(lambda self: self._flying(Phase.COMMITTING))
    @rule()
    def commit(self) -> None:
        _allow(lambda: self.driver.commit(self._flying_ref()))  # fenced, when a restore died after it took over

    # the others

    @rule(name=st.one_of(st.none(), st.sampled_from(["a", "b", "c"])))
    def trigger(self, name: str | None) -> None:
        self.keys += 1
        request = TriggerRequest(pipeline=NAME, key=f"k{self.keys}", requested_by="test", savepoint=name)
        _allow(lambda: self.world.store.barriers.trigger(request))

    @precondition(lambda self: self._flying())
    @rule(crash=CRASHES)
    def complete(self, crash: int | None) -> None:
        self._may_die(crash, lambda context: complete(context, self._flying_ref()))

    @rule(crash=CRASHES)
    def clean_up(self, crash: int | None) -> None:
        self._may_die(crash, lambda context: cleanup(context, NAME))

    @rule(minutes=st.sampled_from([1, 3, 11, 120]))
    def pass_time(self, minutes: int) -> None:
        self.world.clock.advance(minutes=minutes)
        self.world.store.checkpoints.fail_overdue(NAME, actor="test")

    @precondition(lambda self: self._flying())
    @rule()
    def abort(self) -> None:
        self.world.store.checkpoints.fail(self._flying_ref(), FailureReason.ABORTED, "no", actor="test")

    @rule(crash=CRASHES)
    def restore(self, crash: int | None) -> None:
        options = RestoreOptions(is_proven_dead=True, committers={SINK: ScriptedSink(self.world.storage)})
        if self._may_die(crash, lambda context: restore(context, NAME, options)):
            self._start()

    @precondition(lambda self: len(self._completed()) > 1)
    @rule(index=st.integers(0, 9), crash=CRASHES)
    def rewind(self, index: int, crash: int | None) -> None:
        """Mostly refused, because the sink has committed beyond it: then nothing may change but the attempt."""
        completed = self._completed()
        chosen = completed[index % len(completed)].ref.id
        options = RestoreOptions(
            target=Target(id=chosen), is_proven_dead=True, committers={SINK: ScriptedSink(self.world.storage)}
        )
        if self._may_die(crash, lambda context: restore(context, NAME, options)):
            self._start()

    @precondition(lambda self: self._completed())
    @rule(index=st.integers(0, 9))
    def pin(self, index: int) -> None:
        completed = self._completed()
        self.world.store.pins.add(completed[index % len(completed)].ref, owner="person", reason="test")

    @precondition(lambda self: self._completed())
    @rule(index=st.integers(0, 9))
    def verify(self, index: int) -> None:
        completed = self._completed()
        assert verify(self.world.context("verify"), completed[index % len(completed)].ref).is_intact

    # always

    @invariant()
    def nothing_is_broken(self) -> None:
        now = self.world.snapshot()
        check(self.world, self.before, now, partitions=PARTITIONS)
        self.before = now

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self._unpin()
            rescue(self.world.context("rescue"), self.world.clock, NAME, partitions=PARTITIONS, with_sink=True)
            self.world.store.close()

    # inside

    def _start(self) -> None:
        sink = ScriptedSink(self.world.storage)
        self.driver = ScriptedPipeline(self.world.context("driver"), NAME, partitions=PARTITIONS, sink=sink)
        self.driver.start()

    def _take(self, key: str) -> None:
        self.driver.process(1)
        request = TriggerRequest(pipeline=NAME, key=key, requested_by="test")
        checkpoint = self.world.store.barriers.trigger(request).checkpoint
        assert checkpoint is not None
        self.driver.capture(checkpoint.ref)
        self.driver.acknowledge(checkpoint.ref)
        complete(self.world.context("test"), checkpoint.ref)
        self.driver.commit(checkpoint.ref)

    def _may_die(self, crash: int | None, work) -> bool:  # type: ignore[no-untyped-def]
        """Do it, or die at that moment, or be refused; True when it was done."""
        context: Context = self.world.context("worker")
        if crash is not None:
            hook = CrashAt(crash)
            context = replace(
                context, store=watch_store(self.world.store, hook), storage=watch_storage(self.world.storage, hook)
            )
        try:
            work(context)
        except (CkptError, Crashed):
            return False
        return True

    def _flying(self, phase: Phase | None = None) -> bool:
        flying = self.world.store.checkpoints.in_flight(NAME)
        return flying is not None and phase in (None, flying.phase)

    def _flying_ref(self) -> Ref:
        flying = self.world.store.checkpoints.in_flight(NAME)
        assert flying is not None
        return flying.ref

    def _completed(self) -> list[Checkpoint]:
        retained = self.world.store.views.inventory(NAME).retained
        return [each for each in retained if each.phase is Phase.COMPLETED]

    def _unpin(self) -> None:
        for pin in self.world.store.pins.of(NAME):
            self.world.store.pins.remove(pin.ref, owner=pin.owner, actor="test")


def _allow(work) -> None:  # type: ignore[no-untyped-def]
    try:
        work()
    except CkptError:
        return


Pipeline.TestCase.settings = settings(
    max_examples=campaign.size(gate=25, long=500),
    stateful_step_count=campaign.size(gate=40, long=80),
    deadline=None,
    database=None,
    phases=(Stage.explicit, Stage.generate),  # shrinking takes longer than all the rest
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestPipeline = seed(campaign.seed())(Pipeline.TestCase)
