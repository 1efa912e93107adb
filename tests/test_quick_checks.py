"""The test runner checks shapes and types: those of arguments, those of results, and one against the other."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator

import pytest
import torch
from beartype import beartype
from jaxtyping import Float, TypeCheckError
from torch import Tensor

import quatcaps
import quick_checks
from quatcaps import quaternion
from quatcaps.errors import QuatcapsError
from quatcaps.routing import Window


def checked(function: Callable) -> Callable:
    return quick_checks.quickly(function, typechecker=beartype)


@checked
def as_given(values: Float[Tensor, "a b"], result: object) -> Float[Tensor, "b a"]:
    return result  # type: ignore[return-value]


@checked
def through(values: Float[Tensor, "a b"], inner: Callable[[], object]) -> Float[Tensor, "a b"]:
    inner()
    return values


def test_arguments_are_checked() -> None:
    with pytest.raises(TypeCheckError):
        quaternion.product("i", torch.rand(4))  # type: ignore[arg-type]
    with pytest.raises(TypeCheckError):
        as_given(torch.rand(3), torch.rand(3))
    with pytest.raises(TypeCheckError):
        Window("3", 3)  # type: ignore[arg-type]


def test_results_are_checked_against_the_sizes_of_arguments() -> None:
    assert as_given(torch.rand(2, 3), torch.rand(3, 2)).shape == (3, 2)
    for wrong in (torch.rand(2, 3), torch.rand(3), None):
        with pytest.raises(TypeCheckError):
            as_given(torch.rand(2, 3), wrong)


def test_sizes_are_those_of_one_call() -> None:
    def inner() -> None:
        assert as_given(torch.rand(5, 3), torch.rand(3, 5)).shape == (3, 5)
        with pytest.raises(TypeCheckError):
            as_given(torch.rand(5, 3), torch.rand(5, 3))

    assert through(torch.rand(7, 2), inner).shape == (7, 2)


def test_what_a_function_raises_goes_through() -> None:
    with pytest.raises(QuatcapsError, match="stride"):
        Window(3, 3, 0)
    assert as_given(torch.rand(2, 3), torch.rand(3, 2)).shape == (3, 2)


@pytest.mark.usefixtures("unchecked")
def test_nothing_is_checked_where_a_test_asks_for_that() -> None:
    assert as_given(torch.rand(2, 3), None) is None


def test_generators_are_left_to_jaxtyping() -> None:
    @checked
    def numbers(first: int) -> Iterator[int]:
        yield first

    assert list(numbers(3)) == [3]
    with pytest.raises(Exception, match="Type-check error"):
        numbers("3")


def test_a_first_call_is_traced_whole() -> None:
    """Checks cannot be made while PyTorch traces; later calls have them."""

    @checked
    def doubled(values: Float[Tensor, " a"]) -> Float[Tensor, " a"]:
        return 2 * values

    compiled = torch.compile(doubled, fullgraph=True, backend="eager")
    assert compiled(torch.ones(3)).tolist() == [2.0] * 3
    with pytest.raises(TypeCheckError):
        doubled(torch.ones(3, 3))


def test_every_function_has_checks() -> None:
    """They are made on a function's first call; an annotation that none can be made of is found here."""
    for module in pkgutil.walk_packages(quatcaps.__path__, "quatcaps."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    assert len(quick_checks.prepared) > 1500
    for prepare in quick_checks.prepared:
        prepare()
