"""The benchmarks still run: one of them a day, with tiny sizes. What they measure here says nothing."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import campaign

pytestmark = [pytest.mark.slow, pytest.mark.campaign]
ROOT = Path(__file__).parents[2]
WITHOUT_SPARK = ("acks", "flat", "watcher", "cleanup", "complete", "page")


def test_a_benchmark_runs_and_gives_ratios(tmp_path: Path) -> None:
    names = campaign.share(WITHOUT_SPARK, of=len(WITHOUT_SPARK))
    command = [sys.executable, "-m", "tests.bench", *names, "--tiny", "--json", str(tmp_path / "lines.json")]
    with (tmp_path / "bench.log").open("wb") as log:
        ran = subprocess.run(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, check=False)
    assert ran.returncode == 0, f"{names} crashed"
    lines = json.loads((tmp_path / "lines.json").read_text())
    assert lines
    assert all(math.isfinite(line["ratio"]) and line["ratio"] > 0 for line in lines), lines
