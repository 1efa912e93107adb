"""The M-step of EM routing in C, forward and backward, and all iterations in one call where only numbers are wanted;
`em.m_step` and `em.em_routing` are the formulas."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from quatcaps.native.calls import share
from quatcaps.operators import only_numbers, operator
from quatcaps.routing.m_step import GRADS, MOMENTS, SETTINGS, by_operator, check_betas, numbers_of
from quatcaps.routing.moments import LEAST_MASS, SummedVotes
from quatcaps.routing.native import NativeVotes, VotesSideBySide, libraries
from quatcaps.routing.native.calls import FLAGS, NUMBERS, Task
from quatcaps.routing.native.calls import run as call
from quatcaps.routing.native.operators import shapes
from quatcaps.routing.native.side_by_side import FEW, parents_apart

if TYPE_CHECKING:
    from quatcaps.routing.em import EM

WORTH_A_THREAD = 2**10
"""Parents for which waking a thread repays."""

MOMENT_NAMES = ("mean", "mass", "first", "second")


def laid(values: Tensor) -> Tensor:
    """(N, J, …, H, W) as the library reads it: contiguous, or, where an image has few positions, those of all images
    side by side, (J, …, N, H, W). That is how `side_by_side` leaves them."""
    return (values.movedim(0, -3) if beside(values) else values).contiguous()


def beside(values: Tensor) -> bool:
    return len(values) > 1 and values.shape[-2] * values.shape[-1] < FEW


def empty_like(values: Tensor) -> Tensor:
    """For results: as `laid` would lay them, and seen as (N, J, …, H, W)."""
    if not beside(values):
        return values.new_empty(values.shape)
    return values.new_empty(values.movedim(0, -3).shape).movedim(-3, 0)


def named(settings: tuple[Any, ...]) -> dict[str, Any]:
    """Settings as fields of a `Task`."""
    from quatcaps.routing.em import DAMPING, LEAST_VARIANCE

    numbers = dict(zip(NUMBERS, (*settings[:4], LEAST_MASS, LEAST_VARIANCE, DAMPING), strict=True))
    return numbers | dict(zip(FLAGS, settings[4:], strict=True))


def run(function: str, centre: Tensor, tensors: dict[str, Tensor], settings: tuple[Any, ...]) -> None:
    """Calls a function of the library for parents of the centre's shape; all other tensors are laid out so."""
    images, parents, dims, height, width = centre.shape
    images, height = (1, images * height) if beside(centre) else (images, height)
    sizes = {"images": images, "parents": parents, "grid_height": height, "grid_width": width}
    addresses = {name: tensor.data_ptr() for name, tensor in tensors.items()}
    task = Task(**sizes, **named(settings), **addresses)
    library = libraries.m_step(centre.dtype, dims)
    share(getattr(library, function), task, tensors, images * parents * height * width // WORTH_A_THREAD)


def compute(*arguments: Any) -> tuple[Tensor, ...]:
    results = empty(*arguments)
    given = dict(zip(MOMENT_NAMES, map(laid, arguments[:4]), strict=True))
    given |= {"beta_u": arguments[4].contiguous(), "beta_a": arguments[5].contiguous()}
    made = dict(zip(("centre", "precision", "logit", "activation"), results, strict=True))
    run("quatcaps_em_step", arguments[0], given | made, arguments[6:])
    return results


def empty(centre: Tensor, mass: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    return tuple(empty_like(like) for like in (centre, centre, mass, mass))


def compute_backward(*arguments: Any) -> tuple[Tensor, ...]:
    """Gradients of centre, mass, first and second, and of both betas."""
    *moments, _ = empty_backward(*arguments)
    centre, mass = arguments[4:6]
    given = dict(zip(MOMENT_NAMES, map(laid, arguments[4:8]), strict=True))
    given |= {"beta_u": arguments[8].contiguous(), "beta_a": arguments[9].contiguous()}
    names = ("grad_centre", "grad_precision", "grad_logit", "grad_activation")
    for name, grad, like in zip(names, arguments[:4], (centre, centre, mass, mass), strict=True):
        given[name] = laid(torch.zeros_like(like) if grad is None else grad)
    betas = [empty_like(mass) for _ in range(2)]
    made = dict(zip(("grad_mean", "grad_mass", "grad_first", "grad_second"), moments, strict=True))
    by_beta = {"grad_beta_u": betas[0], "grad_beta_a": betas[1]}
    run("quatcaps_em_step_backward", centre, given | made | by_beta, arguments[10:])
    return *moments, torch.stack([beta.sum((0, 2, 3)) for beta in betas])


def empty_backward(*arguments: Any) -> tuple[Tensor, ...]:
    return *map(empty_like, arguments[4:8]), arguments[8].new_empty(2, *arguments[8].shape)


def save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:6])
    ctx.settings = inputs[6:]
    ctx.set_materialize_grads(False)


