"""Operators that PyTorch knows: they can be traced, compiled, captured and differentiated. One helper makes all."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from quatcaps.accelerator import current
from quatcaps.errors import QuatcapsError


def operator(
    name: str,
    schema: str,
    compute: Callable[..., Any],
    fake: Callable[..., Any],
    *,
    save: Callable[..., None] | None = None,
    differentiate: Callable[..., Any] | None = None,
) -> Any:
    """The operator `quatcaps::name`.

    `compute` is called with the device of the first tensor as the current one. `fake` gives results of the same shapes
    and layouts without numbers. `save(ctx, inputs, output)` and `differentiate(ctx, *grads)` are its derivative;
    without them, a backward through it raises.
    """
    made = torch.library.custom_op(f"quatcaps::{name}", on_device(compute), mutates_args=(), schema=schema)
    made.register_fake(fake)
    made.register_autograd(differentiate or functools.partial(no_derivative, name), setup_context=save)
    return made


def no_derivative(name: str, ctx: Any, *grads: Any) -> None:
    raise QuatcapsError(
        f"a gradient of gradients is not computed by quatcaps::{name}: fast backends have first derivatives alone; use "
        "backend='reference' (quatcaps.layers.use_backend(network, 'reference'))"
    )


def on_device(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Launches go to the current device, which need not be that of the tensors."""

    @functools.wraps(compute)
    def guarded(*arguments: Any) -> Any:
        with current(next(tensors(arguments)).device):
            return compute(*arguments)

    return guarded


def tensors(arguments: Any) -> Iterator[Tensor]:
    """All tensors among arguments, in lists too."""
    for argument in arguments:
        if isinstance(argument, Tensor):
            yield argument
        elif isinstance(argument, list | tuple):
            yield from tensors(argument)
