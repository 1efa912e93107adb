"""Dropout that is part of the network: its share, its independence, and that it can be saved and graphed."""

from __future__ import annotations

import pytest
import torch

from quatcaps.errors import QuatcapsError
from quatcaps.layers.dropout import Dropout


def test_the_share_that_is_left_out() -> None:
    torch.manual_seed(0)
    kept = Dropout(0.3)(torch.ones(400, 500))
    assert set(kept.unique().tolist()) == {0.0, float(torch.tensor(1.0) / 0.7)}
    assert abs(float((kept == 0).float().mean()) - 0.3) < 0.005
    by_row, by_column = ((kept == 0).float().mean(dim) for dim in (0, 1))
    assert float(by_row.std()) < 2 * (0.21 / 400) ** 0.5
    assert float(by_column.std()) < 2 * (0.21 / 500) ** 0.5


def test_every_call_and_every_module_draws_anew() -> None:
    torch.manual_seed(0)
    first, second = Dropout(), Dropout()
    ones = torch.ones(1000)
    drawn = [module(ones) > 0 for module in (first, first, second)]
    for one in range(3):
        for other in range(one):
            assert 0.4 < float((drawn[one] == drawn[other]).float().mean()) < 0.6


def test_a_restored_module_goes_on_where_it_was() -> None:
    torch.manual_seed(0)
    module, ones = Dropout(), torch.ones(100)
    module(ones)
    saved = {name: value.clone() for name, value in module.state_dict().items()}
    expected = module(ones)
    again = Dropout()
    again.load_state_dict(saved)
    assert torch.equal(again(ones), expected)


def test_evaluation_leaves_everything_as_it_is() -> None:
    module = Dropout(0.9).eval()
    assert torch.equal(module(torch.arange(9.0)), torch.arange(9.0))
    assert int(module.calls) == 0


def test_the_gradient_goes_through_what_is_kept() -> None:
    torch.manual_seed(0)
    values = torch.ones(50, requires_grad=True)
    kept = Dropout()(values)
    kept.sum().backward()
    assert torch.equal(values.grad, kept.detach())


@pytest.mark.parametrize("part", [-0.1, 1.0])
def test_parts_that_cannot_be(part: float) -> None:
    with pytest.raises(QuatcapsError, match=f"dropout of {part}: it must be 0 or more and below 1"):
        Dropout(part)
