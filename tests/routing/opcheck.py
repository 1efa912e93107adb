"""PyTorch's check of the fused operators: schemas, fake kernels, gradients, dynamic shapes: DEVICE."""

from __future__ import annotations

import sys

import torch
from torch import Tensor

from quatcaps.poses import fused
from quatcaps.routing import Window
from quatcaps.routing.shapes import pack
from quatcaps.routing.triton import em as em_fused
from quatcaps.routing.triton import operators
from quatcaps.routing.triton import vb as vb_fused

device = sys.argv[1]
generator = torch.Generator().manual_seed(0)


def leaves(*shapes: tuple[int, ...]) -> list[Tensor]:
    return [torch.rand(shape, generator=generator).to(device).requires_grad_() for shape in shapes]


window = pack(Window(2, 2), "position")
children = leaves((1, 2, 3, 3, 3), (1, 2, 3, 3), (4, 2, 3, 3, 3))
parents = leaves((1, 3, 3, 2, 2), (1, 3, 3, 2, 2), (1, 3, 2, 2))
torch.library.opcheck(operators.uniform_moments, (*children, window))
torch.library.opcheck(operators.moments, (*children, *parents, None, None, None, True, window))
slots = [slot.detach() for slot in operators.uniform_moments(*children, window)[4:]]
torch.library.opcheck(operators.moments, (*children, *parents, *slots, True, window))
wide = leaves((1, 2, 8, 3, 3), (1, 2, 3, 3), (4, 2, 3, 4, 4))
torch.library.opcheck(operators.uniform_moments, (*wide, window))
moments = leaves((1, 3, 3, 2, 2), (1, 3, 2, 2), (1, 3, 3, 2, 2), (1, 3, 3, 2, 2), (3,), (3,))
for kind in range(3):
    torch.library.opcheck(em_fused.em_step, (*moments, 0.01, 1e-4, kind, 2.0))
torch.library.opcheck(vb_fused.vb_step, (*moments[:4], 1.0, 0.0, 1.0, 1.0, 2.0))
torch.library.opcheck(fused.rotor_matrix, tuple(leaves((2, 2, 3), (2, 2, 3, 3))))
print("all operators pass")
