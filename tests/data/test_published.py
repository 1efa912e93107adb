"""Published datasets from files to a prepared one: found, downloaded, verified, refused; and `quatcaps data`."""

from __future__ import annotations

import gzip
import hashlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
from format_files import cifar_rows, mat_array, mat_file, noise, sha256, tar_file
from PIL import Image
from safetensors.torch import save_file

from quatcaps import data
from quatcaps.data import published as module
from quatcaps.data import store
from quatcaps.data.catalogue import DESCRIPTIONS, PUBLISHED
from quatcaps.data.download import DownloadError
from quatcaps.data.published import check_download, find, has_digest, missing, prepare, prepared_path, read_prepared
from quatcaps.errors import QuatcapsError
from quatcaps.paper.recipes import paper
from quatcaps.training.run import create_run

COUNTS = {"train": 600, "t10k": 100}
"""A hundredth of MNIST's images: what is found, verified and refused does not depend on how many they are."""
COPY = "copy made for tests"


def idx_bytes(split: str, kind: str, changed: bool = False) -> bytes:
    """MNIST's files with images of one grey each, 3 × its label."""
    count = COUNTS[split]
    labels = (np.arange(count) % 10).astype(np.uint8)
    if kind == "labels":
        return b"\0\0\x08\x01" + count.to_bytes(4, "big") + labels.tobytes()
    images = np.repeat(3 * labels, 28 * 28)
    images[-1] += changed
    head = b"\0\0\x08\x03" + b"".join(number.to_bytes(4, "big") for number in (count, 28, 28))
    return head + images.tobytes()


NAMES = {
    f"{split}-{kind}-idx{3 if kind == 'images' else 1}-ubyte": (split, kind)
    for split in COUNTS
    for kind in ("images", "labels")
}


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    return {name: idx_bytes(*of) for name, of in NAMES.items()}


@pytest.fixture
def closed() -> str:
    """An address where nobody answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


@pytest.fixture(autouse=True)
def known(files: dict[str, bytes], closed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalogue with these files as MNIST's, published nowhere; nothing leaves this machine."""
    described_files = tuple(
        replace(
            file,
            size=len(gzip.compress(files[file.name], 1)),
            content_size=len(files[file.name]),
            urls=(f"{closed}/{file.name}.gz",),
            published="sha256:" + "0" * 64,
            contents={hashlib.sha256(files[file.name]).hexdigest(): PUBLISHED if "labels" in file.name else COPY},
        )
        for file in DESCRIPTIONS["mnist"].files
    )
    counts = {"train": COUNTS["train"], "test": COUNTS["t10k"]}
    monkeypatch.setitem(DESCRIPTIONS, "mnist", replace(DESCRIPTIONS["mnist"], files=described_files, counts=counts))
    for name, description in list(DESCRIPTIONS.items()):
        if name != "mnist":
            nowhere = tuple(
                replace(file, urls=tuple(f"{closed}/{file.download_name}" for _ in file.urls))
                for file in description.files
            )
            monkeypatch.setitem(DESCRIPTIONS, name, replace(description, files=nowhere))


def lay_out(folder: Path, files: dict[str, bytes], *, packed: bool = True) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = folder / f"{name}.gz" if packed else folder / name
        path.write_bytes(gzip.compress(content, 1) if packed else content)
    return folder


