"""What `torch.profiler` recorded of a step: kernels on a GPU, or operators on a CPU, each with what called it."""

from __future__ import annotations

import bisect
import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from quatcaps.bench.kernels import BACK, IN_ROUTING, group_of
from quatcaps.layers import CapsuleLayer

STEP = "quatcaps: step"
ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
LAUNCHES = ("cuda_runtime", "cuda_driver")
CALLS = ("cpu_op", "user_annotation")
Event = dict[str, Any]


@dataclass(frozen=True)
class Span:
    """A kernel, or a part of an operator's own time, in microseconds from the first of its step. counted: of an
    operator that calls others, the first part alone."""

    name: str
    group: str
    start: float
    duration: float
    counted: bool = True


@dataclass(frozen=True)
class Call:
    """An operator or a named part of a step, and the one that it was called in, by its place in the list."""

    name: str
    start: float
    end: float
    parent: int | None


def record(step: Callable[[], None], device: torch.device) -> list[Span]:
    """Two steps under the profiler, of which the second counts: the first has the profiler's own beginnings."""
    on_gpu = device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities) as profiler:
        for _ in range(2):
            with record_function(STEP):
                step()
                if on_gpu:
                    torch.cuda.synchronize(device)
    with tempfile.TemporaryDirectory(prefix="quatcaps-timeline-") as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    return spans_of(events, on_gpu=on_gpu)


def watch(network: nn.Module) -> None:
    """Has the profiler record which operators belong to routing; gradients follow."""
    for module in network.modules():
        if isinstance(module, CapsuleLayer):
            _name(module, IN_ROUTING)


def _name(module: nn.Module, name: str) -> None:
    open_now: list[record_function] = []

    def begin(module: nn.Module, given: object) -> None:
        open_now.append(record_function(name).__enter__())

    def end(module: nn.Module, given: object, output: object) -> None:
        open_now.pop().__exit__(None, None, None)

    module.register_forward_pre_hook(begin)
    module.register_forward_hook(end)


def spans_of(events: Sequence[Event], *, on_gpu: bool) -> list[Span]:
    """The spans of the last step in a trace, in the order of time."""
    times = ("ts", "dur")  # of which whole numbers are written as such
    events = [event | {name: float(event[name]) for name in times if name in event} for event in events]
    whole = [event for event in events if event.get("ph") == "X" and "dur" in event]
    begun = max(event["ts"] for event in whole if event["name"] == STEP and event.get("cat") == "user_annotation")
    calls = Calls([event for event in whole if event.get("cat") in CALLS and event["ts"] >= begun])
    calls.follow([event for event in events if event.get("cat") == "fwdbwd" and event["ts"] >= begun])
    found = list(_kernels(whole, calls, begun) if on_gpu else calls.own_parts())
    first = min((span.start for span in found), default=0.0)
    return sorted((replace(span, start=span.start - first) for span in found), key=lambda span: span.start)


def _kernels(events: Sequence[Event], calls: Calls, begun: float) -> Iterator[Span]:
    launched = _by_argument(events, LAUNCHES, "correlation")
    called = _by_argument(events, CALLS, "External id")  # where a launch was not recorded, its operator may be
    for event in events:
        if event.get("cat") in ON_GPU and event["ts"] >= begun:
            given = event.get("args", {})
            launch = launched.get(given.get("correlation")) or called.get(given.get("External id"))
            operators = calls.chain(launch["tid"], launch["ts"]) if launch else []
            yield Span(event["name"], group_of(event["name"], operators), event["ts"], event["dur"])


def _by_argument(events: Sequence[Event], kinds: Sequence[str], name: str) -> dict[Any, Event]:
    return {
        event["args"][name]: event for event in events if event.get("cat") in kinds and name in event.get("args", {})
    }


class Calls:
    """The operators of a step by thread, each in those that called it."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.threads: dict[Any, list[Call]] = {}
        by_thread = defaultdict(list)
        for event in events:
            by_thread[event["tid"]].append(event)
        for thread, part in by_thread.items():
            self.threads[thread] = nested(part)
        self.starts = {thread: [call.start for call in part] for thread, part in self.threads.items()}
        self.origins: dict[tuple[Any, int], str] = {}

    def follow(self, arrows: Sequence[Event]) -> None:
        """Takes in from which operator of the forward pass each of the backward pass comes."""
        sources = {arrow["id"]: arrow for arrow in arrows if arrow["ph"] == "s"}
        for arrow in arrows:
            source, place = sources.get(arrow["id"]), self.at(arrow["tid"], arrow["ts"])
            if arrow["ph"] != "f" or source is None or place is None:
                continue
            named = [name for name in self.chain(source["tid"], source["ts"]) if name == IN_ROUTING]
            if named:
                self.origins[arrow["tid"], place] = BACK + named[0]
                around = self.threads[arrow["tid"]][place].parent
                if around is not None and self.threads[arrow["tid"]][around].name.startswith("autograd::engine"):
                    self.origins[arrow["tid"], around] = BACK + named[0]

    def at(self, thread: Any, when: float) -> int | None:
        """The innermost call of a thread at a moment."""
        calls = self.threads.get(thread, [])
        place: int | None = bisect.bisect_right(self.starts.get(thread, []), when) - 1
        place = None if place == -1 else place
        while place is not None and calls[place].end < when:
            place = calls[place].parent
        return place

    def chain(self, thread: Any, when: float) -> list[str]:
        """The names of what runs on a thread at a moment, the innermost first."""
        return self.names(thread, self.at(thread, when))

    def names(self, thread: Any, place: int | None) -> list[str]:
        """A call and those around it, with what its gradient belongs to."""
        found: list[str] = []
        while place is not None:
            call = self.threads[thread][place]
            found.append(call.name)
            if (thread, place) in self.origins:
                found.append(self.origins[thread, place])
            place = call.parent
        return [name for name in found if name != STEP]

    def own_parts(self) -> Iterator[Span]:
        """For each operator the time that is not its callees', where that time began; named parts have none."""
        for thread, calls in self.threads.items():
            edges: dict[int, float] = {}  # up to where a call is accounted for
            inside: dict[int | None, list[int]] = defaultdict(list)
            for place, call in enumerate(calls):
                inside[call.parent].append(place)
            for place, call in enumerate(calls):
                names = self.names(thread, place)
                if not names or call.name == IN_ROUTING or call.name.startswith("Optimizer."):
                    continue
                group, edges[place] = group_of(names[0], names[1:]), call.start
                for child in [*inside[place], None]:
                    until = call.end if child is None else calls[child].start
                    if until > edges[place]:
                        yield Span(call.name, group, edges[place], until - edges[place], edges[place] == call.start)
                    edges[place] = call.end if child is None else calls[child].end


def nested(events: Sequence[Event]) -> list[Call]:
    """The events of one thread as calls within calls, by their starts."""
    calls: list[Call] = []
    around: list[int] = []
    for event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
        start, end = event["ts"], event["ts"] + event["dur"]
        while around and calls[around[-1]].end <= start:
            around.pop()
        calls.append(Call(event["name"], start, end, around[-1] if around else None))
        around.append(len(calls) - 1)
    return calls
