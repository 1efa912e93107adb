"""Networks to measure, as they are written on the command line: `NAME` or `NAME:SETTING=VALUE;SETTING=VALUE`."""

from __future__ import annotations

from quatcaps.errors import QuatcapsError
from quatcaps.layers import CapsuleLayer
from quatcaps.models import Network, build


def read_model(text: str) -> tuple[str, dict[str, str]]:
    """The name of a model and the settings to change, as text.

    >>> read_model("qcn:pose=free;capsules=[[16,3,2],[16,3,1]]")
    ('qcn', {'pose': 'free', 'capsules': '[[16,3,2],[16,3,1]]'})
    """
    name, colon, rest = text.partition(":")
    pairs = [part.partition("=") for part in rest.split(";")] if colon else []
    for setting, equals, value in pairs:
        if not (setting.strip() and equals and value.strip()):
            raise QuatcapsError(f"--model {text!r}: write it as NAME:SETTING=VALUE;SETTING=VALUE")
    return name.strip(), {setting.strip(): value.strip() for setting, _, value in pairs}


def build_model(text: str, *, channels: int, classes: int) -> Network:
    """The network so written, its weights drawn with seed 0; errors are those of `build`."""
    name, settings = read_model(text)
    return build(name, channels=channels, classes=classes, seed=0, **settings)


def check_model(text: str) -> None:
    """Raises unless there is such a network and it has capsules to route."""
    network = build_model(text, channels=1, classes=2)
    if not any(isinstance(module, CapsuleLayer) for module in network.modules()):
        raise QuatcapsError(f"{text} has no capsule layers: there is no routing to measure; choose another --model")
