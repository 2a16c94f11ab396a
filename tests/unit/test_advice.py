"""Every command that a message prints can be typed: the command line takes it as it stands there."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_ckpt.cli.parser import build_parser

PACKAGE = Path(__file__).parents[2] / "airflow_provider_ckpt"
_COMMAND = re.compile(r"`ckpt ([a-z][^`]*)`")
_VALUES = {"pipeline": "orders", "ref": "orders/7", "sink": "totals/sink", "name": "orders", "kind": "cleanup"}


def _value_of(expression: str) -> str:
    """What may stand there: by the last word of the expression."""
    words = re.findall(r"[a-z]+", expression.lower())
    return next((_VALUES[word] for word in reversed(words) if word in _VALUES), "7")


def _text_of(node: ast.AST) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(map(_text_of, parts))
        case ast.FormattedValue(value=value):
            return _value_of(ast.unparse(value))
    return ""


def _advice() -> Iterator[tuple[str, str]]:
    for file in sorted(PACKAGE.rglob("*.py")):
        if "testing" in file.parts:
            continue
        tree = ast.parse(file.read_text())
        inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        inside |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr | ast.Constant) and id(node) not in inside:
                for command in _COMMAND.findall(_text_of(node)):
                    yield str(file.relative_to(PACKAGE)), command


ADVICE = sorted(set(_advice()))


def test_messages_print_commands() -> None:
    assert len(ADVICE) > 30


@pytest.mark.parametrize(("file", "command"), ADVICE)
def test_a_printed_command_can_be_typed(file: str, command: str) -> None:
    """One word alone only names the command."""
    words = command.replace("--set …", "--set interval=5m").replace("=…", "=5m").replace("…", "x").split()
    if len(words) == 1:
        words.append("--help")
    assert _is_taken([word.partition("|")[0] for word in words]), f"{file} prints `ckpt {command}`"


def _is_taken(words: list[str]) -> bool:
    try:
        build_parser().parse_args(words)
    except SystemExit as end:
        return not end.code  # help
    return True
