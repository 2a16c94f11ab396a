"""Bugs in the ways out: what would leave a pipeline stuck, or let it go on with what is damaged."""

from tests.mutants.bug import Area, Bug

_WAYS_OUT = "tests/behaviours/test_ways_out.py::test"
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
)
