"""`ckpt show`: a name without a slash is a pipeline, one with a slash a checkpoint."""

import argparse
from collections.abc import Sequence

from rich.console import RenderableType

from airflow_provider_ckpt.cli import documents, humanise
from airflow_provider_ckpt.cli.commands.pipelines import health_facts
from airflow_provider_ckpt.cli.commands.show_checkpoint import show_checkpoint
from airflow_provider_ckpt.cli.output import Result, Row, facts, line, section
from airflow_provider_ckpt.cli.refs import find_ref
from airflow_provider_ckpt.cli.session import Session
from airflow_provider_ckpt.cli.views import event_section
from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.coordinator.health import health
from airflow_provider_ckpt.protocol.paths import check_name
from airflow_provider_ckpt.protocol.records import Attempt, Lease

_ATTEMPT_COLUMNS = (">ATTEMPT", "=STATUS", "=FROM", "HOST", "APPLICATION", "=NUMBERED", "=ENDED", "WHY")
_LEASE_COLUMNS = ("=LEASE", "OWNER", "=SINCE", "=UNTIL")
_ATTEMPTS = 20  # the newest ones


def show(args: argparse.Namespace, session: Session) -> Result:
    if "/" in args.target:
        return show_checkpoint(session.store, find_ref(session.store, args.target), args.participants)
    return _show_pipeline(session.reader, check_name("pipeline", args.target))


def _show_pipeline(context: Context, name: str) -> Result:
    found, store = health(context, name), context.store
    attempts = list(reversed(store.attempts.of(name)))
    leases, events = store.leases.held(name), store.events.newest(name, limit=20)
    return Result(
        document={
            **documents.health(found),
            "attempts": [documents.attempt(each) for each in attempts],
            "leases": [documents.lease(each) for each in leases],
            "events": documents.events(events),
        },
        view=[
            line(f"Pipeline {name}", "bold"),
            facts(health_facts(found)),
            *_attempts(attempts),
            *section("Leases", _LEASE_COLUMNS, [_lease_row(each) for each in leases]),
            *event_section(events),
        ],
    )


def _attempts(attempts: Sequence[Attempt]) -> list[RenderableType]:
    rows = [_attempt_row(each) for each in attempts[:_ATTEMPTS]]
    older = len(attempts) - len(rows)
    note = [line(f"{humanise.count(older, 'older attempt')} not shown; --json has all.", "dim")] if older else []
    return [*section("Attempts", _ATTEMPT_COLUMNS, rows), *note]


def _attempt_row(attempt: Attempt) -> Row:
    return (
        str(attempt.number),
        attempt.status,
        _start(attempt),
        attempt.host or "",
        attempt.application_id or "",
        humanise.time(attempt.numbered_at),
        humanise.time(attempt.ended_at),
        attempt.failure or "",
    )


def _start(attempt: Attempt) -> str:
    if attempt.planned_at is None:
        return "not settled"
    return attempt.rung if attempt.restored_from is None else f"{attempt.rung} {attempt.restored_from}"


def _lease_row(lease: Lease) -> Row:
    return lease.kind, lease.owner, humanise.time(lease.acquired_at), humanise.time(lease.expires_at)
