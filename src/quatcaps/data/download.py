"""Fetches a published file from its mirrors in turn; it is there once it is whole and right, and not before."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import shutil
import socket
import ssl
import string
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPResponse, InvalidURL
from pathlib import Path
from urllib.error import URLError
from urllib.parse import quote, urljoin, urlsplit
from urllib.request import HTTPHandler, HTTPSHandler, OpenerDirector, ProxyHandler, Request

from quatcaps.data.catalogue import File
from quatcaps.errors import QuatcapsError
from quatcaps.files import explained, flush, make_folder, read_json, write_json

BLOCK = 1 << 16  # bytes
LONGEST_WAIT = 30.0  # seconds between two attempts, whatever a server asks for
MOST_REDIRECTS = 5

Accept = Callable[[Path], str | None]
Progress = Callable[[int, int], None]


class NoNetworkError(QuatcapsError):
    """No mirror could even be connected to: this machine is most likely offline."""


class _MirrorError(Exception):
    """Why a mirror did not give the file; `again` where a new attempt may help, after `wait` seconds if it said so."""

    def __init__(
        self, reason: str, *, again: bool = False, wait: float | None = None, unreachable: bool = False
    ) -> None:
        super().__init__(reason)
        self.again, self.wait, self.unreachable = again, wait, unreachable


def download(
    file: File,
    folder: Path,
    *,
    accept: Accept,
    mirrors: Sequence[str] = (),
    progress: Progress | None = None,
    timeout: float = 20.0,
    least_rate: float = 1024.0,
    attempts: int = 4,
    sleep: Callable[[float], None] = time.sleep,
) -> Path:
    """The path of `file`, fetched into `folder` unless it is there already.

    It is right if it has a published digest, or if `accept` says so: `accept` is given a path, which may end in .part,
    and returns None or words that say what is wrong. `mirrors` are base URLs to try before the file's own.
    `progress` is called with the bytes that are there and their total. `timeout` is in seconds, for a connection and
    for silence; a server that sends less than `least_rate` bytes a second for that long is given up. A mirror has
    `attempts` tries; one that brings a twentieth of the file does not count. What has come stays in a .part file, which
    a later call goes on with.
    """
    urls = [f"{_usable(base).rstrip('/')}/{file.download_name}" for base in mirrors] + [_usable(u) for u in file.urls]
    if not urls:
        raise QuatcapsError(f"{file.name} has no address of its own: download {file.archive or 'it by hand'}")
    target = make_folder(folder) / file.download_name
    with _alone(folder):
        if target.exists() and _fault(target, file, accept) is None:
            return target
        part = _Part(target.with_name(f"{target.name}.part"), file.size)
        _need_space(part, folder)
        failures: dict[str, _MirrorError] = {}
        for url in sorted(dict.fromkeys(urls), key=lambda url: not part.here(url)):
            fetch = _Fetch(url, part, timeout, least_rate, progress or (lambda done, total: None))
            resumed = part.here(url) is not None
            try:
                fetch.repeat(attempts, sleep)
                if resumed and _fault(part.path, file, accept):  # a crash may have spoilt what came before
                    part.discard()
                    fetch.repeat(attempts, sleep)
                part.check(file, accept)
            except _MirrorError as failure:
                failures[url] = failure
                continue
            with explained(f"write {target}"):
                flush(part.path)
                part.path.replace(target)
                part.note.unlink(missing_ok=True)
                flush(folder)
            return target
    raise _all_failed(target, failures)


@dataclass(frozen=True)
class _Part:
    """What has come so far, beside a note of where from, so that a later call can go on."""

    path: Path
    expected: int  # bytes

    @property
    def limit(self) -> int:
        """More bytes than any honest copy has."""
        return max(2 * self.expected, self.expected + (1 << 16))

    @property
    def note(self) -> Path:
        return self.path.with_name(f"{self.path.name}.json")

    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def here(self, url: str) -> tuple[int, int, str] | None:
        """Bytes that came from `url`, their total and the validator to go on with; None where there is nothing."""
        try:
            noted = read_json(self.note, "a note of a download")
        except QuatcapsError:
            return None
        total, validator = noted.get("total"), noted.get("validator")
        if noted.get("url") != url or not isinstance(total, int) or not isinstance(validator, str):
            return None
        good = validator.isascii() and validator.isprintable() and 0 < self.size() <= total <= self.limit
        return (self.size(), total, validator) if good else None

    def discard(self) -> None:
        with explained(f"delete {self.path}"):
            self.note.unlink(missing_ok=True)
            self.path.unlink(missing_ok=True)

    def check(self, file: File, accept: Accept) -> None:
        """Deletes what has come where it is not the file."""
        if fault := _fault(self.path, file, accept):
            came = self.size()
            self.discard()
            raise _MirrorError(f"it sent something else: {fault} ({came:,} bytes came, {file.size:,} are published)")


@dataclass(frozen=True)
class _Fetch:
    """One mirror's answers, written to the part."""

    url: str
    part: _Part
    timeout: float
    least_rate: float
    progress: Progress

    def repeat(self, attempts: int, sleep: Callable[[float], None]) -> None:
        """Attempts until the part is complete, or `attempts` in a row brought next to nothing."""
        farthest, failed = self.came(), 0
        while True:
            try:
                return self.attempt()
            except _MirrorError as error:
                failed = failed + 1 if self.came() - farthest < max(self.part.expected // 20, 1) else 0
                farthest = max(farthest, self.came())
                if not error.again or failed >= attempts:
                    raise
                sleep(max(0.0, min(2.0**failed / 2 if error.wait is None else error.wait, LONGEST_WAIT)))

    def came(self) -> int:
        """Bytes that a further attempt could go on with."""
        here = self.part.here(self.url)
        return here[0] if here else 0

    def attempt(self) -> None:
        here = self.part.here(self.url)
        if here and here[0] == here[1]:
            return
        headers = {"User-Agent": "quatcaps"}
        if here:
            headers |= {"Range": f"bytes={here[0]}-", "If-Range": here[2]}
        with _ask(self.url, headers, self.timeout) as answer:
            if answer.status == 416 and here:
                self.part.discard()
                raise _MirrorError("it does not have the rest of what came before", again=True)
            if answer.status == 206:
                self.go_on(answer, here)
            elif answer.status == 200:
                self.begin(answer)
            else:
                raise _refusal(answer)

    def begin(self, answer: HTTPResponse) -> None:
        announced = answer.length
        if announced is not None and announced > self.part.limit:
            raise _MirrorError(f"it announces {announced:,} bytes: {self.part.expected:,} are published")
        # An If-Range needs a strong validator.
        tags = [tag for tag in (answer.headers["ETag"], answer.headers["Last-Modified"]) if tag and tag[:2] != "W/"]
        with explained(f"write {self.part.path}"):
            self.part.note.unlink(missing_ok=True)
            self.part.path.write_bytes(b"")
        if tags and announced is not None:
            write_json(self.part.note, {"url": self.url, "total": announced, "validator": tags[0]})
        self.receive(answer, 0, announced)

    def go_on(self, answer: HTTPResponse, here: tuple[int, int, str] | None) -> None:
        if not here:
            raise _MirrorError("it sends a part where the whole was asked for")
        came = re.fullmatch(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", answer.headers.get("Content-Range", "").strip())
        changed = here[2].startswith('"') and answer.headers.get("ETag", here[2]) != here[2]
        if changed or not came or [int(number) for number in came.groups()] != [here[0], here[1] - 1, here[1]]:
            self.part.discard()
            raise _MirrorError("it sends another part than was asked for", again=True)
        self.receive(answer, here[0], here[1])

    def receive(self, answer: HTTPResponse, done: int, total: int | None) -> None:
        since, mark = time.monotonic(), done
        with explained(f"write {self.part.path}"), self.part.path.open("ab") as out:
            self.progress(done, total or self.part.expected)
            while total is None or done < total:
                block = self.read(answer, BLOCK if total is None else min(BLOCK, total - done))
                if not block:
                    break
                out.write(block)
                done += len(block)
                if done > self.part.limit:
                    break
                self.progress(done, total or self.part.expected)
                now = time.monotonic()
                if now - since >= self.timeout:
                    if done - mark < self.least_rate * (now - since) and done != total:
                        raise _MirrorError(f"it sent {done - mark:,} bytes in {now - since:.0f} s", again=True)
                    since, mark = now, done
        if done > self.part.limit:
            self.part.discard()
            raise _MirrorError(f"it sent more than {self.part.limit:,} bytes: {self.part.expected:,} are published")
        if total is not None and done < total:
            raise _MirrorError(f"it broke off after {done:,} of {total:,} bytes", again=True)

    def read(self, answer: HTTPResponse, most: int) -> bytes:
        try:
            return answer.read1(most)  # as it comes, so that the rate is seen
        except TimeoutError as error:
            raise _MirrorError(f"it sent nothing for {self.timeout:g} s", again=True) from error
        except (OSError, HTTPException) as error:
            raise _MirrorError(f"the connection broke ({_words(error)})", again=True) from error


def _ask(url: str, headers: dict[str, str], timeout: float) -> HTTPResponse:
    """A mirror's answer after redirects, whatever its status."""
    opener = OpenerDirector()  # a plain one: HTTP and HTTPS only, no redirects of its own
    for handler in (ProxyHandler(), HTTPHandler(), HTTPSHandler()):
        opener.add_handler(handler)
    for _ in range(MOST_REDIRECTS + 1):
        try:
            answer: HTTPResponse = opener.open(Request(url, headers=headers), timeout=timeout)
        except URLError as error:
            raise _unconnected(error.reason, timeout) from error
        except TimeoutError as error:
            raise _MirrorError(f"no answer within {timeout:g} s", again=True) from error
        except (InvalidURL, ValueError) as error:
            raise _MirrorError(f"{url} is not an address ({error})") from error
        except (OSError, HTTPException) as error:
            raise _MirrorError(f"the connection broke ({_words(error)})", again=True) from error
        if answer.status not in (301, 302, 303, 307, 308):
            return answer
        with answer:
            location = quote(answer.headers.get("Location", ""), safe=string.punctuation, encoding="latin-1")
            url = _redirected(url, location)
    raise _MirrorError(f"it redirects more than {MOST_REDIRECTS} times")


def _redirected(url: str, location: str) -> str:
    try:
        onward = urljoin(url, location)
        before, after = urlsplit(url).scheme, urlsplit(onward).scheme
    except ValueError as error:
        raise _MirrorError(f"it redirects to {location}, which is not an address") from error
    if after not in ("http", "https"):
        raise _MirrorError(f"it redirects to {onward}: only http and https are followed")
    if (before, after) == ("https", "http"):
        raise _MirrorError(f"it redirects from https to {onward}, which is not secure")
    return onward


def _unconnected(reason: str | BaseException, timeout: float) -> _MirrorError:
    """Why there was no connection. Nothing is tried twice that would fail alike: a name, a port, a certificate."""
    if isinstance(reason, ssl.SSLCertVerificationError):
        return _MirrorError(f"its certificate is not trusted ({reason.verify_message})")
    if isinstance(reason, TimeoutError):
        return _MirrorError(f"no connection within {timeout:g} s", unreachable=True)
    far = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL, None)
    if isinstance(reason, socket.gaierror | ConnectionRefusedError) or getattr(reason, "errno", None) in far:
        return _MirrorError(f"no connection ({_words(reason)})", unreachable=True)
    return _MirrorError(f"the connection broke ({_words(reason)})", again=True)


def _refusal(answer: HTTPResponse) -> _MirrorError:
    """What an error status means; servers that are busy or broken for a while are asked again."""
    asked, wait = answer.headers.get("Retry-After", "").strip(), None
    with contextlib.suppress(ValueError, TypeError, OverflowError):  # seconds, a date, or nonsense
        wait = float(asked[:9]) if asked.isdecimal() else parsedate_to_datetime(asked).timestamp() - time.time()
    again = answer.status in (408, 425, 429) or answer.status >= 500
    return _MirrorError(f"it answers {answer.status} {answer.reason}".rstrip(), again=again, wait=wait)


def _fault(path: Path, file: File, accept: Accept) -> str | None:
    """What is wrong with a download; None where it has a published digest or is accepted."""
    strongest = [digest for digest in file.published if digest.startswith("sha256:")] or file.published
    for published in strongest:
        algorithm, _, digest = published.partition(":")
        with explained(f"read {path}"), path.open("rb") as content:
            if hashlib.file_digest(content, algorithm).hexdigest() == digest:
                return None
    try:
        return accept(path)
    except QuatcapsError as error:
        return str(error)


def _usable(url: str) -> str:
    with contextlib.suppress(ValueError):
        if urlsplit(url).scheme in ("http", "https") and urlsplit(url).hostname:
            return url
    raise QuatcapsError(f"{url!r} is no mirror: give an address that begins with http:// or https://")


def _need_space(part: _Part, folder: Path) -> None:
    with explained(f"write {part.path}"):
        need, free = part.expected - part.size(), shutil.disk_usage(folder).free
    if need > free:
        raise QuatcapsError(
            f"cannot download {part.path.stem}: {need:,} bytes are needed and {folder} has {free:,} free: "
            "free some space or choose another folder"
        )


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Waits until no other process downloads into `folder`, where its file system has locks."""
    with explained(f"open {folder}"):
        handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _words(error: str | BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _all_failed(target: Path, failures: dict[str, _MirrorError]) -> QuatcapsError:
    offline = all(failure.unreachable for failure in failures.values())
    head = "no mirror can be reached, is this machine online?" if offline else "every mirror failed"
    reasons = "".join(f"\n  {url}: {failure}" for url, failure in failures.items())
    remedy = f"Try again later, or fetch it by hand and put it at {target}"
    return (NoNetworkError if offline else QuatcapsError)(f"cannot download {target.name}: {head}{reasons}\n{remedy}")
