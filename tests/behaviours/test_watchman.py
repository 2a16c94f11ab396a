"""The driver's own watch: what nobody else has told is told, once, to a real webhook and a real mail server."""

from http.client import BadStatusLine

import pytest

from airflow_provider_ckpt.coordinator.sla import judge
from airflow_provider_ckpt.protocol.alerts import Alert
from airflow_provider_ckpt.protocol.errors import Misused
from airflow_provider_ckpt.protocol.objectives import Problem, ProblemKind
from airflow_provider_ckpt.protocol.settings import change_settings
from airflow_provider_ckpt.spark.telling import Tell, by_mail, by_webhook
from airflow_provider_ckpt.spark.watchman import Watchman
from tests.house import NAME, SETTINGS, House
from tests.receivers import a_mailbox, a_webhook


def a_stale_pipeline(house: House) -> None:
    house.pipeline(settings=change_settings(SETTINGS, {"recovery_point": "1h", "attempt_ttl": "1000d"}))
    house.pass_time(hours=2)


def a_watchman(house: House, tell: Tell) -> Watchman:
    return Watchman(house.context, NAME, tell, every=60.0)


def test_a_problem_that_lasts_for_two_looks_is_told_once_by_webhook(house: House) -> None:
    a_stale_pipeline(house)
    with a_webhook() as webhook:
        watchman = a_watchman(house, by_webhook(webhook.url))
        watchman.look()
        assert webhook.documents == []
        for _ in range(3):
            watchman.look()
    (heard,) = webhook.documents
    assert (heard["pipeline"], heard["kind"], heard["state"]) == (NAME, "stale", "new")
    assert heard["text"].startswith(f"{NAME}: the newest completed checkpoint may be 1h old")


def test_what_was_seen_once_is_looked_at_again_sooner_so_that_it_is_told_within_two_periods(house: House) -> None:
    told: list[Alert] = []
    house.pipeline(settings=change_settings(SETTINGS, {"recovery_point": "1h", "attempt_ttl": "1000d"}))
    watchman = a_watchman(house, told.append)
    assert watchman.look() == 60.0
    house.pass_time(minutes=61)
    longest = watchman.look() + 60.0  # it broke just after the look before
    assert watchman.look() == 60.0
    assert [each.kind for each in told] == [ProblemKind.STALE]
    assert longest < 2 * 60.0


def test_what_airflow_has_told_is_not_told_again_nor_is_it_over_before_it_is(house: House) -> None:
    a_stale_pipeline(house)
    told: list[Alert] = []
    watchman = a_watchman(house, told.append)
    house.store.alerts.raise_for(NAME, judge(house.context, NAME), actor="the sla Dag")
    for _ in range(3):
        watchman.look()
    assert told == []
    house.store.pipelines.change(
        NAME, lambda settings: change_settings(settings, {"recovery_point": "none"}), actor="tester"
    )
    watchman.look()
    assert told == [], "the sla Dag says first that it is over"
    watchman.look()
    assert [str(each.state) for each in told] == ["over"]


def test_it_does_not_say_that_what_it_can_not_see_is_over(house: House) -> None:
    a_stale_pipeline(house)
    told: list[Alert] = []
    watchman = a_watchman(house, told.append)
    paused = [Problem(kind=ProblemKind.PAUSED, text="the Dag orders__checkpoint is paused")]
    house.store.alerts.raise_for(NAME, paused, actor="the sla Dag", sees={ProblemKind.PAUSED})
    for _ in range(3):
        watchman.look()
    assert [each.kind for each in told] == [ProblemKind.STALE]
    assert ProblemKind.PAUSED in house.store.alerts.open(NAME)


def test_what_did_not_reach_anybody_is_told_again(house: House) -> None:
    a_stale_pipeline(house)
    reached: list[Alert] = []
    calls: list[Alert] = []

    def tell(alert: Alert) -> None:
        calls.append(alert)
        if len(calls) == 1:
            raise BadStatusLine("no HTTP")  # which is no OSError
        reached.append(alert)

    watchman = a_watchman(house, tell)
    for _ in range(4):
        watchman.look()
    assert len(reached) == 1
    assert len(calls) == 2


def test_a_mail_has_the_facts(house: House) -> None:
    a_stale_pipeline(house)
    with a_mailbox() as mailbox:
        watchman = a_watchman(house, by_mail(f"localhost:{mailbox.port}", "ckpt@example.org", "night@example.org"))
        watchman.look()
        watchman.look()
    (mail,) = mailbox.mails
    assert mail["Subject"] == f"[ckpt] {NAME}: stale (new)"
    assert mail["To"] == "night@example.org"
    assert "may be 1h old, and there is none" in mail.get_payload()


def test_a_channel_that_can_not_be_is_refused() -> None:
    with pytest.raises(Misused, match="http"):
        by_webhook("file:///etc/passwd")
    with pytest.raises(Misused, match="host:port"):
        by_mail("localhost", "a@b", "c@d")
    with pytest.raises(Misused, match="at least one address"):
        by_mail("localhost:25", "a@b", "")
