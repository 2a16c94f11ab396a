"""The grammar of `ckpt`: one function per command, each adds its parser to the given group.

A parser names the function that does the work as `module:function` below `cli.commands`, which is loaded when it runs.
"""

import argparse

from airflow_provider_ckpt.cli.arguments import Parser, free_text, seconds, setting, short_text, whole
from airflow_provider_ckpt.cli.exit_codes import describe_codes
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import LeaseKind, SinkStatus
from airflow_provider_ckpt.version import __version__

Group = argparse._SubParsersAction  # noqa: SLF001 - argparse has no public name for it
_REF = "PIPELINE/ID or PIPELINE/SAVEPOINT-NAME"
_ENVIRONMENT = """environment:
  CKPT_METASTORE  the SQLAlchemy URL of the metastore (the only place for one with a password)
  CKPT_STORAGE    where the bytes are: a path, s3://bucket/prefix, or hdfs://namenode:8020/path
  CKPT_WORK       where running pipelines have their checkpointLocations (default: work in CKPT_HOME)
  CKPT_HOME       the folder of the embedded metastore and storage, where nothing else is set (default: ~/.ckpt)
"""


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="ckpt",
        description="Consistent checkpoints, savepoints and recovery of Spark pipelines.",
        epilog=f"{_ENVIRONMENT}\n{describe_codes()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"ckpt {__version__}")
    _add_common(parser)
    add_commands(parser)
    return parser


def add_commands(parser: argparse.ArgumentParser) -> None:
    """Mount every command below `parser`; hand what it parses to `airflow_provider_ckpt.cli.run`."""
    parser.set_defaults(json=False, verbose=False, metastore=None, storage=None, actor=None)
    group = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in _COMMANDS:
        add(group)


def _add_common(parser: argparse.ArgumentParser) -> None:
    """Options that may stand before and after the command: what is not given leaves no trace."""
    unset = argparse.SUPPRESS
    common = parser.add_argument_group("common options")
    common.add_argument("--json", action="store_true", default=unset, help="print one JSON document instead of tables")
    common.add_argument("-v", "--verbose", action="store_true", default=unset, help="log to standard error")
    common.add_argument("--metastore", metavar="URL", default=unset, help="instead of CKPT_METASTORE; without password")
    common.add_argument("--storage", metavar="URL", default=unset, help="instead of CKPT_STORAGE")
    common.add_argument("--actor", type=short_text, default=unset, help="who acts (default: user@host)")


def _add(group: "Group[argparse.ArgumentParser]", name: str, handler: str, text: str) -> argparse.ArgumentParser:
    parser = group.add_parser(name, help=text, description=f"{text[:1].upper()}{text[1:]}.", allow_abbrev=False)
    parser.set_defaults(handler=handler)
    _add_common(parser)
    return parser


def _add_init(group: "Group[argparse.ArgumentParser]") -> None:
    parser = _add(group, "init", "init:init", "make or update the metastore, and create pipelines")
    parser.add_argument("pipelines", metavar="PIPELINE", nargs="*")
    _add_settings(parser)


def _add_pipelines(group: "Group[argparse.ArgumentParser]") -> None:
    parser = _add(group, "pipelines", "pipelines:pipelines", "list pipelines; show or change one")
    parser.add_argument("pipeline", metavar="NAME", nargs="?")
    _add_settings(parser)
    state = parser.add_mutually_exclusive_group()
    state.add_argument("--start", action="store_true", help="the pipeline should run")
    state.add_argument(
        "--stop",
        action="store_true",
        help="the pipeline should not run: its driver ends, and nobody restarts it by itself",
    )
    _add_reason(parser)


def _add_list(group: "Group[argparse.ArgumentParser]") -> None:
    parser = _add(group, "list", "history:history", "list checkpoints, newest first")
    parser.add_argument("pipeline", metavar="PIPELINE")
    parser.add_argument("--phase", dest="phases", action="append", choices=list(Phase), type=str.upper, default=[])
    parser.add_argument("--limit", type=whole(), default=20, help="how many (default: 20)")
    parser.add_argument("--before", type=whole(), metavar="ID", help="only those below this id: the next page")


