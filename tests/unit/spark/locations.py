"""Small checkpointLocations, written by hand in the shapes that Spark 4.2 writes them."""

import json
import struct
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from airflow_provider_ckpt.protocol.codec import Json
from airflow_provider_ckpt.spark.streaming.location import Location, Portion

JOIN_STORES = (
    "left-keyToNumValues",
    "left-keyWithIndexToValue",
    "right-keyToNumValues",
    "right-keyWithIndexToValue",
)
CONF = {"spark.sql.shuffle.partitions": "2", "spark.sql.streaming.stateStore.compression.codec": "lz4"}
Ids = Mapping[str, Sequence[Sequence[str]]]


class LocationOnDisk:
    """Writes the files of one query's location; every file has the hidden checksum beside it that Hadoop writes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("metadata", '{"id":"19c72fab-3462-4fd8-b0d3-0c04144f8f70"}')

    # the logs

    def plan(self, batch: int, *offsets: Json, version: str = "v1") -> None:
        """offsets/<batch>; None is a source that has nothing yet."""
        head: dict[str, Json] = {"batchWatermarkMs": 0, "batchTimestampMs": 1794813644839, "conf": CONF}
        lines = ["-" if offset is None else text_of(offset) for offset in offsets]
        if version == "v2":
            lines = [f"{number}:{line}" for number, line in enumerate(lines)]
        self.write(f"offsets/{batch}", "\n".join([version, text_of(head), *lines]))

    def commit(self, batch: int, ids: Ids | None = None) -> None:
        """commits/<batch>, with the unique ids of state format 2."""
        document: dict[str, Json] = {"nextBatchWatermarkMs": 0}
        if ids is not None:
            document["stateUniqueIds"] = {operator: [list(each) for each in of] for operator, of in ids.items()}
        self.write(f"commits/{batch}", f"{'v1' if ids is None else 'v2'}\n{text_of(document)}")

    def run(self, last: int, *, version: str = "v1") -> None:
        """Batches 0 to `last` of a query over one file source, one file each, all committed."""
        for batch in range(last + 1):
            self.see(batch, [f"{batch}.json"])
            self.plan(batch, {"logOffset": batch}, version=version)
            self.commit(batch)

    def see(self, entry: int, files: Iterable[str], source: str = "0") -> None:
        """sources/<source>/<entry>: what a file source has found."""
        self.write(f"sources/{source}/{entry}", log_of(seen(name, entry) for name in files))

    def compact(self, entry: int, files: Mapping[int, Sequence[str]], source: str = "0") -> None:
        """sources/<source>/<entry>.compact: the files of every entry before, and its own."""
        lines = [seen(name, each) for each, names in files.items() for name in names]
        self.write(f"sources/{source}/{entry}.compact", log_of(lines))

    # the state

    def describe(
        self,
        partitions: int = 2,
        stores: Sequence[str] = ("default",),
        operator: int = 0,
        kind: str = "stateStoreSave",
        keys: Sequence[str] = ("k",),
    ) -> None:
        """What an operator says about itself, and what its stores say in partition 0."""
        document = _described(operator, partitions, stores, kind)
        self.write(f"state/{operator}/_metadata/metadata", f"v1\n{text_of(document)}")
        for store in stores:
            inner = "" if store == "default" else f"{store}/"
            self.write(f"state/{operator}/0/{inner}_metadata/schema", _schema(keys))

    def describe_v2(self, batch: int, partitions: int = 2, operator: int = 0) -> str:
        """The same as transformWithState and joins of format 3 do it, for a run that began with a batch."""
        schema = f"state/{operator}/_stateSchema/default/{batch}_{unique('schema', batch)}"
        self.write(schema, "\0\2v3")
        document = _described(operator, partitions, ["default"])
        self.write(f"state/{operator}/_metadata/v2/{batch}", f"v2\n{text_of(document)}")
        return schema

    def state(self, *names: str, partitions: int = 2, stores: Sequence[str] = ("default",), operator: int = 0) -> None:
        """The same files in every store of every partition."""
        for partition in range(partitions):
            for store in stores:
                inner = "" if store == "default" else f"{store}/"
                for name in names:
                    self.write(f"state/{operator}/{partition}/{inner}{name}", f"{partition} {store} {name}")

    def rocks(self, store: str, version: str, tables: Sequence[str], logs: Sequence[str] = ()) -> None:
        """state/<store>/<version>.zip, and the files that it names."""
        listed: dict[str, Json] = {
            "sstFiles": [{"localFileName": "1.sst", "dfsSstFileName": each, "sizeBytes": 9} for each in tables],
            "numKeys": 3,
            "numInternalKeys": 0,
            "columnFamilyMapping": {},
            "columnFamilyTypeMap": {},
            "maxColumnFamilyId": 0,
        }
        if logs:
            listed["logFiles"] = [{"localFileName": "1.log", "dfsLogFileName": each, "sizeBytes": 9} for each in logs]
        self.zip(f"state/{store}/{version}.zip", {"CURRENT": "MANIFEST-5\n", "metadata": f"v1\n{text_of(listed)}"})
        for folder, names in (("SSTs", tables), ("logs", logs)):
            for name in names:
                self.write(f"state/{store}/{folder}/{name}", name)

    # files

    def write(self, name: str, text: str) -> None:
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())
        add_checksums(file)

    def zip(self, name: str, members: Mapping[str, str]) -> None:
        self.write(name, "")
        with zipfile.ZipFile(self.root / name, "w") as archive:
            for member, text in members.items():
                archive.writestr(member, text)
        add_checksums(self.root / name)

    def remove(self, *names: str) -> None:
        for name in names:
            (self.root / name).unlink()
            (self.root / name).with_name(f".{Path(name).name}.crc").unlink()

    # what is needed

    def needs(self, batch: int | None, *, planned: int | None = None) -> list[str]:
        """The names of all that is needed, in order."""
        portions = Location(self.root).needs(batch, planned=planned)
        return sorted(piece.name for portion in portions for piece in portion.pieces)

    def needs_of(self, prefix: str, batch: int | None, *, planned: int | None = None) -> list[str]:
        """The same below one folder, without what operators and stores say about themselves."""
        below = [
            name.removeprefix(f"{prefix}/")
            for name in self.needs(batch, planned=planned)
            if name.startswith(f"{prefix}/")
        ]
        return [name for name in below if "_metadata/" not in name and "_stateSchema/" not in name]

    def portions(self, batch: int | None, *, planned: int | None = None) -> dict[str, Portion]:
        return {portion.name: portion for portion in Location(self.root).needs(batch, planned=planned)}


def add_checksums(file: Path) -> None:
    """As Hadoop keeps them of local files."""
    data = file.read_bytes()
    sums = [zlib.crc32(data[start : start + 512]) for start in range(0, len(data), 512)]
    (file.parent / f".{file.name}.crc").write_bytes(b"crc\0" + struct.pack(f">I{len(sums)}I", 512, *sums))


def seen(file: str, entry: int) -> str:
    return text_of({"path": f"file:///in/{file}", "timestamp": 1794813636452, "batchId": entry})


def published(file: str) -> str:
    """An entry of the file sink's log: it does not say which batch it came with."""
    return text_of(
        {
            "path": f"file:///out/{file}",
            "size": 472,
            "isDir": False,
            "modificationTime": 1794813656156,
            "blockReplication": 1,
            "blockSize": 33554432,
            "action": "add",
        }
    )


def log_of(lines: Iterable[str]) -> str:
    return "\n".join(["v1", *lines])


def unique(*parts: object) -> str:
    """An id of the length that Spark's have, and readable."""
    return "-".join(map(str, parts)).ljust(36, "0")


def text_of(document: Json) -> str:
    return json.dumps(document, separators=(",", ":"))


def _schema(keys: Sequence[str]) -> str:
    """Of a state store, in version 2: Java's writeUTF puts two bytes with the length before each text."""
    fields: list[Json] = [{"name": key, "type": "integer", "nullable": True, "metadata": {}} for key in keys]
    schema = text_of({"type": "struct", "fields": fields})
    return f"\0\2v2\0\0\0\1\0{chr(len(schema))}{schema}" if len(schema) < 128 else "\0\2v2"


def _described(operator: int, partitions: int, stores: Sequence[str], kind: str = "stateStoreSave") -> Json:
    return {
        "operatorInfo": {"operatorId": operator, "operatorName": kind},
        "stateStoreInfo": [
            {"storeName": store, "numColsPrefixKey": 0, "numPartitions": partitions} for store in stores
        ],
    }
