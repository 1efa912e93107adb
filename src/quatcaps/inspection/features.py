"""What each layer of a network says of many images, in at most a few hundred numbers."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from quatcaps.accelerator import current
from quatcaps.data.batches import evaluation_batches, mix
from quatcaps.data.imageset import ImageSet
from quatcaps.models import Network
from quatcaps.models.capsule_network import CapsuleNetwork
from quatcaps.models.resnet import ResNet
from quatcaps.pipelines import Pipeline
from quatcaps.training.poses import true_poses
from quatcaps.training.predictions import evaluation_batch

MOST = 256
"""Numbers that are kept of a layer; more are projected on so many random directions, the same for every image."""


@dataclass(frozen=True)
class Features:
    """What a network says of N images, float32 on the CPU."""

    layers: dict[str, Tensor]  # (N, at most MOST) the poses of each layer, or features of networks without
    class_poses: Tensor | None  # (N, D) of the true class
    activations: Tensor  # (N, classes)


@torch.no_grad()
def features_of(
    network: Network,
    images: ImageSet,
    pipeline: Pipeline,
    device: torch.device,
    progress: Callable[[int, int], None] | None = None,
) -> Features:
    """One pass; of several views that a pipeline has of an image, the first. Restores the training mode."""
    training = network.training
    network.eval()
    found: dict[str, list[Tensor]] = defaultdict(list)
    poses: list[Tensor] = []
    activations: list[Tensor] = []
    done = 0
    try:
        with noted(network) as layers:
            for views in evaluation_batches(
                images, evaluation_batch(network, pipeline.seen(images.size)), pipeline, device
            ):
                layers.clear()
                with current(device):
                    output = network(views[0])
                for name, values in layers.items():
                    found[name].append(reduced(values.float().flatten(1)).cpu())
                labels = images.labels[done : done + len(views[0])].to(device)
                if (of_classes := getattr(output, "poses", None)) is not None:
                    poses.append(true_poses(of_classes.float(), labels).cpu())
                activations.append(output.activations.float().cpu())
                done += len(labels)
                if progress is not None:
                    progress(done, len(images))
    finally:
        network.train(training)
    return Features(
        {name: torch.cat(pieces) for name, pieces in found.items()},
        torch.cat(poses) if poses else None,
        torch.cat(activations),
    )


@contextlib.contextmanager
def noted(network: Network) -> Iterator[dict[str, Tensor]]:
    """A dictionary that holds, after a call of the network, what its layers made of the images."""
    layers: dict[str, Tensor] = {}
    with contextlib.ExitStack() as hooks:
        for name, module in layers_of(network).items():
            hook = module.register_forward_hook(
                lambda _module, _inputs, output, name=name: layers.update({name: of(output)})
            )
            hooks.callback(hook.remove)
        yield layers


def of(output: Tensor | tuple[Tensor, ...]) -> Tensor:
    """The poses of capsules, or features as they are."""
    return output if isinstance(output, Tensor) else output[0]


def layers_of(network: Network) -> dict[str, nn.Module]:
    """The layers before the classes, by a name that says where they stand."""
    if isinstance(network, CapsuleNetwork):
        hidden = {f"capsules {number}": layer for number, layer in enumerate(network.convolutional, 1)}
        return {"primary": network.primary, **hidden}
    if isinstance(network, ResNet):
        blocks = network.settings.blocks
        return {
            f"stage {number}": network.stages[number * blocks - 1]
            for number in range(1, len(network.settings.widths) + 1)
        }
    return {}


def reduced(values: Tensor) -> Tensor:
    """(N, F) → (N, min(F, MOST))."""
    count = values.shape[1]
    if count <= MOST:
        return values
    generator = torch.Generator().manual_seed(mix(count, MOST))
    directions = torch.randn(count, MOST, generator=generator) / MOST**0.5
    return values @ directions.to(values)


def principal(values: Tensor, count: int) -> Tensor:
    """(N, F) → (N, count): along the directions in which the values vary most."""
    centred = values.double() - values.double().mean(0)
    directions = torch.linalg.eigh(centred.T @ centred).eigenvectors.flip(1)[:, :count]
    return centred @ directions
