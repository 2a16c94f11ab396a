"""The tree of errors that is drawn is the tree that there is."""

import inspect
import re

import pytest

from airflow_provider_ckpt.protocol import errors
from airflow_provider_ckpt.protocol.errors import CkptError

NODE = re.compile(r"    (?P<branches>(?:│   |    )*)(?:[├└]── )?(?P<name>[A-Z][A-Za-z]+)(?:  +(?P<meaning>\S.*))?")

CLASSES = [value for value in vars(errors).values() if inspect.isclass(value)]


def _drawn() -> dict[str, str | None]:
    """Each name in the docstring's tree and the name that it hangs on."""
    parents: dict[str, str | None] = {}
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if match := NODE.fullmatch(line):
            depth = len(match["branches"]) // 4 + ("──" in line)
            del above[depth:]
            parents[match["name"]] = above[-1] if above else None
            above.append(match["name"])
    return parents


def test_the_tree_in_the_docstring_is_the_tree_of_classes() -> None:
    real = {each.__name__: each.__base__.__name__ if each.__base__ else None for each in CLASSES}
    assert _drawn() == real | {"CkptError": None}


def test_the_tree_is_drawn_in_the_order_of_the_file() -> None:
    assert list(_drawn()) == [each.__name__ for each in CLASSES]


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_has_one_root_and_a_sentence(kind: type[CkptError]) -> None:
    assert issubclass(kind, CkptError)
    assert (inspect.getdoc(kind) or "").endswith(".")


def test_nothing_under_the_root_is_an_error_of_python_that_somebody_might_catch_by_chance() -> None:
    assert CkptError.__bases__ == (Exception,)
    assert all(len(each.__bases__) == 1 for each in CLASSES)
