"""How often to take a checkpoint."""

import math
from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_ckpt.protocol.errors import Misused
from airflow_provider_ckpt.protocol.interval import Advice, advise, daly, overhead, streaming_optimum, young

Formula = Callable[[timedelta, timedelta], timedelta]

quick = settings(max_examples=40, deadline=None)

FIVE_MINUTES = timedelta(minutes=5)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
MICROSECOND = timedelta(microseconds=1)
WIDE = (timedelta(seconds=1), timedelta(days=365))

costs = st.timedeltas(min_value=timedelta(milliseconds=1), max_value=timedelta(hours=6))
mtbfs = st.timedeltas(min_value=timedelta(seconds=1), max_value=timedelta(days=400))


def minutes(duration: timedelta) -> float:
    return duration / timedelta(minutes=1)


@pytest.mark.parametrize(
    ("mtbf", "by_daly", "by_streaming"),
    [
        (timedelta(hours=24), 116.69, 116.69),
        (timedelta(hours=6), 56.71, 56.71),
        (timedelta(minutes=15), 9.14, 9.17),
    ],
)
def test_the_published_values_come_out(mtbf: timedelta, by_daly: float, by_streaming: float) -> None:
    assert minutes(daly(FIVE_MINUTES, mtbf)) == pytest.approx(by_daly, abs=0.005)
    assert minutes(streaming_optimum(FIVE_MINUTES, mtbf)) == pytest.approx(by_streaming, abs=0.005)


def test_youngs_rule_is_the_root_of_twice_the_product() -> None:
    assert young(FIVE_MINUTES, timedelta(hours=24)) == timedelta(hours=2)


def test_daly_falls_back_to_the_mean_time_between_failures_when_a_checkpoint_costs_twice_that() -> None:
    assert daly(2 * HOUR, HOUR) == HOUR
    assert daly(3 * HOUR, HOUR) == HOUR
    assert daly(2 * HOUR - timedelta(seconds=1), HOUR) < HOUR


@pytest.mark.parametrize("x", [1e-16, 1e-12, 4.9e-7, 5.1e-7, 1e-3, 0.4999, 0.5001, 1.0, 5.0, 29.9, 30.1, 1e3])
def test_the_streaming_optimum_solves_its_equation_from_free_to_hopeless_checkpoints(x: float) -> None:
    mtbf = timedelta(days=10_000)
    u = streaming_optimum(mtbf * x, mtbf) / mtbf
    exact_x = (mtbf * x) / mtbf
    if u > 0.999:  # 1 + W0(z) is 1 + z there
        assert 1 - u == pytest.approx(math.exp(-1 - exact_x), rel=1e-3, abs=1e-12)
    elif exact_x < 1e-6:  # -ln(1 - u) - u is all cancellation there: compare its series
        assert sum(u**n / n for n in range(2, 9)) == pytest.approx(exact_x, rel=1e-10, abs=1e-20)
    else:
        assert -math.log1p(-u) - u == pytest.approx(exact_x, rel=1e-9)


@pytest.mark.parametrize("formula", [young, daly, streaming_optimum])
@quick
@given(cost=costs, more=costs, mtbf=mtbfs)
def test_a_dearer_checkpoint_is_taken_less_often(
    formula: Formula, cost: timedelta, more: timedelta, mtbf: timedelta
) -> None:
    assert formula(cost + more, mtbf) >= formula(cost, mtbf) - MICROSECOND


@pytest.mark.parametrize("formula", [young, streaming_optimum])
@quick
@given(cost=costs, mtbf=mtbfs, more=mtbfs)
def test_a_steadier_pipeline_is_checkpointed_less_often(
    formula: Formula, cost: timedelta, mtbf: timedelta, more: timedelta
) -> None:
    assert formula(cost, mtbf + more) >= formula(cost, mtbf) - MICROSECOND


