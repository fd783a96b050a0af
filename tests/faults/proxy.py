"""Between the product and PostgreSQL: passes everything on, and cuts a connection around a COMMIT when told to.

    python -m tests.faults.proxy LISTEN SERVER CONTROL

`CONTROL` takes lines `before PID` (the COMMIT of that backend never arrives) and `after PID` (it arrives, and its
answer is lost), and answers each with `ok`.
"""

import asyncio
import os
import struct
import sys

KEY_DATA = b"K\x00\x00\x00\x0c"  # BackendKeyData, PostgreSQL manual 54.7
COMMIT = b"Q\x00\x00\x00\x0bCOMMIT\x00"


class Proxy:
    def __init__(self, server: str) -> None:
        self.server = server
        self.armed: dict[int, str] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_unix_connection(self.server)
        except OSError:
            writer.close()
            return
        line = _Line()
        tasks = {
            asyncio.create_task(self._up(line, reader, far_writer)),
            asyncio.create_task(self._down(line, far_reader, writer)),
        }
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        for end in (writer, far_writer):
            end.close()

    async def _up(self, line: "_Line", reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            how = self.armed.get(line.backend) if COMMIT in data else None
            if how is not None:
                del self.armed[line.backend]
                if how == "after":
                    line.is_deaf = True
                    writer.write(data)
                    await writer.drain()
                    await asyncio.sleep(0.2)
                return
            writer.write(data)
            await writer.drain()

    async def _down(self, line: "_Line", reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if not line.backend and (place := data.find(KEY_DATA)) >= 0:
                (line.backend,) = struct.unpack("!I", data[place + 5 : place + 9])
            if not line.is_deaf:
                writer.write(data)
                await writer.drain()

    async def control(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        how, pid = (await reader.readline()).decode().split()
        self.armed[int(pid)] = how
        writer.write(b"ok\n")
        await writer.drain()
        writer.close()


class _Line:
    backend = 0
    is_deaf = False


async def main(listen: str, server: str, control: str) -> None:
    proxy = Proxy(server)
    for path in (listen, control):
        if os.path.exists(path):
            os.unlink(path)
    lines = await asyncio.start_unix_server(proxy.serve, listen)
    orders = await asyncio.start_unix_server(proxy.control, control)
    os.chmod(listen, 0o777)
    async with lines, orders:
        await asyncio.gather(lines.serve_forever(), orders.serve_forever())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
