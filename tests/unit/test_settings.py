"""What a pipeline's owner can set."""

import json
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from airflow_provider_ckpt.protocol.codec import Json, canonical
from airflow_provider_ckpt.protocol.errors import CkptError, Corrupt, Misused
from airflow_provider_ckpt.protocol.objectives import NAMES as OBJECTIVES
from airflow_provider_ckpt.protocol.objectives import Objectives
from airflow_provider_ckpt.protocol.restart import FixedDelay, NoRestart, parse_restart
from airflow_provider_ckpt.protocol.retention import Retention
from airflow_provider_ckpt.protocol.settings import Settings, change_settings, settings_from_json

quick = examples(max_examples=40, deadline=None)

DURATIONS = [each.name for each in fields(Settings) if isinstance(getattr(Settings(), each.name), timedelta)]
POSITIVE = ["timeout", "attempt_ttl", "claim_timeout", "lease_ttl"]
MONTH = timedelta(days=30)

durations = st.integers(1, MONTH // timedelta(milliseconds=1)).map(lambda count: timedelta(milliseconds=count))
counts = st.integers(0, 1000)
retentions = st.builds(
    Retention,
    last=st.integers(1, 1000),
    max_age=st.none() | durations,
    hourly=counts,
    daily=counts,
    weekly=counts,
    max_bytes=st.none() | st.integers(1, 2**60),
)
restarts = st.sampled_from(["none", "fixed(3, 10s)", "rate(3 in 10m, 5s)", "exponential(5 in 1h, 1s to 1m, reset 30m)"])
all_settings = st.builds(
    Settings,
    **dict.fromkeys(DURATIONS, durations),
    tolerable_failures=counts,
    objectives=st.builds(Objectives, **dict.fromkeys(OBJECTIVES, st.none() | durations)),
    retention=retentions,
    restart=restarts.map(parse_restart),
)


def _with(settings: Settings, name: str, duration: timedelta) -> Settings:
    changed: dict[str, Any] = {name: duration}
    return replace(settings, **changed)


def test_the_defaults_work_and_are_what_the_handbook_says() -> None:
    assert Settings().to_json() == {
        "interval": "5m",
        "min_pause": "0s",
        "timeout": "10m",
        "tolerable_failures": 3,
        "attempt_ttl": "1m",
        "claim_timeout": "10m",
        "lease_ttl": "2m",
        "max_deferral": "10m",
        "orphan_grace": "1h",
        "quarantine": "1d",
        "keep_events": "30d",
        "keep_audit": "365d",
        "objectives": {"recovery_point": None, "max_duration": None, "recovery_time": None, "remind_every": "4h"},
        "retention": Retention().to_json(),
        "restart": "exponential(5 in 1h)",
    }
    assert settings_from_json({}) == Settings()


@quick
@given(all_settings)
def test_settings_read_back_the_same(settings: Settings) -> None:
    assert settings_from_json(json.loads(canonical(settings.to_json()))) == settings


@quick
@given(all_settings)
def test_changing_nothing_changes_nothing(settings: Settings) -> None:
    assert change_settings(settings, {}) == settings


@quick
@given(all_settings, st.sampled_from(DURATIONS))
def test_a_change_leaves_everything_else_as_it_was(settings: Settings, name: str) -> None:
    assert change_settings(settings, {name: "7m"}) == _with(settings, name, timedelta(minutes=7))


def test_what_is_missing_gets_its_default() -> None:
    assert settings_from_json({"timeout": "1h"}) == Settings(timeout=timedelta(hours=1))


def test_what_is_unknown_is_refused_by_name() -> None:
    with pytest.raises(Corrupt, match="settings has unknown fields: colour"):
        settings_from_json({"colour": "red"})


@pytest.mark.parametrize(
    "document",
    [
        *({"timeout": 600}, {"interval": "soon"}, {"restart": None}),
        *({"tolerable_failures": "3"}, {"tolerable_failures": -1}, {"tolerable_failures": True}),
        *({"retention": 10}, {"retention": {**Retention().to_json(), "last": 0}}),
    ],
)
def test_damaged_settings_are_refused_with_a_sentence(document: dict[str, Json]) -> None:
    with pytest.raises(CkptError, match=r"\.$"):
        settings_from_json(document)


@pytest.mark.parametrize("name", DURATIONS)
def test_a_duration_can_not_be_negative(name: str) -> None:
    with pytest.raises(Misused, match=name):
        _with(Settings(), name, -timedelta(seconds=1))


@pytest.mark.parametrize("name", DURATIONS)
def test_what_would_time_out_at_once_can_not_be_zero(name: str) -> None:
    if name in POSITIVE:
        with pytest.raises(Misused, match=f"{name} must be from 1ms"):
            change_settings(Settings(), {name: "0s"})
    else:
        assert getattr(change_settings(Settings(), {name: "0s"}), name) == timedelta(0)


def test_failures_can_not_be_tolerated_less_than_never() -> None:
    with pytest.raises(Misused, match="0 alerts at the first failure"):
        Settings(tolerable_failures=-1)
    assert Settings(tolerable_failures=0).tolerable_failures == 0


@pytest.mark.parametrize("name", DURATIONS)
def test_every_duration_can_be_changed(name: str) -> None:
    assert getattr(change_settings(Settings(), {name: "1h30m"}), name) == timedelta(minutes=90)


def test_the_number_of_tolerable_failures_can_be_changed() -> None:
    assert change_settings(Settings(), {"tolerable_failures": "0"}).tolerable_failures == 0


def test_the_restart_strategy_can_be_changed() -> None:
    assert change_settings(Settings(), {"restart": "none"}).restart == NoRestart()
    fixed = FixedDelay(limit=3, delay=timedelta(seconds=10))
    assert change_settings(Settings(), {"restart": "fixed(3, 10s)"}).restart == fixed


@pytest.mark.parametrize(
    ("name", "text", "retention"),
    [
        ("keep_last", "3", Retention(last=3)),
        ("keep_hourly", "24", Retention(hourly=24)),
        ("keep_daily", "7", Retention(daily=7)),
        ("keep_weekly", "4", Retention(weekly=4)),
        ("keep_bytes", "1000000", Retention(max_bytes=1_000_000)),
        ("keep_age", "2w", Retention(max_age=timedelta(weeks=2))),
    ],
)
def test_every_rule_of_retention_can_be_changed(name: str, text: str, retention: Retention) -> None:
    assert change_settings(Settings(), {name: text}).retention == retention


@pytest.mark.parametrize(
    ("name", "off"),
    [
        ("keep_last", Retention(last=None, max_age=MONTH, hourly=1, daily=1, weekly=1, max_bytes=1)),
        ("keep_hourly", Retention(last=1, max_age=MONTH, hourly=0, daily=1, weekly=1, max_bytes=1)),
        ("keep_daily", Retention(last=1, max_age=MONTH, hourly=1, daily=0, weekly=1, max_bytes=1)),
        ("keep_weekly", Retention(last=1, max_age=MONTH, hourly=1, daily=1, weekly=0, max_bytes=1)),
        ("keep_bytes", Retention(last=1, max_age=MONTH, hourly=1, daily=1, weekly=1, max_bytes=None)),
        ("keep_age", Retention(last=1, max_age=None, hourly=1, daily=1, weekly=1, max_bytes=1)),
    ],
)
def test_none_switches_a_rule_of_retention_off(name: str, off: Retention) -> None:
    full = Settings(retention=Retention(last=1, max_age=MONTH, hourly=1, daily=1, weekly=1, max_bytes=1))
    assert change_settings(full, {name: "none"}).retention == off


def test_several_changes_are_judged_together() -> None:
    changed = change_settings(Settings(), {"keep_last": "none", "keep_daily": "7", "interval": "1m"})
    assert changed == Settings(interval=timedelta(minutes=1), retention=Retention(last=None, daily=7))


def test_a_setting_that_does_not_exist_is_misused_and_all_that_do_are_named() -> None:
    with pytest.raises(Misused, match="There is no setting 'colour'") as refused:
        change_settings(Settings(), {"colour": "red"})
    for name in [*DURATIONS, "tolerable_failures", "restart", "keep_last", "keep_age", "keep_bytes"]:
        assert name in str(refused.value)


@pytest.mark.parametrize("name", ["retention", "last", "", "Interval"])
def test_retention_is_changed_by_its_rules_only(name: str) -> None:
    with pytest.raises(Misused, match="There is no setting"):
        change_settings(Settings(), {name: "5"})


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("interval", "soon", "'soon' is not a duration"),
        ("interval", "-5m", "is not a duration"),
        ("interval", "", "is not a duration"),
        ("tolerable_failures", "many", "needs a whole number, not 'many'"),
        ("tolerable_failures", "-1", "needs a whole number"),
        ("tolerable_failures", "1.5", "needs a whole number"),
        ("keep_last", "ten", "The setting keep_last needs a whole number, not 'ten'"),
        ("keep_last", "0", "at least the last 1"),
        ("keep_last", "none", "keep everything for ever"),
        ("keep_bytes", "0", "at least 1 byte"),
        ("keep_bytes", "1GB", "needs a whole number"),
        ("keep_age", "old", "is not a duration"),
        ("keep_age", "0s", "max_age"),
        ("keep_hourly", "", "needs a whole number"),
        ("restart", "sometimes", "'sometimes' is not a restart strategy"),
        ("timeout", "0s", "timeout must be"),
    ],
)
def test_a_bad_value_is_misused_and_says_so_in_a_sentence(name: str, text: str, why: str) -> None:
    with pytest.raises(Misused, match=why) as refused:
        change_settings(Settings(), {name: text})
    assert str(refused.value).endswith(".")


def test_a_number_of_absurd_length_is_misused() -> None:
    with pytest.raises(Misused):
        change_settings(Settings(), {"keep_last": "9" * 5000})


@pytest.mark.parametrize("name", DURATIONS)
def test_a_duration_beyond_a_century_is_misused(name: str) -> None:
    with pytest.raises(Misused):
        change_settings(Settings(), {name: "9999999w"})


@pytest.mark.parametrize("name", DURATIONS)
def test_a_duration_that_can_not_be_written_down_is_misused(name: str) -> None:
    with pytest.raises(Misused):
        _with(Settings(), name, timedelta(microseconds=1500))
