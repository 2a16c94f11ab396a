"""`ckpt cleanup`: what went, what stayed and why, what nobody can explain."""

import argparse
from collections.abc import Mapping

from rich.console import RenderableType

from airflow_provider_ckpt.cli import humanise
from airflow_provider_ckpt.cli.exit_codes import ExitCode
from airflow_provider_ckpt.cli.output import Result, Row, line, section
from airflow_provider_ckpt.cli.progress import counting_files
from airflow_provider_ckpt.cli.refs import find_in
from airflow_provider_ckpt.cli.session import Session
from airflow_provider_ckpt.coordinator.cleanup import CleanupReport, cleanup, plan_cleanup
from airflow_provider_ckpt.protocol.codec import JsonObject
from airflow_provider_ckpt.protocol.paths import check_name
from airflow_provider_ckpt.spark.sinks.opening import find_left_staged

_LISTED = 10  # files of one kind; --json has all


def clean_up(args: argparse.Namespace, session: Session) -> Result:
    name = check_name("pipeline", args.pipeline)
    discard = [find_in(session.store, name, each).id for each in args.discard]
    if args.dry_run:
        report = plan_cleanup(session.context, name, discard)
    else:
        with counting_files(f"Cleaning up {name}") as on_deleted:
            report = cleanup(session.context, name, discard=discard, on_deleted=on_deleted)
    left = find_left_staged(session.context, name)
    return Result(
        document={**_document(name, report, dry_run=args.dry_run), "left_staged": left},
        view=[
            *_view(name, report, dry_run=args.dry_run),
            *_files("Left staged in targets: the next attempt discards them", left),
        ],
        code=ExitCode.TRY_AGAIN if report.failed or report.has_yielded else ExitCode.DONE,
    )


def _document(name: str, report: CleanupReport, *, dry_run: bool) -> JsonObject:
    return {
        "pipeline": name,
        "dry_run": dry_run,
        "kept": {str(id_): why for id_, why in report.kept.items()},
        "discarded": list(report.discarded),
        "deleted": list(report.deleted),
        "deleted_bytes": report.deleted_bytes,
        "quarantined": dict(report.quarantined),
        "missing": {str(id_): list(problems) for id_, problems in report.missing.items()},
        "failed": dict(report.failed),
        "trimmed": report.trimmed,
        "has_yielded": report.has_yielded,
    }


def _view(name: str, report: CleanupReport, *, dry_run: bool) -> list[RenderableType]:
    missing = {problem: f"checkpoint {id_}" for id_, problems in report.missing.items() for problem in problems}
    return [
        line(_sentence(name, report, dry_run=dry_run)),
        *section("Checkpoints", (">CHECKPOINT", "=FATE", "WHY"), _fates(report, dry_run=dry_run)),
        *_files("Deleted" if not dry_run else "To be deleted", dict.fromkeys(report.deleted, "")),
        *_files("Quarantined: deleted later, unless somebody explains them", report.quarantined),
        *_files("Missing", missing),
        *_files("Could not be deleted: tried again by the next cleanup", report.failed),
    ]


def _sentence(name: str, report: CleanupReport, *, dry_run: bool) -> str:
    files = f"{humanise.count(len(report.deleted), 'file')} ({humanise.size(report.deleted_bytes)})"
    gone = humanise.count(len(report.discarded), "checkpoint")
    if dry_run:
        return f"A cleanup of {name} would discard {gone} and delete {files}. Nothing was changed."
    rows = f" {humanise.count(report.trimmed, 'row')} of the history went." if report.trimmed else ""
    end = " A waiting checkpoint goes first: clean up again later." if report.has_yielded else ""
    return f"{name} was cleaned up: {gone} discarded, {files} deleted.{rows}{end}"


def _fates(report: CleanupReport, *, dry_run: bool) -> list[Row]:
    gone = "would go" if dry_run else "went"
    fates: dict[int, tuple[str, str]] = {id_: ("stays", why) for id_, why in report.kept.items()}
    fates |= dict.fromkeys(report.discarded, (gone, "not kept by retention, corrupt, or by wish"))
    return [(str(id_), fate, why) for id_, (fate, why) in sorted(fates.items(), reverse=True)]


def _files(title: str, files: Mapping[str, str]) -> list[RenderableType]:
    rows: list[Row] = [(path, why) for path, why in sorted(files.items())]
    more = len(rows) - _LISTED
    note = [line(f"… and {more} more; --json has all.", "dim")] if more > 0 else []
    return [*section(f"{title} ({len(rows)})", ("FILE", ""), rows[:_LISTED]), *note]
