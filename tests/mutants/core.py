"""Bugs in the protocol: the guards of the metastore, the cut, the tip, and what a restore chooses."""

from tests.mutants.bug import Area, Bug

_CHANNELS = "tests/spark/test_channels.py::test"
_TIPS = "tests/unit/spark/test_tips.py::test"
_GUARDS = "airflow_provider_ckpt/metastore/guards.py"
_CUT = "airflow_provider_ckpt/protocol/cut.py"
_RECOVERY = "airflow_provider_ckpt/protocol/recovery.py"
_RESTORE = "airflow_provider_ckpt/coordinator/restore.py"
_INVARIANT = "tests/behaviours/test_invariants.py::test_invariant"

GUARDS = (
    Bug(
        name="acks of a checkpoint that has ended are accepted",
        area=Area.GUARDS,
        file=_GUARDS,
        text="in_phase(Phase.IN_PROGRESS), checkpoints.c.attempt == attempt",
        replacement="checkpoints.c.attempt == attempt",
        tests=(f"{_INVARIANT}_05_every_ack_has_an_outcome_and_only_accepted_changes_anything",),
    ),
    Bug(
        name="an attempt that was replaced still counts as the current one",
        area=Area.GUARDS,
        file=_GUARDS,
        text="pipelines.c.name == pipeline, pipelines.c.current_attempt == attempt",
        replacement="pipelines.c.name == pipeline, pipelines.c.current_attempt >= attempt",
        tests=(f"{_INVARIANT}_15_an_older_attempt_can_not_harm",),
    ),
    Bug(
        name="a checkpoint completes while a sink has not committed yet",
        area=Area.GUARDS,
        file=_GUARDS,
        text="sink_commits.c.status.not_in(sorted(SINK_DONE)),",
        replacement='sink_commits.c.status == "unknown",',
        tests=(f"{_INVARIANT}_18_committing_ends_by_the_current_agent_a_restore_or_a_person",),
    ),
    Bug(
        name="a cleanup goes by a plan that is out of date",
        area=Area.GUARDS,
        file=_GUARDS,
        text="pipelines.c.revision == revision",
        replacement="pipelines.c.revision >= revision",
        tests=(f"{_INVARIANT}_11_a_cleaner_that_wakes_up_late_finds_its_plan_void",),
    ),
    Bug(
        name="a cleanup may begin while a checkpoint is in progress",
        area=Area.GUARDS,
        file=_GUARDS,
        text="other.c.phase.in_(sorted(IN_FLIGHT))",
        replacement="other.c.phase == Phase.TRIGGERED",
        tests=(f"{_INVARIANT}_10_cleanup_and_triggering_exclude_each_other_both_ways",),
    ),
)

CUT = (
    Bug(
        name="the cut of an upstream is the first batch after the planned one",
        area=Area.CUT,
        file=_CUT,
        text="if batch >= planned)",
        replacement="if batch > planned)",
        tests=("tests/unit/test_cut.py::test_the_cut_of_an_upstream_is_the_first_commit_from_the_planned_batch_on",),
    ),
    Bug(
        name="the cut of an upstream is its newest batch, planned or not",
        area=Area.CUT,
        file=_CUT,
        text="return min((batch for batch in commits if batch >= planned), default=None)",
        replacement="return max(commits, default=None)",
        tests=("tests/unit/test_cut.py::test_the_cut_of_an_upstream_is_the_first_commit_from_the_planned_batch_on",),
    ),
    Bug(
        name="queries are captured upstream first",
        area=Area.CUT,
        file=_CUT,
        text="return tuple(sorter.static_order())",
        replacement="return tuple(sorter.static_order())[::-1]",
        tests=("tests/unit/test_cut.py::test_a_chain_is_captured_from_its_end",),
    ),
    Bug(
        name="a reader that is one batch ahead of its upstream goes unnoticed",
        area=Area.CUT,
        file=_CUT,
        text="if consumed.upto > _batch(cuts, consumed.writer):",
        replacement="if consumed.upto > _batch(cuts, consumed.writer) + 1:",
        tests=(f"{_INVARIANT}_04_a_reader_ahead_of_its_upstream_is_refused",),
    ),
    Bug(
        name="the store takes a cut before those of its readers",
        area=Area.CUT,
        file="airflow_provider_ckpt/metastore/barriers.py",
        text="            _check_order(graph, ref, capture, read_cuts(tx, ref))\n",
        replacement="",
        tests=(f"{_INVARIANT}_04_membership_freezes_with_the_last_cut_downstream_first",),
    ),
    Bug(
        name="data in flight are not kept with a checkpoint, data that all have read are",
        area=Area.CUT,
        file="airflow_provider_ckpt/spark/capturing.py",
        text="if not self._is_read_by_all(channel, path))",
        replacement="if self._is_read_by_all(channel, path))",
        tests=(f"{_CHANNELS}_checkpoints_at_random_moments_are_each_restored_without_a_row_lost_doubled_or_invented",),
    ),
)

