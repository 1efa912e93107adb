"""Numbers that follow from keys: how they are spread, and that they do not hang together."""

from __future__ import annotations

import torch

from quatcaps.counter_based import STEP, bell, mixed, uniform

KEYS = mixed(torch.tensor(5)) + torch.arange(200_000) * STEP


def test_uniform_numbers() -> None:
    found = uniform(KEYS).double()
    assert 0 <= float(found.min()) < 1e-4
    assert 1 - 1e-4 < float(found.max()) < 1
    assert torch.histc(found, 10, 0, 1).sub(20_000).abs().max() < 600  # about 4.5 deviations


def test_bell_shaped_numbers() -> None:
    found = bell(KEYS).double()
    assert abs(float(found.mean())) < 0.01
    assert abs(float(found.std()) - 1) < 0.01
    assert 3 < float(found.abs().max()) < 12**0.5
    assert abs(float((found.abs() < 1).double().mean()) - 0.68) < 0.02, "of a normal number 68% lie within a deviation"


def test_neighbours_are_independent() -> None:
    for other in (KEYS + STEP, KEYS + 1, mixed(torch.tensor(6)) + torch.arange(200_000) * STEP):
        together = torch.stack([bell(KEYS), bell(other)]).double()
        assert abs(float(torch.corrcoef(together)[0, 1])) < 0.01
