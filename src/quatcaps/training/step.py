"""One training step: forward, loss, backward, and the optimiser, unless a number is not finite.

On a CPU every step is checked before the weights change. On a GPU the check stays on the device: from the first number
that is not finite the optimiser skips its updates, the batch is kept, and `check`, which waits for the device, raises
when it is next called. After a few steps the whole of it is captured as one CUDA graph, which gives the same numbers
without the launches. Several processes average their gradients before the check, so that they agree on it; a graph has
that too, if they do so by NCCL.
"""

from __future__ import annotations

import copy
import math
import warnings

import torch
from torch import Tensor, nn

from quatcaps.accelerator import current, in_precision, rounding, unavailable
from quatcaps.compiling import compile_ahead
from quatcaps.data.batches import Batch
from quatcaps.data.imageset import ImageSet
from quatcaps.data.mixing import Mixed
from quatcaps.data.viewpoints import Views
from quatcaps.errors import QuatcapsError
from quatcaps.losses import balanced_weights, cross_entropy, margin, mixed_cross_entropy, quick_spread_loss
from quatcaps.models import Network, Output
from quatcaps.training.averaging import Average
from quatcaps.training.config import TrainingConfig, numbers_of
from quatcaps.training.health import NonFiniteError, origin
from quatcaps.training.poses import pose_loss
from quatcaps.training.processes import ALONE, Processes

STEPS_BEFORE_CAPTURE = 3


class TrainingStep:
    """A network, its optimiser, and what a step leaves: the loss, and sums over steps."""

    def __init__(
        self,
        network: nn.Module,
        config: TrainingConfig,
        device: torch.device,
        processes: Processes = ALONE,
        average: Average[Network] | None = None,
        relative_poses: bool = False,
        class_weights: Tensor | None = None,
    ) -> None:
        """relative_poses: the pose objective compares two views of a toy, as its own zero is not known. class_weights:
        (classes,), of the loss of each image by its class."""
        self.network, self.config, self.device, self.processes = network, config, device, processes
        self.average, self.relative_poses = average, relative_poses
        self.class_weights = None if class_weights is None else class_weights.to(device)
        processes.synchronise(network)
        self.on_gpu = device.type == "cuda"
        self.optimiser = make_optimiser(network, config, device)
        self.margin = torch.zeros((), device=device)
        self.totals = torch.zeros(2, dtype=torch.float64, device=device)  # of the loss, and of misclassified images
        self.loss = torch.zeros((), device=device)
        self.good_steps = torch.zeros((), dtype=torch.int64, device=device)
        self.bad = torch.zeros((), device=device)  # 1 from the first number that is not finite
        if self.on_gpu:
            # What a gradient scaler would set: the fused optimiser then leaves the weights as they are.
            self.optimiser.found_inf = self.bad  # type: ignore[attr-defined]
        self.images: Tensor | None = None
        self.labels: Tensor | None = None
        self.views: Views | None = None
        self.mixed: Mixed | None = None
        self.taken = 0
        self.side = torch.cuda.Stream(device) if self.on_gpu else None
        self.graph: torch.cuda.CUDAGraph | None = None
        self.may_capture = self.on_gpu and config.cuda_graph and processes.in_graphs

    def __call__(
        self,
        images: Tensor,
        labels: Tensor,
        rate: float,
        step: int,
        views: Views | None = None,
        mixed: Mixed | None = None,
    ) -> None:
        """Trains on one batch; `step` counts from 0 over the whole run. `views` are for the pose objective; `mixed`
        says what the images were mixed with, if they were."""
        with current(self.device):
            self.take(Batch(images, labels, views, mixed), rate, step)

    def take(self, batch: Batch, rate: float, step: int) -> None:
        """`__call__`, where the device is the current one."""
        images, labels, views, mixed = batch
        self.set_rate(rate)
        self.margin.fill_(margin(step, self.config.margin_scale))
        if self.average is not None:
            self.average.follow(step)
        if self.images is None or self.labels is None or images.shape != self.images.shape:
            self.images, self.labels, self.graph = images.clone(), labels.clone(), None
            self.views = views and Views(*(values.clone() for values in views))
            self.mixed = mixed and Mixed(*(values.clone() for values in mixed))
        elif self.on_gpu:
            # A batch after which a number was not finite stays, for `check` to look at.
            held = (self.images, self.labels, *(self.views or ()), *(self.mixed or ()))
            given = (images, labels, *(views or ()), *(mixed or ()))
            for kept, new in zip(held, given, strict=True):
                torch.where(self.bad > 0, kept, new, out=kept)
        else:
            self.images, self.labels, self.views, self.mixed = images, labels, views, mixed
        if not self.on_gpu:
            self.compute()
        elif self.may_capture and self.taken >= STEPS_BEFORE_CAPTURE:
            self.replay()
        else:
            self.compute_aside()
        self.taken += 1

    def compute(self) -> None:
        """The step itself, on `self.images`."""
        loss, wrong = self.gradients()
        norm = torch.nn.utils.get_total_norm([p.grad for p in self.network.parameters() if p.grad is not None])
        self.loss.copy_(loss)
        torch.maximum(self.bad, (~torch.isfinite(loss + norm)).float(), out=self.bad)
        if not self.on_gpu:
            self.check()
        self.optimiser.step()
        if self.average is not None:
            self.average.update()
        self.totals += torch.stack([loss.double(), wrong.double()])
        self.good_steps += (self.bad == 0).long()

    def gradients(self) -> tuple[Tensor, Tensor]:
        """Forward and backward: the loss of the batch, and how many of its images are misclassified."""
        assert self.images is not None
        assert self.labels is not None
        self.optimiser.zero_grad(set_to_none=True)
        with rounding(self.config.precision):
            with in_precision(self.config.precision, self.device):
                output = self.network(self.images)
            loss = loss_of(self.config, output, self.labels, self.margin, self.class_weights, self.mixed)
            if self.config.pose_weight and self.views is not None:
                of_poses = pose_loss(output.poses, self.labels, self.views, self.relative_poses)
                loss = loss + self.config.pose_weight * of_poses
            loss.backward()
        wrong = output.activations.argmax(1).ne(self.labels).sum()
        return self.processes.average(self.network, loss.detach(), wrong)

    def rehearse(self) -> None:
        """Launches what `gradients` launches, for a copy of the network."""
        assert self.images is not None
        assert self.labels is not None
        network = copy.deepcopy(self.network)
        with rounding(self.config.precision):
            with in_precision(self.config.precision, self.device):
                output = network(self.images)
            loss_of(self.config, output, self.labels, self.margin, self.class_weights).backward()

    def compute_aside(self) -> None:
        """On a stream of its own, as the steps before a capture must be."""
        assert self.side is not None
        if self.taken == 0 and not self.processes.several and unavailable(self.device) is None:
            compile_ahead(self.rehearse)
        main = torch.cuda.current_stream(self.device)
        self.side.wait_stream(main)
        with torch.cuda.stream(self.side):
            self.compute()
        main.wait_stream(self.side)

    def replay(self) -> None:
        """The step from its graph, captured the first time."""
        if self.graph is None:
            torch.cuda.empty_cache()  # a graph has memory of its own
            graph = torch.cuda.CUDAGraph()
            try:
                # Without a stream it would be one that belongs to the GPU on which this process captured first.
                with torch.cuda.graph(graph, stream=self.side, capture_error_mode="thread_local"):
                    self.compute()
            except RuntimeError as error:
                self.may_capture = False
                reason = str(error).strip().splitlines()[0]
                warnings.warn(f"training without a CUDA graph: this step cannot be captured ({reason})", stacklevel=2)
                self.compute_aside()
                return
            self.graph = graph
        self.graph.replay()

    def check(self) -> None:
        """Raises if the loss or a gradient was not finite. On a GPU this waits for all steps that were asked for: since
        that batch they have been over and over the same one, with the same weights, so that all is as it was then."""
        if not self.bad.item():
            return
        assert self.images is not None
        loss = self.loss.item()
        what = "a gradient is not finite" if math.isfinite(loss) else f"the loss is {loss}"
        with current(self.device):
            found = origin(self.network, self.images)
        raise NonFiniteError(f"{what}; it began in {self.processes.earliest(*found)}")

    def set_rate(self, rate: float) -> None:
        for group in self.optimiser.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate


