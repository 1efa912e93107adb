"""The model card of a repository on the Hugging Face Hub: what the network is, how to use it, and how well it does."""

from __future__ import annotations

import json
from typing import Any

from quatcaps.data.catalogue import DESCRIPTIONS
from quatcaps.report.tables import Table, percent
from quatcaps.weights.cards import Card
from quatcaps.weights.saved import Description

CARD = "card.json"


def page(description: Description, card: Card | None, name: str, licence: str) -> str:
    """Markdown below the Hub's metadata."""
    parts = [f"---\n{metadata(description, card, name, licence)}---\n", f"# {name.rpartition('/')[2]}\n"]
    parts += [introduction(description), use(description, name)]
    if card is not None:
        parts.append(figures(card))
    return "\n".join(parts)


def metadata(description: Description, card: Card | None, name: str, licence: str) -> str:
    """YAML, of which JSON is a part: no value of ours needs more."""
    if card is not None and not licence and card.licence.startswith("MIT") and "Licence of" not in card.licence:
        licence = "mit"  # where the images have a licence of their own, that is for the owner to say
    entries: dict[str, Any] = {
        "library_name": "quatcaps",
        "pipeline_tag": "image-classification",
        "tags": ["capsule-networks", "quaternions", description.model],
        **({"license": licence} if licence else {}),
    }
    if card is not None:
        entries["datasets"] = [card.dataset]
        entries["model-index"] = [{"name": name.rpartition("/")[2], "results": list(map(dict, results(card)))}]
    return "".join(f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in entries.items())


def results(card: Card) -> list[dict[str, Any]]:
    """The card's errors as the accuracies that the Hub lists."""
    title = DESCRIPTIONS[card.dataset].title if card.dataset in DESCRIPTIONS else card.dataset
    return [
        {
            "task": {"type": "image-classification"},
            "dataset": {"name": title, "type": card.dataset, "split": split},
            "metrics": [{"type": "accuracy", "value": round(1 - rate.errors / rate.images, 6)}],
        }
        for split, rate in card.error.items()
    ]


def introduction(description: Description) -> str:
    names = f": {', '.join(description.class_names)}" if description.class_names else ""
    size = "" if description.size is None else f", pictures are scaled to {description.size[0]}×{description.size[1]}"
    return (
        f"A network of quatcaps (Quaternion Capsule Networks in PyTorch), `{description.model}`, with "
        f"{description.parameters:,} parameters. It takes images of {description.channels} "
        f"{'channel' if description.channels == 1 else 'channels'}{size}, and tells "
        f"{description.classes} classes apart{names}.\n"
    )


def use(description: Description, name: str) -> str:
    lines = ["import quatcaps", "", f"network = quatcaps.from_pretrained({name!r})"]
    if description.config is not None:
        lines += [
            'capsules = network(network.preprocess("photo.png"))',
            "print(network.class_names[capsules.activations.argmax()])",
        ]
    code = "\n".join(lines).replace("'", '"')
    return f"## Use\n```\npip install 'quatcaps[hub]'\n```\n```python\n{code}\n```\n"


def figures(card: Card) -> str:
    errors = Table(
        "",
        ("images", "error (%)", "errors", "of"),
        tuple((name, percent(rate), f"{rate.errors:,}", f"{rate.images:,}") for name, rate in card.error.items()),
    )
    several = card.config.looked_at
    windows = f", by the mean activations of {several}, as `quatcaps.predict` takes them" if several else ""
    return (
        f"## Results on {card.dataset}\n{errors.markdown()}\n"
        f"Chosen: {card.chosen}. Measured on {card.measured_on}{windows}.\n\n"
        f"## Training\n```\n{card.command}\n```\n"
        f"{card.machine}, {card.seconds:,.0f} s. Data: {card.provenance or 'unknown'}.\n\n"
        f"## Licence\n{card.licence}\n\n`{CARD}` has all of this and the whole configuration.\n"
    )
