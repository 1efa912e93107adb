"""Types and shapes are checked while tests run, in the package as it is imported here."""

from __future__ import annotations

from dataclasses import dataclass

import beartype
import jaxtyping
import pytest
import torch
from jaxtyping import Float, TypeCheckError
from torch import Tensor

from quatcaps.data.imageset import ImageSet
from quatcaps.data.splits import Experiment
from quatcaps.errors import unknown_name
from quatcaps.losses import own_part, spread_loss


def decorated(function: object) -> object:
    return jaxtyping.jaxtyped(typechecker=beartype.beartype)(function)


def test_functions_of_the_package_are_checked(noise_images: ImageSet) -> None:
    with pytest.raises(TypeCheckError, match=r"checking the parameters of quatcaps.errors.unknown_name"):
        unknown_name("model", 3, ["qcn"])
    with pytest.raises(TypeCheckError, match=r"quatcaps.losses.own_part"):
        own_part(torch.ones(2, 3), torch.ones(2, 4))
    with pytest.raises(TypeCheckError, match=r"quatcaps.losses.spread_loss"):
        spread_loss(torch.rand(3, 5), torch.zeros(2, dtype=torch.int64), 0.5)  # as many images as labels
    with pytest.raises(TypeCheckError, match=r"Experiment.__init__"):
        Experiment(noise_images, "test")


def test_sizes_are_remembered_from_the_parameters_to_the_result() -> None:
    @decorated
    def rows(values: Float[Tensor, "n m"], wrong: bool) -> Float[Tensor, " n"]:
        return values.sum(0 if wrong else 1)

    assert rows(torch.ones(2, 3), False).shape == (2,)
    with pytest.raises(TypeCheckError, match=r"checking the return value of .*rows"):
        rows(torch.ones(2, 3), True)
    assert rows(torch.ones(3, 3), True).shape == (3,), "forgotten after each call"
    with pytest.raises(TypeCheckError, match=r"checking the parameters of .*rows"):
        rows(torch.ones(2), False)


def test_results_and_descriptors_are_checked() -> None:
    class Example:
        @property
        @decorated
        def name(self) -> str:
            return 3  # type: ignore[return-value]

        @decorated
        @classmethod
        def make(cls, count: int) -> int:
            return count

        @decorated
        @staticmethod
        def count(*values: int, **named: str) -> int | str:
            return [*values, *named.values()][-1]

    with pytest.raises(TypeCheckError, match=r"return value of .*Example.name"):
        _ = Example().name
    assert Example.make(3) == 3
    with pytest.raises(TypeCheckError, match="parameters of"):
        Example.make("3")
    assert Example.count(1, 2, named="x") == "x"
    with pytest.raises(TypeCheckError, match="parameters of"):
        Example.count(1, 2, named=3)
    with pytest.raises(TypeError, match="missing a required argument"):
        Example.make()


def test_dataclasses_with_the_same_fields_are_told_apart() -> None:
    @decorated
    @dataclass
    class Number:
        value: int

    @decorated
    @dataclass
    class Word:
        value: str

    assert Number(3).value == 3
    assert Word("three").value == "three"
    for wrong in (lambda: Number("three"), lambda: Word(3)):
        with pytest.raises(TypeCheckError, match="parameters of"):
            wrong()


def test_an_error_of_a_function_is_its_own() -> None:
    @decorated
    def failing(value: int) -> int:
        raise ValueError(f"{value} is wrong")

    with pytest.raises(ValueError, match="3 is wrong") as caught:
        failing(3)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
