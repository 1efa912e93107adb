"""Downloads from servers that truncate, stall, lie and vanish; no test leaves this machine."""

from __future__ import annotations

import json
import resource
import shutil
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from quatcaps.data import download as module
from quatcaps.data.catalogue import File
from quatcaps.data.download import DownloadError, MirrorError, NoNetworkError, download, redirected
from quatcaps.errors import QuatcapsError

NAME = "numbers.bin"
DATA = b"".join(struct.pack(">I", number * 2_654_435_761 % 2**32) for number in range(25_000))
HALF = len(DATA) // 2
ETAG = '"first"'
Act = Callable[[Any], None]


class Server(ThreadingHTTPServer):
    """Answers the requests of each path with the acts of a list in turn, the last one over and over."""

    daemon_threads = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.acts: dict[str, list[Act]] = {}
        self.asked: list[tuple[str, str | None, str | None]] = []  # path, Range, If-Range
        self.over = threading.Event()

    def handle_error(self, *_: object) -> None:
        """A client that hangs up is no error."""

    def at(self, path: str, *acts: Act) -> str:
        self.acts[path] = list(acts)
        return f"http://127.0.0.1:{self.server_port}{path}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers["Range"], self.headers["If-Range"]))
        acts = self.server.acts[self.path]
        (acts.pop(0) if len(acts) > 1 else acts[0])(self)

    def reply(self, status: int, body: bytes = b"", **headers: object) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def good(handler: Handler, data: bytes = DATA, etag: str = ETAG) -> None:
    """An honest server with ranges."""
    asked, condition = handler.headers["Range"], handler.headers["If-Range"]
    if asked and condition == etag:
        start = int(asked.removeprefix("bytes=").removesuffix("-"))
        where = f"bytes {start}-{len(data) - 1}/{len(data)}"
        handler.reply(206, data[start:], Content_Length=len(data) - start, Content_Range=where, ETag=etag)
    else:
        handler.reply(200, data, Content_Length=len(data), ETag=etag)


def cut(handler: Handler) -> None:
    """Announces everything and hangs up half-way."""
    handler.reply(200, DATA[:HALF], Content_Length=len(DATA), ETag=ETAG)


def status(code: int, **headers: object) -> Act:
    return lambda handler: handler.reply(code, b"<html>sorry</html>", **headers)


def partial(where: str, body: bytes = DATA[HALF:], etag: str = ETAG) -> Act:
    return lambda handler: handler.reply(206, body, Content_Length=len(body), Content_Range=where, ETag=etag)


def reset(handler: Handler) -> None:
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()


def check(path: Path) -> None:
    if path.read_bytes() != DATA:
        raise QuatcapsError("not the numbers")


class Trial(NamedTuple):
    """Calls `download` and remembers how long it would have slept."""

    server: Server
    folder: Path
    slept: list[float]

    def fetch(self, *urls: str, **options: Any) -> Path:
        file = File("train", NAME, len(DATA), len(DATA), urls, "", {})
        settings: dict[str, Any] = {
            "check": check,
            "timeout": 5.0,
            "sleep": self.slept.append,
        }
        return download(file, self.folder, **(settings | options))

    def on_disk(self) -> set[str]:
        return {path.name.removeprefix(NAME) or "whole" for path in self.folder.iterdir() if path.name != ".lock"}

    def ranges(self) -> list[str | None]:
        return [asked for _, asked, _ in self.server.asked]


PARTS = {".part", ".part.json"}
REST = f"bytes={HALF}-"


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trial]:
    monkeypatch.setenv("no_proxy", "*")
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield Trial(server, tmp_path / "data", [])
    finally:
        server.over.set()
        server.shutdown()
        thread.join()
        server.server_close()


def assert_whole(trial: Trial, path: Path) -> None:
    assert path == trial.folder / NAME
    assert path.read_bytes() == DATA
    assert trial.on_disk() == {"whole"}


def test_a_file_comes_whole_and_is_not_fetched_twice(trial: Trial) -> None:
    url = trial.server.at(f"/{NAME}", good)
    seen: list[tuple[int, int]] = []
    assert_whole(trial, trial.fetch(url, progress=lambda done, total: seen.append((done, total))))
    assert seen[0] == (0, len(DATA))
    assert seen[-1] == (len(DATA), len(DATA))
    assert seen == sorted(seen)
    trial.fetch(url)
    assert trial.ranges() == [None]