@pytest.fixture
def mirror(files: dict[str, bytes], tmp_path: Path) -> Iterator[str]:
    """A server with all four files, packed anew."""
    root = lay_out(tmp_path / "mirror", files)

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(root))  # type: ignore[misc,arg-type]

        def log_message(self, *arguments: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("inside", ["", "raw", "MNIST/raw"])
def test_files_are_found_and_prepared_once(
    packed: bool, inside: str, files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_out(tmp_path / "mnist" / inside, files, packed=packed)
    test = data.load("mnist", "test", folder=tmp_path)
    assert (len(test), test.size, test.channels, test.name) == (100, (28, 28), 1, "MNIST test")
    assert torch.equal(test.images[:, 0, 5, 5], 3 * test.labels.to(torch.uint8))
    monkeypatch.setattr(module, "gather", lambda *arguments: pytest.fail("prepared again"))
    training = data.load("mnist", "train", folder=tmp_path)
    assert len(training) == 600
    assert len(data.load("mnist", "all", folder=tmp_path)) == 700


def test_no_pixel_is_copied_from_the_prepared_file(files: dict[str, bytes], tmp_path: Path) -> None:
    lay_out(tmp_path / "mnist", files)
    both = [data.load("mnist", split, folder=tmp_path) for split in ("all", "test")]
    start = {images.stored.untyped_storage().data_ptr() for images in both}
    offsets = [images.stored.storage_offset() - both[0].stored.storage_offset() for images in both]
    assert offsets == [0, 600 * 28 * 28]
    assert len(start) == 2, "each load maps the file anew"


def test_smaller_images(files: dict[str, bytes], tmp_path: Path) -> None:
    lay_out(tmp_path / "mnist", files)
    assert data.load("mnist", "test", folder=tmp_path, size=14).size == (14, 14)
    for folder in (tmp_path, tmp_path / "empty"):  # found out before files are looked for, or downloaded
        with pytest.raises(QuatcapsError, match="size is 29: images of 28×28 only shrink, to sizes from 1 to 28"):
            data.load("mnist", "test", folder=folder, size=29)


def test_what_it_is_made_from_is_kept(files: dict[str, bytes], tmp_path: Path, command: Callable) -> None:
    lay_out(tmp_path / "authors" / "mnist", files)
    outcome = command("data", "prepare", "mnist", "--source", tmp_path / "authors", "--data-dir", tmp_path / "data")
    assert outcome.code == 0, outcome.err
    assert COPY in outcome.out
    stored = read_prepared(tmp_path / "data", "mnist", 28)
    assert stored is not None
    assert {file["file"]: file["words"] for file in stored.notes["files"]} == {
        name: "published" if "labels" in name else COPY for name in NAMES
    }
    images = data.load("mnist", "test", folder=tmp_path / "data")
    assert images.source == COPY
    run = create_run(tmp_path / "run", paper("mnist"), images)
    assert json.loads((run.folder / "run.json").read_text())["data"] == COPY


def test_unknown_content_is_refused_unless_taken_as_it_is(
    files: dict[str, bytes], tmp_path: Path, command: Callable
) -> None:
    name = "t10k-images-idx3-ubyte"
    lay_out(tmp_path / "mnist", {**files, name: idx_bytes("t10k", "images", changed=True)})
    arguments = ("data", "prepare", "mnist", "--data-dir", tmp_path)
    refused = command(*arguments)
    assert refused.code == 1
    assert f"{name} of MNIST is well formed, but its content (sha256 " in refused.err
    assert "--unverified" in refused.err
    assert not list(tmp_path.glob("prepared/*.safetensors"))
    taken = command(*arguments, "--unverified")
    assert taken.code == 0, taken.err
    assert "NOT VERIFIED" in taken.out
    verified = command("data", "verify", "mnist", "--data-dir", tmp_path)
    assert verified.code == 1
    assert "made from unknown content" in verified.err
    assert f"{name} of mnist has unknown content" in verified.err


OTHER = "t10k-images-idx3-ubyte"


@pytest.fixture
def changed(files: dict[str, bytes], tmp_path: Path) -> Path:
    """A folder with files of which one is not as published."""
    return lay_out(tmp_path / "changed", {**files, OTHER: idx_bytes("t10k", "images", changed=True)})


def test_a_source_means_what_it_says(files: dict[str, bytes], changed: Path, tmp_path: Path, command: Callable) -> None:
    arguments = ("data", "prepare", "mnist", "--data-dir", tmp_path, "--source")
    good = lay_out(tmp_path / "good", files)

    def last_pixel() -> int:
        return int(data.load("mnist", "test", folder=tmp_path).images[-1, 0, -1, -1])

    assert command(*arguments, changed, "--unverified").code == 0
    assert last_pixel() == 28
    for option in ((), ("--unverified",)):
        missing_folder = command(*arguments, tmp_path / "nowhere", *option)
        assert missing_folder.code == 1
        assert "nowhere is not a folder" in missing_folder.err
        empty = command(*arguments, tmp_path / "prepared", *option)
        assert empty.code == 1
        assert "they are not there" in empty.err
    assert command(*arguments, good).code == 0
    assert last_pixel() == 27
    refused = command(*arguments, changed)
    assert refused.code == 1
    assert f"{OTHER} of MNIST is well formed, but its content" in refused.err
    assert last_pixel() == 27
    before = prepared_path(tmp_path, "mnist", 28).stat().st_mtime_ns
    assert command(*arguments, good).code == 0
    assert prepared_path(tmp_path, "mnist", 28).stat().st_mtime_ns == before, "the same files are not prepared again"


def test_only_published_datasets_have_a_source(tmp_path: Path, command: Callable) -> None:
    outcome = command("data", "prepare", "toys-mini", "--source", tmp_path, "--data-dir", tmp_path)
    assert outcome.code == 1
    assert "toys-mini has no published files: --source is for smallnorb, mnist" in outcome.err


def test_what_was_not_verified_is_verified_again(
    files: dict[str, bytes], changed: Path, tmp_path: Path, command: Callable
) -> None:
    arguments = ("data", "prepare", "mnist", "--data-dir", tmp_path)
    assert command(*arguments, "--source", changed, "--unverified").code == 0
    refused = command(*arguments)
    assert refused.code == 1
    assert "was made from files that are not as published: take it as it is with --unverified" in refused.err
    images = data.load("mnist", "test", folder=tmp_path)
    assert images.source == f"{COPY}; NOT VERIFIED: content unknown"
    assert command(*arguments, "--unverified").code == 0
    lay_out(tmp_path / "mnist", files)
    assert command(*arguments).code == 0
    assert data.load("mnist", "test", folder=tmp_path).source == COPY


def test_a_digest_is_of_the_files(files: dict[str, bytes], changed: Path, tmp_path: Path) -> None:
    pairs = sorted([name, hashlib.sha256(content).hexdigest()] for name, content in files.items())
    expected = hashlib.sha256(json.dumps(pairs, separators=(",", ":")).encode()).hexdigest()
    lay_out(tmp_path / "plain" / "mnist", files, packed=False)
    for size in (28, 14):
        for split in ("train", "all"):
            assert data.load("mnist", split, folder=tmp_path / "plain", size=size).digest == expected
    stored = prepare("mnist", tmp_path, source=changed, unverified=True)
    assert stored.notes["digest"] != expected


def test_files_of_the_earlier_version_are_read_where_their_notes_can_be_right(
    files: dict[str, bytes], tmp_path: Path
) -> None:
    lay_out(tmp_path / "mnist", files)
    tensors, notes = prepare("mnist", tmp_path)
    digest = notes.pop("digest")
    path, contents = prepared_path(tmp_path, "mnist", 28), module.described("mnist", 28)

    def write(tensors: dict[str, torch.Tensor], notes: dict[str, object]) -> None:
        header = {"contents": json.dumps(contents, sort_keys=True), "notes": json.dumps(notes)}
        save_file(tensors, path, {**header, "sha256": store._digest(tensors)})

    write({name: tensor.clone() for name, tensor in tensors.items()}, notes)
    assert data.load("mnist", "test", folder=tmp_path).digest == digest
    state = path.stat().st_mtime_ns
    assert len(data.load("mnist", "train", folder=tmp_path)) == 600
    assert path.stat().st_mtime_ns == state, "prepared again"
    first = notes["files"][0]
    for wrong in (
        notes | {"counts": {"train": 60_001, "test": 9_999}},
        notes | {"classes": ["O", *notes["classes"][1:]]},
        notes | {"files": [first | {"words": "published"}, *notes["files"][1:]]},
        notes | {"files": [first | {"digest": "0" * 64}, *notes["files"][1:]]},
        notes | {"files": notes["files"][1:]},
        notes | {"more": 1},
    ):
        write({name: tensor.clone() for name, tensor in tensors.items()}, wrong)
        assert read_prepared(tmp_path, "mnist", 28) is None
    write({"images": tensors["images"].view(700, 1, 56, 14), "labels": tensors["labels"].clone()}, notes)
    assert read_prepared(tmp_path, "mnist", 28) is None


@pytest.mark.parametrize("spoil", [lambda b: b[:-5], lambda b: b + b"\0", lambda b: b"\x12" + b[1:]])
def test_damaged_files_leave_nothing_behind(
    spoil: Callable[[bytes], bytes], files: dict[str, bytes], tmp_path: Path
) -> None:
    name = "train-images-idx3-ubyte"
    lay_out(tmp_path / "mnist", {**files, name: spoil(files[name])}, packed=False)
    with pytest.raises(QuatcapsError, match=name):
        prepare("mnist", tmp_path)
    assert not list(tmp_path.glob("prepared/*.safetensors*"))


def test_a_damaged_prepared_file_is_made_again(files: dict[str, bytes], tmp_path: Path, command: Callable) -> None:
    lay_out(tmp_path / "mnist", files)
    prepare("mnist", tmp_path)
    path = prepared_path(tmp_path, "mnist", 28)
    spoilt = bytearray(path.read_bytes())
    spoilt[-100] ^= 1
    path.write_bytes(spoilt)
    outcome = command("data", "verify", "--data-dir", tmp_path)
    assert outcome.code == 1
    assert "mnist-28.safetensors is damaged" in outcome.err
    assert len(data.load("mnist", "test", folder=tmp_path)) == 100
    assert command("data", "verify", "--data-dir", tmp_path).code == 0


def test_downloads_what_is_missing(mirror: str, files: dict[str, bytes], tmp_path: Path, command: Callable) -> None:
    lay_out(tmp_path / "mnist", {name: files[name] for name in list(files)[:2]})
    outcome = command("data", "prepare", "mnist", "--mirror", mirror, "--data-dir", tmp_path)
    assert outcome.code == 0, outcome.err
    assert "downloading t10k-images-idx3-ubyte.gz" in outcome.out
    assert "downloading train-images" not in outcome.out
    assert len(data.load("mnist", "train", folder=tmp_path)) == 600
    assert "prepared, 28×28" in command("data", "list", "--data-dir", tmp_path).out


def test_a_mirror_with_other_data_is_refused(
    mirror: str, files: dict[str, bytes], tmp_path: Path, command: Callable
) -> None:
    name = "train-labels-idx1-ubyte"
    other = bytearray(files[name])
    other[-1] ^= 1
    lay_out(tmp_path / "mirror", {name: bytes(other)})
    outcome = command("data", "prepare", "mnist", "--mirror", mirror, "--data-dir", tmp_path)
    assert outcome.code == 1
    assert name in outcome.err
    assert not (tmp_path / "mnist" / f"{name}.gz").exists()


@pytest.mark.parametrize("arguments", [(), ("--offline",)])
def test_no_network_and_no_files(arguments: tuple[str, ...], tmp_path: Path, command: Callable) -> None:
    outcome = command("data", "prepare", "smallnorb", *arguments, "--data-dir", tmp_path)
    assert outcome.code == 1
    for words in (
        "smallnorb-5x46789x9x18x6x2x96x96-training-dat.mat.gz (131,896,188 bytes)",
        "smallnorb-5x01235x9x18x6x2x96x96-testing-info.mat.gz (10,428 bytes)",
        str(tmp_path / "smallnorb"),
        "--source",
        "rendered toys need no files: --dataset toys",
    ):
        assert words in outcome.err
    assert "Traceback" not in outcome.err


def test_no_network_is_told_from_other_faults(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="no server can be reached"):
        prepare("mnist", tmp_path)
    with pytest.raises(QuatcapsError, match="they are not there") as caught:
        prepare("mnist", tmp_path, offline=True)
    assert not isinstance(caught.value, DownloadError)


def test_training_says_the_same(tmp_path: Path, command: Callable) -> None:
    outcome = command("train", "--dataset", "cifar10", "--data-dir", tmp_path, "--output", tmp_path / "run")
    assert outcome.code == 1
    assert "cifar-10-binary.tar.gz (170,052,171 bytes)" in outcome.err
    assert not (tmp_path / "run").exists()


def test_names_that_are_none(tmp_path: Path, command: Callable) -> None:
    for arguments, words in (
        (("prepare", "mnits"), "unknown dataset 'mnits': did you mean 'mnist'"),
        (("verify", "mnits"), "unknown dataset 'mnits'"),
        (("verify", "toys"), "toys has no published files to verify"),
        (("verify", "mnist"), "nothing of mnist is in"),
        (("verify",), "no published dataset is in"),
        (("show", "mnist", "--split", "tset"), "unknown split 'tset': did you mean 'test'"),
        (("prepare", "mnist", "--source", "/nowhere"), "/nowhere is not a folder"),
        (("prepare", "./nowhere"), "dataset ./nowhere: there is no such folder or file"),
    ):
        outcome = command("data", *arguments, "--data-dir", tmp_path)
        assert outcome.code == 1
        assert words in outcome.err


def test_list_names_everything(tmp_path: Path, command: Callable, files: dict[str, bytes]) -> None:
    lay_out(tmp_path / "mnist", files)
    (tmp_path / "svhn").mkdir()
    (tmp_path / "svhn" / "train_32x32.mat").write_bytes(b"")
    outcome = command("data", "list", "--data-dir", tmp_path)
    assert outcome.code == 0
    for name, description in DESCRIPTIONS.items():
        assert f"{name}: {description.summary}. Licence: {description.licence}." in outcome.out
        assert description.citation in outcome.out
    for words in ("files, not yet prepared", "some of its files (1)", "toys-mini", "QUATCAPS_DATA_DIR", "24,300"):
        assert words in outcome.out


def test_show_draws_sheets(toys_folder: Path, files: dict[str, bytes], tmp_path: Path, command: Callable) -> None:
    outcome = command("data", "show", "toys-mini", "--data-dir", toys_folder, "--output", tmp_path / "toys")
    assert outcome.code == 0, outcome.err
    for name in ("toys.png", "toys-viewpoints.png"):
        with Image.open(tmp_path / name) as picture:
            assert min(picture.size) > 300
            assert np.asarray(picture.convert("L")).std() > 10
    lay_out(tmp_path / "mnist", files)
    outcome = command("data", "show", "mnist", "--data-dir", tmp_path, "--output", tmp_path / "mnist.png")
    assert outcome.code == 0, outcome.err
    assert "10,000 images" not in outcome.out
    assert "0 60, 1 60" in outcome.out
    assert not (tmp_path / "mnist-viewpoints.png").exists()


def test_several_at_once_prepare_once(files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay_out(tmp_path / "mnist", files)
    read, calls = module.read_splits, []

    def counted(*arguments: object) -> object:
        calls.append(1)
        return read(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "read_splits", counted)
    threads = [threading.Thread(target=prepare, args=("mnist", tmp_path)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    assert prepared_path(tmp_path, "mnist", 28).exists()


def test_cifar10_comes_in_several_forms(tmp_path: Path) -> None:
    assert [file.download_name for file in missing("cifar10", {})] == ["cifar-10-binary.tar.gz"]
    (tmp_path / "cifar-10-batches-bin").mkdir()
    for name in DESCRIPTIONS["cifar10"].forms[0]:
        (tmp_path / "cifar-10-batches-bin" / name).write_bytes(b"")
    found = find("cifar10", tmp_path)
    assert len(found) == 6
    assert missing("cifar10", found) == ()
    del found["data_batch_3.bin"]
    assert [file.download_name for file in missing("cifar10", found)] == ["cifar-10-binary.tar.gz"]
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(b"")
    assert missing("cifar10", find("cifar10", tmp_path) | found) == ()


def test_digests_of_files_and_of_what_they_hold(tmp_path: Path) -> None:
    content = b"content" * 1000
    path = tmp_path / "packed.gz"
    path.write_bytes(gzip.compress(content))
    inside = "md5:" + hashlib.md5(content, usedforsecurity=False).hexdigest()
    whole = "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()
    assert has_digest(path, inside, inside=True)
    assert has_digest(path, whole)
    assert not has_digest(path, inside)
    assert not has_digest(path, "")


def test_a_download_is_right_by_its_digest_or_its_content(files: dict[str, bytes], tmp_path: Path) -> None:
    file = DESCRIPTIONS["mnist"].files[1]
    path = tmp_path / "downloaded"
    path.write_bytes(b"anything")
    with pytest.raises(QuatcapsError, match="is cut off"):
        check_download("mnist", file, path)
    digest = "sha256:" + hashlib.sha256(b"anything").hexdigest()
    check_download("mnist", replace(file, published=digest), path)
    for packed in (files[file.name], gzip.compress(files[file.name], 1), gzip.compress(files[file.name], 9)):
        path.write_bytes(packed)
        check_download("mnist", file, path)


def test_a_download_that_is_a_whole_split_is_right_by_what_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {name: cifar_rows(3, seed).tobytes() for seed, name in enumerate(DESCRIPTIONS["cifar10"].forms[0])}
    spoilt = rows | {"data_batch_2.bin": cifar_rows(3, 9).tobytes()}
    pictures, digits = noise((32, 32, 3, 3)), noise((3, 1), 10)
    contents = {name: sha256(data) for name, data in rows.items()}
    contents["test_32x32.mat"] = sha256(pictures.tobytes(order="F") + digits.tobytes())
    for name, download, good, wrong in (
        ("cifar10", "cifar-10-binary.tar", tar_file([*rows.items()]), tar_file([*spoilt.items()])),
        (
            *("svhn", "test_32x32.mat", mat_file([mat_array("X", pictures), mat_array("y", digits)])),
            mat_file([mat_array("X", pictures), mat_array("y", digits[::-1])]),
        ),
    ):
        known = DESCRIPTIONS[name]
        files = {file.name: replace(file, contents={contents.get(file.name, ""): PUBLISHED}) for file in known.files}
        counts = {"train": 15, "test": 3}
        monkeypatch.setitem(DESCRIPTIONS, name, replace(known, files=tuple(files.values()), counts=counts))
        path = tmp_path / f"{download}.part"
        path.write_bytes(good)
        check_download(name, files[download], path)
        path.write_bytes(wrong)
        with pytest.raises(QuatcapsError, match=rf" of {known.title} is well formed, but its content"):
            check_download(name, files[download], path)
