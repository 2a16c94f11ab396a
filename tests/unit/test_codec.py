"""JSON that can be trusted: canonical bytes out, checked values in."""

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_ckpt.protocol.codec import Fields, Json, canonical, parse, write_time
from airflow_provider_ckpt.protocol.errors import Corrupt

quick = settings(max_examples=30, deadline=None)

Read = Callable[[Fields, str], object]


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


texts = st.text(max_size=5)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = scalars | st.lists(scalars, max_size=3) | st.dictionaries(texts, scalars, max_size=3)
documents = st.dictionaries(texts, values, max_size=4)
times = st.datetimes(
    min_value=datetime(2, 1, 1),  # noqa: DTZ001 - Hypothesis adds the zone itself
    max_value=datetime(9998, 12, 31),  # noqa: DTZ001
    timezones=st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes))),
)


def _choose(fields: Fields, name: str) -> Colour:
    return fields.choice(name, Colour)


def test_there_is_one_way_to_write_a_document() -> None:
    document: Json = {"b": [1, 2.5, True, None], "a": {"z": "ä→", "y": ""}}
    assert canonical(document) == '{"a":{"y":"","z":"ä→"},"b":[1,2.5,true,null]}\n'.encode()


@quick
@given(documents)
def test_the_order_of_keys_does_not_change_the_bytes(document: dict[str, Json]) -> None:
    assert canonical(dict(reversed(document.items()))) == canonical(document)


@quick
@given(documents)
def test_what_is_written_reads_back_the_same(document: dict[str, Json]) -> None:
    data = canonical({"it": document})
    read = parse("it", data).object("it")
    assert read == document
    assert canonical({"it": read}) == data


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_number_is_never_written(number: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical({"a": number})


@pytest.mark.parametrize(
    "data", [b"", b"{", b"nonsense", b"\xff", b'{"a":1}x', b'{"a":' + b"[" * 100_000, b'{"a":' + b"9" * 5000 + b"}"]
)
def test_what_is_not_json_is_corrupt_and_named(data: bytes) -> None:
    with pytest.raises(Corrupt, match=r"^orders/17/manifest is not JSON: .+\.$"):
        parse("orders/17/manifest", data)


@pytest.mark.parametrize(("data", "kind"), [(b"[]", "list"), (b'"a"', "str"), (b"3", "int"), (b"null", "NoneType")])
def test_what_is_no_object_is_corrupt(data: bytes, kind: str) -> None:
    with pytest.raises(Corrupt, match=f"it should be an object, not {kind}"):
        parse("it", data)


@quick
@given(
    st.binary(max_size=40)
    | documents.map(canonical).flatmap(lambda data: st.integers(0, len(data)).map(lambda cut: data[cut:] + data[:cut]))
)
def test_any_bytes_are_read_or_corrupt(data: bytes) -> None:
    with suppress(Corrupt):
        parse("it", data)


@pytest.mark.parametrize("data", [b'{"a":NaN}', b'{"a":[-Infinity]}', b'{"a":1e999}'])
def test_a_number_that_can_not_be_written_is_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt):
        parse("it", data)


@pytest.mark.parametrize("data", [rb'{"a":"\ud800"}', b'{"a":"\xed\xa0\x80"}'])
def test_a_text_that_can_not_be_written_is_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt):
        parse("it", data)


def test_a_field_that_is_there_twice_is_corrupt() -> None:
    with pytest.raises(Corrupt):
        parse("it", b'{"a":1,"a":2}')


@pytest.mark.parametrize(
    ("read", "value", "result"),
    [
        (Fields.text, "a", "a"),
        (Fields.optional_text, None, None),
        (Fields.optional_text, "a", "a"),
        (Fields.whole, 0, 0),
        (Fields.whole, 2**70, 2**70),
        (Fields.optional_whole, None, None),
        (Fields.optional_whole, 3, 3),
        (Fields.flag, True, True),
        (Fields.flag, False, False),
        (Fields.time, "2026-01-01T13:00:00+01:00", datetime(2026, 1, 1, 12, tzinfo=UTC)),
        (_choose, "red", Colour.RED),
        (Fields.texts, ["a", "b"], ("a", "b")),
        (Fields.texts, [], ()),
        (Fields.sequence, [1, "a", None], [1, "a", None]),
        (Fields.object, {"a": 1}, {"a": 1}),
    ],
)
def test_a_field_of_the_right_kind_is_read(read: Read, value: Json, result: object) -> None:
    fields = Fields("it", {"f": value})
    assert read(fields, "f") == result
    fields.done()


