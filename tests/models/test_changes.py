"""A routing is a value in a network's settings; the flat names that its fields had are still read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from quatcaps.capsules import Capsules
from quatcaps.errors import QuatcapsError
from quatcaps.models import MODELS, build, settings_of, stored_settings
from quatcaps.paper.recipes import paper
from quatcaps.poses import PoseType
from quatcaps.poses.free import FreeMaps
from quatcaps.routing import EM, EM_IBM, VB, Votes, register_routing
from quatcaps.routing.registry import RoutingPart
from quatcaps.training.start import checked

ROOT = Path(__file__).parents[2]
OWN_POSE = PoseType("mine", rows=1, columns=3, maps=FreeMaps)


@dataclass(frozen=True)
class Nearest:
    """A routing of one's own, with a field that has no default."""

    radius: float
    iterations: int = 1
    competition: str = "position"

    def module(self, parents: int) -> nn.Module:
        return NearestRouting(self.radius)


class NearestRouting(nn.Module):
    def __init__(self, radius: float) -> None:
        super().__init__()
        self.radius = radius

    def forward(self, votes: Votes) -> Capsules:
        moments = votes.uniform()
        return Capsules(moments.mean, (-moments.variance.mean(2) / self.radius).exp())


@pytest.mark.parametrize(
    ("name", "changes", "routing"),
    [
        ("qcn", {}, EM()),
        ("qcn", {"routing": EM(iterations=3)}, EM(iterations=3)),
        ("qcn", {"routing": {"name": "em", "iterations": 3}}, EM(iterations=3)),
        ("qcn", {"routing": '{"name": "em", "iterations": 3}'}, EM(iterations=3)),
        ("qcn", {"routing.iterations": "3"}, EM(iterations=3)),
        ("qcn", {"routing": "vb"}, VB()),
        ("qcn", {"routing": "vb", "routing.prior_scale": "2"}, VB(prior_scale=2.0)),
        ("qcn", {"routing.variance": "isotropic"}, EM(variance="isotropic")),
        ("qcn-logistic", {"routing.iterations": 3}, EM(iterations=3, activation="logistic")),
        ("qcn-logistic", {"routing": {"name": "em"}}, EM()),
        (
            "em",
            {"routing.contrast": 2, "routing.activation": "standardized"},
            EM(activation="standardized", contrast=2.0),
        ),
        ("em-ibm", {}, EM_IBM),
        ("em-ibm", {"routing": "em"}, EM_IBM),
        ("vb", {}, VB()),
        ("vb", {"routing.prior_mean": 1}, VB(prior_mean=1.0)),
    ],
)
def test_routings(name: str, changes: dict[str, Any], routing: object) -> None:
    assert settings_of(name, changes).routing == routing


