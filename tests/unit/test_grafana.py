"""The Grafana dashboard shows every metric of the document, by the names that the mapping for statsd_exporter makes."""

import json
import re
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

_DOCS = Path(__file__).parents[2] / "docs"
_BOARD: dict[str, Any] = json.loads((_DOCS / "grafana" / "ckpt.json").read_text())
_MAPPINGS: list[dict[str, Any]] = yaml.safe_load((_DOCS / "grafana" / "statsd-mapping.yaml").read_text())["mappings"]
_ROWS = re.findall(r"^\| `([^`]+)` \| (\w+) \| (\w+)", (_DOCS / "metrics.md").read_text(), re.MULTILINE)
_WIDTH = 24  # columns of a Grafana dashboard
_SUFFIXES = ("_bucket", "_sum", "_count")  # of a histogram


@dataclass(frozen=True)
class Series:
    """What Prometheus knows a metric by."""

    name: str
    labels: dict[str, str]
    is_histogram: bool

    @property
    def names(self) -> set[str]:
        return {f"{self.name}{suffix}" for suffix in _SUFFIXES} if self.is_histogram else {self.name}


def exported(name: str) -> Series:
    """As statsd_exporter does it: the first mapping that matches."""
    for mapping in _MAPPINGS:
        if (found := re.search(mapping["match"], name)) is not None:
            labels = {label: _filled(text, found) for label, text in mapping["labels"].items()}
            return Series(_filled(mapping["name"], found), labels, mapping.get("observer_type") == "histogram")
    raise AssertionError(f"{name} is not mapped")


def _filled(text: str, found: re.Match[str]) -> str:
    return re.sub(r"\$\{?(\d)\}?", lambda group: found[int(group[1])], text)


def _reported(name: str, reporter: str, pipeline: str = "orders") -> str:
    """As it is on the wire: Airflow's tasks with Airflow's prefix, the driver without."""
    prefix = "" if reporter == "driver" else "airflow."
    return f"{prefix}ckpt.{pipeline}.{re.sub('<.*>', 'no-attempt', name)}"


def _all() -> list[Series]:
    return [exported(_reported(name, reporter)) for name, _, reporter in _ROWS]


def _expressions() -> list[str]:
    return [target["expr"] for panel in _BOARD["panels"] for target in panel["targets"]]


def _named(text: str) -> set[str]:
    return set(re.findall(r"\bckpt_\w+", text))


@pytest.mark.parametrize(("name", "kind", "reporter"), _ROWS)
def test_a_metric_of_the_document_is_mapped_and_on_the_dashboard(name: str, kind: str, reporter: str) -> None:
    for pipeline in ("orders", "shop.orders-2"):
        series = exported(_reported(name, reporter, pipeline))
        assert series.labels["pipeline"] == pipeline
        assert series.is_histogram is (kind == "time")
        assert series.name.endswith("_total") is (kind == "count")
        assert ("no-attempt" in series.labels.values()) is ("<" in name)
    assert any(series.names & _named(expression) for expression in _expressions())


def test_no_two_metrics_become_one() -> None:
    assert len({each.name for each in _all()}) == len(_ROWS)


def test_the_dashboard_asks_for_nothing_that_is_not_there() -> None:
    there = set().union(*(each.names for each in _all()))
    asked = _named(json.dumps(_BOARD))
    assert asked
    assert asked <= there


@pytest.mark.parametrize("expression", _expressions())
def test_an_expression_uses_labels_that_its_metric_has_and_only_the_chosen_pipelines(expression: str) -> None:
    (name,) = _named(expression)
    (series,) = [each for each in _all() if name in each.names]
    (grouped,) = re.findall(r"by \(([\w, ]+)\)", expression)
    assert set(grouped.split(", ")) <= {*series.labels, *({"le"} if name.endswith("_bucket") else ())}
    assert f'{name}{{pipeline=~"$pipeline"}}' in expression
    assert expression.count("(") == expression.count(")")


def test_panels_do_not_overlap_and_have_ids_of_their_own() -> None:
    panels = _BOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({panel["title"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    assert all(place["x"] + place["w"] <= _WIDTH for place in places)
    assert not [pair for pair in combinations(places, 2) if _overlap(*pair)]


def _overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    return all(
        one[at] < other[at] + other[size] and other[at] < one[at] + one[size] for at, size in (("x", "w"), ("y", "h"))
    )


def test_the_data_source_and_the_pipelines_are_chosen_on_the_dashboard() -> None:
    chosen = {each["name"]: each for each in _BOARD["templating"]["list"]}
    assert set(chosen) == {"datasource", "pipeline"}
    assert chosen["pipeline"]["query"]["query"] == "label_values(ckpt_problems, pipeline)"
    asked = [each["datasource"] for panel in _BOARD["panels"] for each in (panel, *panel["targets"])]
    assert all(each == {"type": "prometheus", "uid": "${datasource}"} for each in asked)
