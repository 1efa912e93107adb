"""Where the pixels of training images are, and how those of the next batches come to the device.

On a CPU they stay where they are stored. On a GPU they are copied there once, as bytes; where they do not fit they stay
on the host, and a thread fetches the next batches through pinned memory while the GPU computes. The batches are the
same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from quatcaps.data.imageset import ImageSet
from quatcaps.data.preprocessing import Draws
from quatcaps.errors import unknown_name

PLACEMENTS = ("auto", "device", "host")
AHEAD = 3
"""Batches under way from the host."""
AT_ONCE = 4096
"""Images copied to a device in one piece."""
LARGEST_PART = 0.5
"""Of a device's free memory that images may take."""


class Plan(NamedTuple):
    """The images of a batch: which, by number on the host and on the device, and what chance decides for them."""

    numbers: Tensor  # (n,) int64 on the CPU
    rows: Tensor  # the same on the device
    chance: Draws


def hold(images: ImageSet, device: torch.device, placement: str) -> OnDevice | OnHost:
    """The images on the `device`, on the `host`, or, `auto`, on the device where they fit."""
    if placement not in PLACEMENTS:
        raise unknown_name("placement", placement, PLACEMENTS)
    if placement == "host" or (placement == "auto" and not fits(images, device)):
        return OnHost(images, device)
    return OnDevice(images, device)


def fits(images: ImageSet, device: torch.device) -> bool:
    """Whether the pixels take at most half of what is free on a GPU."""
    return device.type != "cuda" or images.nbytes <= LARGEST_PART * torch.cuda.mem_get_info(device)[0]


def copied(images: ImageSet, device: torch.device) -> Tensor:
    """(N, C, H, W) uint8 on another device, a piece at a time."""
    pixels = torch.empty(len(images), images.channels, *images.size, dtype=torch.uint8, device=device)
    for start in range(0, len(images), AT_ONCE):
        pixels[start : start + AT_ONCE] = images.at(slice(start, start + AT_ONCE)).to(device)
    return pixels


def placed(images: ImageSet, device: torch.device) -> ImageSet:
    """The same images with their pixels on a GPU, for looking at them again and again; as they are where they do not
    fit, and on a CPU."""
    if device.type == "cpu" or not fits(images, device):
        return images
    return replace(images, stored=copied(images, device), rows=None)


class OnDevice:
    """Images where they are used; on a CPU, where they are stored."""

    def __init__(self, images: ImageSet, device: torch.device) -> None:
        self.images, self.pixels = images, None if device.type == "cpu" else copied(images, device)

    def following(self, plans: Iterable[Plan]) -> Iterator[tuple[Plan, Tensor]]:
        """Each plan with its images, (n, C, H, W) uint8 on the device."""
        for plan in plans:
            yield plan, self.images.at(plan.numbers) if self.pixels is None else self.pixels[plan.rows]


class OnHost:
    """Images on the host; those of the next batches are on their way while one is used."""

    def __init__(self, images: ImageSet, device: torch.device) -> None:
        self.images, self.device = images, device
        self.on_gpu = device.type == "cuda"
        self.stream = torch.cuda.Stream(device) if self.on_gpu else None

    def following(self, plans: Iterable[Plan]) -> Iterator[tuple[Plan, Tensor]]:
        """As of `OnDevice`."""
        slots = deque(_Slot() for _ in range(AHEAD))
        under_way: deque[tuple[Plan, Future[Tensor], _Slot]] = deque()
        with ThreadPoolExecutor(1, thread_name_prefix="quatcaps-images") as worker:
            for plan in plans:
                slot = slots.popleft()
                under_way.append((plan, worker.submit(self.fetch, plan.numbers, slot), slot))
                if not slots:
                    yield self.arrived(*under_way.popleft(), slots)
            while under_way:
                yield self.arrived(*under_way.popleft(), slots)

    def arrived(self, plan: Plan, coming: Future[Tensor], slot: _Slot, slots: deque[_Slot]) -> tuple[Plan, Tensor]:
        pixels = coming.result()
        if slot.copied is not None:
            current = torch.cuda.current_stream(self.device)
            current.wait_event(slot.copied)
            pixels.record_stream(current)
        slots.append(slot)
        return plan, pixels

    def fetch(self, numbers: Tensor, slot: _Slot) -> Tensor:
        """Gathers images into pinned memory and sends them on; runs in the thread."""
        if self.stream is None:
            return self.images.at(numbers)
        if slot.copied is not None:
            slot.copied.synchronize()  # what the slot held last has left it
        gathered = self.images.at(numbers)
        with torch.cuda.stream(self.stream):  # and so with its GPU as the current one, which pins the memory
            if slot.pinned is None or slot.pinned.shape != gathered.shape:
                slot.pinned = torch.empty_like(gathered, pin_memory=True)
            slot.pinned.copy_(gathered)
            pixels = slot.pinned.to(self.device, non_blocking=True)
            slot.copied = torch.cuda.Event()
            slot.copied.record(self.stream)
        return pixels


class _Slot:
    """A piece of pinned memory, and when it may be filled again."""

    def __init__(self) -> None:
        self.pinned: Tensor | None = None
        self.copied: torch.cuda.Event | None = None
