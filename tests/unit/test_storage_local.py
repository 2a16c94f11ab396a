"""What is special about a folder: hard links, symbolic links, crashes between two system calls, full disks."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_ckpt.protocol.errors import (
    AlreadyExists,
    Misused,
    OutcomeUnknown,
    TryAgain,
    Unreachable,
    UnsafePath,
)
from airflow_provider_ckpt.storage import Created, LocalStorage, Partial, digest_bytes
from airflow_provider_ckpt.storage.local_files import SMALLEST_SHARED, make_folders

REFUSALS = [errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP]
LARGE = bytes(SMALLEST_SHARED)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def storage(root: Path) -> LocalStorage:
    return LocalStorage(root)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "41.zip"
    file.write_bytes(b"state")
    return file


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


# Hard links


def test_a_file_of_the_same_file_system_is_stored_without_copying(
    storage: LocalStorage, root: Path, source: Path
) -> None:
    source.write_bytes(LARGE)
    storage.put_file("a", source)
    assert (root / "a").samefile(source)


def test_what_is_written_into_a_small_file_in_place_is_not_written_into_the_stored_one(
    storage: LocalStorage, root: Path, source: Path, tmp_path: Path
) -> None:
    """Logs and metadata: one damaged second name would damage every checkpoint that shares it."""
    storage.put_file("a", source)
    storage.fetch("a", tmp_path / "laid out" / "a")
    for file in (source, tmp_path / "laid out" / "a"):
        with file.open("r+b") as stream:
            stream.write(b"X")
    assert storage.read("a") == b"state"


def test_a_stored_file_is_laid_out_and_copied_without_copying_bytes(storage: LocalStorage, tmp_path: Path) -> None:
    storage.create("a", LARGE)
    storage.fetch("a", tmp_path / "laid out" / "a")
    storage.copy("a", "savepoint/a")
    assert (tmp_path / "laid out" / "a").stat().st_nlink == 3


def test_deleting_the_source_leaves_the_stored_file(storage: LocalStorage, source: Path) -> None:
    storage.put_file("a", source)
    source.unlink()
    assert storage.read("a") == b"state"


def test_a_symbolic_link_is_stored_as_the_file_that_it_points_to(
    storage: LocalStorage, root: Path, source: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(source)
    storage.put_file("a", tmp_path / "link")
    assert not (root / "a").is_symlink()
    assert storage.read("a") == b"state"


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda number: errno.errorcode[number])
def test_where_links_are_refused_everything_works_by_copying(
    storage: LocalStorage, root: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: int
) -> None:
    monkeypatch.setattr(os, "link", failing(refusal))
    assert storage.put_file("a", source) == digest_bytes(b"state")
    assert storage.create("a", b"state") is Created.SAME
    with pytest.raises(AlreadyExists):
        storage.create("a", b"other")
    storage.copy("a", "b")
    storage.fetch("b", tmp_path / "fetched")
    assert (tmp_path / "fetched").read_bytes() == b"state"
    assert not (root / "a").samefile(source)
    assert files(root) == ["a", "b"]


def test_another_file_system_is_copied_from_and_to(storage: LocalStorage, other_disk: Path) -> None:
    (other_disk / "source").write_bytes(b"state")
    assert storage.put_file("a", other_disk / "source") == digest_bytes(b"state")
    storage.fetch("a", other_disk / "target")
    assert (other_disk / "target").read_bytes() == storage.read("a") == b"state"


def failing(number: int) -> object:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.fixture
def other_disk(tmp_path: Path) -> Iterator[Path]:
    """64 KiB of memory as a disk of its own, where this process may mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], check=False, capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("this process may not mount a file system")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


# Symbolic links


