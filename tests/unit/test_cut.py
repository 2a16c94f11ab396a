"""The consistent cut: the order of capture, the rule for upstreams, and a model of running queries that proves both."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from airflow_provider_ckpt.protocol.codec import Json
from airflow_provider_ckpt.protocol.cut import (
    Graph,
    InFlight,
    Query,
    find_inconsistency,
    graph_from_json,
    in_flight,
    upstream_cut,
)
from airflow_provider_ckpt.protocol.errors import Corrupt, Misused
from airflow_provider_ckpt.protocol.records import Consumed, Cut

quick = settings(max_examples=40, deadline=None)
no_shrinking = settings(max_examples=2000, database=None, phases=[Phase.generate])


def _query(name: str, *, reads: str = "", writes: str = "") -> Query:
    return Query(name=name, reads=frozenset(reads.split()), writes=frozenset(writes.split()))


def _cut(query: str, batch: int | None, **consumed: int) -> Cut:
    """A cut whose keywords say how far it had consumed which writer."""
    through = tuple(Consumed(channel=f"of-{writer}", writer=writer, batch=n) for writer, n in consumed.items())
    return Cut(query=query, batch=batch, consumed=through)


def _cuts(*cuts: Cut) -> dict[str, Cut]:
    return {cut.query: cut for cut in cuts}


@st.composite
def _acyclic(draw: st.DrawFn) -> tuple[Query, ...]:
    """Queries in any order: each channel is written by some that lie before all its readers in a hidden order."""
    names = [f"q{n}" for n in range(draw(st.integers(1, 6)))]
    reads: dict[str, set[str]] = {name: set() for name in names}
    writes: dict[str, set[str]] = {name: set() for name in names}
    for number in range(draw(st.integers(0, 6))):
        border = draw(st.integers(0, len(names)))
        for name in draw(st.sets(st.sampled_from(names))):
            (writes if names.index(name) < border else reads)[name].add(f"c{number}")
    queries = [Query(name=name, reads=frozenset(reads[name]), writes=frozenset(writes[name])) for name in names]
    return tuple(draw(st.permutations(queries)))


CHAIN = Graph((_query("a", writes="ab"), _query("b", reads="ab", writes="bc"), _query("c", reads="bc")))
DIAMOND = Graph(
    (
        _query("source", writes="raw"),
        _query("left", reads="raw", writes="l"),
        _query("right", reads="raw", writes="r"),
        _query("join", reads="l r"),
    )
)


# the order of capture


@quick
@given(_acyclic())
def test_every_reader_is_captured_before_all_of_its_writers(queries: tuple[Query, ...]) -> None:
    order = Graph(queries).capture_order()
    assert sorted(order) == sorted(query.name for query in queries)
    for writer in queries:
        for reader in queries:
            if writer.writes & reader.reads:
                assert order.index(reader.name) < order.index(writer.name)


@quick
@given(_acyclic())
def test_when_it_is_a_querys_turn_none_of_its_readers_is_missing(queries: tuple[Query, ...]) -> None:
    graph = Graph(queries)
    captured: list[str] = []
    for name in graph.capture_order():
        assert graph.missing_readers(name, captured) == frozenset()
        captured.append(name)


@quick
@given(_acyclic())
def test_a_graph_reads_back_the_same(queries: tuple[Query, ...]) -> None:
    graph = Graph(queries)
    assert graph_from_json(graph.to_json()) == graph


def test_a_graph_is_written_in_one_way_only() -> None:
    graph = Graph((_query("z", reads="k j i h g"), _query("a", writes="g h i j k")))
    channels = ["g", "h", "i", "j", "k"]
    assert graph.to_json() == [
        {"name": "z", "reads": channels, "writes": []},
        {"name": "a", "reads": [], "writes": channels},
    ]


def test_a_chain_is_captured_from_its_end() -> None:
    assert CHAIN.capture_order() == ("c", "b", "a")
    assert Graph(()).capture_order() == ()


def test_missing_readers_are_those_whose_cuts_are_not_taken_yet() -> None:
    assert DIAMOND.missing_readers("source", []) == {"left", "right"}
    assert DIAMOND.missing_readers("source", ["join", "left"]) == {"right"}
    assert DIAMOND.missing_readers("source", ["left", "right"]) == frozenset()
    assert DIAMOND.missing_readers("join", []) == frozenset()


def test_a_query_that_nobody_started_is_misused_and_the_known_are_named() -> None:
    with pytest.raises(Misused, match="has no query 'x'; it has: a, b, c"):
        CHAIN.missing_readers("x", [])
    with pytest.raises(Misused, match="it has: none"):
        Graph(()).query("x")


@quick
@given(st.integers(1, 5), st.integers(0, 3), st.randoms(use_true_random=False))
def test_a_cycle_is_refused_and_its_ring_is_named_in_the_direction_of_the_data(
    size: int, others: int, random: Random
) -> None:
    ring = [_query(f"r{n}", reads=f"c{(n - 1) % size}", writes=f"c{n}") for n in range(size)]
    queries = ring + [_query(f"beside{n}", reads="c0", writes=f"d{n}") for n in range(others)]
    random.shuffle(queries)
    with pytest.raises(Misused, match="Break the cycle, or run the queries as separate pipelines") as refused:
        Graph(tuple(queries))
    named = re.findall(r"r\d", str(refused.value).partition("(")[2].partition(")")[0])
    assert named[0] == named[-1]
    assert sorted(named[1:]) == sorted(query.name for query in ring)
    by_name = {query.name: query for query in ring}
    assert all(by_name[one].writes & by_name[next_].reads for one, next_ in pairwise(named))


def test_two_queries_of_one_name_are_refused() -> None:
    with pytest.raises(Misused, match="need distinct names; got a, a, b"):
        Graph((_query("a"), _query("b"), _query("a")))


@pytest.mark.parametrize("document", [None, {}, "ab", [1], [{"name": "a", "reads": []}], [{"name": 1}]])
def test_a_damaged_graph_is_corrupt(document: Json) -> None:
    with pytest.raises(Corrupt, match="graph"):
        graph_from_json(document)


# the rule for upstreams


@pytest.mark.parametrize(
    ("planned", "commits", "cut"),
    [
        (None, [], None),
        (None, [0, 1], None),
        (0, [], None),
        (7, [4, 5, 6], None),
        (7, [5, 6, 7], 7),
        (7, [6, 7, 8, 9], 7),
        (7, [9, 8], 8),
        (0, [0], 0),
    ],
)
def test_the_cut_of_an_upstream_is_the_first_commit_from_the_planned_batch_on(
    planned: int | None, commits: list[int], cut: int | None
) -> None:
    assert upstream_cut(planned, commits) == cut


@quick
@given(st.integers(0, 9), st.lists(st.integers(0, 9), unique=True))
def test_no_commit_lies_between_the_planned_batch_and_the_cut(planned: int, commits: list[int]) -> None:
    cut = upstream_cut(planned, commits)
    if cut is None:
        assert all(batch < planned for batch in commits)
    else:
        assert cut in commits
        assert not [batch for batch in commits if planned <= batch < cut]


# what lies between


def test_what_was_written_and_not_read_is_in_flight() -> None:
    cuts = _cuts(_cut("a", 9), _cut("b", 4, a=7), _cut("c", 2, b=4))
    assert in_flight(cuts) == (InFlight(channel="of-a", writer="a", reader="b", after=7, upto=9),)


def test_each_reader_of_a_channel_has_its_own_range() -> None:
    ranges = in_flight(_cuts(_cut("a", 9), _cut("y", 1, a=8), _cut("x", 1, a=3)))
    assert [(each.reader, each.after, each.upto) for each in ranges] == [("x", 3, 9), ("y", 8, 9)]


def test_nothing_is_in_flight_from_a_writer_without_a_commit_or_without_a_cut() -> None:
    assert in_flight(_cuts(_cut("a", None), _cut("b", None))) == ()
    assert in_flight(_cuts(_cut("b", 3, a=0))) == ()


def test_a_reader_ahead_of_its_upstream_is_found_and_named() -> None:
    cuts = _cuts(_cut("a", 6), _cut("b", 4, a=7))
    assert find_inconsistency(cuts) == (
        "b had consumed batch 7 of a through of-a, but the cut of a is 6"  # what a restore would see twice
    )
    assert find_inconsistency(_cuts(_cut("a", None), _cut("b", 0, a=0))) is not None
    assert find_inconsistency(_cuts(_cut("b", 0, a=0))) is not None


def test_of_several_readers_ahead_the_first_by_name_is_told() -> None:
    ahead = _cuts(_cut("a", 1), _cut("z", 0, a=3), _cut("b", 0, a=2))
    assert (find_inconsistency(ahead) or "").startswith("b had consumed batch 2 of a")


def test_a_reader_level_with_its_upstream_or_behind_it_is_consistent() -> None:
    assert find_inconsistency(_cuts(_cut("a", 7), _cut("b", 4, a=7), _cut("c", None))) is None
    assert find_inconsistency({}) is None


@quick
@given(st.integers(0, 5) | st.none(), st.lists(st.integers(0, 5), max_size=4))
def test_a_cut_is_inconsistent_exactly_when_some_reader_is_ahead(batch: int | None, read: list[int]) -> None:
    cuts = _cuts(_cut("a", batch), *(_cut(f"r{n}", 0, a=upto) for n, upto in enumerate(read)))
    written = -1 if batch is None else batch
    assert (find_inconsistency(cuts) is None) == all(upto <= written for upto in read)
    assert len(in_flight(cuts)) == sum(upto < written for upto in read)


# a model of a → b → c, each a micro-batch query that publishes a batch some time between planning and committing it


@dataclass
class Running:
    """One query: batch n had consumed its upstream up to `offsets[n]`."""

    name: str
    upstream: "Running | None" = None
    offsets: list[int] = field(default_factory=list)
    published: int = -1
    committed: int = -1

    @property
    def planned(self) -> int:
        return len(self.offsets) - 1

    def advance(self) -> None:
        """Plan a batch with what its upstream has published; publish it; commit it."""
        if self.committed == self.planned:
            self.offsets.append(self.upstream.published if self.upstream else 0)
        elif self.published < self.planned:
            self.published = self.planned
        else:
            self.committed = self.planned

    def cut_at(self, batch: int | None) -> Cut:
        read = -1 if batch is None or self.upstream is None else self.offsets[batch]
        return _cut(self.name, batch, **({self.upstream.name: read} if self.upstream and read >= 0 else {}))


Schedule = Sequence[str]  # whose turn it is, before each capture and while it waits


@dataclass
class World:
    queries: dict[str, Running]

    def live(self, turns: str) -> None:
        for name in turns:
            self.queries[name].advance()

    def newest(self, name: str) -> int | None:
        batch = self.queries[name].committed
        return None if batch < 0 else batch

    def by_the_rule(self, name: str, turns: str) -> int | None:
        """Note the planned batch, then wait for the first commit from it on, while everybody goes on working."""
        query = self.queries[name]
        planned = query.planned if query.offsets else None
        self.live(turns)
        while planned is not None and query.committed < planned:
            query.advance()
        return upstream_cut(planned, range(query.committed + 1))


def _world() -> World:
    a = Running("a")
    b = Running("b", upstream=a)
    return World({"a": a, "b": b, "c": Running("c", upstream=b)})


def _captured_by_the_rule(schedule: Schedule) -> dict[str, Cut]:
    world, cuts = _world(), {}
    for before, during, name in zip(schedule[::2], schedule[1::2], CHAIN.capture_order(), strict=True):
        world.live(before)
        has_readers = bool(CHAIN.readers_of(CHAIN.query(name)))
        batch = world.by_the_rule(name, during) if has_readers else world.newest(name)
        cuts[name] = world.queries[name].cut_at(batch)
    return cuts


def _captured_newest(schedule: Schedule, order: Sequence[str]) -> Mapping[str, Cut]:
    """The naive way: whatever is committed when it is a query's turn."""
    world, cuts = _world(), {}
    for before, name in zip(schedule[::2], order, strict=True):
        world.live(before)
        cuts[name] = world.queries[name].cut_at(world.newest(name))
    return cuts


