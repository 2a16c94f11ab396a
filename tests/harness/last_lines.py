"""A failing test shows the last lines of every process that it started: of every log below its folder."""

from pathlib import Path

import pytest

MOST_LOGS, MOST_LINES = 20, 40


def add_to(report: pytest.TestReport, item: pytest.Item) -> None:
    if report.failed:
        folder = getattr(item, "funcargs", {}).get("tmp_path")
        if isinstance(folder, Path):
            report.sections += [(f"last lines of {name}", text) for name, text in _tails(folder)]


def _tails(folder: Path) -> list[tuple[str, str]]:
    logs = sorted((file for file in folder.rglob("*.log") if file.is_file()), key=lambda file: file.stat().st_mtime)
    return [(str(file.relative_to(folder)), _tail(file)) for file in logs[-MOST_LOGS:]]


def _tail(file: Path) -> str:
    return "\n".join(file.read_text(errors="replace").splitlines()[-MOST_LINES:])
