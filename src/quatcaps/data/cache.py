"""Where prepared datasets are kept."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "QUATCAPS_DATA_DIR"


def data_folder(chosen: str | Path | None = None) -> Path:
    """`chosen`, or the environment's QUATCAPS_DATA_DIR, or a folder in the user's cache."""
    if chosen or os.environ.get(VARIABLE):
        return Path(chosen or os.environ[VARIABLE]).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "quatcaps"
