"""`quatcaps train --config FILE`: settings from a file, and a whole configuration for one.

A file is a run's run.json, whose configuration it is, or an object of settings by name, in JSON or YAML, in which
`recipe` names the configuration that they change.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from quatcaps import strict_json
from quatcaps.errors import QuatcapsError, unknown_name
from quatcaps.files import explained
from quatcaps.training.config import TrainingConfig

LARGEST = 2**20
"""Bytes of a configuration."""
NOT_REPEATED = {
    "initial": "it began with the weights of {}: give --init-from to begin with them again",
    "stretches": "it was given more epochs when it was resumed ({}): this run has all of them from the beginning",
}
"""What a run's description has that a new run does not take from it, in words."""


def read_config(path: Path) -> tuple[dict[str, Any], list[str]]:
    """The settings in a file, `recipe` among them if it has one; and what to say about it."""
    values = parse(path)
    if isinstance(values.get("config"), dict) and "format" in values:
        try:
            settings = TrainingConfig.from_json(values["config"]).whole()
        except QuatcapsError as error:
            raise QuatcapsError(f"{path}: {error}") from error
        notes = [f"{path}: {words.format(values[name])}" for name, words in NOT_REPEATED.items() if values.get(name)]
        return settings, notes
    known = TrainingConfig().whole().keys() | {"recipe"}
    for name in values:
        if name not in known:
            raise QuatcapsError(f"{path}: {unknown_name('setting', str(name), known)}")
    if not isinstance(values.get("recipe", ""), str):
        raise QuatcapsError(f"{path}: recipe = {values['recipe']!r}: it must be a name")
    return values, []


def parse(path: Path) -> dict[Any, Any]:
    """The object in a file."""
    with explained(f"read {path}"), path.open("rb") as file:
        raw = file.read(LARGEST + 1)
    if len(raw) > LARGEST:
        raise QuatcapsError(f"{path} is not a configuration: it has more than {LARGEST:,} bytes")
    text = raw.decode(errors="replace")
    try:
        value = strict_json.parse(text)
    except ValueError as error:
        if path.suffix.lower() == ".json":
            raise QuatcapsError(f"{path} is not a configuration: {error}") from error
        value = parse_yaml(path, text)
    if not isinstance(value, dict):
        raise QuatcapsError(f"{path} is not a configuration: it holds no settings by name, such as epochs: 20")
    return value


def parse_yaml(path: Path, text: str) -> Any:
    """Plain values alone: no tags, and nothing that stands for another part of the file."""
    try:
        import yaml
    except ImportError as error:
        raise QuatcapsError(
            f"{path} is no JSON, and YAML cannot be read: pip install 'quatcaps[yaml]', or write it as JSON"
        ) from error
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=yaml.SafeLoader)):
            raise QuatcapsError(f"{path} is not a configuration: it has aliases (*name); write the values out")
        return strict_json.parse(json.dumps(yaml.safe_load(text)))
    except (yaml.YAMLError, RecursionError, TypeError, ValueError) as error:
        if isinstance(error, QuatcapsError):
            raise
        words = " ".join(str(error).split())
        raise QuatcapsError(f"{path} is not a configuration: it is no JSON and no YAML ({words[:200]})") from error
