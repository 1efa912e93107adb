"""EM routing against a plain implementation of the published procedure, by its laws, and where it could break."""

from __future__ import annotations

import copy
import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from algorithm_box import Box, em_routing, matrix_votes, rotor_votes
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call

from quatcaps import quaternion
from quatcaps.capsules import Capsules
from quatcaps.errors import QuatcapsError
from quatcaps.layers import ClassCapsules, ConvolutionalCapsules
from quatcaps.routing import BACKENDS, EM, Moments, Parents, Votes, Window
from quatcaps.routing.em import EM_IBM, activation_logit, damped_gaussian, gaussian, standardized
from quatcaps.routing.votes import POSE_LIMIT

LAWS = settings(deadline=None, max_examples=15, derandomize=True)
SEEDS = st.integers(0, 2**32 - 1)
Layer = ConvolutionalCapsules | ClassCapsules

activations = pytest.mark.parametrize("activation", ["logistic", "normalized"])
competitions = pytest.mark.parametrize("competition", ["position", "all"])
iterations = pytest.mark.parametrize("iterations", [1, 2, 3, 4])
IBM_FIXES = {
    "one child": EM(activation="logistic", one_child="damped", variance_floor=1e-9),
    "mass": EM(activation="logistic", mass="normalised"),
    "competition": EM(activation="logistic", competition="all"),
    "all": EM_IBM,
    "all but competition": replace(EM_IBM, competition="position"),
}
ibm_fixes = pytest.mark.parametrize("routing", IBM_FIXES.values(), ids=IBM_FIXES.keys())
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


def prepared(layer: Layer, dtype: torch.dtype = torch.float64) -> Layer:
    """The layer with betas away from their start at 0."""
    nn.init.normal_(layer.routing.beta_u)
    nn.init.normal_(layer.routing.beta_a, std=20)
    return layer.to(dtype)


def random_children(
    images: int, children: int, dims: int, height: int, width: int, dtype: torch.dtype = torch.float64
) -> Capsules:
    poses = torch.randn(images, children, dims, height, width, dtype=dtype)
    return Capsules(poses, torch.rand(images, children, height, width, dtype=dtype) * 0.98 + 0.01)


def device_of(backend: str) -> torch.device:
    """Where a backend runs; without a GPU, Triton's interpreter stands in."""
    return torch.device("cuda" if torch.cuda.is_available() and backend != "native" else "cpu")


def in_the_box(layer: Layer, children: Capsules) -> Box:
    weights = {name: parameter.detach().numpy() for name, parameter in layer.named_parameters()}
    if "maps.angle" in weights:
        vote = rotor_votes(weights["maps.angle"], weights["maps.axis"])
    else:
        vote = matrix_votes(weights["maps.weight"])
    grid = tuple(children.poses.shape[3:])
    convolutional = isinstance(layer, ConvolutionalCapsules)
    return em_routing(
        children.poses.numpy(),
        children.activations.numpy(),
        vote,
        weights["routing.beta_u"],
        weights["routing.beta_a"],
        (layer.window.height, layer.window.width) if convolutional else grid,
        stride=layer.window.stride if convolutional else 1,
        shared=not convolutional,
        coordinates=layer.coordinate_rule if not convolutional and layer.coordinates else "",
        **{name: value for name, value in vars(layer.routing.settings).items() if name != "betas"},
    )


