"""Records of runs that never were, for what is made from records."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from quatcaps.paper.record import RunRecord, record_path, write_record
from quatcaps.paper.row import Row
from quatcaps.training.measure import Rate


def made_up(row: Row, seed: int = 0, error: float = 0.03, epochs: int = 4, **changes: object) -> RunRecord:
    """A record whose errors fall towards `error`; the novel error is three times as large."""
    config = row.config(seed).changed({"epochs": epochs, **changes})
    entries = []
    for epoch in range(epochs):
        wave = 0.2 * error * math.sin(1.7 * epoch + seed)
        now = error + wave + 0.6 * math.exp(-4 * epoch / epochs)
        entry = {"step": 100 * (epoch + 1), "epoch": epoch, "loss": now, "error": 0.8 * now, "learning_rate": 1e-3}
        if not config.test:
            entry["validation_error"] = now
        elif config.viewpoints == "all" or config.protocol == "strict":
            entry["test_error"] = now
        if config.viewpoints != "all":
            entry["novel_error"] = min(0.9, 3 * now + 0.5 * wave)
        entries.append(entry | {"seconds": 60.0 * (epoch + 1)})
    final = {
        name: Rate(round(entries[-1][f"{name}_error"] * 10_000), 10_000)
        for name in ("test", "novel", "validation")
        if f"{name}_error" in entries[-1]
    }
    return RunRecord(
        key=row.key,
        recipe=row.recipe,
        seed=seed,
        config=config,
        parameters=187_762,
        data="content as published",
        machine="a machine",
        versions={"quatcaps": "0.1.0", "torch": "2.13.0"},
        date="2026-01-02",
        seconds=60.0 * epochs,
        final=final,
        epochs=tuple(entries),
        toys={} if config.test else {f"car {seed}": final["validation"], f"cat {seed}": Rate(9, 10)},
        poses=made_up_poses(row, seed) if row.inspected else {},
        by_toy={name: made_up_toys(final[name], seed) for name in final} if config.test else {},
    )


def made_up_toys(total: Rate, seed: int) -> dict[str, Rate]:
    """The errors of some images by toy: five classes of five toys, of which some are harder than others."""
    names = [f"{kind} {number}" for kind in ("animal", "human", "airplane", "truck", "car") for number in range(5)]
    shares = [1.0 + (7 * place + seed) % 11 for place in range(len(names))]
    images, whole, left = total.images // len(names), sum(shares), total.errors
    found = {}
    for name, share in zip(names, shares, strict=True):
        errors = min(images, left, round(left * share / whole))
        found[name] = Rate(errors, images)
        left, whole = left - errors, whole - share
    return found


def made_up_poses(row: Row, seed: int) -> dict[str, Any]:
    """What an inspection might have found."""
    capsules, trained = row.config(seed).model != "resnet-20", row.recipe == "poses"
    probe = {"azimuth_r2": 0.5 + 0.1 * seed, "azimuth_degrees": 20.0, "chance_degrees": 90.0}
    layers = ("primary", "capsules 1", "classes") if capsules else ("stage 1", "classes")
    errors = {"median_degrees": 9.0 + seed, "within_10": 0.5, "within_30": 0.9}
    return {
        "residual": {"poses": 1e-6, "activations": 1e-6, "chance": 1.41} if capsules else None,
        "transfer": [{"turn": 40, "error": 10.0, "shuffled": 40.0, "ratio": 0.25 + 0.01 * seed}],
        "within": dict.fromkeys(layers, probe),
        "across": dict.fromkeys(layers, probe) if row.dataset == "toys-many" else {},
        "orientation": errors if trained else None,
    }


def leave(output: Path, record: RunRecord) -> Path:
    """The record as a file in its place."""
    path = record_path(output, record.key, record.seed)
    write_record(path, record)
    return path
