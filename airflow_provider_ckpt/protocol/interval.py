"""How often to take a checkpoint: too often wastes time on checkpoints, too seldom on replaying after a failure.

All three formulas take what a checkpoint costs and the mean time between failures, and return the pause between the
end of one checkpoint and the begin of the next. Young's is the rule of thumb, Daly's its refinement, and the streaming
optimum maximises the useful share of the time exactly, for failures that come at random with a constant rate.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from airflow_provider_ckpt.protocol.duration import approximate, format_duration
from airflow_provider_ckpt.protocol.errors import Misused

_ZERO = timedelta()
_SERIES_IS_EXACT = 1e-3  # below, the series is right to the last digit and an iteration would only add noise
_SERIES_IS_NEAR = 1.0
_ALL_IS_LOST = 30.0  # from here on 1 + W0 is 1 as far as anybody can measure
_ENOUGH_STEPS = 8  # it doubles the correct digits in each
_EXP_OVERFLOWS = 700.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The interval to use, and what it rests on."""

    interval: timedelta  # from the end of one checkpoint to the begin of the next
    cost: timedelta
    mtbf: timedelta
    is_clamped: bool  # the bounds decided, not the optimum
    overhead: float  # the share of the time that goes to checkpoints and to replaying, from 0 to 1
    why: str

    def __post_init__(self) -> None:
        if self.interval <= _ZERO or not 0 <= self.overhead <= 1:
            raise Misused(f"An interval of {self.interval} with an overhead of {self.overhead} is no advice.")


def advise(
    costs: Sequence[timedelta],
    uptimes: Sequence[timedelta],
    *,
    bounds: tuple[timedelta, timedelta],
    failures: int | None = None,
) -> Advice:
    """Advise an interval within `bounds` from what was measured.

    :param costs: how long each of the recent checkpoints took; the median counts, so one slow checkpoint does not.
    :param uptimes: how long each attempt ran, the running one last.
    :param failures: how many of them failed; None: all but the last. Without any failure the whole uptime is a lower
        bound of the mean time between failures, and the advice is on the safe side: rather too often.
    """
    count = max(len(uptimes) - 1, 0) if failures is None else failures
    cost, mtbf = _median(costs), _mean_uptime(uptimes, count)
    best = streaming_optimum(cost, mtbf)
    interval = _clamp(best, bounds)
    lost = overhead(interval, cost, mtbf)
    why = f"{_what(interval, best)}: {_because(cost, mtbf, count)}; checkpoints and replay take {lost:.1%} of the time."
    return Advice(interval=interval, cost=cost, mtbf=mtbf, is_clamped=interval != best, overhead=lost, why=why)


def young(cost: timedelta, mtbf: timedelta) -> timedelta:
    """√(2·cost·mtbf): the first order, good while the cost is far below the mean time between failures."""
    c, m = _seconds(cost, mtbf)
    return timedelta(seconds=math.sqrt(2 * c * m))


def daly(cost: timedelta, mtbf: timedelta) -> timedelta:
    """The higher-order estimate; from a cost of twice the mean time between failures on, that time itself."""
    c, m = _seconds(cost, mtbf)
    ratio = c / (2 * m)
    if ratio >= 1:
        return mtbf
    return timedelta(seconds=math.sqrt(2 * c * m) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - c)


def streaming_optimum(cost: timedelta, mtbf: timedelta) -> timedelta:
    """T* − cost, where T* = [1 + λ·cost + W0(−e^(−1−λ·cost))]/λ makes the most of the time at failure rate λ."""
    c, m = _seconds(cost, mtbf)
    return timedelta(seconds=m * _one_plus_w0(c / m))


def overhead(interval: timedelta, cost: timedelta, mtbf: timedelta) -> float:
    """The share of the time, from 0 to 1, that an interval loses: 1 − λ·interval/(e^(λ·(interval + cost)) − 1)."""
    c, m = _seconds(cost, mtbf)
    useful, period = interval.total_seconds() / m, (interval.total_seconds() + c) / m
    if interval < _ZERO:
        raise Misused(f"An interval can not be negative: {format_duration(interval)}.")
    if period > _EXP_OVERFLOWS or not useful:
        return 1.0
    return min(max(1 - useful / math.expm1(period), 0.0), 1.0)


def _one_plus_w0(x: float) -> float:
    """1 + W0(−e^(−1−x)) for x ≥ 0, W0 being the main branch of Lambert's function.

    Solved as u = 1 + W0 in −ln(1−u) − u = x, since near the branch point −1/e, where cheap checkpoints are, W0 is
    close to −1 and the sum would cancel. The left side is convex: Newton from above comes down on the root and never
    leaves (0, 1); the start is the series at the branch point, or further off the first approximation −e^(−1−x).
    """
    if x >= _ALL_IS_LOST:
        return 1.0
    s = math.sqrt(2 * x)
    if s < _SERIES_IS_EXACT:
        return _series(s)
    u = _series(s) if s < _SERIES_IS_NEAR else -math.expm1(-1 - x)
    for _ in range(_ENOUGH_STEPS):
        u -= (-math.log1p(-u) - u - x) * (1 - u) / u
    return u


def _series(s: float) -> float:
    return s - s**2 / 3 + s**3 / 36 + s**4 / 270


def _seconds(cost: timedelta, mtbf: timedelta) -> tuple[float, float]:
    if cost < _ZERO or mtbf <= _ZERO:
        raise Misused(
            "A checkpoint's cost can not be negative and the mean time between failures must be above 0, "
            f"not {format_duration(cost)} and {format_duration(mtbf)}."
        )
    return cost.total_seconds(), mtbf.total_seconds()


def _median(costs: Sequence[timedelta]) -> timedelta:
    if not costs:
        raise Misused("Without a completed checkpoint nobody knows what one costs: ask again after the first.")
    ordered = sorted(costs)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def _mean_uptime(uptimes: Sequence[timedelta], failures: int) -> timedelta:
    total = sum(uptimes, _ZERO)
    if total <= _ZERO or min(uptimes) < _ZERO or failures < 0:
        raise Misused(f"{failures} failures in {format_duration(total)} say nothing: hand in the uptimes of attempts.")
    return total / max(failures, 1)


def _clamp(best: timedelta, bounds: tuple[timedelta, timedelta]) -> timedelta:
    least, most = bounds
    if not _ZERO < least <= most:
        raise Misused(f"The bounds {format_duration(least)} to {format_duration(most)} leave no interval to advise.")
    return min(max(best, least), most)


def _what(interval: timedelta, best: timedelta) -> str:
    if interval == best:
        return f"Every {approximate(best)}"
    limit = "shortest" if interval > best else "longest"
    return f"Every {approximate(interval)}, the {limit} allowed ({approximate(best)} would be best)"


def _because(cost: timedelta, mtbf: timedelta, failures: int) -> str:
    price = f"a checkpoint costs {approximate(cost)}"
    if not failures:
        return f"{price} and nothing has failed in {approximate(mtbf)} yet, so this may be more often than needed"
    times = "once" if failures == 1 else f"{failures} times"
    return f"{price} and the pipeline failed {times}, every {approximate(mtbf)} on average"
