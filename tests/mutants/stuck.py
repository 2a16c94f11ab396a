"""Bugs in the ways out: what would leave a pipeline stuck, or let it go on with what is damaged."""

from tests.mutants.bug import Area, Bug

_WAYS_OUT = "tests/behaviours/test_ways_out.py::test"
_CHECKPOINTING = "tests/behaviours/test_checkpointing.py::test"
_LOOKING_AFTER = "tests/behaviours/test_looking_after.py::test"
_CLUSTER = "tests/airflow/test_cluster_mode.py::test"
_GROWTH = "tests/behaviours/test_growth.py::test"
_TIMELINE = "tests/unit/test_timeline.py::test"
_CLEANUP = "airflow_provider_ckpt/coordinator/cleanup.py"

STUCK = (
    Bug(
        name="the checkpoint that the sinks stand at may be wished away",
        area=Area.RETENTION,
        file=_CLEANUP,
        text="max(good - holdings.discarding) < newest",
        replacement="max(good - holdings.discarding) < 0",
        tests=(f"{_WAYS_OUT}_the_checkpoint_that_the_sinks_stand_at_is_not_let_go_and_the_refusal_leads_out",),
    ),
    Bug(
        name="a checkpoint may build on one that is known to be corrupt",
        area=Area.GUARDS,
        file="airflow_provider_ckpt/metastore/barriers.py",
        text="checkpoints.c.kind == Kind.CHECKPOINT, guards.is_not_corrupt()),",
        replacement="checkpoints.c.kind == Kind.CHECKPOINT),",
        tests=(f"{_WAYS_OUT}_what_verify_has_called_corrupt_is_no_base_of_the_next_checkpoint",),
    ),
    Bug(
        name="a checkpoint in flight goes on although its base was found corrupt",
        area=Area.GUARDS,
        file="airflow_provider_ckpt/metastore/checkpoints.py",
        text="flying is not None and base.id in read_bases(tx, base.pipeline)",
        replacement="flying is not None and base.id == flying.ref.id",
        tests=(
            f"{_WAYS_OUT}_a_checkpoint_in_flight_that_builds_on_what_is_found_corrupt_fails_and_the_next_one_is_whole",
        ),
    ),
    Bug(
        name="consent to duplicates is forgotten with the attempt that it was given for",
        area=Area.RESTORE,
        file="airflow_provider_ckpt/protocol/recovery.py",
        text="return Consent(sinks=last.accepted, start=start)",
        replacement="return Consent()",
        tests=(f"{_WAYS_OUT}_consent_to_duplicates_stays_until_a_checkpoint_completes",),
    ),
    Bug(
        name="consent to duplicates reaches as far back as anybody likes",
        area=Area.RESTORE,
        file="airflow_provider_ckpt/protocol/recovery.py",
        text="sink in self.consent.sinks and start >= self.consent.start",
        replacement="sink in self.consent.sinks",
        tests=(f"{_WAYS_OUT}_consent_to_duplicates_does_not_reach_further_back_than_it_was_given_for",),
    ),
    Bug(
        name="a restore looks only once, before it begins, whether a driver is alive",
        area=Area.GUARDS,
        file="airflow_provider_ckpt/metastore/attempts.py",
        text="if living is not None and not take_over and living.number != dead:",
        replacement="if living is not None and living.number < 0:",
        tests=(f"{_WAYS_OUT}_a_restore_does_not_fence_a_driver_that_has_come_up_since_it_looked",),
    ),
    Bug(
        name="a lease lasts until the clock is where it was when the lease was taken",
        area=Area.GUARDS,
        file="airflow_provider_ckpt/metastore/leases.py",
        text="leases.c.expires_at > latest)",
        replacement="leases.c.expires_at < latest)",
        tests=(f"{_WAYS_OUT}_a_lease_lasts_no_longer_than_its_time_to_live_where_the_clock_was_set_back",),
    ),
    Bug(
        name="an application in the cluster's queue is replaced as soon as a heartbeat would be missed",
        area=Area.RESTORE,
        file="airflow_provider_ckpt/coordinator/diagnosis.py",
        text="limit = settings.claim_timeout if is_submitted else settings.attempt_ttl",
        replacement="limit = settings.attempt_ttl",
        tests=(f"{_LOOKING_AFTER}_an_attempt_that_was_submitted_has_its_own_time_to_be_claimed",),
    ),
    Bug(
        name="an application that has ended in the cluster is waited for",
        area=Area.TRIGGERS,
        file="airflow_provider_ckpt/triggers/attempt.py",
        text="if found is not None and found.has_ended:",
        replacement="if found is not None and found.has_ended and not found.detail:",
        tests=(f"{_CLUSTER}_an_application_that_dies_before_it_has_claimed_its_attempt_fails_it_at_once",),
    ),
    Bug(
        name="a kill that comes late stops what somebody has started since",
        area=Area.TRIGGERS,
        file="airflow_provider_ckpt/metastore/pipelines.py",
        text="events.c.seq > since",
        replacement="events.c.seq < since",
        tests=(f"{_CLUSTER}_a_late_kill_does_not_undo_a_start_that_came_after",),
    ),
    Bug(
        name="an application that was replaced is left on the cluster",
        area=Area.OPERATORS,
        file="airflow_provider_ckpt/operators/spark_submit.py",
        text="frozenset({AttemptStatus.SUPERSEDED, AttemptStatus.FAILED})",
        replacement="frozenset({AttemptStatus.FAILED})",
        tests=(f"{_CLUSTER}_an_application_that_was_replaced_is_ended_through_the_cluster",),
    ),
    Bug(
        name="the history is never trimmed",
        area=Area.RETENTION,
        file=_CLEANUP,
        text="for _ in range(_TRIMS):",
        replacement="for _ in range(0):",
        tests=(f"{_GROWTH}_a_year_of_checkpoints_costs_what_its_first_days_did",),
    ),
    Bug(
        name="the last event of a kind is trimmed, which others ask for",
        area=Area.RETENTION,
        file="airflow_provider_ckpt/metastore/history.py",
        text="events.c.seq.not_in(_newest_of_each_kind(tx, pipeline.name))",
        replacement="events.c.seq.not_in(_newest_of_each_kind(tx, pipeline.name)[:1])",
        tests=(f"{_GROWTH}_who_asks_for_the_last_event_of_a_kind_finds_it",),
    ),
    Bug(
        name="what a person did is forgotten with everything else",
        area=Area.RETENTION,
        file="airflow_provider_ckpt/metastore/history.py",
        text="events.c.at < now - audited)",
        replacement="events.c.at < now - kept)",
        tests=(f"{_GROWTH}_what_a_person_did_is_kept_for_longer",),
    ),
    Bug(
        name="a forgotten attempt breaks the line of those that are left",
        area=Area.RETENTION,
        file="airflow_provider_ckpt/protocol/timeline.py",
        text="_lower(fork_at, forgotten.fork_at)",
        replacement="fork_at",
        tests=(f"{_TIMELINE}_a_line_without_the_attempts_that_are_forgotten_holds_the_same_checkpoints",),
    ),
    Bug(
        name="a capture is repeated although a cut that names the lost base stands",
        area=Area.CUT,
        file="airflow_provider_ckpt/spark/checkpointing.py",
        text="raise _BaseGone(base, is_used=not is_first)",
        replacement="raise _BaseGone(base, is_used=False)",
        tests=(f"{_CHECKPOINTING}_a_base_that_goes_between_two_cuts_fails_the_checkpoint_and_the_next_one_is_whole",),
    ),
    Bug(
        name="a file that lay in the lost base is taken for one that is held",
        area=Area.CUT,
        file="airflow_provider_ckpt/spark/holding.py",
        text="if self._named.get(name) != identity:",
        replacement="if self.identities.get(name) != identity:",
        tests=(f"{_CHECKPOINTING}_where_the_base_is_corrupt_everything_is_copied_anew",),
    ),
)
