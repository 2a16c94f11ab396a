"""What HDFS may answer besides "done": fsspec's real client whose requests are answered by a script."""

import io
import json
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
from requests.adapters import BaseAdapter

from airflow_provider_ckpt.protocol.errors import (
    AlreadyExists,
    CkptError,
    Misused,
    NotFound,
    OutcomeUnknown,
    TryAgain,
    Unreachable,
)
from airflow_provider_ckpt.storage import Created, Partial, open_storage
from airflow_provider_ckpt.storage.hdfs import HdfsStorage
from airflow_provider_ckpt.storage.hdfs_client import connect
from airflow_provider_ckpt.storage.hdfs_place import read_place

URL = "hdfs://namenode:8020/base?webhdfs=namenode:9870&user=spark"
Answer = Exception | tuple[int, dict[str, str], bytes]
LOST = [requests.ConnectionError("lost"), requests.ReadTimeout("late"), requests.exceptions.ChunkedEncodingError("cut")]


def said(document: object = None) -> Answer:
    return 200, {}, b"" if document is None else json.dumps(document).encode()


def refused(kind: str, status: int = 403) -> Answer:
    document = {"RemoteException": {"exception": kind, "message": "because\n\tat org.apache.hadoop"}}
    return status, {}, json.dumps(document).encode()


def found(size: int, kind: str = "FILE") -> Answer:
    return said({"FileStatus": {"type": kind, "length": size, "pathSuffix": ""}})


TO_A_DATA_NODE: Answer = (307, {"Location": "http://datanode:9864/webhdfs/v1/x?op=THERE"}, b"")
WRITTEN: list[Answer] = [TO_A_DATA_NODE, (201, {}, b"")]
DELETED, ABSENT = said({"boolean": True}), refused("FileNotFoundException", 404)


class Script(BaseAdapter):
    """Answers one request after the other; remembers what each asked for."""

    def __init__(self, answers: list[Answer]) -> None:
        super().__init__()
        self.answers = list(answers)
        self.asked: list[str] = []

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        for _chunk in request.body if isinstance(request.body, Iterator) else ():
            pass  # the content goes out
        self.asked.append(parse_qs(urlsplit(request.url or "").query)["op"][0])
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        response = requests.Response()
        response.status_code, response.raw, response.request = answer[0], io.BytesIO(answer[2]), request
        response.headers.update(answer[1])
        response.url = request.url or ""
        return response

    def close(self) -> None:
        pass


@pytest.fixture
def play() -> Callable[..., tuple[HdfsStorage, Script]]:
    def play(*answers: Answer) -> tuple[HdfsStorage, Script]:
        place = read_place(urlsplit(URL))
        client, script = connect(place), Script(list(answers))
        client._fs.session.mount("http://", script)
        return HdfsStorage(client, place), script

    return play


Play = Callable[..., tuple[HdfsStorage, Script]]


@pytest.mark.parametrize("lost", LOST)
def test_an_unanswered_rename_that_was_done_is_found_to_be_done(play: Play, lost: Exception) -> None:
    storage, script = play(*WRITTEN, lost, found(2), found(2), TO_A_DATA_NODE, (200, {}, b"{}"), DELETED)
    assert storage.create("manifest", b"{}") is Created.SAME
    assert script.asked[:4] == ["CREATE", "THERE", "RENAME", "GETFILESTATUS"]


@pytest.mark.parametrize("lost", LOST)
def test_an_unanswered_rename_of_which_nothing_is_seen_is_unknown_and_stays_possible(
    play: Play, lost: Exception
) -> None:
    storage, script = play(*WRITTEN, lost, ABSENT)
    with pytest.raises(OutcomeUnknown, match="did not say whether /base/manifest was changed"):
        storage.create("manifest", b"{}")
    assert "DELETE" not in script.asked


def test_a_rename_that_nobody_answers_nor_shows_is_unknown(play: Play) -> None:
    storage, _ = play(*WRITTEN, LOST[0], LOST[0])
    with pytest.raises(OutcomeUnknown):
        storage.create("manifest", b"{}")


def test_a_gateway_that_fails_in_the_middle_of_a_rename_leaves_it_unknown(play: Play) -> None:
    storage, _ = play(*WRITTEN, (502, {}, b"<html>"), ABSENT)
    with pytest.raises(OutcomeUnknown, match="HTTP 502"):
        storage.create("manifest", b"{}")


