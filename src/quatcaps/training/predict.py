"""Pictures through a trained network."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from quatcaps.data.preprocessing import views_for_evaluation
from quatcaps.training.measure import evaluation_batch, mean_activations
from quatcaps.training.preprocess import Picture
from quatcaps.training.trained import Trained


@torch.no_grad()
def predict(trained: Trained, pictures: Sequence[Picture], device: torch.device) -> Tensor:
    """(pictures, classes): the activation of every class for every picture, averaged over the windows that the network
    was tested with."""
    stored = trained.preprocessing.stored(pictures)
    network = trained.network.to(device)
    batch = evaluation_batch(network, trained.config.seen(trained.size))
    found = []
    for part in stored.split(batch):
        found.append(mean_activations(network, views_for_evaluation(trained.config, part.to(device))).cpu())
    return torch.cat(found)
