"""Whether gradients are masked: then attacks that follow them fail, and a network seems more robust than it is.

The looks are those of Athalye et al. 2018 and Carlini et al. 2019. Where something breaks more than a few images that
PGD left standing, PGD was misled or too short, and its errors are too low.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from quatcaps.robustness.attacks import Effort
from quatcaps.robustness.objectives import of_scores, with_gradient
from quatcaps.robustness.trials import BATCH, Trial, with_effort

FEW = 5.0
"""In % of the images: what may be broken beyond PGD before it counts as a sign."""
LARGE = 0.5
"""ε at which every image can be made plain grey: all of them must break."""
MANY_STEPS, MANY_STARTS = 5, 5
"""Times the steps of PGD, and random starts."""


@dataclass(frozen=True)
class Sign:
    """One look for masked gradients."""

    check: str
    seen: bool
    words: str


def looks(names: Sequence[str], epsilons: Sequence[float]) -> int:
    """How many attacks on all images the looks are, at most."""
    return 4 + sum(len(epsilons) for name in ("fgsm", "pgd") if name not in names)


def signs_of_masking(
    trial: Trial,
    broken: Mapping[str, Sequence[Tensor]],
    carried: Mapping[str, Sequence[Tensor]],
    epsilons: Sequence[float],
    effort: Effort,
) -> list[Sign]:
    """Looks for signs. broken, carried: which images (N,) each attack, and each other network's examples, broke at each
    ε; what is needed and is not among them is attacked here."""
    known = dict(broken)
    for name in ("fgsm", "pgd"):
        if name not in known:
            known[name] = trial.broken(name, with_effort(name, effort), epsilons)
    by_pgd = known["pgd"]
    half = min(range(len(epsilons)), key=lambda k: abs(percent(by_pgd[k]) - 50))
    epsilon, base = epsilons[half], by_pgd[half]

    def beyond(check: str, what: str, attack: str, harder: Effort) -> Sign:
        (more,) = trial.broken(f"{check}, masking", with_effort(attack, harder), (epsilon,), ~base)
        return judged(check, f"{what} at ε = {epsilon:g}", base, more)

    signs = [
        zero_gradients(trial),
        large_epsilon(trial, effort),
        *([growing(by_pgd, epsilons)] if len(epsilons) > 1 else []),
        largest("one step", "FGSM", by_pgd, known["fgsm"], epsilons),
        beyond(
            "more steps",
            f"PGD with {MANY_STEPS * effort.steps} steps",
            "pgd",
            replace(effort, steps=MANY_STEPS * effort.steps),
        ),
        beyond("random starts", f"PGD with {MANY_STARTS} more starts", "pgd", replace(effort, restarts=MANY_STARTS)),
        beyond("black box", f"the Square attack, {effort.queries:,} queries,", "square", effort),
    ]
    if "vote" in known:
        signs.append(largest("votes", "the vote attack", by_pgd, known["vote"], epsilons))
    for name, masks in carried.items():
        signs.append(largest("transfer", f"examples made on {name}", by_pgd, masks, epsilons))
    return signs


def judged(check: str, what: str, base: Tensor, more: Tensor) -> Sign:
    share = percent(more & ~base)
    return Sign(check, share > FEW, f"{what} broke {share:.1f}% of the images beyond PGD")


def largest(check: str, what: str, base: Sequence[Tensor], more: Sequence[Tensor], epsilons: Sequence[float]) -> Sign:
    """The ε at which something breaks most of what PGD left."""
    beyond = [int((extra & ~own).sum()) for own, extra in zip(base, more, strict=True)]
    most = max(range(len(beyond)), key=beyond.__getitem__)
    return judged(check, f"{what} at ε = {epsilons[most]:g}", base[most], more[most])


def zero_gradients(trial: Trial) -> Sign:
    """Images whose loss has no gradient at all give attacks nothing to follow."""
    parts = zip(trial.pixels.split(BATCH), trial.labels.split(BATCH), strict=True)
    flat = [with_gradient(of_scores(trial.victim), *part)[1].flatten(1).abs().amax(1) == 0 for part in parts]
    share = percent(torch.cat(flat))
    return Sign("gradients", share > FEW, f"the loss of {share:.1f}% of the images has no gradient")


def large_epsilon(trial: Trial, effort: Effort) -> Sign:
    """With an unbounded attack every image must break."""
    (wrong,) = replace(trial, normalised=False).broken("large ε", with_effort("pgd", effort), (LARGE,))
    share = percent(wrong)
    return Sign("large ε", share < 100 - FEW, f"PGD at ε = {LARGE:g} has an error of {share:.1f}%")


def growing(masks: Sequence[Tensor], epsilons: Sequence[float]) -> Sign:
    """The error must not fall where ε grows."""
    percents = [percent(mask) for mask in masks]
    fall = max(before - after for before, after in pairwise(percents))
    if fall <= 0:
        words = f"the error under PGD does not fall from ε = {epsilons[0]:g} to {epsilons[-1]:g}"
    else:
        words = f"the error under PGD falls by {fall:.1f} points where ε grows"
    return Sign("growing ε", fall > FEW, words)


def percent(mask: Tensor) -> float:
    """How many of some images (N,) a mask has, in %: of integers, as one of twenty in float32 is above 5%."""
    return 100 * int(mask.sum()) / len(mask)


def in_words(signs: Sequence[Sign]) -> str:
    """What the looks say together."""
    if not signs:
        return "gradient masking was not looked for"
    seen = [sign for sign in signs if sign.seen]
    if not seen:
        return f"no sign of gradient masking in {len(signs)} looks"
    told = "; ".join(f"{sign.check}: {sign.words}" for sign in seen)
    return f"gradient masking: {len(seen)} of {len(signs)} looks show a sign, so that errors may be too low ({told})"
