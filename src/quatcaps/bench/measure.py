"""Measures a list of cases, one row each; what cannot be measured becomes a row that says why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Protocol, runtime_checkable

import torch

from quatcaps.bench.failures import reason
from quatcaps.bench.gpu import CudaClock
from quatcaps.bench.processes import seconds, take_turns
from quatcaps.bench.rows import Case, Layer, LayerRow, Row, Timing, with_ratios
from quatcaps.bench.steps import Step, layer_step, network_step


@runtime_checkable
class Watcher(Protocol):
    """Who is told how a benchmark gets on."""

    def doing(self, words: str) -> None: ...

    def done(self, row: Row | LayerRow) -> None: ...


def measure_networks(cases: Sequence[Case], device: torch.device, steps: int, watcher: Watcher) -> list[Row]:
    """All cases, with their ratios to the reference. On a GPU one after the other; on a CPU the variants of a model,
    pass and batch take turns in processes of their own."""
    rows: list[Row] = []
    clock = CudaClock(device) if device.type == "cuda" else None
    for _, together in groupby(cases, key=lambda case: (case.model, case.passing, case.batch)):
        group = list(together)
        if clock is None:
            found = take_turns(group, steps, watcher.doing)
            rows += found
            for row in found:
                watcher.done(row)
            continue
        for case in group:
            watcher.doing(case.words)
            timing, note = attempt(partial(clock.measure, partial(network_step, case, device), steps, graph=case.graph))
            rows.append(Row(case, timing, note))
            watcher.done(rows[-1])
    return with_ratios(rows)


def measure_layers(layers: Sequence[Layer], device: torch.device, steps: int, watcher: Watcher) -> list[LayerRow]:
    """The cost of each layer, forward and backward."""
    rows: list[LayerRow] = []
    clock = CudaClock(device) if device.type == "cuda" else None
    for layer in layers:
        watcher.doing(layer.words)
        make = partial(layer_step, layer, device)
        if clock is None:
            timing, note = attempt(partial(on_cpu, make, steps))
        else:
            timing, note = attempt(partial(clock.measure, make, steps, graph=layer.graph))
        rows.append(LayerRow(layer, timing, note))
        watcher.done(rows[-1])
    return rows


def attempt(measure: Callable[[], Timing]) -> tuple[Timing | None, str]:
    """What was measured, or why it could not be."""
    try:
        return measure(), ""
    except Exception as error:
        return None, reason(error)


def on_cpu(make: Callable[[], Step], steps: int) -> Timing:
    """Steps in this process, after one that is not counted."""
    step = make()
    return Timing(seconds(step), tuple(seconds(step) for _ in range(steps)))
