"""An agent that may use the hosted billing, and its desk, for tests of what a model is given."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plans import registry
from plans.agent import Desk, FileStore, Pace
from plans.models import Plan as Row
from plans.review import approve_plan
from plans.schema import shown_digest
from tests import makers
from tests.fixtures import Site
from tests.plans.agent.scripted_models import MOVE, REFUND
from tests.plans.demo.makers import make_invoice

__all__ = ["MOVE", "REFUND", "approve", "bot", "real", "rows"]


@pytest.fixture
def bot(site: Site) -> makers.MadeAgent:
    registry.ensure_hosted_targets()
    make_invoice()
    made = registry.create_agent(name="bot", owner=makers.make_person("admin"), targets=["billing"])
    return makers.MadeAgent(made.agent, made.api_key, made.webhook_secret, made.callback_secret)


@pytest.fixture
def real(site: Site, bot: makers.MadeAgent, tmp_path: Path) -> Iterator[Desk]:
    pace = Pace(patience=10, farewell=5, first_delay=0.05)
    with Desk(site.url, bot.api_key, agent="bot", store=FileStore(tmp_path / "agent"), pace=pace) as desk:
        yield desk


def rows() -> list[Any]:
    return list(Row.objects.select_related("agent", "target", "task", "policy").order_by("pk"))


def approve(plan_id: str) -> None:
    row = next(row for row in rows() if row.plan_id == plan_id)
    person = makers.make_person("reviewer")
    approve_plan(plan_pk=row.pk, person=person, seen_digest=shown_digest(row), fact="48000")
