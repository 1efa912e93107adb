"""What PyTorch asks of operators, in one process without the shape checks of the test runner: DEVICE.

They refuse the symbols that PyTorch sends for numbers, and its compiler cannot see through them. A check that passes is
named in a line of its own; one that fails leaves its traceback, and the others run all the same.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from quatcaps.layers import native as trunks
from quatcaps.layers import use_backend
from quatcaps.models import build
from quatcaps.poses import native as rotors
from quatcaps.routing import Parents, Window, native
from quatcaps.routing.native import em as native_em
from quatcaps.routing.native import operators as native_operators
from quatcaps.routing.shapes import Shapes, pack

device = sys.argv[1]
if device == "cpu" and find_spec("triton"):
    sys.path.append(str(Path(__file__).parents[1]))
    import quick_interpreter  # noqa: F401
generator = torch.Generator().manual_seed(0)
WINDOW = Window(2, 1)


def leaves(*shapes: tuple[int, ...], on: str = device) -> list[Tensor]:
    return [torch.rand(shape, generator=generator).to(on).requires_grad_() for shape in shapes]


def operators_of_triton() -> None:
    """Schemas, fake kernels, gradients, dynamic shapes."""
    from quatcaps.losses.fused import spread_and_gradient
    from quatcaps.poses import fused
    from quatcaps.routing.triton import em, operators, vb

    parents = leaves((1, 3, 3, 2, 2), (1, 3, 3, 2, 2), (1, 3, 2, 2))
    for competition in ("position", "all"):
        layer = pack(WINDOW, competition)
        children = leaves((1, 2, 3, 3, 2), (1, 2, 3, 2), (2, 2, 3, 3, 3))
        torch.library.opcheck(operators.uniform_moments.operator, (*children, [], layer))
        torch.library.opcheck(operators.moments.operator, (*children, *parents, [], True, layer))
        # What is in the slots of a gate is not defined, so its results cannot be compared with themselves.
        same = ("test_schema", "test_autograd_registration", "test_faketensor")
        torch.library.opcheck(operators.gate.operator, (*children, 2, layer), test_utils=same)
    rotors = leaves((1, 2, 4, 3, 2), (1, 2, 3, 2), (2, 2, 3, 4))
    torch.library.opcheck(operators.uniform_moments.operator, (*rotors, [], pack(WINDOW, "position")))
    wide = leaves((1, 2, 8, 3, 2), (1, 2, 3, 2), (2, 2, 3, 4, 4))
    torch.library.opcheck(operators.uniform_moments.operator, (*wide, [], pack(WINDOW, "position")))
    moments = leaves((1, 3, 3, 2, 2), (1, 3, 2, 2), (1, 3, 3, 2, 2), (1, 3, 3, 2, 2), (3,), (3,))
    for kind, damped, isotropic in ((0, False, False), (1, False, True), (2, True, False)):
        torch.library.opcheck(em.em_step.operator, (*moments, 0.01, 1e-4, 2.0, 1.5, kind, damped, isotropic))
    torch.library.opcheck(vb.vb_step.operator, (*moments[:4], 1.0, 0.0, 1.0, 1.0, 2.0))
    labels = torch.tensor([0, 2, 1, 2], device=device)
    torch.library.opcheck(
        spread_and_gradient.operator, (*leaves((4, 3)), labels, torch.tensor(0.5, device=device), None)
    )
    for right in (False, True):
        torch.library.opcheck(fused.rotor_matrix.operator, (*leaves((2, 2, 3), (2, 2, 3, 3)), right))


def operators_in_c() -> None:
    for window, competition in (
        (Window(2, 2), "position"),
        (Window(4, 3, 2, shared=True), "position"),
        (Window(2, 2, coordinates=True), "all"),
    ):
        grid = window.positions(4, 3)
        children = ((2, 2, 6, 4, 3), (2, 2, 4, 3), (window.offsets, 2, 5, 3, 3))
        inputs = leaves(*children, (2, 5, 6, *grid), (2, 5, 6, *grid), (2, 5, *grid), on="cpu")
        layer = pack(window, competition)
        torch.library.opcheck(native_operators.uniform_moments.operator, (*inputs[:3], layer))
        torch.library.opcheck(native_operators.moments.operator, (*inputs, True, layer))
    settings = ((0, False, False), (1, False, True), (2, True, False))
    for (images, side), flags in zip(((2, 2), (1, 2), (2, 5)), settings, strict=True):  # side by side, or one by one
        pose = (images, 3, 3, side, side)
        moments = leaves(pose, (images, 3, side, side), pose, pose, (3,), (3,), on="cpu")
        torch.library.opcheck(native_em.em_step.operator, (*moments, 0.01, 1e-4, 2.0, 1.5, *flags))
    for right in (False, True):
        torch.library.opcheck(rotors.rotor_matrix.operator, (*leaves((2, 2, 3), (2, 2, 3, 3), on="cpu"), right))
    convolutions = [torch.rand(shape) for shape in ((2,), (2,), (5, 2, 3, 3), (5,), (5, 5, 3, 3), (5, 2, 1, 1))]
    torch.library.opcheck(trunks.residual_blocks.operator, (torch.rand(2, 2, 5, 4), convolutions, [2]))


def routed(*inputs: Tensor) -> list[Tensor]:
    """Moments under both competitions, uniform and under the parents that follow."""
    found: list[Tensor] = []
    for competition in ("position", "all"):
        votes = native.bind(*inputs[:3], Shapes.of(inputs[0], inputs[2], Window(2, 2), competition))
        moments = votes.uniform()
        found += [*moments[1:], *votes.under(Parents(moments.centre, *inputs[3:]))[1:]]
    return found


def one_graph_in_c() -> None:
    inputs = leaves((2, 2, 3, 4, 3), (2, 2, 4, 3), (4, 2, 5, 3, 3), (2, 5, 3, 3, 2), (2, 5, 3, 2), on="cpu")
    both = []
    for function in (torch.compile(routed, fullgraph=True, backend="aot_eager"), routed):
        moments = function(*inputs)
        both.append([*moments, *torch.autograd.grad(sum(m.square().sum() for m in moments), inputs)])
    for one, other in zip(*both, strict=True):
        torch.testing.assert_close(one, other)


def one_graph_of_a_network(backend: str) -> None:
    """Compiled as one graph and compared with the same network uncompiled."""
    if device == "cuda":
        settings: dict[str, object] = {}
        name, size, compiler = "qcn", 32, "inductor"
    else:
        settings = {"primary": 2, "capsules": ((3, 2, 2),)}
        name, size, compiler = "qcn-small", 13, "aot_eager"
    network = use_backend(build(name, channels=2, classes=3, seed=0, **settings), backend).to(device)
    images = torch.randn(2, 2, size, size, generator=torch.Generator().manual_seed(0)).to(device)
    compiled = torch.compile(network, fullgraph=True, backend=compiler)
    results = []
    for run in (network, compiled):
        network.zero_grad()
        activations = run(images).activations
        activations.square().sum().backward()
        results.append([activations.detach(), *(p.grad.clone() for p in network.parameters() if p.grad is not None)])
    for plain, traced in zip(*results, strict=True):
        error = (plain - traced).norm()
        assert error <= 1e-3 * plain.norm() + 1e-5, f"{backend}: {error} of {plain.norm()}"


CHECKS: dict[str, Callable[[], None]] = {
    "operators of triton": operators_of_triton,
    "operators of native": operators_in_c,
    "one graph of native": one_graph_in_c,
    "one graph of a network on triton": lambda: one_graph_of_a_network("triton"),
    "one graph of a network on native": lambda: one_graph_of_a_network("native"),
}


if __name__ == "__main__":
    for name, check in CHECKS.items():
        if device == "cuda" and name.endswith("on native"):
            continue
        torch.manual_seed(0)
        try:
            check()
            print(f"{name}: passed", flush=True)
        except Exception:
            print(f"{name}: failed\n{traceback.format_exc()}", flush=True)
