"""What S3 may answer besides "done": a real boto3 client whose requests are answered by a script, without a network."""

from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import cast

import boto3
import pytest
from botocore.awsrequest import AWSRequest, AWSResponse
from botocore.compat import HTTPHeaders
from botocore.config import Config
from botocore.exceptions import (
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
)
from urllib3 import HTTPResponse
from urllib3.exceptions import ProtocolError

from airflow_provider_ckpt.protocol.errors import (
    AlreadyExists,
    CkptError,
    Corrupt,
    Misused,
    NotFound,
    OutcomeUnknown,
    TryAgain,
    Unreachable,
)
from airflow_provider_ckpt.storage import CHUNK_BYTES, Created, Partial, digest_bytes
from airflow_provider_ckpt.storage.s3 import S3Storage
from airflow_provider_ckpt.storage.s3_client import S3Client
from airflow_provider_ckpt.storage.s3_multipart import HashedFile

URL = "http://minio.internal:9000"
KEY_ID, SECRET = "AKIAEXAMPLE", "wJalrXUtnFEMI"
Answer = Exception | tuple[int, dict[str, str], BytesIO]

TIMEOUT = ReadTimeoutError(endpoint_url=URL)
LOST = [
    TIMEOUT,
    ConnectTimeoutError(endpoint_url=URL),
    ConnectionClosedError(endpoint_url=URL),
    EndpointConnectionError(endpoint_url=URL),
]


