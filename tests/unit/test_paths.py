"""What may be called what, and where things lie below a storage root."""

import posixpath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_ckpt.protocol.errors import CkptError, Misused, UnsafePath
from airflow_provider_ckpt.protocol.paths import (
    check_name,
    check_path,
    decided_path,
    file_path,
    home,
    home_of_manifest,
    manifest_path,
    owner_of_path,
)

quick = settings(max_examples=60, deadline=None)

names = st.text("aZ09_.-", max_size=20).map("n".__add__)
ids = st.integers(min_value=0, max_value=2**63)
parts = st.text("aä./\\\n\ud800", max_size=12)


@pytest.mark.parametrize("name", ["orders", "a", "Orders-2.daily_total", "2026-q1", "x" * 100])
def test_letters_digits_and_a_little_punctuation_make_a_name(name: str) -> None:
    assert check_name("pipeline", name) == name
    assert check_name("savepoint", name) == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "-a", "_a", ".hidden", "a/b", "a\\b", "a b", "a\n", "ä", "٣", "x" * 101, "a\x00"]
)
@pytest.mark.parametrize("what", ["pipeline", "savepoint"])
def test_anything_else_is_misused_and_the_error_says_what_is_allowed(what: str, name: str) -> None:
    with pytest.raises(Misused, match=f"can not name a {what}: use 1 to 100 letters"):
        check_name(what, name)


@pytest.mark.parametrize("path", ["a", "a/b", "..a/b..", "a b/ä", ".hidden/...", "x" * 1000])
def test_a_relative_normal_path_is_safe(path: str) -> None:
    assert check_path(path) == path


@pytest.mark.parametrize(
    "path",
    [
        *("", ".", "..", "/", "/etc/passwd", "../x", "a/../b", "a/..", "a/./b", "./a", "a//b", "a/", "a\\b", "..\\x"),
        *("a\x00b", "a\nb", "a\x7f", "a\u202eb", "a\ud800", "x" * 1001, "ä" * 501),
    ],
)
def test_a_path_that_could_leave_its_root_or_hide_is_refused(path: str) -> None:
    with pytest.raises(UnsafePath, match="never leaves its root"):
        check_path(path)


@quick
@given(st.text(st.sampled_from("a./\\ä\x00"), max_size=12))
def test_a_path_that_is_accepted_is_normal_and_below_its_root(path: str) -> None:
    try:
        check_path(path)
    except CkptError:
        return
    assert posixpath.normpath(posixpath.join("/base", path)) == f"/base/{path}"


@quick
@given(names, ids, names)
def test_the_owner_of_a_checkpoints_files_can_be_read_off_their_paths(pipeline: str, id_: int, savepoint: str) -> None:
    for folder in (home(pipeline, id_, None), home(pipeline, id_, savepoint)):
        assert owner_of_path(pipeline, manifest_path(folder)) == id_
        assert owner_of_path(pipeline, decided_path(folder)) == id_
        assert owner_of_path(pipeline, f"{folder}/{file_path(1, 2, 'x')}") == id_
        assert home_of_manifest(manifest_path(folder)) == home_of_manifest(decided_path(folder)) == folder
    assert owner_of_path(pipeline, f"{pipeline}/{file_path(3, id_, 'totals/state/0/3/41.delta')}") == id_


def test_things_lie_where_the_docstring_says() -> None:
    assert f"orders/{file_path(2, 17, 'state/0')}" == "orders/files/2/17/state/0"
    assert manifest_path(home("orders", 17, None)) == "orders/checkpoints/17/manifest"
    assert decided_path(home("orders", 17, "before-upgrade")) == "orders/savepoints/before-upgrade.17/decided"


@pytest.mark.parametrize(
    "path",
    [
        *("orders", "orders/identity", "orders/notes.txt", "orders/files/2/17", "orders/files/2/new/x"),
        *("orders/checkpoints/latest/manifest", "orders/savepoints/mine/manifest"),
        *("orders2/files/2/17/x", "other/checkpoints/17/manifest"),
    ],
)
def test_a_foreign_path_has_no_owner(path: str) -> None:
    assert owner_of_path("orders", path) is None


@pytest.mark.parametrize("path", ["files/checkpoints/3/manifest", "checkpoints/3/files/1/3/x"])
def test_the_path_of_a_pipeline_that_is_called_like_a_folder_is_foreign_too(path: str) -> None:
    assert owner_of_path("orders", path) is None


@quick
@given(ids, ids, parts)
def test_a_file_path_is_safe_or_refused(attempt: int, checkpoint: int, name: str) -> None:
    try:
        path = file_path(attempt, checkpoint, name)
    except UnsafePath:
        return
    assert posixpath.normpath(path) == path
    assert path.startswith(f"files/{attempt}/{checkpoint}/")


def test_a_file_name_can_not_climb_out_of_its_checkpoint() -> None:
    with pytest.raises(UnsafePath):
        file_path(1, 2, "../../3/x")


def test_the_name_of_a_savepoint_is_never_read_as_an_id() -> None:
    with pytest.raises(Misused, match="'17' can not name a savepoint"):
        check_name("savepoint", "17")
    assert check_name("pipeline", "17") == "17"
