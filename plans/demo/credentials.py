"""The demonstration's own secrets: what its agents and its billing server sign in with, in one private file."""

import os
from pathlib import Path

import msgspec
from django.conf import settings


class AgentSecrets(msgspec.Struct, frozen=True):
    """What one agent needs to speak to the desk."""

    api_key: str
    webhook_secret: str

    def __repr__(self) -> str:
        return "AgentSecrets()"


class Credentials(msgspec.Struct, frozen=True):
    """Everything that the file holds. `billing_url` is where the billing server is served."""

    billing_url: str
    desk_bearer: str
    agent_bearer: str
    agents: dict[str, AgentSecrets]

    def __repr__(self) -> str:
        return "Credentials()"


def demo_folder() -> Path:
    """Where the demonstration keeps its own files: `demo` in the data folder."""
    data = os.environ.get("PLANDESK_DATA")
    return (Path(data) if data else Path(settings.PROJECT) / ".data") / "demo"


def default_path() -> Path:
    """Where the credentials are unless a command is told otherwise."""
    return demo_folder() / "credentials.json"


def read_credentials(path: Path) -> Credentials | None:
    """What the file holds, or None where there is none. Refuses (ValueError) one that others may read."""
    try:
        if path.stat().st_mode & 0o077:
            raise ValueError(f"{path} can be read by others; its mode must be 0600.")
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return msgspec.json.decode(text, type=Credentials)
    except msgspec.DecodeError:
        raise ValueError(f"{path} does not hold the demonstration's credentials.") from None


def write_credentials(path: Path, credentials: Credentials) -> None:
    """Replace the file as a whole, on disk, readable by its owner alone. Makes its folder."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(credentials)))
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
