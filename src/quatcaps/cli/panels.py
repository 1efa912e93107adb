"""Help in sections: options with a `rich_help_panel` stand under its name, as plain text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typer.core import TyperCommand

PANELS: Mapping[str, tuple[str, ...]] = {
    "Data": (
        "dataset", "stereo_views", "viewpoints", "protocol", "validation", "validation_by", "test", "data_seed",
        "placement",
    ),
    "Network": ("model", "model_settings"),
    "Loss": ("loss", "margin_scale", "score_scale", "label_smoothing", "mixup", "class_weights", "pose_weight"),
    "Optimisation": (
        "epochs", "batch", "learning_rate", "schedule", "decay", "decay_steps", "warmup", "weight_decay",
        "weight_decay_as", "averaging", "averaging_beside", "seed",
    ),
    "Device": ("device", "backend", "precision", "cuda_graph"),
    "Measuring, stopping and logging": (
        "evaluate_every", "evaluate_at", "evaluate_images", "patience", "keep_best", "checkpoint_every", "log_every",
        "tensorboard", "wandb",
    ),
}  # fmt: skip
"""The settings of a run by section."""
IMAGES = "Images and augmentation"
"""Settings of what is done with the images."""


def panel_of(setting: str) -> str:
    """The section of a setting."""
    return next((panel for panel, names in PANELS.items() if setting in names), IMAGES)


class Grouped(TyperCommand):
    """A command whose options stand in sections."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": [], **{name: [] for name in PANELS}}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
                panel = getattr(parameter, "rich_help_panel", None) or kind
                sections.setdefault(panel, []).append(record)
        for name, records in sections.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)
