"""`ckpt pipelines`: how all of them are, and one with its settings and its desired state."""

import argparse
from collections.abc import Mapping

from airflow_provider_ckpt.cli import documents, humanise
from airflow_provider_ckpt.cli.output import Cell, Result, Row, facts, heading, line, table
from airflow_provider_ckpt.cli.session import Session
from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.coordinator.health import Health, health
from airflow_provider_ckpt.protocol.codec import Json
from airflow_provider_ckpt.protocol.duration import approximate
from airflow_provider_ckpt.protocol.errors import Misused
from airflow_provider_ckpt.protocol.paths import check_name
from airflow_provider_ckpt.protocol.records import DesiredState
from airflow_provider_ckpt.protocol.settings import change_settings

_COLUMNS = ("PIPELINE", "HEALTH", "DESIRED", "ATTEMPT", "NEWEST", ">AGE", "IN FLIGHT", ">FAILURES")


def pipelines(args: argparse.Namespace, session: Session) -> Result:
    if args.pipeline is None:
        if args.settings or args.start or args.stop:
            raise Misused("Say which pipeline to change: `ckpt pipelines NAME --set …`.")
        return _all(session.reader)
    name = check_name("pipeline", args.pipeline)
    _change(args, session, name)
    return _one(health(session.reader, name))


def health_facts(value: Health) -> list[tuple[str, Cell | None]]:
    """What is known at a glance, for this command and for `ckpt show`."""
    newest = "none yet" if value.newest is None else f"{value.newest.ref}, {_age(value)} old"
    return [
        ("Health", health_cell(value)),
        ("Desired", value.pipeline.desired_state),
        ("Attempt", _attempt(value)),
        ("Newest completed", newest),
        ("In flight", _in_flight(value) or "none"),
        ("Failures in a row", str(value.failures)),
        ("Created", humanise.time(value.pipeline.created_at)),
    ]


def health_cell(value: Health) -> Cell:
    return line("well", "green") if value.is_well else line("; ".join(map(str, value.problems)), "red")


def _all(context: Context) -> Result:
    found = [health(context, each.name) for each in context.store.pipelines.all()]
    rows = [_row(each) for each in found]
    return Result(
        document={"pipelines": [documents.health(each) for each in found]},
        view=[table(_COLUMNS, rows) if rows else line("There are no pipelines. `ckpt init NAME` makes one.")],
    )


def _row(value: Health) -> Row:
    return (
        value.pipeline.name,
        health_cell(value),
        value.pipeline.desired_state,
        _attempt(value),
        "" if value.newest is None else str(value.newest.ref.id),
        _age(value),
        _in_flight(value),
        str(value.failures),
    )


def _change(args: argparse.Namespace, session: Session, name: str) -> None:
    if args.settings:
        changes = dict(args.settings)
        session.store.pipelines.change(name, lambda found: change_settings(found, changes), actor=session.actor)
    if args.start or args.stop:
        state = DesiredState.RUNNING if args.start else DesiredState.STOPPED
        session.store.pipelines.desire(name, state, actor=session.actor, reason=args.reason)


def _one(value: Health) -> Result:
    settings = value.pipeline.settings.to_json()
    return Result(
        document=documents.health(value),
        view=[
            line(f"Pipeline {value.pipeline.name}", "bold"),
            facts(health_facts(value)),
            heading("Settings"),
            facts((name, _setting(setting)) for name, setting in settings.items()),
        ],
    )


def _setting(value: Json) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={each}" for name, each in value.items() if each)
    return str(value)


def _attempt(value: Health) -> str:
    return "none yet" if value.attempt is None else f"{value.attempt.number} {value.attempt.status}"


def _age(value: Health) -> str:
    return "" if value.age is None else approximate(value.age)


def _in_flight(value: Health) -> str:
    return "" if value.in_flight is None else f"{value.in_flight.ref.id} {value.in_flight.phase}"
