"""The parts of the command line that need no store."""

import argparse
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_provider_ckpt.cli import add_commands, build_parser
from airflow_provider_ckpt.cli.arguments import Usage
from airflow_provider_ckpt.cli.exit_codes import MEANINGS, ExitCode, code_of
from airflow_provider_ckpt.cli.humanise import ago, count, size
from airflow_provider_ckpt.cli.humanise import time as written
from airflow_provider_ckpt.cli.redaction import has_secret, redact, redact_all
from airflow_provider_ckpt.cli.running import load_handler
from airflow_provider_ckpt.cli.settings import places
from airflow_provider_ckpt.cli.writing import one_line
from airflow_provider_ckpt.coordinator.places import Places
from airflow_provider_ckpt.coordinator.targets import id_or_name
from airflow_provider_ckpt.protocol import errors
from airflow_provider_ckpt.protocol.errors import CkptError, Misused, NotFound

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("number", "text"),
    [(None, ""), (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (5 * 2**40, "5.0 TiB")],
)
def test_sizes_are_written_in_the_unit_that_fits(number: int | None, text: str) -> None:
    assert size(number) == text


def test_sizes_beyond_the_last_unit_stay_readable() -> None:
    assert size(2**64) == "16384.0 PiB"


def test_ages_never_lie_in_the_future() -> None:
    assert ago(NOON, NOON + timedelta(minutes=5)) == "5m ago"
    assert ago(NOON, NOON - timedelta(minutes=5)) == "0s ago"
    assert ago(None, NOON) == ""


def test_times_are_written_in_utc_and_nouns_counted() -> None:
    assert written(NOON) == "2026-01-01 12:00:00 UTC"
    assert [count(1, "file"), count(2000, "file")] == ["1 file", "2,000 files"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://u:secret@h/x", "postgresql://u:***@h/x"),
        ("postgresql://u:sec@ret@h/x", "postgresql://u:***@h/x"),
        ("postgresql://:secret@h", "postgresql://:***@h"),
        ("at postgresql+psycopg://u:s:e/c@h/x, then", "at postgresql+psycopg://u:***@h/x, then"),
        ("postgresql://u@h/x?sslmode=on&password=secret&a=b", "postgresql://u@h/x?sslmode=on&password=***&a=b"),
    ],
)
def test_passwords_are_taken_out_of_urls(text: str, shown: str) -> None:
    assert redact(text) == shown
    assert has_secret(text)
    assert redact_all({"a": [text, 1, None]}) == {"a": [shown, 1, None]}


@pytest.mark.parametrize(
    "text", ["postgresql://u@h:5432/x", "sqlite:////a/b.db", "s3://bucket/x", "http://h:9000/x", "a@b"]
)
def test_what_has_no_password_stays_as_it_is(text: str) -> None:
    assert redact(text) == text
    assert not has_secret(text)


def test_control_and_hidden_characters_never_reach_a_terminal() -> None:
    assert one_line("a\n\x1b[2J\u202eb\tc") == "a \ufffd[2J\ufffdb c"


def test_every_command_names_a_function_that_is_there() -> None:
    for parser in _parsers(build_parser()):
        handler = parser.get_default("handler")
        if handler is not None:
            assert callable(load_handler(handler))
            assert parser.format_help()


def test_the_commands_mount_below_another_parser() -> None:
    airflow = argparse.ArgumentParser(prog="airflow")
    add_commands(airflow.add_subparsers().add_parser("ckpt"))
    args = airflow.parse_args(["ckpt", "list", "orders", "--limit", "3"])
    assert (args.handler, args.pipeline, args.limit, args.json) == ("history:history", "orders", 3, False)


def test_options_are_not_guessed_from_their_beginnings() -> None:
    with pytest.raises(Usage):
        build_parser().parse_args(["cleanup", "orders", "--dry"])


def test_every_exit_code_is_explained_in_the_help() -> None:
    assert set(MEANINGS) == set(ExitCode)
    text = build_parser().format_help()
    assert all(meaning in text for meaning in MEANINGS.values())


def test_every_error_that_is_raised_on_purpose_has_a_code_of_its_own() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, CkptError)]
    unexpected = [kind.__name__ for kind in kinds if code_of(kind("x")) is ExitCode.UNEXPECTED]
    assert unexpected == ["CkptError"]
    assert code_of(NotFound("x")) is ExitCode.NOT_FOUND, "the special one before the general one"


def test_places_come_from_options_then_the_environment_then_the_home(tmp_path: Path) -> None:
    nothing = _places({"CKPT_HOME": str(tmp_path)})
    assert nothing.metastore_url == f"sqlite:///{tmp_path}/metastore.db"
    assert nothing.storage_url == f"{tmp_path}/storage"
    environ = {"CKPT_METASTORE": "postgresql://u:p@h/x", "CKPT_STORAGE": "s3://bucket/x"}
    assert _places(environ).metastore_url == "postgresql://u:p@h/x"
    chosen = _places(environ, metastore="sqlite:////x.db", storage="data")
    assert (chosen.metastore_url, chosen.storage_url) == ("sqlite:////x.db", str(Path("data").absolute()))
    assert _places({}).home == Path("~/.ckpt").expanduser()
    assert _places({"CKPT_METASTORE": "", "CKPT_STORAGE": "", "CKPT_HOME": ""}) == _places({})


def test_a_metastore_elsewhere_needs_a_storage_of_its_own() -> None:
    with pytest.raises(Misused, match="CKPT_STORAGE"):
        _ = _places({"CKPT_METASTORE": "postgresql://h/x"}).storage_url


def test_digits_are_ids_and_anything_else_is_a_name() -> None:
    assert id_or_name("orders", "17") == 17
    assert id_or_name("orders", "orders/17") == 17
    assert id_or_name("orders", "before-17") == "before-17"
    for wrong in ("", "a b", "-1", "payments/17", "٣"):
        with pytest.raises(Misused):
            id_or_name("orders", wrong)
    with pytest.raises(NotFound):
        id_or_name("orders", "2147483648")


def _places(environ: dict[str, str], metastore: str | None = None, storage: str | None = None) -> Places:
    return places(argparse.Namespace(metastore=metastore, storage=storage), environ)


def _parsers(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    groups = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    below = [each for group in groups for child in group.choices.values() for each in _parsers(child)]
    return [parser, *below]
