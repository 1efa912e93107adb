"""What one measured step does, as a function without arguments; everything it needs stands before the first."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from quatcaps.accelerator import in_precision
from quatcaps.bench.cases import CHANNELS, CLASSES, FORWARD, SIDE, Case, Layer
from quatcaps.bench.networks import build_model
from quatcaps.bench.variants import VARIANTS, by_backend
from quatcaps.layers import ConvolutionalCapsules
from quatcaps.losses import quick_spread_loss

Step = Callable[[], None]
LEARNING_RATE, MARGIN = 3e-3, 0.5
SETTINGS = {
    "input": f"{CHANNELS}×{SIDE}×{SIDE}",
    "classes": CLASSES,
    "dtype": "float32, but for convolutions where a row's precision says otherwise",
    "train": "zero_grad, forward, spread loss, backward, AdamW (fused)",
    "forward": "evaluation mode, without gradients",
}


def network_step(case: Case, device: torch.device, watch: Callable[[nn.Module], None] | None = None) -> Step:
    """A training step, or a forward pass, of the network of `case` on one random batch; `watch` is given the network
    before its first."""
    network = build_model(case.model, channels=CHANNELS, classes=case.classes).to(device)
    if watch is not None:
        watch(network)
    prepared = VARIANTS[case.variant].prepare(network.train(case.passing != FORWARD))
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(case.batch, CHANNELS, case.side, case.side, generator=generator).to(device)
    if case.passing == FORWARD:

        def forward() -> None:
            with torch.no_grad(), in_precision(case.precision, device):
                prepared(images)

        return forward

    labels = torch.randint(case.classes, (case.batch,), generator=generator).to(device)
    on_cuda = device.type == "cuda"
    optimiser = torch.optim.AdamW(
        prepared.parameters(), lr=LEARNING_RATE, fused=True, capturable=on_cuda and case.graph
    )

    def train() -> None:
        optimiser.zero_grad(set_to_none=True)
        with in_precision(case.precision, device):
            output = prepared(images)
        quick_spread_loss(output.activations.float(), labels, MARGIN).backward()
        optimiser.step()

    return train


def layer_step(layer: Layer, device: torch.device) -> Step:
    """Forward and backward of one layer of convolutional capsules, to its children and to its maps."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        module = ConvolutionalCapsules(layer.children, layer.parents, layer.kernel).to(device)
    by_backend(module, layer.variant)
    generator = torch.Generator().manual_seed(0)
    side = layer.side + layer.kernel - 1

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(device)

    poses = normal(layer.batch, layer.children, module.pose.dims, side, side).requires_grad_()
    activations = normal(layer.batch, layer.children, side, side).sigmoid().requires_grad_()
    towards = (
        normal(layer.batch, layer.parents, module.pose.dims, layer.side, layer.side),
        normal(layer.batch, layer.parents, layer.side, layer.side),
    )

    def step() -> None:
        poses.grad = activations.grad = None
        module.zero_grad(set_to_none=True)
        torch.autograd.backward(tuple(module(poses, activations)), towards)

    return step
