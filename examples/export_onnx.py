"""A trained network as an ONNX file, run by onnxruntime: no PyTorch and no quatcaps are needed where it runs.

    pip install 'quatcaps[export]'
    python examples/export_onnx.py [NAME or path of weights] [FILE.onnx]

Preprocessing is part of the file: it takes bytes as they are stored, and says itself what its classes are.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime

import quatcaps


def main(name: str = "qcn-mnist", path: str | None = None) -> None:
    target = Path(path) if path else Path(tempfile.mkdtemp()) / "network.onnx"
    made = quatcaps.export(name, target, preprocessing=True)
    print(f"{made.path.name}: {made.bytes:,} bytes, largest difference from the network {made.difference:.0e}")

    session = onnxruntime.InferenceSession(target)
    classes = json.loads(session.get_modelmeta().custom_metadata_map["classes"])
    _, channels, height, width = session.get_inputs()[0].shape
    images = np.random.default_rng(0).integers(256, size=(3, channels, height, width), dtype=np.uint8)
    activations, poses = session.run(["activations", "poses"], {"images": images})
    for each in activations:
        print(f"{classes[each.argmax()]}, activation {each.max():.3f}")
    print(f"poses {poses.shape}: the pose of each class capsule for each image")


if __name__ == "__main__":
    main(*sys.argv[1:])
