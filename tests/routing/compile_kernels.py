"""Compiles every kernel for sm_90, as a test does in a process without Triton's interpreter."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

from quatcaps import accelerator
from quatcaps.compiling import Kernel, compile_side_by_side, rehearsing
from quatcaps.layers import use_backend
from quatcaps.layers.fused import plan as blocks
from quatcaps.layers.fused.kernels import convolution, normalisation
from quatcaps.losses.kernels import spread as losses
from quatcaps.models import build
from quatcaps.poses.kernels import rotor
from quatcaps.routing import Window, votes
from quatcaps.routing.triton import em as fused_em
from quatcaps.routing.triton import launch
from quatcaps.routing.triton import vb as fused_vb
from quatcaps.routing.triton.kernels import backward, children, em, forward, parts, vb
from quatcaps.routing.triton.plan import Layer

TARGET = GPUTarget("cuda", 90, 32)
FLOATS = ("limit", "concentration", "prior_mean", "mean_weight", "scale", "freedom", "epsilon")
NUMBERS = (
    "positions", "per_program", "pixels", "splits", "small", "large", "rotors", "parents", "entries", "images", "tiles",
    "programs", "channels", "in_tile", "classes",
)  # fmt: skip
TUPLES = {
    "strides": ("i32",) * 4,
    "lay_weights": (("*fp32", "*fp32", "i32", "i32", "i32"),) * 3,
    "add_weights": (("*fp32", "*fp32", "i32", "i32", "i32", "i32"),) * 2,
    "finish": ("fp32",) * 2,
}
"""The types of arguments that are tuples, by their name or their kernel's."""


def compile_kernel(kernel: Any, constants: dict[str, Any], iterations: int = 1) -> str:
    """Pointers are float32 and aligned, as PyTorch's are; `rows` is a number where it counts them. Returns the program
    with its layouts."""
    constants = dict(constants)
    options = {name: constants.pop(name) for name in ("num_warps", "maxnreg") if name in constants}
    names, aligned = kernel.arg_names, [["tt.divisibility", 16]]
    signature: dict[str, Any] = {}
    attributes = {}
    for index, name in enumerate(names):
        if name in constants:
            signature[name] = "constexpr"
        elif name == "weighted":
            signature[name] = (("*fp32",) * 3,) * iterations
            attributes |= {(index, k, part): aligned for k in range(iterations) for part in range(3)}
        elif name in ("settings", "given", "strides"):
            signature[name] = TUPLES.get(name) or TUPLES.get(kernel.__name__, ("fp32",) * 7)
        elif name in ("batches", "labels"):
            signature[name] = "*i64"
        elif name in FLOATS:
            signature[name] = "fp32"
        elif name in NUMBERS or (name == "rows" and "entries" in names):
            signature[name] = "i32"
        else:
            signature[name] = "*fp32"
            attributes[(index,)] = aligned
    values = {(names.index(name),): value for name, value in constants.items()}
    if postponed is not None:
        postponed.append(Kernel(kernel, signature, values, attributes, options))
        return ""
    compiled = triton.compile(ASTSource(kernel, signature, values, attributes), target=TARGET, options=options)
    print(kernel.__name__, "compiles")
    return str(compiled.asm["ttgir"])


launchers: list[str] = []
"""Kernels whose launchers were made by this process."""
postponed: list[Kernel] | None = None
"""Where kernels are put that are to be compiled together."""


def check_side_by_side() -> None:
    """What several processes compile is found on disk by this one."""
    global postponed
    postponed = []
    for tile in (32, 64, 128, 256, 512):
        compile_kernel(parts.add_moments, {"TILE": tile})
    kernels, postponed = postponed, None
    compile_side_by_side(kernels, TARGET, 2)
    triton.knobs.compilation.always_compile = False
    stages = triton.backends.backends["nvidia"].compiler.add_stages
    triton.backends.backends["nvidia"].compiler.add_stages = refuse
    for kernel in kernels:
        kernel.compile(TARGET)
    assert launchers == ["add_moments"] * len(kernels), "those that came from disk too"
    triton.backends.backends["nvidia"].compiler.add_stages = stages


