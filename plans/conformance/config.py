"""What a run has to know of a server: a TOML file. Secrets stand in the environment, by name."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec


class ConfigError(ValueError):
    """The file cannot be read, or says what it should not."""


class DryRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a plan is asked for. `{unique}` in a text of `body` becomes another text each time."""

    path: str
    body: dict[str, Any]
    bearer_env: str | None = None
    short_path: str | None = None
    """Where a plan is asked for that expires soon; without it, expiry is tried where plans live `wait` at most."""


class Door(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A path and the name of the variable that holds its bearer token. A status path holds `{plan_id}`."""

    path: str
    bearer_env: str | None = None


class World(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Commands, as lists, without a shell: `move` changes an input past every plan, `count` prints the writes."""

    move: list[str] | None = None
    count: list[str] | None = None


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file. `wait`: the longest that may be waited for an expiry, in seconds."""

    dry_run: DryRun
    commit: Door
    status: Door
    world: World = msgspec.field(default_factory=World)
    wait: float = 20.0
    timeout: float = 30.0


def read_config(path: Path) -> Config:
    """The file's configuration. Raises ConfigError, which names what is wrong."""
    try:
        return make_config(tomllib.loads(path.read_text()))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}.") from None


def make_config(members: Mapping[str, Any]) -> Config:
    """The configuration of these members. Raises ConfigError."""
    try:
        config = msgspec.convert(members, Config)
    except msgspec.ValidationError as error:
        raise ConfigError(f"The configuration: {error}.") from None
    if "{plan_id}" not in config.status.path:
        raise ConfigError("The configuration: status.path has to hold {plan_id}.")
    return config


def bearer(name: str | None) -> str | None:
    """The token of this variable. Raises ConfigError where it is not set."""
    if name is None:
        return None
    if not (found := os.environ.get(name)):
        raise ConfigError(f"The environment variable {name}, which should hold a bearer token, is not set.")
    return found
