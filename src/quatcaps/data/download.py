"""Fetches a published file from its mirrors in turn; it is there once it is whole and right, and not before.

HTTP and HTTPS alone, redirects watched, every failure in words.
"""

from __future__ import annotations

import contextlib
import errno
import shutil
import socket
import ssl
import string
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPResponse, InvalidURL
from pathlib import Path
from urllib.error import URLError
from urllib.parse import quote, urljoin, urlsplit
from urllib.request import HTTPHandler, HTTPSHandler, OpenerDirector, ProxyHandler, Request

from quatcaps.data.catalogue import File
from quatcaps.data.imageset import Progress
from quatcaps.errors import QuatcapsError
from quatcaps.files import explained, flush, locked, make_folder, read_json, write_json

BLOCK = 1 << 16  # bytes
LONGEST_WAIT = 30.0  # seconds between two attempts, whatever a server asks for
MOST_REDIRECTS = 5


class DownloadError(QuatcapsError):
    """A file cannot be fetched now."""


class NoNetworkError(DownloadError):
    """No mirror could even be connected to: this machine is most likely offline."""


class MirrorError(Exception):
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
    check: Callable[[Path], None],
    mirrors: Sequence[str] = (),
    progress: Progress = lambda done, total: None,
    timeout: float = 20.0,
    least_rate: float = 1024.0,
    attempts: int = 4,
    sleep: Callable[[float], None] = time.sleep,
) -> Path:
    """The path of `file`, fetched into `folder` unless it is there already.

    `check` is given a path, which may end in .part, and raises a `QuatcapsError` where that is not the file. `mirrors`
    are base URLs to try before the file's own. `progress` is called with the bytes that are there and their total.
    `timeout` is in seconds, for a connection and for silence; a server that sends less than `least_rate` bytes a second
    for that long is given up. A mirror has `attempts` tries; one that brings a twentieth of the file does not count.
    What has come stays in a .part file, which a later call goes on with.
    """
    urls = [f"{usable(base).rstrip('/')}/{file.download_name}" for base in mirrors] + [usable(u) for u in file.urls]
    if not urls:
        raise QuatcapsError(f"{file.name} has no address of its own: download {file.archive or 'it by hand'}")
    target = make_folder(folder) / file.download_name
    with locked(folder / ".lock"):  # one process at a time downloads into a folder
        if target.exists() and not _fault(target, check):
            return target
        part = target.with_name(f"{target.name}.part")
        _need_space(part, file.size)
        failures: dict[str, MirrorError] = {}
        settings = (part, file.size, timeout, least_rate, progress)
        for mirror in sorted((_Mirror(url, *settings) for url in dict.fromkeys(urls)), key=lambda each: not each.here):
            resumed = mirror.here is not None
            try:
                mirror.fetch(attempts, sleep)
                if (fault := _fault(part, check)) and resumed:  # a crash may have spoilt what came before
                    mirror.discard()
                    mirror.fetch(attempts, sleep)
                    fault = _fault(part, check)
                if fault:
                    sent = f"{part.stat().st_size:,} bytes came, {file.size:,} are published"
                    mirror.discard()
                    raise MirrorError(f"it sent something else: {fault} ({sent})")
            except MirrorError as failure:
                failures[mirror.url] = failure
                continue
            with explained(f"write {target}"):
                flush(part)
                part.replace(target)
                mirror.note.unlink(missing_ok=True)
                flush(folder)
            return target
    offline = all(failure.unreachable for failure in failures.values())
    head = "no mirror can be reached, is this machine online?" if offline else "every mirror failed"
    reasons = "".join(f"\n  {url}: {failure}" for url, failure in failures.items())
    remedy = f"Try again later, or fetch it by hand and put it at {target}"
    raise (NoNetworkError if offline else DownloadError)(f"cannot download {target.name}: {head}{reasons}\n{remedy}")


def usable(url: str) -> str:
    with contextlib.suppress(ValueError):
        if urlsplit(url).scheme in ("http", "https") and urlsplit(url).hostname:
            return url
    raise QuatcapsError(f"{url!r} is no mirror: give an address that begins with http:// or https://")


def _fault(path: Path, check: Callable[[Path], None]) -> str:
    try:
        check(path)
    except QuatcapsError as error:
        return str(error)
    return ""


