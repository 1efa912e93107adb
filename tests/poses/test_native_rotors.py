"""Rotors in C beside their formulas."""

from __future__ import annotations

import pytest
import torch

from quatcaps import quaternion
from quatcaps.poses import native, pose_type
from quatcaps.routing.native import libraries

pytestmark = pytest.mark.skipif(
    libraries.problem(torch.float32, 1, 3) is not None, reason=f"native {libraries.problem(torch.float32, 1, 3)}"
)


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("count", [1, 5, 5000])
def test_matrices_and_gradients(count: int, right: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "WORTH_A_THREAD", 1)
    generator = torch.Generator().manual_seed(0)
    angle = 4 * torch.randn(count, 1, 5, generator=generator, dtype=torch.float64)
    axis = torch.randn(count, 1, 5, 3, generator=generator, dtype=torch.float64)
    axis[0, 0, 0] = 0
    axis[0, 0, 1] *= 1e-30
    axis[0, 0, 2] *= 1e30
    weights = torch.randn(count, 1, 5, *((4,) if right else (3, 3)), generator=generator, dtype=torch.float64)
    results = []
    for dtype, plain in ((torch.float64, True), (torch.float64, False), (torch.float32, False)):
        leaves = [values.to(dtype, copy=True).requires_grad_() for values in (angle, axis)]
        if plain:
            rotors = quaternion.rotor(*leaves)
            matrix = rotors if right else quaternion.rotor_to_matrix(rotors)
        else:
            matrix = native.rotor_matrix(*leaves, right)
        results.append([matrix.detach(), *torch.autograd.grad((matrix * weights.to(dtype)).sum(), leaves)])
    wanted, exact, single = results
    for one, other in zip(exact, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)
    for one, other in zip(single[:2], wanted[:2], strict=True):
        assert (one.double() - other).abs().max() < 3e-5
    error = (single[2].double() - wanted[2]).norm(dim=-1)
    assert (error <= 1e-4 * wanted[2].norm(dim=-1) + 1e-6).all(), "each axis by its own size"


@pytest.mark.parametrize("name", ["quaternion", "rotor"])
def test_maps_by_the_native_backend(name: str) -> None:
    torch.manual_seed(0)
    maps = pose_type(name).maps(4, 3, 2)
    torch.testing.assert_close(maps(by="native"), maps())