schedules = st.lists(st.text("abc", max_size=15), min_size=6, max_size=6)
UPSTREAM_FIRST = CHAIN.capture_order()[::-1]


@settings(max_examples=150, deadline=None)
@given(schedules)
def test_a_cut_taken_downstream_first_by_the_rule_is_always_consistent(schedule: Schedule) -> None:
    cuts = _captured_by_the_rule(schedule)
    assert find_inconsistency(cuts) is None
    for cut in cuts.values():
        for consumed in cut.consumed:
            upto = cuts[consumed.writer].batch
            assert upto is not None
            ranges = [(each.after, each.upto) for each in in_flight(cuts) if each.reader == cut.query]
            assert ranges == ([(consumed.upto, upto)] if consumed.upto < upto else [])


def _is_torn(cuts: Mapping[str, Cut]) -> bool:
    return find_inconsistency(cuts) is not None


def _find(is_broken: Callable[[Schedule], bool]) -> Schedule:
    return find(schedules, is_broken, settings=no_shrinking, random=Random(1))


def test_a_cut_taken_upstream_first_can_be_torn() -> None:
    schedule = _find(lambda schedule: _is_torn(_captured_newest(schedule, UPSTREAM_FIRST)))
    assert not _is_torn(_captured_by_the_rule(schedule))


def test_downstream_first_is_not_enough_where_a_batch_is_published_before_it_is_committed() -> None:
    schedule = _find(lambda schedule: _is_torn(_captured_newest(schedule, CHAIN.capture_order())))
    assert not _is_torn(_captured_by_the_rule(schedule))


def test_the_shortest_torn_cut() -> None:
    cuts = _captured_newest(["", "", "aabbb", "", "", ""], UPSTREAM_FIRST)
    assert find_inconsistency(cuts) == "b had consumed batch 0 of a through of-a, but the cut of a is -1"