def test_a_symbolic_link_that_leaves_the_root_is_refused(
    storage: LocalStorage, root: Path, source: Path, tmp_path: Path
) -> None:
    root.mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_bytes(b"secret")
    (root / "way out").symlink_to(tmp_path / "outside")
    (root / "file").symlink_to(tmp_path / "outside" / "secret")
    for call in (
        lambda: storage.create("way out/new", b""),
        lambda: storage.put_file("way out/deep/new", source),
        lambda: storage.read("way out/secret"),
        lambda: storage.read("file"),
        lambda: storage.fetch("way out/secret", tmp_path / "fetched"),
        lambda: storage.copy("way out/secret", "copy"),
        lambda: storage.stat("way out/secret"),
        lambda: storage.delete("way out/secret"),
        lambda: storage.list("way out/"),
        lambda: storage.discard(Partial(path="way out/a", token="way out/.a.0123456789abcdef.partial")),
    ):
        with pytest.raises(UnsafePath, match="leads out of"):
            call()
    assert files(tmp_path / "outside") == ["secret"]
    assert list(storage.list("")) == []


def test_a_symbolic_link_that_stays_below_the_root_is_followed(storage: LocalStorage, root: Path) -> None:
    storage.create("new/a", b"a")
    (root / "old").symlink_to(root / "new")
    assert storage.read("old/a") == b"a"


def test_links_in_a_circle_are_refused(storage: LocalStorage, root: Path) -> None:
    root.mkdir()
    (root / "one").symlink_to(root / "other")
    (root / "other").symlink_to(root / "one")
    with pytest.raises((UnsafePath, Unreachable)):
        storage.read("one/a")


def test_the_root_itself_may_be_a_symbolic_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "root").symlink_to(tmp_path / "real")
    LocalStorage(tmp_path / "root").create("a", b"a")
    assert files(tmp_path / "real") == ["a"]


# Crashes


@pytest.mark.parametrize("step", ["fsync", "link"])
def test_a_crash_before_the_name_is_given_leaves_nothing_visible(storage: LocalStorage, root: Path, step: str) -> None:
    root.mkdir()
    crash_during(step, root)
    assert list(storage.list("")) == []
    [partial] = storage.partials("")
    assert partial.path == "manifest"
    assert storage.create("manifest", b"whole") is Created.NEW
    storage.discard(partial)
    assert files(root) == ["manifest"]


def test_a_crash_after_the_name_is_given_leaves_the_whole_file(storage: LocalStorage, root: Path) -> None:
    root.mkdir()
    crash_during("unlink", root)
    assert storage.read("manifest") == b"whole"
    assert [file.path for file in storage.list("")] == ["manifest"]
    assert len(list(storage.partials(""))) == 1


def crash_during(step: str, root: Path) -> None:
    program = (
        "import os, sys, pathlib\n"
        "from airflow_provider_ckpt.storage import LocalStorage\n"
        f"os.{step} = lambda *_, **__: os._exit(9)\n"
        "LocalStorage(pathlib.Path(sys.argv[1])).create('manifest', b'whole')\n"
    )
    crashed = subprocess.run([sys.executable, "-c", program, root], check=False)
    assert crashed.returncode == 9


