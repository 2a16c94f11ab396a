"""`ckpt play`: a scripted pipeline in place of Spark, to try everything out with."""

import argparse
import os
import signal
import sys
import time
from types import FrameType

from airflow_provider_ckpt.cli.exit_codes import ExitCode
from airflow_provider_ckpt.cli.output import Result, line
from airflow_provider_ckpt.cli.session import Session
from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.coordinator.restore import restore
from airflow_provider_ckpt.metastore import Beat
from airflow_provider_ckpt.protocol.paths import check_name
from airflow_provider_ckpt.protocol.records import AttemptStatus, DesiredState
from airflow_provider_ckpt.testing import ScriptedPipeline, ScriptedSink

_TICK = 0.1  # seconds


def play(args: argparse.Namespace, session: Session) -> Result:
    name = check_name("pipeline", args.pipeline)
    context = session.context
    if not context.store.attempts.of(name):
        restore(context, name)  # the one fresh start that nobody must allow
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGINT, _interrupt)  # a shell ignores it for what it starts in the background
    driver = _start(context, name, args.partitions)
    _say(
        f"Attempt {driver.attempt} of {name} runs as process {os.getpid()} from event {driver.position}. "
        "Ctrl-C stops it."
    )
    status, why = _run(driver, args.rate, args.events)
    is_mine = context.store.attempts.end(name, driver.attempt, status, actor=session.actor)
    return Result(
        document={"pipeline": name, "attempt": driver.attempt, "event": driver.position, "ended": why},
        view=[line(f"Attempt {driver.attempt} of {name} ended at event {driver.position}: {why}.")],
        code=ExitCode.DONE if is_mine else ExitCode.LOST_RACE,
    )


def _start(context: Context, name: str, partitions: int) -> ScriptedPipeline:
    driver = ScriptedPipeline(
        context,
        name,
        partitions=partitions,
        sink=ScriptedSink(context.storage),
        claim=context.new_token(),
        application_id=f"ckpt play, process {os.getpid()}",
    )
    driver.start()
    return driver


def _run(driver: ScriptedPipeline, rate: float, events: int | None) -> tuple[AttemptStatus, str]:
    """Go on until somebody stops it; a checkpoint is answered within a tick."""
    due = 0.0
    try:
        while events is None or driver.position < events:
            due += rate * _TICK
            beat = driver.tick(int(due))
            due -= int(due)
            if (end := _end(beat)) is not None:
                return end
            time.sleep(_TICK)
    except KeyboardInterrupt:
        return AttemptStatus.STOPPED, "stopped by a person"
    return AttemptStatus.FINISHED, "all events are processed"


def _end(beat: Beat) -> tuple[AttemptStatus, str] | None:
    if not beat.is_current:
        return AttemptStatus.SUPERSEDED, "a newer attempt has taken over"
    if beat.desired_state is DesiredState.STOPPED and beat.in_flight is None:
        return AttemptStatus.STOPPED, "the pipeline is meant to be stopped"
    return None


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    raise KeyboardInterrupt


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
