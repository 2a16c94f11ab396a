"""Which checkpoints lie on the line that the pipeline stands on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_ckpt.protocol.records import Attempt, AttemptStatus, Rung
from airflow_provider_ckpt.protocol.timeline import (
    Link,
    Segment,
    Timeline,
    current_timeline,
    newest_planned,
    thin_out,
    timeline_of,
)

quick = settings(max_examples=60, deadline=None)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def _attempt(number: int, rung: Rung, parent: int | None = None, fork_at: int | None = None) -> Attempt:
    return Attempt(
        pipeline="orders",
        number=number,
        status=AttemptStatus.RUNNING,
        rung=rung,
        parent=parent,
        fork_at=fork_at,
        restored_from=fork_at if rung is Rung.CHECKPOINT else None,
        application_id=None,
        host=None,
        numbered_at=NOON,
        planned_at=NOON,
        claimed_at=None,
        heartbeat_at=None,
        ended_at=None,
        failure=None,
    )


def _fresh(number: int) -> Attempt:
    return _attempt(number, Rung.FRESH)


def _tip(number: int, parent: int, fork_at: int | None = None) -> Attempt:
    return _attempt(number, Rung.TIP, parent, fork_at)


def _rewind(number: int, parent: int, to: int) -> Attempt:
    return _attempt(number, Rung.CHECKPOINT, parent, to)


def _preparing(number: int) -> Attempt:
    return replace(_fresh(number), status=AttemptStatus.PREPARING, planned_at=None)


def _held(timeline: Timeline, taken: Mapping[int, Sequence[int]]) -> list[int]:
    """Of the checkpoints that each attempt took, those on the line."""
    return sorted(id_ for attempt, ids in taken.items() for id_ in ids if timeline.holds(attempt, id_))


def test_without_an_attempt_there_is_no_line() -> None:
    assert current_timeline([]) == Timeline(())
    assert not Timeline(()).holds(1, 1)


def test_the_first_attempt_holds_all_its_checkpoints() -> None:
    line = current_timeline([_fresh(1)])
    assert _held(line, {1: [1, 2, 3], 2: [4]}) == [1, 2, 3]


def test_a_fresh_start_leaves_everything_behind() -> None:
    line = current_timeline([_fresh(1), _fresh(2)])
    assert _held(line, {1: [1, 2], 2: [3]}) == [3]


@pytest.mark.parametrize("fork_at", [None, 3])
def test_a_restart_from_the_tip_continues_the_whole_line(fork_at: int | None) -> None:
    line = current_timeline([_fresh(1), _tip(2, parent=1, fork_at=fork_at)])
    assert _held(line, {1: [1, 2, 3], 2: [4, 5]}) == [1, 2, 3, 4, 5]


def test_a_rewind_leaves_what_came_after_the_chosen_checkpoint() -> None:
    line = current_timeline([_fresh(1), _rewind(2, parent=1, to=2)])
    assert line == Timeline((Segment(attempt=2, upto=None), Segment(attempt=1, upto=2)))
    assert _held(line, {1: [1, 2, 3], 2: [4, 5]}) == [1, 2, 4, 5]


def test_a_rewind_of_a_rewind_forks_twice() -> None:
    attempts = [_fresh(1), _rewind(2, parent=1, to=3), _rewind(3, parent=2, to=6)]
    taken = {1: [1, 2, 3, 4], 2: [5, 6, 7], 3: [8]}
    assert _held(current_timeline(attempts), taken) == [1, 2, 3, 5, 6, 8]


def test_a_rewind_behind_the_last_fork_skips_the_attempt_in_between() -> None:
    attempts = [_fresh(1), _rewind(2, parent=1, to=3), _rewind(3, parent=1, to=2)]
    taken = {1: [1, 2, 3, 4], 2: [5, 6], 3: [7]}
    assert _held(current_timeline(attempts), taken) == [1, 2, 7]


def test_a_rewind_through_tips_keeps_the_lower_bound() -> None:
    attempts = [_fresh(1), _tip(2, parent=1, fork_at=4), _rewind(3, parent=1, to=2), _tip(4, parent=3, fork_at=9)]
    taken = {1: [1, 2, 3, 4], 2: [5, 6], 3: [7, 8, 9], 4: [10]}
    assert _held(current_timeline(attempts), taken) == [1, 2, 7, 8, 9, 10]


def test_a_bound_never_grows_on_the_way_back() -> None:
    attempts = [_fresh(1), _tip(2, parent=1, fork_at=9), _rewind(3, parent=2, to=5)]
    line = current_timeline(attempts)
    assert [segment.upto for segment in line.segments] == [None, 5, 5]


def test_a_rewind_onto_an_abandoned_branch_makes_it_the_line_again() -> None:
    attempts = [_fresh(1), _rewind(2, parent=1, to=1), _rewind(3, parent=1, to=3)]
    taken = {1: [1, 2, 3], 2: [4, 5], 3: [6]}
    assert _held(current_timeline(attempts), taken) == [1, 2, 3, 6]


def test_an_attempt_that_was_numbered_and_never_planned_does_not_count() -> None:
    attempts = [_fresh(1), _preparing(2), _preparing(3)]
    assert newest_planned(attempts) == attempts[0]
    assert current_timeline(attempts) == current_timeline(attempts[:1])
    assert newest_planned([_preparing(1)]) is None
    assert current_timeline([_preparing(1)]) == Timeline(())


def test_the_line_goes_past_a_number_that_was_never_planned() -> None:
    attempts = [_fresh(1), _preparing(2), _tip(3, parent=1)]
    assert _held(current_timeline(attempts), {1: [1, 2], 3: [3]}) == [1, 2, 3]


def test_the_order_in_which_attempts_are_handed_in_does_not_matter() -> None:
    attempts = [_fresh(1), _rewind(2, parent=1, to=2), _tip(3, parent=2)]
    assert current_timeline(attempts[::-1]) == current_timeline(attempts)


def test_a_line_ends_where_its_parents_are_not_known() -> None:
    assert timeline_of([_tip(3, parent=2)], 3) == Timeline((Segment(attempt=3, upto=None),))


def test_a_line_can_be_seen_from_an_older_attempt() -> None:
    attempts = [_fresh(1), _rewind(2, parent=1, to=2)]
    assert _held(timeline_of(attempts, 1), {1: [1, 2, 3], 2: [4]}) == [1, 2, 3]


def test_the_line_as_seen_from_a_checkpoint_ends_there() -> None:
    line = current_timeline([_fresh(1), _rewind(2, parent=1, to=3)])
    assert line.upto(5) == Timeline((Segment(attempt=2, upto=5), Segment(attempt=1, upto=3)))
    assert line.upto(2) == Timeline((Segment(attempt=2, upto=2), Segment(attempt=1, upto=2)))


@dataclass
class Life:
    """Attempts as restores make them, and the line that a reader of the rules would write beside them."""

    attempts: list[Attempt]
    taken: dict[int, list[int]]
    line: list[int]


@st.composite
def _lives(draw: st.DrawFn) -> Life:
    life = Life([], {}, [])
    line_at: dict[int, list[int]] = {}  # as it was when this checkpoint was taken
    kinds = st.sampled_from(["fresh", "tip", "rewind", "unplanned"])
    for number, kind in enumerate(["fresh", *draw(st.lists(kinds, max_size=7))], start=1):
        ids = range(len(line_at) + 1, len(line_at) + 1 + draw(st.integers(0, 3)))
        planned = list(life.taken)
        if kind == "unplanned":
            life.attempts.append(_preparing(number))
            continue
        if kind == "rewind" and line_at:
            to = draw(st.sampled_from(sorted(line_at)))
            owner = next(attempt for attempt, taken in life.taken.items() if to in taken)
            life.attempts.append(_rewind(number, parent=owner, to=to))
            life.line = line_at[to]
        elif kind == "tip":
            life.attempts.append(_tip(number, parent=planned[-1], fork_at=len(line_at)))
        else:
            life.attempts.append(_fresh(number))
            life.line = []
        life.taken[number] = list(ids)
        for id_ in ids:
            line_at[id_] = life.line = [*life.line, id_]
    return life


@quick
@given(_lives())
def test_the_line_is_what_each_start_kept_and_each_attempt_added(life: Life) -> None:
    assert _held(current_timeline(life.attempts), life.taken) == life.line


@quick
@given(_lives(), st.integers(1, 20))
def test_upto_keeps_exactly_the_ids_up_to_it(life: Life, id_: int) -> None:
    assert _held(current_timeline(life.attempts).upto(id_), life.taken) == [each for each in life.line if each <= id_]


# attempts that are forgotten


@st.composite
def _lines(draw: st.DrawFn) -> list[Link]:
    """Attempts that each continue an earlier one, somewhere, or begin anew."""
    links = []
    for number in range(1, draw(st.integers(1, 12)) + 1):
        parent = draw(st.none() | st.integers(1, number - 1)) if number > 1 else None
        fork_at = None if parent is None else draw(st.none() | st.integers(0, 30))
        links.append(Link(number=number, parent=parent, fork_at=fork_at, is_needed=draw(st.booleans())))
    return links


def _line_of(links: Sequence[Link]) -> Timeline:
    attempts = [_attempt(link.number, Rung.CHECKPOINT, link.parent, link.fork_at) for link in links]
    return timeline_of(attempts, links[-1].number)


@quick
@given(_lines(), st.integers(1, 4), st.integers(1, 20))
def test_a_line_without_the_attempts_that_are_forgotten_holds_the_same_checkpoints(
    links: list[Link], keep: int, limit: int
) -> None:
    gone, changed = thin_out(links, keep=keep, limit=limit)
    assert len(gone) <= limit
    assert not {link.number for link in links if link.is_needed} & set(gone)
    assert not {link.number for link in links[-keep:]} & set(gone)
    by_number = {link.number: link for link in links} | {link.number: link for link in changed}
    left = [link for number, link in by_number.items() if number not in gone]
    assert all(link.parent not in gone for link in left)
    before, after = _line_of(links), _line_of(left)
    for link in left:
        for checkpoint in range(32):
            assert before.holds(link.number, checkpoint) == after.holds(link.number, checkpoint)


def test_what_ran_nothing_keeps_the_attempt_whose_tip_it_was_given() -> None:
    links = [Link(number=1, parent=None, fork_at=None), Link(number=2, parent=1, fork_at=3, needs_parent=True)]
    assert thin_out(links, keep=1, limit=10) == ([], [])
    assert thin_out([links[0], replace(links[1], needs_parent=False)], keep=1, limit=10)[0] == [1]