def test_a_wrong_file_in_its_place_is_replaced_once_the_right_one_is_there(trial: Trial) -> None:
    trial.folder.mkdir()
    (trial.folder / NAME).write_bytes(b"old")
    with pytest.raises(QuatcapsError, match="404"):
        trial.fetch(trial.server.at(f"/gone/{NAME}", status(404)))
    assert (trial.folder / NAME).read_bytes() == b"old"
    assert_whole(trial, trial.fetch(trial.server.at(f"/{NAME}", good)))


def test_a_broken_download_is_resumed(trial: Trial) -> None:
    assert_whole(trial, trial.fetch(trial.server.at(f"/{NAME}", cut, good)))
    assert trial.server.asked[1] == (f"/{NAME}", REST, ETAG)
    assert trial.slept == [0.5]


@pytest.mark.parametrize("cuts", [(1,), (module.BLOCK,), (module.BLOCK + 1,), (len(DATA) - 1,), (1, 1, 1), (30_000, 9)])
def test_a_download_is_resumed_at_any_byte(cuts: tuple[int, ...], trial: Trial) -> None:
    def stop_after(count: int) -> Act:
        def act(handler: Handler) -> None:
            start = int((handler.headers["Range"] or "bytes=0-")[6:-1])
            headers: dict[str, object] = {"Content_Length": len(DATA) - start, "ETag": ETAG}
            if start:
                headers["Content_Range"] = f"bytes {start}-{len(DATA) - 1}/{len(DATA)}"
            handler.reply(206 if start else 200, DATA[start : start + count], **headers)

        return act

    assert_whole(trial, trial.fetch(trial.server.at(f"/{NAME}", *map(stop_after, cuts), good)))
    assert trial.ranges() == [None, *(f"bytes={sum(cuts[: count + 1])}-" for count in range(len(cuts)))]


def test_a_last_modified_date_resumes_where_there_is_no_strong_tag(trial: Trial) -> None:
    day = formatdate(0, usegmt=True)
    headers = {"ETag": "W/" + ETAG, "Last_Modified": day, "Content_Length": len(DATA)}
    url = trial.server.at(f"/{NAME}", lambda handler: handler.reply(200, DATA[:HALF], **headers), good)
    trial.fetch(url)
    assert trial.server.asked[1] == (f"/{NAME}", REST, day)


def test_no_validator_no_resuming(trial: Trial) -> None:
    def anonymous(handler: Handler) -> None:
        handler.reply(200, DATA[:HALF], Content_Length=len(DATA))

    assert_whole(trial, trial.fetch(trial.server.at(f"/{NAME}", anonymous, good)))
    assert trial.ranges() == [None, None]


def test_truncated_each_time_ends_with_what_came(trial: Trial) -> None:
    url = trial.server.at(f"/{NAME}", cut)
    with pytest.raises(QuatcapsError, match=rf"(?s)broke off after 50,000 of 100,000 bytes.*put it at {trial.folder}/"):
        trial.fetch(url, attempts=3)
    assert trial.on_disk() == PARTS
    assert trial.ranges() == [None, REST, REST, REST]  # the first brought half the file and does not count
    assert trial.slept == [0.5, 1.0, 2.0]
    trial.server.at(f"/{NAME}", good)
    assert_whole(trial, trial.fetch(url))
    assert trial.ranges()[-1] == REST


def test_a_part_outlives_the_failures_of_other_mirrors(trial: Trial) -> None:
    broken, busy = trial.server.at(f"/{NAME}", cut), trial.server.at(f"/busy/{NAME}", status(503))
    with pytest.raises(QuatcapsError, match="every mirror failed"):
        trial.fetch(broken, busy, attempts=2)
    assert [path for path, _, _ in trial.server.asked] == [f"/{NAME}"] * 3 + [f"/busy/{NAME}"] * 2
    assert trial.on_disk() == PARTS
    assert (trial.folder / f"{NAME}.part").read_bytes() == DATA[:HALF]