@quick
@given(cost=costs, share=st.floats(0.0, 0.999), more=mtbfs)
def test_daly_agrees_that_a_steadier_pipeline_is_checkpointed_less_often_above_its_fallback(
    cost: timedelta, share: float, more: timedelta
) -> None:
    mtbf = cost / (2 * share) if share > 1e-6 else cost * 500_000
    assert daly(cost, mtbf + more) >= daly(cost, mtbf) - MICROSECOND


@quick
@given(cost=costs, mtbf=mtbfs, factor=st.floats(0.01, 100))
def test_no_other_interval_loses_less_than_the_streaming_optimum(
    cost: timedelta, mtbf: timedelta, factor: float
) -> None:
    best = streaming_optimum(cost, mtbf)
    assert overhead(best, cost, mtbf) <= overhead(best * factor, cost, mtbf) + 1e-12


def test_its_neighbours_lose_measurably_more_than_the_optimum() -> None:
    best = streaming_optimum(FIVE_MINUTES, 6 * HOUR)
    lost = overhead(best, FIVE_MINUTES, 6 * HOUR)
    assert overhead(best * 0.9, FIVE_MINUTES, 6 * HOUR) > lost + 1e-4
    assert overhead(best * 1.1, FIVE_MINUTES, 6 * HOUR) > lost + 1e-4


@quick
@given(cost=costs, ratio=st.floats(0, 0.01))
def test_the_three_formulas_agree_when_checkpoints_are_cheap(cost: timedelta, ratio: float) -> None:
    mtbf = cost / max(ratio, 1e-6)
    best = streaming_optimum(cost, mtbf)
    assert daly(cost, mtbf) / best == pytest.approx(1, rel=1e-3)
    assert young(cost, mtbf) / best == pytest.approx(1, rel=0.06)


@quick
@given(interval=mtbfs, cost=costs, mtbf=mtbfs)
def test_overhead_is_a_share(interval: timedelta, cost: timedelta, mtbf: timedelta) -> None:
    assert 0 <= overhead(interval, cost, mtbf) <= 1


def test_without_a_pause_nothing_useful_is_done() -> None:
    assert overhead(timedelta(), FIVE_MINUTES, DAY) == 1


def test_a_checkpoint_that_costs_nothing_is_taken_all_the_time() -> None:
    assert young(timedelta(), DAY) == daly(timedelta(), DAY) == streaming_optimum(timedelta(), DAY) == timedelta()


@pytest.mark.parametrize("formula", [young, daly, streaming_optimum])
@pytest.mark.parametrize(("cost", "mtbf"), [(-HOUR, DAY), (HOUR, timedelta()), (HOUR, -DAY)])
def test_impossible_measurements_are_misused(formula: Formula, cost: timedelta, mtbf: timedelta) -> None:
    with pytest.raises(Misused, match="can not be negative"):
        formula(cost, mtbf)


def test_a_negative_interval_is_misused() -> None:
    with pytest.raises(Misused, match="can not be negative: -1h"):
        overhead(-HOUR, HOUR, DAY)


def test_advice_takes_the_median_cost_and_the_mean_time_between_failures() -> None:
    measured = [timedelta(minutes=n) for n in (4, 90, 6)]
    advice = advise(measured, [DAY, 2 * DAY, 3 * DAY], bounds=WIDE)
    assert (advice.cost, advice.mtbf) == (timedelta(minutes=6), 3 * DAY)
    assert advice.interval == streaming_optimum(advice.cost, advice.mtbf)
    assert not advice.is_clamped
    assert advice.why == (
        "Every 3h44m: a checkpoint costs 6m and the pipeline failed 2 times, every 3d on average; "
        "checkpoints and replay take 5.2% of the time."
    )


def test_the_median_of_an_even_number_lies_between_the_middle_two() -> None:
    advice = advise([timedelta(minutes=n) for n in (9, 1, 3, 5)], [DAY], bounds=WIDE)
    assert advice.cost == timedelta(minutes=4)


