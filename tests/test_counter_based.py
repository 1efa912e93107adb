"""Numbers that follow from keys: how they are spread, and that they do not hang together."""

from __future__ import annotations

from statistics import mean, pvariance

import pytest
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


def test_the_numbers_are_those_of_splitmix64() -> None:
    """The first that it gives from the seed 0, as its authors publish them, and what is made of their bits."""
    published = (0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC, 0x1B39896A51A8749B)
    keys = STEP * torch.arange(1, 6)
    assert tuple(bits % 2**64 for bits in mixed(keys).tolist()) == published
    assert uniform(keys).tolist() == [(bits >> 40) / 2**24 for bits in published]
    numbers = range(2**16)
    sums = [sum((bits >> place) % 2**16 for place in (0, 16, 32, 48)) for bits in published]
    normal = [(total - 4 * mean(numbers)) / (4 * pvariance(numbers)) ** 0.5 for total in sums]
    assert bell(keys).tolist() == pytest.approx(normal, rel=1e-6, abs=1e-6)
