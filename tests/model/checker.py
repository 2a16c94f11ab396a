"""A model checker for the shipped code: every interleaving of a few actors, one store or storage call at a time.

An actor is an ordinary function that uses the shipped coordinator, metastore and storage. Its every call is one atomic
step. To take one step from a known state the actor is run again from its beginning: the calls it made before are
answered from the record, the next one is really executed on the real SQLite database and the storage as they were in
that state, and the one after that suspends it. The state of the world is the database's bytes, the storage's files and
the clock; the state of an actor is what it has been answered so far. States that were seen before are not explored
again, so the search ends when there is nothing new. What a step does follows from the actor's own state and the
world's: it is executed once for the two, however far the other actors have come, and remembered. Nothing is left out.

A crash is an actor that is never scheduled again. It needs no extra step for safety, because every prefix of every
interleaving is a state that is checked; that others can go on from there is checked by `recover` in every state of the
world.
"""

import hashlib
import io
import random
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, NoReturn, TypeVar, cast

import sqlalchemy as sa

from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.metastore import Metastore, open_metastore
from airflow_provider_ckpt.metastore.migrating import upgrade
from airflow_provider_ckpt.metastore.schema import events, evidence, metadata
from airflow_provider_ckpt.protocol.errors import CkptError
from airflow_provider_ckpt.storage.base import Storage
from airflow_provider_ckpt.storage.memory import MemoryStorage
from airflow_provider_ckpt.testing import ManualClock

Row = tuple[object, ...]
Same = TypeVar("Same", "Progress", "Snapshot")


class Suspended(BaseException):
    """The actor has taken its step; what comes next is another state."""


class Blocked(BaseException):
    """The actor waits for something that is not so yet."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call gave back, or raised."""

    call: str
    value: object = None
    error: Exception | None = None

    def give(self) -> object:
        if self.error is not None:
            raise self.error
        return self.value


@dataclass(frozen=True, slots=True, eq=False)
class Progress:
    """How far an actor has come. The search keeps one object of each, so being the same is being equal."""

    answers: tuple[Answer, ...] = ()
    digest: bytes = b""
    is_done: bool = False

    def plus(self, answer: Answer) -> "Progress":
        text = f"{answer.call}{answer.value!r}{type(answer.error).__name__}{answer.error}".encode()
        return Progress((*self.answers, answer), hashlib.sha1(self.digest + text).digest())

    def done(self) -> "Progress":
        return Progress((), b"done", is_done=True)


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """The world at one moment. The search keeps one object of each, so being the same is being equal."""

    tables: Mapping[str, tuple[Row, ...]]
    files: Mapping[str, bytes]
    now: datetime
    digest: bytes

    def rows(self, table: sa.Table) -> list[Mapping[str, object]]:
        names = [column.name for column in table.columns]
        return [dict(zip(names, row, strict=True)) for row in self.tables[table.name]]


class State(NamedTuple):
    world: Snapshot
    actors: tuple[Progress, ...]


class Move(NamedTuple):
    """What one step of an actor made of it and of the world."""

    progress: Progress
    world: Snapshot
    step: str


_LOOKS = frozenset({"views.inventory", "pins.of"})  # of cleanups and restores
_FIXED = frozenset({"barriers.cuts"})  # of a completed checkpoint: nobody's step changes them