def test_an_interrupt_leaves_a_part_for_the_next_call(trial: Trial) -> None:
    def stop(done: int, total: int) -> None:
        if done >= HALF:
            raise KeyboardInterrupt

    url = trial.server.at(f"/{NAME}", good)
    with pytest.raises(KeyboardInterrupt):
        trial.fetch(url, progress=stop)
    assert trial.on_disk() == PARTS
    came = (trial.folder / f"{NAME}.part").stat().st_size
    assert DATA.startswith((trial.folder / f"{NAME}.part").read_bytes())
    first: list[int] = []
    assert_whole(trial, trial.fetch(f"http://127.0.0.1:9/{NAME}", url, progress=lambda done, total: first.append(done)))
    assert first[0] == came >= HALF
    assert trial.ranges() == ([None, f"bytes={came}-"] if came < len(DATA) else [None])


@pytest.mark.parametrize("note", ["", "[]", "{}", '{"url": 1}', '{"url": "URL", "total": 7, "validator": "x"}'])
def test_a_part_with_a_note_that_does_not_fit_is_begun_anew(note: str, trial: Trial) -> None:
    url = trial.server.at(f"/{NAME}", good)
    trial.folder.mkdir()
    (trial.folder / f"{NAME}.part").write_bytes(DATA[:HALF])
    (trial.folder / f"{NAME}.part.json").write_text(note.replace("URL", url))
    assert_whole(trial, trial.fetch(url))
    assert trial.ranges() == [None]


@pytest.mark.parametrize("came", [HALF, len(DATA)])
def test_a_part_that_a_crash_spoilt_is_begun_anew(came: int, trial: Trial) -> None:
    url = trial.server.at(f"/{NAME}", good)
    trial.folder.mkdir()
    (trial.folder / f"{NAME}.part").write_bytes(bytes(came))
    note = {"url": url, "total": len(DATA), "validator": ETAG}
    (trial.folder / f"{NAME}.part.json").write_text(json.dumps(note))
    assert_whole(trial, trial.fetch(url))
    assert trial.ranges() == ([REST, None] if came == HALF else [None])


def test_a_server_without_ranges_sends_all_again(trial: Trial) -> None:
    def whole(handler: Handler) -> None:
        handler.reply(200, DATA, Content_Length=len(DATA))

    assert_whole(trial, trial.fetch(trial.server.at(f"/{NAME}", cut, whole)))
    assert trial.ranges() == [None, REST]


def test_a_file_that_changed_in_between_is_begun_anew(trial: Trial) -> None:
    def other(handler: Handler) -> None:
        handler.reply(200, bytes(HALF), Content_Length=len(DATA), ETag='"zeroth"')

    assert_whole(trial, trial.fetch(trial.server.at(f"/{NAME}", other, good)))
    assert trial.server.asked[1] == (f"/{NAME}", REST, '"zeroth"')


@pytest.mark.parametrize(
    "wrong",
    [
        partial("bytes 0-49999/100000", DATA[:HALF]),
        partial("bytes 50000-99999/100001"),
        partial("bytes 50000-99998/100000"),
        partial("bytes 50000-99999/*"),
        partial("nonsense"),
        partial("bytes 50000-99999/100000", etag='"second"'),
        status(416, Content_Range="bytes */7"),
    ],
)
def test_another_part_than_asked_for_is_refused(wrong: Act, trial: Trial) -> None:
    assert_whole(trial, trial.fetch(trial.server.at(f"/{NAME}", cut, wrong, good)))
    assert trial.ranges() == [None, REST, None]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(partial("bytes 0-99999/100000", DATA), "sends a part where the whole"), (status(416), "answers 416")],
)
def test_parts_that_nobody_asked_for(answer: Act, reason: str, trial: Trial) -> None:
    with pytest.raises(QuatcapsError, match=reason):
        trial.fetch(trial.server.at(f"/{NAME}", answer))
    assert trial.on_disk() == set()
    assert trial.slept == []


@pytest.mark.parametrize("code", [403, 404, 410, 401, 204])
def test_a_refusal_goes_to_the_next_mirror_at_once(code: int, trial: Trial) -> None:
    assert_whole(trial, trial.fetch(trial.server.at(f"/a/{NAME}", status(code)), trial.server.at(f"/{NAME}", good)))
    assert [path for path, _, _ in trial.server.asked] == [f"/a/{NAME}", f"/{NAME}"]
    assert trial.slept == []


