"""Restarts: from the tip, down the ladder, past an old driver that wakes up; stops, refusals and plain Spark."""

import json
import signal
import time
from collections import Counter
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from airflow_provider_ckpt.coordinator.restore import RestoreOptions, restore
from airflow_provider_ckpt.protocol.errors import Refused
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import AttemptStatus, Kind, Rung
from airflow_provider_ckpt.protocol.recovery import Policy, Target
from airflow_provider_ckpt.protocol.settings import change_settings
from tests.harness import campaign
from tests.receivers import a_listener, a_webhook
from tests.spark.stage import NAME, Driver, Stage, feed, quick_to_die

pytestmark = [pytest.mark.slow, pytest.mark.spark]
FILES, ROWS = 8, 10


def _totals(files: int = FILES) -> dict[str, dict[int, int]]:
    """What every batch must say: the sum of each key after it; worked out from the input alone."""
    sums: Counter[int] = Counter()
    said = {}
    for file in range(files):
        touched = {row % 7 for row in range(ROWS)}
        for row in range(ROWS):
            sums[row % 7] += file * 50 + row
        said[str(file)] = {key: sums[key] for key in touched}
    return said


def _copied(files: int = FILES) -> Counter[tuple[int, int]]:
    return Counter((row % 7, file * 50 + row) for file in range(files) for row in range(ROWS))


def _read_totals(out: Path) -> dict[str, dict[int, int]]:
    files = [file for file in (out / "totals").iterdir() if not file.name.startswith(".")]
    read = {file.name: [json.loads(line) for line in file.read_text().splitlines()] for file in files}
    return {name: {row["k"]: row["s"] for row in rows} for name, rows in read.items()}


def _read_files(folder: Path) -> Counter[tuple[int, int]]:
    """As an outside reader: everything in the folder that pyarrow takes for a part of it."""
    rows = ds.dataset(folder, format="parquet").to_table(columns=["k", "v"]).to_pylist()
    return Counter((row["k"], row["v"]) for row in rows)


@pytest.fixture
def out(stage: Stage) -> Path:
    feed(stage.folder / "source", FILES, rows=ROWS)
    (stage.folder / "out").mkdir()
    return stage.folder / "out"


def _start(stage: Stage, *options: str) -> Driver:
    return stage.start("totals", stage.folder / "source", stage.folder / "out", *options)


def _run_until_gate(stage: Stage, gate: int) -> Driver:
    """Run until batch `gate` of the totals is in the middle, and the copy is through."""
    driver = _start(stage, f"gate={gate}")
    stage.running(driver)
    stage.until(lambda: stage.committed("totals") >= gate - 1 and stage.committed("copy") >= FILES - 1, driver)
    return driver


def _finish(stage: Stage, out: Path, *options: str) -> Driver:
    (out / "go").touch()
    driver = _start(stage, *options)
    assert driver.wait() == 0, driver.said()
    assert _read_totals(out) == _totals()
    assert _read_files(out / "copy") == _copied()
    return driver


def test_a_crash_with_the_location_intact_goes_on_from_the_tip_and_processes_no_batch_twice(
    stage: Stage, out: Path
) -> None:
    driver = _run_until_gate(stage, 4)
    stage.checkpoint(driver)
    driver.kill()
    restored = stage.restore(is_rewind=False)  # nobody says where the work folder is: no tip to be seen
    assert restored.choice.rung is Rung.CHECKPOINT
    again = _finish(stage, out)
    assert "the tip of" not in again.said()


def test_a_driver_that_restores_by_itself_takes_the_tip_and_processes_no_batch_twice(stage: Stage, out: Path) -> None:
    stage.store.pipelines.change(NAME, quick_to_die, actor="tester")
    driver = _run_until_gate(stage, 4)
    stage.checkpoint(driver)
    driver.kill()
    again = _finish(stage, out)
    assert "it starts from: the tip of attempt 1" in again.said()
    runs = Counter((out / "runs").read_text().split())
    assert runs.pop("4") == 2, "the batch that was in the middle is the same again"
    assert set(runs.values()) == {1}, f"a batch was processed twice: {runs}"


