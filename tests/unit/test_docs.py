"""What the documents show is true."""

import re
from pathlib import Path

import pytest

from airflow_provider_ckpt.cli.exit_codes import ExitCode
from airflow_provider_ckpt.cli.parser import build_parser
from airflow_provider_ckpt.protocol.settings import Settings, change_settings

_ROOT = Path(__file__).parents[2]


def test_the_snippet_of_the_test_kit_runs() -> None:
    (snippet,) = re.findall(r"```python\n(.*?)```", (_ROOT / "docs/testing.md").read_text(), re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(snippet, "docs/testing.md", "exec"), names)
    assert "truth" in names


@pytest.mark.parametrize(
    "document", ["README.md", "docs/airflow.md", "docs/operating.md", "docs/spark.md", "docs/sinks.md", "docs/page.md"]
)
def test_every_command_that_a_document_shows_exists(document: str) -> None:
    text = (_ROOT / document).read_text()
    shown = set(re.findall(r"(?:\$ |`)(?:airflow )?ckpt ([a-z]+)", text))
    known = set(re.findall(r"^    ([a-z]+) ", build_parser().format_help(), re.MULTILINE))
    assert shown
    assert shown <= known


def test_every_setting_that_the_documents_name_exists() -> None:
    text = (_ROOT / "docs/operating.md").read_text().split("## Settings")[1].split("## Exit codes")[0]
    names = {name for row in re.findall(r"^\| (`.*?) \|", text, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    values = {"restart": "none", "tolerable_failures": "1", "keep_events": "1d", "keep_audit": "1d"}
    for name in names:
        value = values.get(name, "1" if name.startswith("keep_") and name != "keep_age" else "1h")
        assert isinstance(change_settings(Settings(), {name: value}), Settings)


def test_the_exit_codes_of_the_documents_are_the_real_ones() -> None:
    text = (_ROOT / "docs/operating.md").read_text().split("## Exit codes")[1]
    assert {int(code) for code in re.findall(r"\b(\d+) ", text)} == {int(code) for code in ExitCode}
