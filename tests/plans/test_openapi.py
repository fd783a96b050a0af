"""The OpenAPI document is whole, well-formed and shown: held against the addresses and methods of the doors."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.urls import URLPattern, URLResolver
from openapi_spec_validator import validate

from plans import openapi, urls
from reviewer import people
from tests.fixtures import Site
from tests.makers import make_agent, make_person, make_target
from tests.plans.http import Caller, keep_to_the_rules, send

PLACE = re.compile(r"<\w+:\w+>|\{\w+\}")


def addresses(patterns: Any, before: str = "/") -> Iterator[str]:
    """Every address of the machines' doors; that of the refusal of all others is not one."""
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            yield from addresses(pattern.url_patterns, before + str(pattern.pattern))
        elif isinstance(pattern, URLPattern) and not str(pattern.pattern).startswith("^"):
            yield PLACE.sub("{}", before + str(pattern.pattern))


def documented() -> dict[str, dict[str, Any]]:
    return {PLACE.sub("{}", path): item for path, item in openapi.document()["paths"].items()}


@pytest.fixture
def caller(site: Site) -> Caller:
    target = make_target()
    return Caller(site, make_agent(target), target)


# --- whole ----------------------------------------------------------------------------------------------------------


def test_every_address_is_in_the_document_and_nothing_else_is() -> None:
    assert sorted(addresses(urls.urlpatterns)) == sorted(documented())


def test_the_document_lists_exactly_the_methods_that_every_door_takes(site: Site) -> None:
    for path, item in openapi.document()["paths"].items():
        answer = keep_to_the_rules(send(site, "OPTIONS", re.sub(r"\{\w+\}", "x", path)))
        answer.is_problem(405, "method-not-allowed")
        assert {method.strip().lower() for method in answer.headers["Allow"].split(",")} == set(item), path


def test_every_operation_has_an_id_of_its_own() -> None:
    ids = [operation["operationId"] for item in openapi.document()["paths"].values() for operation in item.values()]
    assert len(ids) == len(set(ids))


def test_the_list_of_plans_knows_the_documented_parameters_and_no_others(caller: Caller) -> None:
    told = caller.get("/api/v1/plans", nope="1").is_problem(400, "malformed")["detail"]
    operation = openapi.document()["paths"]["/api/v1/plans"]["get"]
    assert set(told.split("there are ")[1].rstrip(".").split(", ")) == {one["name"] for one in operation["parameters"]}


def test_the_log_knows_the_documented_filters_and_no_others(site: Site) -> None:
    person = make_person("auditor")
    _, token = people.create_token(email=person.email)
    answer = send(site, "GET", "/api/v1/audit/events?nope=1", headers={"Authorization": f"Bearer {token}"})
    told = answer.is_problem(400, "malformed")["detail"]
    operation = openapi.document()["paths"]["/api/v1/audit/events"]["get"]
    assert set(told.split("There are: ")[1].rstrip(".").split(", ")) == {one["name"] for one in operation["parameters"]}


def test_every_limit_of_the_contract_is_published() -> None:
    limits = {name: row["limit"] for name, row in openapi.document()["x-limits"].items()}
    assert limits.items() >= {
        "body_bytes": 1_048_576, "body_levels": 32, "action_target_characters": 512,
        "plan_max_lifetime_seconds": 86_400,
        "actions": 1_000, "summary_characters": 2_000, "evidence": 50, "pending_plans": 200, "plan_token_bytes": 4_096,
        "input_fingerprint_characters": 512, "wait_seconds": 30, "waits": 20, "webhook_tolerance_seconds": 300,
        "audit_page": 500, "plan_lifetime_seconds": 600, "identifier": "[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}",
        "idempotency_key": "[A-Za-z0-9_.:-]{1,255}", "webhook_id": "[A-Za-z0-9_-]{1,128}",
    }.items()  # fmt: skip


# --- well-formed ----------------------------------------------------------------------------------------------------


def test_the_document_is_openapi_3_1_and_open_to_everybody(site: Site) -> None:
    answer = keep_to_the_rules(send(site, "GET", "/api/v1/openapi.json"))
    assert answer.status == 200
    assert answer.json["openapi"].startswith("3.1")
    assert answer.json["servers"] == [{"url": site.url}]
    validate(answer.json)


def test_every_reference_leads_somewhere() -> None:
    text = openapi.encoded().decode()
    document = json.loads(text)
    for reference in set(re.findall(r'"\$ref":"#/([^"]+)"', text)):
        node = document
        for part in reference.split("/"):
            node = node[part]


def test_the_page_shows_every_door_without_scripts_or_anybody_elses_assets(site: Site) -> None:
    answer = send(site, "GET", "/api/v1/docs")
    page = answer.body.decode()
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("text/html")
    assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'; style-src 'self'")
    assert "<script" not in page
    assert " style=" not in page
    assert not re.search(r'(?:src|href)="(?:https?:)?//', page)
    for path, item in openapi.document()["paths"].items():
        assert f"<code>{path}</code>" in page
        for operation in item.values():
            assert f'id="{operation["operationId"].removesuffix("Head")}"' in page
    for name in openapi.document()["components"]["schemas"]:
        assert f'id="{name}"' in page
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(ids)
