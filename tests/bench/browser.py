"""The page in a real browser, of a pipeline with 100,000 checkpoints and 5,000 participants, against 100 of each.

A real Airflow serves it, a person has logged in, and Chromium opens a view anew: timed until what they came for is
there to be read.
"""

from collections.abc import Iterator
from contextlib import closing
from functools import partial

from playwright.sync_api import Page

from tests.ui.browsing import new_page
from tests.ui.stage import OpenHouse, browser, find_chromium, log_in

from .databases import Servers
from .measure import Goal, Line, Say, Seconds, Sizes, in_turns, median_of, show, timed
from .ui import FEW, MANY, SMALL, make_history

PAIRS = 9
VIEWS = {
    "overview": ("", "text=If it failed now"),
    "history": ("/history", "main tbody tr >> nth=19"),
    "history, only failed": ("/history?phase=FAILED", "main tbody tr >> nth=8"),
    "trends": ("/trends", "main svg >> nth=0"),
    "attempts": ("/attempts", "main .timeline li"),
    "checkpoint in flight": ("/checkpoints/{flying}", "text=Waiting for 10"),
}


def bench(servers: Servers, sizes: Sizes, say: Say) -> list[Line]:
    if find_chromium() is None:
        say("there is no Chromium: install Debian's package `chromium`, or name a browser in CHROMIUM")
        return []
    database, rows, members = servers.fresh("SQLite"), max(sizes.rows), max(sizes.partitions)
    with closing(database.open()) as store:
        flying = {MANY: make_history(store, MANY, rows, members), FEW: make_history(store, FEW, SMALL, SMALL)}
    dags = database.folder / "dags"
    dags.mkdir()
    airflow = OpenHouse(database.folder / "airflow", dags, database.url, environment={})
    with closing(airflow.store), airflow, browser() as chromium:
        page = new_page(chromium)
        log_in(page, airflow, "ada")
        places = {each: (f"{airflow.url}/ckpt/#/{each}", str(flying[each].id)) for each in (MANY, FEW)}
        return list(_compare(page, places, f"{rows:,} checkpoints, {members:,} participants", say))


def _compare(page: Page, places: dict[str, tuple[str, str]], size: str, say: Say) -> Iterator[Line]:
    for name, (path, wanted) in VIEWS.items():
        large, small = (
            partial(_open, page, base + path.format(flying=flying), wanted)
            for base, flying in (places[MANY], places[FEW])
        )
        large(), small()  # the browser has its files, the server is connected
        pairs = in_turns(large, small, PAIRS)
        say(f"{name}: {show(median_of(pairs.ours))}, of the small one {show(median_of(pairs.theirs))}")
        yield Line(
            what=f"page load in Chromium: {name}, {size}",
            ours=show(median_of(pairs.ours)),
            against=f"{SMALL} of each, {show(median_of(pairs.theirs))}",
            ratio=pairs.slowness,
            goal=Goal(most=2),
        )


def _open(page: Page, address: str, wanted: str) -> Seconds:
    page.goto("about:blank")

    def load() -> None:
        page.goto(address)
        page.locator(wanted).first.wait_for(timeout=60_000)

    return timed(load)
