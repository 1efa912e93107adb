"""How a run gets on, for a person: a bar on a terminal, a line per epoch everywhere."""

from __future__ import annotations

from rich.console import Console

from quatcaps.console import bar, say


class TrainingProgress:
    """Draws what `Trainer` reports."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.bar = bar(console, "epoch {task.fields[epoch]}", "loss {task.fields[loss]}  error {task.fields[error]}")
        self.task = self.bar.add_task("training", total=None, epoch="–", loss="–", error="–")

    def __enter__(self) -> TrainingProgress:
        self.bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.bar.stop()

    def step(self, step: int, steps: int, epoch: int, loss: float, error: float) -> None:
        self.bar.update(
            self.task, total=steps, completed=step, epoch=epoch + 1, loss=f"{loss:.4f}", error=f"{100 * error:.1f}%"
        )

    def epoch(
        self, epoch: int, epochs: int, loss: float, error: float, measured: dict[str, float], degrees: dict[str, float]
    ) -> None:
        errors = "  ".join(f"{name} {100 * found:5.2f}%" for name, found in {"training": error, **measured}.items())
        width = len(str(epochs))
        poses = "  ".join(f"{name} {median:5.1f}°" for name, median in degrees.items())
        words = f"epoch {epoch + 1:>{width}}/{epochs}  loss {loss:.4f}  error: {errors}"
        say(self.console, f"{words}  pose: {poses}" if poses else words)
