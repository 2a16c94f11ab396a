"""`ckpt restore`: plans the next attempt, and says where it starts from and what that costs."""

import argparse
import sys

import pendulum

from airflow_provider_ckpt.cli import documents, humanise
from airflow_provider_ckpt.cli.output import Cell, Result, facts, line
from airflow_provider_ckpt.cli.progress import counting_bytes
from airflow_provider_ckpt.cli.session import Session
from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.coordinator.manifests import load_manifest
from airflow_provider_ckpt.coordinator.restore import RestoreOptions, living_attempt, plan_restore, restore
from airflow_provider_ckpt.coordinator.targets import parse_time, target_of
from airflow_provider_ckpt.protocol.codec import JsonObject
from airflow_provider_ckpt.protocol.errors import Corrupt
from airflow_provider_ckpt.protocol.paths import check_name
from airflow_provider_ckpt.protocol.records import Attempt
from airflow_provider_ckpt.protocol.recovery import Choice, Policy
from airflow_provider_ckpt.spark.sinks.opening import reach_sinks
from airflow_provider_ckpt.spark.tips import tip_checker


def restore_pipeline(args: argparse.Namespace, session: Session) -> Result:
    name = check_name("pipeline", args.pipeline)
    as_of = None if args.as_of is None else parse_time(args.as_of)
    options = _options(args, session, name)
    return _plan(session, name, options, as_of) if args.dry_run else _restore(session, name, options, as_of)


def _options(args: argparse.Namespace, session: Session, name: str) -> RestoreOptions:
    policy = Policy(
        allow_fallback=not args.no_fallback,
        allow_fresh_start=args.allow_fresh_start,
        accept_duplicates=frozenset(args.accept_duplicates),
    )
    return RestoreOptions(
        target=target_of(name, to=args.to, as_of=args.as_of, rewind=args.rewind),
        policy=policy,
        committers=reach_sinks(session.context, name),
        tip_damage=tip_checker(session.places.work),
        take_over=args.take_over,
        is_proven_dead=args.old_attempt_is_dead,
    )


def _plan(session: Session, name: str, options: RestoreOptions, as_of: pendulum.DateTime | None) -> Result:
    context = session.context
    context.store.pipelines.get(name)
    choice = plan_restore(context, name, options)
    living = None if options.take_over or options.is_proven_dead else living_attempt(context, name)
    alive = None if living is None else living.number
    problem = _find_problem(context, choice)
    warnings = [
        *([] if alive is None else [f"Attempt {alive} is alive: the restore would be refused without --take-over."]),
        *([] if problem is None else [f"{problem} The restore would find that out, and not start from there."]),
    ]
    return Result(
        document={**_document(name, choice, None, as_of), "dry_run": True, "alive_attempt": alive, "problem": problem},
        view=[
            line(f"A restore of {name} would choose this. Nothing was changed."),
            *[line(warning, "yellow") for warning in warnings],
            facts(_facts(choice, as_of)),
        ],
    )


def _find_problem(context: Context, choice: Choice) -> str | None:
    """A dry run reads the manifest, and leaves the data to the restore."""
    if choice.checkpoint is None:
        return None
    try:
        load_manifest(context, choice.checkpoint)
    except Corrupt as error:
        return str(error)
    return None


def _restore(session: Session, name: str, options: RestoreOptions, as_of: pendulum.DateTime | None) -> Result:
    with counting_bytes(f"Restoring {name}", total=None) as on_bytes:
        restored = restore(session.context, name, options, on_bytes, _say_what_is_waited_for)
    attempt = restored.attempt
    return Result(
        document=_document(name, restored.choice, attempt, as_of),
        view=[
            line(f"Attempt {attempt.number} of {name} is planned: the next driver that claims it starts there."),
            facts(_facts(restored.choice, as_of)),
        ],
    )


def _say_what_is_waited_for(seconds: float) -> None:
    text = f"Waiting {seconds:.0f} s for the old attempt to end by itself (--old-attempt-is-dead skips this) …"
    print(text, file=sys.stderr, flush=True)


def _facts(choice: Choice, as_of: pendulum.DateTime | None) -> list[tuple[str, Cell | None]]:
    checkpoint = choice.checkpoint
    return [
        ("Rung", choice.rung),
        ("Checkpoint", None if checkpoint is None else str(checkpoint.ref)),
        ("Of", None if checkpoint is None else humanise.time(checkpoint.triggered_at)),
        ("As of", None if as_of is None else f"{as_of} ({as_of.timezone_name}), {humanise.time(as_of)}"),
        ("Price", str(choice.price)),
    ]


def _document(name: str, choice: Choice, attempt: Attempt | None, as_of: pendulum.DateTime | None) -> JsonObject:
    return {
        "pipeline": name,
        "attempt": None if attempt is None else documents.attempt(attempt),
        "rung": choice.rung,
        "checkpoint": None if choice.checkpoint is None else documents.checkpoint(choice.checkpoint),
        "price": {
            "replay_seconds": choice.price.replay.total_seconds(),
            "passed_over": {str(id_): why for id_, why in choice.price.passed_over},
            "rolled_back": list(choice.price.rolled_back),
            "duplicated": list(choice.price.duplicated),
        },
        "as_of": documents.time(as_of),
        "as_of_zone": None if as_of is None else as_of.timezone_name,
        "dry_run": False,
        "alive_attempt": None,
        "problem": None,
    }
