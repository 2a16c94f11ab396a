"""The longest tests first, so that all processes that run tests end at about the same time.

`expected_seconds.txt` says what each of the longer tests took; `python -m tests.harness.order table.md` writes it anew
from the table of `make test DURATIONS=table.md`. A slow test of a file that it does not name counts as a minute.
"""

import re
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).with_name("expected_seconds.txt")
ONE_AIRFLOW = "airflow"  # the group of tests that run a whole Airflow: one process runs them, one after the other
WORTH_NAMING = 2.0  # seconds
UNKNOWN_SLOW = 60.0


def longest_first(items: list[pytest.Item]) -> None:
    known = _read()
    files = {test.partition("::")[0] for test in known}
    items.sort(key=lambda item: (not _is_in_group(item), -_expected(item, known, files)))


def write(table: str) -> None:
    """Take over what the tests of a table took."""
    rows = re.findall(r"^\| `(tests/.*)` \| 1 \| ([\d.]+) \|", table, re.MULTILINE)
    worth = sorted(((float(took), test) for test, took in rows if float(took) >= WORTH_NAMING), reverse=True)
    FILE.write_text("".join(f"{took:.0f} {test}\n" for took, test in worth))


def _read() -> dict[str, float]:
    lines = FILE.read_text().splitlines() if FILE.exists() else []
    return {test: float(took) for took, test in (line.split(" ", 1) for line in lines)}


def _is_in_group(item: pytest.Item) -> bool:
    return item.get_closest_marker("xdist_group") is not None


def _expected(item: pytest.Item, known: dict[str, float], files: set[str]) -> float:
    is_new = item.nodeid.partition("::")[0] not in files
    return known.get(
        item.nodeid.removesuffix(f"@{ONE_AIRFLOW}"), UNKNOWN_SLOW if is_new and item.get_closest_marker("slow") else 0.0
    )


if __name__ == "__main__":
    write(Path(sys.argv[1]).read_text())