@pytest.mark.parametrize("code", [500, 502, 503, 504, 429, 408])
def test_a_busy_server_is_asked_again_later(code: int, trial: Trial) -> None:
    assert_whole(trial, trial.fetch(trial.server.at(f"/{NAME}", status(code), status(code), good)))
    assert trial.slept == [1.0, 2.0]


def test_a_server_that_stays_busy_is_left(trial: Trial) -> None:
    assert_whole(
        trial, trial.fetch(trial.server.at(f"/a/{NAME}", status(503)), trial.server.at(f"/{NAME}", good), attempts=3)
    )
    assert [path for path, _, _ in trial.server.asked] == [f"/a/{NAME}"] * 3 + [f"/{NAME}"]


@pytest.mark.parametrize(
    ("asked", "low", "high"),
    [
        ("7", 7.0, 7.0),
        ("0", 0.0, 0.0),
        ("86400", 30.0, 30.0),
        ("9" * 400, 30.0, 30.0),
        (formatdate(4e9, usegmt=True), 30.0, 30.0),
        (formatdate(0, usegmt=True), 0.0, 0.0),
        ("soon", 1.0, 1.0),
        ("-3", 1.0, 1.0),
    ],
)
def test_retry_after_is_honoured_within_bounds(asked: str, low: float, high: float, trial: Trial) -> None:
    trial.fetch(trial.server.at(f"/{NAME}", status(503, Retry_After=asked), good))
    assert low <= trial.slept[0] <= high


def test_a_reset_connection_is_tried_again(trial: Trial) -> None:
    assert_whole(trial, trial.fetch(trial.server.at(f"/{NAME}", reset, reset, good)))
    assert len(trial.server.asked) == 3


def test_a_connection_that_breaks_inside_a_chunk_is_tried_again(trial: Trial) -> None:
    def chunked(handler: Handler) -> None:
        handler.protocol_version = "HTTP/1.1"
        handler.reply(200, b"186a0\r\n" + DATA[:HALF], Transfer_Encoding="chunked", Connection="close")

    assert_whole(trial, trial.fetch(trial.server.at(f"/{NAME}", chunked, good)))
    assert trial.ranges() == [None, None]


def test_chunks_without_a_length(trial: Trial) -> None:
    def chunked(handler: Handler) -> None:
        handler.protocol_version = "HTTP/1.1"
        body = b"186a0\r\n" + DATA + b"\r\n0\r\n\r\n"
        handler.reply(200, body, Transfer_Encoding="chunked", Connection="close")

    assert_whole(trial, trial.fetch(trial.server.at(f"/{NAME}", chunked)))


def test_silence_is_given_up_and_resumed(trial: Trial) -> None:
    def stall(handler: Handler) -> None:
        cut(handler)
        handler.server.over.wait(5.0)

    assert_whole(trial, trial.fetch(trial.server.at(f"/{NAME}", stall, good), timeout=0.5))
    assert trial.ranges() == [None, REST]


def test_a_server_that_never_answers(trial: Trial) -> None:
    url = trial.server.at(f"/{NAME}", lambda handler: handler.server.over.wait(5.0))
    with pytest.raises(QuatcapsError, match=r"no answer within 0\.3 s") as caught:
        trial.fetch(url, attempts=2, timeout=0.3)
    assert not isinstance(caught.value, NoNetworkError)
    assert trial.on_disk() == set()


def test_a_trickle_is_given_up(trial: Trial) -> None:
    def drip(handler: Handler) -> None:
        handler.reply(200, b"", Content_Length=len(DATA), ETag=ETAG)
        for byte in DATA:
            if handler.server.over.wait(0.02):
                return
            handler.wfile.write(bytes([byte]))

    start = time.monotonic()
    with pytest.raises(QuatcapsError, match=r"it sent \d+ bytes in"):
        trial.fetch(trial.server.at(f"/{NAME}", drip), attempts=2, timeout=0.3)
    assert time.monotonic() - start < 5
    assert trial.on_disk() == PARTS
    assert trial.ranges()[1] is not None


