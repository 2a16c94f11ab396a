"""`ckpt leases`: who cleans up or restores a pipeline, and how that right is taken back."""

import argparse

from airflow_provider_ckpt.cli import documents, humanise
from airflow_provider_ckpt.cli.output import Result, line, table
from airflow_provider_ckpt.cli.session import Session
from airflow_provider_ckpt.protocol.errors import NotFound
from airflow_provider_ckpt.protocol.paths import check_name
from airflow_provider_ckpt.protocol.records import LeaseKind

_COLUMNS = ("=LEASE", "OWNER", "=SINCE", "=UNTIL")


def list_leases(args: argparse.Namespace, session: Session) -> Result:
    name = session.store.pipelines.get(check_name("pipeline", args.pipeline)).name
    leases = session.store.leases.held(name)
    rows = [
        (str(lease.kind), lease.owner, humanise.time(lease.acquired_at), humanise.time(lease.expires_at))
        for lease in leases
    ]
    return Result(
        document={"pipeline": name, "leases": [documents.lease(lease) for lease in leases]},
        view=[table(_COLUMNS, rows) if rows else line(f"Pipeline {name} has no leases.")],
    )


def break_lease(args: argparse.Namespace, session: Session) -> Result:
    name = session.store.pipelines.get(check_name("pipeline", args.pipeline)).name
    kind = LeaseKind(args.kind)
    if not session.store.leases.break_(name, kind, actor=session.actor, reason=args.reason):
        raise NotFound(f"Nobody holds the {kind} lease of {name}. `ckpt leases list {name}` lists what there is.")
    sentence = f"The {kind} lease of {name} is taken back: whoever held it stops at its next step."
    return Result(document={"pipeline": name, "lease": kind, "is_broken": True}, view=[line(sentence)])
