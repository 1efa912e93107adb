"""Whether images are the ones that a run, a record or weights were made with.

Images have a digest (`ImageSet.digest`), which says what they are wherever they lie. What was made from them keeps it
by name: `training`, `test`, `novel`. Where either side has none, as in files of earlier versions, nothing is compared.
"""

from __future__ import annotations

from collections.abc import Mapping

from quatcaps.data.imageset import ImageSet
from quatcaps.data.splits import Experiment
from quatcaps.errors import QuatcapsError

SHOWN = 12
"""Digits of a digest in messages."""


def images_by_name(experiment: Experiment) -> dict[str, ImageSet]:
    return {"training": experiment.training, **experiment.tests}


def digests_of(images: Mapping[str, ImageSet]) -> dict[str, str]:
    """The digests of images by name, without those that are unknown."""
    return {name: each.digest for name, each in images.items() if each.digest}


def difference(whose: str, provenance: str, known: Mapping[str, str], images: Mapping[str, ImageSet]) -> str | None:
    """What differs, in words, where some images are not those whose digests are `known`.

    whose: what was made, such as a run's folder; provenance: where its images came from, in words.
    """
    for name, each in images.items():
        digest = known.get(name, "")
        if digest and each.digest and digest != each.digest:
            return (
                f"{whose} was made with other {name} images ({told(provenance, digest)}) than are here "
                f"({each.name}: {told(each.source, each.digest)})"
            )
    return None


def check_same(whose: str, provenance: str, known: Mapping[str, str], experiment: Experiment, remedy: str) -> None:
    """Raises unless an experiment has the images whose digests are `known`."""
    differing = difference(whose, provenance, known, images_by_name(experiment))
    if differing is not None:
        raise QuatcapsError(f"{differing}: {remedy}")


def told(provenance: str, digest: str) -> str:
    return f"{provenance or 'provenance unknown'}, digest {digest[:SHOWN]}"
