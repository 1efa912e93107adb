"""Means and variances of batch normalisation, measured anew for the weights as they are.

Running ones are averages over the last dozen batches, of weights that have changed since. Where the learning rate is
high, they belong to another network, and the error of the one that is measured swings from epoch to epoch.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from quatcaps.data.batches import TrainingBatches
from quatcaps.data.imageset import ImageSet
from quatcaps.layers.residual import by_modules
from quatcaps.training.trained import Trained

BATCHES = 100
"""What statistics are measured on, or on an epoch where that has fewer."""


def is_normalised(network: nn.Module) -> bool:
    """Whether there is any batch normalisation with running statistics."""
    return bool(norms_of(network))


def norms_of(network: nn.Module) -> list[_BatchNorm]:
    return [module for module in network.modules() if isinstance(module, _BatchNorm) and module.track_running_stats]


@torch.no_grad()
def measure_statistics(network: nn.Module, batches: Iterable[Tensor]) -> None:
    """Replaces the running statistics by their means over these batches; nothing else of the network changes."""
    modes, norms = {module: module.training for module in network.modules()}, norms_of(network)
    momenta = [norm.momentum for norm in norms]
    network.eval()
    for norm in norms:
        norm.train()
        norm.reset_running_stats()
        norm.momentum = None  # means over all batches
    with by_modules(network):  # what is faster looks at running statistics, and keeps none
        for images in batches:
            network(images)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    for module, mode in modes.items():
        module.training = mode


def renormalised(trained: Trained, training: ImageSet, device: torch.device, batches: int = BATCHES) -> Trained:
    """The same network with the statistics of so many training batches that would have come next."""
    config = trained.config
    stream = TrainingBatches(
        training, config.batch, config, config.seed, device, placement=config.placement, mixup=config.mixup
    )
    network = copy.deepcopy(trained.network).to(device)
    measure_statistics(network, (batch.images for batch in islice(stream.epoch(config.epochs), batches)))
    return replace(trained, network=network)
