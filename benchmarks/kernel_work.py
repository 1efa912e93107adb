"""What the kernels of a training step have to do: multiply-adds, and bytes to read and write.

The step is gone through with every kernel's place taken by one that only notes what it is given, so that counts follow
from the network, the batch and the way in which launches cut the work. A number counts once for each kernel that reads
or writes it. Of PyTorch's own kernels only those of convolutions and of the optimiser are counted.
"""

from __future__ import annotations

import contextlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from quatcaps.accelerator import unavailable
from quatcaps.bench.cases import CHANNELS, Case
from quatcaps.bench.kernels import CONVOLUTION, EITHER_WAY, GRADIENT, OPTIMISER, OUR_KERNELS, group_of
from quatcaps.bench.networks import build_model
from quatcaps.errors import QuatcapsError
from quatcaps.layers import use_backend
from quatcaps.layers.fused.plan import CONVOLVED
from quatcaps.operators import tensors
from quatcaps.routing.triton.launch import TOTALS

ROOMS = ("layers.fused", "losses", "poses", "routing.triton")
OPTIONS = ("num_warps", "num_stages", "maxnreg")
"""Of a launch, which no kernel sees."""
LOOKED_AT = {"activation", "laid_activations"}
"""What a layer checks to lie between 0 and 1."""
ON_TENSOR_CORES = ("convolve", "convolve_back", "sum_weights")
IN_PLACE = {"normalise_back": "grad", "over_windows": "values"}
"""What is read and written."""
FLOAT = 4
"""Bytes of a number."""
ADAM = 7
"""Numbers for each weight: itself and two moments, read and written, and its gradient."""
SOFTMAX = 5
"""An exponential, its maximum, sum and quotient, and the product with the child's activation."""


class Launch(NamedTuple):
    kernel: str
    given: Mapping[str, Any]


@dataclass(frozen=True)
class Work:
    """Of one kernel or several. Additions, products and exponentials that stand alone take the time of a multiply-add,
    and count as one."""

    kernel: str
    group: str
    multiply_adds: int
    bytes: int
    tensor_cores: bool = False

    @property
    def flops(self) -> int:
        return 2 * self.multiply_adds


def step_work(case: Case, device: torch.device) -> list[Work]:
    """Of each kernel of a training step, in the order of their launches, and of the optimiser."""
    if (reason := unavailable(device)) is not None:
        raise QuatcapsError(f"the kernels of a step on {device} cannot be counted: Triton {reason}")
    network = use_backend(build_model(case.model, channels=CHANNELS, classes=case.classes), "triton").to(device)
    images = torch.zeros(case.batch, CHANNELS, case.side, case.side, device=device)
    with noted() as launches, noted_convolutions() as work:
        network.train()(images).activations.sum().backward()
    weights = sum(weight.numel() for weight in network.parameters())
    return [*map(work_of, launches), *work, Work("AdamW", OPTIMISER, 0, FLOAT * ADAM * weights)]


@contextlib.contextmanager
def noted() -> Iterator[list[Launch]]:
    """Inside, no kernel of ours runs; the list gets what each would have been given. Whatever is computed inside means
    nothing."""
    names = {*(name for group in OUR_KERNELS.values() for name in group), *EITHER_WAY}
    found: list[Launch] = []
    with contextlib.ExitStack() as put_back:
        for module in kernel_modules():
            for name in names & vars(module).keys():
                kernel = getattr(module, name)
                put_back.callback(setattr, module, name, kernel)
                setattr(module, name, Noting(kernel, found))
        yield found


@contextlib.contextmanager
def noted_convolutions() -> Iterator[list[Work]]:
    """What PyTorch computes of them inside, outside of residual blocks, and of their gradients."""
    found: list[Work] = []
    forward = nn.Conv2d.forward

    def noting(self: nn.Conv2d, input: Tensor) -> Tensor:
        output = forward(self, input)
        products = output.numel() * self.weight[0].numel()
        numbers = input.numel() + self.weight.numel() + output.numel()
        groups = [CONVOLUTION, GRADIENT, *([GRADIENT] if input.requires_grad else [])]
        found.extend(Work("convolution", group, products, FLOAT * numbers, tensor_cores=True) for group in groups)
        return output

    nn.Conv2d.forward = noting  # type: ignore[method-assign]
    try:
        yield found
    finally:
        nn.Conv2d.forward = forward  # type: ignore[method-assign]


def kernel_modules() -> Iterator[Any]:
    for room in ROOMS:
        package = import_module(f"quatcaps.{room}.kernels")
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            yield import_module(module.name)


class Noting:
    """Stands in for a kernel."""

    def __init__(self, kernel: Any, found: list[Launch]) -> None:
        self.name, self.signature, self.found = kernel.fn.__name__, inspect.signature(kernel.fn), found

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return self.note

    def note(self, *arguments: Any, **named: Any) -> None:
        given = {name: value for name, value in named.items() if name not in OPTIONS}
        launch = Launch(self.name, self.signature.bind(*arguments, **given).arguments)
        for name in LOOKED_AT & launch.given.keys():
            launch.given[name].data.zero_()
        self.found.append(launch)


def work_of(launch: Launch) -> Work:
    group = group_of(launch.kernel)
    return Work(launch.kernel, group, multiply_adds(launch), moved(launch), launch.kernel in ON_TENSOR_CORES)


