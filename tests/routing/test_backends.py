"""Every backend against the reference in float64: values, gradients, odd shapes, degenerate inputs.

On a machine with a GPU the same tests run there, at sizes that networks have; without, Triton's interpreter stands in
and the sizes are small.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from quatcaps.errors import BackendWarning, QuatcapsError
from quatcaps.layers import ClassCapsules, ConvolutionalCapsules, use_backend
from quatcaps.models import build
from quatcaps.poses import PoseType, pose_type
from quatcaps.routing import BACKENDS, EM, EM_IBM, VB, Parents, Votes, Window, backends, reference
from quatcaps.routing.shapes import Shapes
from quatcaps.training import config

ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")
FAST = [name for name in BACKENDS if name != "reference" and not (ON_GPU and name == "native")]
FORWARD, BACKWARD = 1e-5, 1e-4
IBM = replace(EM_IBM, betas="zero")
EVERYWHERE = EM(competition="all")


class FreeMaps(nn.Module):
    def __init__(self, columns: int, offsets: int, children: int, parents: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(offsets, children, parents, columns, columns))

    def forward(self) -> Tensor:
        return self.weight


def free_pose(rows: int, columns: int) -> PoseType:
    return PoseType(f"{rows} by {columns}", rows, columns, functools.partial(FreeMaps, columns))


@dataclass(frozen=True)
class Case:
    """One layer's routing."""

    images: int = 2
    children: int = 2
    parents: int = 4
    size: int = 4
    kernel: int = 2
    stride: int = 1
    pose: str | PoseType = "quaternion"
    whole: bool = False
    coordinates: bool = False
    rule: str = "middles"
    routing: EM | VB = EM()
    maps: float = 1.0

    @property
    def window(self) -> Window:
        if self.whole:
            return Window(self.size, self.size, shared=True, coordinates=self.coordinates, coordinate_rule=self.rule)
        return Window(self.kernel, self.kernel, self.stride, coordinates=self.coordinates, coordinate_rule=self.rule)


