"""What a server answers, and why it is no answer: HTTP and HTTPS alone, redirects watched, every failure in words."""

from __future__ import annotations

import contextlib
import errno
import socket
import ssl
import string
import time
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPResponse, InvalidURL
from urllib.error import URLError
from urllib.parse import quote, urljoin, urlsplit
from urllib.request import HTTPHandler, HTTPSHandler, OpenerDirector, ProxyHandler, Request

from quatcaps.errors import QuatcapsError

MOST_REDIRECTS = 5


class MirrorError(Exception):
    """Why a mirror did not give the file; `again` where a new attempt may help, after `wait` seconds if it said so."""

    def __init__(
        self, reason: str, *, again: bool = False, wait: float | None = None, unreachable: bool = False
    ) -> None:
        super().__init__(reason)
        self.again, self.wait, self.unreachable = again, wait, unreachable


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
            raise MirrorError(f"the connection broke ({words(error)})", again=True) from error
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
    return MirrorError(f"the connection broke ({words(reason)})", again=True)


def refusal(answer: HTTPResponse) -> MirrorError:
    """What an error status means; servers that are busy or broken for a while are asked again."""
    asked, wait = answer.headers.get("Retry-After", "").strip(), None
    with contextlib.suppress(ValueError, TypeError, OverflowError):  # seconds, a date, or nonsense
        wait = float(asked[:9]) if asked.isdecimal() else parsedate_to_datetime(asked).timestamp() - time.time()
    again = answer.status in (408, 425, 429) or answer.status >= 500
    return MirrorError(f"it answers {answer.status} {answer.reason}".rstrip(), again=again, wait=wait)


def usable(url: str) -> str:
    with contextlib.suppress(ValueError):
        if urlsplit(url).scheme in ("http", "https") and urlsplit(url).hostname:
            return url
    raise QuatcapsError(f"{url!r} is no mirror: give an address that begins with http:// or https://")


def words(error: str | BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
