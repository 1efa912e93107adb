"""What only the native backend can get wrong: building its library, blocks, threads, and hand-written derivatives."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from quatcaps.errors import QuatcapsError
from quatcaps.routing import Parents, Window, native, reference
from quatcaps.routing.native import build, calls
from quatcaps.routing.shapes import Shapes

pytestmark = pytest.mark.skipif(
    build.problem(torch.float32, 1, 3) is not None, reason=f"native {build.problem(torch.float32, 1, 3)}"
)

SHAPES = {
    "quaternions": (1, 3, Window(2, 2)),
    "stride": (1, 3, Window(3, 2, 2)),
    "matrices": (2, 2, Window(2, 2)),
    "shared": (1, 3, Window(4, 3, shared=True)),
    "one place": (1, 3, Window(1, 1)),
}
DEFINITIONS = ["-DIS_DOUBLE=0", "-DROWS=1", "-DCOLUMNS=3"]


def layer(
    rows: int,
    columns: int,
    window: Window,
    children: int = 2,
    parents: int = 3,
    size: tuple[int, int] = (4, 3),
    dtype: torch.dtype = torch.float64,
) -> tuple[list[Tensor], Parents]:
    """Children on a grid and parents, all of them leaves that require a gradient."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=dtype)

    dims, grid = rows * columns, window.positions(*size)
    inputs = [
        normal(2, children, dims, *size),
        normal(2, children, *size).sigmoid(),
        normal(window.offsets, children, parents, columns, columns),
    ]
    given = [normal(2, parents, dims, *grid), normal(2, parents, dims, *grid).exp(), normal(2, parents, *grid)]
    leaves = [tensor.requires_grad_() for tensor in inputs + given]
    return leaves[:3], Parents(*leaves[3:])


def bound(backend: object, children: list[Tensor], window: Window) -> object:
    return backend.bind(*children, Shapes.of(children[0], children[2], window))  # type: ignore[attr-defined]


def results(backend: object, children: list[Tensor], parents: Parents, window: Window) -> list[Tensor]:
    """Moments under parents and under uniform assignments, and the gradients of their squares' sum."""
    votes = bound(backend, children, window)
    uniform = votes.uniform()
    moments = [*votes.under(parents)[1:], uniform.mass, uniform.mean, uniform.variance + 1e-4]
    return moments + list(torch.autograd.grad([m.square().sum() for m in moments], [*children, *parents]))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache of the user, and a process that has not compiled anything yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    build.attempt.cache_clear()
    yield tmp_path / "quatcaps" / "native"
    build.attempt.cache_clear()


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_are_those_of_finite_differences(shape: str) -> None:
    rows, columns, window = SHAPES[shape]
    children, parents = layer(rows, columns, window)

    def routed(*inputs: Tensor) -> tuple[Tensor, ...]:
        return bound(native, list(inputs[:3]), window).under(Parents(*inputs[3:]))[1:]

    def uniformly(*inputs: Tensor) -> tuple[Tensor, ...]:
        moments = bound(native, list(inputs), window).uniform()
        return moments.mass, moments.mean, moments.variance + 1e-4

    assert torch.autograd.gradcheck(routed, (*children, *parents), fast_mode=True)
    assert torch.autograd.gradcheck(uniformly, tuple(children), fast_mode=True)


@pytest.mark.parametrize("size", [(1, 1), (1, 3), (2, 4), (3, 3), (4, 8), (5, 7), (8, 8), (13, 11)])
def test_blocks_of_positions_may_end_anywhere(size: tuple[int, int]) -> None:
    for stride in (1, 2):
        window = Window(2, 1, stride)
        children, parents = layer(1, 3, window, size=((size[0] - 1) * stride + 2, (size[1] - 1) * stride + 1))
        assert parents.logit.shape[2:] == size
        expected = results(reference, children, parents, window)
        for ours, theirs in zip(results(native, children, parents, window), expected, strict=True):
            torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(("children", "parents"), [(1, 1), (1, 2), (7, 1), (5, 16), (9, 5), (16, 2), (17, 3), (40, 4)])
