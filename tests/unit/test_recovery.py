"""The restart ladder: which rung is chosen, what it costs, and what is refused."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_ckpt.protocol.errors import NotFound, Refused
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import Attempt, AttemptStatus, Checkpoint, Kind, Ref, Rung, Verdict
from airflow_provider_ckpt.protocol.recovery import (
    Candidate,
    Choice,
    Policy,
    Price,
    SinkMarker,
    Target,
    choose,
    is_tip_spent,
)

quick = settings(max_examples=60, deadline=None)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
NEWEST = 20  # checkpoint n was triggered n minutes after NOON, and it is NEWEST minutes after NOON now
NOW = NOON + NEWEST * MINUTE
BAD = "orders/files/1/9/x is missing."


def _checkpoint(
    id_: int, *, name: str | None = None, attempt: int = 1, is_corrupt: bool = False, why: str | None = BAD
) -> Checkpoint:
    return Checkpoint(
        ref=Ref("orders", id_),
        attempt=attempt,
        phase=Phase.COMPLETED,
        kind=Kind.CHECKPOINT if name is None else Kind.SAVEPOINT,
        name=name,
        trigger_key=f"key-{id_}",
        retry_of=None,
        requested_by="tester",
        reason="",
        triggered_at=NOON + id_ * MINUTE,
        deadline=NOON + (id_ + 10) * MINUTE,
        frozen_at=None,
        participants=1,
        decision=None,
        decided_at=None,
        ended_at=NOON + (id_ + 1) * MINUTE,
        failure=None,
        verdict=Verdict.CORRUPT if is_corrupt else None,
        verdict_detail=why if is_corrupt else None,
        last_participant=None,
    )


def _good(id_: int, name: str | None = None) -> Candidate:
    return Candidate(checkpoint=_checkpoint(id_, name=name), is_on_timeline=True)


def _abandoned(id_: int, name: str | None = None) -> Candidate:
    return Candidate(checkpoint=_checkpoint(id_, name=name), is_on_timeline=False)


def _corrupt(id_: int, name: str | None = None, why: str | None = BAD) -> Candidate:
    return Candidate(checkpoint=_checkpoint(id_, name=name, is_corrupt=True, why=why), is_on_timeline=True)


def _choose(
    *candidates: Candidate,
    target: Target | None = None,
    tip: bool = False,
    first: bool = False,
    policy: Policy | None = None,
    **sinks: SinkMarker,
) -> Choice:
    return choose(
        target or Target(),
        candidates,
        pipeline="orders",
        now=NOW,
        tip_is_intact=tip,
        is_first_start=first,
        sinks=sinks,
        policy=policy,
    )


def _id(choice: Choice) -> int | None:
    assert (choice.rung is Rung.CHECKPOINT) == (choice.checkpoint is not None)
    return None if choice.checkpoint is None else choice.checkpoint.ref.id


# the tip


def test_the_tip_comes_first_and_replays_nothing() -> None:
    choice = _choose(_good(3), tip=True)
    assert choice == Choice(rung=Rung.TIP, checkpoint=None, price=Price(replay=timedelta(0)))
    assert str(choice.price) == "replays nothing"


def test_the_tip_needs_no_checkpoint_and_asks_no_sink() -> None:
    assert _choose(tip=True, table=SinkMarker(committed=99)).rung is Rung.TIP


@pytest.mark.parametrize(
    "target", [Target(rewind=True), Target(id=3), Target(savepoint="mine"), Target(as_of=NOW)], ids=str
)
def test_who_asks_for_anything_else_does_not_get_the_tip(target: Target) -> None:
    assert _id(_choose(_good(3, "mine"), target=target, tip=True)) == 3


# the newest checkpoint of the timeline


def test_without_a_tip_the_newest_checkpoint_is_taken_in_whatever_order_they_come() -> None:
    assert _id(_choose(_good(2), _good(5), _good(3))) == 5


def test_the_price_of_a_checkpoint_is_the_time_since_its_trigger() -> None:
    price = _choose(_good(5)).price
    assert price == Price(replay=15 * MINUTE)
    assert str(price) == "replays 15m"


def test_a_trigger_in_the_future_replays_nothing() -> None:
    assert _choose(_good(NEWEST + 5)).price.replay == timedelta(0)


@st.composite
def _candidates(draw: st.DrawFn) -> list[Candidate]:
    ids = draw(st.lists(st.integers(1, NEWEST), unique=True, max_size=8))
    kinds = st.sampled_from([_good, _abandoned, _corrupt])
    return [draw(kinds)(id_) for id_ in ids]


def _on_timeline(candidates: Sequence[Candidate], *, restorable: bool) -> list[int]:
    return [
        each.checkpoint.ref.id
        for each in candidates
        if each.is_on_timeline and each.checkpoint.is_restorable is restorable
    ]


@quick
@given(_candidates())
def test_the_newest_good_one_is_chosen_and_every_newer_bad_one_is_in_the_price(candidates: list[Candidate]) -> None:
    good, bad = _on_timeline(candidates, restorable=True), _on_timeline(candidates, restorable=False)
    if not good:
        with pytest.raises(Refused, match="no checkpoint that can be restored"):
            _choose(*candidates)
        return
    choice = _choose(*candidates)
    assert _id(choice) == max(good)
    assert [id_ for id_, _ in choice.price.passed_over] == sorted((id_ for id_ in bad if id_ > max(good)), reverse=True)


@quick
@given(_candidates(), st.integers(0, NEWEST))
def test_as_of_a_time_is_the_same_as_if_nothing_newer_were_there(candidates: list[Candidate], minute: int) -> None:
    older = [each for each in candidates if each.checkpoint.ref.id <= minute]
    policy = Policy(allow_fresh_start=True)
    as_of = _choose(*candidates, target=Target(as_of=NOON + minute * MINUTE), policy=policy)
    assert as_of == _choose(*older, target=Target(rewind=True), policy=policy)


def test_as_of_the_very_time_of_a_trigger_includes_it() -> None:
    candidates = (_good(3), _good(4))
    assert _id(_choose(*candidates, target=Target(as_of=NOON + 4 * MINUTE))) == 4
    assert _id(_choose(*candidates, target=Target(as_of=NOON + 4 * MINUTE - timedelta(microseconds=1)))) == 3


def test_as_of_a_time_before_everything_is_refused() -> None:
    with pytest.raises(Refused, match="or before that can be restored"):
        _choose(_good(3), target=Target(as_of=NOON))


# by name


def test_a_person_can_choose_an_older_checkpoint_by_its_id() -> None:
    choice = _choose(_good(2), _good(5), _corrupt(7), target=Target(id=2), policy=Policy(allow_fallback=False))
    assert _id(choice) == 2
    assert choice.price == Price(replay=18 * MINUTE)


def test_a_person_can_choose_a_savepoint_by_its_name() -> None:
    assert _id(_choose(_good(2, "mine"), _good(5), _good(6, "other"), target=Target(savepoint="mine"))) == 2


def test_of_two_savepoints_with_one_name_the_newer_is_meant() -> None:
    assert _id(_choose(_good(2, "mine"), _good(4, "mine"), _good(5), target=Target(savepoint="mine"))) == 4


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        (Target(id=9), "checkpoint orders/9"),
        (Target(id=0), "checkpoint orders/0"),
        (Target(savepoint="mine"), "savepoint 'mine'"),
        (Target(savepoint=""), "savepoint ''"),
    ],
)
def test_what_is_not_there_is_not_found_and_nothing_else_is_taken(target: Target, wanted: str) -> None:
    with pytest.raises(NotFound, match=f"There is no restorable {wanted} of pipeline orders") as missing:
        _choose(_good(5), target=target, first=True, policy=Policy(allow_fresh_start=True))
    assert "`ckpt list orders` shows what there is" in str(missing.value)


def test_an_abandoned_checkpoint_is_never_chosen_by_itself() -> None:
    assert _id(_choose(_good(2), _abandoned(5))) == 2
    assert _id(_choose(_good(2), _abandoned(5), target=Target(as_of=NOW))) == 2
    with pytest.raises(Refused, match="Choose an abandoned one with --to"):
        _choose(_abandoned(5))


@pytest.mark.parametrize("target", [Target(id=5), Target(savepoint="mine")], ids=str)
def test_an_abandoned_checkpoint_is_restored_when_it_is_named(target: Target) -> None:
    assert _id(_choose(_good(2), _abandoned(5, "mine"), target=target)) == 5


def test_only_ids_and_savepoints_are_explicit() -> None:
    assert [Target(id=1).is_explicit, Target(savepoint="a").is_explicit] == [True, True]
    assert [Target().is_explicit, Target(as_of=NOON).is_explicit, Target(rewind=True).is_explicit] == [False] * 3


# corrupt ones


def test_corrupt_checkpoints_are_passed_over_and_the_price_says_which_and_why() -> None:
    choice = _choose(_good(5), _corrupt(8), _corrupt(9, why=None))
    assert _id(choice) == 5
    assert choice.price.passed_over == ((9, "corrupt"), (8, BAD))
    assert str(choice.price) == f"replays 15m, passes over 9 (corrupt), passes over 8 ({BAD})"


def test_an_older_corrupt_checkpoint_costs_nothing() -> None:
    assert _choose(_good(5), _corrupt(4)).price.passed_over == ()


def test_nothing_is_passed_over_when_the_policy_forbids_it() -> None:
    with pytest.raises(Refused) as refused:
        _choose(_good(4), _good(5), _corrupt(8), policy=Policy(allow_fallback=False))
    assert str(refused.value) == (
        f"Checkpoint orders/8 can not be restored: {BAD} The next older one is orders/5, "
        "and falling back is not allowed by the policy. Allow it, or restore it with --to 5."
    )


def test_a_policy_that_forbids_falling_back_still_takes_the_newest() -> None:
    assert _id(_choose(_good(5), _corrupt(4), policy=Policy(allow_fallback=False))) == 5


@pytest.mark.parametrize("target", [Target(id=8), Target(savepoint="mine")], ids=str)
def test_a_corrupt_checkpoint_is_refused_even_by_name_and_another_is_named(target: Target) -> None:
    with pytest.raises(Refused) as refused:
        _choose(_good(4), _good(5), _corrupt(8, "mine"), _corrupt(9), target=target)
    assert str(refused.value) == (
        f"Checkpoint orders/8 can not be restored: {BAD} Restore 5 with --to 5, "
        "or run `ckpt verify orders` to see which are intact."
    )


def test_when_no_other_is_intact_the_refusal_says_so() -> None:
    with pytest.raises(Refused, match="No other checkpoint is intact, or run `ckpt verify orders`"):
        _choose(_corrupt(8), _corrupt(9), target=Target(id=8))


@pytest.mark.parametrize(
    ("target", "policy"), [(Target(id=8), Policy()), (Target(), Policy(allow_fallback=False))], ids=["by-id", "policy"]
)
def test_a_refusal_without_a_detail_is_made_of_sentences_too(target: Target, policy: Policy) -> None:
    with pytest.raises(Refused, match=r"corrupt\. (Restore|The next)"):
        _choose(_good(5), _corrupt(8, why=None), target=target, policy=policy)


def test_the_other_that_a_refusal_names_lies_on_the_timeline() -> None:
    with pytest.raises(Refused, match="Restore 4 with --to 4"):
        _choose(_good(4), _abandoned(6), _corrupt(8), target=Target(id=8))


# a fresh start


def test_the_first_start_needs_nobodys_leave() -> None:
    assert _choose(first=True) == Choice(rung=Rung.FRESH, checkpoint=None, price=Price(replay=timedelta(0)))


def test_a_later_fresh_start_is_refused_and_the_ways_out_are_named() -> None:
    with pytest.raises(Refused) as refused:
        _choose()
    for way in ("with --to", "`ckpt verify`", "--allow-fresh-start"):
        assert way in str(refused.value)


def test_a_refused_fresh_start_says_what_is_wrong_with_each_checkpoint() -> None:
    with pytest.raises(Refused, match=f"can be restored \\(9: corrupt, 8: {BAD}\\)"):
        _choose(_corrupt(8), _corrupt(9, why=None))


def test_a_fresh_start_that_is_allowed_tells_what_it_passes_over() -> None:
    choice = _choose(_corrupt(8), _abandoned(3), policy=Policy(allow_fresh_start=True))
    assert (choice.rung, choice.price.passed_over) == (Rung.FRESH, ((8, BAD),))


@pytest.mark.parametrize(("first", "policy"), [(True, Policy()), (False, Policy(allow_fresh_start=True))])
def test_a_fresh_start_is_the_last_rung_even_where_it_is_allowed(first: bool, policy: Policy) -> None:
    assert _id(_choose(_good(5), first=first, policy=policy)) == 5
    assert _choose(_good(5), first=first, policy=policy, tip=True).rung is Rung.TIP


@pytest.mark.parametrize(("first", "policy"), [(True, Policy()), (False, Policy(allow_fresh_start=True))])
def test_a_fresh_start_behind_what_a_sink_has_committed_is_refused(first: bool, policy: Policy) -> None:
    with pytest.raises(Refused, match="--accept-duplicates table"):
        _choose(first=first, policy=policy, table=SinkMarker(committed=7))


# sinks


@pytest.mark.parametrize("committed", [None, 0, 4, 5])
def test_a_sink_that_has_committed_nothing_beyond_costs_nothing(committed: int | None) -> None:
    assert _choose(_good(5), table=SinkMarker(committed=committed)).price == Price(replay=15 * MINUTE)


@pytest.mark.parametrize("target", [Target(), Target(id=5), Target(rewind=True)], ids=str)
def test_a_sink_beyond_the_checkpoint_is_refused_and_both_ways_out_are_named(target: Target) -> None:
    with pytest.raises(Refused) as refused:
        _choose(_good(5), _corrupt(7), target=target, table=SinkMarker(committed=7), other=SinkMarker(committed=5))
    assert str(refused.value) == (
        "Checkpoint orders/5 can not be restored: sink table has already committed orders/7, and what came after "
        "orders/5 would be written twice. orders/7 is corrupt: repair it, or accept duplicates in that sink "
        "with --accept-duplicates table."
    )
    with pytest.raises(Refused, match="Restore 7 with --to 7, or accept"):
        _choose(_good(5), _good(7), target=Target(id=5), table=SinkMarker(committed=7))


def test_a_sink_that_can_roll_back_is_rolled_back() -> None:
    price = _choose(_good(5), table=SinkMarker(committed=7, history=frozenset({5}))).price
    assert (price.rolled_back, price.duplicated) == (("table",), ())
    assert str(price) == "replays 15m, rolls back sink table"


def test_duplicates_are_accepted_by_name_only() -> None:
    beyond = SinkMarker(committed=7)
    price = _choose(_good(5), policy=Policy(accept_duplicates=frozenset({"table"})), table=beyond).price
    assert (price.rolled_back, price.duplicated) == ((), ("table",))
    assert str(price) == "replays 15m, may duplicate rows in sink table"
    with pytest.raises(Refused, match="sink other"):
        _choose(_good(5), policy=Policy(accept_duplicates=frozenset({"table"})), table=beyond, other=beyond)


def test_a_sink_that_can_roll_back_is_not_made_to_duplicate() -> None:
    marker = SinkMarker(committed=7, history=frozenset({5}))
    price = _choose(_good(5), policy=Policy(accept_duplicates=frozenset({"table"})), table=marker).price
    assert (price.rolled_back, price.duplicated) == (("table",), ())


def test_an_acceptance_that_is_not_needed_costs_nothing() -> None:
    policy = Policy(accept_duplicates=frozenset({"table", "nobody"}))
    assert _choose(_good(5), policy=policy, table=SinkMarker(committed=5)).price.duplicated == ()


def test_one_sink_that_can_roll_back_does_not_excuse_another() -> None:
    with pytest.raises(Refused, match="sink z has already committed orders/9"):
        _choose(_good(5), a=SinkMarker(committed=7, history=frozenset({5})), z=SinkMarker(committed=9))


markers = st.builds(
    SinkMarker, committed=st.none() | st.integers(1, 10), history=st.sampled_from([frozenset(), frozenset(range(11))])
)


@quick
@given(st.dictionaries(st.sampled_from("abc"), markers), st.frozensets(st.sampled_from("abc")))
def test_every_sink_beyond_is_rolled_back_or_accepted_or_the_whole_is_refused(
    sinks: dict[str, SinkMarker], accepted: frozenset[str]
) -> None:
    beyond = {name for name, marker in sinks.items() if (marker.committed or 0) > 5}
    policy = Policy(accept_duplicates=accepted)
    if any(not sinks[name].history and name not in accepted for name in beyond):
        with pytest.raises(Refused):
            choose(Target(), [_good(5)], pipeline="orders", now=NOW, sinks=sinks, policy=policy)
        return
    price = choose(Target(), [_good(5)], pipeline="orders", now=NOW, sinks=sinks, policy=policy).price
    assert {*price.rolled_back, *price.duplicated} == beyond
    assert not set(price.rolled_back) & set(price.duplicated)
    assert all(sinks[name].history for name in price.rolled_back)


# a tip that did not help


def _attempt(number: int, rung: Rung) -> Attempt:
    return Attempt(
        pipeline="orders",
        number=number,
        status=AttemptStatus.FAILED,
        rung=rung,
        parent=number - 1,
        fork_at=None,
        restored_from=None,
        application_id=None,
        host=None,
        numbered_at=NOON,
        planned_at=NOON,
        claimed_at=NOON,
        heartbeat_at=NOON,
        ended_at=NOON,
        failure="it failed",
    )


def test_a_tip_that_died_before_it_completed_anything_is_spent() -> None:
    earlier = [_checkpoint(1, attempt=1), _checkpoint(2, attempt=2)]
    assert is_tip_spent(_attempt(3, Rung.TIP), [])
    assert is_tip_spent(_attempt(3, Rung.TIP), earlier)


def test_a_tip_that_completed_something_may_be_continued_again() -> None:
    assert not is_tip_spent(_attempt(3, Rung.TIP), [_checkpoint(1, attempt=1), _checkpoint(2, attempt=3)])


@pytest.mark.parametrize("rung", [Rung.FRESH, Rung.CHECKPOINT])
def test_an_attempt_that_did_not_begin_at_a_tip_leaves_a_tip_to_try(rung: Rung) -> None:
    assert not is_tip_spent(_attempt(3, rung), [])
