"""Which checkpoints stay and which may go: computed from what there is, in one pure `plan`.

**Always kept**, whatever the limits say: savepoints, pinned checkpoints, `protected` ones (a restore reads them, an
incremental base), and the newest completed and the newest validated checkpoint of the current timeline.

**Kept by a rule**: the newest `last` checkpoints of the timeline; for each of the newest `hourly` UTC hours, `daily`
UTC days and `weekly` ISO weeks that have a checkpoint, the newest one in it. One rule is enough. Hours without a
checkpoint do not count: a pipeline that stood still over the week-end loses nothing. A policy with none of the four
keeps all, as far as `max_age` and `max_bytes` allow; a policy without any limit is refused.

**Then dropped**, unless always kept: what is older than `max_age`; and from the oldest on until the files of all that
is kept, each stored file counted once, have at most `max_bytes`. Only what is always kept can exceed
a limit.

- Newest means the highest id: ids increase strictly and do not depend on a clock.
- A savepoint is kept until it is deleted on purpose and takes nobody's place in `last`, `hourly`, `daily`, `weekly`.
  A pinned or protected checkpoint takes its own place.
- A corrupt checkpoint is never the newest and takes nobody's place. It is kept until `last` good ones are newer,
  because what is missing may come back; otherwise only as a savepoint, pinned or protected.
- An abandoned checkpoint (off the timeline) takes nobody's place either. It is kept while it is not older than
  `max_age`; without `max_age` while it is among the newest `last` of the abandoned (10 if there is no `last`), so that
  a rewind by mistake can be undone. `max_bytes` drops all abandoned ones before it touches the timeline.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TypeAlias

from airflow_provider_ckpt.protocol.codec import Fields, Json, JsonObject
from airflow_provider_ckpt.protocol.duration import check_duration, format_duration, parse_duration
from airflow_provider_ckpt.protocol.errors import Corrupt, Misused

DEFAULT_LAST = 10

_Reason: TypeAlias = "tuple[Retained, str]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """The policy of a pipeline; None and 0 switch a rule or a limit off."""

    last: int | None = DEFAULT_LAST
    max_age: timedelta | None = None
    hourly: int = 0
    daily: int = 0
    weekly: int = 0
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.last is not None and self.last < 1:
            raise Misused(f"Retention keeps at least the last 1 checkpoint, not {self.last}.")
        if min(self.hourly, self.daily, self.weekly) < 0:
            raise Misused("Retention can not keep fewer than 0 hourly, daily or weekly checkpoints.")
        if self.max_bytes is not None and self.max_bytes < 1:
            raise Misused(f"Retention needs room for at least 1 byte, not {self.max_bytes}.")
        if self.max_age is not None:
            check_duration("The max_age of a retention", self.max_age, least=timedelta(milliseconds=1))
        if not self.has_count_rule and self.max_age is None and self.max_bytes is None:
            raise Misused("This retention would keep everything for ever: set at least one limit, such as last=10.")

    @property
    def has_count_rule(self) -> bool:
        return self.last is not None or self.hourly + self.daily + self.weekly > 0

    def to_json(self) -> JsonObject:
        return {
            "last": self.last,
            "max_age": None if self.max_age is None else format_duration(self.max_age),
            "hourly": self.hourly,
            "daily": self.daily,
            "weekly": self.weekly,
            "max_bytes": self.max_bytes,
        }

    @classmethod
    def from_json(cls, document: Json, what: str = "The retention") -> "Retention":
        """Read what `to_json` wrote; `what` names it in errors."""
        fields = Fields(what, document)
        try:
            policy = _read(fields)
        except Misused as error:
            raise Corrupt(f"{what} makes no sense: {error}") from error
        fields.done()
        return policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Retained:
    """What retention needs to know of one completed checkpoint."""

    id: int
    ended_at: datetime
    is_savepoint: bool = False
    is_pinned: bool = False
    is_validated: bool = False
    is_corrupt: bool = False
    is_on_timeline: bool = True
    files: Mapping[str, int] = field(default_factory=dict)  # stored path -> size

    def __post_init__(self) -> None:
        if self.ended_at.tzinfo is None:
            raise Misused(f"Checkpoint {self.id} ended at {self.ended_at}, a time without a zone.")
        if self.is_validated and self.is_corrupt:
            raise Misused(f"Checkpoint {self.id} can not be both validated and corrupt.")
        if any(size < 0 for size in self.files.values()):
            raise Misused(f"Checkpoint {self.id} names a file with less than 0 bytes.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPlan:
    keep: Mapping[int, str]  # id -> why, oldest first
    discard: tuple[int, ...]  # oldest first

    def __post_init__(self) -> None:
        if both := self.keep.keys() & set(self.discard):
            raise Misused(f"The checkpoints {sorted(both)} can not be both kept and discarded.")


def plan(
    policy: Retention, checkpoints: Sequence[Retained], now: datetime, protected: frozenset[int] = frozenset()
) -> RetentionPlan:
    """Divide the completed checkpoints of one pipeline into those to keep, with the reasons, and those to discard."""
    newest_first = sorted(checkpoints, key=lambda checkpoint: checkpoint.id, reverse=True)
    if len({checkpoint.id for checkpoint in newest_first}) < len(newest_first):
        raise Misused("Retention was handed the same checkpoint twice.")
    held = _collect(_hold(newest_first, protected))
    ruled = _collect(pair for pair in _rule(policy, newest_first) if not _is_too_old(policy, pair[0], now))
    kept = held.keys() | _fitting(policy, newest_first, held.keys(), ruled.keys() - held.keys())
    oldest_first = [checkpoint.id for checkpoint in reversed(newest_first)]
    return RetentionPlan(
        keep={number: ", ".join(held[number] + ruled[number]) for number in oldest_first if number in kept},
        discard=tuple(number for number in oldest_first if number not in kept),
    )


def _hold(newest_first: Sequence[Retained], protected: frozenset[int]) -> Iterator[_Reason]:
    """What is kept whatever the limits."""
    usable = [checkpoint for checkpoint in newest_first if checkpoint.is_on_timeline and not checkpoint.is_corrupt]
    yield from ((checkpoint, "newest completed") for checkpoint in usable[:1])
    validated = (checkpoint for checkpoint in usable if checkpoint.is_validated)
    yield from ((checkpoint, "newest validated") for checkpoint in islice(validated, 1))
    yield from ((checkpoint, "savepoint") for checkpoint in newest_first if checkpoint.is_savepoint)
    yield from ((checkpoint, "pinned") for checkpoint in newest_first if checkpoint.is_pinned)
    yield from ((checkpoint, "protected") for checkpoint in newest_first if checkpoint.id in protected)


def _rule(policy: Retention, newest_first: Sequence[Retained]) -> Iterator[_Reason]:
    """What the counts keep, before age and bytes are looked at."""
    counted = [checkpoint for checkpoint in newest_first if not (checkpoint.is_savepoint or checkpoint.is_corrupt)]
    timeline = [checkpoint for checkpoint in counted if checkpoint.is_on_timeline]
    yield from _newest(timeline, policy.last or 0, "last")
    yield from _newest_of_each(timeline, policy.hourly, "hourly %Y-%m-%d %H:00")
    yield from _newest_of_each(timeline, policy.daily, "daily %Y-%m-%d")
    yield from _newest_of_each(timeline, policy.weekly, "weekly %G-W%V")
    if not policy.has_count_rule:
        yield from ((checkpoint, _within_limits(policy)) for checkpoint in timeline)
    corrupt = (checkpoint for checkpoint in newest_first if checkpoint.is_corrupt and checkpoint.is_on_timeline)
    yield from _repairable(corrupt, timeline, policy.last or 0)
    yield from _abandoned(policy, [checkpoint for checkpoint in counted if not checkpoint.is_on_timeline])


def _newest(newest_first: Sequence[Retained], count: int, rule: str) -> Iterator[_Reason]:
    for place, checkpoint in enumerate(newest_first[:count], start=1):
        yield checkpoint, f"{rule} {place} of {count}"


def _newest_of_each(newest_first: Sequence[Retained], count: int, span: str) -> Iterator[_Reason]:
    """The newest checkpoint in each of the newest `count` spans of time; `span` is how a span is written."""
    newest: dict[str, Retained] = {}
    for checkpoint in newest_first:
        newest.setdefault(checkpoint.ended_at.astimezone(UTC).strftime(span), checkpoint)
    return ((checkpoint, written) for written, checkpoint in islice(newest.items(), count))


def _repairable(corrupt: Iterable[Retained], timeline: Sequence[Retained], last: int) -> Iterator[_Reason]:
    """What is missing may come back: a corrupt one stays until `last` good ones are newer, and takes nobody's place."""
    for checkpoint in corrupt:
        if sum(good.id > checkpoint.id for good in timeline) < last:
            yield checkpoint, "corrupt, may be repaired"