SHAPES = {
    "2x2": Case(),
    "3x3": Case(children=3, size=5, kernel=3, parents=5),
    "stride 2": Case(images=1, children=1, size=7, kernel=5, stride=2, parents=16),
    "1x1": Case(size=2, kernel=1, parents=10),
    "7x7": Case(images=1, size=8, kernel=7, children=1, parents=3),
    "uneven": Case(children=3, parents=7),
    "classes": Case(size=3, whole=True),
    "100 classes": Case(images=1, size=2, whole=True, parents=100),
    "matrix": Case(images=1, children=2, size=4, parents=3, pose="matrix"),
    "matrix classes": Case(children=2, size=2, whole=True, pose="matrix"),
    "3 rows of 3": Case(images=1, children=2, size=4, parents=3, pose=free_pose(3, 3)),
    "3 rows of 2": Case(images=1, children=2, size=3, parents=18, pose=free_pose(3, 2)),
    "5 rows of 1": Case(images=1, children=2, size=3, parents=3, pose=free_pose(5, 1)),
    "2 rows of 2": Case(images=1, children=2, size=3, parents=3, pose=free_pose(2, 2)),
    "coordinates": Case(images=1, size=3, whole=True, pose="matrix", coordinates=True),
    "coordinates in windows": Case(images=1, children=2, size=4, kernel=2, parents=3, pose="matrix", coordinates=True),
    "one child": Case(children=1, kernel=1, size=2, parents=5),
    "one parent": Case(parents=1),
    "alone": Case(images=1, children=1, parents=1, size=1, kernel=1),
    "1 iteration": Case(routing=EM(iterations=1)),
    "3 iterations": Case(size=3, routing=EM(iterations=3)),
    "5 iterations": Case(size=3, routing=EM(iterations=5)),
    "logistic": Case(routing=EM(activation="logistic")),
    "1 row of 4": Case(images=1, children=2, size=4, parents=3, pose=free_pose(1, 4)),
    "rotors": Case(images=1, children=2, size=4, parents=3, pose="rotor"),
    "rotor classes": Case(images=1, size=3, whole=True, pose="rotor", routing=EM(variance="isotropic")),
    "isotropic": Case(size=3, routing=EM(variance="isotropic")),
    "EM-IBM": Case(images=1, children=1, size=3, parents=3, pose="matrix", routing=IBM),
    "EM-IBM of quaternions": Case(routing=replace(IBM, variance_floor=1e-4)),
    "all positions": Case(size=3, routing=EVERYWHERE),
    "all positions, stride 2": Case(
        children=2, size=5, kernel=3, stride=2, parents=4, routing=EM(3, competition="all")
    ),
    "all positions, gaps": Case(
        images=1, children=2, size=6, kernel=2, stride=3, parents=3, routing=EM(competition="all")
    ),
    "all positions, classes": Case(size=2, whole=True, routing=EVERYWHERE),
    "VB": Case(images=1, children=1, size=3, parents=3, pose="matrix", routing=VB(batch_norm=False)),
    "VB, all positions": Case(size=4, routing=VB(batch_norm=False, competition="all")),
    "all positions later": Case(size=3, routing=EM(competition="all-later")),
    "wide, all positions later": Case(
        images=1, children=1, size=3, parents=3, pose="matrix", routing=VB(batch_norm=False, competition="all-later")
    ),
    "tenths": Case(images=1, size=3, whole=True, pose="matrix", coordinates=True, rule="tenths"),
    "constant coordinates": Case(images=1, size=3, whole=True, pose="matrix", coordinates=True, rule="constant"),
}
REAL_SIZES = {
    "first layer": Case(4, 32, 16, 16, 5),
    "second layer": Case(4, 16, 16, 12, 5),
    "class layer": Case(64, 16, 10, 4, whole=True),
    "matrix layer": Case(2, 8, 16, 6, 3, 2, "matrix"),
    "matrix layer of 32 parents": Case(8, 32, 32, 14, 3, 2, "matrix"),
    "matrix classes": Case(64, 32, 5, 4, whole=True, pose="matrix", coordinates=True),
    "rotor layer": Case(4, 32, 16, 16, 5, pose="rotor", routing=EM(variance="isotropic")),
    "all positions": Case(4, 16, 16, 12, 5, routing=EVERYWHERE),
    "EM-IBM": Case(8, 32, 32, 14, 3, 2, "matrix", routing=replace(IBM, variance_floor=1e-4)),
    "VB, all positions": Case(8, 16, 32, 14, 3, 2, "matrix", routing=VB(batch_norm=False, competition="all")),
    "VB, all positions later": Case(
        8, 16, 32, 14, 3, 2, "matrix", routing=VB(batch_norm=False, competition="all-later")
    ),
    "VB, classes": Case(
        8, 16, 5, 4, whole=True, pose="matrix", coordinates=True, rule="constant", routing=VB(batch_norm=False)
    ),
    "1,000 classes": Case(16, 16, 1000, 4, whole=True),
}


FLOORS = {
    "all positions": Case(size=3, routing=VB(batch_norm=False, competition="all-later", least_density=0.05)),
    "classes": Case(size=2, whole=True, routing=VB(batch_norm=False, least_density=0.05)),
    "matrices": Case(1, 1, 3, 3, pose="matrix", routing=VB(2, batch_norm=False, competition="all", least_density=1e-3)),
}
"""Where children far from all parents are given out in part."""
if ON_GPU:
    published = VB(batch_norm=False, competition="all-later", least_density=1e-8)
    FLOORS["VB"] = Case(8, 16, 32, 14, 3, 2, "matrix", routing=published)


def random_children(case: Case) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    dims = pose_type(case.pose).dims
    poses = torch.randn(case.images, case.children, dims, case.size, case.size, generator=generator)
    return poses, torch.rand(case.images, case.children, case.size, case.size, generator=generator)


def agreeing_children(case: Case) -> tuple[Tensor, Tensor]:
    """Votes that nearly agree: variances near their floor, far from the origin."""
    poses, activations = random_children(case)
    return 3 + 0.01 * poses, activations