def check_rehearsal() -> None:
    """A training step tells all its kernels, and as a launch would compile them. A driver that says sm_90 stands for
    the GPU: nothing is launched."""
    answers = {"target": TARGET, "device": 0, "stream": 0}
    driver._active = SimpleNamespace(
        **{f"get_current_{name}": lambda *_, value=value: value for name, value in answers.items()},
        launcher_cls=lambda source, metadata: launchers.append(source.fn.__name__),
    )
    accelerator._unavailable = lambda device: None  # type: ignore[assignment]
    votes.check_activations = lambda activations: None
    backend = triton.compiler.make_backend(TARGET)

    def launched(
        function: Any, key: Any, signature: Any, device: Any, constants: Any, options: Any, *rest: Any
    ) -> None:
        compile(function, key, signature, device, constants, options, *rest)
        told = found[-1]
        assert backend.parse_options(dict(told.options)).hash() == options.hash(), function.__name__
        sources = [ASTSource(function, signature, constants, rest[0]), ASTSource(*told[:4])]
        assert sources[0].hash() == sources[1].hash(), function.__name__

    compile, JITFunction._do_compile = JITFunction._do_compile, launched
    for model in ("qcn-deep", "vb"):
        network = build(model, channels=2, classes=5)
        use_backend(network, "triton")
        with rehearsing() as found:
            network(torch.rand(2, 2, 32, 32)).activations.sum().backward()
        names = {kernel.function.__name__ for kernel in found}
        step = {"qcn-deep": {"m_step", "m_step_backward", "convolve", "rotor_matrix"}, "vb": {"vb_step"}}[model]
        assert {"sum_moments", "add_rows", *step} <= names, names
    JITFunction._do_compile = compile
    print("rehearsed")


def refuse(*arguments: Any) -> None:
    raise AssertionError("not found on disk")


def check_lanes(program: str) -> None:
    """Raises unless values that lanes exchange lie one parent a lane, as `sums_by_lane` takes for granted."""
    exchanges = [line for line in program.splitlines() if "shfl.sync" in line]
    layouts = dict(re.findall(r"^(#blocked\d*) = (.*)$", program, re.MULTILINE))
    assert exchanges
    for line in exchanges:
        (layout,) = re.findall(r"-> tensor<1x32xf32, #ttg.slice<{dim = 2, parent = (#blocked\d*)}>>", line)
        assert "sizePerThread = [1, 1, 4], threadsPerWarp = [1, 32, 1]" in layouts[layout], layouts[layout]


def compile_by_position(layer: Layer) -> None:
    """The passes that a competition over all positions changes."""
    of_layer = {"LAYER": layer.sizes}
    for finds in (launch.TOTALS, launch.SUMS) if layer.everywhere else (launch.BOTH,):
        flags = {**of_layer, "FINDS": finds}
        compile_kernel(forward.sum_moments, {**flags, **launch.plan_moments(layer).options(), "KEEP": True})
        compile_kernel(backward.sum_parents, {**flags, **launch.plan_parents(layer).options()})


def compile_layer(layer: Layer, weighted: int, uniform: bool = True) -> None:
    """All passes, that over children for so many weighted moments, and for uniform ones."""
    of_layer = {"LAYER": layer.sizes}
    compile_by_position(layer)
    compile_kernel(forward.sum_uniform, {**of_layer, **launch.plan_uniform(layer).options()})
    by_child = backward.sum_children_wide if layer.wide else backward.sum_children
    cut = launch.plan_children(layer, weighted + uniform).options()
    program = compile_kernel(by_child, {**of_layer, **cut, "WEIGHTED": weighted, "UNIFORM": uniform}, weighted)
    if layer.wide and layer.parents == 32:
        check_lanes(program)
    compile_small(layer)


def compile_steps(layer: Layer, settings: tuple[tuple[int, bool, bool], ...]) -> None:
    """Of EM, by its settings, and of variational Bayes."""
    by_parent = torch.empty(layer.parents, device="meta")
    _, sizes = fused_em.cut(by_parent, by_parent.expand(layer.dims, -1))
    compile_kernel(vb.vb_step, sizes)
    compile_kernel(vb.vb_step_backward, {**sizes, **{f"HAS_{name}": True for name in fused_vb.NAMES}})
    has = {f"HAS_{name}": True for name in fused_em.NAMES}
    for activation, damped, isotropic in settings:
        flags = {"ACTIVATION": activation, "DAMPED": damped, "ISOTROPIC": isotropic}
        compile_kernel(em.m_step, {**sizes, **flags})
        compile_kernel(em.m_step_backward, {**sizes, **has, **flags})


def compile_small(layer: Layer) -> None:
    """What puts splits, windows and children together."""
    of_layer = {"LAYER": layer.sizes}
    compile_kernel(parts.merge_moments, {**of_layer, "TILE": 256})
    compile_kernel(parts.finish_parents, {**of_layer, "TILE": 256})
    compile_kernel(parts.pack_uniform, {**of_layer, "TILE": 256, "WEIGHTED": True})
    for logarithms in (False, True) if layer.everywhere else ():
        compile_kernel(parts.over_windows, {**of_layer, "TILE": 256, "LOGARITHMS": logarithms})
    if layer.wide:
        compile_kernel(children.fold_wide, {**of_layer, "TILE": 256, "num_warps": 2})
    else:
        _, tiles = launch.tiles_of_pixels(100, layer.children, layer.dims)
        compile_kernel(children.pack_children, {**of_layer, **tiles})
        compile_kernel(children.fold, {**of_layer, **tiles})
        sizes = {"CHILDREN": layer.children, "DIMS": layer.dims, "PLANE": layer.height * layer.width, **tiles}
        compile_kernel(children.lay_children, sizes)
        compile_kernel(children.lay_children_backward, sizes)


