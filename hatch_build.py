"""What an index shows and the repository does not hold: its own address, and README.md with links that work anywhere.

The address comes from the environment, `QUATCAPS_REPOSITORY=https://github.com/OWNER/NAME make wheel`, as the workflow
in .github sets it, so that a fork describes itself. Without one, links stay relative and there are no URLs.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

VARIABLE = "QUATCAPS_REPOSITORY"
IMAGES = re.compile(r'(!\[[^\]]*\]\(|<img[^>]*\bsrc="|<source[^>]*\bsrcset=")(?![a-z]+:|#|/)')
LINKS = re.compile(r'(?<!!)((?:\[[^\]]*\]|\[!\[[^\]]*\]\([^)]*\)\])\(|<a[^>]*\bhref=")(?![a-z]+:|#|/)')


class Address(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        readme = Path(self.root, "README.md").read_text(encoding="utf-8")
        if address := os.environ.get(VARIABLE, "").rstrip("/"):
            readme = absolute(readme, address, f"v{metadata['version']}")
            metadata["urls"] = {
                "Repository": address,
                "Documentation": f"{address}/tree/HEAD/docs",
                "Changelog": f"{address}/blob/HEAD/CHANGELOG.md",
                "Issues": f"{address}/issues",
            }
        metadata["readme"] = {"content-type": "text/markdown", "text": readme}


def absolute(markdown: str, address: str, version: str) -> str:
    """With the files of that version in place of relative links; images as they are, all else as pages."""
    markdown = IMAGES.sub(lambda start: f"{start[1]}{address}/raw/{version}/", markdown)
    return LINKS.sub(lambda start: f"{start[1]}{address}/blob/{version}/", markdown)


def get_metadata_hook() -> type[Address]:
    return Address
