"""A person at a real browser, a real Airflow and a real pipeline: Spark runs it, and its storage is what is late."""

import platform
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Frame, Page, expect

from airflow_provider_ckpt.testing.airflow import until
from airflow_provider_ckpt.testing.orders import Orders, Reader
from tests.airflow.test_end_to_end import environment_of, everything_is_published_once, only_dags_of
from tests.ui.browsing import NEEDS_A_BROWSER, go, new_page, take_a_checkpoint, take_a_savepoint_and_pin_it
from tests.ui.stage import OpenHouse, log_in

pytestmark = [*NEEDS_A_BROWSER, pytest.mark.spark]
HOSTILE = Path(__file__).parents[1] / "spark" / "programs" / "hostile"
LATE = "totals/state/0/2"  # a participant, and a part of the paths of its files


@pytest.fixture
def orders(tmp_path: Path) -> Iterator[Orders]:
    (tmp_path / "target").mkdir()
    with Orders(tmp_path / "source", pause=2.0) as orders:
        yield orders


class Pipeline:
    """The example pipeline on Airflow, whose storage can be told not to take the files of one participant."""

    def __init__(self, folder: Path, metastore_url: str) -> None:
        self._mood = folder / "mood"
        environment = {
            **environment_of("orders", folder),
            "ORDERS_CHECKPOINT_SECONDS": "3600",  # whoever takes checkpoints here is a person
            "HOSTILE": str(self._mood),
            "PYTHONPATH": str(HOSTILE),
        }
        self.airflow = OpenHouse(
            folder / "airflow", only_dags_of("orders", folder), metastore_url, environment=environment
        )

    def hold(self, participant: str) -> None:
        self._mood.write_text(f"hold /{participant}/")

    def let_go(self) -> None:
        self._mood.write_text("")

    def give(self, timeout: timedelta) -> None:
        self.airflow.store.pipelines.change(
            "orders", lambda settings: replace(settings, timeout=timeout), actor="tester"
        )


def test_a_person_finds_who_is_late_in_a_spark_pipeline_and_restores_it(
    tmp_path: Path, new_database: Callable[[str], str], chromium: Browser, orders: Orders
) -> None:
    pipeline = Pipeline(tmp_path, new_database("sqlite"))
    airflow = pipeline.airflow
    with closing(airflow.store), airflow:
        airflow.until_running("orders", 1)
        page = new_page(chromium)
        log_in(page, airflow, "ada")
        _finds_who_is_late(page, pipeline)
        _reads_a_blame_report(page, pipeline)
        take_a_savepoint_and_pin_it(page, airflow)
        _restores(page, airflow)
        _publishes_what_is_left(page, airflow, orders, tmp_path / "target" / "published")


def _takes_a_checkpoint(page: Page, airflow: OpenHouse, reason: str) -> Frame:
    frame = go(page, airflow, "orders")
    take_a_checkpoint(frame, reason)
    return frame


def _sees_it_complete(frame: Frame) -> None:
    expect(frame.locator("h1 + .badges")).to_contain_text("Completed")


def _finds_who_is_late(page: Page, pipeline: Pipeline) -> None:
    _sees_it_complete(_takes_a_checkpoint(page, pipeline.airflow, "the first one starts the workers"))
    pipeline.hold(LATE)
    frame = _takes_a_checkpoint(page, pipeline.airflow, "to see who is late")
    late = frame.get_by_label("Who is late")
    expect(late.get_by_role("heading")).to_have_text("Waiting for 1")
    expect(late).to_contain_text(f"{LATE} on {platform.node()}: copying for")
    expect(frame.get_by_label("Participants, stragglers first").locator("tbody tr").first).to_contain_text(LATE)
    pipeline.let_go()
    _sees_it_complete(frame)


def _reads_a_blame_report(page: Page, pipeline: Pipeline) -> None:
    pipeline.give(timedelta(seconds=10))
    pipeline.hold(LATE)
    frame = _takes_a_checkpoint(page, pipeline.airflow, "to see it fail")
    blame = frame.get_by_label("Blame report")
    expect(blame).to_contain_text("Failed: timed-out")
    expect(blame.locator("tbody tr")).to_have_count(1)
    expect(blame).to_contain_text(LATE)
    expect(blame).to_contain_text(platform.node())
    pipeline.let_go()
    pipeline.give(timedelta(minutes=5))


def _restores(page: Page, airflow: OpenHouse) -> None:
    """To the savepoint that is shown."""
    newest = airflow.store.checkpoints.page("orders", limit=1).checkpoints[0].ref
    frame = go(page, airflow, f"orders/checkpoints/{newest.id}")
    _sees_it_complete(frame)
    frame.get_by_role("button", name="Restore to here …").click()
    frame.get_by_label("Reason").fill("to see it again")
    frame.get_by_role("button", name="Restore to here", exact=True).click()
    expect(frame.get_by_text("The restore has begun.")).to_be_visible()
    airflow.until_running("orders", 2)
    newest_attempt = go(page, airflow, "orders/attempts").locator(".timeline > li").first
    expect(newest_attempt).to_contain_text("Attempt 2")
    expect(newest_attempt).to_contain_text("running")
    expect(newest_attempt).to_contain_text(f"Rewound to checkpoint {newest.id}.")


def _publishes_what_is_left(page: Page, airflow: OpenHouse, orders: Orders, table: Path) -> None:
    truth, reader = orders.stop(), Reader(table)

    def is_published() -> bool:
        _sees_it_complete(_takes_a_checkpoint(page, airflow, "to publish what is left"))
        return len(reader.read()) >= truth.total()

    until(is_published, "everything is published", airflow.say)
    everything_is_published_once(airflow, orders, table)
