"""Where the page is, and from an operator to the checkpoint that it works on."""

from typing import Any
from urllib.parse import quote, urlsplit

from airflow.sdk import BaseOperatorLink, conf

PREFIX = "/ckpt"  # where the app is mounted
ROUTE = "checkpoints"  # the page's place in Airflow's UI


def base_path() -> str:
    """The path below which Airflow is served: empty, or as `/airflow`."""
    return urlsplit(_base_url()).path.rstrip("/")


def page_link(place: str) -> str:
    """Opens the page at a place of its own, as `orders/checkpoints/17`."""
    return f"{_base_url().rstrip('/')}/plugin/{ROUTE}{base_path()}{PREFIX}/#/{place}"


class PageLink(BaseOperatorLink):
    """Opens the checkpoint that a task has started or waits for; until it is known, the pipeline."""

    name = "Checkpoint"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        pipeline, checkpoint = quote(str(operator.pipeline)), getattr(operator, "checkpoint", None)
        is_known = str(checkpoint or "").isdecimal()
        return page_link(f"{pipeline}/checkpoints/{checkpoint}" if is_known else pipeline)


def _base_url() -> str:
    return str(conf.get("api", "base_url", fallback="/") or "/")
