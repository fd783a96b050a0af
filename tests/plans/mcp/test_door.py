"""What knocks at `/mcp` and is no client: refused as at every door, or in the protocol, and nothing is done or told."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from django.test import Client as DjangoClient
from django.test import RequestFactory

from plans import api, mcp_door, registry
from plans.demo.operations import RefundInvoice
from tests import makers
from tests.fixtures import Site, start_site, stop_process
from tests.ground import free_port
from tests.loops import call_apart
from tests.plans.agent.tooling import MOVE, bot, rows
from tests.plans.mcp.over_http import LEGACY, MODERN, call, converse, headers_for, message, named, post, tool_call

__all__ = ["bot"]

METADATA = "/.well-known/oauth-protected-resource"
LIST = message("tools/list")
BODY = json.dumps(LIST)


def good(bot: makers.MadeAgent, **changes: str | None) -> dict[str, str]:
    """The headers of a good request, with changes; None leaves one out."""
    headers: dict[str, str | None] = {**headers_for(LIST, bot.api_key)}
    headers |= {name.replace("_", "-"): text for name, text in changes.items()}
    return {name: text for name, text in headers.items() if text is not None}


def slug(content: bytes) -> str:
    return str(json.loads(content)["type"].rsplit("/", 1)[-1])


# --- who asks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [None, "Bearer pdk_wrong", "Basic cGRrOng=", "Bearer", "Bearer " + "x" * 300])
@pytest.mark.parametrize("revision", [MODERN, LEGACY])
def test_nobody_gets_in_without_a_key_and_is_told_where_it_is_explained(
    site: Site, bot: makers.MadeAgent, key: str | None, revision: str
) -> None:
    answer, content = post(site, BODY, good(bot, Authorization=key, MCP_Protocol_Version=revision))
    assert (answer.status, slug(content)) == (401, "unauthenticated")
    challenge = answer.headers["WWW-Authenticate"]
    assert challenge.startswith('Bearer realm="plandesk"')
    assert ('error="invalid_token"' in challenge) is (key is not None)
    where = challenge.partition('resource_metadata="')[2].partition('"')[0]
    assert where == f"{site.url}{METADATA}/mcp"
    told = site.request("GET", urlsplit(where).path).json()
    assert told["resource"] == f"{site.url}/mcp"


def test_what_it_says_of_itself_promises_no_server_that_issues_tokens(site: Site) -> None:
    for path in (METADATA, f"{METADATA}/mcp"):
        answer = site.request("GET", path)
        assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
        assert set(answer.json()) == {"resource", "resource_name", "bearer_methods_supported", "resource_documentation"}
        assert answer.json()["bearer_methods_supported"] == ["header"]
        assert site.request("POST", path).status == 405
    assert site.request("GET", urlsplit(answer.json()["resource_documentation"]).path).status == 200
    assert slug(site.request("GET", "/.well-known/oauth-authorization-server").data) == "not-found"


def test_a_key_that_was_rotated_or_an_agent_that_was_disabled_is_out_at_once(site: Site, bot: makers.MadeAgent) -> None:
    assert post(site, BODY, good(bot))[0].status == 200
    fresh = registry.rotate_agent(name="bot")
    assert post(site, BODY, good(bot))[0].status == 401
    assert post(site, BODY, good(bot, Authorization=f"Bearer {fresh.api_key}"))[0].status == 200
    registry.disable_agent(name="bot")
    assert post(site, BODY, good(bot, Authorization=f"Bearer {fresh.api_key}"))[0].status == 401


def test_pages_of_other_sites_are_refused_and_so_is_another_name_for_this_host(
    site: Site, bot: makers.MadeAgent
) -> None:
    host = urlsplit(site.url).netloc
    for origin in (site.url, f"http://{host}"):
        assert post(site, BODY, good(bot, Origin=origin))[0].status == 200
    for origin in (
        "http://evil.example",
        "null",
        "",
        f"https://{host}",
        f"http://{host}.evil.example",
        "http://127.0.0.1",
    ):
        answer, content = post(site, BODY, good(bot, Origin=origin))
        assert (answer.status, slug(content)) == (403, "forbidden"), origin
    answer, content = post(site, BODY, good(bot, Host="evil.example"))
    assert (answer.status, slug(content)) == (400, "malformed")
    answer, content = post(
        site, BODY, good(bot, Host=f"evil.example:{urlsplit(site.url).port}", Origin="http://evil.example")
    )
    assert answer.status == 400


# --- how it is sent ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "PATCH", "OPTIONS"])
@pytest.mark.parametrize("revision", [MODERN, LEGACY])
def test_only_post_is_taken_and_there_is_no_stream_to_open_or_session_to_end(
    site: Site, bot: makers.MadeAgent, method: str, revision: str
) -> None:
    sent = good(bot, Accept="text/event-stream", Mcp_Session_Id="s", MCP_Protocol_Version=revision)
    answer, content = post(site, b"", sent, method)
    assert (answer.status, answer.headers["Allow"], slug(content)) == (405, "POST", "method-not-allowed")


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"Content_Type": "text/plain"}, 415),
        ({"Content_Type": None}, 415),
        ({"Content_Type": "application/json; charset=latin-1"}, 415),
        ({"Content_Encoding": "gzip"}, 415),
        ({"Accept": "text/html"}, 406),
        ({"Accept": "application/json"}, 200),
        ({"Accept": "*/*"}, 200),
        ({"Plandesk_Task": "two words"}, 422),
        ({"Plandesk_Task": "x" * 129}, 422),
        ({"Plandesk_Task": "ticket-9913"}, 200),
        ({"Mcp_Method": "tools/call"}, 400),
        ({"Mcp_Method": None}, 400),
        ({"MCP_Protocol_Version": "1999-01-01"}, 400),
        ({"Mcp_Session_Id": "somebody-elses"}, 200),
    ],
)
def test_headers_that_do_not_fit_are_refused(
    site: Site, bot: makers.MadeAgent, changes: dict[str, str | None], status: int
) -> None:
    assert post(site, BODY, good(bot, **changes))[0].status == status


DEEP = (
    '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"refund_dry_run","arguments":{"inputs":' + "[" * 40
)
BODIES = {
    "empty": (b"", 400, -32700),
    "no JSON": (b"{", 400, -32700),
    "not UTF-8": (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', 400, -32700),
    "BOM": (b"\xef\xbb\xbf" + BODY.encode(), 400, -32700),
    "deep": ((DEEP + "]" * 40 + "}}}").encode(), 400, -32700),
    "very deep": (b"[" * 100_000, 400, -32700),
    "a member twice": (BODY.replace('"id": 1', '"id": 1, "id": 2').encode(), 400, -32700),
    "NaN": (BODY.replace('"id": 1', '"id": NaN').encode(), 400, -32700),
    "U+0000": (BODY.replace('"test"', '"te\\u0000st"').encode(), 400, -32600),
    "half a pair": (BODY.replace('"test"', '"\\ud800"').encode(), 400, -32600),
    "a number": (b"7", 400, -32600),
    "a batch": (f"[{BODY},{BODY}]".encode(), 400, -32600),
    "an empty batch": (b"[]", 400, -32600),
    "an answer": (b'{"jsonrpc":"2.0","id":1,"result":{}}', 400, -32600),
    "no version": (BODY.replace('"jsonrpc": "2.0", ', "").encode(), 400, -32600),
    "a long integer": (BODY.replace('"id": 1', '"id": ' + "9" * 5000).encode(), 400, -32700),
    "another method": (json.dumps({**LIST, "method": "resources/list"}).encode(), 400, None),
}


@pytest.mark.parametrize(("body", "status", "code"), BODIES.values(), ids=BODIES.keys())
def test_bodies_that_are_no_message_are_refused_in_the_protocol(
    site: Site, bot: makers.MadeAgent, body: bytes, status: int, code: int | None
) -> None:
    answer, content = post(site, body, good(bot))
    told = json.loads(content)
    assert (answer.status, told["jsonrpc"]) == (status, "2.0")
    assert code is None or told["error"]["code"] == code, told
    assert rows() == []


def test_the_older_revision_refuses_them_too(site: Site, bot: makers.MadeAgent) -> None:
    for name, (body, _, _) in BODIES.items():
        answer, content = post(site, body, good(bot, MCP_Protocol_Version=LEGACY))
        assert answer.status in (200, 202, 400), name
        assert b'"result"' not in content and b"Traceback" not in content, name
    assert rows() == []


@pytest.mark.parametrize("mebibytes", [1, 4])
def test_a_body_beyond_the_limit_is_413_however_it_is_sent(site: Site, bot: makers.MadeAgent, mebibytes: int) -> None:
    """Also to one who sends all of it before reading anything."""
    body = BODY.encode() + b" " * (mebibytes * 1024 * 1024)
    answer, content = post(site, body, good(bot))
    assert (answer.status, slug(content)) == (413, "too-large")
    pieces: Iterator[bytes] = (body[at : at + 65_536] for at in range(0, len(body), 65_536))
    answer = site.http.request("POST", f"{site.url}/mcp", body=pieces, headers=good(bot), chunked=True)  # type: ignore[assignment]
    assert answer.status == 413
    assert post(site, BODY.encode() + b" " * (1024 * 1024 - len(BODY)), good(bot))[0].status == 200


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (message("resources/list"), 404),
        (message("initialize"), 404),
        (message("tasks/get", {"taskId": "t"}), 404),
        (message("subscriptions/listen", {"notifications": {"toolsListChanged": True}}), 404),
        (message("tools/call", {"arguments": {}}), 400),
        (message("tools/call", {"name": "commit_plan", "arguments": []}), 400),
        (message("tools/call", {"name": 7, "arguments": {}}), 400),
        (tool_call("no_such_tool", {}), 400),
    ],
    ids=lambda value: value["method"] if isinstance(value, dict) else "",
)
def test_what_there_is_not_is_answered_at_once_as_an_error(
    site: Site, bot: makers.MadeAgent, sent: dict[str, Any], status: int
) -> None:
    headers = {name: str(text) for name, text in headers_for(sent, bot.api_key).items()}
    answer, content = post(site, json.dumps(sent), headers)
    assert (answer.status, "error" in json.loads(content)) == (status, True), content


@pytest.mark.parametrize("revision", [MODERN, LEGACY])
def test_a_notification_is_taken_and_changes_nothing(site: Site, bot: makers.MadeAgent, revision: str) -> None:
    sent = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    answer, content = post(site, json.dumps(sent), good(bot, Mcp_Method=sent["method"], MCP_Protocol_Version=revision))  # type: ignore[arg-type]
    assert (answer.status, content) == (202, b"")


# --- what is left of it -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_neither_key_nor_token_stands_in_the_log_of_a_server_that_logs_all_it_can(
    bot: makers.MadeAgent, make_site: Callable[..., Site], capfd: pytest.CaptureFixture[str]
) -> None:
    site = make_site(LOG_LEVEL="DEBUG")

    async def scenario(client: Any) -> None:
        plan = await call(client, "address_update_dry_run", **MOVE)
        await call(client, "commit_plan", **named(plan))
        await call(client, "address_update_dry_run", is_error=True, **MOVE, plan_token=plan["plan_id"])

    converse(site, bot, scenario)
    for body, _, _ in BODIES.values():
        post(site, body, good(bot))
        post(site, body, good(bot, MCP_Protocol_Version=LEGACY))
    post(site, BODY, good(bot, Host="evil.example"))
    stop_process(site.process)
    said = "".join(capfd.readouterr())
    assert "level=" in said
    assert bot.api_key not in said and bot.api_key[4:] not in said
    assert "pt_" not in said and "plan_token" not in said


class _Fault(Exception):
    pass


def test_a_fault_of_ours_is_no_result_and_says_nothing_of_itself(
    site: Site, bot: makers.MadeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise _Fault("pt_secret")

    monkeypatch.setattr(api, "_own_plan", fail)
    sent = tool_call("address_update_dry_run", MOVE)
    with_key = {**headers_for(sent, bot.api_key)}
    client = DjangoClient(raise_request_exception=False)
    plan = call_apart(
        lambda: client.post("/mcp", json.dumps(sent), content_type="application/json", headers=with_key)
    ).json()
    sent = tool_call("get_plan", {"plan_id": plan["result"]["structuredContent"]["plan_id"]})
    with_key = headers_for(sent, bot.api_key)
    answer = call_apart(
        lambda: client.post("/mcp", json.dumps(sent), content_type="application/json", headers=with_key)
    )
    assert (answer.status_code, answer.headers["Content-Type"]) == (503, "application/problem+json")
    assert "plan_write" not in answer.json() and "pt_secret" not in answer.content.decode()


class _Open(msgspec.Struct, forbid_unknown_fields=True):
    labels: dict[str, str]


def test_an_operation_whose_inputs_no_tool_can_hold_takes_no_other_tool_away(
    bot: makers.MadeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(sent: Any) -> Any:
        headers = headers_for(sent, bot.api_key)
        client = DjangoClient()
        return call_apart(
            lambda: client.post("/mcp", json.dumps(sent), content_type="application/json", headers=headers)
        ).json()

    whole = {tool["name"] for tool in ask(LIST)["result"]["tools"]}
    monkeypatch.setattr(RefundInvoice, "Inputs", _Open)
    assert {tool["name"] for tool in ask(LIST)["result"]["tools"]} == whole - {"refund_dry_run"}
    assert ask(tool_call("address_update_dry_run", MOVE))["result"]["structuredContent"]["plan_id"]
    assert ask(tool_call("refund_dry_run", MOVE))["error"]["message"] == "There is no tool 'refund_dry_run'."


@pytest.mark.slow
def test_a_hundred_requests_leave_nothing_open(bot: makers.MadeAgent, rf: RequestFactory) -> None:
    def ask() -> None:
        for revision in (MODERN, LEGACY):
            headers = headers_for(LIST, bot.api_key) | {"MCP-Protocol-Version": revision}
            answer = mcp_door.serve(rf.post("/mcp", BODY, content_type="application/json", headers=headers))
            assert answer.status_code == 200, answer.content

    def ask_often() -> tuple[int, int]:
        ask()
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(60):
            ask()
        return before, len(os.listdir("/proc/self/fd"))

    before, after = call_apart(ask_often)
    assert after <= before


@pytest.mark.slow
def test_a_server_without_an_event_loop_serves_it_too(ground: Any, bot: makers.MadeAgent) -> None:
    site = start_site(free_port(), arguments=["--wsgi", "--workers", "1"], BASE_URL=ground.url)

    async def scenario(client: Any) -> None:
        plan = await call(client, "address_update_dry_run", **MOVE)
        assert (await call(client, "commit_plan", **named(plan)))["outcome"] == "committed"

    try:
        converse(site, bot, scenario)
    finally:
        stop_process(site.process)
    assert Path(f"/proc/{site.process.pid}").exists() is False