def test_a_slow_but_steady_server_is_left_to_it(trial: Trial) -> None:
    def slowly(handler: Handler) -> None:
        handler.reply(200, b"", Content_Length=len(DATA))
        for start in range(0, len(DATA), 10_000):
            handler.wfile.write(DATA[start : start + 10_000])
            time.sleep(0.05)

    assert_whole(trial, trial.fetch(trial.server.at(f"/{NAME}", slowly), timeout=0.3))
    assert len(trial.server.asked) == 1


def endless(handler: Handler) -> None:
    handler.reply(200)
    while True:
        handler.wfile.write(bytes(10_000))


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        (lambda handler: handler.reply(200, DATA, Content_Length=70_000), "70,000 bytes came, 100,000 are published"),
        (lambda handler: handler.reply(200, DATA, Content_Length=150_000, ETag=ETAG), "100,000 of 150,000 bytes"),
        (lambda handler: handler.reply(200, DATA, Content_Length=10**12), "announces 1,000,000,000,000 bytes"),
        (lambda handler: handler.reply(200, DATA[:HALF], Content_Length=-1), "50,000 bytes came"),
        (lambda handler: handler.reply(200, DATA[:HALF]), "50,000 bytes came, 100,000 are published"),
        (lambda handler: handler.reply(200, DATA + bytes(3)), "not the numbers"),
        (endless, "sent more than 200,000 bytes"),
    ],
)
def test_lies_about_the_length(lie: Act, reason: str, trial: Trial) -> None:
    with pytest.raises(QuatcapsError, match=reason):
        trial.fetch(trial.server.at(f"/{NAME}", lie), attempts=2)
    assert "whole" not in trial.on_disk()
    assert_whole(trial, trial.fetch(trial.server.at(f"/honest/{NAME}", good)))


@pytest.mark.parametrize("body", [b"", b"<html>please log in</html>", DATA[:-1] + b"x"])
def test_wrong_bytes_are_deleted_and_the_next_mirror_asked(body: bytes, trial: Trial) -> None:
    def wrong(handler: Handler) -> None:
        handler.reply(200, body, Content_Length=len(body), ETag=ETAG)

    with pytest.raises(QuatcapsError, match=r"sent something else: not the numbers"):
        trial.fetch(trial.server.at(f"/a/{NAME}", wrong))
    assert trial.on_disk() == set()
    assert_whole(trial, trial.fetch(trial.server.at(f"/a/{NAME}", wrong), trial.server.at(f"/{NAME}", good)))
    assert trial.slept == []


def test_a_file_is_looked_at_before_it_has_its_name(trial: Trial) -> None:
    url = trial.server.at(f"/{NAME}", good)
    looked_at: list[str] = []

    def look(path: Path) -> None:
        looked_at.append(path.name)
        check(path)

    assert_whole(trial, trial.fetch(url, check=look))
    assert looked_at == [f"{NAME}.part"]


def test_a_check_that_fails_is_a_reason(trial: Trial) -> None:
    def refuse(path: Path) -> None:
        raise QuatcapsError("it is cut short")

    with pytest.raises(QuatcapsError, match="it is cut short"):
        trial.fetch(trial.server.at(f"/{NAME}", good), check=refuse)
    assert trial.on_disk() == set()


def test_redirects_are_followed_with_the_range(trial: Trial) -> None:
    trial.server.at("/there", cut, good)
    assert_whole(trial, trial.fetch(trial.server.at(f"/{NAME}", status(302, Location="/there"))))
    assert [path for path, _, _ in trial.server.asked] == [f"/{NAME}", "/there"] * 2
    assert trial.ranges() == [None, None, REST, REST]


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        (f"/{NAME}", "redirects more than 5 times"),
        ("", "redirects more than 5 times"),
        ("file:///etc/hostname", r"redirects to file:///etc/hostname: only http"),
        ("ftp://127.0.0.1/x", "only http and https"),
        ("http://[::", "not an address"),
        ("http://127.0.0.1:port/", "not an address"),
    ],
)
def test_redirects_that_are_refused(location: str, reason: str, trial: Trial) -> None:
    with pytest.raises(QuatcapsError, match=reason):
        trial.fetch(trial.server.at(f"/{NAME}", status(301, Location=location)))
    assert trial.on_disk() == set()
    assert trial.slept == []


