"""Who an agent is: its API key at the API, its webhook secrets at the feed."""

import secrets

from django.http import HttpRequest

from plans import sealing, vault
from plans.errors import Unauthenticated
from plans.models import Agent, AgentSecret
from plans.signatures import Secret

KEY_PREFIX = "pdk_"


def make_api_key() -> str:
    """A new API key: 256 random bits, recognisable by its prefix."""
    return KEY_PREFIX + secrets.token_urlsafe(32)


def hash_api_key(api_key: str) -> bytes:
    """The keyed hash under which an API key is kept and found."""
    return vault.hash_of(api_key.encode(), purpose="api-key")


def authenticate(request: HttpRequest) -> Agent:
    """The agent whose key the request bears. One refusal for every reason."""
    scheme, _, api_key = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer" and 0 < len(api_key) <= 256:
        agent = Agent.objects.filter(api_key_hash=hash_api_key(api_key.strip()), disabled_at=None).first()
        if agent is not None:
            return agent
    raise Unauthenticated("Send a valid API key as `Authorization: Bearer <api key>`.")


def seal_secret(agent_name: str, purpose: str, secret: Secret) -> bytes:
    """A webhook or callback secret as it is kept."""
    return sealing.seal(secret.key, purpose=f"{purpose}:{agent_name}")


def webhook_secrets(agent: Agent) -> list[Secret]:
    """The agent's live webhook secrets, newest first: two during a rotation."""
    rows = AgentSecret.objects.filter(agent=agent, purpose=AgentSecret.WEBHOOK, retired_at=None).order_by("-id")
    return [open_secret(agent, row) for row in rows]


def open_secret(agent: Agent, row: AgentSecret) -> Secret:
    """A secret of an agent, opened for signing or verifying."""
    return Secret(sealing.unseal(row.sealed, purpose=f"{row.purpose}:{agent.name}"))
