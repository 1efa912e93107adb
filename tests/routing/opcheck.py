"""PyTorch's check of the fused operators: schemas, fake kernels, gradients, dynamic shapes: DEVICE."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor

from quatcaps.poses import fused
from quatcaps.routing import Window
from quatcaps.routing.shapes import pack
from quatcaps.routing.triton import em, operators, vb

device = sys.argv[1]
if device == "cpu":
    sys.path.append(str(Path(__file__).parents[1]))
    import quick_interpreter  # noqa: F401
generator = torch.Generator().manual_seed(0)
WINDOW = Window(2, 1)


def leaves(*shapes: tuple[int, ...]) -> list[Tensor]:
    return [torch.rand(shape, generator=generator).to(device).requires_grad_() for shape in shapes]


parents = leaves((1, 3, 3, 2, 2), (1, 3, 3, 2, 2), (1, 3, 2, 2))
for competition in ("position", "all"):
    layer = pack(WINDOW, competition)
    children = leaves((1, 2, 3, 3, 2), (1, 2, 3, 2), (2, 2, 3, 3, 3))
    torch.library.opcheck(operators.uniform_moments, (*children, [], layer))
    torch.library.opcheck(operators.moments, (*children, *parents, [], True, layer))
    # What is in the slots of a gate is not defined, so its results cannot be compared with themselves.
    same = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(operators.gate, (*children, 2, layer), test_utils=same)
rotors = leaves((1, 2, 4, 3, 2), (1, 2, 3, 2), (2, 2, 3, 4))
torch.library.opcheck(operators.uniform_moments, (*rotors, [], pack(WINDOW, "position")))
wide = leaves((1, 2, 8, 3, 2), (1, 2, 3, 2), (2, 2, 3, 4, 4))
torch.library.opcheck(operators.uniform_moments, (*wide, [], pack(WINDOW, "position")))
moments = leaves((1, 3, 3, 2, 2), (1, 3, 2, 2), (1, 3, 3, 2, 2), (1, 3, 3, 2, 2), (3,), (3,))
for kind, damped, isotropic in ((0, False, False), (1, False, True), (2, True, False)):
    torch.library.opcheck(em.em_step, (*moments, 0.01, 1e-4, 2.0, 1.5, kind, damped, isotropic))
torch.library.opcheck(vb.vb_step, (*moments[:4], 1.0, 0.0, 1.0, 1.0, 2.0))
for right in (False, True):
    torch.library.opcheck(fused.rotor_matrix, (*leaves((2, 2, 3), (2, 2, 3, 3)), right))
print("all operators pass")
