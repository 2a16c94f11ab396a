"""The blame report names who was missing, doing what, and how often before."""

from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_ckpt.protocol.blame import NAMED, Missing, blame, describe, late_in
from airflow_provider_ckpt.protocol.codec import JsonObject, canonical

quick = settings(max_examples=40, deadline=None)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def _missing(name: str, host: str | None = "worker-3") -> Missing:
    return Missing(name=name, stage="uploading", since=NOON, host=host)


def _report(*names: str, total: int | None = None) -> JsonObject:
    return blame([_missing(name) for name in names], total=len(names) if total is None else total, late_before=[])


def test_a_report_says_who_since_when_where_and_how_often_before() -> None:
    report = blame([_missing("totals/0/3")], total=1, late_before=[["totals/0/3"], ["totals/0/1"], ["totals/0/3"]])
    named = {
        "name": "totals/0/3",
        "stage": "uploading",
        "since": "2026-01-01T12:00:00.000000Z",
        "host": "worker-3",
        "late_before": 2,
    }
    assert report == {"missing": 1, "recent": 3, "named": [named]}


def test_a_checkpoint_that_names_somebody_twice_counts_once() -> None:
    report = blame([_missing("a")], total=1, late_before=[["a", "a"]])
    assert "late in 1 of the last 1" in describe(report)


def test_a_report_names_the_first_fifty_and_counts_all() -> None:
    report = blame([_missing(f"q/{n}") for n in range(NAMED + 7)], total=1_000, late_before=[])
    assert late_in(None, report) == tuple(f"q/{n}" for n in range(NAMED))
    assert (report["missing"], NAMED) == (1_000, 50)


def test_a_report_can_be_written_down() -> None:
    assert canonical(_report("a", "b")).startswith(b'{"missing":2,"named":[{"host":"worker-3",')


def test_the_sentence_names_everything_that_is_known() -> None:
    report = blame([_missing("totals/0/3")], total=1, late_before=[["totals/0/3"], []])
    assert describe(report) == (
        "missing: totals/0/3 (uploading since 2026-01-01T12:00:00.000000Z on worker-3, late in 1 of the last 2)"
    )


def test_the_sentence_leaves_out_what_is_not_known() -> None:
    report = blame([_missing("totals/0/3", host=None)], total=1, late_before=[[], []])
    assert describe(report) == "missing: totals/0/3 (uploading since 2026-01-01T12:00:00.000000Z)"


def test_the_sentence_names_three_and_counts_the_rest() -> None:
    text = describe(_report("a", "b", "c", "d", total=12))
    assert [text.count(f"{name} (uploading") for name in "abcd"] == [1, 1, 1, 0]
    assert text.endswith(" and 9 more")
    assert "more" not in describe(_report("a", "b", "c"))


def test_the_sentence_of_an_empty_report_blames_nobody() -> None:
    assert describe({}) == describe(_report()) == "nobody was missing"


def test_late_are_those_missing_in_a_failed_one_and_the_last_of_a_completed_one() -> None:
    assert late_in("last", _report("a", "b")) == ("a", "b")
    assert late_in("last", None) == late_in("last", {}) == ("last",)
    assert late_in(None, None) == ()


@quick
@given(st.lists(st.sampled_from("abcdef"), max_size=6), st.lists(st.lists(st.sampled_from("abcdef")), max_size=8))
def test_nobody_is_late_more_often_than_there_were_checkpoints(names: list[str], before: list[list[str]]) -> None:
    report = blame([_missing(name) for name in names], total=len(names), late_before=before)
    named = report["named"]
    assert isinstance(named, list)
    assert [each["late_before"] for each in named] == [sum(name in late for late in before) for name in names]
    assert report["recent"] == len(before)
