"""Trained networks under attack: through their preprocessing, by their votes, with signs of masked gradients."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from quatcaps.data.imageset import ImageSet
from quatcaps.data.preprocessing import for_evaluation
from quatcaps.errors import QuatcapsError
from quatcaps.layers import use_backend
from quatcaps.layers.fused import trunk
from quatcaps.layers.residual import ResidualTrunk
from quatcaps.models import build
from quatcaps.models.logits import Logits
from quatcaps.models.network import Network
from quatcaps.robustness import (
    Attacked,
    Distances,
    Effort,
    Victim,
    attack,
    fgsm,
    projected_ascent,
    some_images,
    trials,
    under_attack,
    victims,
)
from quatcaps.robustness.attacks import ATTACKS, NEAREST, WITHIN, Within, check_attacks
from quatcaps.robustness.balls import Radius
from quatcaps.robustness.chance import Chance, Randomness
from quatcaps.robustness.masking import Sign, in_words, judged
from quatcaps.robustness.objectives import of_scores, with_gradient
from quatcaps.robustness.trials import Counter, Trial, pixels_of, with_effort
from quatcaps.robustness.victims import agreement, whole_batch
from quatcaps.training.config import TrainingConfig
from quatcaps.training.trained import Trained

CPU = torch.device("cpu")
TINY = {"primary": 4, "pose_blocks": ((8, 2), (8, 2)), "activation_blocks": ((8, 4),), "capsules": ((4, 3, 2),)}
NAMES = ("one", "two", "three", "four")
PIPELINES = (
    {"standardise": "view", "image_size": 32, "crop": 28},
    {"standardise": "channel", "mean": (0.4,), "deviation": (0.25,), "image_size": 32, "crop": 0},
    {"standardise": "none", "image_size": 32, "crop": 28},
    {"standardise": "view", "image_size": 32, "crop": 28, "standardise_from": "whole"},
)


def victim(pipeline: dict[str, object] = PIPELINES[0], network: Network | None = None, classes: int = 3) -> Victim:
    network = network or build("qcn", channels=2, classes=classes, seed=0, **TINY)
    config = TrainingConfig(score_scale=10.0, **pipeline)
    return Victim(Trained("tiny", network.eval(), config, 2, NAMES[:classes], (32, 32)))


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_scores_are_those_of_evaluation(pipeline: dict[str, object], noise_images: ImageSet) -> None:
    """Bytes as evaluation takes them, and the same as parts of 255."""
    chosen = victim(pipeline)
    stored = noise_images.at(slice(0, 4))
    with torch.no_grad():
        wanted = chosen.trained.network(for_evaluation(chosen.pipeline, stored)).activations
        for pixels in (stored.float() / 255, pixels_of(noise_images, [chosen], CPU)[:4]):
            torch.testing.assert_close(chosen(pixels), 10 * wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_a_change_by_a_deviation_is_one_of_the_input(pipeline: dict[str, object], noise_images: ImageSet) -> None:
    chosen = victim(pipeline)
    pixels = noise_images.at(slice(0, 3)).float() / 255
    change = torch.zeros_like(pixels)
    change[:, :, 16, 16] = 1e-3
    moved = chosen.seen(pixels + chosen.deviations(pixels) * change) - chosen.seen(pixels)
    torch.testing.assert_close(moved.amax((2, 3)), torch.full((3, 2), 1e-3), rtol=0.02, atol=1e-5)


def test_gradients_go_through_the_preprocessing(noise_images: ImageSet) -> None:
    chosen = victim()
    pixels, labels = noise_images.at(slice(0, 2)).float() / 255, noise_images.labels[:2]
    with under_attack(chosen):
        values, gradient = with_gradient(lambda x, y: (chosen(x)[:, 0], chosen(x)), pixels, labels)  # type: ignore
        step = torch.zeros_like(pixels)
        place = (0, 0, *divmod(int(gradient[0, 0].abs().argmax()), 32))
        step[place] = 1e-2
        slope = float((chosen(pixels + step) - chosen(pixels - step))[0, 0]) / 2e-2
    assert slope == pytest.approx(float(gradient[place]), rel=0.1)
    assert gradient[:, :, :2].eq(0).all()  # outside the window
    assert len(values.losses) == 2


def test_weights_are_as_before_after_an_attack(noise_images: ImageSet) -> None:
    chosen = victim()
    network = chosen.trained.network.train()
    with under_attack(chosen):
        assert not network.training
        assert not any(weight.requires_grad for weight in network.parameters())
    assert network.training
    assert all(weight.requires_grad for weight in network.parameters())


def test_the_vote_attack_raises_its_loss(noise_images: ImageSet) -> None:
    chosen = victim()
    pixels, labels = pixels_of(noise_images, [chosen], CPU)[:12], noise_images.labels[:12]
    objective = chosen.votes()
    with under_attack(chosen):
        before = objective(pixels, labels)
        torch.testing.assert_close(before.scores, chosen(pixels))
        found = projected_ascent(objective, pixels, labels, 0.03, steps=5, stop=False)
        after = objective(found, labels)
        unrouted, routed = agreement(chosen.trained.network, chosen.seen(pixels))  # type: ignore[arg-type]
    assert (after.losses > before.losses).all()
    assert (found - pixels).abs().max() <= 0.03 + 1e-6
    assert not torch.allclose(unrouted, routed)  # routing has two iterations, and the votes none


def test_no_capsules_no_votes() -> None:
    plain = victim(network=build("cnn-small", channels=2, classes=3, seed=0))
    assert not plain.has_votes
    with pytest.raises(QuatcapsError, match=r"tiny is a SmallCNN without class capsules.*give a capsule network"):
        check_attacks(["vote"], [plain])
    check_attacks(["vote"], [plain, victim()])
    with pytest.raises(
        QuatcapsError, match="apgd-t with 3 classes: its DLR loss needs at least 4; give apgd-ce or fab-t"
    ):
        check_attacks(["fab-t", "autoattack", "apgd-t"], [plain])
    with pytest.raises(QuatcapsError, match="unknown attack 'pdg': did you mean 'pgd'"):
        check_attacks(["pdg"], [plain])
    with pytest.raises(QuatcapsError, match="no attack was given: give some of fgsm"):
        check_attacks([], [plain])
    with pytest.raises(QuatcapsError, match="0 steps: at least 1 is needed"):
        Effort(steps=0)


def test_some_images_are_balanced_and_follow_from_the_seed(noise_images: ImageSet) -> None:
    first, again, other = (some_images(noise_images, 20, seed) for seed in (0, 0, 1))
    assert sorted(first.labels.bincount().tolist()) == [6, 7, 7]
    assert torch.equal(first.images, again.images)
    assert not torch.equal(first.images, other.images)
    assert len(some_images(noise_images, 1000)) == len(noise_images)
    few = noise_images.select(torch.tensor([0, 1, 3, 4, 6, 9, 12]))
    assert some_images(few, 4).labels.bincount().tolist() == [2, 2]


@pytest.mark.usefixtures("unchecked")
def test_all_attacks_on_a_network(noise_images: ImageSet) -> None:
    chosen = victim(classes=4)
    with torch.no_grad():
        labels = torch.cat([chosen(part.float() / 255).argmax(1) for part in noise_images.images.split(30)])
    images = some_images(replace(noise_images, labels=labels, classes=NAMES), 6)
    effort = Effort(steps=1, queries=2)
    names = tuple(WITHIN)  # the others take hundreds of gradients
    options = {"epsilons": (0.1, 0.02), "effort": effort, "attacks": names}
    found = attack(chosen.trained, images, CPU, **options)  # type: ignore[arg-type]
    only = {**options, "attacks": ("pgd", "square"), "masking": False}
    again = attack(chosen.trained, images, CPU, **only)  # type: ignore[arg-type]
    assert again.within == {name: found.within[name] for name in ("pgd", "square")}
    assert found.clean.errors == 0
    assert found.epsilons == (0.02, 0.1)
    assert list(found.within) == list(WITHIN)
    assert found.nearest == {}
    assert (*WITHIN, *NEAREST) == ATTACKS
    for rates in found.within.values():
        for one, all_of_them in zip(rates, found.strongest, strict=True):
            assert 0 <= one.errors <= all_of_them.errors <= 6
    assert found.strongest[1].errors > 0
    assert found.success(found.strongest[1]) == found.strongest[1].percent
    value = found.to_json()
    assert Attacked.from_json(json.loads(json.dumps(value))) == found
    assert [each["epsilon"] for each in value["attacks"]["pgd"]] == [0.02, 0.1]
    assert {sign.check for sign in found.signs} >= {"gradients", "large ε", "more steps", "black box", "votes"}


class Stepped(Network):
    """Scores that change by steps: a gradient of 0 everywhere, as of a network whose gradients are masked."""

    def __init__(self, smooth: bool = False, classes: int = 3) -> None:
        super().__init__(2, classes)
        self.plain, self.smooth = torch.nn.Linear(2, classes, bias=False), smooth

    def forward(self, images: Tensor) -> Logits:
        scores = self.plain(images.mean((2, 3)) - 0.5)
        return Logits(scores if self.smooth else (1000 * scores).round() / 1000 + 0 * scores)


def test_masked_gradients_are_seen(noise_images: ImageSet) -> None:
    chosen = victim({"standardise": "none", "image_size": 32, "crop": 0}, Stepped())
    with torch.no_grad():
        labels = chosen(noise_images.images.float() / 255).argmax(1)
    images = replace(noise_images, labels=labels)
    options = {"epsilons": (0.1,), "effort": Effort(steps=2, queries=40), "attacks": ("pgd", "deepfool")}
    found = attack(chosen.trained, images, CPU, **options)  # type: ignore[arg-type]
    assert found.nearest["deepfool"] == Distances(0, 60, None, None)
    seen = {sign.check for sign in found.signs if sign.seen}
    assert {"gradients", "large ε"} <= seen
    assert "gradient masking: " in in_words(found.signs)
    assert "the loss of 100.0% of the images has no gradient" in in_words(found.signs)
    assert in_words([]) == "gradient masking was not looked for"


def test_a_plain_network_shows_no_sign(noise_images: ImageSet) -> None:
    chosen = victim({"standardise": "none", "image_size": 32, "crop": 0}, Stepped(smooth=True))
    with torch.no_grad():
        images = replace(noise_images, labels=chosen(noise_images.images.float() / 255).argmax(1))
    options = {"epsilons": (0.002, 0.1), "effort": Effort(steps=4, queries=10), "attacks": ("pgd", "deepfool")}
    found = attack(chosen.trained, images, CPU, **options)  # type: ignore[arg-type]
    assert in_words(found.signs) == "no sign of gradient masking in 7 looks"
    near = found.nearest["deepfool"]
    assert near.found == near.images == 60
    assert 0 < near.mean < 1  # type: ignore[operator]


def test_examples_of_another_network(noise_images: ImageSet) -> None:
    """Those of the network itself deceive it; a source of other images is refused."""
    chosen = victim(PIPELINES[2])
    pixels = pixels_of(noise_images, [chosen], CPU)
    with torch.no_grad():
        images = replace(noise_images, labels=chosen(pixels).argmax(1))
    options = {"epsilons": (0.1,), "attacks": ("fgsm",), "masking": False, "effort": Effort(steps=5)}
    found = attack(chosen.trained, images, CPU, source=chosen.trained, **options)  # type: ignore[arg-type]
    assert found.transfer["tiny"][0].errors > 0
    assert found.signs == ()
    with pytest.raises(QuatcapsError, match="tiny takes images of 28×28, tiny of 32×32: give a source"):
        attack(chosen.trained, images, CPU, source=replace(chosen.trained, size=(28, 28)), **options)  # type: ignore
    with pytest.raises(QuatcapsError, match="tiny has 1 channels and 3 classes"):
        attack(chosen.trained, images, CPU, source=replace(chosen.trained, channels=1), **options)  # type: ignore


def test_epsilon_in_units_of_the_input(noise_images: ImageSet) -> None:
    """ε in deviations: by image and channel where images are standardised one by one."""
    chosen = victim()
    pixels = pixels_of(noise_images, [chosen], CPU)[:6] * torch.linspace(0.2, 1, 6)[:, None, None, None]
    trial = Trial(chosen, pixels, noise_images.labels[:6], normalised=True)
    with under_attack(chosen):
        (made,) = trial.made("fgsm", lambda v, x, y, radius, _: fgsm(v, x, y, radius), (0.1,))
    moved = (made - pixels).abs().amax((2, 3))
    torch.testing.assert_close(moved, 0.1 * pixels.std((2, 3), correction=0), rtol=1e-3, atol=1e-6)
    with pytest.raises(QuatcapsError, match="ε = -1: it must be above 0 and finite"):
        attack(chosen.trained, noise_images, CPU, epsilons=(-1.0,), normalised=True)
    with pytest.raises(QuatcapsError, match="no ε was given"):
        attack(chosen.trained, noise_images, CPU, epsilons=())


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("name", "normalised"), [("bim", True), ("pgd", True), ("vote", False), ("autoattack", False)])
def test_batches_that_are_attacked_together_are_attacked_alike(
    name: str, normalised: bool, noise_images: ImageSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chance is that of each batch, whichever others stand beside it: of the same ε, or of another."""
    chosen = victim(classes=4)
    pixels = pixels_of(noise_images, [chosen], CPU)[:7]
    monkeypatch.setattr(trials, "BATCH", 3)
    with under_attack(chosen):
        trial = Trial(chosen, pixels, chosen(pixels).argmax(1), normalised=normalised)
        made = {}
        for at_once in (1, 5):
            monkeypatch.setattr(trials, "batches_at_once", lambda device, count=at_once: count)
            made[at_once] = trial.made(name, with_effort(name, Effort(2, 2, 4)), (0.01, 0.1))
    moved = [float((images - pixels).abs().amax()) for images in made[1]]
    assert 0 < moved[0] < moved[1]
    for alone, together in zip(made[1], made[5], strict=True):
        share = float(((together - alone).abs() > 1e-6).float().mean())
        assert share < 1e-3, "signs of gradients near 0 may differ, starts may not"


