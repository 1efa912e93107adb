from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from quatcaps.bench.cases import Layer, SizedNetwork
from quatcaps.bench.networks import build_model
from quatcaps.bench.plan import Plan
from quatcaps.bench.precision import TF32
from quatcaps.bench.steps import network_step
from quatcaps.bench.variants import VARIANTS
from quatcaps.errors import QuatcapsError
from quatcaps.models import parameter_count
from quatcaps.routing import BACKENDS

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def test_every_backend_is_a_variant() -> None:
    assert set(VARIANTS) == {*BACKENDS, "paper", "compile"}


def test_usual_cases_of_a_cpu() -> None:
    cases = Plan().cases(CPU)
    assert {(case.model, case.batch, case.graph) for case in cases} == {("qcn", 8, False)}
    assert {case.variant for case in cases} == {"reference", "native", "paper", "compile"}
    assert {case.passing for case in cases} == {"train", "forward"}


def test_usual_cases_of_a_gpu() -> None:
    cases = Plan(passing="train").cases(CUDA)
    names = [name for name in VARIANTS if name != "native"]
    assert {case.variant for case in cases} == set(names)
    batches = {name: {case.batch for case in cases if case.variant == name} for name in names}
    assert batches.pop("triton") == {64, 128, 256, 512}
    assert set(map(frozenset, batches.values())) == {frozenset({64})}
    launches = {name: {case.graph for case in cases if case.variant == name} for name in names}
    assert launches.pop("compile") == {False}
    assert all(found == {False, True} for found in launches.values())
    assert len(set(cases)) == len(cases)


def test_what_was_asked_for_is_measured() -> None:
    plan = Plan(
        models=("qcn-small",), variants=("triton", "compile"), batches=(16, 4), passing="forward", launch="graph"
    )
    cases = plan.cases(CUDA)
    assert [(case.batch, case.variant) for case in cases] == [
        (4, "triton"),
        (4, "compile"),
        (16, "triton"),
        (16, "compile"),
    ]
    assert all(case.graph and case.passing == "forward" for case in cases)


def test_ieee_is_asked_for_by_tf32() -> None:
    with pytest.raises(QuatcapsError, match="give --tf32 off"):
        Plan(models=("qcn-small",), precision="ieee").check(CPU)


def test_a_step_has_the_precision_that_was_asked_for() -> None:
    plan = Plan(models=("qcn-small",), variants=("native",), batches=(1,), passing="train", precision="bf16")
    (case,) = plan.cases(CPU)
    assert (case.words, case.to_json()["precision"]) == ("qcn-small, train, batch 1, native, bf16", "bf16")
    assert {sized.case.precision for sized in plan.sized_networks(CPU)} == {"bf16"}
    for passing, precision, dtype in (("train", "bf16", torch.bfloat16), ("forward", "float32", torch.float32)):
        seen: set[torch.dtype] = set()

        def watch(network: nn.Module, seen: set[torch.dtype] = seen) -> None:
            for module in network.modules():
                if isinstance(module, nn.Conv2d):
                    module.register_forward_hook(lambda module, given, output: seen.add(output.dtype))

        network_step(replace(case, passing=passing, precision=precision), CPU, watch)()
        assert seen == {dtype}


def test_both_ways_of_tf32_stand_side_by_side() -> None:
    plan = Plan(variants=("triton",), batches=(64, 128), passing="train", tf32="both")
    cases = plan.cases(CUDA)
    for off, on in zip(cases[::2], cases[1::2], strict=True):
        assert (off.tf32, on) == (TF32(False, False), replace(off, tf32=TF32(True, True)))
    assert {case.tf32 for case in plan.data_cases(CUDA)} == {TF32(False, False), TF32(True, True)}
    assert {one.tf32 for one in plan.scaling(CUDA)} == {TF32(False, False), TF32(True, True)}
    for asked, expected in (("on", TF32(True, True)), ("off", TF32(False, False)), ("default", TF32(True, False))):
        assert {case.tf32 for case in Plan(tf32=asked).cases(CUDA)} == {expected}
    assert {case.tf32 for case in Plan(tf32="off").cases(CPU)} == {None}, "a CPU has none to turn off"


def test_the_model_held_against_is_measured_once() -> None:
    plan = Plan(models=("em", "em-ibm"), against="em", variants=("reference",), passing="train")
    assert [case.model for case in plan.cases(CPU)] == ["em", "em-ibm"]
    assert [case.model for case in replace(plan, models=()).cases(CPU)] == ["qcn", "em"]


def test_whole_networks_by_side_and_classes() -> None:
    found = Plan().sized_networks(CUDA)
    assert [(one.axis, one.size, one.case.side, one.case.classes) for one in found] == [
        ("side", 32, 32, 5),
        ("side", 48, 48, 5),
        ("side", 96, 96, 5),
        ("side", 224, 224, 5),
        ("classes", 5, 32, 5),
        ("classes", 10, 32, 10),
        ("classes", 100, 32, 100),
        ("classes", 1000, 32, 1000),
    ]
    assert {(one.batch, one.variant, one.graph) for one in found} == {(64, "triton", True)}
    (model,) = {one.case.model for one in found}
    network = build_model(model, channels=3, classes=10)
    assert parameter_count(network) == 161_904, "the shape of the recipe best"
    small = Plan(models=("qcn-small",), variants=("paper", "reference"), batches=(4,)).sized_networks(CPU)
    assert {(one.case.model, one.batch, one.variant) for one in small} == {("qcn-small", 4, "reference")}
    assert max(one.case.side for one in small) == 96
    assert {type(one) for one in Plan().scaling(CPU)} == {Layer, SizedNetwork}


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (Plan(models=("cnn-small",)), "cnn-small has no capsule layers"),
        (Plan(models=("qnc",)), "unknown model 'qnc': did you mean 'qcn'"),
        (Plan(models=("qcn:pos=free",)), "unknown setting of qcn 'pos': did you mean 'pose'"),
        (Plan(models=("qcn:pose=fre",)), "unknown pose 'fre': did you mean 'free'"),
        (Plan(models=("qcn:primary=many",)), "setting of qcn primary = 'many': it must be a whole number"),
        (Plan(models=("qcn:pose",)), "write it as NAME:SETTING=VALUE"),
        (Plan(models=("qcn:",)), "write it as NAME:SETTING=VALUE"),
        (Plan(against="emm"), "unknown model 'emm': did you mean 'em'"),
        (Plan(tf32="yes"), "unknown choice of TF32 'yes'"),
        (Plan(tf32="on"), "--tf32 on on the CPU: TF32 needs --device cuda"),
        (Plan(tf32="both"), "--tf32 both on the CPU"),
        (Plan(cold=True), "--cold on the CPU"),
        (Plan(variants=("tritom",)), "unknown backend 'tritom': did you mean 'triton'"),
        (Plan(passing="backward"), "unknown pass 'backward'"),
        (Plan(precision="fp16"), "unknown precision 'fp16'"),
        (Plan(launch="grph"), "unknown launch 'grph': did you mean 'graph'"),
        (Plan(launch="graph"), "CUDA graphs need --device cuda"),
        (Plan(batches=(8, 0)), "0 images in a batch"),
        (Plan(steps=0), "0 counted steps"),
    ],
)
def test_what_cannot_be_is_refused(plan: Plan, words: str) -> None:
    with pytest.raises(QuatcapsError, match=words):
        plan.check(CPU)
