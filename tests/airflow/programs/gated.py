"""The example pipeline, which waits where a test wants to meet it, as long as there is a file `<out>/<moment>`."""

import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from airflow_provider_ckpt.coordinator import complete
from airflow_provider_ckpt.spark import attachment, example


def _gated(function: Callable[..., Any], gate: Path) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        while gate.exists():
            time.sleep(0.05)
        return function(*arguments)

    return call


def main(source: str, out: str) -> None:
    for module, name, gate in ((attachment, "run_as_tasks", "before-acks"), (complete, "_decide", "before-decision")):
        setattr(module, name, _gated(getattr(module, name), Path(out) / gate))
    example.main(source, out)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("airflow_provider_ckpt").setLevel(logging.INFO)
    main(*sys.argv[1:])
