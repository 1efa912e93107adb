"""Fetches a published file from its mirrors in turn; it is there once it is whole and right, and not before."""

from __future__ import annotations

import hashlib
import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path

from quatcaps.data.catalogue import File
from quatcaps.data.http import MirrorError, ask, refusal, usable, words
from quatcaps.errors import QuatcapsError
from quatcaps.files import explained, flush, locked, make_folder, read_json, write_json

BLOCK = 1 << 16  # bytes
LONGEST_WAIT = 30.0  # seconds between two attempts, whatever a server asks for

Accept = Callable[[Path], str | None]
Progress = Callable[[int, int], None]


class DownloadError(QuatcapsError):
    """A file cannot be fetched now."""


class NoNetworkError(DownloadError):
    """No mirror could even be connected to: this machine is most likely offline."""


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
    urls = [f"{usable(base).rstrip('/')}/{file.download_name}" for base in mirrors] + [usable(u) for u in file.urls]
    if not urls:
        raise QuatcapsError(f"{file.name} has no address of its own: download {file.archive or 'it by hand'}")
    target = make_folder(folder) / file.download_name
    with locked(folder / ".lock"):  # one process at a time downloads into a folder
        if target.exists() and _fault(target, file, accept) is None:
            return target
        part = _Part(target.with_name(f"{target.name}.part"), file.size)
        _need_space(part, folder)
        failures: dict[str, MirrorError] = {}
        for url in sorted(dict.fromkeys(urls), key=lambda url: not part.here(url)):
            fetch = _Fetch(url, part, timeout, least_rate, progress or (lambda done, total: None))
            resumed = part.here(url) is not None
            try:
                fetch.repeat(attempts, sleep)
                if resumed and _fault(part.path, file, accept):  # a crash may have spoilt what came before
                    part.discard()
                    fetch.repeat(attempts, sleep)
                part.check(file, accept)
            except MirrorError as failure:
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
            raise MirrorError(f"it sent something else: {fault} ({came:,} bytes came, {file.size:,} are published)")


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
            except MirrorError as error:
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
        with ask(self.url, headers, self.timeout) as answer:
            if answer.status == 416 and here:
                self.part.discard()
                raise MirrorError("it does not have the rest of what came before", again=True)
            if answer.status == 206:
                self.go_on(answer, here)
            elif answer.status == 200:
                self.begin(answer)
            else:
                raise refusal(answer)

    def begin(self, answer: HTTPResponse) -> None:
        announced = answer.length
        if announced is not None and announced > self.part.limit:
            raise MirrorError(f"it announces {announced:,} bytes: {self.part.expected:,} are published")
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
            raise MirrorError("it sends a part where the whole was asked for")
        came = re.fullmatch(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", answer.headers.get("Content-Range", "").strip())
        changed = here[2].startswith('"') and answer.headers.get("ETag", here[2]) != here[2]
        if changed or not came or [int(number) for number in came.groups()] != [here[0], here[1] - 1, here[1]]:
            self.part.discard()
            raise MirrorError("it sends another part than was asked for", again=True)
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
                        raise MirrorError(f"it sent {done - mark:,} bytes in {now - since:.0f} s", again=True)
                    since, mark = now, done
        if done > self.part.limit:
            self.part.discard()
            raise MirrorError(f"it sent more than {self.part.limit:,} bytes: {self.part.expected:,} are published")
        if total is not None and done < total:
            raise MirrorError(f"it broke off after {done:,} of {total:,} bytes", again=True)

    def read(self, answer: HTTPResponse, most: int) -> bytes:
        try:
            return answer.read1(most)  # as it comes, so that the rate is seen
        except TimeoutError as error:
            raise MirrorError(f"it sent nothing for {self.timeout:g} s", again=True) from error
        except (OSError, HTTPException) as error:
            raise MirrorError(f"the connection broke ({words(error)})", again=True) from error


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


def _need_space(part: _Part, folder: Path) -> None:
    with explained(f"write {part.path}"):
        need, free = part.expected - part.size(), shutil.disk_usage(folder).free
    if need > free:
        raise QuatcapsError(
            f"cannot download {part.path.stem}: {need:,} bytes are needed and {folder} has {free:,} free: "
            "free some space or choose another folder"
        )


def _all_failed(target: Path, failures: dict[str, MirrorError]) -> DownloadError:
    offline = all(failure.unreachable for failure in failures.values())
    head = "no mirror can be reached, is this machine online?" if offline else "every mirror failed"
    reasons = "".join(f"\n  {url}: {failure}" for url, failure in failures.items())
    remedy = f"Try again later, or fetch it by hand and put it at {target}"
    return (NoNetworkError if offline else DownloadError)(f"cannot download {target.name}: {head}{reasons}\n{remedy}")