def _add_show(group: "Group[argparse.ArgumentParser]") -> None:
    parser = _add(group, "show", "show:show", "show a pipeline or a checkpoint")
    parser.add_argument("target", metavar="PIPELINE|REF", help=f"a pipeline, or {_REF}")
    parser.add_argument("--participants", type=whole(least=0), default=20, metavar="N", help="how many (default: 20)")


def _add_trigger(group: "Group[argparse.ArgumentParser]") -> None:
    parser = _add(group, "trigger", "trigger:trigger", "take a checkpoint and follow it")
    parser.add_argument("pipeline", metavar="PIPELINE")
    _add_triggering(parser)


def _add_savepoint(group: "Group[argparse.ArgumentParser]") -> None:
    parser = _add(group, "savepoint", "trigger:savepoint", "take a savepoint: named, and kept until deleted on purpose")
    parser.add_argument("pipeline", metavar="PIPELINE")
    parser.add_argument("name", metavar="NAME")
    _add_triggering(parser)


def _add_triggering(parser: argparse.ArgumentParser) -> None:
    wait = parser.add_mutually_exclusive_group()
    wait.add_argument("--wait", type=seconds, metavar="SECONDS", help="follow it no longer than this")
    wait.add_argument("--no-wait", action="store_true", help="do not follow it")
    parser.add_argument("--when-due", action="store_true", help="respect the interval and the minimum pause")
    parser.add_argument("--key", type=short_text, help="the same key gives the same checkpoint, unless that one failed")
    _add_reason(parser)


def _add_stop(group: "Group[argparse.ArgumentParser]") -> None:
    parser = _add(group, "stop", "stop:stop", "stop a running pipeline after a last checkpoint; nobody restarts it")
    parser.add_argument("pipeline", metavar="PIPELINE")
    parser.add_argument("--savepoint", metavar="NAME", help="make the last checkpoint a savepoint of this name")
    wait = parser.add_mutually_exclusive_group()
    wait.add_argument("--wait", type=seconds, default=600.0, metavar="SECONDS", help="at most (default: 600)")
    wait.add_argument("--no-wait", action="store_true", help="only say so to the driver")
    _add_reason(parser)


def _add_abort(group: "Group[argparse.ArgumentParser]") -> None:
    parser = _add(group, "abort", "ending:abort", "call a checkpoint off that is not decided yet")
    parser.add_argument("ref", metavar="REF", help=_REF)
    _add_reason(parser)


def _add_resolve(group: "Group[argparse.ArgumentParser]") -> None:
    parser = _add(
        group, "resolve", "ending:resolve_sink", "say what became of a sink's commit that can not be finished"
    )
    parser.add_argument("ref", metavar="REF", help=_REF)
    parser.add_argument("--sink", required=True, type=free_text)
    outcomes = [str(SinkStatus.COMMITTED), str(SinkStatus.ABANDONED)]
    parser.add_argument("--as", dest="outcome", required=True, choices=outcomes)
    _add_reason(parser, required=True)


def _add_pins(group: "Group[argparse.ArgumentParser]") -> None:
    parser = group.add_parser("pins", help="list, add and remove pins: holds that cleanup never passes")
    pins = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add(pins, "list", "pins:list_pins", "list the pins of a pipeline").add_argument("pipeline", metavar="PIPELINE")
    add = _add(pins, "add", "pins:add_pin", "hold a checkpoint")
    remove = _add(pins, "remove", "pins:remove_pin", "let a checkpoint go again")
    for each in (add, remove):
        each.add_argument("ref", metavar="REF", help=_REF)
        each.add_argument("--owner", type=short_text, help="whose pin it is (default: the actor)")
    _add_reason(add, required=True)


def _add_leases(group: "Group[argparse.ArgumentParser]") -> None:
    parser = group.add_parser("leases", help="list and break leases: the right of one cleanup or restore to work")
    leases = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    listing = _add(leases, "list", "leases:list_leases", "list who cleans up or restores a pipeline")
    breaking = _add(leases, "break", "leases:break_lease", "take a lease back from a cleanup or restore that is dead")
    for each in (listing, breaking):
        each.add_argument("pipeline", metavar="PIPELINE")
    breaking.add_argument("kind", choices=[str(kind) for kind in LeaseKind])
    _add_reason(breaking)


def _add_cleanup(group: "Group[argparse.ArgumentParser]") -> None:
    parser = _add(group, "cleanup", "cleanup:clean_up", "let go what retention does not keep")
    parser.add_argument("pipeline", metavar="PIPELINE")
    parser.add_argument("--discard", metavar="REF", nargs="+", action="extend", default=[], help="these too, by wish")
    _add_dry_run(parser)


