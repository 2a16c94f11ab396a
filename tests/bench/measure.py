"""What a benchmark measures and how: lines of a table, goals, and runs in pairs whose medians are compared.

Timings on a shared machine drift from minute to minute. Two things are therefore always measured in turns, first the
one, then the other, then the other way round, and what is reported is the median of the ratios of the pairs.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median

Seconds = float
Timed = Callable[[], Seconds]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A bound for a ratio; both bounds are inclusive."""

    least: float | None = None
    most: float | None = None

    def is_met(self, ratio: float) -> bool:
        return (self.least is None or ratio >= self.least) and (self.most is None or ratio <= self.most)

    def __str__(self) -> str:
        return f"≥ {self.least:g}" if self.least is not None else f"≤ {self.most:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of the table."""

    what: str
    ours: str
    against: str
    ratio: float
    goal: Goal | None = None  # None: reported only

    @property
    def is_met(self) -> bool | None:
        return None if self.goal is None else self.goal.is_met(self.ratio)

    def to_json(self) -> dict[str, object]:
        return asdict(self) | {"is_met": self.is_met}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much of everything."""

    participants: int = 20_000
    processes: int = 8
    batch: int = 100
    pairs: int = 5
    flat: tuple[int, ...] = (200, 2_000, 20_000)
    waiting: int = 1_000
    waits: int = 8
    files: int = 10_000
    rows: tuple[int, int] = (1_000, 100_000)
    window: float = 10  # seconds between two checkpoints of a streaming query
    windows: int = 40  # of them with one, that are measured
    warm_up: float = 60  # seconds: Java compiles what it runs often
    live_partitions: int = 200
    partitions: tuple[int, int] = (1_000, 5_000)
    state_mb: int = 1_000  # about, in the files of RocksDB


QUICK = Sizes(
    participants=4_000,
    pairs=1,
    flat=(200, 2_000),
    waiting=200,
    waits=3,
    files=1_000,
    rows=(1_000, 10_000),
    window=5,
    windows=3,
    warm_up=20,
    live_partitions=20,
    partitions=(200, 1_000),
    state_mb=40,
)


# Just enough to run: what is measured then says nothing.
TINY = replace(QUICK, participants=400, processes=2, flat=(50, 100), waiting=20, waits=1, files=100, rows=(100, 200))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Two things measured in turns."""

    ours: tuple[Seconds, ...]
    theirs: tuple[Seconds, ...]

    @property
    def slowness(self) -> float:
        """How many times as long ours takes."""
        return median(ours / theirs for ours, theirs in zip(self.ours, self.theirs, strict=True))

    @property
    def speed(self) -> float:
        """Our rate as a part of theirs."""
        return median(theirs / ours for ours, theirs in zip(self.ours, self.theirs, strict=True))


def in_turns(ours: Timed, theirs: Timed, count: int) -> Pairs:
    """Measure `count` pairs; who goes first changes every time."""
    pairs = [_pair(ours, theirs) if turn % 2 else _pair(theirs, ours)[::-1] for turn in range(count)]
    return Pairs(ours=tuple(pair[0] for pair in pairs), theirs=tuple(pair[1] for pair in pairs))


def timed(work: Callable[[], object]) -> Seconds:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def median_of(times: Sequence[Seconds]) -> Seconds:
    return median(times)


def show(seconds: Seconds) -> str:
    """With a unit that suits."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"


def _pair(first: Timed, second: Timed) -> tuple[Seconds, Seconds]:
    return first(), second()