def _abandoned(policy: Retention, newest_first: Sequence[Retained]) -> Iterator[_Reason]:
    if policy.max_age is None:
        return _newest(newest_first, policy.last or DEFAULT_LAST, "abandoned")
    return ((checkpoint, f"abandoned, {_within_limits(policy)}") for checkpoint in newest_first)


def _within_limits(policy: Retention) -> str:
    return "within max_bytes" if policy.max_age is None else f"not older than {format_duration(policy.max_age)}"


def _is_too_old(policy: Retention, checkpoint: Retained, now: datetime) -> bool:
    return policy.max_age is not None and now - checkpoint.ended_at > policy.max_age


def _fitting(
    policy: Retention, newest_first: Sequence[Retained], held: AbstractSet[int], ruled: AbstractSet[int]
) -> set[int]:
    """Of what the rules keep, what fits beside what is held: the timeline before the abandoned, each newest first."""
    if policy.max_bytes is None:
        return set(ruled)
    best_first = sorted(newest_first, key=lambda checkpoint: not checkpoint.is_on_timeline)
    stored = {path: size for kept in newest_first if kept.id in held for path, size in kept.files.items()}
    candidates = [checkpoint for checkpoint in best_first if checkpoint.id in ruled]
    totals = _running_totals(stored, candidates)
    return {checkpoint.id for checkpoint, total in zip(candidates, totals, strict=True) if total <= policy.max_bytes}


def _running_totals(stored: Mapping[str, int], checkpoints: Iterable[Retained]) -> Iterator[int]:
    """How many bytes there are with each further checkpoint, every stored file counted once."""
    counted = dict(stored)
    total = sum(counted.values())
    for checkpoint in checkpoints:
        total += sum(size for path, size in checkpoint.files.items() if path not in counted)
        counted.update(checkpoint.files)
        yield total


def _collect(reasons: Iterable[_Reason]) -> defaultdict[int, list[str]]:
    collected: defaultdict[int, list[str]] = defaultdict(list)
    for checkpoint, why in reasons:
        collected[checkpoint.id].append(why)
    return collected


def _read(fields: Fields) -> Retention:
    max_age = fields.optional_text("max_age")
    return Retention(
        last=fields.optional_whole("last"),
        max_age=None if max_age is None else parse_duration(max_age),
        hourly=fields.whole("hourly"),
        daily=fields.whole("daily"),
        weekly=fields.whole("weekly"),
        max_bytes=fields.optional_whole("max_bytes"),
    )
