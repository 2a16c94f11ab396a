"""An Iceberg table: Spark writes Parquet beside it, and one snapshot publishes all of it, with its marker.

The marker is a property of the table, changed in the same commit as the snapshot, which repeats it in its summary. The
library's own retries are off: it would add the same files again to a table that has changed meanwhile. It looks for
their number in the table that it has loaded, so it is changed there, and not in the table that others write to. Where
somebody else was faster the table is loaded anew, the marker is looked at again, and only then it is tried again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update.snapshot import ManageSnapshots
from pyiceberg.transforms import IdentityTransform

from airflow_provider_ckpt.protocol.codec import JsonObject
from airflow_provider_ckpt.protocol.errors import CkptError, OutcomeUnknown, Refused, TryAgain
from airflow_provider_ckpt.protocol.recovery import SinkMarker
from airflow_provider_ckpt.spark.sinks.base import (
    Leftover,
    Name,
    Publication,
    Published,
    Sink,
    Slot,
    Staged,
    may_take_over,
    must_commit,
)
from airflow_provider_ckpt.spark.sinks.landing import StagedBatch, TableLanding, read_batches
from airflow_provider_ckpt.spark.sinks.landings import open_table_landing
from airflow_provider_ckpt.spark.sinks.writing import Format, write_micros

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TRIES = 20
_RETRIES = "commit.retry.num-retries"
_LAYOUT = {"ckpt.layout": "2"}  # since then nothing but what begins with "ckpt." is ours


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mark:
    checkpoint: int = 0
    attempt: int = 0

    def __str__(self) -> str:
        return f"{self.checkpoint}:{self.attempt}"

    def to_marker(self) -> SinkMarker:
        return SinkMarker(committed=self.checkpoint or None, attempt=self.attempt)


class IcebergSink(Sink):
    """Appends to an Iceberg table, which others may write to as well.

    ::

        ckpt.start("orders", orders.writeStream, sink=IcebergSink("lake.orders", catalog="prod"))

    Readers see a checkpoint whole or not at all. A restore behind what is published takes the table back to the
    snapshot of that checkpoint, if nobody else has committed to it since; else it is refused. A table that is not there
    is made with the first batch; one that is partitioned must be so by columns as they are (identity).

    :param table: `namespace.table`.
    :param catalog: the name of the catalog, as pyiceberg's configuration knows it.
    :param properties: of the catalog, besides those of the configuration. `ckpt restore` knows the configuration only.
    """

    def __init__(self, table: str, *, catalog: str = "default", properties: Mapping[str, str] | None = None) -> None:
        self._name = table
        self._catalog_name = catalog
        self._properties = dict(properties or {})
        self._opened: Catalog | None = None
        self._fitting = ""

    def __repr__(self) -> str:
        return f"IcebergSink({self._name!r})"  # properties of a catalog hold secrets

    def stage(self, rows: "DataFrame", slot: Slot) -> Staged:
        table = self._load() or self._create(slot.name, rows)
        if (schema := rows.schema.json()) != self._fitting:
            _check_fits(slot.name, table, rows)
            self._fitting = schema
        write_micros(rows)
        columns = _partition_columns(slot.name, table)
        for column in columns:  # Spark takes a column out of the files when it partitions by it; Iceberg wants it in
            rows = rows.withColumn(f"ckpt_{column}", rows[column])
        return self._landing(table).stage(rows, slot, Format(partition_by=tuple(f"ckpt_{each}" for each in columns)))

    def commit(self, publication: Publication) -> Published:
        name = publication.name
        batches = read_batches(name, publication.staged)
        mark = _Mark(checkpoint=publication.ref.id, attempt=publication.attempt)

        def publish(table: Table) -> None:
            landing = self._landing(table)
            landing.publish(name, batches)
            self._write(table, name, mark, _paths(landing, batches))

        version = self._until_written(name, partial(must_commit, publication), publish)
        return Published(
            rows=sum(batch.rows for batch in batches),
            bytes=sum(file.size for batch in batches for file in batch.files),
            files=sum(len(batch.files) for batch in batches),
            version=f"snapshot {version}",
        )

    def recover(self, name: Name, attempt: int) -> SinkMarker:
        if self._load() is not None:

            def fence(table: Table) -> None:
                """As a snapshot of its own: a commit that is under way on the one before is refused by it."""
                mark = _mark(table, name)
                if mark.attempt < attempt:
                    self._write(table, name, _Mark(checkpoint=mark.checkpoint, attempt=attempt), [])

            self._until_written(name, may_take_over(name, attempt), fence)
        return self.marker(name)

    def marker(self, name: Name) -> SinkMarker:
        table = self._load()
        return SinkMarker(committed=None) if table is None else _mark(table, name).to_marker()

    def history(self, name: Name) -> frozenset[int]:
        table = self._load()
        return frozenset() if table is None else frozenset(_own_snapshots(table, name))

    def roll_back(self, name: Name, attempt: int, to: int) -> None:
        def back(table: Table) -> None:
            snapshot = _own_snapshots(table, name).get(to)
            if snapshot is None:
                raise Refused(
                    f"{name} can not go back to checkpoint {to}: somebody else has written to {self._name} since, or "
                    "that snapshot has expired."
                )
            with table.transaction() as transaction:
                ManageSnapshots(transaction).set_current_snapshot(snapshot).commit()
                transaction.set_properties({_key(name): str(_Mark(checkpoint=to, attempt=attempt))})

        self._until_written(name, may_take_over(name, attempt), back)

    def discard(self, name: Name, attempt: int, keep: Sequence[JsonObject]) -> None:
        if (table := self._load()) is not None:
            self._landing(table).discard(name, attempt, keep)

    def leftovers(self, name: Name) -> Iterable[Leftover]:
        table = self._load()
        return () if table is None else self._landing(table).leftovers(name)

    def describe(self) -> JsonObject:
        return {"kind": "iceberg", "table": self._name, "catalog": self._catalog_name}

    # inside

    @property
    def _catalog(self) -> Catalog:
        if self._opened is None:
            self._opened = load_catalog(self._catalog_name, **self._properties)
        return self._opened

    def _load(self) -> Table | None:
        try:
            return self._catalog.load_table(self._name)
        except NoSuchTableError:
            return None

    def _create(self, name: Name, rows: "DataFrame") -> Table:
        """With an empty snapshot: to go back to nothing is to go back to it."""
        namespace = self._name.rpartition(".")[0]
        self._catalog.create_namespace_if_not_exists(namespace)
        try:
            table = self._catalog.create_table(self._name, rows.limit(0).toArrow().schema, properties=_LAYOUT)
            self._write(table, name, _Mark(), [])
        except (TableAlreadyExistsError, CommitFailedException):
            pass
        return self._catalog.load_table(self._name)

    def _landing(self, table: Table) -> TableLanding:
        return open_table_landing(f"{table.location()}/data{_settings(table)}")

    def _until_written(self, name: Name, may: Callable[[SinkMarker], bool], work: Callable[[Table], None]) -> str:
        """Check and write against one version; where somebody else was faster, look again. Says the snapshot."""
        refusal = ""
        for _ in range(_TRIES):
            table = self._load()
            if table is None:
                raise Refused(f"There is no Iceberg table {self._name} any more, and {name} has staged for it.")
            if not may(_mark(table, name).to_marker()):
                return str(table.metadata.current_snapshot_id)
            try:
                work(table)
            except CommitFailedException as error:
                refusal = str(error)
                continue
            return str(table.metadata.current_snapshot_id)
        raise TryAgain(f"{name}: {self._name} did not take the commit in {_TRIES} tries, the last time: {refusal}")

    def _write(self, table: Table, name: Name, mark: _Mark, paths: list[str]) -> None:
        summary = {"ckpt": str(name), "ckpt.checkpoint": str(mark.checkpoint), "ckpt.attempt": str(mark.attempt)}
        handle = _without_retries(table)
        try:
            with handle.transaction() as transaction:
                _append(transaction, paths, summary)
                if _has_our_retries(table, name):
                    transaction.remove_properties(_RETRIES)
                transaction.set_properties({_key(name): str(mark), **_LAYOUT})
        except (CommitFailedException, CkptError):
            raise
        except Exception as error:
            raise OutcomeUnknown(f"{self._name}: nobody said whether the snapshot is written: {error}") from error
        table.metadata = handle.metadata


def _without_retries(table: Table) -> Table:
    """The handle alone: the library asks it how often to try, and sends only what the transaction changes."""
    properties = {**table.metadata.properties, _RETRIES: "0"}
    metadata = table.metadata.model_copy(update={"properties": properties})
    return Table(table.name(), metadata, table.metadata_location, table.io, table.catalog, table.config)


def _has_our_retries(table: Table, name: Name) -> bool:
    """Whether an older version of ours has put it there for everybody; later, whoever set it has meant it."""
    is_older = _key(name) in table.properties and not _LAYOUT.keys() & table.properties.keys()
    return is_older and table.properties.get(_RETRIES) == "0"


def _append(transaction: Transaction, paths: list[str], summary: dict[str, str]) -> None:
    if paths:
        transaction.add_files(paths, snapshot_properties=summary, check_duplicate_files=False)
    else:
        with transaction.update_snapshot(summary).fast_append():
            pass


def _paths(landing: TableLanding, batches: Sequence[StagedBatch]) -> list[str]:
    return [landing.uri(file.name) for batch in batches for file in batch.files]


def _settings(table: Table) -> str:
    """Where S3 is, as the catalog says it; credentials come from where boto3 looks for them."""
    known = {"endpoint": table.io.properties.get("s3.endpoint"), "region": table.io.properties.get("s3.region")}
    given = {key: str(value) for key, value in known.items() if value is not None}
    return f"?{urlencode(given)}" if given and table.location().startswith("s3://") else ""


def _key(name: Name) -> str:
    return f"ckpt.{name}"


def _mark(table: Table, name: Name) -> _Mark:
    checkpoint, _, attempt = table.properties.get(_key(name), "0:0").partition(":")
    return _Mark(checkpoint=int(checkpoint), attempt=int(attempt))


def _own_snapshots(table: Table, name: Name) -> dict[int, int]:
    """Checkpoints that the table can go to, by snapshot: nobody else's commit lies between them and the table as it is.

    Also those that it has gone back from: their snapshots are there until they expire.
    """
    own = {each.snapshot_id: each for each in table.metadata.snapshots if _is_own(each, name)}
    roots: dict[int, int] = {}
    for id_, each in own.items():  # parents come before their children
        roots[id_] = roots.get(each.parent_snapshot_id or 0, id_)
    root = roots.get(table.metadata.current_snapshot_id or 0)
    return {_checkpoint(own[id_]): id_ for id_, each in roots.items() if each == root}


def _is_own(snapshot: Snapshot, name: Name) -> bool:
    return snapshot.summary is not None and snapshot.summary.get("ckpt") == str(name)


def _checkpoint(snapshot: Snapshot) -> int:
    said = None if snapshot.summary is None else snapshot.summary.get("ckpt.checkpoint")
    return int(said or 0)


def _check_fits(name: Name, table: Table, rows: "DataFrame") -> None:
    unknown = [column for column in rows.columns if column not in table.schema().column_names]
    if unknown:
        raise Refused(
            f"{name} can not write to this table: it has no column {unknown[0]}. Change the query, or add the column "
            "to the table."
        )
    required = [field.name for field in table.schema().fields if field.required]
    broken = [column for column in required if column not in rows.columns or rows.schema[column].nullable]
    if broken:
        raise Refused(
            f"{name} can not write to this table: its column {broken[0]} is required, and may be empty in the query. "
            f"Give it a value in the query (coalesce({broken[0]}, …)), or make it optional in the table."
        )


def _partition_columns(name: Name, table: Table) -> tuple[str, ...]:
    fields = table.spec().fields
    if any(not isinstance(field.transform, IdentityTransform) for field in fields):
        raise Refused(f"{name} can not write to this table: it is partitioned by more than columns as they are.")
    return tuple(str(table.schema().find_column_name(field.source_id)) for field in fields)
