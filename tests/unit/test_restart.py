"""Whether and when to start a pipeline again."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_ckpt.protocol.errors import Misused
from airflow_provider_ckpt.protocol.restart import (
    ExponentialBackoff,
    FailureRate,
    FixedDelay,
    GiveUp,
    NoRestart,
    Restart,
    RestartDecision,
    RestartStrategy,
    decide,
    parse_restart,
    remembered_failures,
)

quick = settings(max_examples=40, deadline=None)

START = datetime(2026, 11, 14, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)

BACKOFF = ExponentialBackoff(limit=100, within=HOUR, initial=SECOND, maximum=MINUTE, jitter=0.5, reset_after=HOUR)


def failed(*gaps: timedelta) -> list[datetime]:
    """A first failure at START, and one more after each gap."""
    return list(accumulate(gaps, lambda time, gap: time + gap, initial=START))


def now_decide(strategy: RestartStrategy, failures: list[datetime], jitter: float = 0.0) -> RestartDecision:
    return decide(strategy, failures, failures[-1], jitter)


def durations(least: int = 0, most: timedelta = timedelta(days=30)) -> st.SearchStrategy[timedelta]:
    return st.integers(least, most // timedelta(milliseconds=1)).map(lambda n: timedelta(milliseconds=n))


limits = st.integers(1, 999_999)
gaps = st.lists(st.timedeltas(timedelta(), 3 * HOUR), max_size=20)
jitters = st.floats(0, 1, exclude_max=True)
fixed = st.builds(FixedDelay, limit=limits, delay=durations())
rates = st.builds(FailureRate, limit=limits, within=durations(1), delay=durations())
exponentials = st.builds(
    lambda low, more, **rest: ExponentialBackoff(initial=low, maximum=low + more, **rest),
    low=durations(1),
    more=durations(),
    limit=limits,
    within=durations(1),
    factor=st.floats(1, 1000),
    jitter=st.floats(0, 1),
    reset_after=durations(1),
)
strategies = st.one_of(st.just(NoRestart()), fixed, rates, exponentials)


def test_a_fixed_delay_restarts_as_often_as_it_says_and_then_gives_up() -> None:
    strategy = FixedDelay(limit=3, delay=10 * SECOND)
    assert now_decide(strategy, failed()) == Restart(after=10 * SECOND)
    assert now_decide(strategy, failed(HOUR, HOUR)) == Restart(after=10 * SECOND)
    assert now_decide(strategy, failed(HOUR, HOUR, HOUR)) == GiveUp(
        why="It failed 4 times, and fixed(3, 10s) allows 3: repair the cause and start it again."
    )


def test_a_failure_rate_forgets_what_lies_before_its_window() -> None:
    strategy = FailureRate(limit=2, within=10 * MINUTE, delay=5 * SECOND)
    assert now_decide(strategy, failed(5 * MINUTE, 5 * MINUTE)) == Restart(after=5 * SECOND)
    assert now_decide(strategy, failed(5 * MINUTE, 4 * MINUTE)) == GiveUp(
        why="It failed 3 times within 10m, and rate(2 in 10m, 5s) allows 2: repair the cause and start it again."
    )


def test_an_exponential_delay_doubles_up_to_its_maximum() -> None:
    delays = [now_decide(BACKOFF, failed(*[MINUTE] * n)) for n in range(8)]
    assert delays == [Restart(after=SECOND * n) for n in (1, 2, 4, 8, 16, 32, 60, 60)]


def test_a_healthy_time_resets_the_exponential_delay() -> None:
    almost = now_decide(BACKOFF, failed(MINUTE, MINUTE, HOUR - SECOND))
    healthy = now_decide(BACKOFF, failed(MINUTE, MINUTE, HOUR))
    again = now_decide(BACKOFF, failed(MINUTE, MINUTE, HOUR, MINUTE))
    assert [almost, healthy, again] == [Restart(after=SECOND * n) for n in (8, 1, 2)]


def test_jitter_adds_its_share_of_the_delay() -> None:
    assert now_decide(BACKOFF, failed(MINUTE), jitter=0.5) == Restart(after=2.5 * SECOND)


def test_an_exponential_gives_up_when_failures_come_too_often() -> None:
    strategy = replace(BACKOFF, limit=2)
    assert isinstance(now_decide(strategy, failed(30 * MINUTE, 30 * MINUTE)), Restart)
    assert isinstance(now_decide(strategy, failed(30 * MINUTE, 29 * MINUTE)), GiveUp)


def test_none_leaves_every_failure_to_a_person() -> None:
    decision = now_decide(NoRestart(), failed())
    assert decision == GiveUp(
        why="It failed, and none leaves every failure to a person: repair the cause and start it again."
    )


@quick
@given(strategies, jitters)
def test_a_pipeline_that_never_failed_is_started_at_once(strategy: RestartStrategy, jitter: float) -> None:
    assert decide(strategy, [], START, jitter) == Restart(after=timedelta())


def test_who_asks_late_waits_only_for_the_rest() -> None:
    strategy = FixedDelay(limit=3, delay=10 * SECOND)
    waits = [decide(strategy, failed(), START + SECOND * late, 0.0) for late in (4, 10, 3600)]
    assert waits == [Restart(after=SECOND * n) for n in (6, 0, 0)]


def test_a_failure_ahead_of_the_clock_does_not_lengthen_the_wait() -> None:
    assert decide(FixedDelay(limit=3, delay=SECOND), failed(), START - HOUR, 0.0) == Restart(after=SECOND)


@quick
@given(strategies, gaps, jitters, st.timedeltas(timedelta(), timedelta(days=9)))
def test_what_was_given_up_stays_given_up_however_late_one_asks(
    strategy: RestartStrategy, times: list[timedelta], jitter: float, late: timedelta
) -> None:
    failures = failed(*times)
    at_once, later = now_decide(strategy, failures, jitter), decide(strategy, failures, failures[-1] + late, jitter)
    assert at_once == later if isinstance(at_once, GiveUp) else isinstance(later, Restart)


@quick
@given(exponentials, gaps, jitters)
def test_a_backoff_stays_between_its_initial_and_its_maximal_delay_plus_jitter(
    strategy: ExponentialBackoff, times: list[timedelta], jitter: float
) -> None:
    decision = now_decide(replace(strategy, limit=100), failed(*times), jitter)
    assert isinstance(decision, Restart)
    assert strategy.initial <= decision.after <= strategy.maximum * (1 + strategy.jitter)


@quick
@given(exponentials, st.integers(1, 20))
def test_a_backoff_never_shrinks_while_the_trouble_lasts(strategy: ExponentialBackoff, count: int) -> None:
    patient = replace(strategy, limit=100)
    shorter = now_decide(patient, failed(*[timedelta()] * count))
    longer = now_decide(patient, failed(*[timedelta()] * (count + 1)))
    assert isinstance(shorter, Restart)
    assert isinstance(longer, Restart)
    assert shorter.after <= longer.after


@pytest.mark.parametrize(
    "make",
    [
        lambda limit: FixedDelay(limit=limit, delay=SECOND),
        lambda limit: FailureRate(limit=limit, within=HOUR, delay=SECOND),
        lambda limit: ExponentialBackoff(limit=limit, within=HOUR),
    ],
)
@quick
@given(limit=st.integers(1, 30), jitter=jitters)
def test_every_strategy_gives_up_with_the_first_failure_beyond_its_limit(
    make: Callable[[int], RestartStrategy], limit: int, jitter: float
) -> None:
    strategy = make(limit)
    decisions = [now_decide(strategy, failed(*[SECOND] * n), jitter) for n in range(limit + 1)]
    assert [isinstance(decision, GiveUp) for decision in decisions] == [False] * limit + [True]


def test_thousands_of_failures_do_not_overflow_the_delay() -> None:
    strategy = ExponentialBackoff(limit=9999, within=HOUR, maximum=timedelta(days=36525), factor=1000, jitter=1)
    decision = now_decide(strategy, failed(*[timedelta()] * 5000), 0.999)
    assert isinstance(decision, Restart)


@pytest.mark.parametrize("jitter", [-0.1, 1.0, float("nan")])
def test_jitter_outside_its_range_is_misused(jitter: float) -> None:
    with pytest.raises(Misused, match="jitter from 0 to below 1"):
        decide(NoRestart(), failed(), START, jitter)


def test_failures_out_of_order_are_misused() -> None:
    with pytest.raises(Misused, match="oldest first"):
        decide(NoRestart(), failed(-HOUR), START, 0.0)


@pytest.mark.parametrize(
    ("text", "strategy"),
    [
        ("none", NoRestart()),
        ("fixed(3, 10s)", FixedDelay(limit=3, delay=10 * SECOND)),
        ("rate(3 in 10m, 5s)", FailureRate(limit=3, within=10 * MINUTE, delay=5 * SECOND)),
        ("exponential(5 in 1h)", ExponentialBackoff(limit=5, within=HOUR)),
        ("exponential(5 in 1h, 1s to 1m)", ExponentialBackoff(limit=5, within=HOUR, initial=SECOND, maximum=MINUTE)),
        (
            "exponential(5 in 1h, 2s to 1m, factor 1.5, jitter 0.2, reset 30m)",
            ExponentialBackoff(
                limit=5,
                within=HOUR,
                initial=2 * SECOND,
                maximum=MINUTE,
                factor=1.5,
                jitter=0.2,
                reset_after=30 * MINUTE,
            ),
        ),
    ],
)
def test_a_strategy_reads_as_people_write_it_and_writes_the_same_text(text: str, strategy: RestartStrategy) -> None:
    assert parse_restart(text) == strategy
    assert str(strategy) == text


@quick
@given(strategies)
def test_every_strategy_survives_being_written(strategy: RestartStrategy) -> None:
    assert parse_restart(str(strategy)) == strategy


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("  none ", "none"),
        ("fixed(3,10s)", "fixed(3, 10s)"),
        ("exponential(5  in 1h,1s to 1m)", "exponential(5 in 1h, 1s to 1m)"),
    ],
)
def test_spaces_do_not_matter(text: str, same: str) -> None:
    assert parse_restart(text) == parse_restart(same)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not a restart strategy"),
        ("sometimes", "is not a restart strategy"),
        ("none()", "is not a restart strategy"),
        ("fixed(3)", "is not a restart strategy"),
        ("fixed(-3, 10s)", "is not a restart strategy"),
        ("fixed(3, 10s) twice", "is not a restart strategy"),
        ("fixed(0, 10s)", "at least 1 restart"),
        ("fixed(3, soon)", "'soon' is not a duration"),
        ("fixed(3, 6000w)", "The delay of a restart"),
        ("rate(3, 10m)", "is not a restart strategy"),
        ("rate(3 in 0s, 5s)", "The window of a restart"),
        ("exponential(5 in 1h, 1m to 1s)", "The maximal delay of a restart"),
        ("exponential(5 in 1h, 0s to 1s)", "The initial delay of a restart"),
        ("exponential(5 in 1h, factor two)", "'two' is not a number"),
        ("exponential(5 in 1h, factor 0.5)", "factor 0.5"),
        ("exponential(5 in 1h, factor inf)", "factor inf"),
        ("exponential(5 in 1h, jitter nan)", "jitter nan"),
        ("exponential(5 in 1h, reset 0s)", "The healthy time"),
        ("exponential(5 in 1h, jitter 0.1, factor 2)", "is not a restart strategy"),
    ],
)
def test_what_can_not_be_read_is_misused_and_the_error_lists_the_forms(text: str, words: str) -> None:
    with pytest.raises(Misused, match=words) as caught:
        parse_restart(text)
    forms = ("fixed(3, 10s)", "rate(3 in 10m, 5s)", "exponential(5 in 1h)", "exponential(5 in 1h, 1s to 1m)", "none")
    assert all(form in str(caught.value) for form in forms)


def test_a_restart_in_the_past_is_misused() -> None:
    with pytest.raises(Misused, match="1s ago"):
        Restart(after=-SECOND)


@pytest.mark.parametrize(
    ("text", "count"), [("none", 1), ("fixed(3, 10s)", 4), ("rate(7 in 10m, 5s)", 8), ("exponential(5 in 1h)", 6)]
)
def test_a_decision_depends_on_one_failure_more_than_it_allows(text: str, count: int) -> None:
    """Whoever forgets older ones changes nothing."""
    assert remembered_failures(parse_restart(text)) == count
