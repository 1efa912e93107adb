"""The capsule networks of the paper's tables, and QCN with its parts removed, as settings of one network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from quatcaps import routing
from quatcaps.models.capsule_network import CapsuleSettings

QCN = CapsuleSettings()
"""The paper's: 187,762 parameters on smallNORB, 298,478 without branches."""

QCN_SMALL = CapsuleSettings(
    primary=8,
    pose_blocks=((16, 2), (32, 2)),
    activation_blocks=((16, 4),),
    joint_blocks=((24, 2), (32, 2)),
    capsules=((12, 3, 2), (12, 3, 1)),
)
"""The same network for CPUs: fewer capsules on a coarser grid, about 1/258 of the votes on 32×32 images."""

COARSE: Mapping[str, Any] = {
    "primary": 16,
    "pose_blocks": ((24, 2), (48, 2)),
    "activation_blocks": ((24, 4),),
    "joint_blocks": ((48, 2), (72, 2)),
    "capsules": ((16, 3, 2), (16, 3, 1)),
}
"""A shape of QCN: capsules on a quarter of the image's grid, not half, with windows of 3×3; 65,538 parameters on
smallNORB, and 1% of the votes."""

DEEP: Mapping[str, Any] = {
    "primary": 32,
    "pose_blocks": ((32, 1), (48, 2), (64, 2)),
    "activation_blocks": ((16, 2), (24, 2)),
    "joint_blocks": ((48, 1), (64, 2), (72, 2)),
    "capsules": ((16, 3, 2), (16, 3, 1)),
}
"""The same capsules behind one more residual block in either branch: the parameters of the paper's 5×5 windows go into
convolutions. 161,904 parameters on CIFAR-10, 2% of the votes."""

QCN_COARSE = replace(QCN, **COARSE)
QCN_DEEP = replace(QCN, **DEEP)

ROTOR: Mapping[str, Any] = {"pose": "rotor", "unit": True, "routing": routing.EM(variance="isotropic")}
QCN_ROTOR, QCN_ROTOR_DEEP = replace(QCN, **ROTOR), replace(QCN_DEEP, **ROTOR)
QCN_ROTOR_SMALL = replace(QCN_SMALL, **ROTOR)
"""Quaternion capsules that are equivariant: unit quaternions turned by learned rotors from the right, one variance for
all four numbers. A rotation of all primary poses turns every later pose by it and changes no activation."""

QCN_JOINT = replace(QCN, branched=False)
QCN_FIXED_AXIS = replace(QCN, pose="fixed-axis")
QCN_FREE = replace(QCN, pose="free")
QCN_NO_ROUTING = replace(QCN, routing=routing.EM(iterations=1))
QCN_LOGISTIC = replace(QCN, routing=routing.EM(activation="logistic"))

EM_BRANCHED = CapsuleSettings(
    pose="matrix",
    capsules=((32, 3, 2), (32, 3, 1)),
    coordinates=True,
    routing=routing.EM(activation="logistic"),
)
"""EM‡: matrix capsules behind QCN's branches, 410,418 parameters on smallNORB."""

EM_JOINT = replace(EM_BRANCHED, branched=False, head_norm=False)
"""EM‡ without branches, 533,358."""

EM = replace(EM_JOINT, stem=(32, 5, 2))
"""EM*: matrix capsules as in Hinton et al. 2018, 317,194."""

EM_IBM = replace(EM, stem=(64, 5, 2), routing=routing.EM_IBM)
"""EM-IBM: EM* with Gritzman's three fixes, as his public code computes them, and 64 channels in its convolution:
336,234 parameters on smallNORB, 334,634 on single views as he trained it."""

VB = replace(
    EM,
    pose="matrix-xavier",
    stem=(64, 5, 2),
    stem_norm=True,
    primary=16,
    head_norm=True,
    capsules=((32, 3, 2), (16, 3, 1)),
    routing=routing.VB(iterations=3, activation="mixing"),
)
"""VB: routing via variational Bayes, 170,394 parameters on smallNORB. Its paper's 169K are reached by widths of 64, 16,
32 and 16 (169,642 in its public code, which has no biases); the widths 64, 8, 16 and 16 of that code's example give
69K."""

EM_PUBLISHED = replace(
    EM,
    pose="matrix-drawn",
    coordinates=False,
    convolutions="pytorch",
    routing=routing.EM(iterations=3, variance_floor=5e-8, betas="uniform"),
)
"""EM* as the QCN authors' public code has it; the floor is half of its ε, which it adds to twice the variance."""

EM_IBM_PUBLISHED = replace(
    EM_IBM,
    pose="matrix-normal",
    primary=8,
    capsules=((16, 3, 2), (16, 3, 1)),
    stem_padding="same",
    image_norm=True,
    convolutions="xavier",
)
"""EM-IBM as its public code computes it: 67,154 parameters on single views of smallNORB, as there, and 68,754 on
pairs."""

VB_PUBLISHED = replace(
    VB, pose_norm="type", coordinate_rule="constant", routing=routing.VB(iterations=3, competition="all-later")
)
"""VB as its public code computes it: 169,642 parameters on smallNORB, as there."""

STEM_ON_CIFAR10 = {"cifar10": {"stem": (256, 5, 2)}}
"""EM* has 256 channels in its convolution on CIFAR-10."""
