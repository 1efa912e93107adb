"""What the kernels of a step are for, by their names and by the operators that launch them.

An operator says more than a name: cuDNN computes the gradient of an input by forward kernels where it can, and one
elementwise kernel adds for the routing, for a residual block and for the optimiser. A captured step has names alone;
`timeline.py` takes what it knows of the same step launched one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

CONVOLUTION, GRADIENT, NORMALISATION = "convolution", "convolution gradient", "batch normalisation"
LAYOUT, FORWARD, BACKWARD = "layout change, copy", "routing forward", "routing backward"
OPTIMISER, OTHER = "optimiser", "other"
GROUPS = (CONVOLUTION, GRADIENT, NORMALISATION, LAYOUT, FORWARD, BACKWARD, OPTIMISER, OTHER)

IN_ROUTING = "quatcaps: routing"
"""The name under which the timeline has capsule layers recorded."""
BACK = "backward of "
"""Begins the name of what an operator of a backward pass belongs to."""

OUR_KERNELS = {
    FORWARD: (
        "sum_moments", "sum_uniform", "add_moments", "merge_moments", "m_step", "vb_step", "rotor_matrix",
    ),
    BACKWARD: (
        "sum_parents", "finish_parents", "sum_children", "sum_children_wide", "pack_uniform", "pack_children",
        "add_rows", "fold", "fold_wide", "m_step_backward", "vb_step_backward", "rotor_matrix_backward",
    ),
    CONVOLUTION: ("convolve",),
    GRADIENT: ("convolve_back", "sum_weights", "add_weights"),
    NORMALISATION: ("finish", "finish_back", "recall", "normalise", "normalise_back", "lay_back"),
    LAYOUT: ("lay", "lay_weights", "lay_children", "lay_children_backward"),
    OTHER: ("spread",),
}  # fmt: skip
"""Our Triton kernels; a test holds the names against those that are launched."""
EITHER_WAY = ("over_windows",)
"""Of them, what both directions launch; which it is, the operator says."""
_OF_KERNEL = {name: group for group, names in OUR_KERNELS.items() for name in names}

_OPTIMISER = re.compile(r"^Optimizer\.step|multi_tensor_apply|_foreach_|_fused_adam|FusedAdam")
_LAYOUT = re.compile(
    r"nchwToNhwc|nhwcToNchw|convertTensor_kernel|transpose_readWrite|copy_kernel|CatArrayBatchedCopy|^Memcpy"
    r"|^aten::(copy_|clone|contiguous|cat|stack|_to_copy|im2col|col2im)$"
)
_GRADIENT_KERNEL = re.compile(r"wgrad|dgrad|winogradWgrad|conv\w*_backward|ConvolutionBackward", re.IGNORECASE)
_NORMALISATION_KERNEL = re.compile(r"\bbn_(fw|bw)|batch_?norm", re.IGNORECASE)
_CONVOLUTION_KERNEL = re.compile(
    r"fprop|convolve|conv2d|winograd|implicit_?gemm|computeOffsetsKernel|^void fft2d_|aten::\w*conv", re.IGNORECASE
)
_BY_OPERATOR = (
    (GRADIENT, re.compile(r"^aten::\w*conv\w*_backward|^ConvolutionBackward")),
    (CONVOLUTION, re.compile(r"^aten::\w*conv(olution|2d)|^quatcaps::native_residual_blocks")),
    (NORMALISATION, re.compile(r"^aten::\w*batch_norm|^\w*BatchNormBackward")),
    (BACKWARD, re.compile(rf"^quatcaps::\w*backward|^GeneratedBackwardFor_quatcaps_\w*Backward$|^{BACK}{IN_ROUTING}$")),
    (FORWARD, re.compile(rf"^quatcaps::|^GeneratedBackwardFor_quatcaps_|^{IN_ROUTING}$")),
)


def group_of(name: str, operators: Iterable[str] = ()) -> str:
    """The group of a kernel, or of an operator on a CPU, with the operators it was called from, the nearest first.

    >>> group_of("void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>()", ["aten::cudnn_convolution"])
    'layout change, copy'
    >>> group_of("sm80_xmma_fprop_implicit_gemm_tf32f32_nhwckrsc", ["aten::convolution_backward"])
    'convolution gradient'
    """
    chain = [name, *operators]
    if any(_OPTIMISER.search(each) for each in chain):
        return OPTIMISER
    if _LAYOUT.search(name):
        return LAYOUT
    if (known := _OF_KERNEL.get(plain(name))) is not None:
        return known
    for each in chain:
        for group, pattern in _BY_OPERATOR:
            if pattern.search(each):
                return group
    return by_name(name)


def by_name(name: str) -> str:
    """What a kernel's name alone says."""
    if plain(name) in EITHER_WAY:
        return FORWARD
    for group, pattern in (
        (GRADIENT, _GRADIENT_KERNEL),
        (NORMALISATION, _NORMALISATION_KERNEL),
        (CONVOLUTION, _CONVOLUTION_KERNEL),
    ):
        if pattern.search(name):
            return group
    return OTHER


def plain(name: str) -> str:
    """A kernel's name without what compilers add to it, such as Triton's numbers of arguments.

    >>> plain("sum_moments_0d1d2d3"), plain("sum_moments")
    ('sum_moments', 'sum_moments')
    """
    return re.sub(r"_\d+d[0-9dec]*$", "", name)


def short(name: str) -> str:
    """A kernel's name for people: without its return type, its arguments, its namespaces and most of its templates.

    >>> short("void at::native::elementwise_kernel<128, 2, at::native::AddFunctor<float>>(int, at::native::AddFunctor)")
    'elementwise_kernel<AddFunctor>'
    """
    what = re.search(r"(\w*(?:[Ff]unctor|copy_kernel_cuda|Ops?)\b)", name)
    head = re.split(r"[<(]", name.removeprefix("void ").replace("(anonymous namespace)::", ""), maxsplit=1)[0]
    head = head if head.startswith(("aten::", "quatcaps::")) else head.rsplit("::", 1)[-1]
    return f"{head}<{what[1]}>" if what and what[1] not in head else head