TIP = (
    Bug(
        name="a tip is taken although a query of it was laid out and never started",
        area=Area.TIP,
        file="airflow_provider_ckpt/spark/tips.py",
        text="laid_out = (location.name for location in dead.locations)",
        replacement="laid_out = (query.name for query in graph.queries)",
        tests=("tests/unit/spark/test_tips.py::test_what_was_laid_out_and_never_started_is_no_tip",),
    ),
    Bug(
        name="a tip without any query is taken",
        area=Area.TIP,
        file="airflow_provider_ckpt/spark/tips.py",
        text="    if not graph.queries:\n",
        replacement="    if graph is None:\n",
        tests=(f"{_TIPS}_nothing_is_started_from_a_folder_without_queries_or_with_a_damaged_description",),
    ),
    Bug(
        name="a tip is taken although a file that it needs is gone",
        area=Area.TIP,
        file="airflow_provider_ckpt/spark/laying_out.py",
        text="    if not piece.source.is_file():\n",
        replacement="    if piece.source.is_dir():\n",
        tests=("tests/unit/spark/test_laying_out.py::test_a_tip_without_a_file_that_it_needs_is_damaged",),
    ),
    Bug(
        name="a tip that failed is tried for ever once there is any checkpoint",
        area=Area.TIP,
        file=_RECOVERY,
        text="not any(each.attempt == last.number for each in completed)",
        replacement="not any(each.attempt <= last.number for each in completed)",
        tests=("tests/unit/test_recovery.py::test_a_tip_that_died_before_it_completed_anything_is_spent",),
    ),
    Bug(
        name="a restore takes the tip without asking whether it is intact",
        area=Area.TIP,
        file=_RESTORE,
        text="return None if self._tip_candidate is None else self._options.tip_damage(self._tip_candidate)",
        replacement="return None",
        tests=(f"{_INVARIANT}_14_no_silent_fresh_start",),
    ),
    Bug(
        name="an attempt that ran no query leaves a tip",
        area=Area.TIP,
        file=_RESTORE,
        text="while died is not None and not self._queries_of(died):",
        replacement="while died is not None and died.claimed_at is None:",
        tests=(
            "tests/behaviours/test_tips.py::test_an_attempt_that_ran_nothing_leaves_no_tip_whatever_lies_in_its_folder",
        ),
    ),
)

RESTORE = (
    Bug(
        name="a restore chooses a checkpoint of an abandoned timeline by itself",
        area=Area.RESTORE,
        file=_RECOVERY,
        text="if not candidate.is_on_timeline or (target.as_of and checkpoint.triggered_at > target.as_of):",
        replacement="if target.as_of and checkpoint.triggered_at > target.as_of:",
        tests=("tests/unit/test_recovery.py::test_an_abandoned_checkpoint_is_never_chosen_by_itself",),
    ),
    Bug(
        name="who accepts duplicates in one sink accepts them in all",
        area=Area.RESTORE,
        file=_RECOVERY,
        text="and not policy.accepts(name, first)",
        replacement="and not policy.accept_duplicates",
        tests=("tests/unit/test_recovery.py::test_duplicates_are_accepted_by_name_only",),
    ),
    Bug(
        name="a pipeline that has lost its checkpoints starts from nothing, and nobody is asked",
        area=Area.RESTORE,
        file=_RECOVERY,
        text="if is_first_start or policy.allow_fresh_start:",
        replacement="if is_first_start or policy.allow_fresh_start or not passed_over:",
        tests=("tests/unit/test_recovery.py::test_a_later_fresh_start_is_refused_and_the_ways_out_are_named",),
    ),
    Bug(
        name="a restore fences an attempt that is alive",
        area=Area.RESTORE,
        file="airflow_provider_ckpt/metastore/attempts.py",
        text="return attempt if tx.now() - attempt.heartbeat_at < pipeline.settings.attempt_ttl else None",
        replacement="return None",
        tests=(f"{_INVARIANT}_15_restore_waits_for_the_time_to_live_unless_the_old_one_is_proven_dead",),
    ),
    Bug(
        name="a restore does not wait for the driver that it has fenced",
        area=Area.RESTORE,
        file=_RESTORE,
        text="return attempt.status in (AttemptStatus.RUNNING, AttemptStatus.SUPERSEDED)",
        replacement="return attempt.status is AttemptStatus.RUNNING",
        tests=(f"{_INVARIANT}_15_restore_waits_for_the_time_to_live_unless_the_old_one_is_proven_dead",),
    ),
    Bug(
        name="a restore does not read the bytes of what it has chosen",
        area=Area.RESTORE,
        file=_RESTORE,
        text="return verify(self._context, checkpoint.ref, self._heard).is_intact",
        replacement="return load_manifest(self._context, checkpoint).ref == checkpoint.ref",
        tests=(f"{_INVARIANT}_14_a_corrupt_newest_checkpoint_is_marked_and_the_next_older_one_taken_with_its_price",),
    ),
    Bug(
        name="a restore goes past a checkpoint whose commit is not finished",
        area=Area.RESTORE,
        file=_RESTORE,
        text="if each.phase is Phase.COMMITTING), None)",
        replacement="if each.phase is Phase.DISCARDING), None)",
        tests=(f"{_INVARIANT}_18_a_restore_without_the_sinks_leaves_the_commit_to_the_new_driver",),
    ),
)