@pytest.mark.parametrize(
    ("name", "changes", "routing"),
    [
        ("qcn", {"activation": "standardized", "contrast": 4, "iterations": 3}, EM(3, "standardized", contrast=4.0)),
        ("qcn", {"activation": "mixing", "routing": "vb"}, VB(2, "mixing", "position")),
        ("qcn", {"routing": "vb", "activation": "mass", "competition": "all"}, VB(2, "mass", "all")),
        ("em-ibm", {"routing": "vb", "activation": "mixing"}, VB(2, "mixing", "all")),
        ("vb", {"routing": "em", "activation": "logistic"}, EM(3, "logistic")),
        ("vb", {"routing": "vb", "iterations": 2}, VB(2)),
        ("em", {"routing": "em", "variance_floor": 1}, EM(activation="logistic", variance_floor=1.0)),
        (
            "qcn",
            {"betas": "drawn", "mass": "normalised", "one_child": "damped"},
            EM(mass="normalised", one_child="damped", betas="drawn"),
        ),
        ("vb", {"prior_scale": 3}, VB(prior_scale=3.0)),
        ("qcn", {"variance": "isotropic", "routing.iterations": 4}, EM(4, variance="isotropic")),
        ("qcn", {"routing": EM(4), "activation": "logistic"}, EM(4, "logistic")),
    ],
)
def test_flat_names_mean_what_they_meant(name: str, changes: dict[str, Any], routing: object) -> None:
    assert settings_of(name, changes).routing == routing


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("vb", {"contrast": 2}, "unknown setting of vb 'routing.contrast': .*routing.prior_scale"),
        ("qcn", {"routing.priors": 2}, "unknown setting of qcn 'routing.priors'.*Known: routing.activation"),
        ("qcn", {"prior_scale": 2}, "unknown setting of qcn 'prior_scale'.*Known: activation_blocks, branched"),
        ("qcn", {"routing": "bv"}, "unknown routing 'bv': did you mean 'vb'[?] Known: em, vb"),
        ("qcn", {"routing": {"iterations": 3}}, "its \"name\" is needed, one of em, vb"),
        ("qcn", {"routing": {"name": "vb", "radius": 3}}, "unknown setting of qcn 'routing.radius'"),
        ("qcn", {"routing": {"name": "vb", "iterations": "x"}}, "qcn routing.iterations = 'x': it must be a whole"),
        ("qcn", {"routing": '{"name": '}, "it is not JSON"),
        ("qcn", {"routing": 3}, "routing = 3: give a name"),
        ("qcn", {"routing": EM}, "give a name .*or settings such as EM"),
        ("qcn", {"iterations": 3, "routing.iterations": 3}, "iterations and routing.iterations were both given"),
        ("qcn", {"routing.iterations": 0}, "0 routing iterations"),
        ("qcn", {"pose": "rotors"}, "unknown pose 'rotors': did you mean 'rotor'"),
        ("qcn", {"pose": 3}, "setting of qcn pose = 3: give a name"),
        ("qcn", {"pose.rows": 3}, "setting of qcn pose.rows: a pose has no settings"),
        ("cnn", {"iterations": 3}, "unknown setting of cnn 'iterations'"),
    ],
)  # fmt: skip
def test_routings_that_cannot_be(name: str, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(QuatcapsError, match=words):
        settings_of(name, changes)


def test_objects_go_into_every_layer() -> None:
    network = build("qcn-small", channels=2, classes=5, pose=OWN_POSE, routing=Nearest(2.0))
    for layer in (*network.layers, network.classify):
        assert layer.pose is OWN_POSE
        assert layer.routing.radius == 2.0
    assert build("qcn-small", channels=2, classes=5, routing=VB(prior_scale=4.0)).classify.routing.settings == VB(
        prior_scale=4.0
    )


@pytest.mark.usefixtures("own_names")
def test_a_registered_routing_goes_by_name() -> None:
    register_routing("nearest", Nearest)
    assert settings_of("qcn", {"routing": "nearest", "routing.radius": "3"}).routing == Nearest(3.0)
    assert settings_of("qcn", {"routing": "nearest", "radius": 3, "iterations": 2}).routing == Nearest(3.0, 2)
    assert RoutingPart().write(Nearest(3.0)) == {"name": "nearest", "radius": 3.0}
    with pytest.raises(QuatcapsError, match=r"setting of qcn routing\.radius is not given, and nearest has no default"):
        settings_of("qcn", {"routing": "nearest"})


@pytest.mark.parametrize(
    ("name", "changes", "stored"),
    [
        ("qcn", {"iterations": "3"}, {"iterations": 3}),
        ("qcn", {"routing.iterations": "3"}, {"routing.iterations": 3}),
        ("qcn", {"routing": "vb", "activation": "mass"}, {"routing": "vb", "activation": "mass"}),
        ("qcn", {"routing": "vb", "routing.prior_scale": 2}, {"routing": "vb", "routing.prior_scale": 2.0}),
        ("qcn", {"routing": EM(3)}, {"routing": {"name": "em", "iterations": 3}}),
        ("qcn", {"routing": VB()}, {"routing": {"name": "vb"}}),
        ("qcn", {"routing": '{"name": "em", "contrast": 2}'}, {"routing": {"name": "em", "contrast": 2.0}}),
        ("qcn", {"pose": MODELS["qcn"].settings.pose}, {"pose": "quaternion"}),
        ("em", {"stem": None}, {"stem": None}),
    ],
)
def test_what_is_stored_goes_by_the_names_given(name: str, changes: dict[str, Any], stored: dict[str, Any]) -> None:
    config = checked(paper("smallnorb").changed({"model": name, "model_settings": changes}))
    assert config.model_settings == stored
    assert json.loads(json.dumps(stored)) == stored
    assert settings_of(name, stored) == settings_of(name, changes)
    assert stored_settings(name, "smallnorb", stored) == stored


def test_what_has_no_name_is_not_stored() -> None:
    with pytest.raises(QuatcapsError, match=r"the pose 'mine' is not registered.*quatcaps\.register_pose"):
        paper().changed({"model_settings": {"pose": OWN_POSE}})
    with pytest.raises(QuatcapsError, match=r"register_routing\(NAME, Nearest\)"):
        paper().changed({"model_settings": {"routing": Nearest(2.0)}})
    with pytest.raises(QuatcapsError, match=r"model setting primary = <object.*cannot be written to a file"):
        paper().changed({"model_settings": {"primary": object()}})


def test_the_settings_of_every_record_are_read_as_before() -> None:
    """Flat names in runs and on cards: each is what the built network has."""
    seen = set()
    for path in (*ROOT.glob("results/runs/**/*.json"), *ROOT.glob("src/quatcaps/weights/published/*.json")):
        values = json.loads(path.read_text())
        config = values.get("config", values.get("configuration"))
        settings = settings_of(config["model"], config["model_settings"])
        for name in ("iterations", "activation"):
            if name in config["model_settings"]:
                assert getattr(settings.routing, name) == config["model_settings"][name]
                seen.add(name)
    assert seen == {"iterations", "activation"}


def test_routings_survive_json() -> None:
    part = RoutingPart()
    for routing in (EM(), EM_IBM, VB(), VB(prior_freedom=3.0, batch_norm=False), EM(variance="isotropic")):
        text = json.dumps(part.write(routing))
        assert part.read(json.loads(text), {}, EM(), "") == part.read(text, {}, VB(), "") == routing


def test_a_routing_that_is_no_dataclass_can_be_given_and_not_changed_by_name() -> None:
    class Plain:
        iterations, competition = 1, "position"

        def module(self, parents: int) -> nn.Module:
            return NearestRouting(1.0)

    routing = Plain()
    assert settings_of("qcn", {"routing": routing}).routing is routing
    with pytest.raises(QuatcapsError, match=r"routing\.iterations: .* is no dataclass"):
        settings_of("qcn", {"routing": routing, "routing.iterations": 2})
