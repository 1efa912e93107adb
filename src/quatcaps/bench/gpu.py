"""Time and memory on a GPU, launched step by step or captured as one CUDA graph."""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Callable

import torch

from quatcaps.bench.precision import TF32, as_training
from quatcaps.bench.rows import Timing
from quatcaps.bench.steps import Step
from quatcaps.compiling import compile_ahead

WARM_UP = 5
"""Steps before the counted ones; kernels are compiled and tuned in the first."""


class CudaClock:
    """Times steps by the GPU's own clock, as training runs them: with deterministic cuDNN kernels."""

    def __init__(self, device: torch.device) -> None:
        self.device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        self.stream = torch.cuda.Stream(self.device)
        with torch.cuda.device(self.device):
            self.prime()

    def prime(self) -> None:
        """Has the matrix library take its workspaces, one per stream, so that no variant is charged for them."""
        ones = torch.ones(64, 64, device=self.device)
        torch.mm(ones, ones)
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            torch.mm(ones, ones)
        torch.cuda.current_stream().wait_stream(self.stream)
        torch.cuda.synchronize()

    def measure(
        self, make: Callable[[], Step], steps: int, *, graph: bool, tf32: TF32 | None = None, ahead: bool = False
    ) -> Timing:
        """`steps` steps of what `make` returns, with TF32 as PyTorch is set unless told. ahead: kernels are compiled
        ahead of the first, as in training, and the seconds of the first include that, but no `make`."""
        with (
            torch.cuda.device(self.device),
            as_training(tf32),
            warnings.catch_warnings(),
        ):
            # Warming up an optimiser that will be captured, and the compiler's advice on TF32.
            warnings.simplefilter("ignore")
            compiling = self.compile_ahead(make()) if ahead else 0.0
            return self._measure(make(), steps, graph, compiling)

    def compile_ahead(self, step: Step) -> float:
        """The seconds that it took."""
        settle()
        begun = time.perf_counter()
        compile_ahead(step)
        return time.perf_counter() - begun

    def _measure(self, step: Step, steps: int, graph: bool, compiling: float) -> Timing:
        settle()
        allocated, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
        first = compiling + self.warm_up(step)
        # Tuning a kernel takes memory of its own: only what comes after it counts.
        settle()
        torch.cuda.reset_peak_memory_stats()
        seconds = self.time(self.captured(step) if graph else step, steps)
        return Timing(
            first,
            seconds,
            torch.cuda.max_memory_allocated() - allocated,
            torch.cuda.max_memory_reserved() - reserved,
        )

    def warm_up(self, step: Step) -> float:
        """Runs steps on the stream that may be captured; the seconds of the first."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            started = time.perf_counter()
            step()
            torch.cuda.synchronize()
            first = time.perf_counter() - started
            for _ in range(WARM_UP - 1):
                step()
        torch.cuda.current_stream().wait_stream(self.stream)
        torch.cuda.synchronize()
        return first

    def captured(self, step: Step) -> Step:
        """The launches of one step as a graph; replaying it reads and writes the same tensors each time."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            step()
        return graph.replay

    def time(self, step: Step, steps: int) -> tuple[float, ...]:
        """The seconds of each step between two events on the current stream; nothing waits before the last."""
        for _ in range(2):  # the allocator's memory was given back after warming up
            step()
        torch.cuda.synchronize()
        events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(steps)]
        for before, after in events:
            before.record()
            step()
            after.record()
        torch.cuda.synchronize()
        return tuple(before.elapsed_time(after) / 1000 for before, after in events)


def settle() -> None:
    """Waits for the current device and gives back what nothing uses."""
    torch.cuda.synchronize()
    gc.collect()
    torch.cuda.empty_cache()