def children_of_one_place(case: Case) -> tuple[Tensor, Tensor]:
    poses, activations = agreeing_children(case)
    activations[:, 1:] = 0
    return poses, activations


def first_child_alone(activations: Tensor) -> Tensor:
    alone = torch.zeros_like(activations)
    alone[:, 0, 0, 0] = 0.7
    return alone


ADVERSARIAL: dict[str, Callable[[Case], tuple[Tensor, Tensor]]] = {
    "agreeing": agreeing_children,
    "one kind of child": children_of_one_place,
    "all active": lambda case: (random_children(case)[0], torch.ones_like(random_children(case)[1])),
    "activations 0 and 1": lambda case: (random_children(case)[0], random_children(case)[1].round()),
    "large poses": lambda case: (30 * random_children(case)[0], random_children(case)[1]),
    "tiny poses": lambda case: (1e-3 * random_children(case)[0], random_children(case)[1]),
}
FINITE: dict[str, Callable[[Case], tuple[Tensor, Tensor]]] = {
    "all inactive": lambda case: (random_children(case)[0], torch.zeros_like(random_children(case)[1])),
    "zero poses": lambda case: (torch.zeros_like(random_children(case)[0]), random_children(case)[1]),
    "poses at the limit": lambda case: (1e6 * random_children(case)[0].sign(), random_children(case)[1]),
    "poses beyond it": lambda case: (1e30 * random_children(case)[0], random_children(case)[1]),
    "tiny activations": lambda case: (random_children(case)[0], 1e-30 * random_children(case)[1]),
    "one active child": lambda case: (random_children(case)[0], first_child_alone(random_children(case)[1])),
}
WILD: dict[str, Case] = {
    "maps of 1e19": Case(images=1, children=2, size=3, pose=free_pose(1, 3), maps=1e19),
    "matrices of 1e19": Case(images=1, children=2, size=3, kernel=2, parents=3, pose="matrix", maps=1e19),
    "maps of 1e-30": Case(images=1, children=2, size=3, pose=free_pose(1, 3), maps=1e-30),
    "a tiny variance floor": Case(images=1, children=2, size=3, routing=EM(variance_floor=1e-9)),
    "EM-IBM": Case(images=1, children=1, size=3, parents=3, pose="matrix", routing=IBM),
    "all positions": Case(images=1, children=2, size=3, kernel=2, routing=EVERYWHERE),
    "isotropic": Case(images=1, children=2, size=3, routing=EM(variance="isotropic")),
}


def floor_of(case: Case) -> float:
    return case.routing.log_floor(pose_type(case.pose).dims) if isinstance(case.routing, VB) else -math.inf


def routed(case: Case, children: tuple[Tensor, Tensor], backend: str, dtype: torch.dtype) -> dict[str, Tensor]:
    """Capsules and all gradients of one layer, its maps free parameters angle and axis or a matrix."""
    torch.manual_seed(2)
    window = case.window
    maps = pose_type(case.pose).maps(window.offsets, case.children, case.parents).to(DEVICE, dtype)
    if case.maps != 1:
        with torch.no_grad():
            maps.weight.mul_(case.maps)
    routing = case.routing.module(case.parents).to(DEVICE, dtype)
    with torch.no_grad():
        routing.beta_u.copy_(torch.linspace(-0.3, 0.5, case.parents))
        routing.beta_a.copy_(torch.linspace(-0.5, 0.2, case.parents))
    poses, activations = (values.to(DEVICE, dtype).requires_grad_() for values in children)
    votes = Votes(
        *(poses, activations, maps(), window),
        competition=case.routing.competition,
        backend=backend,
        iterations=case.routing.iterations,
        log_floor=floor_of(case),
    )
    assert votes.backend == backend
    capsules = routing(votes)
    generator = torch.Generator().manual_seed(3)
    loss = torch.zeros((), device=DEVICE, dtype=dtype)
    for result in capsules:
        loss = loss + (result * torch.randn(result.shape, generator=generator).to(DEVICE, dtype)).sum()
    named = {"poses": poses, "activations": activations}
    named |= dict(maps.named_parameters()) | dict(routing.named_parameters())
    grads = torch.autograd.grad(loss, list(named.values()))
    return {
        "capsule poses": capsules.poses.detach(),
        "capsule activations": capsules.activations.detach(),
        **{f"gradient of {name}": grad for name, grad in zip(named, grads, strict=True)},
    }


