"""What attacks found so far, in a file: who was stopped goes on after the last attack that was done."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import Tensor

import quatcaps
from quatcaps.data.imageset import digest_of
from quatcaps.errors import QuatcapsError
from quatcaps.files import explained, read_json, write_json


class Unfinished:
    """Values by name, as JSON has them, in a file of the folder whose name tells what was asked for; one that was
    damaged or edited is begun anew. Of two attacks that share a file each keeps its own and leaves the other's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.of = ""
        self.found: dict[str, Any] = {}
        self.asked_for: set[str] = set()

    @property
    def path(self) -> Path:
        return self.folder / f"attack-{self.of[:12]}-unfinished.json"

    def begin(self, of: str) -> Unfinished:
        """What was found before of what is asked for, which `of` is a digest of. It is written at once: better an error
        now than after hours of attacks."""
        self.of = of
        self.found = self._read()
        self._write(self.found)
        return self

    def __contains__(self, name: str) -> bool:
        return name in self.found

    def once(self, name: str, find: Callable[[], Any]) -> Any:
        """What was found before, or is found now, and kept."""
        if anew := name not in self.found:
            self.found[name] = find()
        self.asked_for.add(name)
        if anew:
            self._write({**self._read(), **{name: self.found[name] for name in self.asked_for}})
        return self.found[name]

    def finish(self) -> None:
        """Forgets what was asked for: it stands elsewhere now. What another call began with other attacks stays."""
        left = {name: value for name, value in self._read().items() if name not in self.asked_for}
        if left:
            self._write(left)
        elif self.of:
            self.path.unlink(missing_ok=True)

    def _read(self) -> dict[str, Any]:
        with suppress(QuatcapsError), explained(f"look for {self.path}"):
            earlier = read_json(self.path, "what attacks found") if self.path.exists() else {}
            found = earlier.get("found")
            if earlier.get("of") == self.of and isinstance(found, dict) and earlier.get("digest") == digest_of(found):
                return found
        return {}

    def _write(self, found: Mapping[str, Any]) -> None:
        write_json(self.path, {"of": self.of, "digest": digest_of(found), "found": found})


def asked(request: Mapping[str, Any], tensors: Iterable[Tensor]) -> str:
    """A digest of what was asked for, of the networks and of the images; another version may attack otherwise."""
    digest = hashlib.sha256(json.dumps({**request, "version": quatcaps.__version__}, sort_keys=True).encode())
    for tensor in tensors:
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
