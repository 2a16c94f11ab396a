"""The chain of attempts that the current one continues, and which checkpoints lie on it.

A restart from the tip goes on with the whole line of its parent; a rewind leaves the branch at the chosen checkpoint.
What lies on a branch left behind is abandoned: restored only by explicit id.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What the line of attempts knows of one of them."""

    number: int
    parent: int | None
    fork_at: int | None
    is_needed: bool = False  # it lives, or a checkpoint that is left was taken by it
    needs_parent: bool = False  # it ran nothing: what it started from is still its parent's tip


def thin_out(oldest_first: Sequence[Link], *, keep: int, limit: int) -> tuple[list[int], list[Link]]:
    """Which attempts can be forgotten, oldest first, and how those that are left are linked then.

    A line without an attempt that no checkpoint is left of holds the same checkpoints, when its child takes over its
    parent and its fork.
    """
    newest = oldest_first[-keep:] if keep else ()
    kept = {link.number for link in newest} | {link.number for link in oldest_first if link.is_needed}
    kept |= {link.parent for link in oldest_first if link.number in kept and link.needs_parent and link.parent}
    gone = [link.number for link in oldest_first if link.number not in kept][:limit]
    by_number: dict[int | None, Link] = {link.number: link for link in oldest_first}
    relinked = (_relink(link, by_number, frozenset(gone)) for link in oldest_first if link.number not in gone)
    return gone, [link for link in relinked if link != by_number[link.number]]


def _relink(link: Link, by_number: Mapping[int | None, Link], gone: frozenset[int]) -> Link:
    parent, fork_at = link.parent, link.fork_at
    while parent in gone:
        forgotten = by_number[parent]
        parent, fork_at = forgotten.parent, _lower(fork_at, forgotten.fork_at)
    return replace(link, parent=parent, fork_at=fork_at)