class World:
    """A real SQLite store in memory, a storage in memory and a clock, which can be put back to a snapshot."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = open_metastore("sqlite://", self.clock)
        upgrade(self.store.engine)
        self.storage = MemoryStorage()
        self._raw = cast("sqlite3.Connection", self.store.engine.sa.raw_connection().driver_connection)
        self._raw.execute("PRAGMA foreign_keys = OFF")  # tables are put back one by one
        histories = {events.name, evidence.name}  # written and never read by what is checked
        self._tables = [table.name for table in metadata.sorted_tables if table.name not in histories]

    def context(self, actor: str) -> Context:
        return Context(
            store=self.store, storage=self.storage, actor=actor, workers=1, new_token=_tokens(actor), sleep=self.sleep
        )

    def sleep(self, seconds: float) -> None:
        self.clock.advance(seconds=seconds)

    def snapshot(self) -> Snapshot:
        files = dict(self.storage.snapshot())
        tables = {table: self._rows(table) for table in self._tables}
        content = repr((tables, sorted(files.items()), self.clock.now))
        return Snapshot(tables, files, self.clock.now, hashlib.sha1(content.encode()).digest())

    def reset(self, snapshot: Snapshot) -> None:
        for table, rows in snapshot.tables.items():
            if self._rows(table) != rows:
                self._put_back(table, rows)
        self.storage.reset(snapshot.files)
        self.clock.now = snapshot.now

    def _rows(self, table: str) -> tuple[Row, ...]:
        return tuple(self._raw.execute(f"SELECT * FROM {table} ORDER BY 1, 2, 3").fetchall())

    def _put_back(self, table: str, rows: tuple[Row, ...]) -> None:
        self._raw.execute(f"DELETE FROM {table}")
        if rows:
            marks = ", ".join("?" * len(rows[0]))
            self._raw.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)


Program = Callable[["Actor"], None]


class Actor:
    """What a program acts through: recorded answers first, then one real step."""

    def __init__(self, world: World, name: str, progress: Progress, quiet: frozenset[str] = frozenset()) -> None:
        self._world = world
        self._progress = progress
        self._quiet = quiet
        self._next = 0
        self._has_stepped = False
        nouns = {name: _Stepped(noun, name, self) for name, noun in vars(world.store).items() if name != "engine"}
        self.store = cast("Metastore", _Nouns(nouns))
        self.storage = cast("Storage", _Stepped(world.storage, "storage", self))
        self.context = Context(
            store=self.store,
            storage=self.storage,
            actor=name,
            workers=1,
            new_token=_tokens(name),
            sleep=self._sleep,
        )

    def wait_until(self, condition: Callable[[World], bool]) -> None:
        """Go on only when the world is so; waiting costs no step."""

        def look() -> None:
            if not condition(self._world):
                raise Blocked

        self.do("wait", look)

    def advance_clock(self, **duration: float) -> None:
        self.do("clock", lambda: self._world.clock.advance(**duration))

    def _sleep(self, seconds: float) -> None:
        self.do("sleep", lambda: self._world.sleep(seconds))

    def do(self, call: str, work: Callable[[], object]) -> object:
        if self._next < len(self._progress.answers):
            self._next += 1
            return self._progress.answers[self._next - 1].give()
        if not self._is_quiet(call):
            if self._has_stepped:
                raise Suspended
            self._has_stepped = True
        answer = _execute(call, work)
        self._progress = self._progress.plus(answer)
        self._next += 1
        return answer.give()

    def _is_quiet(self, call: str) -> bool:
        """Before it has its lease, whoever looks around can only give up: what it saw counts for nothing later."""
        has_lease = any(answer.call.startswith("leases.acquire") for answer in self._progress.answers)
        return call in self._quiet or call in _FIXED or (call in _LOOKS and not has_lease)

    @property
    def progress(self) -> Progress:
        return self._progress


def _execute(call: str, work: Callable[[], object]) -> Answer:
    try:
        return Answer(call, work())
    except CkptError as error:
        return Answer(call, error=error)


class _Nouns:
    def __init__(self, nouns: dict[str, "_Stepped"]) -> None:
        self.__dict__.update(nouns)


def _same(value: Any) -> Any:
    return value


# what is read after the call has returned is recorded as a value, and given anew each time
_LAZY: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "list": (list, iter),
    "partials": (list, iter),
    "open": (lambda stream: stream.read(), io.BytesIO),
}


class _Stepped:
    def __init__(self, target: object, name: str, actor: Actor) -> None:
        self._target = target
        self._name = name
        self._actor = actor

    def __getattr__(self, name: str) -> Callable[..., object]:
        method = getattr(self._target, name)

        def call(*args: object, **kwargs: object) -> object:
            freeze, thaw = _LAZY.get(name, (_same, _same))
            return thaw(self._actor.do(f"{self._name}.{name}", lambda: freeze(method(*args, **kwargs))))

        return call


class Violation(AssertionError):
    """An interleaving that breaks an invariant, with the way to it."""


@dataclass(kw_only=True)
class Search:
    """All interleavings of the programs, depth first; or a part of them, by chance.

    :param check: raises AssertionError when a step from one snapshot to the next broke an invariant.
    :param quiet: calls that are no steps of their own because nobody's step can change their answer: what reads files
        that exist, where nobody deletes. An order that only they differ in is the same order.
    :param recover: called in every distinct state of the world, with all actors dead; raises AssertionError when what
        is left can not be put right by others.
    :param is_recovered: of the n-th state of the world, whether `recover` is called there.
    :param chance: go on from any state that was found, not from the newest.
    :param most_moves: end when so many different moves were made; None: when there is nothing new.
    """

    programs: Mapping[str, Program]
    prepare: Callable[[World], None]
    check: Callable[[World, Snapshot, Snapshot], None]
    recover: Callable[[World], None] | None = None
    quiet: frozenset[str] = frozenset()
    is_recovered: Callable[[int], bool] = lambda _: True
    chance: random.Random | None = None
    most_moves: int | None = None
    states: int = 0
    steps: int = 0
    recoveries: int = 0
    worlds: set[Snapshot] = field(default_factory=set)
    _known: dict[tuple[type, bytes], Any] = field(default_factory=dict)
    _came_from: dict[State, State | None] = field(default_factory=dict)
    _moves: dict[tuple[Progress, Snapshot], Move | None] = field(default_factory=dict)
    _judged: set[tuple[Snapshot, Snapshot]] = field(default_factory=set)
    _world: World = field(default_factory=World)

    def run(self) -> "Search":
        try:
            self._explore()
        finally:
            self._world.store.close()
        return self

    def _explore(self) -> None:
        self.prepare(self._world)
        actors = tuple(self._one_of(Progress(digest=name.encode())) for name in self.programs)
        first = State(self._one_of(self._world.snapshot()), actors)
        self._came_from[first] = None
        stack = [first]
        while stack and not self.is_cut_short:
            state = self._take_from(stack)
            self.states += 1
            self._recover(state)
            for following in self._following(state):
                if following not in self._came_from:
                    self._came_from[following] = state
                    stack.append(following)

    @property
    def is_cut_short(self) -> bool:
        return self.most_moves is not None and len(self._moves) >= self.most_moves

    def _take_from(self, stack: list[State]) -> State:
        if self.chance is not None:
            any_ = self.chance.randrange(len(stack))
            stack[any_], stack[-1] = stack[-1], stack[any_]
        return stack.pop()

    def _following(self, state: State) -> Iterator[State]:
        actors = state.actors
        for index, name in enumerate(self.programs):
            move = self._move(state, index, name)
            if move is not None:
                self.steps += 1
                yield State(move.world, (*actors[:index], move.progress, *actors[index + 1 :]))

    def _move(self, state: State, index: int, name: str) -> Move | None:
        """What an actor does next depends on what it was answered and on the world, not on how far others are."""
        key = (state.actors[index], state.world)
        if key not in self._moves:
            self._moves[key] = self._execute(state, index, name)
        return self._moves[key]

    def _execute(self, state: State, index: int, name: str) -> Move | None:
        before = state.actors[index]
        if before.is_done:
            return None
        self._world.reset(state.world)
        actor = Actor(self._world, name, before, self.quiet)
        progress = self._advance(actor, name)
        if progress is None:
            return None
        answers = actor.progress.answers
        call = answers[-1].call if len(answers) > len(before.answers) else "end"
        move = Move(self._one_of(progress), self._one_of(self._world.snapshot()), f"{name}: {call}")
        self._judge(state, move)
        return move

    def _one_of(self, found: Same) -> Same:
        """The object that stands for all that are equal to it."""
        same: Same = self._known.setdefault((type(found), found.digest), found)
        return same

    def _judge(self, state: State, move: Move) -> None:
        if (state.world, move.world) in self._judged:
            return
        self._judged.add((state.world, move.world))
        try:
            self.check(self._world, state.world, move.world)
        except (AssertionError, CkptError) as error:
            self._violated(state, move.step, error)

    def _advance(self, actor: Actor, name: str) -> Progress | None:
        try:
            self.programs[name](actor)
        except Suspended:
            return actor.progress
        except Blocked:
            return None
        except CkptError:
            return actor.progress.done()
        return actor.progress.done()

    def _recover(self, state: State) -> None:
        if self.recover is None or state.world in self.worlds:
            return
        self.worlds.add(state.world)
        if not self.is_recovered(len(self.worlds)):
            return
        self.recoveries += 1
        self._world.reset(state.world)
        try:
            self.recover(self._world)
        except (AssertionError, CkptError) as error:
            self._violated(state, "everybody dies, others recover", error)

    def _violated(self, state: State, step: str, error: Exception) -> NoReturn:
        steps = [*self._way_to(state), step]
        way = "\n".join(f"  {number:3} {step}" for number, step in enumerate(steps, 1))
        raise Violation(f"{type(error).__name__}: {error}\nafter\n{way}") from error

    def _way_to(self, state: State) -> list[str]:
        """The steps by which the search first came to a state; whoever has come further made the step."""
        steps = []
        while (before := self._came_from[state]) is not None:
            mover = next(old for old, new in zip(before.actors, state.actors, strict=True) if old is not new)
            move = self._moves[mover, before.world]
            steps.append(move.step if move else "")
            state = before
        return steps[::-1]


def _tokens(actor: str) -> Callable[[], str]:
    count = iter(range(1000))
    return lambda: f"{actor}-{next(count)}"
