"""The life of a checkpoint: the table is what the rules say, and `advance` is what the table says."""

from itertools import pairwise, product

import pytest

from airflow_provider_ckpt.protocol import phases
from airflow_provider_ckpt.protocol.errors import Misused
from airflow_provider_ckpt.protocol.phases import ENDED, IN_FLIGHT, TRANSITIONS, UNDECIDED, Phase, advance, sources_of

STEPS = [(current, to) for current, following in TRANSITIONS.items() for to in sorted(following)]
NO_STEPS = [pair for pair in product(Phase, Phase) if pair not in STEPS]


def _reachable(start: Phase) -> set[Phase]:
    found: set[Phase] = set()
    waiting = [start]
    while waiting:
        following = TRANSITIONS[waiting.pop()] - found
        found |= following
        waiting.extend(following)
    return found


def test_every_phase_has_a_row_in_the_table() -> None:
    assert set(TRANSITIONS) == set(Phase)


def test_only_failed_and_discarded_are_final() -> None:
    final = {phase for phase, following in TRANSITIONS.items() if not following}
    assert final == {Phase.FAILED, Phase.DISCARDED}


def test_every_phase_is_reached_from_triggered_and_none_comes_back() -> None:
    assert _reachable(Phase.TRIGGERED) == set(Phase) - {Phase.TRIGGERED}
    assert [phase for phase in Phase if phase in _reachable(phase)] == []


def test_what_is_decided_never_fails_and_always_ends() -> None:
    assert TRANSITIONS[Phase.COMMITTING] == {Phase.COMPLETED}
    assert Phase.FAILED not in _reachable(Phase.COMMITTING)


def test_only_what_is_undecided_can_fail() -> None:
    assert sources_of(Phase.FAILED) == UNDECIDED == {Phase.TRIGGERED, Phase.IN_PROGRESS}


def test_a_checkpoint_is_either_in_flight_or_ended() -> None:
    assert set(Phase) == IN_FLIGHT | ENDED
    assert not IN_FLIGHT & ENDED
    assert IN_FLIGHT - {Phase.COMMITTING} == UNDECIDED


@pytest.mark.parametrize(("current", "to"), STEPS)
def test_advance_goes_where_the_table_allows(current: Phase, to: Phase) -> None:
    assert advance(current, to) is to
    assert current in sources_of(to)


@pytest.mark.parametrize(("current", "to"), NO_STEPS)
def test_advance_goes_nowhere_else_and_names_what_is_allowed(current: Phase, to: Phase) -> None:
    with pytest.raises(Misused) as refused:
        advance(current, to)
    said, allowed = str(refused.value).split("; ")
    assert said == f"A checkpoint can not go from {current} to {to}"
    for phase in Phase:
        assert (phase in allowed.removeprefix(f"after {current} comes ")) == (phase in TRANSITIONS[current])
    assert current not in sources_of(to)


def test_the_error_after_the_last_phase_says_that_it_is_final() -> None:
    with pytest.raises(Misused, match="after FAILED comes nothing: it is final"):
        advance(Phase.FAILED, Phase.TRIGGERED)


def test_the_diagram_in_the_docstring_is_the_table() -> None:
    main, failing = [line for line in (phases.__doc__ or "").splitlines() if "►" in line]
    chain = [Phase(word.strip()) for word in main.split("──►")]
    to_failed = {_above(main, failing.index("└")), _above(main, failing.index("┘"))}
    drawn = {*pairwise(chain), *((phase, Phase(failing.split()[1])) for phase in to_failed)}
    assert drawn == set(STEPS)


def _above(line: str, column: int) -> Phase:
    start, end = line.rfind(" ", 0, column) + 1, line.find(" ", column)
    return Phase(line[start:end])
