"""The work of a step's kernels, counted by hand too, and `benchmarks/roofline.py`, whose figures the documents have."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from itertools import combinations
from pathlib import Path
from types import ModuleType

import pytest
import torch

from kernel_work import Work, noted, step_work, work_of
from pictures import recorded, smallest_letters
from quatcaps.accelerator import unavailable
from quatcaps.bench.cases import Case
from quatcaps.bench.kernels import OTHER, OUR_KERNELS
from quatcaps.errors import QuatcapsError
from quatcaps.layers import ConvolutionalCapsules
from quatcaps.layers.residual import residual_trunk

ROOT = Path(__file__).parents[2]
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
FLOAT = 4
CASE = Case("qcn-deep", "train", "triton", 64)

pytestmark = pytest.mark.skipif(unavailable(DEVICE) is not None, reason="needs Triton")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("roofline", ROOT / "benchmarks/roofline.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "roofline", module)  # dataclasses look there
        spec.loader.exec_module(module)
    return module


def chapter() -> str:
    text = (ROOT / "docs/performance.md").read_text(encoding="utf-8")
    return text.split("\n## What is left: the roofline\n")[1].split("\n## ")[0]


def cells(text: str) -> list[tuple[str, ...]]:
    """The rows of all tables of a text."""
    lines = [line for line in text.splitlines() if line.startswith("|") and not line.startswith(("|--", "| :--"))]
    return [tuple(cell.strip().strip("`") for cell in line.strip("|").split("|")) for line in lines]


def work_by_name(found: list[Work]) -> dict[str, list[tuple[int, int]]]:
    """Multiply-adds and numbers by kernel."""
    names: dict[str, list[tuple[int, int]]] = {}
    for each in found:
        names.setdefault(each.kernel, []).append((each.multiply_adds, each.bytes // FLOAT))
    return names


def test_convolutions_of_a_block_are_as_counted_by_hand() -> None:
    blocks = residual_trunk(2, (16,), (2,)).to(DEVICE)
    blocks.backend = "triton"
    with noted() as launches:
        blocks(torch.zeros(3, 2, 8, 8, device=DEVICE)).sum().backward()
    found = work_by_name([work_of(launch) for launch in launches])
    positions, tiles = 3 * 4 * 4, 3
    source, middle, moments = 3 * 8 * 8 * 2, positions * 16, 2 * tiles * 16
    first, second, skip = 9 * 2 * 16, 9 * 16 * 16, 2 * 16
    seen = positions * 2  # what the shortcut sees of the source: a quarter
    assert found["convolve"] == [
        (positions * first, source + 2 * 2 + first + middle + moments),
        (positions * (second + skip), middle + 2 * 16 + second + seen + 2 * 2 + skip + middle + moments),
    ]
    assert [count for count, _ in found["convolve_back"]] == [positions * second, positions * (first + skip)]
    assert [count for count, _ in found["sum_weights"]] == [positions * each for each in (second, first, skip)]
    (added,) = found["normalise_back"]  # the gradient of an image is nobody's wish
    assert added == (2 * middle, 3 * middle + 4 * 16 + 2 * 16)


def test_passes_of_a_routed_layer_are_as_counted_by_hand() -> None:
    layer = ConvolutionalCapsules(children=4, parents=8, kernel=3, backend="triton").to(DEVICE)
    poses = torch.zeros(2, 4, 3, 5, 5, device=DEVICE, requires_grad=True)
    with noted() as launches:
        capsules = layer(poses, torch.zeros(2, 4, 5, 5, device=DEVICE))
        (capsules.poses.sum() + capsules.activations.sum()).backward()
    found = work_by_name([work_of(launch) for launch in launches])
    positions, inside, splits = 2 * 3 * 3, 9 * 4, 4
    votes = positions * inside * 8
    # A map of 3×3 and a pose; then by the docstrings of kernel_work.
    assert found["sum_uniform"][0][0] == (9 + 9) * votes
    assert found["sum_moments"][0][0] == (9 + 3 + 3 + 5 + 7) * votes
    assert found["sum_parents"][0][0] == (9 + 3 + 3 + 2 + 6 + 1 + 3 + 7) * votes
    assert found["sum_children"][0][0] == (9 + 12 + 9 + 27 + 13 + 3) * votes
    children, maps, by_parent, by_dim = 2 * 4 * (3 + 1) * 25, inside * 9 * 8, positions * 8, positions * 8 * 3
    sums, pairs = splits * (by_parent + 2 * by_dim), inside * positions
    assert found["sum_moments"][0][1] == children + maps + 2 * by_dim + by_parent + sums + pairs
    given, logits = 2 * by_dim + by_parent, by_parent
    assert found["sum_parents"][0][1] == children + maps + given + given + 2 * pairs + sums + logits


def test_a_step_has_the_kernels_of_its_timeline_and_leaves_them_in_place(script: ModuleType) -> None:
    kernels = script.read(script.RESULTS / "h200-timeline.json")["kernels"]
    names = Counter(each.kernel for each in script.counted(CASE) if each.kernel != "AdamW")
    ours = {name for group, part in OUR_KERNELS.items() for name in part if group != OTHER}  # but for the loss
    assert {line["name"]: line["count"] for line in kernels if line["name"] in ours} == names
    from quatcaps.routing.triton.kernels import forward

    assert hasattr(forward.sum_moments, "fn")


def test_what_pytorch_computes_of_convolutions_counts_too() -> None:
    stem = [work for work in step_work(Case("cnn", "train", "triton", 2), DEVICE) if work.kernel == "convolution"]
    assert stem[0].group == "convolution"
    assert stem[0].flops == 2 * stem[0].multiply_adds > 0
    assert all(work.tensor_cores for work in stem)


@pytest.mark.skipif(DEVICE.type == "cuda", reason="Triton runs here")
def test_without_triton_nothing_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernel_work.unavailable", lambda device: "needs a GPU")
    with pytest.raises(QuatcapsError, match="Triton needs a GPU"):
        step_work(CASE, DEVICE)


def test_documents_have_the_tables_that_the_script_prints(script: ModuleType) -> None:
    before, now = (
        script.measured(CASE, script.RESULTS / f"{name}.json") for name in ("h200-timeline-cudnn", "h200-timeline")
    )
    documented, table = cells(chapter()), script.group_table(CASE, before, now)
    first = documented.index(table.columns)
    assert tuple(documented[first + 1 : first + 1 + len(table.rows)]) == table.rows
    steps = [row for row in script.read(script.RESULTS / "h200-qcn.json")["rows"] if row["pass"] == "train"]
    quick = [script.batch_row(row) for row in steps if row["batch"] <= 64 or row["model"] == "qcn-deep"]
    assert len(quick) == 6
    assert set(quick) <= set(documented)
    words = " ".join(chapter().replace("`", "").split())
    for sentence in script.launch_words(CASE, now).split(". "):
        assert sentence.strip(".") in words


def test_another_step_than_the_measured_one_has_counts_alone(script: ModuleType) -> None:
    other = Case("qcn-deep", "train", "triton", 2)
    assert script.measured(other, script.RESULTS / "h200-timeline.json") is None
    rows = script.group_table(other, None, None).rows
    assert {row[7] for row in rows} == {"–"}
    assert [row[0] for row in rows][-1] == "all"


def test_the_picture_has_labels_that_can_be_read(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    saved = recorded(monkeypatch, script)
    now = script.measured(CASE, script.RESULTS / "h200-timeline.json")
    script.roofline(CASE, script.measured(CASE, script.RESULTS / "h200-timeline-cudnn.json"), now, tmp_path / "a.png")
    (figure,) = saved
    assert smallest_letters(figure) >= 11
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert len(boxes) == 3 + len(script.DRAWN)
    assert not any(first.overlaps(second) for first, second in combinations(boxes, 2))
