"""What a person does in the page with a browser, whatever the pipeline."""

import pytest
from playwright.sync_api import Browser, Frame, Page, expect

from tests.ui.stage import SUB_PATH, OpenHouse, find_chromium, inside

NEEDS_A_BROWSER = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.skipif(
        find_chromium() is None,
        reason="no Chromium: install Debian's package `chromium`, or name a browser in CHROMIUM",
    ),
]
_PATIENCE = 60_000  # milliseconds


def new_page(chromium: Browser) -> Page:
    expect.set_options(timeout=_PATIENCE)
    return chromium.new_context(viewport={"width": 1360, "height": 900}).new_page()


def go(page: Page, airflow: OpenHouse, place: str) -> Frame:
    """As somebody who was sent the address."""
    page.goto("about:blank")
    page.goto(f"{airflow.url}/plugin/checkpoints{SUB_PATH}/ckpt/#/{place}")
    frame = inside(page)
    expect(frame.locator("main")).not_to_be_empty()
    return frame


def take_a_checkpoint(frame: Frame, reason: str) -> None:
    """From the page of a pipeline, and watch it."""
    frame.get_by_role("button", name="Take a checkpoint").click()
    frame.get_by_label("Reason").fill(reason)
    frame.get_by_role("button", name="Take it").click()
    frame.get_by_role("link", name="Watch it").click()


def take_a_savepoint_and_pin_it(page: Page, airflow: OpenHouse) -> None:
    frame = go(page, airflow, "orders")
    frame.get_by_role("button", name="Savepoint …").click()
    frame.get_by_label("Name").fill("before-release")
    frame.get_by_role("button", name="Take the savepoint").click()
    frame.get_by_role("link", name="Watch it").click()
    expect(frame.get_by_role("heading", name="Savepoint before-release")).to_be_visible()
    frame.get_by_role("button", name="Pin …").click()
    frame.get_by_label("Reason").fill("the release is on Monday")
    frame.get_by_role("button", name="Pin it").click()
    expect(frame.get_by_text("ada: the release is on Monday")).to_be_visible()
    pins = {pin.ref.id: (pin.owner, pin.reason) for pin in airflow.store.pins.of("orders")}
    assert pins[max(pins)] == ("ada", "the release is on Monday")
