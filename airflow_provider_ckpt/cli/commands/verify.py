"""`ckpt verify`: reads every byte again, and says which checkpoints are intact."""

import argparse
from collections.abc import Callable, Sequence

from airflow_provider_ckpt.cli import humanise
from airflow_provider_ckpt.cli.exit_codes import ExitCode
from airflow_provider_ckpt.cli.output import Result, Row, line, table
from airflow_provider_ckpt.cli.progress import counting_bytes
from airflow_provider_ckpt.cli.refs import find_ref
from airflow_provider_ckpt.cli.session import Session
from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.coordinator.verify import Verification, verify
from airflow_provider_ckpt.metastore import Metastore
from airflow_provider_ckpt.protocol.codec import JsonObject
from airflow_provider_ckpt.protocol.errors import Refused
from airflow_provider_ckpt.protocol.paths import check_name
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import Ref

_COLUMNS = ("=CHECKPOINT", "=VERDICT", ">FILES", ">BYTES", "PROBLEMS")


def verify_all(args: argparse.Namespace, session: Session) -> Result:
    context = session.context
    wanted = dict.fromkeys(ref for target in args.targets for ref in _refs(session.store, target))
    with counting_bytes("Verifying", _total(context, list(wanted))) as on_bytes:
        found = [each for ref in wanted if (each := _verify(context, ref, args.targets, on_bytes)) is not None]
    is_intact = all(each.is_intact for each in found)
    return Result(
        document={"is_intact": is_intact, "verified": [_document(each) for each in found]},
        view=[table(_COLUMNS, [_row(each) for each in found]) if found else line("There is nothing to verify yet.")],
        code=ExitCode.DONE if is_intact else ExitCode.CORRUPT,
    )


def _refs(store: Metastore, target: str) -> list[Ref]:
    if "/" in target:
        return [find_ref(store, target)]
    retained = store.views.inventory(check_name("pipeline", target)).retained
    return [each.ref for each in retained if each.phase is Phase.COMPLETED]


def _total(context: Context, refs: Sequence[Ref]) -> int:
    decisions = (context.store.checkpoints.get(ref).decision for ref in refs)
    return sum(decision.full_bytes for decision in decisions if decision is not None)


def _verify(context: Context, ref: Ref, targets: Sequence[str], on_bytes: Callable[[int], None]) -> Verification | None:
    """None for one that a cleanup took meanwhile and nobody asked for by name."""
    try:
        return verify(context, ref, on_bytes)
    except Refused:
        is_gone = context.store.checkpoints.get(ref).phase is not Phase.COMPLETED
        if is_gone and ref.pipeline in targets:
            return None
        raise


def _document(found: Verification) -> JsonObject:
    return {
        "ref": str(found.ref),
        "is_intact": found.is_intact,
        "files": found.files,
        "bytes": found.bytes,
        "problems": list(found.problems),
    }


def _row(found: Verification) -> Row:
    verdict = line("intact", "green") if found.is_intact else line("corrupt", "red")
    return str(found.ref), verdict, f"{found.files:,}", humanise.size(found.bytes), " ".join(found.problems)
