"""What the footers of Parquet files say: rows, and the bounds of columns by which readers pass files over."""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pyarrow.parquet as pq

from airflow_provider_ckpt.protocol.codec import Json

_WORKERS = 4
_LONGEST = 32  # a longer text is no bound worth its place
_Bound = int | float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    rows: int
    least: dict[str, Json]
    most: dict[str, Json]
    nulls: dict[str, int]


def read_footers(names: Sequence[str], source: Callable[[str], object]) -> list[Footer]:
    """In the order of the names; a file that is not there is an error."""
    with ThreadPoolExecutor(_WORKERS) as pool:
        return list(pool.map(lambda name: _read(source(name)), names))


def count_rows(files: Sequence[Path]) -> int:
    with ThreadPoolExecutor(_WORKERS) as pool:
        return sum(pool.map(lambda file: int(pq.read_metadata(file).num_rows), files))


def _read(source: object) -> Footer:
    metadata = pq.read_metadata(source)
    chunks: dict[str, list[pq.Statistics]] = {}
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for number in range(metadata.num_columns):
            column = row_group.column(number)
            if "." not in column.path_in_schema and column.statistics is not None:
                chunks.setdefault(column.path_in_schema, []).append(column.statistics)
    whole = {name: found for name, found in chunks.items() if len(found) == metadata.num_row_groups}
    return Footer(
        rows=metadata.num_rows,
        least=_bounds(whole, lambda each: each.min, min),
        most=_bounds(whole, lambda each: each.max, max),
        nulls={name: sum(each.null_count for each in found) for name, found in whole.items() if _counts_nulls(found)},
    )


def _counts_nulls(found: "Sequence[pq.Statistics]") -> bool:
    return all(each.has_null_count for each in found)


def _bounds(
    chunks: "dict[str, list[pq.Statistics]]",
    get: "Callable[[pq.Statistics], object]",
    pick: Callable[[list[_Bound]], _Bound],
) -> dict[str, Json]:
    bounds = {name: [_bound(get(each)) for each in found if each.has_min_max] for name, found in chunks.items()}
    known = {name: [each for each in found if each is not None] for name, found in bounds.items()}
    return {name: pick(found) for name, found in known.items() if found and len(found) == len(bounds[name])}


def _bound(value: object) -> _Bound | None:
    match value:
        case bool():
            return None
        case int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case str():
            return value if len(value) <= _LONGEST else None
        case date() if type(value) is date:
            return value.isoformat()
    return None
