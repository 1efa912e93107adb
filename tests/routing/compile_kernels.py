"""Compiles every kernel for sm_90, as a test does in a process without Triton's interpreter."""

from __future__ import annotations

import re
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from quatcaps.poses.kernels import rotor
from quatcaps.routing import Window
from quatcaps.routing.triton import vb as vb_fused
from quatcaps.routing.triton.kernels import backward_children, em, parts, vb
from quatcaps.routing.triton.launch import passes, row_order
from quatcaps.routing.triton.plan import Layer, by_child, by_position

TARGET = GPUTarget("cuda", 90, 32)
FLOATS = (
    "inverse_temperature",
    "variance_floor",
    "least_mass",
    "contrast",
    "least_variance",
    "concentration",
    "prior_mean",
    "mean_weight",
    "scale",
    "freedom",
)
NUMBERS = (
    "positions", "per_program", "pixels", "splits", "small", "large", "rotors", "parents", "entries",
)  # fmt: skip


def compile_kernel(kernel: Any, constants: dict[str, Any]) -> str:
    """Pointers are float32 and aligned, as PyTorch's are; `rows` is a number where it counts them. Returns the program
    with its layouts."""
    constants = dict(constants)
    options = {name: constants.pop(name) for name in ("num_warps", "maxnreg") if name in constants}
    names = kernel.arg_names
    signature = {}
    for name in names:
        counts = name in NUMBERS or (name == "rows" and "entries" in names)
        kind = "fp32" if name in FLOATS else "i32" if counts else "*fp32"
        signature[name] = "constexpr" if name in constants else kind
    values = {(names.index(name),): value for name, value in constants.items()}
    aligned = {(names.index(name),): [["tt.divisibility", 16]] for name, kind in signature.items() if kind == "*fp32"}
    compiled = triton.compile(ASTSource(kernel, signature, values, aligned), target=TARGET, options=options)
    print(kernel.__name__, "compiles")
    return str(compiled.asm["ttgir"])


def check_lanes(program: str) -> None:
    """Raises unless values that lanes exchange lie one parent a lane, as `sums_by_lane` takes for granted."""
    exchanges = [line for line in program.splitlines() if "shfl.sync" in line]
    layouts = dict(re.findall(r"^(#blocked\d*) = (.*)$", program, re.MULTILINE))
    assert exchanges
    for line in exchanges:
        (layout,) = re.findall(r"-> tensor<1x32xf32, #ttg.slice<{dim = 2, parent = (#blocked\d*)}>>", line)
        assert "sizePerThread = [1, 1, 4], threadsPerWarp = [1, 32, 1]" in layouts[layout], layouts[layout]


def compile_layer(shapes: Layer) -> None:
    sizes, heavy = {"PARENTS": shapes.parents, "DIMS": shapes.dims}, passes(shapes)
    eight, four = (
        by_position(shapes, per_thread=count, least_steps=8, registers=(None, 168)).options() for count in (8, 4)
    )
    compile_kernel(heavy.sum_moments, {**shapes.constants(), **eight, "KEEP": True})
    bounded = by_position(shapes, per_thread=8, least_steps=32, registers=(168, 128)).options()
    compile_kernel(heavy.sum_uniform, {**shapes.constants(), **bounded})
    compile_kernel(heavy.sum_parents, {**shapes.constants(), **four})
    by_both = by_child(shapes, per_thread=4, registers=(None, 168)).options()
    flags = {"WEIGHTED": True, "UNIFORM": True}
    program = compile_kernel(heavy.sum_children, {**shapes.constants(), **by_both, **flags})
    if shapes.wide and shapes.parents == 32:
        check_lanes(program)
    tiles = {"TILE": 32, "TILE_PARENTS": 16, "num_warps": 4}
    for activation in range(3):
        compile_kernel(em.m_step, {**sizes, **tiles, "ACTIVATION": activation})
    has = {f"HAS_{name}": True for name in ("MEAN", "PRECISION", "LOGIT", "ACTIVATION")}
    for activation in range(3):
        compile_kernel(em.m_step_backward, {**sizes, **tiles, **has, "ACTIVATION": activation})
    compile_kernel(vb.vb_step, {**sizes, **tiles})
    has = {f"HAS_{name}": True for name in vb_fused.NAMES}
    compile_kernel(vb.vb_step_backward, {**sizes, **tiles, **has})
    compile_kernel(parts.merge_moments, {**sizes, "TILE": 256})
    compile_kernel(parts.finish_parents, {**row_order(shapes), "TILE": 256})
    compile_kernel(parts.pack_uniform, {**row_order(shapes), "TILE": 256, "WEIGHTED": True})


if __name__ == "__main__":
    quaternions = Layer(64, 32, 3, 16, 16, 16, 3, Window(5, 5))
    matrices = Layer(64, 32, 16, 14, 14, 32, 4, Window(3, 3, 2))
    few_classes = Layer(64, 32, 16, 4, 4, 5, 4, Window(4, 4, shared=True, coordinates=True))
    for shapes in (quaternions, matrices, few_classes):
        compile_layer(shapes)
    alone = by_child(quaternions, per_thread=8, registers=(None, 168)).options()
    for weighted in (True, False):
        flags = {"WEIGHTED": weighted, "UNIFORM": not weighted}
        compile_kernel(backward_children.sum_children, {**quaternions.constants(), **alone, **flags})
    compile_kernel(parts.add_moments, {"TILE": 256})
    compile_kernel(parts.add_maps, {"TILE": 64, "TILE_ROWS": 16})
    tiles = {"CHILDREN": 32, "DIMS": 3, "TILE": 16, "TILE_CHILDREN": 32, "num_warps": 1}
    compile_kernel(parts.pack_children, {**tiles, "PLANE": 256})
    grid = {"HEIGHT": 16, "WIDTH": 16, "GRID_HEIGHT": 12, "GRID_WIDTH": 12}
    compile_kernel(backward_children.fold, {**tiles, **grid, "KERNEL_HEIGHT": 5, "KERNEL_WIDTH": 5, "STRIDE": 1})
    sizes = {"CHILDREN": 32, "DIMS": 16, "TILE": 256, "num_warps": 2}
    compile_kernel(parts.fold_channels, {**sizes, **grid, "KERNEL_HEIGHT": 3, "KERNEL_WIDTH": 3, "STRIDE": 2})
    compile_kernel(rotor.rotor_matrix, {"PARENTS": 16, "TILE": 256})
    compile_kernel(rotor.rotor_matrix_backward, {"PARENTS": 16, "TILE": 256})
