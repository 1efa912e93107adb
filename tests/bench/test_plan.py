from __future__ import annotations

import pytest
import torch

from quatcaps.bench.plan import Plan
from quatcaps.bench.variants import VARIANTS
from quatcaps.errors import QuatcapsError
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


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (Plan(models=("cnn-small",)), "unknown model to measure 'cnn-small'"),
        (Plan(variants=("tritom",)), "unknown backend 'tritom': did you mean 'triton'"),
        (Plan(passing="backward"), "unknown pass 'backward'"),
        (Plan(launch="grph"), "unknown launch 'grph': did you mean 'graph'"),
        (Plan(launch="graph"), "CUDA graphs need --device cuda"),
        (Plan(batches=(8, 0)), "0 images in a batch"),
        (Plan(steps=0), "0 counted steps"),
    ],
)
def test_what_cannot_be_is_refused(plan: Plan, words: str) -> None:
    with pytest.raises(QuatcapsError, match=words):
        plan.check(CPU)
