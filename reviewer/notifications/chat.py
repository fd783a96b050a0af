"""Sending to chat services through Apprise: a closed list of services, public hosts, an end to every conversation."""

import socket
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import requests.sessions
import urllib3.util.connection
from apprise import Apprise, AppriseAsset, NotifyBase, NotifyFormat
from django.conf import settings

from plans.errors import Sentence
from plans.outgoing import is_public
from reviewer.notifications.texts import Text
from reviewer.notifications.transports import TIMEOUT, NotDelivered

MAX_ADDRESS: Final = 2_000
SERVICES: Final = (
    "slack", "discord", "workflows", "gchat", "tgram", "webex", "zulip", "pover",
    "mmosts", "rockets", "ntfys", "gotifys", "jsons",
)  # fmt: skip
"""Schemas of services that are called over TLS. Each of them sends by `requests`, so the guard below sees it."""

WITHOUT_TLS: Final = ("mmost", "rocket", "ntfy", "gotify", "json")
"""Allowed only where private addresses are."""

HAS_HOST: Final = frozenset({"mmosts", "mmost", "rockets", "rocket", "gotifys", "gotify", "jsons", "json"})
"""Where the address names its server. Elsewhere its first part may be a secret, and is not shown."""

PARAMETERS: Final = frozenset({"to", "channel", "channels", "thread", "topic", "priority", "mode", "sound", "batch"})
"""What may follow the question mark. Others make Apprise read files, fetch addresses, or leave TLS unchecked."""


RECEIVERS: Final = ("targets", "channels", "rooms", "users", "devices", "topics")
"""Under which of these names Apprise's services on our list keep to whom they send, in the order of the address."""


class BadAddress(Exception):
    """Why an address is refused: one sentence, without the address."""


class _Guard:
    """Which addresses may be connected to, and what is open, so that it can be cut."""

    def __init__(self) -> None:
        self.refused = False
        self.sockets: list[socket.socket] = []
        self.is_over = False

    def keep(self, sock: socket.socket) -> None:
        """Remembers the connection by a duplicate: TLS takes the first away, a shutdown reaches both."""
        self.sockets.append(sock.dup())
        if self.is_over:
            self.cut()

    def cut(self) -> None:
        self.is_over = True
        for sock in self.sockets:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # closed already

    def forget(self) -> None:
        for sock in self.sockets:
            sock.close()


_guard: ContextVar[_Guard | None] = ContextVar("reviewer_notifications_guard", default=None)
_connect = urllib3.util.connection.create_connection
_proxies = requests.sessions.get_environ_proxies  # type: ignore[attr-defined]  # not in its stubs


def _guarded(address: tuple[str, int], *arguments: Any, **options: Any) -> socket.socket:
    """urllib3's way to connect, which while a message is sent asks about the very address that is connected to."""
    guard = _guard.get()
    if guard is None:
        return _connect(address, *arguments, **options)
    host, port = address
    if guard.is_over:
        raise TimeoutError("the time for this message is over")
    found = [str(row[4][0]) for row in socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)]
    if not found or not (settings.NOTIFY_ALLOW_PRIVATE or all(map(is_public, found))):
        guard.refused = True
        raise OSError("the name leads to an address that may not be called")
    sock = _connect((found[0], port), *arguments, **options)
    guard.keep(sock)
    return sock


def _without_proxies(*arguments: Any, **options: Any) -> dict[str, Any]:
    """The environment's proxies, but none while a message is sent: a proxy would connect where we may not."""
    return {} if _guard.get() is not None else _proxies(*arguments, **options)


# Apprise opens its connections deep inside `requests`; only here can a name be held to the address it was checked by.
urllib3.util.connection.create_connection = _guarded
requests.sessions.get_environ_proxies = _without_proxies  # type: ignore[attr-defined]  # nor here


def label_of(address: str) -> str:
    """What may be shown of an address: the schema, and the host where it is one. Raises `BadAddress`."""
    schema, service = _checked(address)
    host = urlsplit(address.strip()).hostname if schema in HAS_HOST else None
    return f"{schema}://{host}"[:120] if host else f"{schema}:// ({service.service_name})"[:120]


