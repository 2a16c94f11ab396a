"""What a command shows: a document for programs, lines and tables for people."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from airflow_provider_ckpt.cli.exit_codes import ExitCode
from airflow_provider_ckpt.cli.redaction import redact, redact_all
from airflow_provider_ckpt.cli.writing import one_line, write, write_json
from airflow_provider_ckpt.protocol.codec import Json

Cell = str | Text
Row = Sequence[Cell]
_WIDE = 240  # where no terminal sets the width, lines are for programs such as grep


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The outcome of a command, the same facts twice."""

    document: Json
    view: Sequence[RenderableType]
    code: ExitCode = ExitCode.DONE


def show_result(result: Result, *, as_json: bool) -> None:
    if as_json:
        write_json(redact_all(result.document))
    else:
        write(_rendered(Group(*result.view)))


def line(text: str, style: str = "") -> Text:
    """A sentence, whatever is in it."""
    return Text(one_line(redact(text)), style=style)


def heading(text: str) -> Group:
    return Group(Text(""), line(text, "bold"))


def table(columns: Sequence[str], rows: Iterable[Row]) -> Table:
    """A table without lines; a column named `>…` is aligned to the right, one named `=…` is never broken."""
    grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in columns:
        mark, title = (name[:1], name[1:]) if name[:1] in (">", "=") else ("", name)
        grid.add_column(title, justify="right" if mark == ">" else "left", no_wrap=bool(mark), overflow="fold")
    for row in rows:
        grid.add_row(*(cell if isinstance(cell, Text) else line(cell) for cell in row))
    return grid


def facts(pairs: Iterable[tuple[str, Cell | None]]) -> Table:
    """Names and values, one pair a line; what is None or empty is left out."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, style="bold")
    grid.add_column(overflow="fold")
    for name, value in pairs:
        if value:
            grid.add_row(name, value if isinstance(value, Text) else line(value))
    return grid


def section(title: str, columns: Sequence[str], rows: Sequence[Row]) -> list[RenderableType]:
    """A table under its heading; nothing where there are no rows."""
    return [heading(title), table(columns, rows)] if rows else []


def _rendered(view: RenderableType) -> str:
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDE)
    with console.capture() as captured:
        console.print(view)
    return "".join(f"{text.rstrip()}\n" for text in captured.get().splitlines())