def moved(launch: Launch) -> int:
    """Bytes of all tensors, each once: a launch names one several times where it has no other to give."""
    seen: set[int] = set()
    total = 0.0
    for name, value in launch.given.items():
        for tensor in tensors((value,)):
            if tensor.data_ptr() not in seen:
                seen.add(tensor.data_ptr())
                times = 2 if IN_PLACE.get(launch.kernel) == name else 1
                total += times * share(launch, name, tensor) * tensor.numel() * tensor.element_size()
    return round(total)


def share(launch: Launch, name: str, tensor: Tensor) -> float:
    """Of a tensor's numbers, what the kernel touches."""
    given = launch.given
    match launch.kernel, name:
        case "convolve", "beside" if given["SIZES"].SHORTCUT == CONVOLVED:
            return given["positions"] * given["SIZES"].BESIDE / tensor.numel()
        case "sum_weights", "source" if given["SIZES"].KERNEL == 1:
            return given["positions"] * given["SIZES"].IN / tensor.numel()
        case "m_step_backward", "centre" if not given["DAMPED"]:
            return 0.0
        case "sum_parents", "known":
            return 1 / (4 * given["LAYER"].DIMS + 2)  # the logits
        case "finish_parents", "known":
            return 1 - 1 / (4 * given["LAYER"].DIMS + 2)  # the others
        case "pack_uniform", "known":
            return given["LAYER"].DIMS / (4 * given["LAYER"].DIMS + 2)  # the centre
        case (("pack_uniform" | "sum_children" | "sum_children_wide"), "even") if given["WEIGHTED"]:
            return (2 * given["LAYER"].DIMS + 1) / (3 * given["LAYER"].DIMS + 1)  # all but the centre
    return 1.0


def multiply_adds(launch: Launch) -> int:
    """What no way of computing the same spares, apart from Winograd's; 0 where there is next to nothing."""
    if launch.kernel in ON_TENSOR_CORES:
        return products(launch)
    if launch.kernel in VOTES:
        layer = launch.given["LAYER"]
        return VOTES[launch.kernel](launch.given) * launch.given["positions"] * layer.INSIDE * layer.PARENTS
    if launch.kernel in NUMBERS:
        name, count = NUMBERS[launch.kernel]
        return int(count * launch.given[name].numel())
    return 0


def products(launch: Launch) -> int:
    """Of a convolution with its shortcut, forward or backward: as many either way, padding included."""
    sizes = launch.given["SIZES"]
    each = sizes.KERNEL**2 * sizes.IN * sizes.OUT
    if launch.kernel != "convolve_back":
        shortcut = sizes.BESIDE * sizes.OUT if sizes.SHORTCUT == CONVOLVED else 0
        return int(launch.given["positions"] * (each + shortcut))
    shortcut = sizes.BESIDE * sizes.IN if sizes.SHORTCUT == CONVOLVED else 0
    return int(launch.given["images"] * sizes.OUT_HEIGHT * sizes.OUT_WIDTH * (each + shortcut))


def vote(given: Mapping[str, Any]) -> int:
    """A child's pose through its map, less the parent's centre."""
    return int(given["LAYER"].DIMS * given["LAYER"].COLUMNS)


def of_uniform(given: Mapping[str, Any]) -> int:
    """The deviation times its weight, and two sums."""
    return vote(given) + 3 * int(given["LAYER"].DIMS)


def of_moments(given: Mapping[str, Any]) -> int:
    """Squares, the distance, the softmax; and the sums."""
    dims = int(given["LAYER"].DIMS)
    return vote(given) + 2 * dims + SOFTMAX + (0 if given["FINDS"] == TOTALS else 1 + 2 * dims)


def of_parents(given: Mapping[str, Any]) -> int:
    """Squares, the distance, a difference and its exponential; g0 + (g1 + g2 d) d, and its sum for the activation;
    (that less the sum) · share · activation, and three sums of it."""
    dims = int(given["LAYER"].DIMS)
    return vote(given) + 2 * dims + 2 + 2 * dims + 1 + (0 if given["FINDS"] == TOTALS else 3 + 1 + 2 * dims)


def of_children(given: Mapping[str, Any]) -> int:
    """The vote, Aᵀ dd with its sum over parents, and dd uᵀ, once. For each weighted iteration g0 + (g1 + g2 d) d, the
    distance, the share's exponent, exponential and product with the activation, dl, and dd of three products; for the
    uniform one g0 + (g1 + g2 d) d, its sum, and dd of two. dd of each but the first is added, and of weighted ones
    has a centre of its own."""
    dims, weighted, uniform = int(given["LAYER"].DIMS), int(given["WEIGHTED"]), int(given["UNIFORM"])
    once = 3 * vote(given) + dims
    more = dims * (weighted + uniform - 1) + dims * max(0, weighted - 1)
    return once + weighted * (7 * dims + 6) + uniform * (4 * dims + 1) + more


VOTES: Mapping[str, Callable[[Mapping[str, Any]], int]] = {
    "sum_uniform": of_uniform,
    "sum_moments": of_moments,
    "sum_parents": of_parents,
    "sum_children": of_children,
    "sum_children_wide": of_children,
}
"""Multiply-adds for each vote of a pass."""
NUMBERS = {
    "finish": ("parts", 2),
    "finish_back": ("parts", 1),
    "normalise": ("source", 1),
    "normalise_back": ("grad", 2),
    "lay_back": ("grad", 1),
}
"""Multiply-adds for each number of a tensor. The gradient of a normalisation is g s + x a + b by channel."""
