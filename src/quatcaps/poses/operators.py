"""Maps from angles and axes as operators: what those of the fast backends have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from quatcaps.operators import operator


def rotor_operator(
    name: str,
    forward: Callable[..., Tensor],
    backward: Callable[..., tuple[Tensor, Tensor]],
    empty: Callable[..., Tensor],
) -> Any:
    """(angle, axis, right) → matrices, or rotors that multiply from the right; `empty` gives their shape and layout."""
    back = operator(
        f"{name}_backward",
        "(Tensor grad, Tensor angle, Tensor axis, bool right) -> (Tensor, Tensor)",
        backward,
        empty_backward,
    )

    def save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *rotor, ctx.right = inputs
        ctx.save_for_backward(*rotor)

    def differentiate(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return *back(grad, *ctx.saved_tensors, ctx.right), None

    schema = "(Tensor angle, Tensor axis, bool right) -> Tensor"
    return operator(name, schema, forward, empty, save=save, differentiate=differentiate)


def empty_backward(grad: Tensor, angle: Tensor, axis: Tensor, right: bool) -> tuple[Tensor, Tensor]:
    return angle.new_empty(angle.shape), axis.new_empty(axis.shape)
