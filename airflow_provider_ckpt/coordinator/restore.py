"""Restore: fences the dead attempt, climbs the restart ladder, verifies, and plans the next attempt.

What would be refused is refused before anything is touched. Then the new attempt is numbered: from that moment nothing
of the old one moves, whatever still runs. An ancestor's COMMITTING is finished where its sinks can be reached from
here; else the new attempt starts from just that checkpoint, and its driver finishes it before anything else. The rung
is chosen by what the store, the targets' own markers and the bytes say, and the attempt is settled: the next driver
that claims it starts there. A restore that dies on the way has cost a number.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property

from airflow_provider_ckpt.coordinator.commit import Committer, commit
from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.coordinator.identity import check_storage
from airflow_provider_ckpt.coordinator.keeping import Keeper
from airflow_provider_ckpt.coordinator.manifests import load_manifest
from airflow_provider_ckpt.coordinator.verify import OnBytes, inspect, verify
from airflow_provider_ckpt.metastore import Start
from airflow_provider_ckpt.metastore.attempts import refuse_living
from airflow_provider_ckpt.metastore.leases import restore_owner
from airflow_provider_ckpt.protocol.errors import Corrupt, NotFound, Refused, TryAgain
from airflow_provider_ckpt.protocol.manifest import Manifest
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import Attempt, AttemptStatus, Checkpoint, Cut, Lease, Ref, Rung
from airflow_provider_ckpt.protocol.recovery import (
    Candidate,
    Choice,
    Consent,
    Policy,
    Price,
    SinkMarker,
    Target,
    choose,
    consent_of,
    is_tip_spent,
)
from airflow_provider_ckpt.protocol.timeline import current_timeline, newest_planned

_log = logging.getLogger(__name__)
OnWait = Callable[[float], None]  # how many seconds the old attempt has left


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOptions:
    """How a restore may go about it."""

    target: Target = field(default_factory=Target)
    policy: Policy = field(default_factory=Policy)
    committers: Mapping[str, Committer] = field(default_factory=dict)
    tip_damage: Callable[[Attempt], str | None] = lambda attempt: "nobody here can look at it"  # None: intact
    take_over: bool = False  # fence an attempt that is alive
    is_proven_dead: bool = False  # the old application is gone for certain: do not wait for its time to live


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """The planned attempt and where it starts from."""

    attempt: Attempt
    choice: Choice
    manifest: Manifest | None  # on the CHECKPOINT rung


def plan_restore(context: Context, pipeline: str, options: RestoreOptions | None = None) -> Choice:
    """What a restore would choose now; changes nothing and reads no data files."""
    options = options or RestoreOptions()
    return _Ladder(context, pipeline, options).choose()


def restore(
    context: Context,
    pipeline: str,
    options: RestoreOptions | None = None,
    on_bytes: OnBytes = lambda count: None,
    on_wait: OnWait = lambda seconds: None,
) -> Restored:
    """Do it: afterwards a planned attempt waits for its driver.

    :raises Refused: when the running attempt is alive, when nothing usable is there, when a sink has committed beyond
        the chosen checkpoint, or when another target is wanted while an ancestor's commit is not finished.
    :raises TryAgain: while another restore works, or while a living attempt commits and another target is wanted.
    """
    options = options or RestoreOptions()
    living = living_attempt(context, pipeline)
    if living is not None and not options.take_over and not options.is_proven_dead:
        raise refuse_living(living)
    check_storage(context, pipeline)
    _Ladder(context, pipeline, options).choose()  # refused here, nothing has happened yet
    lease = context.store.leases.acquire_restore(pipeline, owner=context.actor, token=context.new_token())
    try:
        return _Restore(context, lease, options, on_bytes, on_wait).run(living)
    finally:
        context.store.leases.release(lease)


def living_attempt(context: Context, pipeline: str) -> Attempt | None:
    """The running attempt, when its heartbeat is younger than its time to live."""
    return context.store.attempts.living(pipeline)


class _Ladder:
    """What there is to choose from."""

    def __init__(self, context: Context, pipeline: str, options: RestoreOptions) -> None:
        self._context = context
        self._pipeline = pipeline
        self._options = options
        self._inventory = context.store.views.inventory(pipeline)
        attempts = self._inventory.attempts
        self.started = [each for each in attempts if each.claimed_at is not None]
        self.last = newest_planned(attempts)
        self._timeline = current_timeline(attempts)
        self._retained = self._inventory.retained
        self._policy = replace(options.policy, consent=self._consent())

    def choose(self) -> Choice:
        """A tip that failed once is left for what is below it; where nothing there may be used, it is tried again."""
        try:
            return self._price_sinks(self._climb_ladder())
        except Refused as error:
            if self._options.target != Target():
                raise
            if self._tip is None:
                raise Refused(f"{error}{self._why_no_tip()}") from error
            return Choice(rung=Rung.TIP, checkpoint=None, price=Price(replay=timedelta(0)))

    def _consent(self) -> Consent:
        completed = [each for each in self._retained if each.phase is Phase.COMPLETED]
        on_timeline = (each.ref.id for each in completed if self._timeline.holds(each.attempt, each.ref.id))
        return consent_of(self.last, completed, max(on_timeline, default=0))

    def _climb_ladder(self) -> Choice:
        if (waiting := self._waiting()) is not None and waiting.rung is Rung.FRESH:
            return Choice(rung=Rung.FRESH, checkpoint=None, price=Price(replay=timedelta(0)))
        if (committing := self._committing()) is not None and not self._takes_tip():
            return self._choose_committing(committing)
        if waiting is None or waiting.restored_from is None:
            return self._climb(self._options.target)
        try:
            return self._climb(Target(id=waiting.restored_from))
        except (NotFound, Refused) as error:
            raise Refused(
                f"{error} (Attempt {waiting.number} was planned to start there and no driver has claimed it; choose "
                "another start with --to, or the newest with --rewind.)"
            ) from error

    def _climb(self, target: Target) -> Choice:
        return choose(
            target,
            [self._candidate(each) for each in self._retained if each.phase is Phase.COMPLETED],
            pipeline=self._pipeline,
            now=self._inventory.now,
            tip_is_intact=self._is_tip_usable(),
            is_first_start=self._has_never_run(),
            sinks=self._markers(),
            policy=self._policy,
        )

    def _has_never_run(self) -> bool:
        """No driver has declared a query, which it does before it starts the first one: there is nothing to lose."""
        return not self._retained and not any(map(self._queries_of, self.started))

    def start_of(self, choice: Choice) -> Start:
        return replace(self._start_of(choice), wish=_wish(self._options, choice))

    def _start_of(self, choice: Choice) -> Start:
        accepted = tuple(sorted({*choice.price.duplicated, *self._policy.accept_duplicates}))
        if choice.checkpoint is not None:
            checkpoint = choice.checkpoint
            return Start(
                rung=Rung.CHECKPOINT,
                parent=checkpoint.attempt,
                fork_at=checkpoint.ref.id,
                restored_from=checkpoint.ref.id,
                accepted=accepted,
            )
        if choice.rung is Rung.TIP:
            return Start(
                rung=Rung.TIP,
                parent=None if self._tip is None else self._tip.number,
                fork_at=self._inventory.pipeline.next_checkpoint - 1,
                accepted=tuple(sorted({*accepted, *self._policy.consent.sinks})),
            )
        return Start(rung=Rung.FRESH, accepted=accepted)

    def _committing(self) -> Checkpoint | None:
        return next((each for each in self._retained if each.phase is Phase.COMMITTING), None)

    def _choose_committing(self, checkpoint: Checkpoint) -> Choice:
        """Decided, so it can be restored; nothing else can be, because nobody knows what its sinks have published."""
        target, ref = self._options.target, checkpoint.ref
        if target.id not in (None, ref.id) or target.savepoint not in (None, checkpoint.name) or target.as_of:
            alive = None if self._options.is_proven_dead else living_attempt(self._context, self._pipeline)
            if alive is not None:
                raise TryAgain(
                    f"Checkpoint {ref} is being committed by attempt {alive.number}, which is alive: try again in a "
                    f"moment. If it stays so, `ckpt show {ref}` names the sinks."
                )
            raise Refused(
                f"Pipeline {self._pipeline} can not go back before {ref} is committed. Restore it without a target: "
                f"its driver finishes the commit. Or say what became of it with `ckpt resolve {ref} --sink SINK "
                f"--as committed|abandoned --reason …`; `ckpt show {ref}` names the sinks."
            )
        price = Price(replay=max(self._inventory.now - checkpoint.triggered_at, timedelta(0)))
        return Choice(rung=Rung.CHECKPOINT, checkpoint=checkpoint, price=price)

    def _price_sinks(self, choice: Choice) -> Choice:
        """A sink that knows batches by their number only is broken by a rewind: batch N+1 is another one then."""
        if choice.checkpoint is None:
            return self._name_accepted(choice, start=0)
        ref = choice.checkpoint.ref
        cuts = self._cuts_of(choice.checkpoint)
        broken = [f"{cut.query}/sink" for cut in cuts if cut.properties.get("is_rewindable") is False]
        refused = [sink for sink in broken if not self._policy.accepts(sink, ref.id)]
        if refused:
            raise Refused(
                f"Checkpoint {ref} can not be restored: a rewind would break {refused[0]}, which may know batches by "
                "their number alone, and would skip or double rows. If it is keyed by data, let the program say "
                "is_rewindable=True; let it write through a sink of this package (`sink=`); or accept it with "
                f"--accept-duplicates {refused[0]}."
            )
        duplicated = tuple(dict.fromkeys((*choice.price.duplicated, *broken)))
        return self._name_accepted(replace(choice, price=replace(choice.price, duplicated=duplicated)), start=ref.id)

    def _name_accepted(self, choice: Choice, *, start: int) -> Choice:
        before = tuple(sink for sink in choice.price.duplicated if self._policy.has_accepted(sink, start))
        return replace(choice, price=replace(choice.price, accepted_before=before))

    def _cuts_of(self, checkpoint: Checkpoint) -> Collection[Cut]:
        """From the store; after a rebuild only the manifest has them, and one that is damaged is judged later."""
        known = self._context.store.barriers.cuts(checkpoint.ref)
        if known:
            return known.values()
        try:
            return load_manifest(self._context, checkpoint).cuts
        except Corrupt:
            return ()

    def _candidate(self, checkpoint: Checkpoint) -> Candidate:
        on_timeline = self._timeline.holds(checkpoint.attempt, checkpoint.ref.id)
        stands = self._inventory.stands.get(checkpoint.ref.id, {})
        return Candidate(checkpoint=checkpoint, is_on_timeline=on_timeline, stands=stands)

    def _waiting(self) -> Attempt | None:
        """An attempt that was planned and never claimed: a person may have chosen its start, so it is kept."""
        if self.last is None or self.last.claimed_at is not None or self._options.target != Target():
            return None
        return self.last

    def _takes_tip(self) -> bool:
        return self._options.target == Target() and self._is_tip_usable()

    def _is_tip_usable(self) -> bool:
        return self._tip is not None and not is_tip_spent(self.started[-1], self._retained)

    @cached_property
    def _tip(self) -> Attempt | None:
        """The attempt that a new one can go on from; None where a person went back since, or it is not intact."""
        return self._tip_candidate if self._tip_damage is None else None

    @cached_property
    def _tip_candidate(self) -> Attempt | None:
        died = self._last_that_ran()
        if died is None or self.last is None:
            return None
        is_newest = self.last == died or (self.last.rung is Rung.TIP and self.last.parent == died.number)
        return died if is_newest else None

    @cached_property
    def _tip_damage(self) -> str | None:
        return None if self._tip_candidate is None else self._options.tip_damage(self._tip_candidate)

    def _why_no_tip(self) -> str:
        if self._tip_candidate is None or self._tip_damage is None:
            return ""
        return f" (Nor can the tip of attempt {self._tip_candidate.number} be used: {self._tip_damage}.)"

    def _last_that_ran(self) -> Attempt | None:
        """One that began at a tip, and died before it ran a query, has left that tip as it was.

        One that began elsewhere and ran nothing has none: whatever lies in its folder is somebody else's.
        """
        by_number = {each.number: each for each in self.started}
        died = self.started[-1] if self.started else None
        while died is not None and not self._queries_of(died):
            died = by_number.get(died.parent) if died.rung is Rung.TIP and died.parent is not None else None
        return died

    def _queries_of(self, attempt: Attempt) -> frozenset[str]:
        return self._context.store.attempts.graph(self._pipeline, attempt.number).names

    def _markers(self) -> dict[str, SinkMarker]:
        """What was published last: what the targets say, and the store where nobody can ask the target."""
        known = {sink: SinkMarker(committed=id_) for sink, id_ in self._inventory.published.items()}
        return known | {sink: marker for sink in self._options.committers if (marker := self._ask(sink)) is not None}

    def _ask(self, sink: str) -> SinkMarker | None:
        """A target that says nothing may be out of reach from here; the driver asks it again before it starts."""
        try:
            marker = self._options.committers[sink].marker(self._pipeline)
        except Exception as error:  # noqa: BLE001 - a sink may raise anything; the store knows as well
            _log.warning("The target of %s can not be asked from here: %s", sink, error)
            return None
        return None if marker.committed is None else marker


class _Restore:
    """One restore under one lease."""

    def __init__(
        self, context: Context, lease: Lease, options: RestoreOptions, on_bytes: OnBytes, on_wait: OnWait
    ) -> None:
        self._context = context
        self._lease = lease
        self._options = options
        self._keeper = Keeper(context, lease)
        self._on_bytes = on_bytes
        self._on_wait = on_wait
        self._pinned: Ref | None = None

    def run(self, living: Attempt | None) -> Restored:
        """:param living: the attempt that was alive when the restore began; whoever came up since is spared."""
        dead = living.number if living is not None and self._options.is_proven_dead else None
        attempt = self._context.store.attempts.fence(
            self._lease, actor=self._context.actor, take_over=self._options.take_over, dead=dead
        )
        try:
            return self._settle(attempt)
        finally:
            self._unpin(attempt)

    def _settle(self, attempt: Attempt) -> Restored:
        self._finish_committing(attempt)
        self._wait_for_the_old_one()
        ladder, choice = self._choose_intact(attempt)
        planned = self._context.store.attempts.settle(
            self._lease,
            attempt.number,
            ladder.start_of(choice),
            actor=self._context.actor,
            reason=f"{choice.rung}: {choice.price}",
        )
        manifest = load_manifest(self._context, choice.checkpoint) if choice.checkpoint else None
        return Restored(attempt=planned, choice=choice, manifest=manifest)

    def _finish_committing(self, attempt: Attempt) -> None:
        """Commit what can be committed from here; what can not is left to the driver of the new attempt."""
        flying = self._context.store.checkpoints.in_flight(self._lease.pipeline)
        if flying is not None:
            commit(self._context, flying.ref, attempt.number, self._options.committers)

    def _wait_for_the_old_one(self) -> None:
        """An old driver that can not reach the store stops by itself within its time to live: wait that long."""
        inventory = self._context.store.views.inventory(self._lease.pipeline)
        until = max(
            (each.heartbeat_at for each in inventory.attempts if _may_run(each) and each.heartbeat_at is not None),
            default=None,
        )
        if until is None or self._options.is_proven_dead:
            return
        until = min(until, inventory.now) + inventory.pipeline.settings.attempt_ttl
        if (left := self._seconds_to(until)) > 0:
            self._on_wait(left)
        while left > 0:
            self._context.store.leases.renew(self._lease)
            self._context.sleep(min(left, 1.0))
            left = self._seconds_to(until)

    def _seconds_to(self, time: datetime) -> float:
        return (time - self._context.store.checkpoints.now()).total_seconds()

    def _choose_intact(self, attempt: Attempt) -> tuple[_Ladder, Choice]:
        """Choose, pin and re-hash; a corrupt choice is marked, and the ladder is climbed again without it."""
        while True:
            ladder = _Ladder(self._context, self._lease.pipeline, self._options)
            choice = ladder.choose()
            if choice.checkpoint is None or self._is_intact(choice.checkpoint, attempt):
                return ladder, choice
            self._unpin(attempt)
            self._context.store.leases.renew(self._lease)

    def _is_intact(self, checkpoint: Checkpoint, attempt: Attempt) -> bool:
        if checkpoint.phase is Phase.COMMITTING:  # in flight: no cleanup can take it, and there is no older choice
            return self._check_committing(checkpoint)
        self._context.store.pins.add(checkpoint.ref, owner=restore_owner(attempt.number), reason="being restored")
        self._pinned = checkpoint.ref
        return verify(self._context, checkpoint.ref, self._heard).is_intact

    def _check_committing(self, checkpoint: Checkpoint) -> bool:
        found = inspect(self._context, checkpoint, self._heard)
        if found.is_intact:
            return True
        raise Refused(
            f"Checkpoint {checkpoint.ref} is decided and can not be restored: {found.problems[0]} Say what became of "
            f"its sinks with `ckpt resolve {checkpoint.ref} --sink SINK --as committed|abandoned --reason …`, then "
            "restore an older one."
        )

    def _unpin(self, attempt: Attempt) -> None:
        if self._pinned is not None:
            owner = restore_owner(attempt.number)
            self._context.store.pins.remove(self._pinned, owner=owner, actor=self._context.actor)
            self._pinned = None

    def _heard(self, count: int) -> None:
        self._keeper.touch()
        self._on_bytes(count)


def _wish(options: RestoreOptions, choice: Choice) -> str:
    """What was chosen by a person, not by the ladder; for the audit."""
    where = f"to {choice.checkpoint.ref}" if choice.checkpoint else f"from the {choice.rung}"
    accepted = ", ".join(sorted(options.policy.accept_duplicates))
    wishes = [
        *([where] if options.target != Target() else []),
        *([f"accepts duplicates in {accepted}"] if accepted else []),
        *(["allows a fresh start"] if options.policy.allow_fresh_start else []),
    ]
    return ", ".join(wishes)


def _may_run(attempt: Attempt) -> bool:
    """Whether its driver may still be there: nobody has said that it ended."""
    return attempt.status in (AttemptStatus.RUNNING, AttemptStatus.SUPERSEDED)