def differentiate(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    *moments, betas = em_step_backward(*grads, *ctx.saved_tensors, *ctx.settings)
    return *moments, betas[0], betas[1], *(None for _ in ctx.settings)


em_step_backward = operator(
    "native_em_step_backward",
    f"({GRADS}, {MOMENTS}, {SETTINGS}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    compute_backward,
    empty_backward,
)
em_step = operator(
    "native_em_step",
    f"({MOMENTS}, {SETTINGS}) -> (Tensor, Tensor, Tensor, Tensor)",
    compute,
    empty,
    save=save,
    differentiate=differentiate,
)
m_step = partial(by_operator, em_step)
"""From moments to parents."""


def all_iterations(
    votes: SummedVotes, betas: tuple[Tensor, Tensor], settings: EM, mass_factor: float
) -> tuple[Tensor, Tensor] | None:
    """All of EM routing in one call: poses (N, J, D, H, W) and activations (N, J, H, W), the bits of one call for each
    step. None where more is wanted than numbers, or where positions compete with each other for a child."""
    from quatcaps.routing.votes import Votes

    sums = votes.sums if type(votes) is Votes else votes
    if type(sums) is VotesSideBySide:
        found = iterate(sums.votes, betas, settings, mass_factor)
        return found and (parents_apart(found[0], sums.shapes), parents_apart(found[1], sums.shapes))
    return iterate(sums, betas, settings, mass_factor) if type(sums) is NativeVotes else None


def iterate(
    sums: NativeVotes, betas: tuple[Tensor, Tensor], settings: EM, mass_factor: float
) -> tuple[Tensor, Tensor] | None:
    if sums.shapes.everywhere or not only_numbers((*sums.children, *betas)):
        return None
    from quatcaps.routing.em import inverse_temperature

    poses, activations, maps = sums.children
    check_betas(maps.shape[2], *betas)
    window = sums.shapes.window
    one, pose = shapes(poses, maps, window)
    scratch = poses.new_empty(4 * math.prod(pose) + 2 * math.prod(one))
    sizes = [math.prod(pose)] * 4 + [math.prod(one)] * 2
    between = dict(zip(("mean", "first", "second", "precision", "mass", "logit"), scratch.split(sizes), strict=True))
    made = {"centre": poses.new_empty(pose), "activation": poses.new_empty(one)}
    given = {"poses": poses, "activations": activations, "maps": maps}
    given |= dict(zip(("beta_u", "beta_a"), (beta.to(poses.dtype).contiguous() for beta in betas), strict=True))
    temperatures = [inverse_temperature(iteration) for iteration in range(1, settings.iterations + 1)]
    given["inverse_temperatures"] = torch.tensor(temperatures, dtype=torch.float64)
    numbers = named(numbers_of(settings, 0.0, mass_factor))
    call("quatcaps_em_routing", window, given | between | made, iterations=settings.iterations, **numbers)
    return made["centre"], made["activation"]
