"""What every storage does, whatever lies behind it: one suite over a disk, S3 (moto over HTTP), HDFS and memory."""

import hashlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast
from urllib.parse import urlsplit
from uuid import uuid4

import boto3
import pytest
from botocore.config import Config
from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer

from airflow_provider_ckpt.protocol.errors import AlreadyExists, NotFound, UnsafePath
from airflow_provider_ckpt.storage import (
    Created,
    Digest,
    LocalStorage,
    MemoryStorage,
    Partial,
    Storage,
    StoredFile,
    digest_bytes,
)
from airflow_provider_ckpt.storage.hdfs import HdfsStorage
from airflow_provider_ckpt.storage.hdfs_client import connect
from airflow_provider_ckpt.storage.hdfs_place import read_place
from airflow_provider_ckpt.storage.s3 import MEBIBYTE, S3Storage
from airflow_provider_ckpt.storage.s3_client import S3Client
from tests.hdfs import Hdfs

Outcome = TypeVar("Outcome")
BUCKET = "checkpoints"
LARGE = bytes(range(256)) * 4096 * 11 + b"the last part is shorter"  # 11 MiB and a bit: three parts of 5 MiB
ESCAPES = ["../x", "/x", "a//b", "a/./b", "a/../b", "a\\b", "a\x00b", "a/", ".."]


@dataclass(frozen=True, kw_only=True)
class Backend:
    storage: Storage
    interrupt_write: Callable[[str], None] | None  # leaves behind what a crash in the middle would


@pytest.fixture(scope="module")
def s3_client() -> Iterator[S3Client]:
    with pytest.MonkeyPatch.context() as patch:
        decide_conditional_writes_one_at_a_time(patch)
        patch.delenv("AWS_PROFILE", raising=False)
        server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
        server.start()
        host, port = server.get_host_and_port()
        client = boto3.client(
            "s3",
            endpoint_url=f"http://{host}:{port}",
            region_name="us-east-1",
            aws_access_key_id="for-moto",
            aws_secret_access_key="for-moto",
            config=Config(s3={"addressing_style": "path"}, max_pool_connections=20, proxies={}),
        )
        client.create_bucket(Bucket=BUCKET)
        yield cast("S3Client", client)
        client.close()
        server.stop()


def decide_conditional_writes_one_at_a_time(patch: pytest.MonkeyPatch) -> None:
    """S3 does; moto looks first and writes after, and two threads can both find nothing."""
    lock, put_object = threading.Lock(), S3Response.put_object

    def put_one_at_a_time(self: S3Response) -> object:
        with lock:
            return put_object(self)

    patch.setattr(S3Response, "put_object", put_one_at_a_time)


ON_HDFS = pytest.param("hdfs", marks=pytest.mark.slow)  # a Java process of its own


@pytest.fixture(params=["local", "s3", "memory", ON_HDFS])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    match request.param:
        case "local":
            return local_backend(tmp_path / "storage root")
        case "s3":
            return s3_backend(request.getfixturevalue("s3_client"))
        case "hdfs":
            return hdfs_backend(request.getfixturevalue("hdfs"))
        case _:
            return Backend(storage=MemoryStorage(), interrupt_write=None)


def local_backend(root: Path) -> Backend:
    def interrupt_write(path: str) -> None:
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.with_name(f".{file.name}.0123456789abcdef.partial").write_bytes(b"half of")

    return Backend(storage=LocalStorage(root), interrupt_write=interrupt_write)


def s3_backend(client: S3Client) -> Backend:
    prefix = f"test-{uuid4().hex}"
    storage = S3Storage(
        client,
        BUCKET,
        prefix,
        multipart_threshold=5 * MEBIBYTE,
        part_bytes=5 * MEBIBYTE,
        copy_part_bytes=5 * MEBIBYTE,
        sleep=lambda _: None,
    )

    def interrupt_write(path: str) -> None:
        client.create_multipart_upload(Bucket=BUCKET, Key=f"{prefix}/{path}")

    return Backend(storage=storage, interrupt_write=interrupt_write)


def hdfs_backend(hdfs: Hdfs) -> Backend:
    place = read_place(urlsplit(hdfs.new_url()))
    client = connect(place)

    def interrupt_write(path: str) -> None:
        folder, _, name = f"{place.root}/{path}".rpartition("/")
        client.send(f"{folder}/.{name}.0123456789abcdef.partial", [b"half of"], to_be=path)

    return Backend(storage=HdfsStorage(client, place), interrupt_write=interrupt_write)


# a write into memory is never interrupted halfway
WHERE_WRITES_TAKE_TIME = pytest.mark.parametrize("backend", ["local", "s3", ON_HDFS], indirect=True)


