"""`ckpt pins`: holds on checkpoints that cleanup never passes."""

import argparse

from airflow_provider_ckpt.cli import documents, humanise
from airflow_provider_ckpt.cli.output import Result, line, table
from airflow_provider_ckpt.cli.refs import find_ref
from airflow_provider_ckpt.cli.session import Session
from airflow_provider_ckpt.protocol.errors import Misused, NotFound
from airflow_provider_ckpt.protocol.paths import check_name
from airflow_provider_ckpt.protocol.records import Ref

_COLUMNS = ("=CHECKPOINT", "OWNER", "=SINCE", "REASON")
_RESERVED = "restore:"  # a restore lifts such pins by itself


def list_pins(args: argparse.Namespace, session: Session) -> Result:
    name = session.store.pipelines.get(check_name("pipeline", args.pipeline)).name
    pins = session.store.pins.of(name)
    rows = [(str(pin.ref), pin.owner, humanise.time(pin.pinned_at), pin.reason) for pin in pins]
    return Result(
        document={"pipeline": name, "pins": [documents.pin(pin) for pin in pins]},
        view=[table(_COLUMNS, rows) if rows else line(f"Pipeline {name} has no pins.")],
    )


def add_pin(args: argparse.Namespace, session: Session) -> Result:
    owner = _owner(args, session)
    ref = find_ref(session.store, args.ref)
    session.store.pins.add(ref, owner=owner, reason=args.reason)
    return _changed(ref, owner, f"{ref} is pinned by {owner}: {args.reason}", is_pinned=True)


def remove_pin(args: argparse.Namespace, session: Session) -> Result:
    owner = _owner(args, session)
    ref = find_ref(session.store, args.ref)
    if not session.store.pins.remove(ref, owner=owner, actor=session.actor):
        raise NotFound(f"{ref} has no pin of {owner}. `ckpt pins list {ref.pipeline}` lists them; give its --owner.")
    return _changed(ref, owner, f"{ref} is not pinned by {owner} any more.", is_pinned=False)


def _owner(args: argparse.Namespace, session: Session) -> str:
    owner: str = args.owner or session.actor
    if owner.startswith(_RESERVED):
        raise Misused(f"Owners that begin with {_RESERVED!r} are restores at work: choose another name.")
    return owner


def _changed(ref: Ref, owner: str, sentence: str, *, is_pinned: bool) -> Result:
    return Result(document={"ref": str(ref), "owner": owner, "is_pinned": is_pinned}, view=[line(sentence)])
