"""What Triton's interpreter leaves to a GPU: it takes seconds for what a GPU does in microseconds.

Every kernel and every way through it runs in the interpreter, in some shape; on a machine with a GPU all tests run.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
import torch

SHAPES = (
    "3x3", "7x7", "stride 2", "100 classes", "one parent", "3 rows of 3", "3 rows of 2", "5 rows of 1", "2 rows of 2",
    "1 row of 4", "1 iteration", "5 iterations", "logistic", "coordinates in windows", "EM-IBM of quaternions",
    "all positions, stride 2", "all positions, classes", "VB, all positions",
)  # fmt: skip
FOR_A_GPU = (
    *(f"test_same_numbers[[]{shape}-triton]" for shape in SHAPES),
    *(
        f"*_from_adversarial_input[[]{name}*"
        for name in ("one kind of child-t", "all active-t", "large poses-t", "tiny poses-t")
    ),
    "*wide_poses_from_adversarial_input[[]agreeing]",
    "*wide_poses_from_adversarial_input[[]large poses]",
    "test_finite_in_finite_out_of_wide_poses[[]all inactive]",
    "test_finite_in_finite_out_of_wide_poses[[]poses beyond it]",
    "test_finite_in_finite_out[[]zero poses-triton]",
    "test_finite_in_finite_out[[]poses at the limit-triton]",
    "test_finite_in_finite_out[[]tiny activations-triton]",
    *(f"test_finite_in_finite_out_of_wild_layers[[]{name}*triton]" for name in ("random", "poses at", "tiny")),
    *(f"test_finite_in_finite_out_of_wild_layers[[]one*{name}-triton]" for name in ("1e-30", "floor", "isotropic")),
    *(f"test_moments_under_given_parents[[]{name}-triton]" for name in ("as they are", "a common*", "no precision")),
    "test_autocast_is_safe[[]dtype1-triton]",
    *(f"test_any_routing*[[]triton-{name}-*" for name in ("first_two*", "second*", "many", "uniform_twice")),
    *(
        f"test_any_routing*[[]triton-{name}-{shape}"
        for name in ("iterations*", "uniform_last")
        for shape in ("8-4-*", "*-all]")
    ),
    "test_any_routing*[[]triton-three-8-4-*",
    "test_any_routing*[[]triton-first_without*-3-3-all]",
    "test_a_recomputed_layer*[[]triton-class-*",
    "test_a_recomputed_layer*[[]triton-*-True]",
    *(f"test_m_step[[]33-16-{name}]" for name in ("more contrast", "logistic", "isotropic", "EM-IBM", "normalized")),
    *(f"test_vb_step[[]outputs{number}-*-16-{name}]" for number in (0, 1, 2) for name in ("weak", "strong")),
)
"""Names of tests, as fnmatch reads them."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    left = pytest.mark.skip(reason="for a GPU: the interpreter takes too long for all of them")
    for item in items:
        if any(fnmatchcase(item.name, pattern) for pattern in FOR_A_GPU):
            item.add_marker(left)
