"""PyTorch operators of this package: they can be traced, compiled and differentiated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._library.custom_ops import CustomOpDef

from quatcaps.errors import QuatcapsError


def operator(name: str, schema: str, compute: Callable[..., Any], fake: Callable[..., Any]) -> CustomOpDef:
    """`quatcaps::name`, with a fake kernel for shapes without numbers.

    Its gradient is an error until `register_autograd` gives a formula: so it stays for operators that compute gradients
    themselves.
    """
    made = torch.library.custom_op(f"quatcaps::{name}", compute, mutates_args=(), schema=schema)
    made.register_fake(fake)

    def refuse(ctx: Any, *grads: Any) -> None:
        backend = name.split("_")[0]
        raise QuatcapsError(
            f"a gradient of gradients is not computed by the {backend} backend (quatcaps::{name}): "
            "use backend='reference'"
        )

    made.register_autograd(refuse)
    return made
