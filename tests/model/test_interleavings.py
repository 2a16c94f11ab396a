"""Every interleaving of a few actors on the shipped code, and every crash between two of their calls.

Small scenarios are visited whole in every run. Of a large one the gate visits a part, another one every day, and all of
it every fifth day; others recover from a fifth of the states, in five days from each. How many it were is printed at
the end of the run. The last tests drop a WHERE clause on purpose: the checker must find it, or it would be no check.
"""

from collections.abc import Callable, Mapping

import pytest
import sqlalchemy as sa

from airflow_provider_ckpt.metastore import acks, barriers, guards
from airflow_provider_ckpt.protocol import triggering
from airflow_provider_ckpt.protocol.phases import Phase
from tests.harness import campaign
from tests.model.checker import Program, Search, Violation, World
from tests.model.world import (
    agent,
    check,
    check_safety,
    cleans,
    clock,
    commits,
    completes,
    judges,
    pins,
    prepare,
    recover,
    restores,
    reusing_agent,
    times_out,
    triggers,
)

pytestmark = pytest.mark.slow

Scenario = tuple[Mapping[str, Program], Callable[[World], None], Callable[[World], None] | None]

SCENARIOS: dict[str, Scenario] = {
    "two triggers, acks, a time-out and a completer": (
        {
            "trigger a": triggers("a"),
            "trigger b": triggers("b"),
            "agent": agent(),
            "completer": completes,
            "clock": times_out,
        },
        prepare(completed=1),
        recover(),
    ),
    "a participant declines": (
        {"trigger": triggers("a"), "agent": agent(declines=True), "completer": completes, "clock": times_out},
        prepare(completed=1),
        recover(),
    ),
    "a sink commits": (
        {"trigger": triggers("a"), "agent": agent(with_sink=True), "completer": completes, "clock": times_out},
        prepare(completed=1, with_sink=True),
        recover(with_sink=True),
    ),
    "a cleanup, which may pause past its lease, against a checkpoint": (
        {
            "trigger": triggers("a"),
            "agent": agent(after=2),
            "completer": completes,
            "cleaner": cleans,
            "clock": clock(minutes=3),
        },
        prepare(completed=2),
        recover(),
    ),
    "a cleanup against a driver that builds on what it lets go": (
        {
            "trigger": triggers("a"),
            "agent": reusing_agent(1),
            "completer": completes,
            "cleaner": cleans,
            "clock": clock(minutes=3),
        },
        prepare(completed=2),
        recover(),
    ),
    "a cleanup against a pin and a verification that finds the newest corrupt": (
        {"pin": pins(1), "verify": judges(2), "cleaner": cleans, "clock": clock(minutes=3)},
        prepare(completed=2),
        None,  # once the old one is gone and the new one is corrupt, nobody can restore
    ),
    "a restore against a checkpoint of the old attempt": (
        {"trigger": triggers("a"), "agent": agent(), "completer": completes, "restore": restores()},
        prepare(completed=1),
        recover(),
    ),
    "a restore finishes or fails the old attempt's commit": (
        {"old driver": commits(2), "completer": completes, "restore": restores(with_sink=True)},
        prepare(completed=1, with_sink=True, flying=Phase.IN_PROGRESS),
        recover(with_sink=True),
    ),
    "a restore that does not reach the sink leaves its commit to the next driver": (
        {"old driver": commits(2), "restore": restores(with_sink=True, reaches_sink=False), "clock": clock(minutes=3)},
        prepare(completed=1, with_sink=True, flying=Phase.COMMITTING),
        recover(with_sink=True),
    ),
    "a restore against a cleanup": (
        {"cleaner": cleans, "restore": restores()},
        prepare(completed=2),
        recover(),
    ),
    "a rewind against a cleanup": (
        {"cleaner": cleans, "rewind": restores(to=1)},
        prepare(completed=3, kept=3),
        recover(),
    ),
    "a rewind, and another failure and restore at any moment of it": (
        {"rewind": restores(to=1), "restore": restores(claim="third"), "clock": clock(minutes=3)},
        prepare(completed=2, kept=2),
        recover(),
    ),
    "after a rewind another failure, and the restore against a cleanup": (
        {"cleaner": cleans, "restore": restores(claim="third")},
        prepare(completed=2, kept=1, rewound_to=1),
        recover(),
    ),
    "two restores at once": (
        {"one": restores(claim="one"), "two": restores(claim="two"), "clock": clock(minutes=3)},
        prepare(completed=1),
        recover(),
    ),
}