@pytest.fixture
def storage(backend: Backend) -> Storage:
    return backend.storage


@pytest.fixture
def interrupt_write(backend: Backend) -> Callable[[str], None]:
    assert backend.interrupt_write is not None
    return backend.interrupt_write


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return local_file(tmp_path / "41.delta", b"state of batch 41")


def local_file(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def paths(storage: Storage, prefix: str = "") -> list[str]:
    return [file.path for file in storage.list(prefix)]


# Create


def test_a_created_file_is_read_back(storage: Storage) -> None:
    assert storage.create("orders/checkpoints/17/manifest", b"{}") is Created.NEW
    assert storage.read("orders/checkpoints/17/manifest") == b"{}"


def test_a_second_create_with_the_same_content_is_told_so(storage: Storage) -> None:
    storage.create("manifest", b"{}")
    assert storage.create("manifest", b"{}") is Created.SAME


@pytest.mark.parametrize("other", [b"[]", b"{} ", b""])
def test_a_second_create_with_other_content_is_refused(storage: Storage, other: bytes) -> None:
    storage.create("manifest", b"{}")
    with pytest.raises(AlreadyExists, match=r"manifest exists in .* with other content"):
        storage.create("manifest", other)
    assert storage.read("manifest") == b"{}"


def test_an_empty_file_is_a_file(storage: Storage, tmp_path: Path) -> None:
    assert storage.create("decided", b"") is Created.NEW
    assert storage.create("decided", b"") is Created.SAME
    storage.copy("decided", "decided as well")
    storage.fetch("decided as well", tmp_path / "decided")
    assert storage.read("decided") == b""
    assert storage.stat("decided") == StoredFile(path="decided", size=0)
    assert (tmp_path / "decided").read_bytes() == b""


def test_of_many_creators_with_the_same_content_one_is_the_first(storage: Storage) -> None:
    outcomes = at_once(8, lambda _: storage.create("orders/checkpoints/17/manifest", b"{}"))
    assert sorted(outcomes) == [Created.NEW] + [Created.SAME] * 7


def test_of_many_creators_with_different_content_one_wins_and_the_others_learn_it(storage: Storage) -> None:
    def create(number: int) -> Created | bytes:
        try:
            return storage.create("orders/checkpoints/17/manifest", b"%d" % number)
        except AlreadyExists:
            return b"refused"

    outcomes = at_once(8, create)
    assert outcomes.count(b"refused") == 7
    assert storage.read("orders/checkpoints/17/manifest") == b"%d" % outcomes.index(Created.NEW)


def at_once(count: int, call: Callable[[int], Outcome]) -> list[Outcome]:
    start = threading.Barrier(count)

    def wait_and_call(number: int) -> Outcome:
        start.wait()
        return call(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(wait_and_call, range(count)))


# Read


def test_a_missing_file_is_not_found(storage: Storage, tmp_path: Path) -> None:
    for call in (
        lambda: storage.read("no/such"),
        lambda: storage.open("no/such"),
        lambda: storage.copy("no/such", "b"),
        lambda: storage.fetch("no/such", tmp_path / "b"),
    ):
        with pytest.raises(NotFound, match="There is no file no/such in "):
            call()
    assert storage.stat("no/such") is None
    assert not (tmp_path / "b").exists()


def test_a_folder_is_not_a_file(storage: Storage) -> None:
    storage.create("orders/manifest", b"{}")
    assert storage.stat("orders") is None
    assert storage.delete("orders") is False
    with pytest.raises(NotFound):
        storage.read("orders")


def test_an_opened_file_is_read_piece_by_piece(storage: Storage) -> None:
    storage.create("numbers", b"0123456789")
    with storage.open("numbers") as stream:
        assert [stream.read(4), stream.read(4), stream.read(4), stream.read(4)] == [b"0123", b"4567", b"89", b""]


def test_stat_tells_the_size(storage: Storage) -> None:
    storage.create("orders/numbers", b"0123456789")
    assert storage.stat("orders/numbers") == StoredFile(path="orders/numbers", size=10)


def test_names_may_be_in_any_script(storage: Storage, tmp_path: Path) -> None:
    path = "bestellungen/größe=10 €/注文 100%?#+&.zip"
    storage.create(path, b"data")
    storage.copy(path, f"{path}.kopie")
    storage.fetch(path, tmp_path / "fetched")
    assert storage.read(f"{path}.kopie") == (tmp_path / "fetched").read_bytes() == b"data"
    assert list(storage.list("bestellungen/größe")) == [
        StoredFile(path=path, size=4),
        StoredFile(path=f"{path}.kopie", size=4),
    ]
    assert storage.delete(path)


# List


def test_a_listing_is_in_order_of_the_whole_path(storage: Storage) -> None:
    unsorted = ["b", "a/b/c", "a.x", "a/c", "a!", "a/b.x", "A", "é", "a0", "ab/x"]
    for path in unsorted:
        storage.create(path, b"")
    assert paths(storage) == sorted(unsorted)


def test_a_prefix_need_not_end_at_a_folder(storage: Storage) -> None:
    for path in ("orders/1", "orders/12", "orders/2", "orders2/1", "other/1"):
        storage.create(path, path.encode())
    assert paths(storage, "orders") == ["orders/1", "orders/12", "orders/2", "orders2/1"]
    assert paths(storage, "orders/") == ["orders/1", "orders/12", "orders/2"]
    assert paths(storage, "orders/1") == ["orders/1", "orders/12"]
    assert paths(storage, "nothing/here") == []


def test_a_storage_in_which_nothing_was_written_is_empty(storage: Storage) -> None:
    assert paths(storage) == []
    assert list(storage.partials("")) == []
    assert storage.delete("a") is False


# Delete


def test_the_second_delete_finds_nothing(storage: Storage) -> None:
    storage.create("orders/files/1/1/a", b"a")
    assert storage.delete("orders/files/1/1/a") is True
    assert storage.delete("orders/files/1/1/a") is False
    assert paths(storage) == []


def test_a_deleted_name_is_free_again(storage: Storage) -> None:
    storage.create("orders/a", b"first")
    storage.delete("orders/a")
    assert storage.create("orders/a", b"second") is Created.NEW
    assert storage.read("orders/a") == b"second"


def test_creating_and_deleting_side_by_side_loses_nothing(storage: Storage) -> None:
    def come_and_go(number: int) -> bool:
        path = f"orders/files/{number}"
        return all(storage.create(path, b"") is Created.NEW and storage.delete(path) for _ in range(20))

    assert all(at_once(4, come_and_go))
    assert paths(storage) == []


# Put a file


@pytest.mark.parametrize("data", [b"", b"state", LARGE], ids=["empty", "small", "in parts"])
def test_a_stored_file_comes_with_its_digest(storage: Storage, tmp_path: Path, data: bytes) -> None:
    digest = storage.put_file("orders/files/3/17/41.zip", local_file(tmp_path / "41.zip", data))
    assert digest == Digest(size=len(data), sha256=hashlib.sha256(data).hexdigest())
    assert storage.read("orders/files/3/17/41.zip") == data
    assert list(storage.partials("")) == []


@pytest.mark.parametrize("data", [b"state", LARGE], ids=["small", "in parts"])
def test_storing_the_same_file_again_is_fine(storage: Storage, tmp_path: Path, data: bytes) -> None:
    storage.put_file("41.zip", local_file(tmp_path / "one", data))
    assert storage.put_file("41.zip", local_file(tmp_path / "other", data)) == digest_bytes(data)


@pytest.mark.parametrize("data", [b"state", LARGE], ids=["small", "in parts"])
def test_storing_another_file_under_the_same_name_is_refused(storage: Storage, tmp_path: Path, data: bytes) -> None:
    storage.put_file("41.zip", local_file(tmp_path / "one", data))
    with pytest.raises(AlreadyExists):
        storage.put_file("41.zip", local_file(tmp_path / "other", data[:-1] + b"!"))
    assert storage.read("41.zip") == data
    assert list(storage.partials("")) == []


def test_a_source_that_vanished_is_not_found_and_leaves_nothing(storage: Storage, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"There is no local file .*gone to store"):
        storage.put_file("41.zip", tmp_path / "gone")
    assert paths(storage) == []
    assert list(storage.partials("")) == []


def test_a_large_file_is_streamed(storage: Storage, tmp_path: Path) -> None:
    storage.put_file("large", local_file(tmp_path / "large", LARGE))
    sha256 = hashlib.sha256()
    with storage.open("large") as stream:
        while chunk := stream.read(700_000):
            assert len(chunk) <= 700_000
            sha256.update(chunk)
    assert sha256.hexdigest() == digest_bytes(LARGE).sha256


# Fetch


@pytest.mark.parametrize("data", [b"state", LARGE], ids=["small", "large"])
def test_a_fetched_file_is_laid_out_with_its_folders(storage: Storage, tmp_path: Path, data: bytes) -> None:
    storage.put_file("41.zip", local_file(tmp_path / "41.zip", data))
    target = tmp_path / "restored" / "state" / "0" / "41.zip"
    storage.fetch("41.zip", target)
    assert target.read_bytes() == data
    assert [file.name for file in target.parent.iterdir()] == ["41.zip"]


def test_a_fetch_overwrites_nothing(storage: Storage, tmp_path: Path) -> None:
    storage.create("a", b"stored")
    target = local_file(tmp_path / "a", b"mine")
    with pytest.raises(AlreadyExists, match="is only laid out anew"):
        storage.fetch("a", target)
    assert target.read_bytes() == b"mine"


# Copy


@pytest.mark.parametrize("data", [b"state", LARGE], ids=["small", "in parts"])
def test_a_copy_outlives_its_original(storage: Storage, tmp_path: Path, data: bytes) -> None:
    storage.put_file("orders/files/1/1/a", local_file(tmp_path / "a", data))
    storage.copy("orders/files/1/1/a", "orders/savepoints/before/files/a")
    storage.delete("orders/files/1/1/a")
    assert storage.read("orders/savepoints/before/files/a") == data
    assert list(storage.partials("")) == []


@pytest.mark.parametrize("data", [b"state", LARGE], ids=["small", "in parts"])
def test_copying_again_is_fine_and_copying_over_other_content_is_refused(
    storage: Storage, tmp_path: Path, data: bytes
) -> None:
    storage.put_file("a", local_file(tmp_path / "a", data))
    storage.create("other", b"other")
    storage.copy("a", "b")
    storage.copy("a", "b")
    with pytest.raises(AlreadyExists):
        storage.copy("a", "other")
    assert storage.read("b") == data
    assert storage.read("other") == b"other"


# Paths


@pytest.mark.parametrize("path", [*ESCAPES, ""])
def test_no_method_takes_a_path_that_leaves_the_root(storage: Storage, source: Path, path: str, tmp_path: Path) -> None:
    storage.create("a", b"a")
    for call in (
        lambda: storage.create(path, b""),
        lambda: storage.read(path),
        lambda: storage.open(path),
        lambda: storage.put_file(path, source),
        lambda: storage.fetch(path, tmp_path / "fetched"),
        lambda: storage.copy(path, "b"),
        lambda: storage.copy("a", path),
        lambda: storage.stat(path),
        lambda: storage.delete(path),
        lambda: storage.discard(Partial(path=path, token=path)),
    ):
        with pytest.raises(UnsafePath):
            call()
    assert paths(storage) == ["a"]


@pytest.mark.parametrize("prefix", [prefix for prefix in ESCAPES if prefix != "a/"])
def test_no_listing_takes_a_prefix_that_leaves_the_root(storage: Storage, prefix: str) -> None:
    with pytest.raises(UnsafePath):
        list(storage.list(prefix))
    with pytest.raises(UnsafePath):
        list(storage.partials(prefix))


# Partials


@WHERE_WRITES_TAKE_TIME
def test_an_interrupted_write_is_invisible_but_found_and_discarded(
    storage: Storage, interrupt_write: Callable[[str], None]
) -> None:
    for path in ("orders/files/1/1/a", "orders/files/1/2/b", "other/c"):
        interrupt_write(path)
    assert paths(storage) == []
    found = list(storage.partials("orders/"))
    assert [partial.path for partial in found] == ["orders/files/1/1/a", "orders/files/1/2/b"]
    for partial in found:
        storage.discard(partial)
    assert [partial.path for partial in storage.partials("")] == ["other/c"]


@WHERE_WRITES_TAKE_TIME
def test_a_partial_is_found_by_the_beginning_of_its_name(
    storage: Storage, interrupt_write: Callable[[str], None]
) -> None:
    interrupt_write("orders/41.zip")
    interrupt_write("orders/51.zip")
    assert [partial.path for partial in storage.partials("orders/4")] == ["orders/41.zip"]


@WHERE_WRITES_TAKE_TIME
def test_discarding_twice_is_fine(storage: Storage, interrupt_write: Callable[[str], None]) -> None:
    interrupt_write("a")
    [partial] = storage.partials("")
    storage.discard(partial)
    storage.discard(partial)
    assert list(storage.partials("")) == []


@WHERE_WRITES_TAKE_TIME
def test_a_write_beside_an_interrupted_one_succeeds(storage: Storage, interrupt_write: Callable[[str], None]) -> None:
    interrupt_write("a")
    assert storage.create("a", b"whole") is Created.NEW
    assert paths(storage) == ["a"]
    assert len(list(storage.partials(""))) == 1


def test_the_url_is_for_people(storage: Storage) -> None:
    assert storage.url.startswith(("file:///", "s3://checkpoints/test-", "hdfs://localhost:", "memory:"))
    assert "for-moto" not in storage.url
