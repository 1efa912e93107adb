from __future__ import annotations

import pytest

from quatcaps.errors import QuatcapsError, unknown_name


@pytest.mark.parametrize(
    ("name", "near"),
    [("qnc", "qcn"), ("qcn-smal", "qcn-small"), ("Qcn", "qcn"), ("QCN-SMALL", "qcn-small")],
)
def test_the_nearest_name_is_offered(name: str, near: str) -> None:
    error = unknown_name("model", name, ["qcn", "qcn-small", "cnn-small"])
    assert str(error) == f"unknown model {name!r}: did you mean {near!r}? Known: cnn-small, qcn, qcn-small"


def test_nothing_near() -> None:
    assert str(unknown_name("pose", "xyz", {"matrix": 1})) == "unknown pose 'xyz': Known: matrix"


def test_users_errors_are_value_errors() -> None:
    error = unknown_name("pose", "x", ["matrix"])
    assert isinstance(error, QuatcapsError)
    assert isinstance(error, ValueError)
