"""One outgoing HTTP exchange: fresh connection, a limit in time and size, and whether anything can have been sent."""

import http.client
import ipaddress
import socket
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from plans.errors import Sentence

MAX_ANSWER: Final = 1024 * 1024
CONNECT_TIMEOUT: Final = timedelta(seconds=10)
USER_AGENT: Final = "Plandesk/1"

_CARRIERS: Final = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("::/96"))
"""What holds an IPv4 address in its last four bytes: NAT64's prefix (RFC 6052), and the form it had before."""

MayConnect = Callable[[str], bool]
"""Whether an address, as resolved, may be connected to."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer, read whole within the limits."""

    status: int
    body: bytes
    retry_after: timedelta | None


class NotSent(Exception):
    """The connection was never made: no byte of a request left. Its one argument is a sentence."""


class NoAnswer(Exception):
    """The request may have arrived, and no whole answer within the limits came back. Its one argument is a sentence."""


def exchange(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
    body: bytes | None,
    timeout: timedelta,
    may_connect: MayConnect | None = None,
    send_before: float | None = None,
) -> Answer:
    """One request over HTTP/1.1: no redirects, no second try, at most `timeout` in all and 1 MiB of answer.

    The connection is made before the request is written, so a failure to connect (`NotSent`) is known to have sent
    nothing; everything after that is `NoAnswer`. A fresh connection, because on a reused one a failed send proves
    nothing. `may_connect` is asked about the very address that is connected to. At or past `send_before`
    (`time.monotonic()`) nothing is sent any more, however long the connection took: `NotSent`.
    """
    parts = urllib.parse.urlsplit(url)
    deadline = time.monotonic() + timeout.total_seconds()
    connection = _connect(parts, deadline, may_connect)
    if send_before is not None and time.monotonic() >= send_before:
        connection.close()
        raise NotSent(Sentence("Nothing was sent: the time for it had passed when the connection was made."))
    # Cuts a conversation that has used up its time; the reader then sees the end of the stream.
    cut = threading.Timer(max(deadline - time.monotonic(), 0), _shut, (connection.sock,))
    cut.daemon = True
    cut.start()
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    common = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": USER_AGENT}
    try:
        return _converse(connection, method, path, body, {**common, **headers})
    except NoAnswer:
        if time.monotonic() < deadline:
            raise
        seconds = int(timeout.total_seconds())
        raise NoAnswer(Sentence("No whole answer within %(seconds)d s.", seconds=seconds)) from None
    finally:
        cut.cancel()
        connection.close()


def is_public(address: str) -> bool:
    """True for an address that anybody on the internet may be at: not private, loopback, link-local or reserved.

    An IPv4 address that is carried in an IPv6 one (mapped, 6to4, Teredo, RFC 6052) counts as what it is.
    """
    try:
        parsed = ipaddress.ip_address(address.split("%", maxsplit=1)[0])
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address):
        inner = parsed.ipv4_mapped or parsed.sixtofour or (parsed.teredo[1] if parsed.teredo else None)
        if any(parsed in network for network in _CARRIERS):
            inner = ipaddress.IPv4Address(parsed.packed[-4:])
        if parsed.is_site_local or (parsed.is_reserved and inner is None):
            return False
        if inner is not None:
            return inner.is_global and not inner.is_multicast
    return parsed.is_global and not parsed.is_multicast


def is_private_by_name(host: str) -> bool:
    """True where the host's spelling alone says that it is not on the internet: localhost, or an address that is not
    public, in any of the forms that resolvers take (`127.1`, `2130706433`, `0x7f000001`). Asks no name server."""
    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (socket.gaierror, UnicodeError):
        return False
    return not all(is_public(str(address[0])) for *_, address in found)


def _connect(
    parts: urllib.parse.SplitResult, deadline: float, may_connect: MayConnect | None
) -> http.client.HTTPConnection:
    """An open connection, TLS included. Every failure here is before the first byte of a request."""
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        sock = _open(host, port, deadline, may_connect)
        connection = http.client.HTTPConnection(host, port)
        if parts.scheme == "https":
            sock.settimeout(max(deadline - time.monotonic(), 0.001))
            sock = ssl.create_default_context().wrap_socket(sock, server_hostname=host)
    except ssl.SSLError as error:
        raise NotSent(Sentence("TLS was refused: %(why)s.", why=error.reason or "handshake failed")) from None
    except (socket.gaierror, UnicodeError):
        raise NotSent(Sentence("The host was not found.")) from None  # its name is not for every agent to know
    except TimeoutError:
        raise NotSent(Sentence("No connection was accepted in time.")) from None
    except OSError as error:
        raise NotSent(Sentence("No connection: %(why)s.", why=error.strerror or type(error).__name__)) from None
    connection.sock = sock
    connection.auto_open = 0  # a lost connection is never opened again under our feet
    # The total limit is the timer's; without a timeout of its own a read ends when the timer cuts it.
    sock.settimeout(None)
    return connection


def _open(host: str, port: int, deadline: float, may_connect: MayConnect | None) -> socket.socket:
    """A connected socket to the first of the host's addresses that accepts. Raises `OSError` or `NotSent`."""
    last: OSError = OSError("no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        if may_connect is not None and not may_connect(str(address[0])):
            raise NotSent(Sentence("The name leads to an address that may not be called."))
        left = min(deadline - time.monotonic(), CONNECT_TIMEOUT.total_seconds())
        if left <= 0:
            raise TimeoutError
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(left)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.connect(address)
        except OSError as error:
            sock.close()
            last = error
        else:
            return sock
    raise last


def _shut(sock: Any) -> None:
    try:
        # The plain socket's shutdown: that of a TLS socket would also take its TLS object from under the reader.
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
    except OSError:
        return  # closed already


def _converse(
    connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None, headers: dict[str, str]
) -> Answer:
    try:
        connection.request(method, path, body=body, headers=headers)
        response = connection.getresponse()
        content = response.read(MAX_ANSWER + 1)
        if len(content) <= MAX_ANSWER:
            content += response.read(MAX_ANSWER + 1 - len(content))
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NoAnswer(Sentence("No whole answer: %(why)s.", why=type(error).__name__)) from None
    if len(content) > MAX_ANSWER:
        raise NoAnswer(Sentence("The answer is larger than %(most)d bytes.", most=MAX_ANSWER))
    if response.length:  # what Content-Length promised and the stream did not hold
        raise NoAnswer(Sentence("The answer was cut short."))
    return Answer(response.status, content, _seconds(response.headers.get("Retry-After")))


def _seconds(header: str | None) -> timedelta | None:
    """Retry-After in seconds; a date or nonsense counts as absent."""
    text = (header or "").strip()
    return timedelta(seconds=int(text)) if text.isascii() and text.isdigit() and len(text) < 10 else None