def test_children_and_parents_may_be_as_many_as_they_like(children: int, parents: int) -> None:
    window = Window(2, 2)
    inputs, given = layer(1, 3, window, children, parents)
    expected = results(reference, inputs, given, window)
    for ours, theirs in zip(results(native, inputs, given, window), expected, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(("width", "dtype"), [(16, torch.float32), (32, torch.float64), (64, torch.float32)])
def test_vectors_may_be_as_wide_as_a_machine_has_them(
    width: int, dtype: torch.dtype, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled without ARM's own instructions, and with vectors of other machines, in as many steps as it takes."""
    window = Window(2, 2)
    children, parents = layer(1, 3, window, 9, 3, size=(7, 9), dtype=dtype)
    expected = results(native, children, parents, window)
    build.attempt.cache_clear()
    monkeypatch.setenv("CC", f"{build.find_compiler()[0]} -U__aarch64__ -DBYTES={width}")
    for ours, theirs in zip(results(native, children, parents, window), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    assert len(list(cache.iterdir())) == 2


def test_the_number_of_threads_does_not_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "WORTH_A_THREAD", 1)
    window, before = Window(3, 3), torch.get_num_threads()
    children, parents = layer(1, 3, window, 5, 4, size=(11, 9), dtype=torch.float32)
    try:
        by_threads = []
        for count in (1, 2, 3, 2):
            torch.set_num_threads(count)
            by_threads.append(results(native, children, parents, window))
    finally:
        torch.set_num_threads(before)
    for others in by_threads[1:]:
        for one, other in zip(others, by_threads[0], strict=True):
            assert torch.equal(one, other)


def test_a_child_far_from_all_parents_is_still_shared() -> None:
    window = Window(2, 2)
    children, parents = layer(1, 3, window, dtype=torch.float32)
    far = Parents(parents.centre, parents.precision * 1e6, parents.logit + 1e6)
    exact = Parents(*(tensor.double() for tensor in far))
    ours = bound(native, children, window).under(far)
    theirs = bound(reference, [tensor.double() for tensor in children], window).under(exact)
    torch.testing.assert_close(ours.mass.double(), theirs.mass, rtol=1e-5, atol=1e-5)
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(ours.second.sum(), [*children, *parents]))


def test_the_first_iteration_keeps_a_variance_that_float32_would_lose() -> None:
    window = Window(2, 2)
    children, _ = layer(1, 3, window, dtype=torch.float32)
    base = torch.tensor([3.0, -20.0, 1.0]).view(1, 1, 3, 1, 1)
    poses = (base + 3e-3 * children[0].detach()).requires_grad_()
    inputs = [poses, children[1], torch.eye(3).expand(window.offsets, 2, 3, 3, 3).clone().requires_grad_()]
    doubles = [tensor.detach().double().requires_grad_() for tensor in inputs]
    ours, theirs = bound(native, inputs, window).uniform(), bound(reference, doubles, window).uniform()
    mean, variance = ours.mean, ours.variance + 1e-4
    expected_mean, expected = theirs.mean, theirs.variance + 1e-4
    torch.testing.assert_close(mean.double(), expected_mean, rtol=1e-6, atol=0)
    torch.testing.assert_close(variance.double(), expected, rtol=1e-5, atol=0)
    grads = torch.autograd.grad(variance.log().sum(), inputs)
    for one, other in zip(grads, torch.autograd.grad(expected.log().sum(), doubles), strict=True):
        assert (one.double() - other).norm() <= 1e-4 * other.norm()


CHECKED = """
import torch
from quatcaps.routing import Window
from quatcaps.routing import native
from quatcaps.routing.shapes import Shapes
from quatcaps.routing.native import operators

torch.manual_seed(0)
for window, grid in ((Window(2, 2), (3, 2)), (Window(4, 3, 2, shared=True), (1, 1))):
    shapes = [(2, 2, 3, 4, 3), (2, 2, 4, 3), (window.offsets, 2, 5, 3, 3)]
    parents = [(2, 5, 3, *grid), (2, 5, 3, *grid), (2, 5, *grid)]
    inputs = [torch.rand(shape, requires_grad=True) for shape in shapes + parents]
    votes = native.bind(*inputs[:3], Shapes.of(inputs[0], inputs[2], window))
    torch.library.opcheck(operators.uniform_moments, (*inputs[:3], votes.layer))
    torch.library.opcheck(operators.moments, (*inputs, True, votes.layer))
"""


COMPILED = """
import torch
from quatcaps.routing import Window
from quatcaps.routing import Parents, native
from quatcaps.routing.shapes import Shapes

def routed(*inputs):
    votes = native.bind(*inputs[:3], Shapes.of(inputs[0], inputs[2], Window(2, 2)))
    moments = votes.uniform()
    return *moments[1:], *votes.under(Parents(moments.centre, *inputs[3:]))[1:]

torch.manual_seed(0)
shapes = [(2, 2, 3, 4, 3), (2, 2, 4, 3), (4, 2, 5, 3, 3), (2, 5, 3, 3, 2), (2, 5, 3, 2)]
inputs = [torch.rand(shape, requires_grad=True) for shape in shapes]
both = []
for function in (torch.compile(routed, fullgraph=True, backend="aot_eager"), routed):
    moments = function(*inputs)
    both.append([*moments, *torch.autograd.grad(sum(m.square().sum() for m in moments), inputs)])
for one, other in zip(*both, strict=True):
    torch.testing.assert_close(one, other)
"""


@pytest.mark.parametrize("code", [CHECKED, COMPILED], ids=["operators", "one graph"])
def test_it_holds_what_pytorch_asks_of_it_and_compiles_into_one_graph(code: str) -> None:
    """In a process of its own: the compiler cannot see through the shape checks of the test runner."""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("dims", "columns", "dtype", "device", "reason"),
    [
        (3, 3, torch.float32, "meta", "runs on a CPU"),
        (3, 3, torch.float16, "cpu", "not float16"),
        (20, 4, torch.float32, "cpu", "at most 16 numbers in 4 columns"),
        (5, 5, torch.float32, "cpu", "not 5 in 5"),
    ],
)
def test_it_says_what_it_cannot_do(dims: int, columns: int, dtype: torch.dtype, device: str, reason: str) -> None:
    shapes = Shapes(1, 2, dims, 4, 4, 5, columns, Window(2, 2))
    assert reason in (native.refuses(shapes, dtype, torch.device(device)) or "")


