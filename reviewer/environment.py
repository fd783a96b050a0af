"""Reading settings from the environment: every value is checked, and no refusal repeats a secret."""

import base64
import binascii
import ipaddress
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

SEAL_KEY_BYTES = 32
TRUE, FALSE = {"1", "true", "yes", "on"}, {"", "0", "false", "no", "off"}


class Environment:
    """Typed look-ups in one environment. Every method raises ImproperlyConfigured on a value it cannot use."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def text(self, name: str, default: str | None = None) -> str:
        value = self._values.get(name, "").strip()
        if value:
            return value
        if default is None:
            raise ImproperlyConfigured(
                f"{name} is not set. Set it, or name an installation with --data DIR (`manage.py up` makes one)."
            )
        return default

    def secret_key(self) -> str:
        value = self.text("SECRET_KEY")
        if len(value) < 32:
            raise ImproperlyConfigured("SECRET_KEY is too short: it needs 32 characters or more, from a random source.")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        value = self._values.get(name, "1" if default else "").strip().lower()
        if value in TRUE:
            return True
        if value in FALSE:
            return False
        raise ImproperlyConfigured(f"{name} must be 1 or 0, not {value!r}.")

    def whole(self, name: str, default: int, *, least: int = 0, most: int = 1_000_000) -> int:
        value = self._values.get(name, "").strip() or str(default)
        if not value.isascii() or not value.isdigit() or not least <= int(value) <= most:
            raise ImproperlyConfigured(f"{name} must be a whole number from {least} to {most}, not {value!r}.")
        return int(value)

    def seconds(self, name: str, default: int, *, least: int = 1, most: int = 30 * 86400) -> timedelta:
        return timedelta(seconds=self.whole(name, default, least=least, most=most))

    def names(self, name: str) -> list[str]:
        return [part.strip() for part in self._values.get(name, "").split(",") if part.strip()]

    def networks(self, name: str) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
        try:
            return [ipaddress.ip_network(part) for part in self.names(name)]
        except ValueError as error:
            raise ImproperlyConfigured(
                f"{name} must hold addresses or networks, separated by commas: {error}."
            ) from None

    def seal_keys(self, name: str = "SEAL_KEYS") -> list[bytes]:
        """Keys of 32 bytes, newest first, each as base64 (standard or URL-safe alphabet)."""
        self.text(name)
        keys: list[bytes] = []
        for position, part in enumerate(self.names(name), start=1):
            try:
                key = base64.b64decode(part.replace("-", "+").replace("_", "/"), validate=True)
            except (binascii.Error, ValueError):
                raise ImproperlyConfigured(f"{name}: key {position} is not base64.") from None
            if len(key) != SEAL_KEY_BYTES:
                raise ImproperlyConfigured(f"{name}: key {position} has {len(key)} bytes and needs {SEAL_KEY_BYTES}.")
            keys.append(key)
        if len(set(keys)) != len(keys):
            raise ImproperlyConfigured(f"{name} holds the same key twice.")
        return keys

    def witnesses(self, name: str) -> list[tuple[str, str]]:
        """(address, verifier key) of each, from `https://witness.example/prefix <verifier key>, ...`."""
        found: list[tuple[str, str]] = []
        for part in self.names(name):
            words = part.split()
            if len(words) != 2 or _split(name, words[0]).scheme not in {"http", "https"} or words[1].count("+") < 2:
                raise ImproperlyConfigured(
                    f"{name} must hold pairs of an address and a verifier key, separated by commas, not {part!r}."
                )
            found.append((words[0].rstrip("/"), words[1]))
        return found

    def base_url(self, name: str = "BASE_URL", default: str = "http://127.0.0.1:8000") -> str:
        """Scheme and host (and port), without a path and without the last slash."""
        value = self.text(name, default).rstrip("/")
        parts = _split(name, value)
        extra = parts.path or parts.query or parts.fragment or parts.username
        if parts.scheme not in {"http", "https"} or not parts.hostname or extra:
            raise ImproperlyConfigured(f"{name} must look like https://desk.example.com, not {value!r}.")
        return value

    def redis(self, name: str = "REDIS_URL") -> str:
        """redis://, rediss:// or unix:// with an absolute path; empty where there is none, and then nothing sweeps."""
        value = self.text(name, "")
        if value and _split(name, value).scheme not in {"redis", "rediss", "unix"}:
            raise ImproperlyConfigured(f"{name} must start with redis://, rediss:// or unix://.")
        return value

    def database(self, name: str, **options_of_django: Any) -> dict[str, Any]:
        """One entry of DATABASES from a libpq URL; its query parameters are passed to libpq."""
        parts = _split(name, self.text(name))
        if parts.scheme not in {"postgres", "postgresql"} or not parts.path.strip("/"):
            raise ImproperlyConfigured(f"{name} must look like postgresql://role:password@host:5432/database.")
        options: dict[str, Any] = dict(parse_qsl(parts.query))
        host = options.pop("host", "") or parts.hostname or ""
        return {
            "ENGINE": "reviewer.postgresql",
            "NAME": unquote(parts.path.lstrip("/")),
            "USER": unquote(parts.username or ""),
            "PASSWORD": unquote(parts.password or ""),
            "HOST": unquote(host),
            "PORT": options.pop("port", "") or str(parts.port or ""),
            "OPTIONS": {"connect_timeout": 5, **options, **options_of_django},
            "CONN_HEALTH_CHECKS": True,
        }


def _split(name: str, value: str) -> SplitResult:
    try:
        parts = urlsplit(value)
        parts.port  # noqa: B018  raises on a port that is no number
    except ValueError:
        raise ImproperlyConfigured(f"{name} is not a URL.") from None
    return parts


def broker_url(redis_url: str) -> str:
    """Celery's form of REDIS_URL: kombu names the socket transport `redis+socket`."""
    return "redis+socket://" + redis_url.removeprefix("unix://") if redis_url.startswith("unix://") else redis_url
