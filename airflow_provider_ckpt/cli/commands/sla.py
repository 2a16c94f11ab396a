"""`ckpt sla`: are the pipelines as their objectives want them? `ckpt silence`: nobody is told for a while."""

import argparse
from collections.abc import Sequence

from airflow_provider_ckpt.cli import documents, humanise
from airflow_provider_ckpt.cli.exit_codes import ExitCode
from airflow_provider_ckpt.cli.output import Result, line, table
from airflow_provider_ckpt.cli.session import Session
from airflow_provider_ckpt.coordinator.sla import judge
from airflow_provider_ckpt.protocol.duration import parse_duration
from airflow_provider_ckpt.protocol.errors import NotFound
from airflow_provider_ckpt.protocol.objectives import Problem
from airflow_provider_ckpt.protocol.paths import check_name

_COLUMNS = ("=PIPELINE", "=PROBLEM", "WHAT")


def sla(args: argparse.Namespace, session: Session) -> Result:
    """Only looks: whoever runs it from cron tells people by its exit code."""
    names = [check_name("pipeline", each) for each in args.pipelines]
    names = names or [each.name for each in session.store.pipelines.all()]
    if not names:
        raise NotFound("There is no pipeline to look at: is this the right metastore (CKPT_METASTORE)?")
    found = {name: judge(session.reader, name) for name in names}
    rows = [(name, each.kind, each.text) for name, problems in found.items() for each in problems]
    well = line(f"{humanise.count(len(names), 'pipeline')}: all is well.", "green")
    return Result(
        document={"pipelines": {name: _documents(problems) for name, problems in found.items()}},
        view=[table(_COLUMNS, rows) if rows else well],
        code=ExitCode.BREACHED if rows else ExitCode.DONE,
    )


def silence(args: argparse.Namespace, session: Session) -> Result:
    name = check_name("pipeline", args.pipeline)
    alerts = session.store.alerts
    if args.over:
        alerts.end_silence(name, actor=session.actor, reason=args.reason)
        return Result(document={"pipeline": name, "silent_until": None}, view=[line(f"Alerts of {name} are heard.")])
    until = alerts.silence(name, parse_duration(args.time), actor=session.actor, reason=args.reason)
    sentence = f"Nobody is told of problems of {name} until {humanise.time(until)}."
    return Result(document={"pipeline": name, "silent_until": documents.time(until)}, view=[line(sentence)])


def _documents(problems: Sequence[Problem]) -> list[dict[str, str]]:
    return [{"kind": each.kind, "text": each.text} for each in problems]