def test_a_redirect_out_of_https_is_refused() -> None:
    assert redirected("https://a/x", "//b/y") == "https://b/y"
    assert redirected("http://a/x", "https://b/y") == "https://b/y"
    with pytest.raises(MirrorError, match="not secure"):
        redirected("https://a/x", "http://a/x")


@pytest.mark.parametrize("mirror", ["file:///data", "ftp://host/x", "/data", "http://", "http://[::", ""])
def test_only_the_web_is_a_mirror(mirror: str, trial: Trial) -> None:
    with pytest.raises(QuatcapsError, match="is no mirror: give an address that begins with http"):
        trial.fetch(trial.server.at(f"/{NAME}", good), mirrors=[mirror])
    assert trial.server.asked == []


def test_mirrors_of_the_caller_come_first(trial: Trial) -> None:
    theirs = trial.server.at(f"/file/{NAME}", good)
    base = trial.server.at(f"/mine/{NAME}", status(404)).removesuffix(NAME)
    assert_whole(trial, trial.fetch(theirs, mirrors=[base]))
    assert [path for path, _, _ in trial.server.asked] == [f"/mine/{NAME}", f"/file/{NAME}"]


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def test_offline_is_an_error_of_its_own(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = f"http://127.0.0.1:{closed_port()}/{NAME}"

    def unknown(*_: object, **__: object) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with pytest.raises(NoNetworkError, match=r"Connection refused"):
        trial.fetch(refused)
    with pytest.raises(DownloadError, match="every mirror failed") as caught:
        trial.fetch(refused, trial.server.at(f"/x/{NAME}", status(404)))
    assert not isinstance(caught.value, NoNetworkError)
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(
        NoNetworkError, match=rf"(?s)is this machine online.*not known.*put it at {trial.folder}/{NAME}"
    ):
        trial.fetch(f"http://nowhere.example/{NAME}", f"https://nowhere.example/{NAME}")
    assert trial.slept == []
    assert trial.on_disk() == set()


def test_every_mirror_is_named_with_its_reason(trial: Trial) -> None:
    gone, busy = trial.server.at("/gone", status(404)), trial.server.at("/busy", status(503))
    with pytest.raises(QuatcapsError) as caught:
        trial.fetch(gone, busy, attempts=2)
    assert f"{gone}: it answers 404 Not Found\n" in str(caught.value)
    assert f"{busy}: it answers 503 Service Unavailable\n" in str(caught.value)


def test_a_file_without_an_address_names_its_archive(tmp_path: Path) -> None:
    file = File("train", "a.bin", 1, 1, (), "", {}, archive="all.tar.gz")
    with pytest.raises(QuatcapsError, match=r"a\.bin has no address of its own: download all\.tar\.gz"):
        download(file, tmp_path, check=lambda path: None)


def test_a_disk_with_too_little_space(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type(shutil.disk_usage("/"))(10**6, 10**6 - 5, 5)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(
        QuatcapsError, match=r"cannot download numbers\.bin: 100,000 bytes are needed and .* has 5 free"
    ):
        trial.fetch(trial.server.at(f"/{NAME}", good))
    assert trial.server.asked == []


def test_a_write_that_hits_a_real_limit(trial: Trial) -> None:
    """The system refuses to write more than 40,000 bytes, as a full disk would."""
    url = trial.server.at(f"/{NAME}", good)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, before[1]))
    try:
        with pytest.raises(QuatcapsError, match=r"cannot write .*\.part: the file is larger than this system allows"):
            trial.fetch(url)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert trial.on_disk() == PARTS
    assert len(trial.server.asked) == 1
    assert_whole(trial, trial.fetch(url))
    assert trial.ranges()[1] is not None


def test_a_folder_that_cannot_be_written_to(trial: Trial) -> None:
    trial.folder.write_text("a file")
    with pytest.raises(QuatcapsError, match="a file stands where a folder is needed"):
        trial.fetch(trial.server.at(f"/{NAME}", good))
    assert trial.server.asked == []


def test_two_at_once_fetch_it_once(trial: Trial) -> None:
    def slowly(handler: Handler) -> None:
        time.sleep(0.1)
        good(handler)

    url = trial.server.at(f"/{NAME}", slowly)
    threads = [threading.Thread(target=trial.fetch, args=(url,), kwargs={"timeout": 2.0}) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_whole(trial, trial.folder / NAME)
    assert len(trial.server.asked) == 1
