"""Operators that PyTorch knows: they can be traced, compiled, captured and differentiated. One helper makes all."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

from quatcaps.accelerator import current
from quatcaps.errors import QuatcapsError

PLAIN = (Tensor, Parameter)


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

    What is returned calls it, or, where only numbers are wanted, `compute`: PyTorch takes about 0.1 ms on its way to
    an operator that is written in Python, and a network has 20. Its attribute `operator` is the operator itself.
    """
    computed = on_device(compute)
    made = torch.library.custom_op(f"quatcaps::{name}", computed, mutates_args=(), schema=schema)
    made.register_fake(fake)
    made.register_autograd(differentiate or functools.partial(no_derivative, name), setup_context=save)

    @functools.wraps(compute)
    def call(*arguments: Any) -> Any:
        return computed(*arguments) if only_numbers(arguments) else made(*arguments)

    call.operator = made  # type: ignore[attr-defined]
    return call


def only_numbers(arguments: Any) -> bool:
    """Whether nobody would see what PyTorch does beside computing: there are no gradients, nothing is traced,
    transformed or profiled, and the tensors are plain ones."""
    if torch.compiler.is_compiling() or torch.is_grad_enabled():
        return False
    if torch._C._get_tracing_state() or torch._C._autograd._profiler_enabled() or forward_ad._current_level >= 0:
        return False
    if torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack():
        return False
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    return all(type(each) in PLAIN and each.device.type != "meta" for each in tensors(arguments))


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
