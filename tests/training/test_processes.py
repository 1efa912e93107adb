"""Several processes train a run as one does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import join_processes
import numpy as np
import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import Tensor

from quatcaps.data.batches import Share
from quatcaps.errors import QuatcapsError
from quatcaps.training import checkpoint
from quatcaps.training.log import read_log
from quatcaps.training.processes import ALONE, Processes, first_to_fail, is_loss

HERE = Path(__file__).parent
SIZES = {"train": 44, "test": 31}


ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


def forked(folder: Path, *arguments: object, **environment: str) -> tuple[int, list[str]]:
    """Runs `join_processes.py`, which becomes two processes: the exit status, and what each wrote. torchrun itself
    starts those of `quatcaps reproduce` in tests/paper."""
    command = [sys.executable, str(HERE / "join_processes.py"), str(folder), *map(str, arguments)]
    started = subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT | environment)
    assert (folder / "1.log").exists(), started.stderr
    return started.returncode, [(folder / f"{rank}.log").read_text() for rank in (0, 1)]


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Tensor]], list[dict[str, object]]]:
    """What two processes have of the batch that `join_processes.alone` computes with, and what they say."""
    folder = tmp_path_factory.mktemp("together")
    code, written = forked(folder)
    assert code == 0, written
    tensors = [load_file(folder / f"{rank}.safetensors") for rank in (0, 1)]
    return tensors, [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]


@pytest.fixture(scope="module")
def alone() -> dict[str, Tensor]:
    return join_processes.alone()


def whole(name: str, parts: list[dict[str, Tensor]]) -> Tensor:
    """What both processes have, put together: parts of a batch, parts of a sum, or the same twice."""
    first, second = (part[name] for part in parts)
    if "/part/" in name:
        return torch.cat([first, second])
    if "/sum/" in name:
        return first + second
    assert torch.equal(first, second), f"{name} differs between the processes"
    return first


@pytest.mark.parametrize("kind", [*join_processes.NORMS, *join_processes.NETWORKS, "dropout"])
def test_two_processes_compute_what_one_does(
    kind: str, alone: dict[str, Tensor], together: tuple[list[dict[str, Tensor]], object]
) -> None:
    names = [name for name in alone if name.startswith(f"{kind}/")]
    assert names
    for name in names:
        # The loss itself is taken in float32.
        exact = {"rtol": 1e-6, "atol": 1e-6} if name.endswith("/loss") else {"rtol": 1e-9, "atol": 1e-11}
        torch.testing.assert_close(
            whole(name, together[0]), alone[name], **exact, msg=lambda text, n=name: f"{n}: {text}"
        )


def test_statistics_of_parts_would_be_seen(
    alone: dict[str, Tensor], together: tuple[list[dict[str, Tensor]], object]
) -> None:
    name = "qcn-small/same/primary.pose_trunk.0.conv1.weight"
    apart, wanted = whole(f"apart {name}", together[0]), alone[name]
    assert (apart - wanted).norm() > 0.1 * wanted.norm()


def test_processes_agree(together: tuple[object, list[dict[str, object]]]) -> None:
    first, second = together[1]
    assert first["failure"] == second["failure"] == "the loss is nan; it began in the output of layers.1"
    assert first["unequal"] == second["unequal"]
    assert str(first["unequal"]).startswith("process 1 of 2 has another rank than process 0: start all with the same")
    assert first["any"] == second["any"] == [False, True]
    assert first["sum"] == second["sum"] == 21
    for count, parts in enumerate(zip(first["parts"], second["parts"], strict=True), 1):  # type: ignore[arg-type]
        assert [*parts[0], *parts[1]] == list(range(count)), "every image is measured once"


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset in a file: 44 images to train on, 31 to measure."""
    path = tmp_path_factory.mktemp("noise") / "noise.npz"
    draw = np.random.default_rng(0)
    images = {f"{split}_images": draw.integers(256, size=(n, 28, 28), dtype=np.uint8) for split, n in SIZES.items()}
    np.savez(path, **images, **{f"{split}_labels": np.arange(n) % 3 for split, n in SIZES.items()})
    return path


@pytest.fixture(scope="module")
def settings(noise: Path) -> list[object]:
    """Of a run of eleven steps in two epochs."""
    chosen = ["train", "--recipe", "small", "--dataset", noise, "--data-dir", noise.parent / "data", "--epochs", 2]
    return [*chosen, "--batch", 8, "--checkpoint-every", 2, "--log-every", 1, "--device", "cpu"]


def assert_same_run(found: Path, wanted: Path) -> None:
    """The same weights and log, as far as sums in another order can be the same."""
    paths = [checkpoint.checkpoints(run / "checkpoints")[-1] for run in (found, wanted)]
    assert paths[0].name == paths[1].name
    weights = [load_file(path / "weights.safetensors") for path in paths]
    assert weights[0].keys() == weights[1].keys()
    for name, tensor in weights[0].items():
        # Normalisation takes a bias before it away again: its gradient is rounding, which Adam makes as large as any.
        if name.endswith(("_head.0.bias", "_head.1.running_mean")):
            continue
        torch.testing.assert_close(
            tensor, weights[1][name], rtol=1e-3, atol=2e-4, msg=lambda text, n=name: f"{n}: {text}"
        )
    logs = [read_log(run / "log.jsonl") for run in (found, wanted)]
    assert len(logs[0]) == len(logs[1])
    for record, expected in zip(*logs, strict=True):
        assert record.pop("seconds", 0) >= 0
        expected.pop("seconds", None)
        assert record.pop("loss") == pytest.approx(expected.pop("loss"), rel=1e-4)
        assert record == expected, "the same steps, rates and errors"


