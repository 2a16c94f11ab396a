"""Metrics arrive at a real StatsD listener: Airflow's way, and the driver's own."""

import re
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_provider_ckpt.protocol import metrics
from airflow_provider_ckpt.protocol.errors import Misused
from airflow_provider_ckpt.protocol.reasons import FailureReason
from airflow_provider_ckpt.spark.statsd import to_statsd
from tests.house import NAME, House
from tests.receivers import a_listener

_DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"


def all_metrics(house: House) -> list[metrics.Metric]:
    driver = house.pipeline()
    ref = house.checkpoint(driver)
    failing = house.in_flight(driver)
    house.store.checkpoints.fail(failing, FailureReason.DECLINED, "no room", actor="tester")
    measure = house.store.checkpoints.measure(ref)
    assert measure is not None
    return [
        *metrics.of_completed(house.get(ref), new_bytes=measure.new_bytes, full_bytes=measure.full_bytes),
        *metrics.of_failed(house.get(failing)),
        *metrics.of_skipped(NAME, "in-flight"),
        *metrics.of_look(NAME, age=timedelta(seconds=90), recovery_point=timedelta(minutes=15), problems=2),
        *metrics.of_restored(NAME, "tip"),
        *metrics.of_cleaned(NAME, discarded=1, files=3, size=4096),
        *metrics.of_driver(NAME, {"checkpoints": 1, "declined": 1, "fenced": 1}, {"capture": 0.25, "persist": 0.5}),
    ]


def test_everything_arrives_at_a_statsd_listener(house: House) -> None:
    wanted = all_metrics(house)
    with a_listener() as listener:
        to_statsd(listener.address)(wanted)
        heard = listener.heard(len(wanted))
    assert set(heard) == {each.name for each in wanted}
    assert heard[f"ckpt.{NAME}.checkpoint.completed"] == "1|c"
    assert heard[f"ckpt.{NAME}.checkpoint.age"] == "90.0|g"
    assert heard[f"ckpt.{NAME}.driver.capture"] == "250.000000|ms"


def test_the_document_has_every_name_and_no_other(house: House) -> None:
    names = {each.name.removeprefix(f"ckpt.{NAME}.") for each in all_metrics(house)}
    general = {re.sub(r"^(checkpoint.failed|trigger.skipped|restored)\..*", r"\1.<", name) for name in names}
    rows = re.findall(r"^\| `([^`]+)`", _DOCUMENT.read_text(), re.MULTILINE)
    shown = {name.partition("<")[0] + "<" * ("<" in name) for name in rows}
    assert shown == general


def test_a_server_that_is_not_there_harms_no_checkpoint(caplog: pytest.LogCaptureFixture) -> None:
    to_statsd("no-such-host.invalid:8125")(metrics.of_restored(NAME, "tip"))
    assert "Metrics are lost" in caplog.text


@pytest.mark.parametrize("address", ["localhost", "localhost:", ":8125", "localhost:99999", "localhost:²"])
def test_an_address_that_can_not_be_is_refused(address: str) -> None:
    with pytest.raises(Misused, match="host:port"):
        to_statsd(address)
