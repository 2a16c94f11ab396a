"""What is random or exhaustive: a small share of it in the gate, another one every day; all of it in `make test-long`.

The seed is the day, unless `SEED` says another; it is printed, and the same seed gives the same share. Cases are dealt
out like cards: with `of=6`, six days in a row run every case once. `make test-long MINUTES=…` runs every case, larger
sizes, and one seed after the other until the time is over.
"""

import os
import random
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypeVar

import pytest

SEED, LONG_UNTIL = "SEED", "CKPT_TEST_LONG_UNTIL"  # in the environment: all processes of a run agree on them
_Case = TypeVar("_Case")
_Size = TypeVar("_Size")


def settle() -> None:
    """In the first process of a run: from here on the seed is in the environment."""
    os.environ[SEED] = os.environ.get(SEED) or str(datetime.now(UTC).date().toordinal())


def seed() -> int:
    return int(os.environ[SEED])


def is_long() -> bool:
    return LONG_UNTIL in os.environ


def chance(name: str) -> random.Random:
    """Random numbers for one purpose: the same in every run with this seed."""
    return random.Random(f"{seed()} {name}")


def size(gate: _Size, long: _Size) -> _Size:
    return long if is_long() else gate


def share(cases: Sequence[_Case], of: int) -> list[_Case]:
    """The cases whose turn it is, in their order; all of them in a long run."""
    return list(cases) if is_long() else [case for turn, case in enumerate(cases) if is_turn(turn, of)]


def orders_of_two() -> pytest.MarkDecorator:
    """An old driver and a new one, of which either may write first: one of the two in the gate, both in a long run."""
    orders = {"the old one writes first": True, "the new one writes first": False}
    return pytest.mark.parametrize(
        "old_first", [pytest.param(orders[name], id=name) for name in share([*orders], of=2)]
    )


def is_turn(number: int, of: int) -> bool:
    """Whether it is the turn of the case with this number."""
    return is_long() or (number - seed()) % of == 0


def headline() -> str:
    return f"seed: {seed()} (SEED={seed()} repeats what is random)"


def skip_when_time_is_over() -> None:
    """A long run starts nothing new when its minutes are over."""
    if is_long() and time.time() > float(os.environ[LONG_UNTIL]):
        pytest.skip(f"MINUTES are over: SEED={seed()} was not run to its end")