def _add_restore(group: "Group[argparse.ArgumentParser]") -> None:
    parser = _add(group, "restore", "restore:restore_pipeline", "plan the attempt that the pipeline starts again with")
    parser.add_argument("pipeline", metavar="PIPELINE")
    target = parser.add_mutually_exclusive_group()
    target.add_argument("--to", metavar="ID|SAVEPOINT", help="this checkpoint, also an abandoned one")
    target.add_argument("--as-of", metavar="TIME", help="the newest one of this time; without a zone: local time")
    parser.add_argument("--rewind", action="store_true", help="never the dead attempt's tip")
    parser.add_argument("--take-over", action="store_true", help="fence an attempt that is alive")
    parser.add_argument("--old-attempt-is-dead", action="store_true", help="it is gone for certain: do not wait for it")
    parser.add_argument("--allow-fresh-start", action="store_true", help="start from nothing where nothing is usable")
    parser.add_argument("--no-fallback", action="store_true", help="refuse an older one where the newest is corrupt")
    twice = "these sinks may see rows twice"
    parser.add_argument(
        "--accept-duplicates", metavar="SINK", nargs="+", action="extend", default=[], type=free_text, help=twice
    )
    _add_dry_run(parser)


def _add_verify(group: "Group[argparse.ArgumentParser]") -> None:
    parser = _add(group, "verify", "verify:verify_all", "read and hash checkpoints again")
    parser.add_argument(
        "targets", metavar="PIPELINE|REF", nargs="+", help=f"all completed ones of a pipeline, or {_REF}"
    )


def _add_rebuild(group: "Group[argparse.ArgumentParser]") -> None:
    parser = _add(group, "rebuild", "rebuild:rebuild_store", "add to the metastore what only the storage knows")
    parser.add_argument("pipeline", metavar="PIPELINE", nargs="?")
    _add_dry_run(parser)


def _add_sla(group: "Group[argparse.ArgumentParser]") -> None:
    parser = _add(group, "sla", "sla:sla", "say whether pipelines are as their objectives want them, by exit code too")
    parser.add_argument("pipelines", metavar="PIPELINE", nargs="*", help="(default: all)")


def _add_silence(group: "Group[argparse.ArgumentParser]") -> None:
    parser = _add(group, "silence", "sla:silence", "announce maintenance: nobody is told of problems for a while")
    parser.add_argument("pipeline", metavar="PIPELINE")
    how_long = parser.add_mutually_exclusive_group(required=True)
    how_long.add_argument("--for", dest="time", metavar="DURATION", help="such as 2h")
    how_long.add_argument("--over", action="store_true", help="it is over")
    parser.add_argument("--reason", type=free_text, default="", help="why, for the events")


def _add_doctor(group: "Group[argparse.ArgumentParser]") -> None:
    _add(group, "doctor", "doctor:doctor", "check the metastore, the storage, the clock and the versions")


def _add_play(group: "Group[argparse.ArgumentParser]") -> None:
    parser = _add(group, "play", "play:play", "run a scripted pipeline in place of Spark, to try things out with")
    parser.add_argument("pipeline", metavar="PIPELINE")
    parser.add_argument("--rate", type=seconds, default=20.0, metavar="N", help="events per second (default: 20)")
    parser.add_argument("--events", type=whole(), metavar="N", help="end by itself after event N")
    parser.add_argument("--partitions", type=whole(), default=4, metavar="N", help="of its state (default: 4)")


def _add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set", dest="settings", metavar="NAME=VALUE", nargs="+", action="extend", default=[], type=setting
    )


def _add_reason(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    parser.add_argument("--reason", required=required, default="", type=free_text, help="why; kept in the events")


def _add_dry_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="say what would be done; change nothing")


_COMMANDS = (
    _add_init,
    _add_pipelines,
    _add_list,
    _add_show,
    _add_trigger,
    _add_savepoint,
    _add_stop,
    _add_abort,
    _add_resolve,
    _add_pins,
    _add_leases,
    _add_cleanup,
    _add_restore,
    _add_verify,
    _add_rebuild,
    _add_sla,
    _add_silence,
    _add_doctor,
    _add_play,
)
