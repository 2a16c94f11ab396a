"""What a pipeline that is meant to run needs now: nothing, a restart, patience, or a person.

Whoever is woken asks here first, because an event is only a wake-up: what counts is what the store says now.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.metastore import Inventory
from airflow_provider_ckpt.protocol.duration import approximate, format_duration
from airflow_provider_ckpt.protocol.records import Attempt, AttemptStatus, DesiredState, LeaseKind
from airflow_provider_ckpt.protocol.restart import GiveUp, Restart, decide


class Need(StrEnum):
    NOTHING = "nothing"
    RESTORE = "restore"  # plan the next attempt and start it, after the delay of the restart strategy
    PERSON = "person"  # the restart strategy has given up


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    need: Need
    why: str
    attempt: int | None = None  # the one that is judged
    after: timedelta = timedelta(0)  # how long to wait before it is restored


def diagnose(context: Context, pipeline: str, *, jitter: float) -> Diagnosis:
    """Judge the current attempt by what the store says now.

    :param jitter: a random number from 0 up to, not including, 1.
    """
    inventory = context.store.views.inventory(pipeline)
    if inventory.pipeline.desired_state is DesiredState.STOPPED:
        return Diagnosis(need=Need.NOTHING, why="It is meant to be stopped.")
    held = context.store.leases.held(pipeline)
    lease = next((each for each in held if each.kind is LeaseKind.RESTORE), None)
    if lease is not None:
        return Diagnosis(need=Need.NOTHING, why=f"{lease.owner} is restoring it.")
    attempt = _current(inventory)
    if attempt is None:
        return Diagnosis(need=Need.RESTORE, why="It was never started.")
    return _judge(context, inventory, attempt, jitter)


def _current(inventory: Inventory) -> Attempt | None:
    number = inventory.pipeline.current_attempt
    return next((each for each in inventory.attempts if each.number == number), None)


def _judge(context: Context, inventory: Inventory, attempt: Attempt, jitter: float) -> Diagnosis:
    number, now, ttl = attempt.number, inventory.now, inventory.pipeline.settings.attempt_ttl
    match attempt.status:
        case AttemptStatus.FINISHED | AttemptStatus.STOPPED:
            return Diagnosis(need=Need.NOTHING, why=f"Attempt {number} is {attempt.status}.", attempt=number)
        case AttemptStatus.PREPARING:
            why = f"Attempt {number} was numbered and never planned: a restore has died."
            return Diagnosis(need=Need.RESTORE, why=why, attempt=number)
        case AttemptStatus.PLANNED:
            return _judge_planned(inventory, attempt)
        case AttemptStatus.RUNNING if now - (attempt.heartbeat_at or now) <= ttl:
            return Diagnosis(need=Need.NOTHING, why=f"Attempt {number} is alive.", attempt=number)
    return _after_failure(context, inventory, attempt, jitter)


def _judge_planned(inventory: Inventory, attempt: Attempt) -> Diagnosis:
    """A driver that is on its way has `claim_timeout`: it may wait in a cluster's queue for longer than a heartbeat."""
    settings, now, number = inventory.pipeline.settings, inventory.now, attempt.number
    is_submitted = attempt.submitted_at is not None
    limit = settings.claim_timeout if is_submitted else settings.attempt_ttl
    if now - (attempt.submitted_at or attempt.planned_at or now) <= limit:
        where = f", submitted as {attempt.application_id}" if attempt.application_id else ""
        return Diagnosis(need=Need.NOTHING, why=f"Attempt {number} waits for its driver{where}.", attempt=number)
    what = "submitted" if is_submitted else "planned"
    why = f"Attempt {number} was {what} and no driver has claimed it within {format_duration(limit)}."
    return Diagnosis(need=Need.RESTORE, why=why, attempt=number)


def _after_failure(context: Context, inventory: Inventory, attempt: Attempt, jitter: float) -> Diagnosis:
    started = context.store.events.last(inventory.pipeline.name, f"pipeline.{DesiredState.RUNNING}")
    since = None if started is None else started.at
    failures = sorted(moment for moment in _failures(inventory) if since is None or moment > since)
    decision = decide(inventory.pipeline.settings.restart, failures, max([inventory.now, *failures]), jitter)
    match decision:
        case GiveUp(why=why):
            cure = f"`ckpt pipelines {inventory.pipeline.name} --start` counts anew."
            return Diagnosis(
                need=Need.PERSON, why=f"{_what_failed(attempt, inventory.now)} {why} {cure}", attempt=attempt.number
            )
        case Restart(after=after):
            return Diagnosis(
                need=Need.RESTORE, why=_what_failed(attempt, inventory.now), attempt=attempt.number, after=after
            )


def _failures(inventory: Inventory) -> Iterator[datetime]:
    """When attempts failed: by their own word, or because they fell silent."""
    ttl = inventory.pipeline.settings.attempt_ttl
    for each in inventory.attempts:
        if each.status is AttemptStatus.FAILED and each.ended_at is not None:
            yield each.ended_at
        elif each.heartbeat_at is not None and (each.ended_at or inventory.now) - each.heartbeat_at > ttl:
            yield each.heartbeat_at + ttl


def _what_failed(attempt: Attempt, now: datetime) -> str:
    if attempt.status is AttemptStatus.FAILED:
        return f"Attempt {attempt.number} has failed: {attempt.failure or 'no reason was given'}."
    return f"Attempt {attempt.number} has been silent for {approximate(now - (attempt.heartbeat_at or now))}."
