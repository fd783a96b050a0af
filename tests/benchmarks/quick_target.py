"""A remote target that knows every plan, confirms it, and answers each question after one millisecond."""

import asyncio
import json
import sys

ANSWERS_AFTER = 0.001  # seconds


def actions_of(plan_id: str) -> list[dict[str, object]]:
    """What the plan of this id would write: a record of its own, so that no plan fences another."""
    return [{"op": "update", "target": f"ledger/{plan_id}", "field": "limit", "from": 100, "to": 250}]


async def _converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                await reader.readexactly(int(line.partition(b":")[2]))
        await asyncio.sleep(ANSWERS_AFTER)
        method, path = head.split(b" ", 2)[:2]
        plan_id = path.rpartition(b"/")[2].decode()
        told = {"plan_id": plan_id, "state": "pending", "actions": actions_of(plan_id)}
        body = json.dumps(told if method == b"GET" else {"entry": "L-1"}).encode()
        head_lines = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: "
        writer.write(head_lines + str(len(body)).encode() + b"\r\n\r\n" + body)
        await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def _serve() -> None:
    server = await asyncio.start_server(_converse, "127.0.0.1", 0, backlog=256)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve())
