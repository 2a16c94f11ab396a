"""Which checkpoints stay and which may go."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_ckpt.protocol.codec import Json, canonical, parse
from airflow_provider_ckpt.protocol.errors import Corrupt, Misused
from airflow_provider_ckpt.protocol.retention import Retained, Retention, RetentionPlan, plan

quick = settings(max_examples=40, deadline=None)

NOW = datetime(2026, 11, 14, 12, tzinfo=UTC)  # a Saturday
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def every(step: timedelta, count: int) -> list[Retained]:
    """Checkpoints 1 to `count`, the last of them just now."""
    return [Retained(id=n, ended_at=NOW - step * (count - n)) for n in range(1, count + 1)]


def kept(policy: Retention, checkpoints: Sequence[Retained], protected: frozenset[int] = frozenset()) -> list[int]:
    return list(plan(policy, checkpoints, NOW, protected).keep)


def bytes_of(checkpoints: Sequence[Retained]) -> int:
    files: dict[str, int] = {}
    for checkpoint in checkpoints:
        files.update(checkpoint.files)
    return sum(files.values())


# Sizes belong to paths: a stored file is immutable.
SIZES = {f"files/{n}": n * n for n in range(12)}


@st.composite
def histories(draw: st.DrawFn) -> list[Retained]:
    flags = st.sampled_from([False, False, False, True])
    ages = sorted(draw(st.lists(st.integers(0, 24 * 60), max_size=16)), reverse=True)
    history = []
    for number, age in enumerate(ages, start=1):
        verdict = draw(st.sampled_from(["", "", "validated", "corrupt"]))
        history.append(
            Retained(
                id=number,
                ended_at=NOW - age * HOUR / 2,
                is_savepoint=draw(flags),
                is_pinned=draw(flags),
                is_validated=verdict == "validated",
                is_corrupt=verdict == "corrupt",
                is_on_timeline=not draw(flags),
                files={path: SIZES[path] for path in draw(st.sets(st.sampled_from(sorted(SIZES)), max_size=4))},
            )
        )
    return history


small = st.integers(0, 4)
count_policies = st.builds(Retention, last=st.integers(1, 5), hourly=small, daily=small, weekly=small)
policies = st.builds(
    Retention,
    last=st.none() | st.integers(1, 5),
    max_age=st.integers(1, 40).map(lambda n: n * DAY / 2),
    hourly=small,
    daily=small,
    weekly=small,
    max_bytes=st.none() | st.integers(1, 400),
) | st.builds(Retention, last=st.none() | st.integers(1, 5), hourly=small, daily=small, max_bytes=st.integers(1, 400))
some_protected = st.frozensets(st.integers(1, 20), max_size=3)


def always_kept(history: Sequence[Retained], protected: frozenset[int]) -> set[int]:
    usable = [c.id for c in history if c.is_on_timeline and not c.is_corrupt]
    validated = [c.id for c in history if c.is_on_timeline and c.is_validated]
    held = {c.id for c in history if c.is_savepoint or c.is_pinned or c.id in protected}
    return held | set(usable[-1:]) | set(validated[-1:])


@quick
@given(policies | count_policies, histories(), some_protected)
def test_every_checkpoint_is_either_kept_with_a_reason_or_discarded_oldest_first(
    policy: Retention, history: list[Retained], protected: frozenset[int]
) -> None:
    result = plan(policy, list(reversed(history)), NOW, protected)
    assert sorted([*result.keep, *result.discard]) == [c.id for c in history]
    assert list(result.discard) == sorted(result.discard)
    assert list(result.keep) == sorted(result.keep)
    assert all(result.keep.values())


@quick
@given(policies | count_policies, histories(), some_protected)
def test_what_is_always_kept_is_kept_whatever_the_limits(
    policy: Retention, history: list[Retained], protected: frozenset[int]
) -> None:
    assert always_kept(history, protected) <= set(kept(policy, history, protected))


@quick
@given(policies | count_policies, histories(), some_protected)
def test_a_corrupt_checkpoint_is_kept_on_purpose_or_until_enough_good_ones_are_newer(
    policy: Retention, history: list[Retained], protected: frozenset[int]
) -> None:
    result = plan(policy, history, NOW, protected)
    good = [c.id for c in history if c.is_on_timeline and not (c.is_corrupt or c.is_savepoint)]
    for c in history:
        is_superseded = not c.is_on_timeline or sum(id_ > c.id for id_ in good) >= (policy.last or 0)
        if c.is_corrupt and is_superseded and not (c.is_savepoint or c.is_pinned or c.id in protected):
            assert c.id in result.discard


@quick
@given(count_policies, histories(), st.integers(0, 100), st.booleans(), st.booleans())
def test_a_newer_checkpoint_never_brings_a_discarded_one_back(
    policy: Retention, history: list[Retained], later: int, on_timeline: bool, validated: bool
) -> None:
    newer = Retained(id=99, ended_at=NOW + later * HOUR, is_on_timeline=on_timeline, is_validated=validated)
    before, after = plan(policy, history, NOW), plan(policy, [*history, newer], newer.ended_at)
    assert set(before.discard) <= set(after.discard)


@quick
@given(policies | count_policies, histories(), some_protected)
def test_planning_again_after_discarding_discards_nothing_more(
    policy: Retention, history: list[Retained], protected: frozenset[int]
) -> None:
    first = kept(policy, history, protected)
    again = plan(policy, [c for c in history if c.id in first], NOW, protected)
    assert again.discard == ()


@quick
@given(policies, histories(), some_protected)
def test_bytes_stay_within_the_limit_unless_only_what_is_always_kept_remains(
    policy: Retention, history: list[Retained], protected: frozenset[int]
) -> None:
    numbers = set(kept(policy, history, protected))
    total = bytes_of([c for c in history if c.id in numbers])
    assert policy.max_bytes is None or total <= policy.max_bytes or numbers == always_kept(history, protected)


@quick
@given(policies, histories(), some_protected)
def test_nothing_older_than_max_age_remains_unless_it_is_always_kept(
    policy: Retention, history: list[Retained], protected: frozenset[int]
) -> None:
    numbers = set(kept(policy, history, protected)) - always_kept(history, protected)
    ages = [NOW - c.ended_at for c in history if c.id in numbers]
    assert policy.max_age is None or all(age <= policy.max_age for age in ages)


@quick
@given(count_policies, histories())
def test_savepoints_and_the_abandoned_take_nobodys_place_on_the_timeline(
    policy: Retention, history: list[Retained]
) -> None:
    plain = [c for c in history if c.is_on_timeline and not c.is_savepoint]
    with_all = {c.id for c in plain} & set(kept(policy, history))
    newest_is_plain = {c.id for c in plain} & always_kept(plain, frozenset())
    assert with_all | newest_is_plain == set(kept(policy, plain))


def test_by_default_the_last_ten_are_kept() -> None:
    result = plan(Retention(), every(HOUR, 12), NOW)
    assert result.discard == (1, 2)
    assert result.keep[10] == "last 3 of 10"
    assert result.keep[12] == "newest completed, last 1 of 10"


def test_no_checkpoint_at_all_is_an_empty_plan() -> None:
    assert plan(Retention(), [], NOW) == RetentionPlan(keep={}, discard=())


def test_the_newest_of_each_hour_day_and_week_is_kept_and_says_which() -> None:
    result = plan(Retention(last=None, hourly=2, daily=2, weekly=2), every(HOUR / 2, 800), NOW)
    assert result.keep == {
        535: "weekly 2026-W45",  # until Sunday, 8 November, 23:30
        775: "daily 2026-11-13",
        799: "hourly 2026-11-14 11:00",
        800: "newest completed, hourly 2026-11-14 12:00, daily 2026-11-14, weekly 2026-W46",
    }


def test_hours_and_days_are_those_of_utc() -> None:
    tokyo = timezone(timedelta(hours=9))
    late, early = datetime(2026, 11, 14, 8, 59, tzinfo=tokyo), datetime(2026, 11, 14, 9, 0, tzinfo=tokyo)
    result = plan(Retention(last=None, daily=9), [Retained(id=1, ended_at=late), Retained(id=2, ended_at=early)], NOW)
    assert result.keep == {1: "daily 2026-11-13", 2: "newest completed, daily 2026-11-14"}


def test_iso_weeks_do_not_break_at_new_year() -> None:
    days = [datetime(2026, 12, 28, tzinfo=UTC) + n * DAY for n in range(8)]  # Monday to Monday
    result = plan(Retention(last=None, weekly=5), [Retained(id=n, ended_at=day) for n, day in enumerate(days)], NOW)
    assert result.keep == {6: "weekly 2026-W53", 7: "newest completed, weekly 2027-W01"}


def test_days_without_a_checkpoint_do_not_count() -> None:
    assert kept(Retention(last=None, daily=3), every(30 * DAY, 5)) == [3, 4, 5]


def test_max_age_drops_the_old_but_never_the_newest() -> None:
    assert kept(Retention(max_age=2 * DAY), every(DAY, 5)) == [3, 4, 5]
    old = [replace(c, ended_at=c.ended_at - 100 * DAY) for c in every(DAY, 3)]
    assert plan(Retention(max_age=2 * DAY), old, NOW).keep == {3: "newest completed"}


def test_without_a_count_everything_within_the_limits_is_kept() -> None:
    by_age = plan(Retention(last=None, max_age=DAY), every(HOUR, 30), NOW)
    assert by_age.discard == (1, 2, 3, 4, 5)
    assert by_age.keep[6] == "not older than 1d"
    sized = [replace(c, files={f"files/{c.id}": 10}) for c in every(HOUR, 30)]
    by_bytes = plan(Retention(last=None, max_bytes=35), sized, NOW)
    assert by_bytes.keep == {
        28: "within max_bytes",
        29: "within max_bytes",
        30: "newest completed, within max_bytes",
    }


def test_bytes_that_checkpoints_share_count_once() -> None:
    history = [replace(c, files={"files/shared": 100, f"files/{c.id}": 1}) for c in every(HOUR, 5)]
    assert kept(Retention(max_bytes=103), history) == [3, 4, 5]


def test_what_is_always_kept_is_counted_first() -> None:
    history = [replace(c, files={f"files/{c.id}": 10}) for c in every(HOUR, 5)]
    history[0] = replace(history[0], is_pinned=True)
    assert kept(Retention(max_bytes=30), history) == [1, 4, 5]
    assert kept(Retention(max_bytes=5), history) == [1, 5]


def test_dropping_for_bytes_leaves_no_older_one_behind_a_gap() -> None:
    sizes = {1: 1, 2: 50, 3: 10}
    history = [replace(c, files={f"files/{c.id}": sizes[c.id]}) for c in every(HOUR, 3)]
    assert kept(Retention(max_bytes=20), history) == [3]


def test_a_corrupt_checkpoint_is_not_the_newest_and_takes_no_place() -> None:
    history = [*every(HOUR, 3), Retained(id=4, ended_at=NOW, is_corrupt=True)]
    result = plan(Retention(last=2), history, NOW)
    repairable = "corrupt, may be repaired"
    assert result.keep == {2: "last 2 of 2", 3: "newest completed, last 1 of 2", 4: repairable}
    assert result.discard == (1,)
    newer = [*history, *(Retained(id=id_, ended_at=NOW) for id_ in (5, 6))]
    assert 4 in plan(Retention(last=2), newer, NOW).discard


def test_the_newest_validated_checkpoint_outlives_every_count() -> None:
    history = every(HOUR, 5)
    history[0] = replace(history[0], is_validated=True)
    history[1] = replace(history[1], is_validated=True)
    assert plan(Retention(last=1), history, NOW).keep == {
        2: "newest validated",
        5: "newest completed, last 1 of 1",
    }


def test_pins_savepoints_and_the_protected_are_kept_with_their_reasons() -> None:
    history = every(HOUR, 5)
    history[0] = replace(history[0], is_pinned=True, is_savepoint=True, is_corrupt=True)
    assert plan(Retention(last=1), history, NOW, frozenset({3, 77})).keep == {
        1: "savepoint, pinned",
        3: "protected",
        5: "newest completed, last 1 of 1",
    }


def test_a_savepoint_takes_no_place_among_the_last() -> None:
    history = every(HOUR, 4)
    history[2] = replace(history[2], is_savepoint=True)
    assert kept(Retention(last=2), history) == [2, 3, 4]


def test_an_abandoned_checkpoint_is_kept_while_younger_than_max_age() -> None:
    history = [replace(c, is_on_timeline=c.id == 5) for c in every(DAY, 5)]
    result = plan(Retention(last=1, max_age=2 * DAY), history, NOW)
    assert result.keep == {
        3: "abandoned, not older than 2d",
        4: "abandoned, not older than 2d",
        5: "newest completed, last 1 of 1",
    }


@pytest.mark.parametrize(
    ("policy", "count"), [(Retention(last=2), 2), (Retention(last=None, daily=1), 10), (Retention(), 10)]
)
def test_without_max_age_the_newest_of_the_abandoned_are_kept(policy: Retention, count: int) -> None:
    history = [replace(c, is_on_timeline=c.id == 15) for c in every(HOUR, 15)]
    result = plan(policy, history, NOW)
    assert list(result.keep) == [*range(15 - count, 15), 15]
    assert result.keep[14] == f"abandoned 1 of {count}"


def test_bytes_are_saved_on_the_abandoned_before_the_timeline() -> None:
    history = [replace(c, files={f"files/{c.id}": 10}, is_on_timeline=c.id not in (3, 4)) for c in every(HOUR, 5)]
    assert kept(Retention(max_bytes=40), history) == [1, 2, 4, 5]
    assert kept(Retention(max_bytes=30), history) == [1, 2, 5]


def test_the_same_checkpoint_twice_is_misused() -> None:
    with pytest.raises(Misused, match="twice"):
        plan(Retention(), [*every(HOUR, 2), *every(HOUR, 1)], NOW)


@quick
@given(policies | count_policies)
def test_a_policy_survives_being_written(policy: Retention) -> None:
    written = parse("The settings", canonical({"retention": policy.to_json()}))
    assert Retention.from_json(written.object("retention")) == policy


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"last": 0}, "makes no sense: Retention keeps at least the last 1"),
        ({"last": "ten"}, "'last' should be"),
        ({"max_age": "soon"}, "makes no sense: 'soon' is not a duration"),
        ({"daily": -1}, "'daily' should be"),
        ({"yearly": 1}, "unknown fields: yearly"),
    ],
)
def test_a_damaged_policy_is_corrupt_and_names_what_is_wrong(change: Mapping[str, Json], words: str) -> None:
    with pytest.raises(Corrupt, match=words):
        Retention.from_json({**Retention().to_json(), **change})


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Retention(last=0), "at least the last 1"),
        (lambda: Retention(daily=-1), "fewer than 0"),
        (lambda: Retention(max_bytes=0), "at least 1 byte"),
        (lambda: Retention(max_age=timedelta()), "The max_age of a retention"),
        (lambda: Retention(last=None), "everything for ever"),
        (lambda: Retained(id=1, ended_at=NOW.replace(tzinfo=None)), "without a zone"),
        (lambda: Retained(id=1, ended_at=NOW, is_validated=True, is_corrupt=True), "both validated and corrupt"),
        (lambda: Retained(id=1, ended_at=NOW, files={"files/1": -1}), "less than 0 bytes"),
        (lambda: RetentionPlan(keep={1: "pinned"}, discard=(1,)), "both kept and discarded"),
    ],
)
def test_values_that_make_no_sense_are_misused(make: Callable[[], object], words: str) -> None:
    with pytest.raises(Misused, match=words):
        make()