def send(
    address: str, text: Text, *, reached: Collection[int] = (), note: Callable[[int], None] = lambda place: None
) -> None:
    """One message to each receiver that the address names, but for those `reached` before, by their places in it.

    `note` is told of each receiver that has it, at once, so that a later attempt leaves them out. All of them together
    have TIMEOUT. Raises `NotDelivered` where one is left. Redirects are not followed; proxies are not used.
    """
    try:
        services = _for_each_receiver(address)
    except BadAddress as error:
        raise NotDelivered(error.args[0]) from None
    is_sent = True
    with _guarded_for_a_while() as guard:
        for place, service in enumerate(services):
            if place in reached:
                continue
            if service.notify(body=text.plain, title=text.subject, body_format=NotifyFormat.TEXT):
                note(place)
            else:
                is_sent = False
    if guard.refused:
        raise NotDelivered(Sentence("The name leads to an address that may not be called."))
    if not is_sent:
        raise NotDelivered(Sentence("The service could not be reached in time.") if guard.is_over else _refused(guard))


def _refused(guard: _Guard) -> Sentence:
    if guard.sockets:
        return Sentence("The service did not accept the message.")
    return Sentence("The service could not be reached.")


@contextmanager
def _guarded_for_a_while() -> Iterator[_Guard]:
    guard = _Guard()
    token = _guard.set(guard)
    timer = threading.Timer(TIMEOUT.total_seconds(), guard.cut)
    timer.daemon = True
    timer.start()
    try:
        yield guard
    finally:
        timer.cancel()
        timer.join()
        guard.forget()
        _guard.reset(token)


def _for_each_receiver(address: str) -> list[NotifyBase]:
    """Apprise's service for each receiver alone: it sends to all of them or says that it did not, and not to whom."""
    _schema, whole = _checked(address)
    places = [(name, place) for name in RECEIVERS for place in range(len(_receivers(whole, name)))]
    if len(places) < 2:
        return [whole]
    services = []
    for name, place in places:
        _schema, service = _checked(address)
        one = _receivers(service, name)[place]
        for other in RECEIVERS:
            if _receivers(service, other):
                setattr(service, other, [])
        setattr(service, name, [one])
        services.append(service)
    return services


def _receivers(service: NotifyBase, name: str) -> list[Any]:
    found = getattr(service, name, None)
    return found if isinstance(found, list) else []


def _checked(address: str) -> tuple[str, NotifyBase]:
    """The address's schema and Apprise's service for it; refuses what is not on our lists."""
    address = address.strip()
    if len(address) > MAX_ADDRESS or any(ord(character) <= 0x20 for character in address):
        raise BadAddress(Sentence("An address has at most %(most)d characters, and no spaces.", most=MAX_ADDRESS))
    try:
        parts = urlsplit(address)
        given = {name.lower() for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
    except ValueError:
        raise BadAddress(Sentence("This is not an Apprise address.")) from None
    schema = parts.scheme.lower()
    if schema in WITHOUT_TLS and not settings.NOTIFY_ALLOW_PRIVATE:
        raise BadAddress(Sentence("%(schema)s:// sends in the open: use %(schema)ss://.", schema=schema))
    if schema not in SERVICES and schema not in WITHOUT_TLS:
        raise BadAddress(Sentence("Services start with one of: %(names)s.", names=", ".join(SERVICES)))
    if given - PARAMETERS:
        raise BadAddress(Sentence("An address may only set: %(names)s.", names=", ".join(sorted(PARAMETERS))))
    asset = AppriseAsset(storage_mode="memory", secure_logging=True, http_redirects=False)
    service = Apprise.instantiate(address, asset=asset)
    if not isinstance(service, NotifyBase):
        raise BadAddress(Sentence("Apprise does not understand this %(schema)s:// address.", schema=schema))
    service.verify_certificate, service.redirects = True, False
    service.socket_connect_timeout, service.socket_read_timeout = 5.0, 10.0
    return schema, service