def assert_as_in_the_box(layer: Layer, children: Capsules) -> None:
    found, expected = layer(*children), in_the_box(layer, children)
    shape = found.poses.shape
    np.testing.assert_allclose(found.poses.detach(), expected.poses.reshape(shape), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(
        found.activations.detach(), expected.activations.reshape(found.activations.shape), rtol=1e-10, atol=0
    )


@activations
@competitions
@iterations
@pytest.mark.parametrize(
    ("kernel", "stride", "children", "parents", "grid"),
    [(1, 1, 3, 2, (2, 3)), (2, 1, 1, 5, (3, 4)), (3, 1, 2, 3, (4, 5)), (3, 2, 2, 2, (6, 5)), (2, 2, 3, 1, (5, 4))],
)
def test_convolutional_capsules_follow_the_procedure(
    kernel: int,
    stride: int,
    children: int,
    parents: int,
    grid: tuple[int, int],
    iterations: int,
    competition: str,
    activation: str,
) -> None:
    torch.manual_seed(0)
    routing = EM(iterations, activation, competition)
    layer = prepared(ConvolutionalCapsules(children, parents, kernel, stride, routing=routing))
    assert_as_in_the_box(layer, random_children(1, children, 3, *grid))


@competitions
@pytest.mark.parametrize("parents", [1, 4])
@pytest.mark.parametrize(
    ("activation", "contrast"), [("standardized", 1.0), ("standardized", 4.0), ("normalized", 3.0)]
)
def test_logits_that_are_told_apart_follow_the_procedure(
    activation: str, contrast: float, parents: int, competition: str
) -> None:
    torch.manual_seed(0)
    routing = EM(3, activation, competition, contrast=contrast)
    layer = prepared(ConvolutionalCapsules(2, parents, 2, routing=routing))
    assert_as_in_the_box(layer, random_children(1, 2, 3, 3, 4))


def test_standardized_logits() -> None:
    logit = torch.randn(2, 5, 2, 1, dtype=torch.float64)
    found = standardized(logit)
    torch.testing.assert_close(found.mean(1), torch.zeros(2, 2, 1, dtype=torch.float64))
    torch.testing.assert_close(found.var(1, correction=0), torch.ones(2, 2, 1, dtype=torch.float64), rtol=1e-6, atol=0)
    torch.testing.assert_close(standardized(1e12 * logit + 7e12), standardized(logit), rtol=1e-4, atol=1e-4)
    assert torch.autograd.gradcheck(standardized, logit.requires_grad_())
    for extreme in (torch.zeros(1, 3, 1, 1), 1e30 * torch.randn(1, 3, 1, 1), 1e-30 * torch.randn(1, 3, 1, 1)):
        values = extreme.requires_grad_()
        (grad,) = torch.autograd.grad(standardized(values).square().sum(), values)
        assert torch.isfinite(standardized(values)).all()
        assert torch.isfinite(grad).all()
    assert standardized(torch.full((1, 7, 1, 1), 0.3)).abs().max() < 1e-3, "rounding makes no difference"


@competitions
@pytest.mark.parametrize(("stride", "grid"), [(1, (6, 5)), (2, (7, 8)), (3, (5, 8))])
def test_a_5x5_kernel_and_several_images_follow_the_procedure(
    stride: int, grid: tuple[int, int], competition: str
) -> None:
    torch.manual_seed(1)
    layer = prepared(ConvolutionalCapsules(2, 2, 5, stride, routing=EM(2, competition=competition)))
    assert_as_in_the_box(layer, random_children(3, 2, 3, *grid))


@activations
@competitions
@pytest.mark.parametrize("pose", ["quaternion", "matrix"])
@pytest.mark.parametrize(("children", "classes", "grid"), [(1, 5, (1, 1)), (3, 2, (2, 3)), (2, 5, (4, 3))])
def test_class_capsules_follow_the_procedure(
    children: int, classes: int, grid: tuple[int, int], pose: str, competition: str, activation: str
) -> None:
    torch.manual_seed(2)
    layer = prepared(ClassCapsules(children, classes, pose=pose, routing=EM(3, activation, competition)))
    assert_as_in_the_box(layer, random_children(2, children, layer.pose.dims, *grid))


@pytest.mark.parametrize("rule", ["middles", "tenths", "constant"])
@pytest.mark.parametrize("grid", [(1, 1), (2, 3), (4, 3)])
def test_coordinates_are_added_to_the_votes_for_classes(grid: tuple[int, int], rule: str) -> None:
    torch.manual_seed(21)
    coordinates: dict[str, Any] = {"coordinates": True, "coordinate_rule": rule}
    layer = prepared(ClassCapsules(2, 3, pose="matrix", routing=EM(3, "logistic"), **coordinates))
    children = random_children(2, 2, 16, *grid)
    assert_as_in_the_box(layer, children)
    without = copy.deepcopy(layer)
    without.coordinates = False
    assert not torch.allclose(without(*children).poses, layer(*children).poses)


def test_coordinates_need_two_rows() -> None:
    with pytest.raises(QuatcapsError, match="coordinates with poses of 1 row: at least 2 are needed"):
        ClassCapsules(2, 3, coordinates=True)


@activations
@competitions
@pytest.mark.parametrize(("kernel", "stride"), [(1, 2), (2, 1), (3, 2)])
def test_matrix_capsules_follow_the_procedure(kernel: int, stride: int, competition: str, activation: str) -> None:
    torch.manual_seed(3)
    routing = EM(3, activation, competition)
    layer = prepared(ConvolutionalCapsules(2, 3, kernel, stride, pose="matrix", routing=routing))
    assert_as_in_the_box(layer, random_children(1, 2, 16, 3, 5))


@pytest.mark.parametrize("variance_floor", [1e-8, 1e-2, 3.0])
def test_the_floor_is_added_to_the_variance(variance_floor: float) -> None:
    torch.manual_seed(4)
    layer = prepared(ConvolutionalCapsules(3, 2, 2, routing=EM(2, variance_floor=variance_floor)))
    assert_as_in_the_box(layer, random_children(1, 3, 3, 3, 3))


@ibm_fixes
@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("pose", ["quaternion", "matrix"])
@pytest.mark.parametrize(
    ("kernel", "stride", "children", "parents"),
    [(3, 1, 2, 3), (2, 2, 2, 2), (3, 2, 1, 4), (1, 1, 1, 3)],
    ids=["stride 1", "stride 2", "overlap at stride 2", "a single child"],
)
def test_ibms_fixes_follow_the_procedure(
    kernel: int, stride: int, children: int, parents: int, pose: str, steps: int, routing: EM
) -> None:
    torch.manual_seed(15)
    routing = replace(routing, iterations=steps)
    layer = prepared(ConvolutionalCapsules(children, parents, kernel, stride, pose=pose, routing=routing))
    assert_as_in_the_box(layer, random_children(1, children, layer.pose.dims, 4, 5))


@ibm_fixes
@pytest.mark.parametrize("pose", ["quaternion", "matrix"])
@pytest.mark.parametrize(("children", "grid"), [(1, (1, 1)), (3, (2, 3))])
def test_ibms_fixes_follow_the_procedure_in_class_capsules(
    children: int, grid: tuple[int, int], pose: str, routing: EM
) -> None:
    torch.manual_seed(16)
    layer = prepared(ClassCapsules(children, 5, pose=pose, routing=routing))
    assert_as_in_the_box(layer, random_children(2, children, layer.pose.dims, *grid))


@pytest.mark.parametrize("active", [0.0, 1e-12, 1e-9, 1e-3])
@pytest.mark.parametrize("competition", ["position", "all"])
def test_damping_follows_the_procedure_where_parents_receive_next_to_nothing(competition: str, active: float) -> None:
    """Here ε is not small beside what it is added to."""
    torch.manual_seed(17)
    layer = prepared(ConvolutionalCapsules(2, 3, 2, routing=replace(EM_IBM, competition=competition)))
    children = random_children(1, 2, 3, 3, 3)
    assert_as_in_the_box(layer, Capsules(children.poses, active * children.activations))


def test_a_parent_without_children_keeps_its_mean_or_loses_it() -> None:
    centre = torch.full((1, 1, 3, 1, 1), 7.0, dtype=torch.float64)
    nothing = Moments(centre, torch.zeros(1, 1, 1, 1, dtype=torch.float64), 0 * centre, 0 * centre)
    assert torch.equal(gaussian(nothing)[0], centre)
    mean, variance = damped_gaussian(nothing)
    assert mean.abs().max() < 1e-14
    assert torch.equal(variance, torch.zeros_like(centre))


def test_one_childs_vote_is_the_mean_and_the_floor_its_variance() -> None:
    """Damped, both move by less than anyone sees, unless the child gives less than ε."""
    centre = torch.full((1, 1, 3, 1, 1), 2.0, dtype=torch.float64)
    for mass, kept in ((0.5, 1 - 2e-9), (1e-9, 0.5)):
        alone = Moments(centre, torch.full((1, 1, 1, 1), mass, dtype=torch.float64), 0 * centre, 0 * centre)
        mean, variance = damped_gaussian(alone)
        torch.testing.assert_close(mean, centre * kept, rtol=1e-12, atol=0)
        torch.testing.assert_close(variance, kept * (centre - mean).square(), rtol=1e-6, atol=0)


@pytest.mark.parametrize("grid", [(1, 1), (3, 3), (5, 2)])
@pytest.mark.parametrize(("children", "classes"), [(2, 5), (7, 3)])
def test_normalised_mass_does_not_depend_on_the_ratio_of_children_to_parents(
    children: int, classes: int, grid: tuple[int, int]
) -> None:
    """All children active, all votes equal: every layer gives a parent a mass of 100."""
    routing = EM(1, "logistic", mass="normalised", variance_floor=0.25)
    layer = ClassCapsules(children, classes, pose="matrix", routing=routing).double()
    found = layer(torch.zeros(1, children, 16, *grid).double(), torch.ones(1, children, *grid).double())
    cost = 16 * math.log(math.sqrt(0.25)) * 100
    expected = 1 / (1 + math.exp(0.01 * (1 - 0.95) * cost))
    torch.testing.assert_close(found.activations, torch.full_like(found.activations, expected))


def test_normalised_mass_leaves_the_first_poses_as_they_were() -> None:
    torch.manual_seed(18)
    layer = prepared(ConvolutionalCapsules(3, 2, 2, routing=EM(1)))
    children = random_children(1, 3, 3, 3, 3)
    expected = layer(*children)
    layer.routing.settings = replace(layer.routing.settings, mass="normalised")
    assert torch.equal(layer(*children).poses, expected.poses)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("window", [Window(2, 2), Window(3, 1, 2), Window(4, 5, shared=True)], ids=str)
def test_every_backend_knows_how_many_children_a_parent_sees(window: Window, backend: str) -> None:
    shapes = ((1, 3, 3, 4, 5), (1, 3, 4, 5), (window.offsets, 3, 2, 3, 3))
    votes = Votes(*(torch.zeros(shape, device=device_of(backend)) for shape in shapes), window, backend=backend)
    assert votes.inside == 3 * window.places


def test_one_iteration_is_a_convolution() -> None:
    """Under uniform assignments the mean is Σ a A u / Σ a: two ordinary convolutions."""
    torch.manual_seed(5)
    layer = prepared(ConvolutionalCapsules(4, 3, 3, 2, routing=EM(1)))
    poses, active = random_children(2, 4, 3, 6, 7)
    kernel = layer.maps().unflatten(0, (3, 3)).permute(3, 4, 2, 5, 0, 1).reshape(9, 12, 3, 3)
    weighted = F.conv2d((poses * active[:, :, None]).flatten(1, 2), kernel, stride=2).unflatten(1, (3, 3))
    mass = F.conv2d(active, torch.ones(1, 4, 3, 3, dtype=active.dtype), stride=2)
    torch.testing.assert_close(layer(poses, active).poses, weighted / mass[:, :, None])


@activations
@competitions
@pytest.mark.parametrize("kind", ["convolutional", "class", "matrix"])
def test_gradients_of_a_whole_layer(kind: str, competition: str, activation: str) -> None:
    torch.manual_seed(6)
    routing = EM(3, activation, competition, variance_floor=1e-2)
    layer: Layer
    if kind == "class":
        layer = ClassCapsules(2, 2, routing=routing)
    else:
        pose = "matrix" if kind == "matrix" else "quaternion"
        layer = ConvolutionalCapsules(1 if kind == "matrix" else 2, 2, 2, pose=pose, routing=routing)
    prepared(layer)
    names = [name for name, _ in layer.named_parameters()]
    assert {"routing.beta_u", "routing.beta_a"} < set(names)

    def call(poses: Tensor, active: Tensor, *weights: Tensor) -> tuple[Tensor, Tensor]:
        return tuple(functional_call(layer, dict(zip(names, weights, strict=True)), (poses, active)))

    inputs = [*random_children(1, layer.capsules_in, layer.pose.dims, 2, 3), *layer.parameters()]
    assert torch.autograd.gradcheck(call, [value.detach().requires_grad_() for value in inputs], fast_mode=True)


@ibm_fixes
@pytest.mark.parametrize("kind", ["convolutional", "class"])
def test_gradients_of_ibms_fixes(kind: str, routing: EM) -> None:
    torch.manual_seed(20)
    routing = replace(routing, variance_floor=1e-2)
    layer: Layer
    layer = ClassCapsules(2, 2, routing=routing) if kind == "class" else ConvolutionalCapsules(2, 2, 2, routing=routing)
    prepared(layer)
    names = [name for name, _ in layer.named_parameters()]

    def call(poses: Tensor, active: Tensor, *weights: Tensor) -> tuple[Tensor, Tensor]:
        return tuple(functional_call(layer, dict(zip(names, weights, strict=True)), (poses, active)))

    inputs = [*random_children(1, 2, 3, 2, 3), *layer.parameters()]
    assert torch.autograd.gradcheck(call, [value.detach().requires_grad_() for value in inputs], fast_mode=True)


@competitions
@pytest.mark.parametrize("stride", [1, 2])
@LAWS
@given(seed=SEEDS, parents=st.integers(1, 5), kernel=st.integers(1, 3))
def test_the_shares_of_a_child_sum_to_one(competition: str, stride: int, seed: int, parents: int, kernel: int) -> None:
    """With one child active at a time, the mass that all parents receive is the sum of its shares."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    window = Window(kernel, kernel, stride)
    children = 2 * 4 * 4
    grid = window.positions(4, 4)
    one_each = torch.eye(children, dtype=torch.float64).view(children, 2, 4, 4)
    poses = random(1, 2, 3, 4, 4).expand(children, -1, -1, -1, -1)
    votes = Votes(poses, one_each, random(window.places, 2, parents, 3, 3), window, competition=competition)
    shape = (parents, 3, *grid)
    logit = random(1, parents, *grid).expand(children, -1, -1, -1)
    look = Parents(random(1, *shape).expand(children, *shape), random(1, *shape).exp().expand(children, *shape), logit)
    seen = F.unfold(one_each, kernel, stride=stride).sum(1)
    for moments in (votes.uniform(), votes.under(look)):
        given_away = moments.mass.sum(1).flatten(1)
        if competition == "position":
            torch.testing.assert_close(given_away, seen)
        else:
            torch.testing.assert_close(given_away.sum(1), seen.amax(1))


@competitions
@activations
@LAWS
@given(seed=SEEDS, steps=st.integers(1, 3))
def test_order_of_children_images_and_parents(activation: str, competition: str, seed: int, steps: int) -> None:
    torch.manual_seed(seed)
    layer = prepared(ConvolutionalCapsules(4, 3, 2, routing=EM(steps, activation, competition)))
    poses, active = random_children(3, 4, 3, 3, 4)
    children, parents, images = torch.randperm(4), torch.randperm(3), torch.randperm(3)
    other = copy.deepcopy(layer)
    for parameter in other.maps.parameters():
        parameter.data = parameter.data[:, children][:, :, parents]
    for parameter in other.routing.parameters():
        parameter.data = parameter.data[parents]
    expected, found = layer(poses, active), other(poses[images][:, children], active[images][:, children])
    torch.testing.assert_close(found.poses, expected.poses[images][:, parents])
    torch.testing.assert_close(found.activations, expected.activations[images][:, parents])


def set_rotors(layer: Layer, rotors: Tensor) -> None:
    vector = rotors[..., 1:]
    layer.maps.angle.data = torch.atan2(vector.norm(dim=-1), rotors[..., 0])
    layer.maps.axis.data = vector


@LAWS
@given(seed=SEEDS)
def test_turning_the_children_back_and_forth_changes_nothing(seed: int) -> None:
    """u → g u g* and w → w g* leave every vote w u w* as it was."""
    torch.manual_seed(seed)
    layer = prepared(ConvolutionalCapsules(3, 4, 2))
    poses, active = random_children(2, 3, 3, 3, 3)
    expected = layer(poses, active)
    turn = quaternion.normalise(torch.randn(4, dtype=torch.float64))
    rotors = quaternion.rotor(layer.maps.angle, layer.maps.axis).detach()
    set_rotors(layer, quaternion.product(rotors, quaternion.conjugate(turn)))
    found = layer(quaternion.rotate(turn, poses.movedim(2, -1)).movedim(-1, 2), active)
    torch.testing.assert_close(found.poses, expected.poses)
    torch.testing.assert_close(found.activations, expected.activations)


@LAWS
@given(seed=SEEDS, axis=st.integers(0, 2))
def test_a_quarter_turn_of_all_votes_turns_the_parents(seed: int, axis: int) -> None:
    """w → g w turns every vote by g. Variances along the axes follow only turns that permute the axes."""
    torch.manual_seed(seed)
    layer = prepared(ConvolutionalCapsules(3, 4, 2))
    children = random_children(2, 3, 3, 3, 3)
    expected = layer(*children)
    quarter = quaternion.rotor(torch.tensor(math.pi / 4, dtype=torch.float64), torch.eye(3, dtype=torch.float64)[axis])
    set_rotors(layer, quaternion.product(quarter, quaternion.rotor(layer.maps.angle, layer.maps.axis).detach()))
    found = layer(*children)
    torch.testing.assert_close(found.poses.movedim(2, -1), quaternion.rotate(quarter, expected.poses.movedim(2, -1)))
    torch.testing.assert_close(found.activations, expected.activations)


@LAWS
@given(seed=SEEDS, factor=st.floats(1e-6, 1.0))
def test_a_common_factor_on_activations_leaves_the_first_mean(seed: int, factor: float) -> None:
    torch.manual_seed(seed)
    layer = prepared(ConvolutionalCapsules(3, 2, 2, routing=EM(1)))
    poses, active = random_children(1, 3, 3, 3, 3)
    torch.testing.assert_close(layer(poses, factor * active).poses, layer(poses, active).poses)


@competitions
@LAWS
@given(seed=SEEDS, steps=st.integers(1, 4), children=st.integers(1, 3))
def test_a_parent_lies_among_its_votes(competition: str, seed: int, steps: int, children: int) -> None:
    torch.manual_seed(seed)
    layer = prepared(ConvolutionalCapsules(children, 3, 2, routing=EM(steps, competition=competition)))
    poses, active = random_children(1, children, 3, 2, 2)
    votes = torch.einsum("okjab,kbo->jako", layer.maps(), poses[0].flatten(2)).flatten(2)
    mean = layer(poses, active).poses[0, :, :, 0, 0]
    assert (votes.amin(-1) - 1e-12 <= mean).all()
    assert (mean <= votes.amax(-1) + 1e-12).all()


def test_a_parent_sees_nothing_outside_its_window() -> None:
    torch.manual_seed(7)
    layer = prepared(ConvolutionalCapsules(2, 3, 3, 2))
    poses, active = random_children(1, 2, 3, 7, 6)
    whole = layer(poses, active)
    assert whole.activations.shape == (1, 3, 3, 2)
    for row, column in itertools.product(range(3), range(2)):
        down, right = slice(2 * row, 2 * row + 3), slice(2 * column, 2 * column + 3)
        alone = layer(poses[..., down, right], active[..., down, right])
        torch.testing.assert_close(alone.poses[..., 0, 0], whole.poses[..., row, column])
        torch.testing.assert_close(alone.activations[..., 0, 0], whole.activations[..., row, column])


@pytest.mark.parametrize(("stride", "same"), [(1, False), (2, True), (3, True)])
def test_the_scopes_of_competition_differ_only_where_windows_overlap(stride: int, same: bool) -> None:
    torch.manual_seed(8)
    layer = prepared(ConvolutionalCapsules(2, 3, 2, stride))
    children = random_children(1, 2, 3, 6, 6)
    near = layer(*children).poses
    layer.competition = "all"
    assert torch.allclose(layer(*children).poses, near) is same


degenerate_cases = pytest.mark.parametrize(
    "case",
    [
        *("equal votes", "zero poses", "zero axes", "zero angles", "one child", "one parent"),
        *("no activation", "full activation", "faint activation", "a single active child"),
        *("poses of 1e-40", "poses of 1e-30", "poses of 1e6", "poses of 1e18", "poses of 1e30", "poses of 3e38"),
        *("one far pose", "betas of 1e18", "betas of -1e18", "axes of 1e-40", "axes of 1e30"),
    ],
)


@dtypes
@activations
@competitions
@degenerate_cases
def test_degenerate_input_stays_finite(case: str, competition: str, activation: str, dtype: torch.dtype) -> None:
    assert_finite(EM(3, activation, competition), case, dtype)


@dtypes
@pytest.mark.parametrize("name", ["one child", "mass", "all", "all but competition"])
@degenerate_cases
def test_degenerate_input_stays_finite_with_ibms_fixes(case: str, name: str, dtype: torch.dtype) -> None:
    assert_finite(replace(IBM_FIXES[name], iterations=3), case, dtype)


def assert_finite(routing: EM, case: str, dtype: torch.dtype) -> None:
    """Values and gradients of a layer under degenerate input."""
    torch.manual_seed(9)
    children = 1 if case == "one child" else 3
    parents, kernel = (1, 2) if case == "one parent" else (4, 1 if case == "one child" else 2)
    layer = prepared(ConvolutionalCapsules(children, parents, kernel, routing=routing), dtype)
    poses, active = random_children(2, children, 3, 3, 4, dtype)
    subject, _, size = case.partition(" of ")
    with torch.no_grad():
        if subject == "poses":
            poses = poses.sign() * float(size)
        elif subject == "betas":
            layer.routing.beta_u.fill_(float(size))
            layer.routing.beta_a.copy_(float(size) * torch.tensor([1.0, -1.0, 0.5, 0.0]))
        elif subject == "axes" or case == "zero axes":
            layer.maps.axis.mul_(float(size or 0))
        elif case in ("equal votes", "zero angles"):
            layer.maps.angle.zero_()
            poses = torch.ones_like(poses) if case == "equal votes" else poses
        elif case == "zero poses":
            poses.zero_()
        elif case == "no activation":
            active.zero_()
        elif case == "full activation":
            active.fill_(1)
        elif case == "faint activation":
            active.mul_(1e-30)
        elif case == "a single active child":
            active.zero_()[:, 0, 1, 1] = 1
        elif case == "one far pose":
            poses[:, 0, 0, 1, 1] = 1e6
    poses.requires_grad_()
    active.requires_grad_()
    found = layer(poses, active)
    (found.poses.sum() + found.activations.square().sum()).backward()
    for name, value in (("poses", poses), ("activations", active), *layer.named_parameters()):
        assert value.grad is not None, name
        assert value.grad.isfinite().all(), name
    assert found.poses.isfinite().all()
    assert ((found.activations >= 0) & (found.activations <= 1)).all()


@dtypes
def test_equal_votes_are_the_parent(dtype: torch.dtype) -> None:
    layer = ConvolutionalCapsules(3, 2, 2, routing=EM(3)).to(dtype)
    nn.init.zeros_(layer.maps.angle)
    pose = torch.tensor([0.5, -2.0, 7.0], dtype=dtype)
    poses = pose[:, None, None].expand(1, 3, 3, 3, 3)
    parents = layer(poses, torch.rand(1, 3, 3, 3, dtype=dtype))
    torch.testing.assert_close(parents.poses, pose[:, None, None].expand(1, 2, 3, 2, 2))


def test_the_only_active_child_is_the_parent() -> None:
    """Its vote is the mean, the variance is the floor, and the activation follows from both."""
    torch.manual_seed(10)
    layer = ConvolutionalCapsules(3, 1, 2, routing=EM(2, "logistic", variance_floor=0.25)).double()
    poses, active = random_children(1, 3, 3, 2, 2)
    active = torch.zeros_like(active)
    active[0, 1, 1, 0] = 0.5
    parent = layer(poses, active)
    torch.testing.assert_close(parent.poses[0, 0, :, 0, 0], layer.maps()[2, 1, 0] @ poses[0, 1, :, 1, 0])
    cost = 3 * math.log(math.sqrt(0.25)) * 0.5
    expected = 1 / (1 + math.exp(0.01 * (1 - 0.95**2) * cost))
    assert parent.activations.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("size", [1e18, 3e38, math.inf])
def test_poses_out_of_range_are_taken_as_the_limit(size: float) -> None:
    torch.manual_seed(11)
    layer = prepared(ConvolutionalCapsules(2, 3, 2), torch.float32)
    poses, active = random_children(1, 2, 3, 2, 2, torch.float32)
    far, limit = layer(poses.sign() * size, active), layer(poses.sign() * POSE_LIMIT, active)
    torch.testing.assert_close(far.poses, limit.poses, rtol=0, atol=0)


@activations
@competitions
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_single_precision_is_close_to_double(steps: int, competition: str, activation: str) -> None:
    torch.manual_seed(12)
    layer = prepared(ConvolutionalCapsules(8, 5, 3, routing=EM(steps, activation, competition)), torch.float32)
    children = random_children(2, 8, 3, 6, 7, torch.float32)

    def values_and_gradients(layer: nn.Module, dtype: torch.dtype) -> list[Tensor]:
        inputs = [value.to(dtype, copy=True).requires_grad_() for value in children]
        parents = layer(*inputs)
        loss = parents.poses.square().sum() + 100 * parents.activations.square().sum()
        return [*parents, *torch.autograd.grad(loss, [*inputs, *layer.parameters()])]

    found = values_and_gradients(layer, torch.float32)
    exact = values_and_gradients(copy.deepcopy(layer).double(), torch.float64)
    errors = [((one - other).norm() / other.norm()).item() for one, other in zip(found, exact, strict=True)]
    assert max(errors) < 1e-5


@pytest.mark.parametrize("steps", [1, 2])
def test_variances_survive_cancellation(steps: int) -> None:
    """Votes of 1000 ± 0.01: the mean square less the squared mean would lose the variance in single precision."""
    torch.manual_seed(13)
    layer = ConvolutionalCapsules(8, 3, 3, routing=EM(steps, "logistic", variance_floor=1e-8))
    nn.init.zeros_(layer.maps.angle)
    nn.init.constant_(layer.routing.beta_u, 4.0)
    poses, active = random_children(1, 8, 3, 3, 3, torch.float32)
    poses = 1000 + 0.01 * poses
    found = layer(poses, active).activations
    exact = copy.deepcopy(layer).double()(poses.double(), active.double()).activations
    logit, exact_logit = torch.logit(found.double()), torch.logit(exact)
    torch.testing.assert_close(logit, exact_logit, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", [ConvolutionalCapsules, ClassCapsules])
def test_half_precision_input_is_computed_in_single(kind: type[Layer], dtype: torch.dtype) -> None:
    torch.manual_seed(14)
    layer = prepared(kind(3, 4), torch.float32)
    poses, active = (value.to(dtype) for value in random_children(2, 3, 3, 5, 5))
    expected = layer(poses.float(), active.float())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = layer(poses, active)
    for found in (layer(poses, active), mixed):
        assert found.poses.dtype is found.activations.dtype is torch.float32
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_betas_start_at_zero() -> None:
    routing = EM().module(7)
    assert {name: value.shape for name, value in routing.named_parameters()} == {"beta_u": (7,), "beta_a": (7,)}
    assert not any(value.any() for value in routing.parameters())


def test_drawn_betas() -> None:
    """β_a from a normal distribution of −1000 ± 500 cut at two deviations, which leaves a deviation of 440; β_u uniform
    within ±√(6/(J + 1))."""
    torch.manual_seed(21)
    routing = EM_IBM.module(20000)
    limit = math.sqrt(6 / 20001)
    assert routing.beta_a.mean().item() == pytest.approx(-1000, abs=20)
    assert routing.beta_a.std().item() == pytest.approx(440, abs=15)
    assert -2000 <= routing.beta_a.min() < -1950
    assert -50 < routing.beta_a.max() <= 0
    assert routing.beta_u.abs().max().item() == pytest.approx(limit, rel=1e-2)
    assert routing.beta_u.std().item() == pytest.approx(limit / math.sqrt(3), rel=5e-2)
    of_two = torch.stack([EM_IBM.module(2).beta_u for _ in range(300)])
    assert of_two.abs().max().item() == pytest.approx(math.sqrt(6 / 3), rel=1e-2)


def test_betas_of_the_qcn_authors_code() -> None:
    torch.manual_seed(22)
    for betas in EM(betas="uniform").module(20000).parameters():
        assert 0 <= betas.min() < 1e-3 < 0.999 < betas.max() <= 1
        assert betas.mean().item() == pytest.approx(0.5, abs=0.02)
    lowered = EM(betas="lowered").module(3)
    assert lowered.beta_u.tolist() == [-8, -8, -8]
    assert not lowered.beta_a.any()


def test_lowered_betas_do_what_a_number_without_variance_does() -> None:
    """Poses of three numbers and a fourth that is rounding, as in the QCN authors' code: the floor of 1e-21 is what
    rounding leaves there, and its ½ ln 1e-21 = −24.2 is what three betas of −8 add."""
    torch.manual_seed(23)
    mass, variance = 5 * torch.rand(2, 4, 2, 2).double(), torch.rand(2, 4, 3, 2, 2).double()
    noise = torch.full((2, 4, 1, 2, 2), math.exp(-48.0)).double()
    zero, lowered = torch.zeros(4).double(), EM(betas="lowered").module(4).beta_u.detach().double()
    expected = activation_logit(mass, torch.cat([noise, variance], 2), zero, zero, 0.01)
    torch.testing.assert_close(activation_logit(mass, variance, lowered, zero, 0.01), expected)


def test_ibms_routing_is_named() -> None:
    assert EM(2, "logistic", "all", 1e-9, "normalised", "damped", "drawn") == EM_IBM


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"iterations": 0}, "0 routing iterations: at least 1"),
        ({"activation": "normalised"}, "unknown activation 'normalised': did you mean 'normalized'"),
        ({"competition": "positon"}, "unknown competition 'positon': did you mean 'position'"),
        ({"mass": "normalized"}, "unknown mass 'normalized': did you mean 'normalised'. Known: normalised, summed"),
        ({"one_child": "damp"}, "unknown treatment of one child 'damp': did you mean 'damped'. Known: damped, floored"),
        (
            {"betas": "zeros"},
            "unknown start of the betas 'zeros': did you mean 'zero'. Known: drawn, lowered",
        ),
        ({"contrast": 0.0}, "contrast = 0.0: it must be above 0"),
        ({"activation": "logistic", "contrast": 2.0}, "contrast = 2.0 with logistic activations"),
        ({"variance_floor": 0.0}, "variance floor of 0.0: it must be at least 1e-12"),
        ({"variance_floor": math.inf}, "variance floor of inf: .* finite"),
        ({"variance_floor": math.nan}, "variance floor of nan"),
    ],
)
def test_settings_that_cannot_be(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(QuatcapsError, match=message):
        EM(**wrong)


def test_an_unknown_backend_and_competition() -> None:
    poses, active = random_children(1, 1, 3, 2, 2)
    maps = torch.eye(3, dtype=torch.float64).expand(4, 1, 1, 3, 3)
    with pytest.raises(QuatcapsError, match="unknown routing backend 'refrence': did you mean 'reference'"):
        Votes(poses, active, maps, Window(2, 2), backend="refrence")
    with pytest.raises(QuatcapsError, match="unknown competition 'everyone'"):
        Votes(poses, active, maps, Window(2, 2), competition="everyone")


@pytest.mark.parametrize("iterations", [1, 3])
@pytest.mark.parametrize("competition", ["position", "all"])
def test_an_isotropic_variance_follows_the_procedure(competition: str, iterations: int) -> None:
    torch.manual_seed(23)
    routing = EM(iterations, "logistic", competition, variance="isotropic")
    assert_as_in_the_box(prepared(ConvolutionalCapsules(2, 3, 2, routing=routing)), random_children(2, 2, 3, 3, 4))


def test_formed_votes_and_assignments_are_what_the_sums_sum() -> None:
    """Σ_i a_i r_ij v_ij / Σ_i a_i r_ij from single votes is the mean that the routing gets."""
    torch.manual_seed(24)
    poses, active = random_children(2, 3, 16, 4, 5)
    maps = torch.randn(4, 3, 5, 4, 4, dtype=torch.float64)
    seen = F.unfold(active, 2).view(2, 3, 4, 12).transpose(1, 2).reshape(2, 12, 3, 4)
    for competition in ("position", "all"):
        votes = Votes(poses, active, maps, Window(2, 2), competition=competition)
        formed = votes.formed()
        assert formed.shape == (2, 12, 5, 16, 3, 4)
        parents = Parents(votes.uniform().mean, torch.rand(2, 5, 16, 3, 4).double(), torch.randn(2, 5, 3, 4).double())
        for shares, moments in (
            (votes.assignments(), votes.uniform()),
            (votes.assignments(parents), votes.under(parents)),
        ):
            given = shares * seen[:, :, None]
            torch.testing.assert_close(given.sum(1), moments.mass)
            mean = (given[:, :, :, None] * formed).sum(1) / given.sum(1)[:, :, None]
            torch.testing.assert_close(mean, moments.mean)
