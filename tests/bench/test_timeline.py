"""What a step is made of: kernels by name and operator, and the timeline."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import quatcaps
from pictures import recorded, smallest_letters
from quatcaps.bench import timeline_figure as drawing
from quatcaps.bench.cases import Case
from quatcaps.bench.kernels import (
    BACKWARD,
    CONVOLUTION,
    EITHER_WAY,
    FORWARD,
    GRADIENT,
    GROUPS,
    IN_ROUTING,
    LAYOUT,
    NORMALISATION,
    OPTIMISER,
    OTHER,
    OUR_KERNELS,
    group_of,
)
from quatcaps.bench.plan import Plan
from quatcaps.bench.timeline import Timeline, timeline_tables, timeline_words, told_apart
from quatcaps.bench.trace import STEP, Span, spans_of

SOURCES = Path(quatcaps.__file__).parent
MACHINE = {"machine": "one GPU", "device": "cuda", "versions": {"torch": "2.11.0"}}
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int, float)"
COPY = "void at::native::elementwise_kernel<128, 2, gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda(at)>>()"
FPROP = "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x64x32__5x_cudnn"
NAMES = {
    FPROP: CONVOLUTION,
    "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc": CONVOLUTION,
    "void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, false, false, true>(int)": CONVOLUTION,
    "void cudnn::cnn::conv2d_grouped_direct_kernel<false, true, false, false, 0, 0, int, float>()": CONVOLUTION,
    "void convolve_common_engine_float_NHWC<float, float, 128, 6, 7, 3, 3, 5, true>()": CONVOLUTION,
    "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_128x64_nhwc>(Params)": CONVOLUTION,
    "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>()": CONVOLUTION,
    "void cask__5x_cudnn::computeOffsetsKernel<false, false>(cask__5x_cudnn::ComputeOffsetsParams)": CONVOLUTION,
    "sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16": GRADIENT,
    "sm80_xmma_dgrad_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x64x64": GRADIENT,
    "void cudnn::cnn::wgrad_alg0_engine<float, 512, 6, 5, 3, 3, 3, false, 512>(int)": GRADIENT,
    "void wgrad_alg1_engine_NHWC<float, 128, 5, 5, 3, 3, 3, false>(int)": GRADIENT,
    "void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int)": GRADIENT,
    "void dgrad2d_grouped_direct_kernel<float, float, float, true, 0, 1>()": GRADIENT,
    "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688wgrad_optimized_tf32_64x64_nhwc_align4>(Params)": GRADIENT,
    "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>()": NORMALISATION,
    "void cudnn::bn_bw_1C11_singleread_spec<__half2, 512, 1, 2, 20, 0>()": NORMALISATION,
    "void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 512, true, 1>()": NORMALISATION,
    "void cudnn::batchnorm_bwtr_nhwc_semiPersist<float, 512, 4>()": NORMALISATION,
    "void at::native::batch_norm_transform_input_channels_last_kernel<float, float, float, 4>()": NORMALISATION,
    "void at::native::batch_norm_backward_reduce_channels_last_kernel<4, float, float, float>()": NORMALISATION,
    "void at::native::(anonymous namespace)::batch_norm_collect_statistics_kernel<at::native::InvStd>()": NORMALISATION,
    "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>()": LAYOUT,
    "void cudnn::ops::nhwcToNchwKernel<__half, __half, float, true, false>()": LAYOUT,
    "void cudnn::ops::convertTensor_kernel<float, float, float, (cudnnKernelDataType_t)2>()": LAYOUT,
    "void at::native::unrolled_elementwise_kernel<at::native::bfloat16_copy_kernel_cuda(at)::{lambda}>()": LAYOUT,
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 4, 64, 64>()": LAYOUT,
    "Memcpy DtoD (Device -> Device)": LAYOUT,
    COPY: LAYOUT,
    "sum_moments": FORWARD,
    "rotor_matrix": FORWARD,
    "over_windows": FORWARD,
    "sum_children": BACKWARD,
    "m_step_backward": BACKWARD,
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>()": OPTIMISER,
    ELEMENTWISE: OTHER,
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>()": OTHER,
    "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32": OTHER,
    "Memset (Device)": OTHER,
}


@pytest.mark.parametrize(("name", "group"), NAMES.items())
def test_names_alone_tell_what_a_kernel_is_for(name: str, group: str) -> None:
    assert group_of(name) == group


@pytest.mark.parametrize(
    ("name", "operators", "group"),
    [
        (FPROP, ["aten::convolution_backward", "ConvolutionBackward0"], GRADIENT),
        ("sm90_xmma_gemm_f32f32", ["aten::cudnn_convolution", "aten::_convolution"], CONVOLUTION),
        ("Memset (Device)", ["aten::convolution_backward"], GRADIENT),
        (ELEMENTWISE, ["aten::add_", "Optimizer.step#AdamW.step"], OPTIMISER),
        (COPY, ["aten::_foreach_copy_"], OPTIMISER),
        (COPY, ["aten::copy_", "aten::contiguous", IN_ROUTING], LAYOUT),
        (ELEMENTWISE, ["aten::mul", IN_ROUTING], FORWARD),
        (ELEMENTWISE, ["aten::mul", "MulBackward0", f"backward of {IN_ROUTING}"], BACKWARD),
        (ELEMENTWISE, ["aten::add", "quatcaps::triton_parents_backward"], BACKWARD),
        (ELEMENTWISE, ["aten::add", "aten::native_batch_norm"], NORMALISATION),
        ("over_windows", ["quatcaps::triton_parents_backward"], BACKWARD),
        ("aten::add", ["AddBackward0"], OTHER),
        ("aten::mkldnn_convolution", [], CONVOLUTION),
        ("aten::_slow_conv2d_backward", [], GRADIENT),
        ("quatcaps::native_residual_blocks", [], CONVOLUTION),
    ],
)
def test_operators_go_before_names(name: str, operators: list[str], group: str) -> None:
    assert group_of(name, operators) == group


def test_every_kernel_of_ours_that_is_launched_is_known() -> None:
    compiled, mentioned = set(), set()
    for path in SOURCES.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if path.parent.name == "kernels":
            compiled |= {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)}
        elif "kernels import" in text:
            mentioned |= set(re.findall(r"\b[a-z]+\.(\w+)(?:\[| if layer\.wide|\)\[)", text))
    launched = compiled & mentioned
    assert {"sum_moments", "sum_children_wide", "m_step", "rotor_matrix", "convolve", "finish"} < launched
    assert launched == {name for names in OUR_KERNELS.values() for name in names} | set(EITHER_WAY)


def event(cat: str, name: str, start: float, duration: float, thread: int = 1, **more: object) -> dict:
    return {"ph": "X", "cat": cat, "name": name, "ts": start, "dur": duration, "tid": thread, "args": more}


def trace() -> list[dict]:
    """A step that came before, then one of a convolution and an addition in routing, with its gradient on a thread of
    its own."""
    return [
        event("user_annotation", STEP, 0, 50),
        event("kernel", FPROP, 10, 20, 7, correlation=1),
        event("user_annotation", STEP, 100, 900),
        event("cpu_op", "aten::cudnn_convolution", 110, 50),
        event("cuda_runtime", "cudaLaunchKernel", 120, 5, correlation=2),
        event("cuda_runtime", "cudaLaunchKernel", 130, 5, correlation=3),
        event("kernel", "void cudnn::ops::nchwToNhwcKernel<float>()", 200, 5, 7, correlation=2),
        event("kernel", FPROP, 205, 20, 7, correlation=3),
        event("user_annotation", IN_ROUTING, 300, 100),
        event("cpu_op", "aten::add", 310, 10),
        event("cuda_driver", "cuLaunchKernelEx", 311, 5, correlation=4),
        event("kernel", ELEMENTWISE, 320, 4, 7, correlation=4),
        event("cpu_op", "autograd::engine::evaluate_function: AddBackward0", 500, 60, 2),
        event("cpu_op", "AddBackward0", 510, 40, 2),
        event("cpu_op", "aten::sum", 520, 20, 2),
        event("cuda_runtime", "cudaLaunchKernel", 525, 5, 2, correlation=5),
        event("kernel", ELEMENTWISE, 530, 6, 7, correlation=5),
        event("kernel", ELEMENTWISE, 534, 6, 9, correlation=6),
        event("cpu_op", "aten::native_batch_norm", 600, 10, **{"External id": 44}),
        event("kernel", ELEMENTWISE, 650, 1, 9, **{"correlation": 7, "External id": 44}),
        {"ph": "s", "cat": "fwdbwd", "name": "fwdbwd", "id": 1, "tid": 1, "ts": 310},
        {"ph": "f", "cat": "fwdbwd", "name": "fwdbwd", "id": 1, "tid": 2, "ts": 510, "bp": "e"},
    ]


def test_kernels_belong_to_what_launched_them_in_the_last_step() -> None:
    found = spans_of(trace(), on_gpu=True)
    assert [(span.group, span.start, span.duration) for span in found] == [
        (LAYOUT, 0, 5),
        (CONVOLUTION, 5, 20),
        (FORWARD, 120, 4),
        (BACKWARD, 330, 6),
        (OTHER, 334, 6),  # nobody knows who launched it
        (NORMALISATION, 450, 1),
    ]


def test_operators_of_a_cpu_have_their_own_time() -> None:
    found = spans_of(trace(), on_gpu=False)
    own = [(span.name.rsplit(" ", 1)[-1], span.group, span.start + 110, span.duration, span.counted) for span in found]
    assert own == [
        ("aten::cudnn_convolution", CONVOLUTION, 110, 50, True),
        ("aten::add", FORWARD, 310, 10, True),
        ("AddBackward0", BACKWARD, 500, 10, True),
        ("AddBackward0", BACKWARD, 510, 10, True),
        ("aten::sum", BACKWARD, 520, 20, True),
        ("AddBackward0", BACKWARD, 540, 10, False),
        ("AddBackward0", BACKWARD, 550, 10, False),
        ("aten::native_batch_norm", NORMALISATION, 600, 10, True),
    ]


def test_a_captured_step_learns_from_the_one_that_was_launched() -> None:
    launched = [
        Span(ELEMENTWISE, FORWARD, 0.0, 1.0),
        Span(ELEMENTWISE, BACKWARD, 1.0, 1.0),
        Span(FPROP, GRADIENT, 2.0, 1.0),
        Span(FPROP, GRADIENT, 3.0, 1.0),
        Span(FPROP, CONVOLUTION, 4.0, 1.0),
    ]
    graph = [
        Span(name, OTHER, float(start), 1.0)
        for start, name in enumerate((ELEMENTWISE, FPROP, ELEMENTWISE, FPROP, COPY))
    ]
    assert [span.group for span in told_apart(graph, launched)] == [FORWARD, GRADIENT, BACKWARD, GRADIENT, LAYOUT]


def made_up_timeline() -> Timeline:
    """390 kernels of all groups; every fifth runs beside the one before."""
    spans, now = [], 0.0
    for number in range(390):
        duration = 1.5 + 8 * ((number * 37) % 11 == 0) + (number % 3)
        start = now - 2 if number % 5 == 4 else now
        spans.append(Span(f"kernel {number % 40}", GROUPS[(number // 9) % len(GROUPS)], start, duration))
        now = max(now, start + duration) + 0.4
    return Timeline(Case("qcn-deep", "train", "triton", 64, graph=True), MACHINE, tuple(spans), 1.4e-3)


def test_sums_are_those_of_the_spans() -> None:
    timeline = made_up_timeline()
    whole = timeline.to_json()
    assert sum(each["count"] for each in whole["groups"].values()) == whole["count"] == 390
    total = sum(span.duration for span in timeline.spans)
    for parts in (whole["groups"].values(), whole["kernels"]):
        assert sum(each["microseconds"] for each in parts) == pytest.approx(total)
    assert whole["kernels"][whole["spans"][3][2]]["name"] == "kernel 3"
    assert timeline.busy < min(total, timeline.wall)
    two = Timeline(
        timeline.case, MACHINE, (Span("a", OTHER, 0.0, 10.0), Span("b", OTHER, 2.0, 3.0), Span("c", OTHER, 20.0, 5.0))
    )
    assert (two.wall, two.busy) == (25, 15)
    assert "390 kernels" in timeline_words(timeline)
    assert "1.400 ms unwatched" in timeline_words(timeline)
    assert [len(table.rows) for table in timeline_tables(timeline)] == [len(GROUPS), 12]


def test_the_picture_has_every_kernel_in_its_colour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures, timeline = recorded(monkeypatch, drawing), made_up_timeline()
    drawing.timeline_figure(timeline, tmp_path / "timeline.png")
    above, below = figures[0].axes
    assert drawing.COLOURS.keys() == set(GROUPS)
    assert len(set(drawing.COLOURS.values())) == len(GROUPS)
    drawn = sum(len(collection.get_paths()) for collection in above.collections)
    assert 390 <= drawn <= 390 + 5  # those that go on in the next line twice
    assert [text.get_text() for text in below.get_yticklabels()] == list(GROUPS)
    assert smallest_letters(figures[0]) >= 11
    assert max(drawing.tracks_of(timeline.spans)) == 1
    assert drawing.pieces(Span("", OTHER, 8.0, 14.0), 10.0, 3) == [(0, 8, 2), (1, 0, 10), (2, 0, 2)]
    assert drawing.pieces(Span("", OTHER, 28.0, 3.0), 10.0, 3) == [(2, 8, 3)]
    length = timeline.wall / 7  # no multiple of which is exact
    for start in (0.0, 0.9 * length, 2.99 * length):
        found = drawing.pieces(Span("", OTHER, start, 3.5 * length), length, 7)
        assert sum(duration for _, _, duration in found) == pytest.approx(3.5 * length)
    assert drawing.unit_of(timeline).written(12.34) == "12 µs"
    assert drawing.Unit("ms", 1000.0).written(34_567.0) == "35 ms"


@pytest.mark.usefixtures("unchecked")
def test_the_command_leaves_the_timeline_of_a_step(
    tmp_path: Path, command: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures: list[Path] = []
    monkeypatch.setattr(drawing, "timeline_figure", lambda timeline, path: pictures.append(path))
    asked = ("--model", "qcn-small", "--device", "cpu", "--batch", 1, "--backend", "reference")
    outcome = command("bench", "--timeline", tmp_path / "step.json", *asked)
    assert outcome.code == 0, outcome.err
    assert "convolution gradient" in outcome.out
    found = json.loads((tmp_path / "step.json").read_text())
    assert (found["model"], found["pass"], found["batch"], found["what"]) == ("qcn-small", "train", 1, "operators")
    assert set(found["groups"]) == set(GROUPS)
    assert all(each["microseconds"] > 0 for each in found["groups"].values())
    assert found["busy_microseconds"] <= found["wall_microseconds"] + 1
    known = {line["name"]: line["group"] for line in found["kernels"]}
    gradients = known.keys() & {"aten::convolution_backward", "aten::_slow_conv2d_backward"}  # one of them, or both
    assert {known[name] for name in gradients} == {GRADIENT}
    assert known["aten::native_batch_norm"] == NORMALISATION
    assert known["SqrtBackward0"] == BACKWARD  # of the routing's own arithmetic
    assert pictures == [tmp_path / "step.png"]
    assert "give the file of the numbers" in command("bench", "--timeline", tmp_path / "step.png", *asked).err


def test_what_is_shown_unless_told() -> None:
    assert Plan().one_case(torch.device("cpu")) == Case("qcn-deep", "train", "native", 8)
    told = Plan(models=("qcn", "em"), variants=("paper",), batches=(3, 4), passing="forward", precision="bf16")
    assert told.one_case(torch.device("cpu")) == Case("qcn", "forward", "paper", 3, precision="bf16")
