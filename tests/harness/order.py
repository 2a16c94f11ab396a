"""Which process runs which test when: the longest first, so that all of them end at about the same time.

`expected_seconds.txt` says what each of the longer tests took; `python -m tests.harness.order table.md` writes it anew
from the table of `make test DURATIONS=table.md`. A slow test of a file that it does not name counts as a minute.
"""

import re
import sys
from pathlib import Path

import pytest
from xdist.scheduler.loadscope import LoadScopeScheduling

FILE = Path(__file__).with_name("expected_seconds.txt")
WHOLE_AIRFLOW = frozenset(
    {
        "tests/airflow/test_alerting.py",
        "tests/airflow/test_chaos.py",
        "tests/airflow/test_end_to_end.py",
        "tests/ui/test_browser.py",
        "tests/ui/test_browser_spark.py",
    }
)
WORTH_NAMING = 2.0  # seconds
UNKNOWN_SLOW = 60.0


def longest_first(items: list[pytest.Item]) -> None:
    known = _read()
    files = {_file(test) for test in known}
    items.sort(key=lambda item: (not _runs_airflow(item.nodeid), -_expected(item, known, files)))


class OneAirflow(LoadScopeScheduling):  # type: ignore[misc] # xdist has no types
    """One process runs the tests with a whole Airflow, one after the other; the others take the next of the rest.

    A whole Airflow and a Spark driver keep two cores busy: two of them at once only make each other late.
    """

    def _split_scope(self, nodeid: str) -> str:
        return "a whole Airflow" if _runs_airflow(nodeid) else nodeid


def write(table: str) -> None:
    """Take over what the tests of a table took."""
    rows = re.findall(r"^\| `(tests/.*)` \| 1 \| ([\d.]+) \|", table, re.MULTILINE)
    worth = sorted(((float(took), test) for test, took in rows if float(took) >= WORTH_NAMING), reverse=True)
    FILE.write_text("".join(f"{took:.0f} {test}\n" for took, test in worth))


def _read() -> dict[str, float]:
    lines = FILE.read_text().splitlines() if FILE.exists() else []
    return {test: float(took) for took, test in (line.split(" ", 1) for line in lines)}


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def _runs_airflow(nodeid: str) -> bool:
    return _file(nodeid) in WHOLE_AIRFLOW


def _expected(item: pytest.Item, known: dict[str, float], files: set[str]) -> float:
    is_new = _file(item.nodeid) not in files
    return known.get(item.nodeid, UNKNOWN_SLOW if is_new and item.get_closest_marker("slow") else 0.0)


if __name__ == "__main__":
    write(Path(sys.argv[1]).read_text())
