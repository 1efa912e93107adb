"""TF32: whether a GPU may round the factors of float32 products to 10 bits, in convolutions and in matrix products."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from quatcaps.errors import QuatcapsError, unknown_name

CHOICES = ("default", "on", "off", "both")
"""As PyTorch is set, in convolutions and matrix products, in neither, or once in both and once in neither."""


class TF32(NamedTuple):
    """Where it is allowed; a device that has none has None in place of this."""

    convolutions: bool
    products: bool

    @staticmethod
    def now() -> TF32:
        """As PyTorch is set."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # newer versions advise another name of the setting
            return TF32(bool(torch.backends.cudnn.allow_tf32), bool(torch.backends.cuda.matmul.allow_tf32))

    @property
    def cell(self) -> str:
        """For a table."""
        return {(True, True): "yes", (False, False): "no", (True, False): "conv."}.get(self, "products")

    @property
    def name(self) -> str:
        """For a list of what a row is."""
        return {"yes": "TF32", "no": "no TF32"}.get(self.cell, f"TF32 {self.cell}")

    @property
    def words(self) -> str:
        """What ends the sentence that begins with `TF32 was allowed`."""
        if self.convolutions == self.products:
            return "in convolutions and matrix products" if self.products else "nowhere"
        places = ("convolutions", "matrix products")
        here, elsewhere = places if self.convolutions else places[::-1]
        return f"in {here}, not in {elsewhere}"


def choices(asked: str, device: torch.device) -> tuple[TF32 | None, ...]:
    """What `--tf32` asks to measure on a device."""
    if asked not in CHOICES:
        raise unknown_name("choice of TF32", asked, CHOICES)
    if device.type != "cuda":
        if asked in ("on", "both"):
            raise QuatcapsError(f"--tf32 {asked} on the {device.type.upper()}: TF32 needs --device cuda")
        return (None,)
    ways = {"default": (TF32.now(),), "on": (TF32(True, True),), "off": (TF32(False, False),)}
    return (*ways["off"], *ways["on"]) if asked == "both" else ways[asked]


@contextlib.contextmanager
def as_training(tf32: TF32 | None) -> Iterator[None]:
    """Deterministic cuDNN kernels, as training has them, with TF32 where it is allowed."""
    wanted, before = tf32 or TF32.now(), TF32.now()
    with torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=wanted.convolutions):
        try:
            _allow_in_products(wanted.products)
            yield
        finally:
            _allow_in_products(before.products)


def _allow_in_products(allowed: bool) -> None:
    if allowed != TF32.now().products:
        torch.backends.cuda.matmul.allow_tf32 = allowed


def to_json(tf32: TF32 | None) -> dict[str, Any]:
    """The fields of a row; None where the device has no TF32."""
    return {
        "tf32_convolutions": tf32.convolutions if tf32 else None,
        "tf32_products": tf32.products if tf32 else None,
    }
