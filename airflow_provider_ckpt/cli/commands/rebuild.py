"""`ckpt rebuild`: the storage knows what was decided, also when the metastore is lost."""

import argparse

from airflow_provider_ckpt.cli import humanise
from airflow_provider_ckpt.cli.exit_codes import ExitCode
from airflow_provider_ckpt.cli.output import Result, Row, line, section
from airflow_provider_ckpt.cli.progress import listing_files
from airflow_provider_ckpt.cli.session import Session
from airflow_provider_ckpt.coordinator.rebuild import RebuildReport, rebuild
from airflow_provider_ckpt.protocol.errors import NotFound
from airflow_provider_ckpt.protocol.paths import check_name
from airflow_provider_ckpt.spark.sinks.opening import reach_sinks_of


def rebuild_store(args: argparse.Namespace, session: Session) -> Result:
    name = None if args.pipeline is None else check_name("pipeline", args.pipeline)
    with listing_files("Reading the storage") as on_file:
        report = rebuild(session.context, name, dry_run=args.dry_run, on_file=on_file, reach=reach_sinks_of)
    if name is not None and not (report.found or report.damaged):
        raise NotFound(f"The storage {session.context.storage.url} holds no decided checkpoint of pipeline {name}.")
    return Result(
        document={
            "dry_run": args.dry_run,
            "found": [str(each.manifest.ref) for each in report.found],
            "added": [str(ref) for ref in report.added],
            "damaged": list(report.damaged),
        },
        view=[
            line(_sentence(report, dry_run=args.dry_run)),
            *section(
                "Checkpoints",
                ("=CHECKPOINT", "=KIND", "=TRIGGERED", "IN THE METASTORE"),
                _rows(report, dry_run=args.dry_run),
            ),
            *section("Damaged", ("",), [(each,) for each in report.damaged]),
        ],
        code=ExitCode.CORRUPT if report.damaged else ExitCode.DONE,
    )


def _sentence(report: RebuildReport, *, dry_run: bool) -> str:
    found, added = humanise.count(len(report.found), "decided checkpoint"), len(report.added)
    if dry_run:
        return f"The storage knows {found}; {added} would be added to the metastore. Nothing was changed."
    return f"The storage knows {found}; {added} were added to the metastore."


def _rows(report: RebuildReport, *, dry_run: bool) -> list[Row]:
    added, new = set(report.added), "would be added" if dry_run else "added"
    return [
        (str(m.ref), m.kind, humanise.time(m.triggered_at), new if m.ref in added else "was there")
        for m in sorted((each.manifest for each in report.found), key=lambda manifest: manifest.ref)
    ]
