"""The data folder of one installation: its secrets, and the addresses of the servers that live in it."""

import base64
import hashlib
import os
import pwd
import secrets
import subprocess
import tempfile
from collections.abc import MutableMapping
from pathlib import Path
from urllib.parse import quote

PROJECT = Path(__file__).resolve().parent.parent
APPLICATION_ROLE = "plandesk"
OWNER_ROLE = "plandesk_owner"
DATABASE = "plandesk"
# A unix socket's path must fit into sockaddr_un.sun_path: 108 bytes with its closing zero (unix(7)).
SOCKET_PATH_LIMIT = 107
SERVICE_ACCOUNTS = ("plandesk", "nobody")


class CannotStart(Exception):
    """Why an installation cannot be opened or started: one sentence for a person."""


class Account:
    """The unprivileged account that servers run as when we are root; PostgreSQL refuses to be root."""

    def __init__(self, name: str, uid: int, gid: int) -> None:
        self.name, self.uid, self.gid = name, uid, gid

    @classmethod
    def needed(cls) -> "Account | None":
        """None unless this process is root."""
        if os.geteuid() != 0:
            return None
        for name in SERVICE_ACCOUNTS:
            try:
                found = pwd.getpwnam(name)
            except KeyError:
                continue
            return cls(name, found.pw_uid, found.pw_gid)
        raise CannotStart("Started as root, and there is no account 'plandesk' or 'nobody' to run PostgreSQL as.")

    def can_enter(self, folder: Path) -> bool:
        """Whether this account can make `folder` its working directory; asked of the kernel, not of mode bits."""
        command = ["/bin/sh", "-c", 'cd "$0"', str(folder)]
        done = subprocess.run(command, user=self.uid, group=self.gid, extra_groups=[], capture_output=True, check=False)
        return done.returncode == 0


def default_data() -> Path:
    """`.data` in the project; for root in a project that others cannot enter, a folder below /var/lib."""
    account = Account.needed()
    if account is None or account.can_enter(PROJECT):
        return PROJECT / ".data"
    mark = hashlib.sha256(str(PROJECT).encode()).hexdigest()[:8]
    return Path("/var/lib/plandesk") / mark


def take_data_option(argv: list[str], environ: MutableMapping[str, str]) -> list[str]:
    """Moves `--data DIR` out of `argv` into PLANDESK_DATA, so that every command accepts it; returns the rest."""
    rest: list[str] = []
    words = iter(argv)
    for word in words:
        if word == "--data":
            value = next(words, "")
        elif word.startswith("--data="):
            value = word.removeprefix("--data=")
        else:
            rest.append(word)
            continue
        if not value:
            raise CannotStart("--data needs the path of a folder.")
        environ["PLANDESK_DATA"] = os.path.abspath(value)
    return rest