def test_a_write_that_fails_takes_its_temporary_file_away(
    storage: LocalStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", failing(errno.EIO))
    with pytest.raises(Unreachable, match="Input/output error"):
        storage.create("a", b"a")
    assert files(root) == []


def test_a_name_that_may_not_survive_a_power_failure_is_an_unknown_outcome(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.create("before", b"")
    fsync = os.fsync
    calls: list[int] = []

    def fail_on_the_second(descriptor: int) -> None:  # the first is the file, the second its folder
        calls.append(descriptor)
        if len(calls) == 2:
            raise OSError(errno.EIO, "Input/output error")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fail_on_the_second)
    with pytest.raises(OutcomeUnknown, match="may not survive a power failure"):
        storage.create("a", b"a")


def test_a_new_file_is_flushed_and_then_every_name_on_the_way_to_it(
    storage: LocalStorage, root: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed = flushes(monkeypatch)
    storage.create("orders/files/a", b"a")
    assert flushed.pop(3).name.startswith(".a.")
    assert flushed == [root.parent, root, root / "orders", root / "orders" / "files"]


def test_what_is_stored_by_copying_is_flushed_too(
    storage: LocalStorage, root: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root.mkdir()
    monkeypatch.setattr(os, "link", failing(errno.EXDEV))
    flushed = flushes(monkeypatch)
    storage.put_file("a", source)
    storage.copy("a", "b")
    assert [path.name[:3] for path in flushed] == [".a.", "roo", ".b.", "roo"]


def flushes(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    flushed: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: flushed.append(Path(f"/proc/self/fd/{descriptor}").readlink()))
    return flushed


# Disks


def test_a_full_disk_is_a_clear_error_and_leaves_nothing(other_disk: Path) -> None:
    storage = LocalStorage(other_disk / "root")
    storage.create("small", b"fits")
    with pytest.raises(TryAgain, match=r"The disk below .* is full: orders/large was not written.*Free space"):
        storage.create("orders/large", bytes(128 * 1024))
    assert files(other_disk / "root") == ["small"]


def test_a_full_disk_stops_a_fetch_without_half_a_file(storage: LocalStorage, other_disk: Path) -> None:
    storage.create("large", bytes(128 * 1024))
    with pytest.raises(TryAgain, match="is full"):
        storage.fetch("large", other_disk / "large")
    assert files(other_disk) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_is_full_when_flushing_is_the_same_error(
    storage: LocalStorage, root: Path, source: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    root.mkdir()
    monkeypatch.setattr(os, "fsync", failing(number))
    with pytest.raises(TryAgain, match="Free space"):
        storage.create("a", b"a")
    with pytest.raises(TryAgain, match="Free space"):
        storage.put_file("a", source)
    assert files(root) == []


def test_a_forbidden_folder_is_a_clear_error(
    storage: LocalStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "mkdir", failing(errno.EACCES))
    with pytest.raises(Unreachable, match=r"a below .*root may not be touched \(Permission denied\)"):
        storage.create("a", b"a")


# Folders


def test_a_delete_takes_the_folders_that_it_emptied_and_never_the_root(storage: LocalStorage, root: Path) -> None:
    storage.create("orders/files/1/1/a", b"")
    storage.create("orders/files/2/1/a", b"")
    storage.delete("orders/files/1/1/a")
    assert sorted(path.name for path in (root / "orders" / "files").iterdir()) == ["2"]
    storage.delete("orders/files/2/1/a")
    assert list(root.iterdir()) == []


def test_a_folder_that_is_pruned_under_a_writer_is_made_again(
    storage: LocalStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pruned: list[Path] = []

    def make_and_lose_once(folder: Path) -> None:
        make_folders(folder)
        if not pruned:
            pruned.append(folder)
            folder.rmdir()

    monkeypatch.setattr("airflow_provider_ckpt.storage.local.make_folders", make_and_lose_once)
    assert storage.create("orders/a", b"a") is Created.NEW
    assert pruned == [root / "orders"]


def test_reading_from_a_root_that_does_not_exist_makes_nothing(storage: LocalStorage, root: Path) -> None:
    assert storage.stat("a") is None
    assert list(storage.list("")) == []
    assert not root.exists()


def test_a_file_can_not_be_a_folder_too(storage: LocalStorage) -> None:
    storage.create("a", b"")
    storage.create("folder/b", b"")
    with pytest.raises(Misused, match="a/b can not be a file"):
        storage.create("a/b", b"")
    with pytest.raises(AlreadyExists):
        storage.create("folder", b"")
    assert storage.stat("a/b") is None


def test_a_name_that_is_too_long_is_a_clear_error(storage: LocalStorage) -> None:
    with pytest.raises(Misused, match="too long"):
        storage.create("x" * 300, b"")


def test_the_names_of_temporary_files_are_reserved(storage: LocalStorage) -> None:
    with pytest.raises(UnsafePath, match="kept for temporary files"):
        storage.create("a/.b.0123456789abcdef.partial", b"")


def test_only_temporary_files_can_be_discarded(storage: LocalStorage) -> None:
    storage.create("a", b"a")
    with pytest.raises(Misused, match="it stays"):
        storage.discard(Partial(path="a", token="a"))
    assert storage.read("a") == b"a"


def test_only_regular_files_can_be_stored(storage: LocalStorage, tmp_path: Path) -> None:
    with pytest.raises(Misused, match="not a regular file"):
        storage.put_file("a", tmp_path)
