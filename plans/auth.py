"""Who an agent is: its API key at the API, its webhook secrets at the feed."""

import secrets
from collections.abc import Iterable

from django.http import HttpRequest

from plans import sealing, vault
from plans.errors import Unauthenticated
from plans.models import Agent, AgentSecret
from plans.seen import note_seen
from plans.signatures import Secret

KEY_PREFIX = "pdk_"


def make_api_key() -> str:
    """A new API key: 256 random bits, recognisable by its prefix."""
    return KEY_PREFIX + secrets.token_urlsafe(32)


def hint_of(api_key: str) -> str:
    """What is kept of a key in the open, to tell it from another: its prefix and 4 of its 43 characters."""
    return api_key[: len(KEY_PREFIX) + 4]


def hash_api_key(api_key: str) -> bytes:
    """The keyed hash under which an API key is kept and found."""
    return vault.hash_of(api_key.encode(), purpose="api-key")


def authenticate(request: HttpRequest) -> Agent:
    """The agent whose key the request bears. One refusal for every reason."""
    scheme, _, api_key = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer" and 0 < len(api_key) <= 256:
        agent = Agent.objects.filter(api_key_hash=hash_api_key(api_key.strip()), disabled_at=None).first()
        if agent is not None:
            note_seen(agent)
            return agent
    raise Unauthenticated("Send a valid API key as `Authorization: Bearer <api key>`.")


def seal_secret(agent_name: str, purpose: str, secret: Secret) -> bytes:
    """A webhook or callback secret as it is kept."""
    return sealing.seal(secret.key, purpose=f"{purpose}:{agent_name}")


def open_webhook_secrets(agent_name: str, sealed: Iterable[bytes]) -> list[Secret]:
    """An agent's live webhook secrets, opened for one delivery: two during a rotation."""
    purpose = f"{AgentSecret.WEBHOOK}:{agent_name}"
    return [Secret(sealing.unseal(one, purpose=purpose)) for one in sealed]


def open_secret(agent: Agent, row: AgentSecret) -> Secret:
    """A secret of an agent, opened for signing or verifying."""
    return Secret(sealing.unseal(row.sealed, purpose=f"{row.purpose}:{agent.name}"))
