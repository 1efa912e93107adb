"""Members of archives: found in one pass, or refused."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest
from format_files import bounded, noise, reader, tar_file, zeros

from quatcaps.data.formats.archives import members
from quatcaps.data.formats.streams import GZIP
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
    ("name", "held", "words"),
    [
        ("link", other(tarfile.SYMTYPE, "/etc/passwd"), "'link' is a symbolic link"),
        ("folder/one", other(tarfile.SYMTYPE, "two"), "'folder/one' is a symbolic link"),
        ("link", other(tarfile.LNKTYPE, "folder/one"), "'link' is a hard link"),
        ("tty", other(tarfile.CHRTYPE), "'tty' is a device"),
        ("disk", other(tarfile.BLKTYPE), "'disk' is a device"),
        ("pipe", other(tarfile.FIFOTYPE), "'pipe' is a pipe"),
        ("odd", other(b"Z"), "'odd' is of unknown type b'Z'"),
        ("../one", ONE, "'../one' leads out of the archive"),
        ("folder/../../one", ONE, "leads out of the archive"),
        ("a\\..\\one", ONE, "leads out of the archive"),
        ("..", other(tarfile.DIRTYPE), "leads out of the archive"),
        ("long" * 40 + "/../../x", b"", "leads out of the archive"),
        ("/etc/passwd", b"root", "'/etc/passwd' is an absolute path"),
        ("C:\\one", b"", "is an absolute path"),
        ("elsewhere/one", ONE, "holds one twice"),
    ],
)
@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_refused_wherever_they_are(name: str, held: bytes | tarfile.TarInfo, words: str, form: int) -> None:
    for entries in ([(name, held), *ENTRIES], [*ENTRIES, (name, held)]):
        with pytest.raises(QuatcapsError, match=words.replace("\\", "\\\\")):
            read(tar_file(entries, form))


def header(name: bytes, kind: bytes, size: bytes, data: bytes = b"") -> bytes:
    """An entry by hand, whose size says what it likes."""
    start = name.ljust(100, b"\0") + b"0000644\0" + b"0000000\0" * 2 + size.ljust(12, b"\0") + b"0" * 11 + b"\0"
    block = (start + b" " * 8 + kind + bytes(100) + b"ustar\x0000").ljust(512, b"\0")
    return block[:148] + b"%06o\0 " % sum(block) + block[156:] + data.ljust(-(-len(data) // 512) * 512, b"\0")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "cut off after 0 bytes"),
        (b"no archive".ljust(2000), "no tar archive or a damaged one: entry 0 has a wrong checksum"),
        (tar_file(ENTRIES)[:-10], "cut off"),
        (gzip.compress(tar_file(ENTRIES, gzipped=False)[:2048]), "cut off after 2048"),
        (tar_file(ENTRIES[:2]), "lacks one: give the archive"),
        (tar_file(ENTRIES[:1]), "lacks one, two"),
        (tar_file([("one", bytes(1001))]), "one has 1001 bytes: at most 1000 are expected"),
        (tar_file([(str(k), b"") for k in range(1001)]), "more than 1000 entries"),
        (header(b"one", b"0", b"-0000000001") + bytes(1024), "entry 0 has no size"),
        (header(b"one", b"0", b"\xff" * 12) + bytes(1024), "entry 0 has no size"),
        (header(b"one", b"0", b"\x80" + b"\xff" * 11) + bytes(1024), "more than 1073741824 bytes"),
        (header(b"x", b"x", b"77777777777") + bytes(1024), "a header of 8589934591 bytes, above 65536"),
        (header(b"x", b"L", b"77777777777") + bytes(1024), "a header of 8589934591 bytes"),
        (header(b"x", b"x", b"10", b"99 path=") + bytes(1024), "an extended header that cannot be read"),
        (header(b"x", b"x", b"10", b"4 pa=\n\n\n") + bytes(1024), "an extended header that cannot be read"),
        (header(b"x", b"x", b"23", b"19 GNU.sparse.a=12\n") + bytes(1024), "a sparse file"),
        (header(b"x", b"x", b"13", b"11 size=-1\n") + header(b"one", b"0", b"1", b"x"), "a size is '-1'"),
        (header(b"x", b"g", b"13", b"11 path=/x\n") + bytes(1024), "one path or size to all entries"),
        (header(b"one", b"S", b"0") + bytes(1024), "is a sparse file"),
        (tar_file(ENTRIES, gzipped=False) + b"x", "goes on after its end"),
    ],
)
def test_damaged(data: bytes, words: str) -> None:
    with pytest.raises(QuatcapsError, match=f"FILE.*{words}"):
        read(data)


def test_a_path_in_an_extended_header_counts() -> None:
    data = header(b"x", b"x", b"20", b"16 path=/etc/pw\n") + header(b"one", b"0", b"1", b"x") + bytes(1024)
    with pytest.raises(QuatcapsError, match="'/etc/pw' is an absolute path"):
        read(data)


def test_total() -> None:
    with pytest.raises(QuatcapsError, match="holds more than 5000 bytes"):
        read(tar_file(ENTRIES), total=5000)


def test_bombs() -> None:
    """A huge member that nobody asked for, and padding without end."""
    plain = tar_file(ENTRIES, gzipped=False)
    large = tarfile.TarInfo("large")
    large.size = 1 << 40
    for front, words in (
        (plain[:-10240] + large.tobuf(tarfile.GNU_FORMAT), "holds more than 1073741824 bytes"),
        (plain, "goes on after its end"),
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
