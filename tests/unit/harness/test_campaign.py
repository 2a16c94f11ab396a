"""Shares of the gate: the same for a seed, and nothing is left out for good."""

import pytest

from tests.harness import campaign


def _with_seed(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setenv(campaign.SEED, str(seed))
    monkeypatch.delenv(campaign.LONG_UNTIL, raising=False)


@pytest.mark.parametrize("of", [2, 4, 5])
def test_as_many_days_as_there_are_shares_run_every_case_once(monkeypatch: pytest.MonkeyPatch, of: int) -> None:
    cases = list(range(18))
    ran: list[int] = []
    for day in range(739_000, 739_000 + of):
        _with_seed(monkeypatch, day)
        ran += campaign.share(cases, of)
    assert sorted(ran) == cases


def test_a_long_run_has_all_cases_and_the_larger_size(monkeypatch: pytest.MonkeyPatch) -> None:
    _with_seed(monkeypatch, 7)
    assert campaign.size(gate=1, long=9) == 1
    monkeypatch.setenv(campaign.LONG_UNTIL, "1e12")
    assert campaign.share("abc", of=3) == ["a", "b", "c"]
    assert campaign.size(gate=1, long=9) == 9


def test_the_same_seed_gives_the_same_numbers_and_another_gives_others(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = []
    for seed in (7, 7, 8):
        _with_seed(monkeypatch, seed)
        numbers.append(campaign.chance("moments").random())
    assert numbers[0] == numbers[1] != numbers[2]


def test_a_long_run_starts_nothing_when_its_minutes_are_over(monkeypatch: pytest.MonkeyPatch) -> None:
    _with_seed(monkeypatch, 7)
    monkeypatch.setenv(campaign.LONG_UNTIL, "1")
    with pytest.raises(pytest.skip.Exception, match="SEED=7 was not run to its end"):
        campaign.skip_when_time_is_over()
    monkeypatch.delenv(campaign.LONG_UNTIL)
    campaign.skip_when_time_is_over()
