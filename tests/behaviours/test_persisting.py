"""What a Spark task does for a checkpoint, without Spark: who is late is seen while it works."""

import gc
import platform
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_provider_ckpt.protocol.records import Ref
from airflow_provider_ckpt.spark import persisting
from airflow_provider_ckpt.spark.packing import NewFile, unpack
from airflow_provider_ckpt.spark.persisting import Order, Share, persist
from airflow_provider_ckpt.storage.base import Digest
from airflow_provider_ckpt.storage.local import LocalStorage
from tests.house import House, RemoteFolder

PARTICIPANTS = ("totals/source", "totals/state/0", "totals/state/1")
LATE = "totals/state/1"


class StuckStorage(LocalStorage):
    """Does not take files of one participant until it is let go."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.let_go = threading.Event()

    def put_file(self, path: str, source: Path) -> Digest:
        if LATE in path:
            self.let_go.wait()
        return super().put_file(path, source)


def shares(folder: Path) -> list[Share]:
    """A small file of each participant."""
    (folder / "source").write_text("data")
    new = {name: (NewFile(name=name, source=str(folder / "source"), size=4),) for name in PARTICIPANTS}
    return [Share(participant=name, stored=(), new=new[name], positions={}, timings={}) for name in PARTICIPANTS]


def until(look: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 30
    while not look():
        assert time.monotonic() < give_up
        time.sleep(0.05)


def test_who_takes_longer_than_a_moment_is_seen_at_work_on_its_host(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref, storage = house.in_flight(house.pipeline()), StuckStorage(tmp_path / "storage")
    monkeypatch.setattr(persisting, "_storage", lambda _: storage)
    monkeypatch.setattr(persisting, "_store", lambda _: house.store)
    order = Order(ref=ref, attempt=1, metastore_url="", storage_url="")
    task = threading.Thread(target=persist, args=(order, shares(tmp_path)))
    task.start()
    try:
        until(lambda: stages(house, ref)[LATE] == ("copying", platform.node()))
        assert {name for name, (stage, _) in stages(house, ref).items() if stage == "acked"} == {*PARTICIPANTS} - {LATE}
    finally:
        storage.let_go.set()
        task.join()
    assert not house.store.acks.has_pending(ref)


def test_small_files_of_a_participant_are_stored_as_one_and_a_second_try_changes_nothing(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref, storage = house.in_flight(house.pipeline()), RemoteFolder(tmp_path / "storage")
    monkeypatch.setattr(persisting, "_storage", lambda _: storage)
    monkeypatch.setattr(persisting, "_store", lambda _: house.store)
    order = Order(ref=ref, attempt=1, metastore_url="", storage_url="")
    contents = {f"{LATE}/{number}.delta": b"%d" % number * number for number in range(12)}
    for number, data in enumerate(contents.values()):
        (tmp_path / str(number)).write_bytes(data)
    new = tuple(
        NewFile(name=name, source=str(tmp_path / str(number)), size=len(data))
        for number, (name, data) in enumerate(contents.items())
    )
    share = Share(participant=LATE, stored=(), new=new, positions={}, timings={})
    for _ in range(2):  # the second is Spark's
        persist(order, [share])
    row = house.store.acks.get(ref, LATE)
    assert row.ack is not None
    (stored,) = row.ack.files
    assert [file.path for file in storage.list("")] == [f"{ref.pipeline}/{stored.path}"]
    assert dict(unpack(stored, storage.read(f"{ref.pipeline}/{stored.path}"))) == contents
    assert row.ack.new_bytes == sum(map(len, contents.values()))
    assert gc.get_freeze_count() > 0, "every task of a worker ends with a look through all that is loaded"


def stages(house: House, ref: Ref) -> dict[str, tuple[str, str | None]]:
    return {row.participant: (row.stage, row.host) for row in house.store.acks.rows(ref)}
