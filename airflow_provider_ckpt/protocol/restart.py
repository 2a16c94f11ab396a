"""Whether and when to start a pipeline again after a failure: strategies as data, one pure `decide`.

==================================  ===================================================================================
`fixed(3, 10s)`                     three restarts in all, each 10 seconds after the failure
`rate(3 in 10m, 5s)`                5 seconds after each failure, while there are not more than 3 within 10 minutes
`exponential(5 in 1h)`              longer and longer, while there are not more than 5 failures within an hour
`exponential(5 in 1h, 1s to 1m)`    the same, from one second up to one minute
`none`                              never
==================================  ===================================================================================

An exponential may go on with `factor 1.5`, `jitter 0.2` and `reset 30m`, in this order; `str(strategy)` is the text
that gives an equal strategy back. A decision depends on the failures alone, not on when it is asked for: a pipeline
that was given up stays given up until a person starts it, and whoever asks late waits only for the rest of the delay.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TypeAlias, assert_never

from airflow_provider_ckpt.protocol.duration import check_duration, format_duration, parse_duration
from airflow_provider_ckpt.protocol.errors import Misused

_MILLISECOND = timedelta(milliseconds=1)
_CURE = "repair the cause and start it again."
_INITIAL = timedelta(seconds=1)
_MAXIMUM = timedelta(minutes=5)
_FACTOR = 2.0
_MOST_FACTOR = 1000  # more is a typing error
_JITTER = 0.1
_RESET_AFTER = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoRestart:
    """Every failure is for a person."""

    def __str__(self) -> str:
        return "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedDelay:
    """The same delay each time, `limit` restarts in all."""

    delay: timedelta
    limit: int

    def __post_init__(self) -> None:
        _check_limit(self.limit)
        check_duration("The delay of a restart", self.delay)

    def __str__(self) -> str:
        return f"fixed({self.limit}, {format_duration(self.delay)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialBackoff:
    """A delay that grows with each failure and starts anew after a healthy time, `limit` failures within a window."""

    limit: int
    within: timedelta
    initial: timedelta = _INITIAL
    maximum: timedelta = _MAXIMUM  # before jitter
    factor: float = _FACTOR
    jitter: float = _JITTER  # at most this share of the delay is added
    reset_after: timedelta = _RESET_AFTER  # two failures that far apart are not one trouble

    def __post_init__(self) -> None:
        _check_limit(self.limit)
        check_duration("The window of a restart", self.within, least=_MILLISECOND)
        check_duration("The initial delay of a restart", self.initial, least=_MILLISECOND)
        check_duration("The maximal delay of a restart", self.maximum, least=self.initial)
        check_duration("The healthy time that resets the delay", self.reset_after, least=_MILLISECOND)
        if not (1 <= self.factor <= _MOST_FACTOR and 0 <= self.jitter <= 1):
            growth = f"factor {self.factor} and jitter {self.jitter}"
            raise Misused(f"A restart's factor is from 1 to {_MOST_FACTOR} and its jitter from 0 to 1, not {growth}.")

    def __str__(self) -> str:
        options = [
            f"{self.limit} in {format_duration(self.within)}",
            *([] if (self.initial, self.maximum) == (_INITIAL, _MAXIMUM) else [self._range()]),
            *([] if self.factor == _FACTOR else [f"factor {float(self.factor)!r}"]),
            *([] if self.jitter == _JITTER else [f"jitter {float(self.jitter)!r}"]),
            *([] if self.reset_after == _RESET_AFTER else [f"reset {format_duration(self.reset_after)}"]),
        ]
        return f"exponential({', '.join(options)})"

    def _range(self) -> str:
        return f"{format_duration(self.initial)} to {format_duration(self.maximum)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRate:
    """The same delay each time, while there are not more than `limit` failures within a window."""

    limit: int
    within: timedelta
    delay: timedelta

    def __post_init__(self) -> None:
        _check_limit(self.limit)
        check_duration("The window of a restart", self.within, least=_MILLISECOND)
        check_duration("The delay of a restart", self.delay)

    def __str__(self) -> str:
        return f"rate({self.limit} in {format_duration(self.within)}, {format_duration(self.delay)})"


_Restarting: TypeAlias = FixedDelay | ExponentialBackoff | FailureRate
RestartStrategy: TypeAlias = NoRestart | _Restarting


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    after: timedelta  # from now

    def __post_init__(self) -> None:
        if self.after < timedelta():
            raise Misused(f"Nobody can restart {format_duration(-self.after)} ago.")


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    why: str


RestartDecision: TypeAlias = Restart | GiveUp


def decide(strategy: RestartStrategy, failures: Sequence[datetime], now: datetime, jitter: float) -> RestartDecision:
    """Decide about the last of `failures`.

    :param failures: when the pipeline failed, oldest first, the failure in question last; hand in those since a person
        last started it. Without any there is nothing to wait for.
    :param jitter: a random number from 0 up to, not including, 1.
    """
    if not 0 <= jitter < 1 or any(later < earlier for earlier, later in pairwise(failures)):
        raise Misused(f"Failures are handed in oldest first, with jitter from 0 to below 1, not {jitter}.")
    if not failures:
        return Restart(after=timedelta())
    if isinstance(strategy, NoRestart):
        return GiveUp(why=f"It failed, and {strategy} leaves every failure to a person: {_CURE}")
    if refusal := _refusal(strategy, failures):
        return GiveUp(why=refusal)
    delay = _delay(strategy, failures, jitter)
    return Restart(after=min(max(failures[-1] + delay - now, timedelta()), delay))


def remembered_failures(strategy: RestartStrategy) -> int:
    """How many of the newest failures a decision may depend on."""
    match strategy:
        case NoRestart():
            return 1
        case FixedDelay() | ExponentialBackoff() | FailureRate():
            return strategy.limit + 1
        case _:
            assert_never(strategy)


def parse_restart(text: str) -> RestartStrategy:
    """Read a strategy as people write it, such as `exponential(5 in 1h)`."""
    try:
        for form, build in _FORMS.items():
            if match := form.fullmatch(" ".join(text.split())):
                return build(match)
    except Misused as error:
        raise Misused(f"{text!r:.80} is not a restart strategy: {error} {_USAGE}") from error
    raise Misused(f"{text!r:.80} is not a restart strategy. {_USAGE}")


def _refusal(strategy: _Restarting, failures: Sequence[datetime]) -> str | None:
    match strategy:
        case FixedDelay():
            count, span = len(failures), ""
        case ExponentialBackoff() | FailureRate():
            count, span = _count_within(strategy.within, failures), f" within {format_duration(strategy.within)}"
        case _:
            assert_never(strategy)
    if count <= strategy.limit:
        return None
    return f"It failed {count} times{span}, and {strategy} allows {strategy.limit}: {_CURE}"


def _delay(strategy: _Restarting, failures: Sequence[datetime], jitter: float) -> timedelta:
    match strategy:
        case FixedDelay() | FailureRate():
            return strategy.delay
        case ExponentialBackoff():
            return _backoff(strategy, failures) * (1 + strategy.jitter * jitter)
        case _:
            assert_never(strategy)


def _backoff(strategy: ExponentialBackoff, failures: Sequence[datetime]) -> timedelta:
    delay = strategy.initial
    for earlier, later in pairwise(failures):
        is_healed = later - earlier >= strategy.reset_after
        delay = strategy.initial if is_healed else min(delay * strategy.factor, strategy.maximum)
    return delay


def _count_within(window: timedelta, failures: Sequence[datetime]) -> int:
    return sum(failures[-1] - failure < window for failure in failures)


def _check_limit(limit: int) -> None:
    if limit < 1:
        raise Misused(f"A restart strategy allows at least 1 restart, not {limit}; write 'none' to allow none.")


def _none(_: re.Match[str]) -> NoRestart:
    return NoRestart()


def _fixed(match: re.Match[str]) -> FixedDelay:
    return FixedDelay(limit=int(match["limit"]), delay=parse_duration(match["delay"]))


def _rate(match: re.Match[str]) -> FailureRate:
    within, delay = parse_duration(match["within"]), parse_duration(match["delay"])
    return FailureRate(limit=int(match["limit"]), within=within, delay=delay)


def _exponential(match: re.Match[str]) -> ExponentialBackoff:
    return ExponentialBackoff(
        limit=int(match["limit"]),
        within=parse_duration(match["within"]),
        initial=parse_duration(match["initial"]) if match["initial"] else _INITIAL,
        maximum=parse_duration(match["maximum"]) if match["maximum"] else _MAXIMUM,
        factor=_number(match["factor"]) if match["factor"] else _FACTOR,
        jitter=_number(match["jitter"]) if match["jitter"] else _JITTER,
        reset_after=parse_duration(match["reset"]) if match["reset"] else _RESET_AFTER,
    )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise Misused(f"{text!r:.40} is not a number.") from None


_VALUE = r"[^\s,()]+"
_LIMIT = r"(?P<limit>[0-9]{1,6})"
_RATE = rf"{_LIMIT} in (?P<within>{_VALUE})"
_DELAY = rf", ?(?P<delay>{_VALUE})"
_RANGE = rf"(?:, ?(?P<initial>{_VALUE}) to (?P<maximum>{_VALUE}))?"
_OPTIONS = "".join(rf"(?:, ?{name} (?P<{name}>{_VALUE}))?" for name in ("factor", "jitter", "reset"))
_FORMS: dict[re.Pattern[str], Callable[[re.Match[str]], RestartStrategy]] = {
    re.compile(r"none"): _none,
    re.compile(rf"fixed\({_LIMIT}{_DELAY}\)"): _fixed,
    re.compile(rf"rate\({_RATE}{_DELAY}\)"): _rate,
    re.compile(rf"exponential\({_RATE}{_RANGE}{_OPTIONS}\)"): _exponential,
}
_USAGE = (
    "Write one of: fixed(3, 10s); rate(3 in 10m, 5s); exponential(5 in 1h); exponential(5 in 1h, 1s to 1m), "
    "which may go on with factor 2, jitter 0.1, reset 1h; none."
)