def test_a_damaged_location_sends_the_driver_down_the_ladder_by_itself(stage: Stage, out: Path) -> None:
    stage.store.pipelines.change(NAME, quick_to_die, actor="tester")
    driver = _run_until_gate(stage, 4)
    checkpoint = stage.checkpoint(driver)
    driver.kill()
    version = stage.committed("totals") + 1
    state = stage.attempt_folder(1) / "queries" / "totals" / "state" / "0" / "0" / f"{version}.delta"
    data = bytearray(state.read_bytes())
    data[len(data) // 2] ^= 1
    state.unlink()  # it has other names: the stored one must stay as it is
    state.write_bytes(data)
    again = _finish(stage, out)
    assert f"it starts from: checkpoint {checkpoint.ref}" in again.said()
    assert "does not match its checksums" in again.said()


@pytest.mark.campaign
@campaign.orders_of_two()
def test_an_old_driver_that_wakes_up_is_fenced_and_harms_nothing(stage: Stage, out: Path, old_first: bool) -> None:
    old = _run_until_gate(stage, 4)
    stage.checkpoint(old)
    stage.freeze(old)  # in the middle of batch 4
    stage.restore()
    (out / "go").touch()
    if old_first:
        old.thaw()
        assert old.wait() != 0, "a fenced driver ends itself"
    new = _start(stage)
    assert new.wait() == 0, new.said()
    before = _read_files(out / "copy")
    if not old_first:
        old.thaw()
        assert old.wait() != 0, "a fenced driver ends itself"
    assert "was replaced by a newer one" in old.said()
    assert _read_files(out / "copy") == before == _copied()
    assert _read_totals(out) == _totals()
    late = stage.store.attempts.get(NAME, 1)
    assert late.status is AttemptStatus.SUPERSEDED


def test_a_pipeline_is_stopped_with_a_savepoint_and_goes_on_from_it(stage: Stage, out: Path) -> None:
    driver = _start(stage, "trigger=fast")
    stage.running(driver)
    stage.until(lambda: stage.committed("totals") >= 2 and stage.committed("copy") >= 2, driver)
    done = stage.ckpt("stop", NAME, "--savepoint", "before-upgrade")
    assert "(before-upgrade)" in done
    assert driver.wait() == 0, driver.said()
    savepoint = stage.store.checkpoints.page(NAME).checkpoints[0]
    assert (savepoint.kind, savepoint.phase) == (Kind.SAVEPOINT, Phase.COMPLETED)
    assert stage.store.attempts.get(NAME, 1).status is AttemptStatus.STOPPED
    cut = stage.store.barriers.cuts(savepoint.ref)["totals"].properties["committed"]
    assert stage.committed("totals") == cut, "it is the end: nothing was processed after it"

    refused = _start(stage)
    assert refused.wait() != 0
    assert "meant to be stopped" in refused.said()
    stage.ckpt("pipelines", NAME, "--start")
    stage.delete_work(1)
    stage.ckpt("restore", NAME, "--to", "before-upgrade")
    _finish(stage, out)


def test_a_last_checkpoint_is_taken_when_the_queries_end_by_themselves(stage: Stage, out: Path) -> None:
    _finish(stage, out)
    newest = stage.store.checkpoints.page(NAME).checkpoints[0]
    assert newest.phase is Phase.COMPLETED
    cuts = stage.store.barriers.cuts(newest.ref)
    assert {name: cut.batch for name, cut in cuts.items()} == {"totals": FILES - 1, "copy": FILES - 1}
    assert stage.store.attempts.get(NAME, 1).status is AttemptStatus.FINISHED
    assert not list(stage.attempt_folder(1).glob("held/*")), "what was held is let go"


def test_logs_that_spark_compacts_outlive_one_rewind_after_the_other(stage: Stage, out: Path) -> None:
    """Spark guesses the interval of a log with one compacted file: from 5 it would take 6, and from 11 take 3 again."""
    often = {f"spark.sql.streaming.{log}.log.compactInterval": "3" for log in ("fileSource", "fileSink")}
    fed = FILES
    for attempt, more in enumerate((0, 9, 2), 1):
        feed(stage.folder / "source", more, rows=ROWS, start=fed)
        fed += more
        if attempt > 1:
            stage.delete_work(attempt - 1)
            stage.restore()
        driver = stage.start("several", stage.folder / "source", out, conf=often)
        assert driver.wait() == 0, driver.said()
        for log in ("queries/clean/sources/0", "channels/rows/_spark_metadata"):
            assert list((stage.attempt_folder(attempt) / log).glob("*.compact")), "the test means compacted logs"
        for query in ("copy", "plain"):
            assert _read_files(out / query) == _copied(fed)


def test_a_driver_tells_people_itself_and_reports_what_it_measures(stage: Stage, out: Path) -> None:
    """No Airflow is there at all: the newest checkpoint grows old, and a webhook hears of it, once."""
    change = {"recovery_point": "1s"}
    stage.store.pipelines.change(NAME, lambda settings: change_settings(settings, change), actor="tester")
    with a_webhook() as webhook, a_listener() as listener:
        secrets = {"spark.ckpt.alert.webhook.secret": webhook.url, "spark.ckpt.metastore.secret": stage.url}
        conf = {"spark.ckpt.alert.every": "0.5", "spark.ckpt.statsd": listener.address}
        driver = stage.start("totals", stage.folder / "source", out, "gate=4", conf=conf, secrets=secrets)
        stage.running(driver)
        stage.until(lambda: webhook.documents, driver)
        stage.checkpoint(driver)
        heard = listener.heard(3)
        (out / "go").touch()
        assert driver.wait() == 0, driver.said()
    stale = [each for each in webhook.documents if each["state"] == "new"]
    assert [each["kind"] for each in stale] == ["stale"] * len(stale)
    assert stale[0]["text"].startswith(f"{NAME}: the newest completed checkpoint may be 1s old")
    assert set(heard) == {f"ckpt.{NAME}.driver.{what}" for what in ("checkpoints", "capture", "persist")}
    assert webhook.url not in driver.said()


def test_a_changed_program_is_told_what_does_not_fit(stage: Stage, out: Path) -> None:
    driver = _run_until_gate(stage, 3)
    stage.checkpoint(driver)
    driver.kill()
    (out / "go").touch()
    expected = {
        "operator": ("the stateful operators", "Aggregate"),
        "source": ('the sources ["json"]', 'the program has ["parquet"]'),
        "name": ("goes on with the queries totals, copy", "'sums'"),
        "clean": ("cleanSource=delete", "Remove the option"),
    }
    for change, (one, other) in expected.items():
        stage.restore()
        changed = _start(stage, f"change={change}")
        assert changed.wait() != 0, change
        assert one in changed.said(), changed.said()
        assert other in changed.said(), changed.said()
        attempt = stage.attempt()
        assert attempt is not None
        assert attempt.status is AttemptStatus.FAILED
    stage.restore()
    accepted = _finish(stage, out, "change=partitions")  # as Spark accepts it: it has pinned the number
    assert "goes on with the state partitions 2, which Spark has pinned" in accepted.said()


def test_a_sink_that_a_rewind_would_break_is_refused_by_name(stage: Stage, out: Path) -> None:
    driver = _start(stage, "gate=3", "rewindable=unsaid", "copy=no")
    stage.running(driver)
    stage.until(lambda: stage.committed("totals") >= 2, driver)
    stage.checkpoint(driver)
    driver.kill()
    with pytest.raises(Refused, match="a rewind would break totals/sink"):
        restore(stage.context, NAME, RestoreOptions(target=Target(rewind=True), is_proven_dead=True))
    attempt = stage.attempt()
    assert attempt is not None
    assert attempt.number == 1, "nothing was fenced"
    policy = Policy(accept_duplicates=frozenset({"totals/sink"}))
    accepted = restore(
        stage.context, NAME, RestoreOptions(target=Target(rewind=True), is_proven_dead=True, policy=policy)
    )
    assert accepted.choice.price.duplicated == ("totals/sink",)


def test_a_query_that_fails_is_reported_with_its_reason_and_what_can_not_be_checkpointed_is_refused(
    stage: Stage, out: Path
) -> None:
    (stage.folder / "source" / "00003.json").unlink()
    (stage.folder / "source" / "00003.json").mkdir()  # a folder among files: reading it fails
    (out / "totals").mkdir()
    (out / "totals" / "0").mkdir()  # the sink can not write its first batch
    driver = _start(stage, "copy=no")
    assert driver.wait() != 0
    attempt = stage.attempt()
    assert attempt is not None
    assert attempt.status is AttemptStatus.FAILED
    assert attempt.failure is not None
    assert "Query totals failed" in attempt.failure


def test_a_checkpoint_waits_until_the_program_says_that_all_its_queries_are_started(stage: Stage, out: Path) -> None:
    """A checkpoint without the third query could not be continued by this program, and it would be refused for ever."""
    stage.store.pipelines.change(NAME, quick_to_die, actor="tester")
    (out / "wait").touch()
    driver = _start_several(stage, out, "waits=plain")
    stage.running(driver)
    stage.until(lambda: stage.committed("clean") >= 0, driver)
    ref = stage.trigger().ref
    stage.until(lambda: f"{ref} waits until the program says that all its queries are started" in driver.said(), driver)
    time.sleep(4)
    assert stage.store.checkpoints.get(ref).phase is Phase.TRIGGERED
    driver.kill()
    (out / "wait").unlink()
    _finish_several(stage, out)


@pytest.mark.parametrize("options", [(), ("fails",)], ids=["well", "with an error"])
def test_a_query_of_the_programs_own_that_has_ended_before_it_is_looked_for_does_not_hang_the_driver(
    stage: Stage, out: Path, options: tuple[str, ...]
) -> None:
    driver = stage.start("ended", stage.folder / "source", *options)
    code = driver.wait()
    attempt = stage.attempt()
    assert attempt is not None
    if options:
        assert code != 0
        assert "Query seen failed" in (attempt.failure or "")
        assert "it is so" in (attempt.failure or "")
    else:
        assert code == 0, driver.said()
        assert attempt.status is AttemptStatus.FINISHED
        assert [each.phase for each in stage.store.checkpoints.page(NAME, limit=9).checkpoints] == [Phase.COMPLETED]


def _start_several(stage: Stage, out: Path, *options: str) -> Driver:
    return stage.start("several", stage.folder / "source", out, *options)


def _die_once(stage: Stage, out: Path, death: str, *options: str) -> None:
    driver = _start_several(stage, out, f"dies={death}", *options)
    assert driver.wait() == -signal.SIGKILL, driver.said()
    driver.kill()  # what the program has left behind


def _finish_several(stage: Stage, out: Path, *options: str) -> Driver:
    """One bounded run drains all, also what comes through a channel."""
    driver = _start_several(stage, out, *options)
    assert driver.wait() == 0, driver.said()
    assert _read_files(out / "plain") == _copied()
    assert _read_files(out / "copy") == _copied()
    return driver


@pytest.mark.parametrize(
    "deaths",
    [("batch:copy", "before:copy", "launch:plain"), ("launch:clean", "batch:plain")],
    ids=["in the middle of its queries", "at its first and its last query"],
)
def test_a_driver_that_dies_while_it_starts_loses_nothing_also_before_the_first_checkpoint(
    stage: Stage, out: Path, deaths: tuple[str, ...]
) -> None:
    stage.store.pipelines.change(NAME, quick_to_die, actor="tester")
    for death in deaths:
        _die_once(stage, out, death)
    _finish_several(stage, out)
    starts = [stage.store.attempts.get(NAME, number).rung for number in range(1, len(deaths) + 2)]
    assert starts == [Rung.FRESH, *[Rung.TIP] * len(deaths)], "nobody had to be asked"


def test_a_query_that_is_refused_leaves_nothing_in_the_way_of_the_mended_program(stage: Stage, out: Path) -> None:
    stage.store.pipelines.change(NAME, quick_to_die, actor="tester")
    for option, text in (
        ("refused=copy", "is not supported with continuous trigger"),
        ("unsaid=yes", "Query copy reads the channel 'rows' and does not say so"),
        ("unknown=yes", "Query plain reads the channel 'nowhere', and no query of this program writes it"),
    ):
        driver = _start_several(stage, out, option)
        assert driver.wait() != 0
        assert text in driver.said(), driver.said()
    _finish_several(stage, out)


def test_a_new_query_joins_a_pipeline_after_those_that_it_has(stage: Stage, out: Path) -> None:
    _finish_several(stage, out)
    for option, text in (
        ("more=first", "this program starts 'more', and has not started clean"),
        ("more=channel", "Query more is new, and reads a channel of which orders/1 keeps only what copy had not read"),
    ):
        driver = _start_several(stage, out, option)
        assert driver.wait() != 0
        assert text in driver.said(), driver.said()
        assert not (out / "more").exists(), "outside readers see nothing of what was refused"
    _finish_several(stage, out, "more=last")
    assert _read_files(out / "more") == _copied()


def test_a_query_that_joined_after_the_checkpoint_does_not_send_its_rows_again_unasked(stage: Stage, out: Path) -> None:
    stage.store.pipelines.change(NAME, quick_to_die, actor="tester")
    _finish_several(stage, out)
    _die_once(stage, out, "batch:more", "more=append")
    stage.delete_work(2)
    refused = _start_several(stage, out, "more=append")
    assert refused.wait() != 0
    assert "Query more has run, and nothing of that is left where attempt 3 starts" in refused.said(), refused.said()
    stage.ckpt("restore", NAME, "--accept-duplicates", "more/sink")
    _finish_several(stage, out, "more=append")


def test_without_configuration_it_runs_as_plain_spark_and_says_so_once(stage: Stage, out: Path) -> None:
    driver = stage.start("totals", stage.folder / "source", out, "copy=no", is_plain=True)
    assert driver.wait() == 0, driver.said()
    assert driver.said().count("this runs as plain Spark") == 1
    assert _read_totals(out) == _totals()
    assert stage.attempt() is None


def test_what_can_not_be_checkpointed_exactly_is_refused_with_a_sentence(stage: Stage, out: Path) -> None:
    driver = stage.start("refused", stage.folder / "source", out)
    assert driver.wait() == 0, driver.said()
    said = driver.said()
    for text in (
        "continuous: Refused: Query rate runs as Continuous",
        "own path: Refused: Query own writes files to a path of its own",
        "bad folder: Misused: The folder",
        "two sinks: Misused: Query two has one sink",
        "bad name: Misused: '../up' can not name a query",
        "session: Misused: spark.ckpt.poll is 'never'",
        "whole result: Refused: Query whole gives its whole result with every batch",
        "declared after those: []",
        "declared at launch: ['fine']",
        "two writers: Misused: Queries fine and other write one channel",
        "same name: Misused: Query fine was started already",
    ):
        assert text in said, said
    assert "nothing was said" not in said
