"""`ckpt init`: the metastore's tables, the embedded folder, and pipelines."""

import argparse
from collections.abc import Mapping
from uuid import uuid4

from airflow_provider_ckpt.cli.output import Result, line
from airflow_provider_ckpt.cli.session import Session
from airflow_provider_ckpt.metastore import Metastore
from airflow_provider_ckpt.metastore.migrating import upgrade
from airflow_provider_ckpt.protocol.errors import Misused
from airflow_provider_ckpt.protocol.paths import check_name
from airflow_provider_ckpt.protocol.settings import Settings, change_settings


def init(args: argparse.Namespace, session: Session) -> Result:
    names = dict.fromkeys(check_name("pipeline", name) for name in args.pipelines)
    if args.settings and not names:
        raise Misused("--set needs the name of a pipeline to make: `ckpt init PIPELINE --set NAME=VALUE`.")
    settings = change_settings(Settings(), dict(args.settings))
    _make_home(session)
    store = session.open_store()
    is_upgraded = upgrade(store.engine)
    created = {name: _create(store, name, settings, session.actor) for name in names}
    return _result(store.engine.name, created, is_upgraded=is_upgraded)


def _make_home(session: Session) -> None:
    """The embedded folder, where it is used: for its owner only."""
    if session.places.metastore is None or session.places.storage is None:
        try:
            session.places.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise Misused(
                f"The folder {session.places.home} can not be made ({error.strerror}): set CKPT_HOME to another."
            ) from error


def _create(store: Metastore, name: str, settings: Settings, actor: str) -> bool:
    if any(each.name == name for each in store.pipelines.all()):
        return False
    store.pipelines.create(name, settings, identity=uuid4().hex, actor=actor)
    return True


def _result(metastore: str, created: Mapping[str, bool], *, is_upgraded: bool) -> Result:
    made = "made or updated" if is_upgraded else "up to date"
    return Result(
        document={
            "metastore": metastore,
            "is_upgraded": is_upgraded,
            "created": [name for name, is_new in created.items() if is_new],
            "existing": [name for name, is_new in created.items() if not is_new],
        },
        view=[
            line(f"The metastore {metastore} is {made}."),
            *(line(_sentence(name, is_new=is_new)) for name, is_new in created.items()),
        ],
    )


def _sentence(name: str, *, is_new: bool) -> str:
    if is_new:
        return f"Pipeline {name} was created. `ckpt restore {name}` plans its first attempt."
    return f"Pipeline {name} exists and was left alone. Change it with `ckpt pipelines {name} --set …`."
