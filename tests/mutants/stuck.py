"""Bugs in the ways out: what would leave a pipeline stuck, or let it go on with what is damaged."""

from tests.mutants.bug import Area, Bug

_WAYS_OUT = "tests/behaviours/test_ways_out.py::test"
_CHECKPOINTING = "tests/behaviours/test_checkpointing.py::test"
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