def make_optimiser(network: nn.Module, config: TrainingConfig, device: torch.device) -> torch.optim.Adam:
    """AdamW, or Adam with weight decay in the gradient, by one kernel; on a GPU with its rate and its counters on the
    device, so that a graph can hold it."""
    kind = torch.optim.AdamW if config.weight_decay_as == "decoupled" else torch.optim.Adam
    if device.type != "cuda":
        fused = device.type == "cpu" or None
        return kind(network.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, fused=fused)
    return kind(
        network.parameters(),
        lr=torch.tensor(config.learning_rate, device=device),
        weight_decay=config.weight_decay,
        fused=True,
        capturable=True,
    )


def loss_of(
    config: TrainingConfig,
    output: Output,
    labels: Tensor,
    margin: Tensor,
    class_weights: Tensor | None = None,
    mixed: Mixed | None = None,
) -> Tensor:
    if config.loss == "cross-entropy":
        scores, scale, smoothing = output.scores.float(), config.score_scale, config.label_smoothing
        if mixed is None:
            return cross_entropy(scores, labels, scale, smoothing, class_weights)
        return mixed_cross_entropy(scores, labels, mixed.labels, mixed.parts, scale, smoothing, class_weights)
    return quick_spread_loss(output.activations.float(), labels, margin, class_weights)


def class_weights_of(config: TrainingConfig, images: ImageSet) -> Tensor | None:
    """(classes,) float32, of a run on these training images; None where all weigh the same."""
    if config.class_weights == "none":
        return None
    if config.class_weights == "balanced":
        return balanced_weights(images.labels, len(images.classes))
    numbers = numbers_of(config.class_weights)
    if len(numbers) != len(images.classes):
        raise QuatcapsError(
            f"class_weights = {config.class_weights}: {len(numbers)} numbers for {len(images.classes)} classes "
            f"({', '.join(images.classes[:12])}); give one for each, in this order"
        )
    return torch.tensor(numbers)
