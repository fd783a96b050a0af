"""The demonstration's agents, as programs that speak to the desk over HTTP through `plans.agent`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from django.conf import settings

from plans.agent import Desk, FileStore, Pace
from plans.demo.credentials import Credentials, default_path, demo_folder, read_credentials
from plans.errors import Sentence

HOSTED_AGENT: Final = "support-refunds"
"""Works at the hosted target; also the agent of the story."""

REMOTE_AGENT: Final = "returns-desk"
"""Plans at the billing system's own server and feeds what that answers."""

AGENT_TARGETS: Final = {HOSTED_AGENT: ["billing"], REMOTE_AGENT: ["billing-remote"]}


class NoDemonstration(Exception):
    """There is nothing to play with: a sentence for a person."""


def get_credentials() -> Credentials:
    """What `demo_seed` left for the agents. Raises NoDemonstration where it has not run, or for somebody else."""
    try:
        found = read_credentials(default_path())
    except (OSError, ValueError) as error:
        raise NoDemonstration(str(error)) from error
    if found is None:
        raise NoDemonstration(Sentence("The demonstration has not been set up: run demo_seed first."))
    return found


@contextmanager
def desk_of(agent: str, *, place: str, pace: Pace | None = None, base_url: str = "") -> Iterator[Desk]:
    """The desk as this agent sees it. Its plans and keys are kept in a folder of the data folder, by `place`.

    `base_url`: another way to the desk than its own address.
    Raises NoDemonstration where the agent has no credentials here.
    """
    secrets = get_credentials().agents.get(agent)
    if secrets is None:
        raise NoDemonstration(
            Sentence("The agent %(agent)s has no credentials here: run demo_seed first.", agent=agent)
        )
    store = FileStore(demo_folder() / place)
    address = base_url or settings.BASE_URL
    with Desk(
        address, secrets.api_key, agent=agent, webhook_secret=secrets.webhook_secret, store=store, pace=pace
    ) as desk:
        yield desk