def test_fewer_are_attacked_at_once_where_memory_ends(noise_images: ImageSet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "BATCH", 2)
    monkeypatch.setattr(trials, "batches_at_once", lambda device: 16)
    tried, told = [], []

    def hungry(_: object, images: Tensor, labels: Tensor, radius: Tensor, chance: object) -> Tensor:
        tried.append(len(images))
        if len(images) > 4:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return images + radius

    pixels = torch.zeros(7, 2, 28, 28)
    trial = Trial(victim(), pixels, noise_images.labels[:7], counter=Counter(14, lambda done, _: told.append(done)))
    small, large = trial.made("hungry", hungry, (0.1, 0.2))
    torch.testing.assert_close(small, pixels + 0.1)
    torch.testing.assert_close(large, pixels + 0.2)
    assert tried == [14, 7, 4, 3, 4, 3]
    assert told[-1] == 14
    with pytest.raises(torch.OutOfMemoryError):
        trial.made("hungry", lambda *_: hungry(None, torch.zeros(5), *_[2:]), (0.1,))


def test_batches_are_filled_up_on_a_gpu(noise_images: ImageSet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are compiled for few numbers of images; scores and gradients are those of the images alone."""
    gpu = torch.device("cuda")
    assert [whole_batch(count, gpu) for count in (0, 1, 16, 17, 100, 2048)] == [0, 16, 16, 32, 128, 2048]
    assert whole_batch(17, CPU) == 17
    chosen, shown = victim(), []
    pixels, labels = pixels_of(noise_images, [chosen], CPU)[:3], noise_images.labels[:3]
    chosen.trained.network.register_forward_pre_hook(lambda _, given: shown.append(len(given[0])))
    with under_attack(chosen):
        for objective in (of_scores(chosen), chosen.votes()):
            alone = with_gradient(objective, pixels, labels)
            with monkeypatch.context() as patched:
                patched.setattr(victims, "whole_batch", lambda count, _: whole_batch(count, gpu))
                filled = with_gradient(objective, pixels, labels)
            torch.testing.assert_close(filled, alone, rtol=1e-4, atol=1e-5)
    assert shown == [3, 16], "the vote attack takes the network apart"


@pytest.mark.usefixtures("unchecked")
def test_autoattack_breaks_what_its_parts_break(noise_images: ImageSet) -> None:
    """Within an ε for each image; with three classes the targeted Auto-PGD is left out."""
    effort, radius = Effort(steps=3, queries=5), 0.0005 + 0.005 * torch.rand(9, 1, 1, 1)
    for classes, parts in ((4, ("apgd-ce", "apgd-t", "fab-t", "square")), (3, ("apgd-ce", "fab-t", "square"))):
        chosen = victim(PIPELINES[2], Stepped(smooth=True, classes=classes), classes)
        pixels = pixels_of(noise_images, [chosen], CPU)[:9]
        with under_attack(chosen):
            labels = chosen(pixels).argmax(1)
            broken = {}
            for name in ("autoattack", *parts):
                given = (radius, effort, torch.Generator().manual_seed(0))
                found = WITHIN[name](chosen, pixels, labels, *given)
                assert ((found - pixels).abs() <= radius + 1e-6).all()
                broken[name] = chosen(found).argmax(1) != labels
        assert 0 < broken["autoattack"].sum() < 9
        for name in parts:
            assert (broken[name] <= broken["autoattack"]).all(), name


def test_autoattack_goes_on_with_what_withstood(noise_images: ImageSet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parts are told apart by one image that each of them breaks."""
    chosen = victim(PIPELINES[2], Stepped(smooth=True, classes=4), 4)
    pixels, radius = pixels_of(noise_images, [chosen], CPU)[:9], torch.rand(9, 1, 1, 1)
    labels = chosen(pixels).argmax(1)
    other = pixels[labels != labels[0]][0]
    pixels, labels, seen = pixels[:1].repeat(9, 1, 1, 1), labels[:1].repeat(9), []

    def part(name: str) -> Within:
        def breaks_one(
            _: Victim, images: Tensor, __: Tensor, epsilon: Radius, ___: Effort, chance: Randomness
        ) -> Tensor:
            seen.append((name, epsilon.flatten().tolist(), chance.counts))
            return torch.cat([other[None], images[1:]])

        return breaks_one

    parts = ("apgd-ce", "apgd-t", "fab-t", "square")
    for name in parts:
        monkeypatch.setitem(WITHIN, name, part(name))
    chance = Chance([torch.Generator(), torch.Generator()], [2, 7])
    found = WITHIN["autoattack"](chosen, pixels, labels, radius, Effort(), chance)
    kept, counts = radius.flatten().tolist(), ([2, 7], [1, 7], [0, 7], [0, 6])
    assert seen == [(name, kept[k:], tuple(counts[k])) for k, name in enumerate(parts)]
    assert (chosen(found).argmax(1) != labels).tolist() == 4 * [True] + 5 * [False]
    for classes, names in ((3, ["apgd-ce", "fab-t", "square"]), (2, ["apgd-ce", "fab-t", "square"])):
        seen.clear()
        WITHIN["autoattack"](
            victim(PIPELINES[2], Stepped(classes=3), classes), pixels, labels, radius, Effort(), chance
        )
        assert [name for name, _, _ in seen] == names


@pytest.mark.parametrize(("model", "backend"), [("qcn", "native"), ("resnet-20", "triton")])
def test_who_judges_computes_as_the_gradient_does(
    model: str, backend: str, noise_images: ImageSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks run by kernels or in C where nobody wants gradients; next to a boundary that may be another class."""
    if backend == "triton":
        pytest.importorskip("triton")
    kernels: list[object] = []
    run = trunk.run
    monkeypatch.setattr(trunk, "run", lambda blocks, features: kernels.append(blocks) or run(blocks, features))
    settings: dict[str, object] = TINY if model == "qcn" else {"widths": (4, 8), "blocks": 1}
    under = victim(network=use_backend(build(model, channels=2, classes=3, seed=0, **settings), backend))
    pixels = noise_images.at(slice(0, 1)).float() / 255
    trunks = [module for module in under.trained.network.modules() if isinstance(module, ResidualTrunk)]
    convolutions = torch.backends.cudnn.conv  # type: ignore[attr-defined]
    before = convolutions.fp32_precision
    with under_attack(under):
        assert convolutions.fp32_precision == "ieee"
        alone = under(pixels)
        with torch.enable_grad():
            followed = under(pixels.requires_grad_())
        assert followed.requires_grad
        assert torch.equal(alone, followed)
        assert not kernels
    assert convolutions.fp32_precision == before
    assert trunks
    assert {each.backend for each in trunks} == {backend}
    if backend == "triton":
        with torch.no_grad():
            under.trained.network(under.seen(pixels))
        assert kernels, "in evaluation they run"


def test_one_image_of_twenty_is_not_more_than_five_percent() -> None:
    """Nor are its float32 digits."""
    base, more = torch.zeros(20, dtype=torch.bool), torch.arange(20) < 1
    assert judged("votes", "it", base, more) == Sign(
        "votes", seen=False, words="it broke 5.0% of the images beyond PGD"
    )
    assert judged("votes", "it", base, torch.arange(20) < 2).seen
