"""Durations as people write them: `90s`, `5m`, `1h30m`, `2d`, `1w`, `250ms`; nothing finer than a millisecond."""

import re
from datetime import timedelta

from airflow_provider_ckpt.protocol.errors import Misused

_MILLISECOND = timedelta(milliseconds=1)
_CENTURY = timedelta(days=36525)  # longer is a typing error, and times plus durations must stay times
_UNITS = {
    "w": timedelta(weeks=1),
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": _MILLISECOND,
}
_DURATION = re.compile("".join(f"(?:([0-9]{{1,15}}){unit})?" for unit in _UNITS))
_STEPS = (  # from this length on, nobody wants to read more than this
    (timedelta(days=1), timedelta(hours=1)),
    (timedelta(hours=1), timedelta(minutes=1)),
    (timedelta(seconds=10), timedelta(seconds=1)),
)


def parse_duration(text: str) -> timedelta:
    """Read `1h30m`: whole numbers, each unit at most once, the larger first."""
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        raise Misused(f"{text!r:.60} is not a duration: write whole numbers with w, d, h, m, s or ms, such as '1h30m'.")
    try:
        return sum((int(n) * unit for n, unit in zip(match.groups("0"), _UNITS.values(), strict=True)), timedelta())
    except OverflowError as error:
        raise Misused(f"The duration {text!r:.60} is beyond counting: write a shorter one, such as '1w'.") from error


def format_duration(duration: timedelta) -> str:
    """Write `1h30m`, so that `parse_duration` gives the same back; what is finer than a millisecond is left out."""
    if duration < timedelta():
        return "-" + format_duration(-duration)
    left = duration - duration % _MILLISECOND
    if left and not left % _UNITS["w"]:
        return f"{left // _UNITS['w']}w"
    return _spell(left) or "0s"


def approximate(duration: timedelta) -> str:
    """Write a measured duration for people, rounded to what matters at its length: `1h57m` for 116.69 minutes."""
    step = next((step for least, step in _STEPS if abs(duration) >= least), _MILLISECOND)
    return format_duration(round(duration / step) * step)


def check_duration(what: str, duration: timedelta, *, least: timedelta = timedelta()) -> timedelta:
    """Return `duration` when it is from `least` to a century and can be written down without loss."""
    if not least <= duration <= _CENTURY:
        limits = f"{format_duration(least)} to {format_duration(_CENTURY)}"
        raise Misused(f"{what} must be from {limits}, not {format_duration(duration)}.")
    if duration % _MILLISECOND:
        raise Misused(f"{what} must be whole milliseconds, such as {format_duration(duration)}, not {duration}.")
    return duration


def _spell(left: timedelta) -> str:
    parts = []
    for name, unit in list(_UNITS.items())[1:]:  # weeks only when nothing else is needed: 10d reads better than 1w3d
        count, left = divmod(left, unit)
        parts.append(f"{count}{name}" if count else "")
    return "".join(parts)
