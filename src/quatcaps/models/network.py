"""What every network is: what trainers, evaluation, benchmarks and weights may ask of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

import quatcaps
from quatcaps.errors import QuatcapsError


@runtime_checkable
class Output(Protocol):
    """What every network returns."""

    @property
    def activations(self) -> Tensor:
        """(N, classes) in [0, 1]: the largest names the class."""
        ...

    @property
    def scores(self) -> Tensor:
        """(N, classes): what cross-entropy reads."""
        ...


class Network(nn.Module):
    """(N, channels, height, width) images → an `Output`.

    A network of one's own derives from this, passes on how many channels and classes it has and the settings that
    shape it, and has a `forward`. `least_size` and `votes` are for those that know.

    class_names, preprocessing: of a trained network, what its classes are called, and what makes images of pictures;
    `quatcaps.load` sets both. model, changes: the name and the settings that `quatcaps.build` was given.
    """

    __call__: Callable[..., Output]
    class_names: tuple[str, ...] = ()
    preprocessing: Callable[[Any], Tensor] | None = None
    model: str = ""
    changes: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, channels: int, classes: int, settings: Any = None) -> None:
        super().__init__()
        self.channels, self.classes, self.settings = channels, classes, settings

    @property
    def least_size(self) -> int:
        """The side of the smallest square image that fits."""
        return 1

    def votes(self, height: int, width: int) -> int:
        """How many votes one image of that size casts, in all layers; 0 where there are no capsules."""
        return 0

    def preprocess(self, pictures: Any) -> Tensor:
        """(N, channels, height, width) float32 on the network's device, of one picture (N = 1) or several: paths,
        Pillow images, or arrays of bytes, of any size. `quatcaps.training.preprocess.Preprocessing` says how.

        >>> import numpy, quatcaps
        >>> network = quatcaps.load("qcn-cifar10")
        >>> activations = network(network.preprocess(numpy.zeros((60, 80, 3), numpy.uint8))).activations
        >>> network.class_names[activations.argmax()] in network.class_names
        True
        """
        if self.preprocessing is None:
            raise QuatcapsError(
                "this network was built, not loaded, and has no preprocessing: load a trained one with quatcaps.load, "
                "or set network.preprocessing"
            )
        return self.preprocessing(pictures).to(next(self.parameters()).device)

    def save(self, path: str | Path) -> Path:
        """Writes one .safetensors file that `quatcaps.load` reads back; see `quatcaps.save`.

        >>> import tempfile, quatcaps
        >>> network = quatcaps.build("qcn-small", channels=1, classes=3)
        >>> quatcaps.load(network.save(f"{tempfile.mkdtemp()}/mine.safetensors")).classes
        3
        """
        return quatcaps.save(self, path)

    def save_pretrained(self, folder: str | Path, **options: Any) -> Path:
        """Writes a folder as the Hugging Face Hub has it; see `quatcaps.save_pretrained`."""
        return quatcaps.save_pretrained(self, folder, **options)

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Uploads the network to the Hugging Face Hub; see `quatcaps.push_to_hub`."""
        return quatcaps.push_to_hub(self, repo_id, **options)

    @staticmethod
    def from_pretrained(source: str | Path, **options: Any) -> Network:
        """The network in a folder, or in a repository of the Hugging Face Hub; see `quatcaps.from_pretrained`."""
        return quatcaps.from_pretrained(source, **options)