def check_close(found: dict[str, Tensor], wanted: dict[str, Tensor], slack: float = 1.0) -> None:
    for name, value in found.items():
        limit = slack * (BACKWARD if name.startswith("gradient") else FORWARD)
        assert torch.isfinite(value).all(), name
        error, size = (value.double() - wanted[name]).norm(), wanted[name].norm()
        assert error <= limit * size + 1e-9, f"{name}: {error / size:.1e}"


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize("case", SHAPES.values(), ids=SHAPES.keys())
def test_same_numbers(case: Case, backend: str) -> None:
    children = random_children(case)
    check_close(routed(case, children, backend, torch.float32), routed(case, children, "reference", torch.float64))


@pytest.mark.parametrize("case", FLOORS.values(), ids=FLOORS.keys())
def test_same_numbers_where_children_are_given_out_in_part(case: Case) -> None:
    children = random_children(case)
    wanted = routed(case, children, "reference", torch.float64)
    check_close(routed(case, children, "triton", torch.float32), wanted, slack=5 if case.pose == "matrix" else 1)
    whole = routed(
        replace(case, routing=replace(case.routing, least_density=0.0)), children, "reference", torch.float64
    )
    assert not torch.allclose(whole["capsule poses"], wanted["capsule poses"], rtol=1e-3), "the floor counts"


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize("children", ADVERSARIAL.values(), ids=ADVERSARIAL.keys())
def test_same_numbers_from_adversarial_input(children: Callable[[Case], tuple[Tensor, Tensor]], backend: str) -> None:
    case = Case(images=1, children=4, size=4)
    given = children(case)
    check_close(routed(case, given, backend, torch.float32), routed(case, given, "reference", torch.float64))


@pytest.mark.parametrize("children", ["agreeing", "activations 0 and 1", "large poses"])
def test_same_numbers_of_wide_poses_from_adversarial_input(children: str) -> None:
    """The Triton backend has kernels of their own for them."""
    case = Case(images=1, children=2, size=3, kernel=2, parents=3, pose="matrix")
    given = ADVERSARIAL[children](case)
    check_close(routed(case, given, "triton", torch.float32), routed(case, given, "reference", torch.float64))


@pytest.mark.parametrize("children", ["all inactive", "poses beyond it", "one active child"])
def test_finite_in_finite_out_of_wide_poses(children: str) -> None:
    case = Case(images=1, children=2, size=3, parents=3, pose="matrix")
    for name, value in routed(case, FINITE[children](case), "triton", torch.float32).items():
        assert torch.isfinite(value).all(), name


@pytest.mark.skipif(not ON_GPU, reason="too large for the interpreter")
@pytest.mark.parametrize("case", REAL_SIZES.values(), ids=REAL_SIZES.keys())
@pytest.mark.parametrize("children", [random_children, agreeing_children])
def test_same_numbers_at_real_sizes(case: Case, children: Callable[[Case], tuple[Tensor, Tensor]]) -> None:
    given = children(case)
    check_close(routed(case, given, "triton", torch.float32), routed(case, given, "reference", torch.float64))


@pytest.mark.parametrize("backend", [name for name in FAST if name != "triton"])
def test_float64(backend: str) -> None:
    case = Case()
    children = tuple(values.double() for values in random_children(case))
    check_close(
        routed(case, children, backend, torch.float64), routed(case, children, "reference", torch.float64), 1e-6
    )


@pytest.mark.parametrize("backend", ["reference", *FAST])
@pytest.mark.parametrize("children", FINITE.values(), ids=FINITE.keys())
def test_finite_in_finite_out(children: Callable[[Case], tuple[Tensor, Tensor]], backend: str) -> None:
    case = Case(images=1, children=2, size=3)
    for name, value in routed(case, children(case), backend, torch.float32).items():
        assert torch.isfinite(value).all(), name