def no_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on a compiler may be asked for its version only."""
    real = build.output

    def only_asked(command: list[str]) -> str:
        assert "-o" not in command
        return real(command)

    monkeypatch.setattr(build, "output", only_asked)


def test_a_library_is_compiled_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build.load(DEFINITIONS)
    (kept,) = cache.iterdir()
    assert cache.stat().st_mode & 0o777 == 0o700
    no_compiling(monkeypatch)
    assert build.load(DEFINITIONS)._name == str(kept)


def test_a_damaged_library_is_compiled_again_and_never_loaded(cache: Path) -> None:
    build.load(DEFINITIONS)
    (kept,) = cache.iterdir()
    whole = kept.read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], whole[:-1] + bytes([whole[-1] ^ 1])):
        kept.unlink()  # a new file: the old one is still mapped
        kept.write_bytes(damaged)
        assert build.find(cache, kept.name.split("-")[0]) is None
        assert hasattr(build.load(DEFINITIONS), "quatcaps_moments")
        assert kept.read_bytes() == whole


def test_other_flags_make_another_library(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build.load(DEFINITIONS)
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-DOTHER"))
    build.load(DEFINITIONS)
    assert len(list(cache.iterdir())) == 2


def test_processes_may_compile_at_the_same_time(cache: Path) -> None:
    code = f"from quatcaps.routing.native import build; build.load({DEFINITIONS})"
    running = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(3)]
    assert [process.wait() for process in running] == [0, 0, 0]
    assert [path.suffix for path in cache.iterdir()] == [".so"]


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_folder_where_others_write_is_not_used(cache: Path, mode: int) -> None:
    cache.mkdir(parents=True)
    cache.chmod(mode)
    assert build.cache_folder() is None
    assert hasattr(build.load(DEFINITIONS), "quatcaps_moments")
    assert not list(cache.iterdir())


def test_a_folder_that_others_can_replace_is_not_used(cache: Path) -> None:
    cache.mkdir(parents=True, mode=0o700)
    cache.parent.chmod(0o777)
    assert build.cache_folder() is None


def test_without_a_place_to_keep_it_a_library_is_compiled_for_one_process(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.parent.parent.joinpath("file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache.parent.parent / "file"))
    assert hasattr(build.load(DEFINITIONS), "quatcaps_moments")


def test_without_a_compiler_it_refuses(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    children, _ = layer(1, 3, Window(2, 2))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "")
    shapes = Shapes.of(children[0], children[2], Window(2, 2))
    assert native.refuses(shapes, torch.float64, torch.device("cpu")) == (
        "needs a C compiler, and there is none of cc, gcc, clang"
    )
    with pytest.raises(QuatcapsError, match="needs a C compiler"):
        bound(native, children, Window(2, 2)).uniform()


def test_a_compiler_that_is_not_there_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -m64")
    assert "no-such-compiler" in (build.problem(torch.float32, 1, 3) or "")


def test_a_command_that_fails_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = shutil.which(build.find_compiler()[0])
    monkeypatch.setenv("CC", f"{compiler} --no-such-option")
    assert f"the command failed: {compiler} --no-such-option" in (build.problem(torch.float32, 1, 3) or "")
    monkeypatch.setenv("CC", f"{compiler} -include no-such-file.h")
    assert "no-such-file.h" in (build.problem(torch.float64, 1, 3) or "")


def test_importing_it_compiles_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", "import quatcaps.layers"], check=True, env=environment)
    assert not list(tmp_path.iterdir())
