"""How people say where to start from: an id, a savepoint's name, a time."""

from datetime import UTC

import pendulum
from pendulum.parsing.exceptions import ParserError

from airflow_provider_ckpt.protocol.errors import Misused, NotFound
from airflow_provider_ckpt.protocol.paths import check_name
from airflow_provider_ckpt.protocol.records import LARGEST
from airflow_provider_ckpt.protocol.recovery import Target


def target_of(pipeline: str, *, to: str | None, as_of: str | None, rewind: bool = False) -> Target:
    chosen = None if to is None else id_or_name(pipeline, to)
    return Target(
        id=chosen if isinstance(chosen, int) else None,
        savepoint=chosen if isinstance(chosen, str) else None,
        as_of=None if as_of is None else parse_time(as_of).astimezone(UTC),
        rewind=rewind,
    )


def id_or_name(pipeline: str, text: str) -> int | str:
    """Digits are an id, anything else is the name of a savepoint."""
    name = text.removeprefix(f"{pipeline}/")
    if not is_id(name):
        return check_name("savepoint", name)
    if len(name) > len(str(LARGEST)) or int(name) > LARGEST:
        raise NotFound(f"There is no checkpoint {pipeline}/{name[:40]}. `ckpt list {pipeline}` lists what there is.")
    return int(name)


def is_id(name: str) -> bool:
    return name.isascii() and name.isdecimal()


def parse_time(text: str) -> pendulum.DateTime:
    """A point in time; local where no zone is given."""
    try:
        moment = pendulum.parse(text, tz="local")
    except (ParserError, ValueError):
        moment = None
    if not isinstance(moment, pendulum.DateTime):
        raise Misused(f"{text!r:.60} is not a time: write 2026-01-31T14:30, 14:30 for today, or add a zone: …T14:30Z.")
    return moment
