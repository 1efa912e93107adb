"""Dropout that is part of the network: its share, its independence, and that it can be saved and graphed."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

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


def segment() -> nn.Sequential:
    """With the dropout in the middle: its output is what later layers keep for the backward pass."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), Dropout(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2)).double()


def batches(count: int) -> list[Tensor]:
    torch.manual_seed(1)
    return [torch.randn(6, 4, dtype=torch.float64, requires_grad=True) for _ in range(count)]


def gradients(network: nn.Module, inputs: list[Tensor], call: Callable[[nn.Module, Tensor], Tensor]) -> list[Tensor]:
    """Summed over batches, each with a backward pass of its own."""
    network.zero_grad()
    for values in inputs:
        call(network, values).square().sum().backward()
    return [parameter.grad.clone() for parameter in network.parameters()]


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpointed_segment_has_the_same_gradients(reentrant: bool) -> None:
    """Of one batch, and of several one after the other; the module goes on as without checkpoints."""
    plain = segment()
    checkpointed = copy.deepcopy(plain)
    for count in (1, 1, 3):
        wanted = gradients(plain, batches(count), lambda network, values: network(values))
        found = gradients(
            checkpointed, batches(count), lambda network, values: checkpoint(network, values, use_reentrant=reentrant)
        )
        for one, other in zip(found, wanted, strict=True):
            assert torch.equal(one, other)
        assert torch.equal(checkpointed[2].calls, plain[2].calls)


def test_a_checkpoint_within_a_checkpoint_and_a_second_backward_pass() -> None:
    """The same call is recomputed more than once."""
    (values,) = batches(1)

    def nested(network: nn.Module, values: Tensor) -> Tensor:
        def inner(inputs: Tensor) -> Tensor:
            return checkpoint(network[1:4], inputs, use_reentrant=False)

        return checkpoint(lambda inputs: network[4:](inner(network[0](inputs))), values, use_reentrant=False)

    plain, other = segment(), segment()
    wanted = gradients(plain, [values], lambda network, values: network(values))
    for one, expected in zip(gradients(other, [values], nested), wanted, strict=True):
        assert torch.equal(one, expected)
    other = segment()
    loss = checkpoint(other, values, use_reentrant=False).square().sum()
    for _ in range(2):
        other.zero_grad()
        loss.backward(retain_graph=True)
        for parameter, expected in zip(other.parameters(), wanted, strict=True):
            assert torch.equal(parameter.grad, expected)


@pytest.mark.parametrize("reentrant", [False, True])
def test_which_call_is_recomputed_must_be_clear(reentrant: bool) -> None:
    network, (one, other) = segment(), batches(2)
    loss = sum(checkpoint(network, values, use_reentrant=reentrant).sum() for values in (one, other))
    with pytest.raises(QuatcapsError, match=r"after 2 calls of one Dropout.*a Dropout of its own.*call train"):
        loss.backward()
    shared = Dropout()
    twice = nn.Sequential(nn.Linear(4, 4), shared, nn.Linear(4, 4), shared).double()
    with pytest.raises(QuatcapsError, match="after 2 calls of one Dropout"):
        checkpoint(twice, one, use_reentrant=reentrant).sum().backward()


def test_calls_before_train_are_forgotten() -> None:
    network, (values,) = segment(), batches(1)
    for _ in range(3):
        network(values)
    network.eval()
    network.train()
    plain = copy.deepcopy(network)
    found = gradients(network, [values], lambda network, values: checkpoint(network, values, use_reentrant=False))
    wanted = gradients(plain, [values], lambda network, values: network(values))
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one, other)


def test_it_traces_whole_and_draws_the_same() -> None:
    torch.manual_seed(0)
    module, ones = Dropout(), torch.ones(100)
    other = copy.deepcopy(module)
    compiled = torch.compile(other, fullgraph=True, backend="aot_eager")
    for _ in range(3):
        assert torch.equal(compiled(ones), module(ones))
    assert set(module.state_dict()) == {"seed", "calls"}
    assert torch.equal(pickle.loads(pickle.dumps(other))(ones), module(ones))


def test_bits_that_runs_and_weights_rely_on() -> None:
    module = Dropout(0.5)
    module.seed.fill_(12345)
    kept = torch.stack([module(torch.ones(16)) > 0 for _ in range(2)]).long()
    assert ["".join(map(str, row)) for row in kept.tolist()] == ["0010100111101110", "0010000101111011"]
