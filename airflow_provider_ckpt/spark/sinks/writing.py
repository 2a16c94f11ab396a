"""Writing a micro-batch as files, by Spark's own writer, and saying what came of it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_ckpt.protocol.errors import Misused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SUCCESS = "mapreduce.fileoutputcommitter.marksuccessfuljobs"  # the ledger says it
FORMATS = ("parquet", "json", "csv")


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """How Spark writes the files."""

    name: str = "parquet"
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name not in FORMATS:
            raise Misused(f"There is no sink for files of the format {self.name!r}: there are {', '.join(FORMATS)}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A file, named below the folder that was written."""

    name: str
    size: int


def write(rows: "DataFrame", folder: Path, form: Format) -> tuple[int, tuple[Written, ...]]:
    """Write a batch into a new folder; says how many rows went into which files."""
    save = _save_parquet if form.name == "parquet" else _save_text
    count = save(rows, folder, form)
    return count, tuple(_files(folder)) if count else ()


def _save_parquet(rows: "DataFrame", folder: Path, form: Format) -> int:
    """The footers know how many rows there are: nobody needs to count them on their way."""
    from airflow_provider_ckpt.spark.sinks.footers import count_rows  # noqa: PLC0415 - pyarrow, for those who use it

    _save(rows, folder, form)
    return count_rows([folder / file.name for file in _files(folder)])


def _save_text(rows: "DataFrame", folder: Path, form: Format) -> int:
    from pyspark.sql import Observation  # noqa: PLC0415 - the command line opens sinks without Spark
    from pyspark.sql import functions as sql  # noqa: PLC0415

    counted = Observation()
    _save(rows.observe(counted, sql.count(sql.lit(1)).alias("rows")), folder, form)
    return int(counted.get["rows"])


def _save(rows: "DataFrame", folder: Path, form: Format) -> None:
    writer = rows.write.format(form.name).options(**{_SUCCESS: "false", **form.options})
    writer.partitionBy(*form.partition_by).save(folder.as_uri())


def write_micros(rows: "DataFrame") -> None:
    """Table formats know microseconds; Spark's older kind of time stamp (INT96) is read by few. For this query only."""
    rows.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")


def _files(folder: Path) -> Iterator[Written]:
    for file in sorted(folder.rglob("*")):
        if file.is_file() and not file.name.startswith(("_", ".")):
            yield Written(name=str(file.relative_to(folder)), size=file.stat().st_size)
