"""Compiles every kernel for sm_90, as a test does in a process without Triton's interpreter."""

from __future__ import annotations

from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from quatcaps.poses.kernels import rotor
from quatcaps.routing import Window
from quatcaps.routing.kernels import em
from quatcaps.routing.soft_moments.fused.kernels import backward_children, backward_parents, forward, parts
from quatcaps.routing.soft_moments.fused.plan import Shapes, by_child, by_position

TARGET = GPUTarget("cuda", 90, 32)
FLOATS = ("inverse_temperature", "variance_floor", "least_mass")
NUMBERS = (
    "positions", "per_program", "pixels", "splits", "small", "large", "rotors", "parents", "entries",
)  # fmt: skip


def compile_kernel(kernel: Any, constants: dict[str, Any]) -> None:
    """Pointers are float32 and aligned, as PyTorch's are; `rows` is a number where it counts them."""
    constants = dict(constants)
    options = {"num_warps": constants.pop("num_warps", 4)}
    names = kernel.arg_names
    signature = {}
    for name in names:
        counts = name in NUMBERS or (name == "rows" and "entries" in names)
        kind = "fp32" if name in FLOATS else "i32" if counts else "*fp32"
        signature[name] = "constexpr" if name in constants else kind
    values = {(names.index(name),): value for name, value in constants.items()}
    aligned = {(names.index(name),): [["tt.divisibility", 16]] for name, kind in signature.items() if kind == "*fp32"}
    triton.compile(ASTSource(kernel, signature, values, aligned), target=TARGET, options=options)
    print(kernel.__name__, "compiles")


def compile_layer(shapes: Shapes) -> None:
    sizes = {"PARENTS": shapes.parents, "DIMS": shapes.dims}
    wide, narrow = (by_position(shapes, per_thread=count, least_steps=8).options() for count in (8, 4))
    compile_kernel(forward.sum_moments, {**shapes.constants(), **wide, "KEEP": True})
    compile_kernel(forward.sum_uniform, {**shapes.constants(), **wide})
    compile_kernel(backward_parents.sum_parents, {**shapes.constants(), **narrow})
    by_both = by_child(shapes, per_thread=4).options()
    compile_kernel(backward_children.sum_children, {**shapes.constants(), **by_both, "WEIGHTED": True, "UNIFORM": True})
    tiles = {"TILE": 32, "TILE_PARENTS": 16, "num_warps": 4}
    compile_kernel(em.m_step, {**sizes, **tiles, "NORMALIZED": True})
    has = {f"HAS_{name}": True for name in ("MEAN", "PRECISION", "LOGIT", "ACTIVATION")}
    compile_kernel(em.m_step_backward, {**sizes, **tiles, **has, "NORMALIZED": True})
    compile_kernel(parts.merge_moments, {**sizes, "TILE": 256})
    compile_kernel(parts.finish_parents, {**sizes, "TILE": 256})
    compile_kernel(parts.pack_uniform, {**sizes, "TILE": 256, "WEIGHTED": True})


if __name__ == "__main__":
    quaternions = Shapes(64, 32, 3, 16, 16, 16, 3, Window(5, 5))
    compile_layer(quaternions)
    alone = by_child(quaternions, per_thread=8).options()
    for weighted in (True, False):
        flags = {"WEIGHTED": weighted, "UNIFORM": not weighted}
        compile_kernel(backward_children.sum_children, {**quaternions.constants(), **alone, **flags})
    matrices = Shapes(64, 8, 16, 6, 6, 8, 4, Window(3, 3, 2))
    wide = by_position(matrices, per_thread=8, least_steps=8).options()
    compile_kernel(forward.sum_moments, {**matrices.constants(), **wide, "KEEP": True})
    full_warp = Shapes(64, 8, 16, 6, 6, 32, 4, Window(3, 3, 2))
    by_lane = {**by_child(full_warp, per_thread=4).options(), "WEIGHTED": True, "UNIFORM": False}
    compile_kernel(backward_children.sum_children, {**full_warp.constants(), **by_lane})
    compile_kernel(parts.add_moments, {"TILE": 256})
    compile_kernel(parts.add_maps, {"TILE": 64, "TILE_ROWS": 16})
    tiles = {"CHILDREN": 32, "DIMS": 3, "TILE": 16, "TILE_CHILDREN": 32, "num_warps": 1}
    compile_kernel(parts.pack_children, {**tiles, "PLANE": 256})
    grid = {"HEIGHT": 16, "WIDTH": 16, "GRID_HEIGHT": 12, "GRID_WIDTH": 12}
    compile_kernel(backward_children.fold, {**tiles, **grid, "KERNEL_HEIGHT": 5, "KERNEL_WIDTH": 5, "STRIDE": 1})
    compile_kernel(rotor.rotor_matrix, {"PARENTS": 16, "TILE": 256})
    compile_kernel(rotor.rotor_matrix_backward, {"PARENTS": 16, "TILE": 256})
