"""Compiles a whole network as one graph and compares it with the same network uncompiled: DEVICE BACKEND..."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from quatcaps.layers import use_backend
from quatcaps.models import build

device, *backends = sys.argv[1:]
if device == "cuda":
    settings: dict[str, object] = {}
    name, size, compiler = "qcn", 32, "inductor"
else:
    settings = {"primary": 2, "capsules": ((3, 2, 2),)}
    name, size, compiler = "qcn-small", 13, "aot_eager"
    if "triton" in backends:
        sys.path.append(str(Path(__file__).parents[1]))
        import quick_interpreter  # noqa: F401
for backend in backends:
    network = use_backend(build(name, channels=2, classes=3, seed=0, **settings), backend).to(device)
    images = torch.randn(2, 2, size, size, generator=torch.Generator().manual_seed(0)).to(device)
    compiled = torch.compile(network, fullgraph=True, backend=compiler)
    results = []
    for run in (network, compiled):
        network.zero_grad()
        activations = run(images).activations
        activations.square().sum().backward()
        results.append([activations.detach(), *(p.grad.clone() for p in network.parameters() if p.grad is not None)])
    for plain, traced in zip(*results, strict=True):
        error = (plain - traced).norm()
        assert error <= 1e-3 * plain.norm() + 1e-5, f"{backend}: {error} of {plain.norm()}"
    print(f"{name} compiles as one graph with the {backend} backend on {device}")