def compile_blocks() -> None:
    """Of residual blocks: one of many channels and positions, one that begins with images, and heads."""
    many = blocks.Sizes(16, 16, 48, 8, 8, 64, 3, 2)
    images = blocks.Sizes(32, 32, 2, 32, 32, 32, 3, 1)
    head = blocks.Sizes(8, 8, 64, 8, 8, 96, 1, 1, False, True)
    for sizes, precision, tile in ((many, "tf32", 16), (images, "tf32", 128), (head, "bf16", 32)):
        chunk = blocks.chunk_of(sizes.length)
        flags = {"PRECISION": precision, "TILE": tile, "CHUNK": chunk}
        with_shortcut = sizes._replace(SHORTCUT=blocks.CONVOLVED, BESIDE=2) if sizes.KERNEL == 3 else sizes
        out, channels_in = blocks.power_of_two(sizes.OUT), blocks.power_of_two(sizes.IN)
        forward_flags = {"TILE_OUT": out, "STEPS": sizes.steps(chunk), "CHUNK_BESIDE": 16, "MEASURED": True}
        compile_kernel(convolution.convolve, {**flags, **forward_flags, "SIZES": with_shortcut})
        back_flags = {"TILE_IN": channels_in, "CHUNK": blocks.chunk_of(sizes.OUT), "CHUNK_BESIDE": 16, "KEEP": True}
        compile_kernel(convolution.convolve_back, {**flags, **back_flags, "SIZES": with_shortcut})
        compile_kernel(convolution.sum_weights, {**flags, "TILE": blocks.ALONG, "TILE_OUT": out, "SIZES": sizes})
    parts = {"TILE": blocks.TILE_PARTS, "TILE_CHANNELS": blocks.TILE_CHANNELS}
    compile_kernel(normalisation.finish, parts)
    compile_kernel(normalisation.finish_back, parts)
    compile_kernel(normalisation.recall, {"TILE": blocks.TILE})
    compile_kernel(normalisation.normalise_back, {"SHORTCUT": True, "TILE": 32, "TILE_CHANNELS": 32})
    across = {"AREA": 64, "CHANNELS": 96, "TILE": 32, "TILE_CHANNELS": 32}
    compile_kernel(normalisation.normalise, across)
    compile_kernel(normalisation.lay_back, across)
    compile_kernel(normalisation.lay, {"HEIGHT": 32, "WIDTH": 32, "CHANNELS": 2, "TILE": 128, "TILE_CHANNELS": 2})
    compile_kernel(normalisation.lay_weights, {"TILE": blocks.TILE})
    compile_kernel(normalisation.add_weights, {"TILE": blocks.TILE_WEIGHTS, "TILE_SPLITS": blocks.TILE_SPLITS})


if __name__ == "__main__":
    check_rehearsal()
    check_side_by_side()
    compile_blocks()
    quaternions = Layer(64, 32, 3, 16, 16, 16, 3, Window(5, 5))
    rotors = Layer(64, 32, 4, 16, 16, 16, 4, Window(5, 5), "all", rotors=True)
    matrices = Layer(64, 32, 16, 14, 14, 32, 4, Window(3, 3, 2))
    few_classes = Layer(64, 32, 6, 4, 4, 5, 3, Window(4, 4, shared=True, coordinates=True))
    compile_layer(quaternions, 2, uniform=False)
    compile_layer(rotors, 1)
    compile_layer(matrices, 1)
    compile_layer(few_classes, 2)
    later = Layer(64, 16, 16, 14, 14, 32, 4, Window(3, 3, 2), "all-later", -10.0)
    compile_by_position(later)
    everywhere = Layer(64, 32, 16, 14, 14, 32, 4, Window(3, 3, 2), "all")
    for logarithms in (False, True):
        compile_kernel(parts.over_windows, {"LAYER": everywhere.sizes, "TILE": 256, "LOGARITHMS": logarithms})
    compile_steps(quaternions, ((0, False, False), (1, False, True), (2, True, False)))
    compile_steps(few_classes, ((1, False, True),))
    alone = {"LAYER": quaternions.sizes, "WEIGHTED": 0, "UNIFORM": True}
    compile_kernel(backward.sum_children, {**alone, **launch.plan_children(quaternions, 1).options()})
    compile_kernel(losses.spread, {"WEIGHTED": True, "TILE": 128, "TILE_CLASSES": 16, "num_warps": 8})
    compile_kernel(parts.add_moments, {"TILE": 256})
    compile_kernel(parts.add_rows, {"TILE": 64, "TILE_ROWS": 16})
    compile_kernel(parts.add_rows, {"TILE": 32, **launch.FEW})
    for right in (False, True):
        compile_kernel(rotor.rotor_matrix, {"PARENTS": 16, "TILE": 256, "RIGHT": right})
        compile_kernel(rotor.rotor_matrix_backward, {"PARENTS": 16, "TILE": 256, "RIGHT": right})