def done(body: bytes = b"", **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return 200, {"Content-Length": str(len(body)), **named}, BytesIO(body)


def refused(status: int, code: str) -> Answer:
    return status, {}, BytesIO(f"<Error><Code>{code}</Code><Message>because</Message></Error>".encode())


def found(size: int, **headers: str) -> Answer:
    """As HEAD tells it: without a body."""
    return (
        200,
        {"Content-Length": str(size)} | {name.replace("_", "-"): value for name, value in headers.items()},
        BytesIO(),
    )


def missing() -> Answer:
    """As HEAD tells it: without a body, and without a code."""
    return 404, {}, BytesIO()


class ScriptedS3:
    """Answers each operation with what the test prepared for it, and remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.requests: list[AWSRequest] = []
        self._answers: dict[str, list[Answer]] = {}
        client = boto3.client(
            "s3",
            endpoint_url=URL,
            region_name="us-east-1",
            aws_access_key_id=KEY_ID,
            aws_secret_access_key=SECRET,
            config=Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}),
        )
        client.meta.events.register("before-send.s3", self._answer)
        self.client = cast("S3Client", client)
        self.slept: list[float] = []
        self.storage = S3Storage(
            self.client, "checkpoints", "prod", multipart_threshold=8, part_bytes=4, sleep=self.slept.append
        )

    def answers(self, operation: str, *answers: Answer) -> None:
        self._answers.setdefault(operation, []).extend(answers)

    def _answer(self, request: AWSRequest, event_name: str, **_: object) -> AWSResponse:
        operation = event_name.rpartition(".")[2]
        self.asked.append(operation)
        self.requests.append(request)
        answer = self._answers[operation].pop(0)
        if isinstance(answer, Exception):
            raise answer
        status, headers, body = answer
        raw = HTTPResponse(body, headers, status, preload_content=False, request_method=request.method)
        return AWSResponse(URL, status, HTTPHeaders.from_dict(headers), raw)

    def header(self, name: str, number: int = -1) -> str | None:
        value = cast("str | bytes | None", self.requests[number].headers.get(name))
        return value.decode() if isinstance(value, bytes) else value

    def is_exhausted(self) -> bool:
        return not any(self._answers.values())


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedS3]:
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    scripted = ScriptedS3()
    yield scripted
    assert scripted.is_exhausted(), scripted._answers


# Conflicts


def test_a_conflict_with_another_request_is_tried_again(s3: ScriptedS3) -> None:
    conflict = refused(409, "ConditionalRequestConflict")
    s3.answers("PutObject", conflict, refused(409, "ConditionalRequestConflict"), done())
    assert s3.storage.create("a", b"a") is Created.NEW
    assert s3.slept == [0.1, 0.3]


def test_conflicts_without_end_are_given_up(s3: ScriptedS3) -> None:
    s3.answers("PutObject", *(refused(409, "ConditionalRequestConflict") for _ in range(4)))
    with pytest.raises(TryAgain, match="others kept changing the same place"):
        s3.storage.create("a", b"a")


def test_an_object_that_was_in_the_way_and_is_gone_is_tried_again(s3: ScriptedS3) -> None:
    s3.answers("PutObject", refused(412, "PreconditionFailed"), done())
    s3.answers("HeadObject", missing())
    s3.answers("HeadBucket", done())
    assert s3.storage.create("a", b"a") is Created.NEW


def test_a_create_says_that_it_overwrites_nothing_and_what_it_sends(s3: ScriptedS3) -> None:
    s3.answers("PutObject", done())
    s3.storage.create("a", b"a")
    assert s3.header("If-None-Match") == "*"
    assert s3.header("x-amz-checksum-sha256") == "ypeBEsobvcr6wjGzmiPcTaeG7/gUfE5yuYB3ha/uSLs="
    assert s3.header("x-amz-meta-sha256") == digest_bytes(b"a").sha256


# Doubt


UNCLEAR: list[Answer] = [*LOST, refused(500, "InternalError"), refused(503, "SlowDown"), refused(400, "RequestTimeout")]


@pytest.mark.parametrize("unclear", range(len(UNCLEAR)))
def test_a_write_without_an_answer_that_happened_is_fine(s3: ScriptedS3, unclear: int) -> None:
    s3.answers("PutObject", fresh(unclear))
    s3.answers("HeadObject", found(1))
    s3.answers("GetObject", done(b"a"))
    assert s3.storage.create("a", b"a") is Created.SAME


@pytest.mark.parametrize("unclear", range(len(UNCLEAR)))
def test_a_write_without_an_answer_that_is_not_there_may_still_happen(s3: ScriptedS3, unclear: int) -> None:
    s3.answers("PutObject", fresh(unclear))
    s3.answers("HeadObject", missing())
    s3.answers("HeadBucket", done())
    with pytest.raises(OutcomeUnknown, match=r"did not say whether it changed a .* delete nothing"):
        s3.storage.create("a", b"a")


def test_a_write_without_an_answer_that_can_not_be_read_is_an_unknown_outcome(s3: ScriptedS3) -> None:
    s3.answers("PutObject", TIMEOUT)
    s3.answers("HeadObject", TIMEOUT)
    with pytest.raises(OutcomeUnknown):
        s3.storage.create("a", b"a")


def test_a_write_without_an_answer_that_somebody_else_won_is_refused(s3: ScriptedS3) -> None:
    s3.answers("PutObject", TIMEOUT)
    s3.answers("HeadObject", found(1))
    s3.answers("GetObject", done(b"b"))
    with pytest.raises(AlreadyExists):
        s3.storage.create("a", b"a")


def test_a_delete_without_an_answer_is_an_unknown_outcome(s3: ScriptedS3) -> None:
    s3.answers("HeadObject", found(1))
    s3.answers("DeleteObject", TIMEOUT)
    with pytest.raises(OutcomeUnknown):
        s3.storage.delete("a")


def fresh(unclear: int) -> Answer:
    """A body is read once: each test gets its own."""
    answer = UNCLEAR[unclear]
    return answer if isinstance(answer, Exception) else (answer[0], answer[1], BytesIO(answer[2].getvalue()))


# Uploads in parts


@pytest.fixture
def large(tmp_path: Path) -> Path:
    file = tmp_path / "large"
    file.write_bytes(b"0123456789")
    return file


def begin_upload(s3: ScriptedS3, times: int = 1) -> None:
    started = b"<InitiateMultipartUploadResult><UploadId>7</UploadId></InitiateMultipartUploadResult>"
    s3.answers("HeadObject", missing())
    s3.answers("HeadBucket", done())
    s3.answers("CreateMultipartUpload", *(done(started) for _ in range(times)))


def test_an_upload_reads_the_file_once_and_completes_conditionally(s3: ScriptedS3, large: Path) -> None:
    begin_upload(s3)
    s3.answers("UploadPart", *(done(ETag=f'"{number}"') for number in range(3)))
    s3.answers("CompleteMultipartUpload", done(b"<CompleteMultipartUploadResult/>"))
    assert s3.storage.put_file("a", large) == digest_bytes(b"0123456789")
    assert s3.header("If-None-Match") == "*"


def test_an_upload_that_breaks_before_the_end_changed_nothing_and_is_aborted(s3: ScriptedS3, large: Path) -> None:
    begin_upload(s3)
    s3.answers("UploadPart", done(ETag='"1"'), TIMEOUT)
    s3.answers("AbortMultipartUpload", done())
    with pytest.raises(Unreachable, match="did not serve a"):
        s3.storage.put_file("a", large)
    assert s3.asked[-1] == "AbortMultipartUpload"


def test_an_upload_that_somebody_discarded_may_be_tried_again(s3: ScriptedS3, large: Path) -> None:
    begin_upload(s3)
    s3.answers("UploadPart", refused(404, "NoSuchUpload"))
    s3.answers("AbortMultipartUpload", refused(404, "NoSuchUpload"))
    with pytest.raises(TryAgain, match="was discarded by somebody else"):
        s3.storage.put_file("a", large)


def test_a_completion_without_an_answer_is_looked_up_and_nothing_is_aborted(s3: ScriptedS3, large: Path) -> None:
    begin_upload(s3)
    s3.answers("UploadPart", *(done(ETag=f'"{number}"') for number in range(3)))
    s3.answers("CompleteMultipartUpload", TIMEOUT)
    s3.answers("HeadObject", found(10))
    s3.answers("GetObject", done(b"0123456789"))
    assert s3.storage.put_file("a", large) == digest_bytes(b"0123456789")
    assert "AbortMultipartUpload" not in s3.asked


def test_a_completion_that_leaves_doubt_keeps_the_upload(s3: ScriptedS3, large: Path) -> None:
    begin_upload(s3)
    s3.answers("UploadPart", *(done(ETag=f'"{number}"') for number in range(3)))
    s3.answers("CompleteMultipartUpload", refused(404, "NoSuchUpload"))
    s3.answers("HeadObject", missing())
    with pytest.raises(OutcomeUnknown):
        s3.storage.put_file("a", large)
    assert "AbortMultipartUpload" not in s3.asked


def test_a_completion_that_lost_the_race_is_aborted_and_compared(s3: ScriptedS3, large: Path) -> None:
    begin_upload(s3)
    s3.answers("UploadPart", *(done(ETag=f'"{number}"') for number in range(3)))
    s3.answers("CompleteMultipartUpload", refused(412, "PreconditionFailed"))
    s3.answers("AbortMultipartUpload", done())
    s3.answers("HeadObject", found(9))
    with pytest.raises(AlreadyExists):
        s3.storage.put_file("a", large)


def test_a_completion_in_conflict_uploads_again(s3: ScriptedS3, large: Path) -> None:
    begin_upload(s3, times=2)
    s3.answers("UploadPart", *(done(ETag=f'"{number}"') for number in range(6)))
    s3.answers(
        "CompleteMultipartUpload",
        refused(409, "ConditionalRequestConflict"),
        done(b"<CompleteMultipartUploadResult/>"),
    )
    s3.answers("AbortMultipartUpload", done())
    assert s3.storage.put_file("a", large) == digest_bytes(b"0123456789")


# Copies


def test_a_copy_is_conditional(s3: ScriptedS3) -> None:
    s3.answers("HeadObject", found(1), missing(), missing())
    s3.answers("HeadBucket", done())
    s3.answers("CopyObject", done(b"<CopyObjectResult/>"))
    s3.storage.copy("a", "b")
    assert s3.header("If-None-Match") == "*"


def test_a_store_without_conditional_copies_copies_in_parts_which_are_conditional(s3: ScriptedS3) -> None:
    s3.answers("HeadObject", found(1), missing(), missing(), found(1))
    s3.answers("HeadBucket", done())
    s3.answers("CopyObject", refused(501, "NotImplemented"))
    begun = b"<InitiateMultipartUploadResult><UploadId>7</UploadId></InitiateMultipartUploadResult>"
    s3.answers("CreateMultipartUpload", done(begun))
    s3.answers("UploadPartCopy", done(b'<CopyPartResult><ETag>"1"</ETag></CopyPartResult>'))
    s3.answers("CompleteMultipartUpload", done(b"<CompleteMultipartUploadResult/>"))
    s3.storage.copy("a", "b")
    assert s3.header("If-None-Match") == "*"


def test_a_copy_whose_checksum_is_known_reads_nothing(s3: ScriptedS3) -> None:
    s3.answers("HeadObject", found(1, x_amz_meta_sha256="same"), found(1, x_amz_meta_sha256="same"))
    s3.storage.copy("a", "b")
    assert s3.asked == ["HeadObject", "HeadObject"]


def test_a_source_that_vanishes_before_it_is_copied_is_not_found(s3: ScriptedS3) -> None:
    s3.answers("HeadObject", found(1), missing(), missing())
    s3.answers("HeadBucket", done())
    s3.answers("CopyObject", refused(404, "NoSuchKey"))
    with pytest.raises(NotFound, match="There is no file a in s3://checkpoints/prod"):
        s3.storage.copy("a", "b")


# Streams


class Breaking(BytesIO):
    """A connection that breaks after what it has."""

    def read(self, size: int | None = -1, /) -> bytes:
        chunk = super().read(size)
        if not chunk:
            raise ProtocolError("connection broken")
        return chunk


def broken(body: bytes, length: int) -> Answer:
    return 200, {"Content-Length": str(length)}, Breaking(body)


def test_a_stream_that_breaks_off_goes_on_where_it_was(s3: ScriptedS3, tmp_path: Path) -> None:
    data = bytes(range(256)) * 8192 + b"the end"
    rest = data[CHUNK_BYTES:]
    s3.answers("GetObject", broken(data[: CHUNK_BYTES + 4], len(data)), broken(rest[:3], len(rest)), done(rest))
    s3.storage.fetch("a", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == data
    assert [s3.header("Range", number) for number in range(3)] == [None, "bytes=1048576-", "bytes=1048576-"]


def test_a_stream_that_only_breaks_is_given_up_and_leaves_no_file(s3: ScriptedS3, tmp_path: Path) -> None:
    s3.answers("GetObject", *(broken(b"", 10) for _ in range(4)))
    with pytest.raises(Unreachable, match="did not serve a"):
        s3.storage.fetch("a", tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_bytes_that_are_not_what_was_stored_are_corrupt(s3: ScriptedS3) -> None:
    s3.answers("GetObject", done(b"damaged", x_amz_checksum_sha256="ypeBEsobvcr6wjGzmiPcTaeG7/gUfE5yuYB3ha/uSLs="))
    with pytest.raises(Corrupt, match="another checksum"):
        s3.storage.read("a")


# Errors


CALLS: dict[str, tuple[str, Callable[[S3Storage], object]]] = {
    "create": ("PutObject", lambda storage: storage.create("a", b"")),
    "read": ("GetObject", lambda storage: storage.read("a")),
    "list": ("ListObjectsV2", lambda storage: list(storage.list("a"))),
    "partials": ("ListMultipartUploads", lambda storage: list(storage.partials("a"))),
    "stat": ("HeadObject", lambda storage: storage.stat("a")),
    "discard": ("AbortMultipartUpload", lambda storage: storage.discard(Partial(path="a", token="7"))),
}


@pytest.mark.parametrize("call", [call for call in CALLS if call != "stat"])
@pytest.mark.parametrize(
    ("status", "code", "kind", "text"),
    [
        (403, "AccessDenied", Misused, "is denied .* Allow this identity"),
        (403, "InvalidAccessKeyId", Misused, "credentials .* do not work"),
        (403, "SignatureDoesNotMatch", Misused, "credentials .* do not work"),
        (404, "NoSuchBucket", Misused, "There is no bucket 'checkpoints'"),
        (400, "InvalidArgument", Misused, "InvalidArgument, because"),
    ],
)
def test_what_s3_refuses_names_bucket_and_host_and_says_what_to_do(
    s3: ScriptedS3, call: str, status: int, code: str, kind: type[CkptError], text: str
) -> None:
    operation, make = CALLS[call]
    s3.answers(operation, refused(status, code))
    with pytest.raises(kind, match=text) as raised:
        make(s3.storage)
    assert "bucket 'checkpoints' at minio.internal" in str(raised.value)
    assert not isinstance(raised.value, NotFound)
    assert no_credentials_in(raised.value)


@pytest.mark.parametrize(("status", "text"), [(403, "is denied .* Allow this identity"), (405, "refused a: 405")])
def test_a_refusal_without_words_is_explained_too(s3: ScriptedS3, status: int, text: str) -> None:
    s3.answers("HeadObject", (status, {}, BytesIO()))
    with pytest.raises(Misused, match=text):
        s3.storage.stat("a")


@pytest.mark.parametrize("call", [call for call in CALLS if call != "create"])
@pytest.mark.parametrize("lost", LOST, ids=lambda error: type(error).__name__)
def test_a_store_that_does_not_answer_a_reader_is_unreachable(s3: ScriptedS3, call: str, lost: Exception) -> None:
    operation, make = CALLS[call]
    s3.answers(operation, lost)
    with pytest.raises(Unreachable, match=r"bucket 'checkpoints' at minio.internal did not serve a") as raised:
        make(s3.storage)
    assert no_credentials_in(raised.value)


def no_credentials_in(error: BaseException | None) -> bool:
    """Nor in what caused it: a log shows the whole chain."""
    return error is None or (
        KEY_ID not in str(error)
        and SECRET not in str(error)
        and no_credentials_in(error.__cause__ or error.__context__)
    )


def test_a_missing_bucket_is_told_apart_from_a_missing_object(s3: ScriptedS3) -> None:
    s3.answers("HeadObject", missing())
    s3.answers("HeadBucket", missing())
    with pytest.raises(Misused, match="Make the bucket"):
        s3.storage.stat("a")


def test_the_bucket_is_looked_for_once(s3: ScriptedS3) -> None:
    s3.answers("HeadObject", missing(), missing())
    s3.answers("HeadBucket", done())
    assert s3.storage.stat("a") is s3.storage.stat("b") is None


def test_who_may_not_look_at_the_bucket_still_learns_that_an_object_is_missing(s3: ScriptedS3) -> None:
    s3.answers("HeadObject", missing())
    s3.answers("HeadBucket", (403, {}, BytesIO()))
    assert s3.storage.stat("a") is None


def test_a_store_without_conditional_writes_is_refused(s3: ScriptedS3) -> None:
    s3.answers("PutObject", refused(501, "NotImplemented"))
    with pytest.raises(Misused, match="no conditional writes"):
        s3.storage.create("a", b"a")


def test_bytes_damaged_on_their_way_may_be_sent_again(s3: ScriptedS3) -> None:
    s3.answers("PutObject", refused(400, "BadDigest"))
    with pytest.raises(TryAgain, match="damaged on its way"):
        s3.storage.create("a", b"a")


def test_missing_credentials_are_a_clear_error(s3: ScriptedS3) -> None:
    s3.answers("PutObject", NoCredentialsError())
    with pytest.raises(Misused, match=r"credentials or the settings .* do not work"):
        s3.storage.create("a", b"a")


def test_the_folders_that_consoles_make_are_not_files(s3: ScriptedS3) -> None:
    page = (
        b"<ListBucketResult><Contents><Key>prod/orders/</Key><Size>0</Size></Contents>"
        b"<Contents><Key>prod/orders/a</Key><Size>1</Size></Contents></ListBucketResult>"
    )
    s3.answers("ListObjectsV2", done(page))
    assert [file.path for file in s3.storage.list("")] == ["orders/a"]


def test_very_large_files_never_have_more_parts_than_s3_allows(tmp_path: Path) -> None:
    file = tmp_path / "large"
    file.write_bytes(bytes(40_001))
    parts = list(HashedFile(file).parts(1))
    assert len(parts) <= 10_000
    assert sum(map(len, parts)) == 40_001