@pytest.mark.parametrize("backend", ["reference", *FAST])
@pytest.mark.parametrize("case", WILD.values(), ids=WILD.keys())
@pytest.mark.parametrize("children", ["random", "poses at the limit", "tiny activations", "one active child"])
def test_finite_in_finite_out_of_wild_layers(children: str, case: Case, backend: str) -> None:
    given = random_children(case) if children == "random" else FINITE[children](case)
    for name, value in routed(case, given, backend, torch.float32).items():
        assert torch.isfinite(value).all(), name


def moments_and_gradients(backend: str, dtype: torch.dtype, parents: Parents) -> list[Tensor]:
    """One call under given parents, and the gradients of everything that went in."""
    case = Case(images=1, children=4, size=4, kernel=3, parents=5)
    torch.manual_seed(2)
    maps = pose_type(case.pose).maps(case.window.offsets, case.children, case.parents)().detach()
    leaves = [
        values.to(DEVICE, dtype).detach().clone().requires_grad_()
        for values in (*random_children(case), maps, *parents)
    ]
    poses, activations, maps, *rest = leaves
    moments = Votes(poses, activations, maps, case.window, backend=backend).under(Parents(*rest))
    generator = torch.Generator().manual_seed(4)
    weighted = [
        (value * torch.randn(value.shape, generator=generator).to(DEVICE, dtype)).sum() for value in moments[1:]
    ]
    grads = torch.autograd.grad(sum(weighted), leaves)
    return [*(value.detach() for value in moments[1:]), *grads]


PARENTS: dict[str, Callable[[Parents], Parents]] = {
    "as they are": lambda parents: parents,
    "a common offset of a million": lambda parents: parents._replace(logit=parents.logit.round() + 1e6),
    "one certain winner": lambda parents: parents._replace(
        logit=parents.logit + 1e4 * torch.arange(5.0)[None, :, None, None]
    ),
    "no precision": lambda parents: parents._replace(precision=torch.zeros_like(parents.precision)),
    "far centres": lambda parents: parents._replace(centre=parents.centre + 40),
}


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize("change", PARENTS.values(), ids=PARENTS.keys())
def test_moments_under_given_parents(change: Callable[[Parents], Parents], backend: str) -> None:
    generator = torch.Generator().manual_seed(5)
    shape = (1, 5, 3, 2, 2)
    parents = change(
        Parents(
            torch.randn(shape, generator=generator),
            torch.rand(shape, generator=generator),
            torch.randn(shape[:2] + shape[3:], generator=generator),
        )
    )
    found = moments_and_gradients(backend, torch.float32, parents)
    wanted = moments_and_gradients("reference", torch.float64, parents)
    for index, (value, right) in enumerate(zip(found, wanted, strict=True)):
        limit = FORWARD if index < 3 else BACKWARD
        # The logits of far centres reach 2,500, where float32 has 1e-4 of rounding; the GPU's fused products have less.
        limit *= 2 if backend == "triton" and not ON_GPU else 1
        assert (value.double() - right).norm() <= limit * right.norm() + 1e-6, index


@pytest.mark.parametrize("backend", FAST)
def test_no_images(backend: str) -> None:
    case = Case(images=0)
    for name, value in routed(case, random_children(case), backend, torch.float32).items():
        assert not value.any(), name
        assert value.numel() == 0 or name.startswith("gradient of"), name


