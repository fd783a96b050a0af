"""The OpenAPI document is true of what the doors take: real bodies are held against it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fixtures import Site
from tests.makers import envelope, make_target
from tests.plans.published import Judged, Published, judged


@pytest.fixture(scope="module")
def published() -> Published:
    return Published()


@pytest.fixture
def caller(site: Site, published: Published) -> Judged:
    return judged(site, published, make_target(approvals=0))


def spoiled(published: Published, schema: Any, sample: Any) -> Iterator[tuple[str, Any]]:
    """The sample with one thing wrong, once for everything that the schema can refuse; and where."""
    if "$ref" in schema:
        schema = published.document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[-1]]
    if "type" in schema:
        yield "type", 7
    if "properties" in schema:
        yield "an unknown member", {**sample, "unheard_of": 1}
        for name in schema["required"]:
            yield f"no {name}", {key: value for key, value in sample.items() if key != name}
        for name in schema["properties"].keys() & sample.keys():
            for where, wrong in spoiled(published, schema["properties"][name], sample[name]):
                yield f"{name}: {where}", {**sample, name: wrong}
    if schema.get("type") == "array":
        if schema.get("minItems"):
            yield "too few", []
        yield "too many", sample * (schema["maxItems"] + 1)
        for where, wrong in spoiled(published, schema["items"], sample[0]):
            yield f"0: {where}", [wrong]
    if "maxLength" in schema:
        yield "too long", "x" * (schema["maxLength"] + 1)
    if "minLength" in schema:
        yield "empty", ""
    if "pattern" in schema:
        yield "form", " "
    if "enum" in schema:
        yield "word", "nonsense"
    if "format" in schema:
        yield "no offset", "2026-03-14T09:31:12"


@pytest.mark.slow
def test_what_the_document_does_not_take_the_doors_refuse(caller: Judged, published: Published) -> None:
    schemas = published.document["components"]["schemas"]
    target = caller.target.name
    full = caller.data(
        summary="s", evidence=[{"tool": "t", "note": "n", "url": "https://a.example/"}], intent="i", replaces="r",
        created_at="2026-03-14T09:31:12Z",
    )  # fmt: skip
    full["plan"]["actions"][0]["reversible"] = True
    fed = {
        "plan.created": ("FedPlan", full),
        "plan.abandoned": ("FedAbandonment", {"plan_id": "p", "target": target, "reason": "task_ended"}),
        "task.ended": ("FedTaskEnd", {"task_id": "t"}),
        "write.observed": (
            "FedWrite",
            {"task_id": "t", "target": target, "targets": ["a"], "at": "2026-03-14T09:31:12Z"},
        ),
    }
    for kind, (name, sample) in fed.items():
        assert published.takes("feed", {"type": kind, "timestamp": "2026-03-14T09:31:12Z", "data": sample})
        for where, data in spoiled(published, schemas[name], sample):
            body = json.loads(envelope(data, kind))
            assert not published.takes("feed", body), (kind, where)
            answer = caller.deliver(json.dumps(body).encode())
            assert answer.status in (400, 413, 422), (kind, where, answer.body)
    posted: dict[str, tuple[str, str, Any]] = {
        "abandonPlan": ("AbandonBody", f"/api/v1/plans/p/abandon?target={target}", {"reason": "task_ended"}),
        "observeWrite": (
            "WriteBody",
            "/api/v1/tasks/t/writes",
            {"target": target, "targets": ["a"], "at": "2026-03-14T09:31:12Z"},
        ),
        "dryRun": (
            "DryRun",
            "/api/v1/operations/address.update/dry-run",
            {"task_id": "t", "inputs": {}}
            | {name: full[name] for name in ("summary", "evidence", "intent", "replaces")},
        ),
        "commitOperation": (
            "CommitBody",
            "/api/v1/operations/address.update/commit",
            {"plan_token": "t", "input_fingerprint": "f", "plan_id": "p"},
        ),
        "endTask": ("NothingBody", "/api/v1/tasks/t/end", {}),
    }
    for operation, (name, path, sample) in posted.items():
        assert published.takes(operation, sample)
        for where, body in spoiled(published, schemas[name], sample):
            assert not published.takes(operation, body), (operation, where)
            answer = caller.post(path, body, key="key-1")
            assert 400 <= answer.status < 500, (operation, where, answer.body)


@pytest.mark.parametrize(
    "change",
    [
        {"summary": "s" * 2_000},
        {"evidence": [{"tool": "t"}] * 50},
        {"task_id": "t" * 128, "intent": "i" * 128, "replaces": "r" * 128, "operation": "o" * 128},
        {"plan": {"plan_id": "p" * 128, "plan_token": "z" * 4_096, "input_fingerprint": "f" * 512}},
        {"plan": {"actions": [{"op": "update", "target": "t" * 512, "field": "f" * 512, "to": 1.5}]}},
        {"plan": {"actions": [{"op": "update", "target": f"t{n}", "to": None} for n in range(1_000)]}},
        {
            "plan": {"actions": [{"op": "delete", "target": "t"}, {"op": "o" * 32, "target": "u", "to": {}}]},
            "intent": "i",
        },
        {"created_at": "2026-03-14T09:31:12.123456+05:30"},
    ],
    ids=str,
)
def test_what_the_document_just_takes_the_feed_takes(caller: Judged, published: Published, change: Any) -> None:
    data = caller.data(**change)
    if "created_at" in change:
        data["plan"]["expires_at"] = data["plan"]["expires_at"].replace("Z", "+00:00")
    body = json.loads(envelope(data))
    assert published.takes("feed", body)
    assert caller.deliver(json.dumps(body).encode()).status == 201
