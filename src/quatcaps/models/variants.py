"""The capsule networks of the paper's tables, and QCN with its parts removed, as settings of one network."""

from __future__ import annotations

from dataclasses import replace

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

QCN_JOINT = replace(QCN, branched=False)
QCN_FIXED_AXIS = replace(QCN, pose="fixed-axis")
QCN_FREE = replace(QCN, pose="free")
QCN_NO_ROUTING = replace(QCN, iterations=1)
QCN_LOGISTIC = replace(QCN, activation="logistic")

EM_BRANCHED = CapsuleSettings(pose="matrix", capsules=((32, 3, 2), (32, 3, 1)), coordinates=True, activation="logistic")
"""EM‡: matrix capsules behind QCN's branches, 410,418 parameters on smallNORB."""

EM_JOINT = replace(EM_BRANCHED, branched=False, head_norm=False)
"""EM‡ without branches, 533,358."""

EM = replace(EM_JOINT, stem=(32, 5, 2))
"""EM*: matrix capsules as in Hinton et al. 2018, 317,194."""

STEM_ON_CIFAR10 = {"cifar10": {"stem": (256, 5, 2)}}
"""EM* has 256 channels in its convolution on CIFAR-10."""
