"""The chain of attempts that the current one continues, and which checkpoints lie on it.

A restart from the tip goes on with the whole line of its parent; a rewind leaves the branch at the chosen checkpoint.
What lies on a branch left behind is abandoned: restored only by explicit id.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from airflow_provider_ckpt.protocol.records import Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The checkpoints of one attempt that belong to the timeline."""

    attempt: int
    upto: int | None  # the newest id that belongs to it; None: all


@dataclass(frozen=True, slots=True)
class Timeline:
    """Segments from the current attempt back to the first."""

    segments: tuple[Segment, ...]

    def holds(self, attempt: int, checkpoint: int) -> bool:
        return any(
            segment.attempt == attempt and (segment.upto is None or checkpoint <= segment.upto)
            for segment in self.segments
        )

    def upto(self, checkpoint: int) -> "Timeline":
        """The same line as seen from one of its checkpoints: what a manifest records."""
        return Timeline(
            tuple(
                Segment(attempt=s.attempt, upto=checkpoint if s.upto is None else min(s.upto, checkpoint))
                for s in self.segments
            )
        )


def newest_planned(attempts: Iterable[Attempt]) -> Attempt | None:
    """The attempt that the pipeline stands at: one that a restore numbered and never planned does not count."""
    planned = [attempt for attempt in attempts if attempt.planned_at is not None]
    return max(planned, key=lambda attempt: attempt.number, default=None)


def current_timeline(attempts: Sequence[Attempt]) -> Timeline:
    """The line that the pipeline stands on."""
    newest = newest_planned(attempts)
    return Timeline(()) if newest is None else timeline_of(attempts, newest.number)


def timeline_of(attempts: Iterable[Attempt], current: int) -> Timeline:
    """Walk from the current attempt to its parents."""
    by_number = {attempt.number: attempt for attempt in attempts}
    segments: list[Segment] = []
    number: int | None = current
    bound: int | None = None
    while number is not None and number in by_number:
        segments.append(Segment(attempt=number, upto=bound))
        attempt = by_number[number]
        number, bound = attempt.parent, _lower(bound, attempt.fork_at)
    return Timeline(tuple(segments))


def _lower(bound: int | None, fork_at: int | None) -> int | None:
    known = [value for value in (bound, fork_at) if value is not None]
    return min(known, default=None)
