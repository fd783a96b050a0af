"""The same problem is told in the same words, whichever door for machines it is met at."""

from collections.abc import Iterator

import pytest

from audit.problems import PROBLEMS
from plans import errors, openapi
from reviewer import people
from tests.fixtures import Site
from tests.makers import make_person
from tests.plans.http import Answer, make_caller, send

TOLD = ("type", "title", "status", "plan_write", "next")


def all_refusals(kind: type[errors.Refused] = errors.Refused) -> Iterator[type[errors.Refused]]:
    for each in kind.__subclasses__():
        yield each
        yield from all_refusals(each)


def test_no_slug_has_two_meanings() -> None:
    meanings: dict[str, set[tuple[object, ...]]] = {}
    for each in all_refusals():
        meanings.setdefault(each.slug, set()).add((each.status, each.title, each.next, each.plan_write))
    assert {slug for slug, told in meanings.items() if len(told) > 1} == set()
    assert len({title for told in meanings.values() for _, title, *_ in told}) == len(meanings)


def test_every_refusal_says_what_to_do_next() -> None:
    assert [each.slug for each in all_refusals() if each.next is None] == []


def test_the_log_says_of_every_slug_what_the_agents_doors_say() -> None:
    agents = {each.slug: each for each in all_refusals()}
    for slug, problem in PROBLEMS.items():
        refusal = agents[slug]
        said = (problem.status, problem.title, problem.next, problem.plan_write)
        assert said == (refusal.status, refusal.title, refusal.next, refusal.plan_write), slug
    assert PROBLEMS["unauthenticated"].headers == errors.Unauthenticated("Who?").headers


def test_the_document_tells_the_next_step_of_every_refusal() -> None:
    schemas = openapi.document()["components"]["schemas"]
    for each in all_refusals():
        shape = schemas[openapi.problem_name(each.slug)]
        assert shape["properties"]["next"] == {"const": each.next}
        assert "next" in shape["required"]


@pytest.mark.usefixtures("database")
def test_a_refusal_met_at_the_log_reads_as_at_an_agents_door_and_at_no_door_at_all(site: Site) -> None:
    caller = make_caller(site)
    person = make_person("auditor")
    _, token = people.create_token(email=person.email)
    auditor = {"Authorization": f"Bearer {token}"}

    def told(answer: Answer) -> dict[str, object]:
        return {name: answer.json.get(name) for name in TOLD}

    def at_the_log(method: str = "GET", path: str = "events", headers: dict[str, str] = auditor) -> Answer:
        return send(site, method, f"/api/v1/audit/{path}", headers=headers)

    def at_the_agents(method: str, path: str, headers: dict[str, str] = caller.bearer) -> Answer:
        return send(site, method, f"/api/v1/{path}", headers=headers)

    met = []
    for log, agents in (
        (at_the_log(headers={}), at_the_agents("GET", "plans", {})),
        (at_the_log(path="events/none"), at_the_agents("GET", "plans/none")),
        (at_the_log(path="nothing/here"), at_the_agents("GET", "nothing/here")),
        (at_the_log("DELETE"), at_the_agents("DELETE", "plans")),
        (at_the_log(path="events?nope=1"), at_the_agents("GET", "plans?nope=1")),
        (at_the_log(headers={**auditor, "Host": "x.example"}), at_the_agents("GET", "plans?nope=1")),
    ):
        assert told(log) == told(agents)
        met.append((log.status, log.slug))
        challenges = [answer.headers.get("WWW-Authenticate") for answer in (log, agents)]
        assert challenges == (['Bearer realm="plandesk"'] * 2 if log.status == 401 else [None, None])
    assert met == [
        (401, "unauthenticated"), (404, "not-found"), (404, "not-found"), (405, "method-not-allowed"),
        (400, "malformed"), (400, "malformed"),
    ]  # fmt: skip


@pytest.mark.usefixtures("database")
def test_the_log_says_when_it_is_worth_asking_again(site: Site) -> None:
    person = make_person("auditor")
    _, token = people.create_token(email=person.email)
    answer = send(site, "GET", "/api/v1/audit/checkpoint", headers={"Authorization": f"Bearer {token}"})
    told = answer.is_problem(503, "unavailable", following="retry_same_key", plan_write="none")
    assert str(told["retry_after_seconds"]) == answer.headers["Retry-After"] == "2"
