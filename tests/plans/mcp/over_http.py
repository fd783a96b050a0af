"""Clients of `/mcp`: the package's own, and one that writes each byte itself."""

import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mcp import Client
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client

from tests.fixtures import Site
from tests.loops import run_apart
from tests.makers import MadeAgent

MODERN, LEGACY = "2026-07-28", "2025-11-25"
ACCEPT = "application/json, text/event-stream"


@asynccontextmanager
async def connected(site: Site, api_key: str, mode: str = "auto", **headers: str) -> AsyncIterator[Client]:
    """The package's client, signed in by an agent's key as a user would configure it."""
    sent = {"Authorization": f"Bearer {api_key}", **{name.replace("_", "-"): text for name, text in headers.items()}}
    async with create_mcp_http_client(headers=sent) as http:
        transport = streamable_http_client(f"{site.url}/mcp", http_client=http)
        async with Client(transport, mode=mode, read_timeout_seconds=30) as client:
            yield client


def converse(
    site: Site, made: MadeAgent, scenario: Callable[[Client], Awaitable[Any]], mode: str = "auto", **headers: str
) -> Any:
    """Runs one scenario through one client, and returns what it returned."""

    async def main() -> Any:
        async with connected(site, made.api_key, mode, **headers) as client:
            return await scenario(client)

    return run_apart(main())


async def call(client: Client, tool: str, *, is_error: bool = False, **arguments: Any) -> dict[str, Any]:
    """What a tool says; text and structure are the same, and neither has a token."""
    answer = await client.call_tool(tool, arguments)
    assert answer.is_error is is_error, answer
    [content] = answer.content
    assert json.loads(content.text) == answer.structured_content  # type: ignore[union-attr]
    assert "pt_" not in content.text and '"plan_token":' not in content.text  # type: ignore[union-attr]
    members: dict[str, Any] = answer.structured_content
    return members


def named(plan: dict[str, Any]) -> dict[str, str]:
    """What commit_plan takes of a dry run's answer."""
    return {name: plan[name] for name in ("plan_id", "input_fingerprint")}


def message(method: str, params: dict[str, Any] | None = None, *, revision: str = MODERN) -> dict[str, Any]:
    """A request as the wire has it under this revision."""
    about = {
        "io.modelcontextprotocol/protocolVersion": revision,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    members = dict(params or {}) | ({"_meta": about} if revision == MODERN else {})
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": members}


def tool_call(name: str, arguments: dict[str, Any], *, revision: str = MODERN) -> dict[str, Any]:
    """A call of a tool as the wire has it."""
    return message("tools/call", {"name": name, "arguments": arguments}, revision=revision)


def headers_for(sent: dict[str, Any], api_key: str, *, revision: str = MODERN) -> dict[str, str]:
    """The headers that go with a message."""
    headers = {
        "Authorization": f"Bearer {api_key}",
        "Content-Type": "application/json",
        "Accept": ACCEPT,
        "MCP-Protocol-Version": revision,
    }
    if revision == MODERN:
        headers["Mcp-Method"] = sent["method"]
        if "name" in sent["params"]:
            headers["Mcp-Name"] = sent["params"]["name"]
    return headers


class Wire:
    """One kept connection to the site, and so to one of its worker processes."""

    def __init__(self, site: Site, api_key: str, *, revision: str = MODERN) -> None:
        parts = urlsplit(site.url)
        self.http = HTTPConnection(parts.hostname or "", parts.port, timeout=30)
        self._site, self._api_key, self._revision = site, api_key, revision

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """The result of a request."""
        sent = message(method, params, revision=self._revision)
        headers = headers_for(sent, self._api_key, revision=self._revision)
        self.http.request("POST", "/mcp", json.dumps(sent), headers)
        answer = self.http.getresponse()
        body = json.loads(answer.read())
        assert answer.status == 200, body
        result: dict[str, Any] = body["result"]
        return result

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        """What a tool says."""
        members: dict[str, Any] = self.ask("tools/call", {"name": name, "arguments": arguments})["structuredContent"]
        return members

    def worker(self) -> int:
        """The process at the other end; it has taken the connection once it has answered on it."""
        own = self.http.sock.getsockname()[1]
        port = urlsplit(self._site.url).port
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        [inode] = [row[9] for row in lines if row[1].endswith(f":{port:04X}") and row[2].endswith(f":{own:04X}")]
        [pid] = [one for one in workers(self._site) if f"socket:[{inode}]" in _links(one)]
        return pid


def _links(pid: int) -> set[str]:
    found = set()
    for one in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            found.add(os.readlink(one))
    return found


def workers(site: Site) -> list[int]:
    """The site's worker processes."""
    return [int(pid) for pid in Path(f"/proc/{site.process.pid}/task/{site.process.pid}/children").read_text().split()]


def post(site: Site, body: bytes | str, headers: dict[str, str], method: str = "POST") -> tuple[HTTPResponse, bytes]:
    """One request of exactly these headers and bytes, and its answer."""
    parts = urlsplit(site.url)
    http = HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    http.request(method, "/mcp", body.encode() if isinstance(body, str) else body, headers)
    answer = http.getresponse()
    content = answer.read()
    http.close()
    return answer, content


def send_and_keep(site: Site, api_key: str, sent: dict[str, Any], *, revision: str = MODERN) -> socket.socket:
    """A request on a socket of its own, whose answer nobody has read yet."""
    parts = urlsplit(site.url)
    body = json.dumps(sent).encode()
    lines = ["POST /mcp HTTP/1.1", f"Host: {parts.netloc}", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {text}" for name, text in headers_for(sent, api_key, revision=revision).items()]
    client = socket.create_connection((parts.hostname or "", parts.port or 80), 30)
    client.sendall("\r\n".join([*lines, "", ""]).encode() + body)
    return client