def _need_space(part: Path, size: int) -> None:
    with explained(f"write {part}"):
        need = size - (part.stat().st_size if part.exists() else 0)
        free = shutil.disk_usage(part.parent).free
    if need > free:
        raise QuatcapsError(
            f"cannot download {part.stem}: {need:,} bytes are needed and {part.parent} has {free:,} free: "
            "free some space or choose another folder"
        )


@dataclass(frozen=True)
class _Mirror:
    """One address of a file, and what has come so far, beside a note of where from, so that a later call can go on."""

    url: str
    part: Path
    expected: int  # bytes
    timeout: float
    least_rate: float
    progress: Progress

    @property
    def limit(self) -> int:
        """More bytes than any honest copy has."""
        return max(2 * self.expected, self.expected + (1 << 16))

    @property
    def note(self) -> Path:
        return self.part.with_name(f"{self.part.name}.json")

    @property
    def here(self) -> tuple[int, int, str] | None:
        """Bytes that came from here, their total and the validator to go on with; None where there is nothing."""
        try:
            noted = read_json(self.note, "a note of a download")
        except QuatcapsError:
            return None
        total, validator = noted.get("total"), noted.get("validator")
        if noted.get("url") != self.url or not isinstance(total, int) or not isinstance(validator, str):
            return None
        came = self.part.stat().st_size if self.part.exists() else 0
        good = validator.isascii() and validator.isprintable() and 0 < came <= total <= self.limit
        return (came, total, validator) if good else None

    def discard(self) -> None:
        with explained(f"delete {self.part}"):
            self.note.unlink(missing_ok=True)
            self.part.unlink(missing_ok=True)

    def fetch(self, attempts: int, sleep: Callable[[float], None]) -> None:
        """Attempts until the part is complete, or `attempts` in a row brought next to nothing."""
        farthest, failed = (self.here or (0,))[0], 0
        while True:
            try:
                return self.attempt()
            except MirrorError as error:
                came = (self.here or (0,))[0]
                failed = failed + 1 if came - farthest < max(self.expected // 20, 1) else 0
                farthest = max(farthest, came)
                if not error.again or failed >= attempts:
                    raise
                sleep(max(0.0, min(2.0**failed / 2 if error.wait is None else error.wait, LONGEST_WAIT)))

    def attempt(self) -> None:
        here = self.here
        if here and here[0] == here[1]:
            return
        headers = {"User-Agent": "quatcaps"}
        if here:
            headers |= {"Range": f"bytes={here[0]}-", "If-Range": here[2]}
        with ask(self.url, headers, self.timeout) as answer:
            if answer.status == 416 and here:
                self.discard()
                raise MirrorError("it does not have the rest of what came before", again=True)
            if answer.status == 206:
                self.go_on(answer, here)
            elif answer.status == 200:
                self.begin(answer)
            else:
                raise refusal(answer)

    def begin(self, answer: HTTPResponse) -> None:
        announced = answer.length
        if announced is not None and announced > self.limit:
            raise MirrorError(f"it announces {announced:,} bytes: {self.expected:,} are published")
        # An If-Range needs a strong validator.
        tags = [tag for tag in (answer.headers["ETag"], answer.headers["Last-Modified"]) if tag and tag[:2] != "W/"]
        with explained(f"write {self.part}"):
            self.note.unlink(missing_ok=True)
            self.part.write_bytes(b"")
        if tags and announced is not None:
            write_json(self.note, {"url": self.url, "total": announced, "validator": tags[0]})
        self.receive(answer, 0, announced)

    def go_on(self, answer: HTTPResponse, here: tuple[int, int, str] | None) -> None:
        if not here:
            raise MirrorError("it sends a part where the whole was asked for")
        done, total, validator = here
        changed = validator.startswith('"') and answer.headers.get("ETag", validator) != validator
        if changed or answer.headers.get("Content-Range", "").strip() != f"bytes {done}-{total - 1}/{total}":
            self.discard()
            raise MirrorError("it sends another part than was asked for", again=True)
        self.receive(answer, done, total)

    def receive(self, answer: HTTPResponse, done: int, total: int | None) -> None:
        since, mark = time.monotonic(), done
        with explained(f"write {self.part}"), self.part.open("ab") as out:
            self.progress(done, total or self.expected)
            while total is None or done < total:
                block = self.read(answer, BLOCK if total is None else min(BLOCK, total - done))
                if not block:
                    break
                out.write(block)
                done += len(block)
                if done > self.limit:
                    break
                self.progress(done, total or self.expected)
                now = time.monotonic()
                if now - since >= self.timeout:
                    if done - mark < self.least_rate * (now - since) and done != total:
                        raise MirrorError(f"it sent {done - mark:,} bytes in {now - since:.0f} s", again=True)
                    since, mark = now, done
        if done > self.limit:
            self.discard()
            raise MirrorError(f"it sent more than {self.limit:,} bytes: {self.expected:,} are published")
        if total is not None and done < total:
            raise MirrorError(f"it broke off after {done:,} of {total:,} bytes", again=True)

    def read(self, answer: HTTPResponse, most: int) -> bytes:
        try:
            return answer.read1(most)  # as it comes, so that the rate is seen
        except TimeoutError as error:
            raise MirrorError(f"it sent nothing for {self.timeout:g} s", again=True) from error
        except (OSError, HTTPException) as error:
            raise broken(error) from error


def ask(url: str, headers: dict[str, str], timeout: float) -> HTTPResponse:
    """A mirror's answer after redirects, whatever its status."""
    opener = OpenerDirector()  # a plain one: HTTP and HTTPS only, no redirects of its own
    for handler in (ProxyHandler(), HTTPHandler(), HTTPSHandler()):
        opener.add_handler(handler)
    for _ in range(MOST_REDIRECTS + 1):
        try:
            answer: HTTPResponse = opener.open(Request(url, headers=headers), timeout=timeout)
        except URLError as error:
            raise unconnected(error.reason, timeout) from error
        except TimeoutError as error:
            raise MirrorError(f"no answer within {timeout:g} s", again=True) from error
        except (InvalidURL, ValueError) as error:
            raise MirrorError(f"{url} is not an address ({error})") from error
        except (OSError, HTTPException) as error:
            raise broken(error) from error
        if answer.status not in (301, 302, 303, 307, 308):
            return answer
        with answer:
            location = quote(answer.headers.get("Location", ""), safe=string.punctuation, encoding="latin-1")
            url = redirected(url, location)
    raise MirrorError(f"it redirects more than {MOST_REDIRECTS} times")


def redirected(url: str, location: str) -> str:
    try:
        onward = urljoin(url, location)
        before, after = urlsplit(url).scheme, urlsplit(onward).scheme
    except ValueError as error:
        raise MirrorError(f"it redirects to {location}, which is not an address") from error
    if after not in ("http", "https"):
        raise MirrorError(f"it redirects to {onward}: only http and https are followed")
    if (before, after) == ("https", "http"):
        raise MirrorError(f"it redirects from https to {onward}, which is not secure")
    return onward


def unconnected(reason: str | BaseException, timeout: float) -> MirrorError:
    """Why there was no connection. Nothing is tried twice that would fail alike: a name, a port, a certificate."""
    if isinstance(reason, ssl.SSLCertVerificationError):
        return MirrorError(f"its certificate is not trusted ({reason.verify_message})")
    if isinstance(reason, TimeoutError):
        return MirrorError(f"no connection within {timeout:g} s", unreachable=True)
    far = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL, None)
    if isinstance(reason, socket.gaierror | ConnectionRefusedError) or getattr(reason, "errno", None) in far:
        return MirrorError(f"no connection ({words(reason)})", unreachable=True)
    return broken(reason)


def broken(reason: str | BaseException) -> MirrorError:
    return MirrorError(f"the connection broke ({words(reason)})", again=True)


def refusal(answer: HTTPResponse) -> MirrorError:
    """What an error status means; servers that are busy or broken for a while are asked again."""
    asked, wait = answer.headers.get("Retry-After", "").strip(), None
    with contextlib.suppress(ValueError, TypeError, OverflowError):  # seconds, a date, or nonsense
        wait = float(asked[:9]) if asked.isdecimal() else parsedate_to_datetime(asked).timestamp() - time.time()
    again = answer.status in (408, 425, 429) or answer.status >= 500
    return MirrorError(f"it answers {answer.status} {answer.reason}".rstrip(), again=again, wait=wait)


def words(error: str | BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
