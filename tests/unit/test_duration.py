"""Durations as people write them."""

from datetime import timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airflow_provider_ckpt.protocol.duration import approximate, check_duration, format_duration, parse_duration
from airflow_provider_ckpt.protocol.errors import Misused

quick = settings(max_examples=40, deadline=None)

MOST_MILLISECONDS = timedelta.max // timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("90s", timedelta(seconds=90)),
        ("5m", timedelta(minutes=5)),
        ("1h30m", timedelta(minutes=90)),
        ("2d", timedelta(days=2)),
        ("1w", timedelta(weeks=1)),
        ("250ms", timedelta(milliseconds=250)),
        ("1m250ms", timedelta(minutes=1, milliseconds=250)),
        ("0s", timedelta()),
    ],
)
def test_a_duration_reads_as_people_write_it(text: str, duration: timedelta) -> None:
    assert parse_duration(text) == duration


@pytest.mark.parametrize(
    "text",
    ["", " ", "5", "m", "-5m", "5m-3s", "+5m", "1.5h", "5 m", "1h 30m", "30m1h", "1h1h", "5M", "5min", "5m\n", "٥m"],
)
def test_anything_else_is_misused_and_the_error_gives_an_example(text: str) -> None:
    with pytest.raises(Misused, match="such as '1h30m'"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["999999999999999w", "142857143w", "9" * 15 + "d"])
def test_a_duration_beyond_counting_is_misused(text: str) -> None:
    with pytest.raises(Misused, match="beyond counting"):
        parse_duration(text)


def test_a_number_of_absurd_length_is_misused() -> None:
    with pytest.raises(Misused, match="is not a duration"):
        parse_duration("9" * 10_000 + "s")


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(), "0s"),
        (timedelta(milliseconds=250), "250ms"),
        (timedelta(seconds=90), "1m30s"),
        (timedelta(minutes=90), "1h30m"),
        (timedelta(days=10), "10d"),
        (timedelta(days=14), "2w"),
        (timedelta(microseconds=1999), "1ms"),
        (timedelta(microseconds=3), "0s"),
        (-timedelta(minutes=5), "-5m"),
    ],
)
def test_a_duration_is_written_compactly(duration: timedelta, text: str) -> None:
    assert format_duration(duration) == text


@quick
@given(st.integers(min_value=0, max_value=MOST_MILLISECONDS))
@example(MOST_MILLISECONDS)
def test_what_is_written_reads_back_the_same(milliseconds: int) -> None:
    duration = timedelta(milliseconds=1) * milliseconds
    assert parse_duration(format_duration(duration)) == duration


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(days=3, hours=2, minutes=40), "3d3h"),
        (timedelta(minutes=116.69), "1h57m"),
        (timedelta(minutes=9.14), "9m8s"),
        (timedelta(seconds=3.2501), "3s250ms"),
        (timedelta(microseconds=400), "0s"),
    ],
)
def test_a_measured_duration_is_rounded_to_what_matters_at_its_length(duration: timedelta, text: str) -> None:
    assert approximate(duration) == text


@pytest.mark.parametrize("duration", [timedelta(seconds=-1), timedelta(days=40_000), timedelta(microseconds=1500)])
def test_a_duration_that_can_not_be_kept_is_misused_by_name(duration: timedelta) -> None:
    with pytest.raises(Misused, match="The delay must be"):
        check_duration("The delay", duration)
