"""Where a pipeline starts again: the restart ladder, and what each rung costs.

In this order: the dead attempt's tip (nothing is replayed), the newest completed checkpoint of the timeline, an older
one where newer ones are corrupt and the policy allows it, nothing at all where a fresh start is allowed. A person can
choose a checkpoint by id, by savepoint name or by time. A rewind behind what a sink has already committed is refused,
unless that sink can roll back or the person accepts its duplicates by name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from airflow_provider_ckpt.protocol.duration import format_duration
from airflow_provider_ckpt.protocol.errors import NotFound, Refused
from airflow_provider_ckpt.protocol.records import Attempt, Checkpoint, Ref, Rung, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What to restore; with nothing set, the best rung of the ladder."""

    id: int | None = None
    savepoint: str | None = None
    as_of: datetime | None = None  # the newest checkpoint triggered at or before this time
    rewind: bool = False  # never the tip

    @property
    def is_explicit(self) -> bool:
        return self.id is not None or self.savepoint is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """Duplicates that a person accepted for a start from which no checkpoint has completed yet."""

    sinks: frozenset[str] = frozenset()
    start: int = 0  # the checkpoint that it was given for; 0: for a start from nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a restore may do without asking."""

    allow_fallback: bool = True  # past corrupt checkpoints to an older one
    allow_fresh_start: bool = False
    accept_duplicates: frozenset[str] = field(default_factory=frozenset)  # sinks, by name
    consent: Consent = field(default_factory=Consent)  # what was accepted before, and still holds

    def accepts(self, sink: str, start: int) -> bool:
        """Whether rows may come twice in this sink after a start from that checkpoint, 0 for none."""
        return sink in self.accept_duplicates or self.has_accepted(sink, start)

    def has_accepted(self, sink: str, start: int) -> bool:
        """It was accepted before, for a start that is not newer: nothing more is doubled than was asked about."""
        return sink in self.consent.sinks and start >= self.consent.start


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkMarker:
    """What a sink's target says of itself."""

    committed: int | None  # the newest checkpoint that is committed
    attempt: int = 0  # the newest that has taken over
    history: frozenset[int] = frozenset()  # the checkpoints that it can go back to; 0: to nothing

    def can_go_to(self, checkpoint: int) -> bool:
        return checkpoint in self.history


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A checkpoint that has not been discarded, and whether it lies on the current timeline."""

    checkpoint: Checkpoint
    is_on_timeline: bool
    stands: Mapping[str, int] = field(default_factory=dict)  # sinks that had nothing to commit: where their target is


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What choosing this rung costs, in facts."""

    replay: timedelta  # how much of the past is processed again
    passed_over: tuple[tuple[int, str], ...] = ()  # newer checkpoints that could not be used, and why
    rolled_back: tuple[str, ...] = ()  # sinks that go back to an older version
    duplicated: tuple[str, ...] = ()  # sinks that may see rows twice, accepted by name
    accepted_before: tuple[str, ...] = ()  # those of them that a person was asked about for an earlier attempt

    def __str__(self) -> str:
        parts = [f"replays {format_duration(self.replay)}" if self.replay else "replays nothing"]
        parts += [f"passes over {id_} ({why})" for id_, why in self.passed_over]
        parts += [f"rolls back sink {sink}" for sink in self.rolled_back]
        parts += [f"may duplicate rows in sink {sink}{self._since_when(sink)}" for sink in self.duplicated]
        return ", ".join(parts)

    def _since_when(self, sink: str) -> str:
        return " (accepted before)" if sink in self.accepted_before else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The rung that was chosen. A checkpoint is named on the CHECKPOINT rung only."""

    rung: Rung
    checkpoint: Checkpoint | None
    price: Price


def choose(
    target: Target,
    candidates: Sequence[Candidate],
    *,
    pipeline: str,
    now: datetime,
    tip_is_intact: bool = False,
    is_first_start: bool = False,
    sinks: Mapping[str, SinkMarker] | None = None,
    policy: Policy | None = None,
) -> Choice:
    """Climb the ladder.

    :raises NotFound: when an explicit target does not exist.
    :raises Refused: when the choice would lose or double something that nobody accepted.
    """
    policy = policy or Policy()
    if tip_is_intact and target == Target():
        return Choice(rung=Rung.TIP, checkpoint=None, price=Price(replay=timedelta(0)))
    newest_first = sorted(candidates, key=lambda candidate: candidate.checkpoint.ref.id, reverse=True)
    intact = {each.checkpoint.ref.id: each.checkpoint.is_restorable for each in candidates}
    chosen, passed_over = _pick(target, newest_first, pipeline)
    if chosen is None:
        _refuse_fresh(pipeline, target, passed_over, policy, is_first_start=is_first_start)
        return _fresh(pipeline, passed_over, sinks or {}, policy, intact)
    if passed_over and not policy.allow_fallback:
        raise Refused(_fallback_text(pipeline, chosen, passed_over))
    stands = next(each.stands for each in candidates if each.checkpoint == chosen)
    price = _price(chosen, passed_over, sinks or {}, policy, intact, now, stands)
    return Choice(rung=Rung.CHECKPOINT, checkpoint=chosen, price=price)


def consent_of(last: Attempt | None, completed: Sequence[Checkpoint], start: int) -> Consent:
    """What a person accepted for the last attempt, and for those before it that came to nothing.

    :param completed: the completed checkpoints of the pipeline.
    :param start: the newest of them on the timeline: where the last attempt has started, as it completed none itself.
    """
    if last is None or any(each.attempt == last.number for each in completed):
        return Consent()
    return Consent(sinks=last.accepted, start=start)


def is_tip_spent(last: Attempt, completed: Sequence[Checkpoint]) -> bool:
    """Whether the last attempt began at a tip and died before it completed anything: go one rung down."""
    return last.rung is Rung.TIP and not any(each.attempt == last.number for each in completed)


def _pick(
    target: Target, newest_first: Sequence[Candidate], pipeline: str
) -> tuple[Checkpoint | None, tuple[tuple[int, str], ...]]:
    if target.is_explicit:
        return _explicit(target, newest_first, pipeline), ()
    return _newest_good(target, newest_first)


def _explicit(target: Target, newest_first: Sequence[Candidate], pipeline: str) -> Checkpoint:
    for candidate in newest_first:
        checkpoint = candidate.checkpoint
        if target.id == checkpoint.ref.id or (target.savepoint is not None and target.savepoint == checkpoint.name):
            return _usable(checkpoint, newest_first)
    wanted = f"checkpoint {pipeline}/{target.id}" if target.id is not None else f"savepoint {target.savepoint!r}"
    raise NotFound(
        f"There is no restorable {wanted} of pipeline {pipeline}. `ckpt list {pipeline}` shows what there is."
    )


def _usable(checkpoint: Checkpoint, newest_first: Sequence[Candidate]) -> Checkpoint:
    if checkpoint.verdict is not Verdict.CORRUPT:
        return checkpoint
    intact = [each for each in newest_first if each.checkpoint.is_restorable]
    others = [str(each.checkpoint.ref.id) for each in sorted(intact, key=lambda each: not each.is_on_timeline)]
    instead = f"Restore {others[0]} with --to {others[0]}" if others else "No other checkpoint is intact"
    raise Refused(
        f"Checkpoint {checkpoint.ref} can not be restored: {checkpoint.verdict_detail or 'it is corrupt.'} "
        f"{instead}, or run `ckpt verify {checkpoint.ref.pipeline}` to see which are intact."
    )


def _newest_good(
    target: Target, newest_first: Sequence[Candidate]
) -> tuple[Checkpoint | None, tuple[tuple[int, str], ...]]:
    passed_over: list[tuple[int, str]] = []
    for candidate in newest_first:
        checkpoint = candidate.checkpoint
        if not candidate.is_on_timeline or (target.as_of and checkpoint.triggered_at > target.as_of):
            continue
        if checkpoint.is_restorable:
            return checkpoint, tuple(passed_over)
        passed_over.append((checkpoint.ref.id, checkpoint.verdict_detail or "corrupt"))
    return None, tuple(passed_over)


def _refuse_fresh(
    pipeline: str, target: Target, passed_over: Sequence[tuple[int, str]], policy: Policy, *, is_first_start: bool
) -> None:
    if is_first_start or policy.allow_fresh_start:
        return
    when = f" of {target.as_of:%Y-%m-%d %H:%M:%S} UTC or before" if target.as_of else ""
    bad = f" ({', '.join(f'{id_}: {why}' for id_, why in passed_over)})" if passed_over else ""
    raise Refused(
        f"Pipeline {pipeline} has no checkpoint{when} that can be restored{bad}. Choose an abandoned one with --to, "
        f"repair the storage and run `ckpt verify`, or start from nothing with `ckpt restore {pipeline} "
        "--allow-fresh-start`."
    )


def _fresh(
    pipeline: str,
    passed_over: tuple[tuple[int, str], ...],
    sinks: Mapping[str, SinkMarker],
    policy: Policy,
    intact: Mapping[int, bool],  # whether a checkpoint that is there can be restored
) -> Choice:
    """From nothing: whatever a sink has committed would be written again, or be taken for what is to come."""
    rolled_back, duplicated = _judge_sinks(pipeline, None, sinks, policy, intact)
    price = Price(replay=timedelta(0), passed_over=passed_over, rolled_back=rolled_back, duplicated=duplicated)
    return Choice(rung=Rung.FRESH, checkpoint=None, price=price)


def _price(
    chosen: Checkpoint,
    passed_over: tuple[tuple[int, str], ...],
    sinks: Mapping[str, SinkMarker],
    policy: Policy,
    intact: Mapping[int, bool],
    now: datetime,
    stands: Mapping[str, int],
) -> Price:
    rolled_back, duplicated = _judge_sinks(chosen.ref.pipeline, chosen.ref, sinks, policy, intact, stands)
    return Price(
        replay=max(now - chosen.triggered_at, timedelta(0)),
        passed_over=passed_over,
        rolled_back=rolled_back,
        duplicated=duplicated,
    )


def _judge_sinks(
    pipeline: str,
    start: Ref | None,
    sinks: Mapping[str, SinkMarker],
    policy: Policy,
    intact: Mapping[int, bool],
    stands: Mapping[str, int] | None = None,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Which sinks would roll back and which would see rows twice; refused unless both are allowed."""
    first = 0 if start is None else start.id
    beyond = {name: marker for name, marker in sorted(sinks.items()) if (marker.committed or 0) > first}
    older = stands or {}
    rolled_back = tuple(name for name, m in beyond.items() if m.can_go_to(first) or m.can_go_to(older.get(name, first)))
    refused = [name for name in beyond if name not in rolled_back and not policy.accepts(name, first)]
    if refused:
        newest = beyond[refused[0]].committed
        what = f"Checkpoint {start} can not be restored" if start else f"Pipeline {pipeline} can not start from nothing"
        instead = _instead(pipeline, newest, intact)
        raise Refused(
            f"{what}: sink {refused[0]} has already committed {pipeline}/{newest}, and what came after "
            f"{start or 'nothing'} would be written twice. {instead} duplicates in that sink with "
            f"--accept-duplicates {refused[0]}."
        )
    return rolled_back, tuple(name for name in beyond if name not in rolled_back)


def _instead(pipeline: str, newest: int | None, intact: Mapping[int, bool]) -> str:
    match intact.get(newest or 0):
        case True:
            return f"Restore {newest} with --to {newest}, or accept"
        case False:
            return f"{pipeline}/{newest} is corrupt: repair it, or accept"
        case None:
            return f"{pipeline}/{newest} is not there any more: accept"


def _fallback_text(pipeline: str, chosen: Checkpoint, passed_over: Sequence[tuple[int, str]]) -> str:
    id_, why = passed_over[0]
    return (
        f"Checkpoint {pipeline}/{id_} can not be restored: {why.rstrip('.')}. The next older one is {chosen.ref}, "
        f"and falling back is not allowed by the policy. Allow it, or restore it with --to {chosen.ref.id}."
    )