def test_a_rename_that_says_false_is_none(play: Play) -> None:
    """As gateways answer that do not know the option by which a name node raises it."""
    storage, _ = play(*WRITTEN, said({"boolean": False}), found(3), DELETED)
    with pytest.raises(AlreadyExists):
        storage.create("manifest", b"{}")


def test_a_folder_under_the_same_name_is_refused(play: Play) -> None:
    storage, _ = play(*WRITTEN, refused("FileAlreadyExistsException"), found(0, "DIRECTORY"), DELETED)
    with pytest.raises(AlreadyExists):
        storage.create("manifest", b"{}")


def test_who_comes_and_goes_for_ever_is_not_waited_for(play: Play) -> None:
    storage, _ = play(*WRITTEN, *[refused("FileAlreadyExistsException"), ABSENT] * 5, DELETED)
    with pytest.raises(TryAgain, match="others kept changing the same place"):
        storage.create("manifest", b"{}")


@pytest.mark.parametrize("lost", LOST)
def test_a_write_that_breaks_off_is_certain_not_to_have_happened(play: Play, lost: Exception) -> None:
    storage, script = play(TO_A_DATA_NODE, lost, DELETED)
    with pytest.raises(Unreachable, match="Check that its name node and data nodes are up"):
        storage.create("manifest", b"{}")
    assert script.asked[-1] == "DELETE", "what was written is taken away"


def test_a_delete_that_nobody_answers_is_unknown(play: Play) -> None:
    storage, _ = play(found(2), LOST[0])
    with pytest.raises(OutcomeUnknown):
        storage.delete("manifest")


def test_what_a_data_node_says_against_it_is_never_taken_for_content(play: Play) -> None:
    storage, _ = play(found(2), TO_A_DATA_NODE, refused("FileNotFoundException", 404))
    with pytest.raises(NotFound, match="it was deleted meanwhile"):
        storage.read("manifest")


def test_content_that_is_shorter_than_it_should_be_is_not_taken_for_all(play: Play) -> None:
    storage, _ = play(found(9), TO_A_DATA_NODE, (200, {}, b"1234"), TO_A_DATA_NODE, (200, {}, b""))
    with pytest.raises(Unreachable, match="broke off in the middle"):
        storage.read("manifest")


@pytest.mark.parametrize(
    ("answer", "error", "advice"),
    [
        (refused("SafeModeException"), Unreachable, "until its safe mode is over"),
        (refused("StandbyException"), Unreachable, "name the active one"),
        (refused("DSQuotaExceededException"), TryAgain, "raise the quota"),
        (refused("AccessControlException"), Misused, "Name a user who may read and write there"),
        ((401, {}, b"<html>"), Misused, "Kerberos can not be used yet"),
        (refused("InvalidPathException", 400), Misused, "Choose another name"),
        (refused("IOException"), Unreachable, "because"),
        ((503, {}, b""), Unreachable, "run this again"),
    ],
)
def test_every_refusal_says_what_to_do(play: Play, answer: Answer, error: type[CkptError], advice: str) -> None:
    for call in (lambda s: s.stat("a"), lambda s: s.read("a"), lambda s: list(s.list("")), lambda s: s.copy("a", "b")):
        storage, _ = play(answer)
        with pytest.raises(error, match=advice) as raised:
            call(storage)
        assert "org.apache.hadoop" not in str(raised.value)


def test_a_finished_file_is_not_discarded_as_a_partial_one(play: Play) -> None:
    storage, script = play()
    with pytest.raises(Misused, match="it stays"):
        storage.discard(Partial(path="a", token="a"))
    assert script.asked == []


def test_a_name_node_that_is_not_there_is_unreachable_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    began = time.monotonic()
    with pytest.raises(Unreachable, match=f"HDFS at 127.0.0.1:{port} did not serve /base/a"):
        open_storage(f"hdfs://namenode/base?webhdfs=127.0.0.1:{port}").create("a", b"")
    assert time.monotonic() - began < 10


def test_a_name_node_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_provider_ckpt.storage.hdfs_client._READ_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        storage = open_storage(f"hdfs://namenode/base?webhdfs=127.0.0.1:{server.getsockname()[1]}")
        for call in (lambda: storage.stat("a"), lambda: storage.create("a", b"")):
            with pytest.raises(Unreachable):
                call()