@pytest.mark.parametrize("backend", FAST)
def test_moments_twice_under_given_parents(backend: str) -> None:
    """Gradients of two calls add up, whether the first was uniform or not."""
    case = Case(images=1, children=2, size=2, kernel=2, parents=5)
    for calls in ((None, "given"), ("given", "given"), (None, "given", "given"), (None, None)):
        results = []
        for name, dtype in ((backend, torch.float32), ("reference", torch.float64)):
            torch.manual_seed(6)
            maps = pose_type(case.pose).maps(case.window.offsets, case.children, case.parents)().detach()
            leaves = [v.to(DEVICE, dtype).requires_grad_() for v in (*random_children(case), maps.clone())]
            given = Parents(*(torch.rand(1, 5, *dims, 1, 1).to(DEVICE, dtype) for dims in ((3,), (3,), ())))
            votes = Votes(*leaves, case.window, backend=name)
            # Moments come about centres of each backend's choice: means and variances do not depend on them.
            found = [votes.under(given) if call else votes.uniform() for call in calls]
            total = sum(value.sin().sum() for moments in found for value in (moments.mean, moments.variance))
            results.append(torch.autograd.grad(total, leaves))
        for found, wanted in zip(*results, strict=True):
            assert (found.double() - wanted).norm() <= BACKWARD * wanted.norm() + 1e-6, calls


SMALL = Shapes(2, 3, 3, 5, 5, 5, 3, Window(3, 3))


def choose(name: str, shapes: Shapes = SMALL, dtype: torch.dtype = torch.float32) -> str:
    return backends.choose(name, shapes, dtype, DEVICE).name


@pytest.fixture
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "_said", set())


def test_the_device_decides() -> None:
    assert choose("auto") == backends.default(DEVICE)
    assert backends.default(torch.device("cuda")) == "triton"
    assert backends.default(torch.device("mps")) == backends.default(torch.device("meta")) == "reference"
    for name in FAST:
        assert choose(name) == name
        for other in (
            replace(SMALL, competition="all"),
            replace(SMALL, dims=16, columns=4, window=Window(5, 5, shared=True, coordinates=True)),
            replace(SMALL, dims=4, columns=4),
            replace(SMALL, images=0),
        ):
            assert choose(name, other) == name, other


@pytest.mark.usefixtures("nothing_said")
def test_a_stand_in_is_announced_once(recwarn: pytest.WarningsRecorder) -> None:
    words = r"routing runs on the reference backend, a few images at a time: triton computes in float32, not float64"
    with pytest.warns(BackendWarning, match=words):
        assert choose("triton", dtype=torch.float64) == "reference"
    assert choose("triton", dtype=torch.float64) == "reference"
    with pytest.warns(
        BackendWarning, match="native holds poses of at most 16 numbers" if not ON_GPU else "runs on a CPU"
    ):
        assert choose("native", replace(SMALL, dims=20, columns=4)) == "reference"
    assert not recwarn.list


@pytest.mark.usefixtures("nothing_said")
def test_a_suppressed_announcement_is_made_the_next_time() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        choose("triton", dtype=torch.float64)
    with pytest.warns(BackendWarning, match="computes in float32"):
        choose("triton", dtype=torch.float64)


@pytest.mark.usefixtures("nothing_said")
def test_too_many_parents_for_the_kernels() -> None:
    with pytest.warns(BackendWarning, match="at most 1024 parent types, not 1025"):
        assert choose("triton", replace(SMALL, parents=1025)) == "reference"
    with pytest.warns(BackendWarning, match="at most 16 numbers in 4 columns, not 25 in 5"):
        assert choose("triton", replace(SMALL, dims=25, columns=5)) == "reference"


@pytest.mark.usefixtures("nothing_said")
def test_a_batch_too_large_for_the_kernels_numbers() -> None:
    """What counts is parent positions, not the children's pixels."""
    classes = Shapes(256, 16, 3, 12, 12, 1000, 3, Window(12, 12, shared=True))
    assert choose("triton", classes) == "triton"
    with pytest.warns(BackendWarning, match="31 bits, too few for a batch of 1048576"):
        assert choose("triton", replace(SMALL, images=2**20, height=8, width=8, parents=10)) == "reference"


