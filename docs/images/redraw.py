"""Draws the pictures of documents again from the numbers that they show, without measuring anything.

python docs/images/redraw.py
"""

from __future__ import annotations

import json
import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from quatcaps.bench.cases import LABELS, Case, Layer, SizedNetwork
from quatcaps.bench.figures import scaling_figure, throughput_figure
from quatcaps.bench.precision import TF32
from quatcaps.bench.rows import Row, ScalingRow, Timing
from quatcaps.bench.tables import precision_words
from quatcaps.data import toys
from quatcaps.data.imageset import ImageSet
from quatcaps.data.toys.catalogue import CLASSES
from quatcaps.data.toys.dataset import AZIMUTHS, ELEVATIONS
from quatcaps.data.viewpoints import degrees
from quatcaps.inspection.inspection import Inspection, Turn
from quatcaps.inspection.probe import Probe
from quatcaps.inspection.turns import Transfer
from quatcaps.report.poses import pose_figure
from quatcaps.report.robustness import attack_figure
from quatcaps.report.viewpoint_sheet import viewpoint_sheet
from quatcaps.robustness import Attacked
from quatcaps.training.measure import Rate

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
THROUGHPUT = {"training-h200": "h200-training", "cpu-arm-2core": "cpu-arm-2core"}
SCALING = {"scaling-h200": "h200-scaling"}
INSPECTED = ("qcn-smallnorb",)
ATTACKED = ("qcn-toys",)
CATEGORY, INSTANCE, SIDE = 0, 4, 48
"""The toy of viewpoints.png, and the pixels of its views."""
VARIANTS = {words: name for name, words in LABELS.items()}


def read(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return value


def benchmark(name: str) -> tuple[dict[str, Any], str]:
    """A file of results, and the title of its picture."""
    found = read(ROOT / "benchmarks/results" / f"{name}.json")
    return found, f"{found['machine']}\ntorch {found['versions']['torch']}, float32"


def timing(row: dict[str, Any]) -> Timing | None:
    """The median stands for all steps: pictures show nothing else."""
    return Timing(row["first_seconds"], (row["seconds"],)) if row["seconds"] is not None else None


def case(row: dict[str, Any]) -> Case:
    known = {name: row[name] for name in ("model", "batch", "graph", "side", "classes") if name in row}
    return Case(**known, passing=row["pass"], variant=VARIANTS.get(row["variant"], row["variant"]), tf32=tf32(row))


def tf32(row: dict[str, Any]) -> TF32 | None:
    convolutions = row.get("tf32_convolutions")
    return None if convolutions is None else TF32(convolutions, row["tf32_products"])


def sized(row: dict[str, Any]) -> Layer | SizedNetwork:
    if "model" in row:
        return SizedNetwork(row["axis"], case(row))
    known = {name: row[name] for name in ("axis", "variant", "batch", "kernel", "children", "parents", "graph")}
    return Layer(**known, side=math.isqrt(row["positions"]), tf32=tf32(row))


def made(kind: type, value: dict[str, Any]) -> Any:
    """A dataclass from what JSON keeps of it."""
    return kind(**{field.name: value[field.name] for field in fields(kind)})


def inspection(value: dict[str, Any]) -> Inspection:
    """What the picture needs of it."""
    changes = {
        "residual": None,
        "composition": None,
        "orientation": None,
        "transfer": tuple(made(Transfer, each) for each in value["transfer"]),
        "turns": tuple(made(Turn, each) for each in value["turns"]),
        **{how: {name: made(Probe, each) for name, each in value[how].items()} for how in ("within", "across")},
    }
    return Inspection(**{**value, **changes})


def attacked(value: dict[str, Any]) -> Attacked:
    """What the picture needs of it."""

    def curves(by_name: dict[str, Any]) -> dict[str, tuple[Rate, ...]]:
        return {name: tuple(made(Rate, point) for point in points) for name, points in by_name.items()}

    return Attacked(
        **{name: value[name] for name in ("name", "model", "parameters", "images")},
        clean=made(Rate, value["clean"]),
        epsilons=tuple(point["epsilon"] for point in value["strongest"]),
        within=curves(value["attacks"]),
        strongest=curves({"": value["strongest"]})[""],
        nearest={},
        transfer=curves(value["transfer"]),
    )


def one_toy() -> ImageSet:
    """A training toy of smallNORB's arrangement from every viewpoint, in one light."""
    grid = torch.cartesian_prod(torch.tensor(ELEVATIONS), torch.tensor(AZIMUTHS))
    info = {"elevation": grid[:, 0], "azimuth": grid[:, 1]}
    angles = {name: torch.tensor([degrees(name, int(code)) for code in codes]) for name, codes in info.items()}
    still = torch.zeros(len(grid), dtype=torch.int64)
    views = toys.render(CATEGORY, INSTANCE, angles["azimuth"], angles["elevation"], still, size=SIDE)
    info |= {"instance": still + INSTANCE, "lighting": still}
    return ImageSet("toys train", views, still + CATEGORY, CLASSES, info)


viewpoint_sheet(one_toy(), HERE / "viewpoints.png")
for picture, name in THROUGHPUT.items():
    found, title = benchmark(name)
    rows = [Row(case(row), timing(row), row["note"]) for row in found["rows"]]
    throughput_figure(rows, f"{title}{precision_words(rows)}", HERE / f"{picture}.png")
for picture, name in SCALING.items():
    found, title = benchmark(name)
    points = [ScalingRow(sized(row), timing(row), row["note"]) for row in found["scaling"]]
    scaling_figure(points, f"{title}{precision_words(points)}", HERE / f"{picture}.png")
for name in INSPECTED:
    folder = ROOT / "results/inspected" / name
    pose_figure([inspection(each) for each in read(folder / "poses.json")["networks"]], folder / "poses.png")
for name in ATTACKED:
    folder = ROOT / "results/attacked" / name
    attack_figure([attacked(each) for each in read(folder / "attack.json")["networks"]], folder / "attack.png")