@pytest.fixture
def one(settings: list[object], command: Callable, noise: Path) -> Path:
    """The run, trained by one process, once for all tests."""
    folder = noise.parent / "one"
    if not folder.exists():
        outcome = command(*settings, "--output", folder)
        assert outcome.code == 0, outcome.err
    return folder


def test_a_run_of_two_processes_ends_as_one_of_one(one: Path, settings: list[object], tmp_path: Path) -> None:
    code, written = forked(tmp_path, *settings, "--output", tmp_path / "two")
    assert code == 0, written
    assert_same_run(tmp_path / "two", one)
    assert "on cpu by 2 processes; run in" in written[0]
    assert written[1] == "", "the first process speaks for all"


def test_a_run_goes_on_with_another_number_of_processes(
    one: Path, settings: list[object], command: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process to step 3, two from step 2 until the second is told to stop after step 5, then one again."""
    broken = tmp_path / "broken"

    def cut(progress: object, step: int, *state: object) -> None:
        if step == 3:
            raise QuatcapsError("cut")

    with monkeypatch.context() as patched:
        patched.setattr("quatcaps.training.progress.TrainingProgress.step", cut)
        assert command(*settings, "--output", broken).err == "error: cut\n"
    resume = ["train", "--resume", broken, "--data-dir", settings[settings.index("--data-dir") + 1]]
    code, written = forked(tmp_path, *resume, STOP="1 5")
    assert code != 0
    assert "from step 2; run in" in written[0]
    assert "".join(written).count("error: ") == 1
    assert "error: interrupted after step 5 of 11; saved step-00000005: go on with" in "".join(written)
    assert "Traceback" not in "".join(written)
    assert command(*resume).code == 0
    assert_same_run(broken, one)


def test_one_error_ends_all_and_is_said_once(settings: list[object], tmp_path: Path) -> None:
    """The first process alone finds that the folder is taken, while the other waits for it."""
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("mine")
    code, written = forked(tmp_path, *settings, "--output", tmp_path / "taken")
    assert code == 1
    assert "is not empty: give another --output" in written[0]
    assert written[0].count("error: ") == 1
    assert written[1] == ""


def test_a_host_that_ends_while_it_is_asked_was_first(capfd: pytest.CaptureFixture[str]) -> None:
    """It is stopped before it can answer and killed while the other waits: the other has nothing to say."""
    hosting = (
        "import torch.distributed as d, sys; s = d.TCPStore('127.0.0.1', 0, is_master=True, wait_for_workers=False)"
    )
    hosting += "; print(s.port, flush=True); sys.stdin.read()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", hosting], env=ENVIRONMENT, **pipes) as host:
        store = torch.distributed.TCPStore("127.0.0.1", int(host.stdout.readline()), is_master=False)
        assert first_to_fail(lambda: store.add("failures", 1))
        assert not first_to_fail(lambda: store.add("failures", 1))
        host.send_signal(signal.SIGSTOP)
        threading.Timer(0.5, host.kill).start()
        assert not first_to_fail(lambda: store.add("failures", 1))
    assert capfd.readouterr().err == ""
    os.write(2, b"seen")
    assert capfd.readouterr().err == "seen"


def test_a_batch_that_cannot_be_shared_and_others_that_cannot_be_found(
    settings: list[object], command: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(QuatcapsError, match="a batch of 15 cannot be shared by 2 processes: give a multiple"):
        Processes(Share(1, 2)).share.of(15)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    outcome = command(*settings, "--output", tmp_path / "run")
    assert outcome.code == 1
    assert "error: this is process 0 of 2, and MASTER_ADDR" in outcome.err
    assert not (tmp_path / "run").exists()


def test_one_process_alone_sends_nothing() -> None:
    """No process group is there: whatever is sent would raise."""
    loss, wrong = torch.tensor(1.5), torch.tensor(3)
    network = torch.nn.Linear(2, 2)
    assert ALONE.average(network, loss, wrong) == (loss, wrong)
    assert ALONE.on(torch.device("cpu")) == (ALONE, torch.device("cpu"))
    assert ALONE.any(True)
    assert not ALONE.any(False)
    assert ALONE.sum(7) == 7
    assert ALONE.earliest(3, "here") == "here"
    ALONE.check_equal("rank", ["0"])
    ALONE.wait()
    with ALONE.one_first():
        ALONE.synchronise(network)


def test_only_what_goes_by_nccl_can_be_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ALONE.in_graphs
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        together = Processes(group=dist.group.WORLD)
        assert not together.in_graphs
        monkeypatch.setattr(dist, "get_backend", lambda group: "nccl")
        assert together.in_graphs
    finally:
        dist.destroy_process_group()


def test_a_lost_connection_is_known() -> None:
    assert is_loss(RuntimeError("[/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer"))
    assert is_loss(torch.distributed.DistBackendError("NCCL"))
    assert not is_loss(RuntimeError("CUDA out of memory"))