@pytest.mark.parametrize("competition", ["position", "all"])
def test_the_reference_in_pieces_is_the_reference(competition: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(images=5, children=3, parents=5, size=5, kernel=3, routing=EM(competition=competition))
    children = random_children(case)
    wanted = routed(case, children, "reference", torch.float64)
    monkeypatch.setattr(reference, "PIECE", 2 * 9 * 9 * 3 * 5 * 3)  # two images
    seen: list[int] = []
    piece = reference.InPieces.piece
    monkeypatch.setattr(
        reference.InPieces, "piece", lambda self, *given: seen.append(len(given[1])) or piece(self, *given)
    )
    monkeypatch.setitem(BACKENDS, "reference", backends.IN_PIECES)
    check_close(routed(case, children, "reference", torch.float64), wanted, 1e-6)
    assert set(seen) == {2, 1}


def test_nothing_asks_for_float64_where_there_is_none() -> None:
    """As on Apple's GPUs: the device's default is the reference, a few images at a time."""

    class NoDoubles(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            for value in torch.utils._pytree.tree_leaves(result):
                assert not isinstance(value, Tensor) or value.dtype != torch.float64, function
            return result

    for competition in ("position", "all"):
        poses, activations = random_children(Case(children=3, parents=5, size=5, kernel=3))
        shapes = (9, 3, 5, 3, 3)
        layer = Shapes(2, 3, 3, 5, 5, 5, 3, Window(3, 3), competition)
        with NoDoubles():
            votes = reference.bind_in_pieces(poses.requires_grad_(), activations, torch.rand(shapes), layer)
            moments = votes.under(Parents(*votes.uniform()[:1], torch.ones(2, 5, 3, 3, 3), torch.zeros(2, 5, 3, 3)))
            moments.second.sum().backward()


@pytest.mark.parametrize("competition", ["position", "all"])
def test_the_meta_device(competition: str) -> None:
    """Shapes without numbers, also in half precision under autocast."""
    layer = ConvolutionalCapsules(3, 4, 2, pose="matrix", routing=EM(competition=competition), backend="auto").to(
        "meta"
    )
    capsules = layer(torch.empty(2, 3, 16, 4, 5, device="meta"), torch.empty(2, 3, 4, 5, device="meta"))
    assert capsules.poses.shape == (2, 4, 16, 3, 4)
    assert capsules.poses.device.type == "meta"


def test_unknown_backend_is_refused_at_once() -> None:
    for refuse in (
        lambda: ClassCapsules(2, 2, backend="fast"),
        lambda: use_backend(ClassCapsules(2, 2), "fast"),
        lambda: config.TrainingConfig(backend="fast"),
    ):
        with pytest.raises(QuatcapsError, match="fast"):
            refuse()


def test_the_configuration_knows_all_backends() -> None:
    assert ("auto", *BACKENDS) == config.BACKENDS


@pytest.mark.parametrize("backend", FAST)
def test_a_network_gives_the_same_activations(backend: str) -> None:
    network = build("qcn-small", channels=1, classes=3, seed=0, primary=2, capsules=((3, 3, 2),)).to(DEVICE).eval()
    images = torch.randn(2, 1, 25, 25, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    wanted = use_backend(network, "reference")(images).activations
    found = use_backend(network, backend)(images).activations
    assert torch.allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_is_safe(backend: str, dtype: torch.dtype) -> None:
    """Half precision comes in, the routing computes in float32, and what it returns is float32."""
    case = Case(images=1, size=3)
    layer = ClassCapsules(case.children, 4, backend=backend).to(DEVICE)
    poses, activations = (values.to(DEVICE, dtype) for values in random_children(case))
    with torch.autocast(DEVICE.type, dtype=dtype):
        capsules = layer(poses.requires_grad_(), activations.requires_grad_())
        capsules.activations.sum().backward()
    exact = use_backend(layer, "reference")(poses.float(), activations.float())
    assert capsules.poses.dtype == torch.float32
    assert torch.allclose(capsules.activations, exact.activations, atol=1e-5)
    assert poses.grad is not None
    assert poses.grad.dtype == dtype
    assert torch.isfinite(poses.grad).all()


@pytest.mark.parametrize("backend", FAST)
def test_the_same_bits_every_time(backend: str) -> None:
    case = REAL_SIZES["first layer"] if ON_GPU else Case(size=3)
    once, again = (routed(case, random_children(case), backend, torch.float32) for _ in range(2))
    for name, value in once.items():
        assert torch.equal(value, again[name]), name
