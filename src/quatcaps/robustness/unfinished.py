"""What attacks found so far, in a file: who was stopped goes on after the last attack that was done."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from quatcaps.errors import QuatcapsError
from quatcaps.files import explained, read_json, write_json


class Unfinished:
    """Values by name, as JSON has them. of: what was asked for; a file of anything else, or a damaged one, is begun
    anew."""

    def __init__(self, path: Path, of: str) -> None:
        self.path, self.of = path, of
        self.found: dict[str, Any] = {}
        try:
            with explained(f"look for {path}"):
                there = path.exists()
            earlier = read_json(path, "what attacks found") if there else {}
        except QuatcapsError:
            return
        if isinstance(earlier, dict) and earlier.get("of") == of and isinstance(earlier.get("found"), dict):
            self.found = earlier["found"]

    def __contains__(self, name: str) -> bool:
        return name in self.found

    def once(self, name: str, find: Callable[[], Any]) -> Any:
        """What was found before, or is found now, and kept."""
        if name not in self.found:
            self.found[name] = find()
            write_json(self.path, {"of": self.of, "found": self.found})
        return self.found[name]


def asked(request: Mapping[str, Any], tensors: Iterable[Tensor]) -> str:
    """A digest of what was asked for, of the networks and of the images."""
    digest = hashlib.sha256(json.dumps(request, sort_keys=True).encode())
    for tensor in tensors:
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
