"""Members of archives: found in one pass, or refused."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest
from format_files import bounded, noise, reader, tar_file, zeros

from quatcaps.data.formats.cifar import members
from quatcaps.data.formats.reader import GZIP
from quatcaps.errors import QuatcapsError

ONE, TWO = noise((1000,)).tobytes(), noise((512,), seed=1).tobytes()
ENTRIES = (("folder/readme.html", b"<p>"), ("folder/two", TWO), ("folder/one", ONE), ("folder/other", b"x" * 5000))


def read(data: bytes, wanted: tuple[str, ...] = ("one", "two"), **limits: int) -> dict[str, bytes]:
    given = {"largest": 1000, **limits}
    return {name: member.rest(1000) for name, member in members(reader(data), wanted, **given)}


def other(kind: bytes, target: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo()
    entry.type, entry.linkname = kind, target
    return entry


@pytest.mark.parametrize("gzipped", [False, True])
@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("folder", ["folder", "./folder", "long" * 40, "long/" * 20 + "r", "größer"])
def test_members(gzipped: bool, form: int, folder: str) -> None:
    if form == tarfile.USTAR_FORMAT and folder == "long" * 40:
        folder = "long" * 38  # the longest it can hold
    entries = [(folder, other(tarfile.DIRTYPE)), *((name.replace("folder", folder), held) for name, held in ENTRIES)]
    found = read(tar_file(entries, form, gzipped))
    assert list(found) == ["two", "one"]
    assert found == {"one": ONE, "two": TWO}


def test_members_that_are_left_unread() -> None:
    names = [name for name, _ in members(reader(tar_file(ENTRIES)), ("one", "two"), largest=1000)]
    assert names == ["two", "one"]


def test_an_archive_of_files_on_disk(tmp_path: Path) -> None:
    """Their fractional times make extended headers."""
    (tmp_path / "one").write_bytes(ONE)
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "one", "folder/one")
    assert read((tmp_path / "a.tar.gz").read_bytes(), ("one",)) == {"one": ONE}


@pytest.mark.parametrize(
    ("name", "held"),
    [
        ("link", other(tarfile.SYMTYPE, "/etc/passwd")),
        ("elsewhere/one", other(tarfile.SYMTYPE, "two")),
        ("elsewhere/one", other(tarfile.LNKTYPE, "folder/one")),
        ("tty", other(tarfile.CHRTYPE)),
        ("one", other(tarfile.FIFOTYPE)),
        ("one", other(tarfile.DIRTYPE)),
        ("odd", other(b"Z")),
        ("../other", b"x"),
        ("/etc/passwd", b"root"),
    ],
)
@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_everything_but_the_wanted_files_is_passed_over(name: str, held: bytes | tarfile.TarInfo, form: int) -> None:
    """Nothing is unpacked, so links and paths lead nowhere."""
    for entries in ([(name, held), *ENTRIES], [*ENTRIES, (name, held)]):
        assert read(tar_file(entries, form)) == {"one": ONE, "two": TWO}


def test_a_file_found_twice_is_refused() -> None:
    with pytest.raises(QuatcapsError, match="holds one twice"):
        read(tar_file([*ENTRIES, ("elsewhere/one", ONE)]))


def header(name: bytes, kind: bytes, size: bytes, data: bytes = b"") -> bytes:
    """An entry by hand, whose size says what it likes."""
    start = name.ljust(100, b"\0") + b"0000644\0" + b"0000000\0" * 2 + size.ljust(12, b"\0") + b"0" * 11 + b"\0"
    block = (start + b" " * 8 + kind + bytes(100) + b"ustar\x0000").ljust(512, b"\0")
    return block[:148] + b"%06o\0 " % sum(block) + block[156:] + data.ljust(-(-len(data) // 512) * 512, b"\0")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no tar archive or a damaged one"),
        (b"no archive".ljust(2000), "no tar archive or a damaged one"),
        (tar_file(ENTRIES)[:-10], "cut off"),
        (gzip.compress(tar_file(ENTRIES, gzipped=False)[:2048]), "lacks one"),
        (tar_file(ENTRIES[:2]), "lacks one: give the archive"),
        (tar_file(ENTRIES[:1]), "lacks one, two"),
        (tar_file([("one", bytes(1001))]), "one has 1001 bytes: at most 1000 are expected"),
        (tar_file([(str(k), b"") for k in range(1001)]), "more than 1000 entries"),
        (header(b"one", b"0", b"-0000000001") + bytes(1024), "has -1 bytes|invalid offset"),
        (header(b"one", b"0", b"\xff" * 12) + bytes(1024), "has -1 bytes|invalid offset"),
        (header(b"one", b"0", b"\x80" + b"\xff" * 11) + bytes(1024), "bytes: at most 1073741824"),
        (header(b"other", b"0", b"\x80" + b"\xff" * 11) + bytes(1024), "bytes: at most 1073741824"),
        (header(b"x", b"x", b"77777777777") + bytes(1 << 18), "headers, padding or contents that are too long"),
        (header(b"x", b"L", b"77777777777") + bytes(1 << 18), "headers, padding or contents that are too long"),
        (header(b"x", b"x", b"10", b"99 path=") + bytes(1024), "damaged|lacks"),
        (header(b"one", b"S", b"0") + bytes(1024), "lacks one"),
    ],
)
def test_damaged(data: bytes, words: str) -> None:
    with pytest.raises(QuatcapsError, match=f"FILE.*({words})"):
        read(data)


def test_tricks_of_extended_headers_cost_little() -> None:
    """Headers of headers, and a map of a sparse file that never ends."""
    nested = header(b"x", b"x", b"14", b"12 path=one\n") * 5000
    keys = (b"GNU.sparse.major=1", b"GNU.sparse.minor=0", b"GNU.sparse.name=one", b"GNU.sparse.realsize=9")
    records = b"".join(b"%d %s\n" % (len(key) + 4, key) for key in keys)
    sparse = header(b"x", b"x", b"%o" % len(records), records) + header(b"one", b"0", b"77777777", b"9" * (1 << 22))
    for data in (nested, sparse):
        with bounded(16), pytest.raises(QuatcapsError, match=r"FILE.*(too long|damaged|lacks)"):
            read(data)


def test_total() -> None:
    with pytest.raises(QuatcapsError, match="more than 5000 bytes in all"):
        read(tar_file(ENTRIES), total=5000)


def test_bombs() -> None:
    """A huge member that nobody asked for, and padding without end."""
    plain = tar_file(ENTRIES, gzipped=False)
    large = tarfile.TarInfo("large")
    large.size = 1 << 40
    for front, words in (
        (plain[:-10240] + large.tobuf(tarfile.GNU_FORMAT), "at most 1073741824 are expected"),
        (plain, "padding or contents that are too long"),
    ):
        bomb = zeros(1 << 30, GZIP, front)
        with bounded(8), pytest.raises(QuatcapsError, match=words):
            read(bomb)


def test_python_reads_the_same() -> None:
    data = header(b"one", b"0", b"2", b"ab") + bytes(1024)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        held = archive.extractfile("one")
        assert held is not None
        assert held.read() == b"ab" == read(data, ("one",))["one"]
