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
    count = _save_parquet(rows, folder, form) if form.name == "parquet" else save_counted(rows, folder.as_uri(), form)
    return count, tuple(_files(folder)) if count else ()


def save_counted(rows: "DataFrame", uri: str, form: Format) -> int:
    """Write a batch into a new folder wherever Spark can, and count the rows on their way."""
    from pyspark.sql import Observation  # noqa: PLC0415 - the command line opens sinks without Spark
    from pyspark.sql import functions as sql  # noqa: PLC0415

    counted = Observation()
    _save(rows.observe(counted, sql.count(sql.lit(1)).alias("rows")), uri, form)
    return int(counted.get["rows"])


def is_data(name: str) -> bool:
    """Whether readers of a folder take a file for a part of it."""
    return not name.startswith(("_", "."))


def _save_parquet(rows: "DataFrame", folder: Path, form: Format) -> int:
    """The footers know how many rows there are: nobody needs to count them on their way."""
    from airflow_provider_ckpt.spark.sinks.footers import count_rows  # noqa: PLC0415 - pyarrow, for those who use it

    _save(rows, folder.as_uri(), form)
    return count_rows([folder / file.name for file in _files(folder)])


def _save(rows: "DataFrame", uri: str, form: Format) -> None:
    writer = rows.write.format(form.name).options(**{_SUCCESS: "false", **form.options})
    writer.partitionBy(*form.partition_by).save(uri)


def write_micros(rows: "DataFrame") -> None:
    """Table formats know microseconds; Spark's older kind of time stamp (INT96) is read by few. For this query only."""
    rows.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")


def _files(folder: Path) -> Iterator[Written]:
    for file in sorted(folder.rglob("*")):
        if file.is_file() and is_data(file.name):
            yield Written(name=str(file.relative_to(folder)), size=file.stat().st_size)
