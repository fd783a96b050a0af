"""Fixtures of the log's tests: an auditor, and their client."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from reviewer.access import hash_token
from reviewer.models import PersonToken


@pytest.fixture
def auditor(make_person: Callable[..., Any]) -> Any:
    return make_person("auditor", email="zoe@example.com", name="Zoë")


@pytest.fixture
def client(auditor: Any) -> Client:
    PersonToken.objects.create(person=auditor, token_hash=hash_token("pdp_of-a-test"))
    return Client(headers={"Authorization": "Bearer pdp_of-a-test"})
