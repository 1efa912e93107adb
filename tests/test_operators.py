"""Operators of ours: called by way of PyTorch where that can be seen, and without it where only numbers are wanted."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from quatcaps.operators import only_numbers, operator

computed: list[str] = []


def compute(values: Tensor, others: list[Tensor]) -> Tensor:
    computed.append(values.device.type)
    return sum(others, start=2 * values)


def differentiate(ctx: Any, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
    return 2 * grad, [grad] * ctx.others


def save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.others = len(inputs[1])


double = operator(
    "test_double",
    "(Tensor values, Tensor[] others) -> Tensor",
    compute,
    lambda values, others: torch.empty_like(values),
    save=save,
    differentiate=differentiate,
)


class Seen(TorchDispatchMode):
    """Names of the operators that PyTorch was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


class Called(TorchFunctionMode):
    """The same one floor above."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


def test_numbers_alone_take_the_short_way() -> None:
    values = torch.arange(3.0)
    with torch.no_grad():
        assert only_numbers((values, [torch.nn.Parameter(values), 3]))
        assert double(values, [values]).tolist() == [0, 3, 6]
    with torch.inference_mode():
        assert double(values, []).tolist() == [0, 2, 4]
    assert not only_numbers((values,)), "gradients may be recorded"


def test_gradients_are_those_of_the_operator() -> None:
    values, other = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    double(values, [other]).sum().backward()
    assert values.grad is not None
    assert other.grad is not None
    assert (values.grad.tolist(), other.grad.tolist()) == ([2] * 3, [1] * 3)


def test_who_watches_sees_the_operator() -> None:
    values = torch.ones(3)
    with torch.no_grad(), Seen() as seen:
        double(values, [])
    assert "quatcaps.test_double.default" in seen.names
    with torch.no_grad(), Called() as called:
        double(values, [])
    assert any("test_double" in name for name in called.names)
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU]) as watched:
        double(values, [])
    assert "quatcaps::test_double" in {event.key for event in watched.key_averages()}


def test_what_has_no_numbers_is_not_computed() -> None:
    computed.clear()
    with torch.no_grad():
        assert double(torch.ones(3, device="meta"), []).shape == (3,)
        with torch._subclasses.FakeTensorMode():
            assert double(torch.ones(3), []).shape == (3,)
    assert computed == []


@torch.no_grad()
def test_transforms_are_left_to_pytorch() -> None:
    assert (
        torch.func.vmap(lambda values: torch.tensor(only_numbers((values,))))(torch.ones(2, 3)).tolist() == [False] * 2
    )
    with forward_ad.dual_level():
        assert not only_numbers((torch.ones(3),))
    assert only_numbers((torch.ones(3),))


@pytest.mark.parametrize("backward", [False, True])
def test_compiled_code_has_the_operator(backward: bool) -> None:
    found: list[str] = []

    def keep(module: torch.fx.GraphModule, inputs: Any) -> Any:
        found.extend(str(node.target) for node in module.graph.nodes)
        return module.forward

    values = torch.ones(3, requires_grad=backward)
    with torch.set_grad_enabled(backward):
        made = torch.compile(lambda values: double(values, []) + 1, backend=keep, fullgraph=True)(values)
    assert made.tolist() == [3, 3, 3]
    assert any("test_double" in name for name in found)