WITHOUT_LEASES = "safety does not rest on leases"
LARGE = (  # one of them is visited whole each day
    "two restores at once",
    "a rewind, and another failure and restore at any moment of it",
    "a cleanup against a driver that builds on what it lets go",
    "a cleanup, which may pause past its lease, against a checkpoint",
    WITHOUT_LEASES,
)
PART = 2000  # different moves: some seconds


def _is_recovered(number: int) -> bool:
    return campaign.is_turn(number, of=5)


def _most_moves(scenario: str) -> int | None:
    """None: all of them."""
    return None if scenario not in LARGE or campaign.is_turn(LARGE.index(scenario), of=len(LARGE)) else PART


@pytest.mark.campaign
@pytest.mark.parametrize("name", SCENARIOS)
def test_no_interleaving_and_no_crash_breaks_an_invariant(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    programs, prepare_world, recover_world = SCENARIOS[name]
    quiet = frozenset() if cleans in programs.values() else frozenset({"storage.read", "storage.open"})
    search = Search(
        programs=programs,
        prepare=prepare_world,
        check=check,
        recover=recover_world,
        quiet=quiet,
        is_recovered=_is_recovered,
        chance=campaign.chance(name),
        most_moves=_most_moves(name),
    ).run()
    record_property(
        "model checker",
        f"{name}: {'a part, ' if search.is_cut_short else ''}{search.states:,} states by {search.steps:,} steps, "
        f"recovered from {search.recoveries:,} of {len(search.worlds):,} states of store and storage",
    )
    assert search.states > len(programs)


def _true(*_: object) -> sa.ColumnElement[bool]:
    return sa.true()


def _drop_phase_of_decision(patch: pytest.MonkeyPatch) -> None:
    original = guards.may_become
    patch.setattr(guards, "may_become", lambda to: _true() if to is Phase.COMMITTING else original(to))


def _drop_conditions_of_acks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(guards, "accepts_acks", _true)
    patch.setattr(acks, "_acceptance", acks._acceptance.__wrapped__)  # it is made once, and was made before


MUTANTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    "decide without looking at the phase": (
        _drop_phase_of_decision,
        "two triggers, acks, a time-out and a completer",
    ),
    "accept acks of whatever has ended": (
        _drop_conditions_of_acks,
        "two triggers, acks, a time-out and a completer",
    ),
    "complete before every sink has committed": (
        lambda patch: patch.setattr(guards, "every_sink_done", _true),
        "a sink commits",
    ),
    "condemn by a plan that is out of date": (
        lambda patch: patch.setattr(guards, "has_revision", _true),
        "a cleanup against a pin and a verification that finds the newest corrupt",
    ),
    "build on a base that is condemned": (
        lambda patch: patch.setattr(barriers, "_are_bases_safe", lambda *_: True),
        "a cleanup against a driver that builds on what it lets go",
    ),
    "clean up while a checkpoint is in flight": (
        lambda patch: patch.setattr(guards, "none_in_flight", _true),
        "a cleanup, which may pause past its lease, against a checkpoint",
    ),
    "trigger while a cleanup works": (
        lambda patch: patch.setattr(triggering, "_cleanup_first", lambda *_: None),
        "a cleanup, which may pause past its lease, against a checkpoint",
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_checker_finds_a_condition_that_was_dropped_on_purpose(
    mutant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drop, scenario = MUTANTS[mutant]
    programs, prepare_world, recover_world = SCENARIOS[scenario]
    drop(monkeypatch)
    search = Search(programs=programs, prepare=prepare_world, check=check, recover=recover_world)
    with pytest.raises(Violation, match="after"):
        search.run()


@pytest.mark.campaign
def test_safety_does_not_rest_on_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cleaner that takes no notice of having lost its lease still deletes nothing that anybody needs."""
    monkeypatch.setattr(guards, "holds", _true)
    name = "a cleanup against a driver that builds on what it lets go"
    programs, prepare_world, recover_world = SCENARIOS[name]
    search = Search(
        programs=programs,
        prepare=prepare_world,
        check=check_safety,
        recover=recover_world,
        is_recovered=_is_recovered,
        chance=campaign.chance(name),
        most_moves=_most_moves(WITHOUT_LEASES),
    ).run()
    assert search.states > 1000