class Installation:
    """One data folder. Making it may be repeated: what exists is kept."""

    def __init__(self, data: Path, account: Account | None = None) -> None:
        self.data = data
        self.account = account
        self.env_file = data / "env"
        self.signing_key = data / "audit.key"
        self.postgres = data / "postgres"
        self.redis = data / "redis"
        self.log = data / "log"
        self.static = data / "static"

    @property
    def run(self) -> Path:
        """Where the sockets are: in the folder, or under the temporary folder where its path is too long for one."""
        inside = self.data / "run"
        if len(os.fsencode(inside / ".s.PGSQL.5432.lock")) <= SOCKET_PATH_LIMIT:
            return inside
        mark = hashlib.sha256(os.fsencode(self.data)).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"plandesk-{mark}"

    def create(self) -> None:
        """Makes the folder, its parts and its secrets where they are missing; refuses with one sentence."""
        try:
            self.data.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.account:
                self.data.chmod(self.data.stat().st_mode | 0o011)
            for folder in (self.log, self.static):
                folder.mkdir(mode=0o755, exist_ok=True)
            if not self.env_file.exists():
                self._write(self._new_secrets())
            if not self.signing_key.exists():
                self._create_signing_key()
        except OSError as error:
            raise CannotStart(f"The data folder {self.data} cannot be used: {error.strerror}.") from error
        if self.account and not self.account.can_enter(self.data):
            raise CannotStart(
                f"PostgreSQL must not run as root, so it runs as '{self.account.name}', who cannot enter {self.data}: "
                "choose another folder with --data, or run this as another user."
            )

    def create_server_folders(self) -> None:
        """Folders of the bundled servers, owned by who runs them."""
        try:
            for folder in (self.redis, self.run):
                self.make_owned(folder)
        except OSError as error:
            raise CannotStart(f"The data folder {self.data} cannot be used: {error.strerror}.") from error

    def make_owned(self, folder: Path) -> None:
        """`folder`, private to the account that servers run as; refuses somebody else's."""
        folder.mkdir(mode=0o700, exist_ok=True)
        if self.account:
            os.chown(folder, self.account.uid, self.account.gid)
        if folder.stat().st_uid not in {os.geteuid(), self.account.uid if self.account else os.geteuid()}:
            raise CannotStart(f"{folder} belongs to somebody else.")

    def read(self) -> dict[str, str]:
        """The kept secrets; an empty dict where there are none yet."""
        try:
            text = self.env_file.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise CannotStart(
                f"The installation's secrets, {self.env_file}, cannot be read: {error.strerror}."
            ) from error
        lines = (line for line in text.splitlines() if "=" in line and not line.startswith("#"))
        return dict(line.split("=", 1) for line in lines)

    def remember(self, name: str, value: str) -> None:
        """Keeps what later starts and other commands need to know, such as where the site was last served."""
        values = self.read()
        if values.get(name) != value:
            self._write(values | {name: value})

    def complete(self, environ: MutableMapping[str, str]) -> None:
        """Adds to `environ` what it does not say itself: secrets, and addresses of the servers in this folder."""
        kept = self.read()
        for name in ("SECRET_KEY", "SEAL_KEYS", "BASE_URL", "DEMO", "DEMO_BILLING_PORT", "AUDIT_ORIGIN", "HOSTED_APPS"):
            if name in kept:
                environ.setdefault(name, kept[name])
        if self.signing_key.exists():
            environ.setdefault("AUDIT_SIGNING_KEY", str(self.signing_key))
        if "DATABASE_URL" not in environ and self.postgres.exists():
            environ.pop("DATABASE_OWNER_URL", None)
            environ.update(self.database_urls())
        if "REDIS_URL" not in environ and self.redis.exists():
            environ["REDIS_URL"] = self.redis_url()
        environ.setdefault("STATIC_ROOT", str(self.static))

    def database_urls(self) -> dict[str, str]:
        kept = self.read()
        return {
            "DATABASE_URL": self._url(APPLICATION_ROLE, kept["APPLICATION_PASSWORD"]),
            "DATABASE_OWNER_URL": self._url(OWNER_ROLE, kept["OWNER_PASSWORD"]),
        }

    def redis_url(self) -> str:
        return f"unix://{self.run / 'redis.sock'}"

    def _url(self, role: str, password: str) -> str:
        return f"postgresql://{role}:{password}@/{DATABASE}?host={quote(str(self.run), safe='')}"

    def _new_secrets(self) -> dict[str, str]:
        return {
            "SECRET_KEY": secrets.token_urlsafe(48),
            "SEAL_KEYS": base64.b64encode(secrets.token_bytes(32)).decode(),
            "APPLICATION_PASSWORD": secrets.token_urlsafe(24),
            "OWNER_PASSWORD": secrets.token_urlsafe(24),
        }

    def _create_signing_key(self) -> None:
        """The log's Ed25519 seed, in a file of its own, and the name under which it signs: neither ever changes."""
        if "AUDIT_ORIGIN" not in self.read():
            self.remember("AUDIT_ORIGIN", f"plandesk.invalid/log/{secrets.token_hex(6)}")
        _write_private(self.signing_key, base64.b64encode(secrets.token_bytes(32)).decode() + "\n")

    def _write(self, values: dict[str, str]) -> None:
        text = "# Secrets of this installation. Keep them, and keep them to yourself.\n"
        text += "".join(f"{name}={value}\n" for name, value in values.items())
        _write_private(self.env_file, text)


def _write_private(path: Path, text: str) -> None:
    """`text` under that name, for its owner alone, whole or not at all."""
    new = path.with_name(f"{path.name}.new")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)


def complete_environment(environ: MutableMapping[str, str]) -> None:
    """Settings call this first: what the environment leaves open comes from the data folder, if there is one.

    Raises `CannotStart` where a folder is named that holds no installation.
    """
    if environ.get("PLANDESK_OFFLINE"):
        environ.setdefault("SECRET_KEY", "offline-" + "x" * 50)
        environ.setdefault("SEAL_KEYS", base64.b64encode(bytes(32)).decode())
        environ.setdefault("DATABASE_URL", "postgresql://offline@/offline?host=%2Fnonexistent")
        environ.setdefault("DEMO", "1")
        return
    named = environ.get("PLANDESK_DATA")
    if named is None and "DATABASE_URL" in environ and "SECRET_KEY" in environ:
        return
    installation = Installation(Path(named) if named else default_data())
    if named and "SECRET_KEY" not in environ and not installation.env_file.exists():
        raise CannotStart(f"There is no installation in {named}; `manage.py up --data {named}` makes one.")
    installation.complete(environ)
