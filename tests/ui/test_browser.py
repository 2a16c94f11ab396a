"""A person at a real browser, a real Airflow and a pipeline with a past: from the nav entry to the restored attempt.

With CKPT_SCREENSHOTS=1 the pictures of the documents are made anew, else they go to a temporary folder.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from airflow_provider_ckpt.testing.airflow import until
from tests.airflow.stage import DAGS
from tests.ui import scene
from tests.ui.browsing import NEEDS_A_BROWSER, go, new_page, take_a_checkpoint, take_a_savepoint_and_pin_it
from tests.ui.running import Running
from tests.ui.stage import SUB_PATH, OpenHouse, inside, log_in

pytestmark = NEEDS_A_BROWSER
IMAGES = Path(__file__).parents[2] / "docs" / "images"
SHOWN = ("late-light.png", "late-dark.png", "overview-light.png", "orders-trends-dark.png", "orders-attempts-light.png")
BUTTONS = ("Take a checkpoint", "Savepoint …", "Pin …", "Restore to here …", "Abort …", "Lift …")


@pytest.fixture
def airflow(tmp_path: Path, new_database: Callable[[str], str]) -> OpenHouse:
    dags = tmp_path / "dags"
    shutil.copytree(Path(__file__).parent / "dags", dags)
    for name in ("orders", "orders_restore"):
        shutil.copy(DAGS / f"{name}.py", dags)
    return OpenHouse(tmp_path / "airflow", dags, new_database("sqlite"), environment={"ORDERS_ATTEMPT_TTL": "10s"})


@pytest.fixture
def pictures(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "images"
    folder.mkdir()
    yield folder
    if os.environ.get("CKPT_SCREENSHOTS") == "1":
        for name in SHOWN:
            shutil.copy(folder / name, IMAGES)


def test_a_person_finds_who_is_late_takes_a_savepoint_and_restores(
    airflow: OpenHouse, chromium: Browser, pictures: Path
) -> None:
    past = scene.orders(airflow.metastore_url, airflow.folder / "storage")
    scene.payments(airflow.metastore_url, airflow.folder / "storage").close()
    with closing(airflow.store), closing(past.store), Running(past) as running, airflow:
        page = new_page(chromium)
        log_in(page, airflow, "ada")
        _finds_who_is_late(page, running, pictures)
        take_a_savepoint_and_pin_it(page, airflow)
        _reads_a_blame_report(page, airflow, pictures)
        _works_by_keyboard(page, airflow)
        _restores(page, airflow)
        _looks_at_everything(page, airflow, pictures)
        _tabs_open_at_the_right_place(page, airflow)
        _a_viewer_can_only_look(new_page(chromium), airflow)


def _finds_who_is_late(page: Page, running: Running, pictures: Path) -> None:
    running.hold(scene.LATE)
    page.get_by_role("link", name="Checkpoints").first.click()
    frame = inside(page)
    frame.get_by_role("link", name="orders", exact=True).first.click()
    expect(frame.get_by_text("If it failed now")).to_be_visible()
    shoot(page, pictures / "overview")
    take_a_checkpoint(frame, "to see who is late")
    late = frame.get_by_label("Who is late")
    expect(late.get_by_role("heading")).to_have_text("Waiting for 1")
    expect(late).to_contain_text(f"{scene.LATE} on executor-4: copying for")
    expect(late).to_contain_text("late in 10 of the last 10")
    expect(late).to_contain_text("It fails in")
    assert page.url.endswith(f"/plugin/checkpoints{SUB_PATH}/ckpt/#/orders/checkpoints/41")  # to be sent to somebody
    first = frame.get_by_label("Participants, stragglers first").locator("tbody tr").first
    expect(first).to_contain_text(scene.LATE)
    shoot(page, pictures / "late")
    running.let_go()
    expect(frame.locator("h1 + .badges")).to_contain_text("Completed")


def _reads_a_blame_report(page: Page, airflow: OpenHouse, pictures: Path) -> None:
    frame = go(page, airflow, "orders/history")
    frame.get_by_label("Phase").select_option("Failed")
    frame.get_by_role("link", name="34", exact=True).click()
    blame = frame.get_by_label("Blame report")
    expect(blame).to_contain_text("Failed: timed-out")
    expect(blame).to_contain_text("totals/state/3")
    expect(blame).to_contain_text("executor-4")
    shoot(page, pictures / "blame")


def _works_by_keyboard(page: Page, airflow: OpenHouse) -> None:
    frame = go(page, airflow, "orders")
    opener = frame.get_by_role("button", name="Savepoint …")
    opener.focus()
    page.keyboard.press("Enter")
    expect(frame.get_by_label("Name")).to_be_focused()
    page.keyboard.press("Escape")
    expect(opener).to_be_focused()
    expect(frame.get_by_label("Name")).to_have_count(0)


def _restores(page: Page, airflow: OpenHouse) -> None:
    attempt = airflow.attempt("orders")
    assert attempt is not None
    frame = go(page, airflow, "orders/checkpoints/38")
    frame.get_by_role("button", name="Restore to here …").click()
    expect(frame.get_by_text("of input is processed again.")).to_be_visible()
    expect(frame.get_by_text("will be left behind on a branch.")).to_be_visible()
    expect(frame.get_by_text(f"Attempt {attempt.number} is alive: it is fenced and ends.")).to_be_visible()
    frame.get_by_label("Reason").fill("39 was wrong")
    frame.get_by_role("button", name="Restore to here", exact=True).click()
    expect(frame.get_by_text("The restore has begun.")).to_be_visible()
    frame.get_by_role("button", name="Run of orders__restore").click()
    page.wait_for_url(f"{airflow.url}/dags/orders__restore/runs/**")
    frame = go(page, airflow, "orders/attempts")
    newest = frame.locator(".timeline > li").first
    expect(newest).to_contain_text(f"Attempt {attempt.number + 1}", timeout=180_000)
    expect(newest).to_contain_text("running", timeout=180_000)
    expect(newest).to_contain_text("Rewound to checkpoint 38.")
    asked = airflow.store.events.last("orders", "restore.requested")
    assert asked is not None
    assert (asked.actor, asked.checkpoint, asked.reason) == ("ada", 38, "39 was wrong")
    (run,) = [each for each in airflow.runs("orders__restore") if each["conf"]]
    assert (run["conf"], run["triggering_user_name"]) == ({"to": "38"}, "ada")


def _looks_at_everything(page: Page, airflow: OpenHouse, pictures: Path) -> None:
    """Every view has what it is about; all of them in both themes."""
    views = {
        "": "payments",
        "orders": "If it failed now",
        "orders/history": "before-release",
        "orders/trends": "How long they took",
        "orders/attempts": "its driver ended with exit code -9",
        "orders/storage": "sharing saves",
        "orders/settings": "recovery_point",
        "orders/checkpoints/38": "The cut",
    }
    for place, text in views.items():
        frame = go(page, airflow, place)
        expect(frame.get_by_text(text).first).to_be_visible()
        shoot(page, pictures / (place.replace("/", "-") or "pipelines"))
    frame = go(page, airflow, "orders/storage")
    frame.get_by_role("button", name="What would it delete now?").click()
    expect(frame.get_by_text("would go").first).to_be_visible()
    frame = go(page, airflow, "orders/checkpoints/38")
    frame.get_by_role("button", name="totals/state/11").click()
    expect(frame.get_by_text("capture 40 ms")).to_be_visible()
    expect(frame.get_by_text("holds 2 files")).to_be_visible()
    frame.get_by_role("button", name="Read it from the storage").click()
    expect(frame.get_by_text("attempt 2 up to 38")).to_be_visible()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(2500)
    assert not [url for url in asked if "/ckpt/api/" in url]  # what does not change any more is not asked for again


def _tabs_open_at_the_right_place(page: Page, airflow: OpenHouse) -> None:
    page.goto(f"{airflow.url}/dags/orders__checkpoint")
    open_tab(page)
    expect(inside(page).get_by_role("heading", name="orders")).to_be_visible()
    run = airflow.trigger("orders__checkpoint")
    key = f"airflow orders__checkpoint/{run}/trigger"
    until(lambda: airflow.store.checkpoints.find_triggered("orders", key) is not None, "the run has started it")
    started = airflow.store.checkpoints.find_triggered("orders", key)
    assert started is not None
    page.goto(f"{airflow.url}/dags/orders__checkpoint/runs/{run}")
    open_tab(page)
    expect(inside(page).get_by_role("heading", name=f"Checkpoint {started.ref.id}")).to_be_visible()
    until(lambda: airflow.tasks("orders__checkpoint", run)["trigger"] == "success", "its task has ended")
    links = airflow.get(f"/api/v2/dags/orders__checkpoint/dagRuns/{run}/taskInstances/trigger/links")["extra_links"]
    page.goto(links["Checkpoint"])
    expect(inside(page).get_by_role("heading", name=f"Checkpoint {started.ref.id}")).to_be_visible()
    page.goto(f"{airflow.url}/dags/lonely")
    open_tab(page)
    expect(inside(page).get_by_text("does not look after a checkpointed pipeline")).to_be_visible()


def _a_viewer_can_only_look(page: Page, airflow: OpenHouse) -> None:
    log_in(page, airflow, "vera")
    for place in ("orders", "orders/checkpoints/38", "orders/storage"):
        frame = go(page, airflow, place)
        expect(frame.locator("h1").first).to_be_attached()
        for name in BUTTONS:
            assert frame.get_by_role("button", name=name).count() == 0, (place, name)
    status = frame.evaluate(
        """() => fetch("api/pipelines/orders/checkpoints", {
            method: "POST", body: "{}", headers: {"Content-Type": "application/json", "X-Ckpt-Action": "page"},
        }).then((answer) => answer.status)"""
    )
    assert status == 403


def open_tab(page: Page) -> None:
    """The tab of a Dag or a run, not the nav entry of the same name, which is there before it."""
    page.locator("a[href*='/dags/'][href*='/plugin/']").get_by_text("Checkpoints").click()


def shoot(page: Page, file: Path) -> None:
    """The same place, light and dark."""
    for theme in ("light", "dark"):
        page.evaluate(
            """(theme) => {
                document.documentElement.classList.remove("light", "dark");
                document.documentElement.classList.add(theme);
            }""",
            theme,
        )
        expect(inside(page).locator("html")).to_have_attribute("data-theme", theme)
        page.screenshot(path=file.with_name(f"{file.name}-{theme}.png"))