def test_without_a_failure_the_uptime_is_a_lower_bound_and_the_advice_says_so() -> None:
    advice = advise([FIVE_MINUTES], [DAY], bounds=WIDE)
    assert advice.mtbf == DAY
    assert "nothing has failed in 1d yet, so this may be more often than needed" in advice.why


def test_attempts_that_ended_without_failing_can_be_told_apart() -> None:
    stopped_by_people = advise([FIVE_MINUTES], [DAY, DAY, DAY], bounds=WIDE, failures=0)
    assert stopped_by_people.mtbf == 3 * DAY
    assert "nothing has failed in 3d" in stopped_by_people.why
    assert advise([FIVE_MINUTES], [DAY], bounds=WIDE, failures=1).why.count("failed once") == 1


@pytest.mark.parametrize(
    ("bounds", "interval", "words"),
    [
        ((timedelta(minutes=1), HOUR), HOUR, "Every 1h, the longest allowed (1h57m would be best)"),
        ((3 * HOUR, DAY), 3 * HOUR, "Every 3h, the shortest allowed (1h57m would be best)"),
    ],
)
def test_advice_stays_within_its_bounds_and_says_what_would_be_best(
    bounds: tuple[timedelta, timedelta], interval: timedelta, words: str
) -> None:
    advice = advise([FIVE_MINUTES], [DAY], bounds=bounds)
    assert advice.is_clamped
    assert advice.interval == interval
    assert advice.why.startswith(words)
    assert advice.overhead == overhead(interval, FIVE_MINUTES, DAY)


@quick
@given(
    measured=st.lists(costs, min_size=1, max_size=9),
    uptimes=st.lists(mtbfs, min_size=1, max_size=9),
    low=st.timedeltas(min_value=timedelta(seconds=1), max_value=HOUR),
    width=st.timedeltas(min_value=timedelta(), max_value=DAY),
)
def test_advice_never_leaves_its_bounds(
    measured: list[timedelta], uptimes: list[timedelta], low: timedelta, width: timedelta
) -> None:
    advice = advise(measured, uptimes, bounds=(low, low + width))
    assert low <= advice.interval <= low + width
    assert min(measured) <= advice.cost <= max(measured)
    assert advice.is_clamped == (advice.interval != streaming_optimum(advice.cost, advice.mtbf))


@pytest.mark.parametrize(
    ("measured", "uptimes", "failures", "words"),
    [
        ([], [DAY], None, "ask again after the first"),
        ([HOUR], [], None, "hand in the uptimes"),
        ([HOUR], [timedelta()], None, "hand in the uptimes"),
        ([HOUR], [2 * DAY, -DAY], None, "hand in the uptimes"),
        ([HOUR], [DAY], -1, "hand in the uptimes"),
    ],
)
def test_nothing_is_advised_from_nothing(
    measured: list[timedelta], uptimes: list[timedelta], failures: int | None, words: str
) -> None:
    with pytest.raises(Misused, match=words):
        advise(measured, uptimes, bounds=WIDE, failures=failures)


@pytest.mark.parametrize("bounds", [(HOUR, timedelta(minutes=1)), (timedelta(), HOUR), (-HOUR, HOUR)])
def test_bounds_without_room_are_misused(bounds: tuple[timedelta, timedelta]) -> None:
    with pytest.raises(Misused, match="leave no interval"):
        advise([FIVE_MINUTES], [DAY], bounds=bounds)


@pytest.mark.parametrize(("interval", "lost"), [(timedelta(), 0.1), (HOUR, 1.1), (HOUR, -0.1), (HOUR, math.nan)])
def test_advice_checks_itself(interval: timedelta, lost: float) -> None:
    with pytest.raises(Misused, match="is no advice"):
        Advice(interval=interval, cost=HOUR, mtbf=DAY, is_clamped=False, overhead=lost, why="")
