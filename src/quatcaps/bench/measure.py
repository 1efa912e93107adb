"""Measures a list of cases, one row each; what cannot be measured becomes a row that says why."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, runtime_checkable

import torch

from quatcaps.bench.cases import Case, Layer, Sized, SizedNetwork
from quatcaps.bench.failures import reason
from quatcaps.bench.gpu import CudaClock
from quatcaps.bench.processes import seconds, take_turns
from quatcaps.bench.rows import Row, ScalingRow, Timing, with_ratios
from quatcaps.bench.steps import Step, layer_step, network_step


@runtime_checkable
class Watcher(Protocol):
    """Who is told how a benchmark gets on."""

    def doing(self, words: str) -> None: ...

    def done(self, row: Row | ScalingRow) -> None: ...


def measure_networks(
    cases: Sequence[Case], device: torch.device, steps: int, watcher: Watcher, against: str | None = None
) -> list[Row]:
    """All cases, with their ratios to the reference and to the model `against`. On a GPU one after the other; on a CPU
    the variants of a model, pass and batch take turns in processes of their own, and so do the models if they are held
    against one."""
    found: dict[Case, Row] = {}
    if device.type == "cuda":
        clock = CudaClock(device)
        for case in cases:
            watcher.doing(case.words)
            found[case] = Row(case, *on_gpu(clock, case, device, steps))
            watcher.done(found[case])
    else:
        for group in those_that_take_turns(cases, models=against is not None):
            for row in take_turns(group, steps, watcher.doing):
                found[row.case] = row
                watcher.done(row)
    return with_ratios([found[case] for case in cases], against)


def measure_scaling(sized: Sequence[Sized], device: torch.device, steps: int, watcher: Watcher) -> list[ScalingRow]:
    """The cost of each layer, forward and backward, and of a training step of each network."""
    rows: list[ScalingRow] = []
    clock = CudaClock(device) if device.type == "cuda" else None
    for one in sized:
        watcher.doing(one.words)
        if clock is not None:
            timing, note = on_gpu(clock, one, device, steps)
        elif isinstance(one, SizedNetwork):
            (row,) = take_turns([one.case], steps, watcher.doing)
            timing, note = row.timing, row.note
        else:
            timing, note = attempt(partial(on_cpu, partial(layer_step, one, device), steps))
        rows.append(ScalingRow(one, timing, note))
        watcher.done(rows[-1])
    return rows


def those_that_take_turns(cases: Sequence[Case], *, models: bool) -> list[list[Case]]:
    """Cases of the same pass and batch, and of the same model unless `models` take turns too."""
    groups: dict[tuple[str, str, int], list[Case]] = {}
    for case in cases:
        groups.setdefault(("" if models else case.model, case.passing, case.batch), []).append(case)
    return list(groups.values())


def on_gpu(clock: CudaClock, what: Case | Sized, device: torch.device, steps: int) -> tuple[Timing | None, str]:
    """One case or size by the GPU's clock."""
    make: Callable[[], Step]
    if isinstance(what, Layer):
        make = partial(layer_step, what, device)
    else:
        make = partial(network_step, what.case if isinstance(what, SizedNetwork) else what, device)
    ahead = what.variant == "triton"
    return attempt(partial(clock.measure, make, steps, graph=what.graph, tf32=what.tf32, ahead=ahead))


def attempt(measure: Callable[[], Timing]) -> tuple[Timing | None, str]:
    """What was measured, or why it could not be."""
    try:
        return measure(), ""
    except Exception as error:
        return None, reason(error)


def on_cpu(make: Callable[[], Step], steps: int) -> Timing:
    """Steps in this process, after one that is not counted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that another backend stands in: the first step raises with the reason
        step = make()
        return Timing(seconds(step), tuple(seconds(step) for _ in range(steps)))