@pytest.mark.parametrize(
    ("read", "expected", "wrong"),
    [
        (Fields.text, "text", [None, 1, True, [], {}]),
        (Fields.optional_text, "text or null", [1, False, [], {}]),
        (Fields.whole, "a whole number from 0", [None, -1, True, False, 1.0, "1", [], {}]),
        (Fields.optional_whole, "a whole number from 0", [-1, True, 1.0, "1", [], {}]),
        (Fields.flag, "true or false", [None, 0, 1, "true", [], {}]),
        (Fields.time, "an ISO 8601 time", ["", "soon", "2026-13-01T00:00:00Z"]),
        (Fields.time, "a time with its zone", ["2026-01-01T12:00:00", "2026-01-01"]),
        (Fields.time, "text", [None, 0, []]),
        (_choose, "one of red, blue", ["green", "RED", ""]),
        (Fields.texts, "a list of texts", [[1], ["a", None], [[]]]),
        (Fields.texts, "a list", [None, "a", {}]),
        (Fields.sequence, "a list", [None, "a", 1, {}]),
        (Fields.items, "a list", [None, "a", 1, {}]),
        (Fields.object, "an object", [None, "a", 1, []]),
    ],
)
def test_a_field_of_another_kind_is_corrupt_and_the_error_says_what_it_should_be(
    read: Read, expected: str, wrong: list[Json]
) -> None:
    for value in wrong:
        with pytest.raises(Corrupt) as refused:
            read(Fields("the document", {"f": value}), "f")
        assert str(refused.value) == f"the document: 'f' should be {expected}, not {value!r:.60}."


@pytest.mark.parametrize(
    "read",
    [
        *(Fields.text, Fields.optional_text, Fields.whole, Fields.optional_whole, Fields.flag, Fields.time, _choose),
        *(Fields.texts, Fields.sequence, Fields.items, Fields.object),
    ],
)
def test_a_field_that_is_not_there_is_named(read: Read) -> None:
    with pytest.raises(Corrupt, match="the document lacks the field 'f'"):
        read(Fields("the document", {"g": 1}), "f")


def test_a_long_value_is_cut_short_in_the_error() -> None:
    with pytest.raises(Corrupt) as refused:
        Fields("it", {"f": "x" * 10_000}).whole("f")
    assert len(str(refused.value)) < 150


def test_fields_that_nobody_read_are_refused_by_name() -> None:
    fields = Fields("it", {"b": 1, "a": 2, "known": 3})
    fields.whole("known")
    with pytest.raises(Corrupt, match=r"^it has unknown fields: a, b\.$"):
        fields.done()


def test_a_field_is_read_once() -> None:
    fields = Fields("it", {"a": 1})
    fields.whole("a")
    with pytest.raises(Corrupt, match="lacks the field 'a'"):
        fields.whole("a")


def test_an_item_of_a_list_says_which_it_is() -> None:
    first, second = Fields("it", {"parts": [{"n": 1}, {"n": "x"}]}).items("parts")
    assert first.whole("n") == 1
    with pytest.raises(Corrupt, match=r"^it, parts\[1\]: 'n' should be a whole number"):
        second.whole("n")
    with pytest.raises(Corrupt, match=r"it, parts\[0\] should be an object, not int"):
        Fields("it", {"parts": [3]}).items("parts")


def test_reading_does_not_change_the_document() -> None:
    document: dict[str, Json] = {"a": 1}
    Fields("it", document).whole("a")
    assert document == {"a": 1}


@quick
@given(times)
def test_a_time_reads_back_the_same_in_utc(time: datetime) -> None:
    written = write_time(time)
    read = Fields("it", {"t": written}).time("t")
    assert read == time
    assert read.tzinfo is UTC
    assert (len(written), written[-1]) == (27, "Z")


@quick
@given(times, times)
def test_written_times_sort_as_times_do(one: datetime, other: datetime) -> None:
    assert (write_time(one) < write_time(other)) == (one < other)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00"])
def test_a_time_beyond_the_calendar_is_corrupt(text: str) -> None:
    with pytest.raises(Corrupt):
        Fields("it", {"t": text}).time("t")


def test_canonical_json_is_ordinary_json() -> None:
    assert json.loads(canonical({"a": ["ä", 1]})) == {"a": ["ä", 1]}
