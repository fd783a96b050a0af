"""The documented plain SQL server, as it is or wrong in one way, and the world behind it."""

import re
import secrets
import sqlite3
import threading
import types
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from reviewer.installation import PROJECT

BEARER = "desk"


def example(name: str) -> str:
    """The program or file of this name in docs/targets.md."""
    text = (PROJECT / "docs" / "targets.md").read_text()
    found = re.search(rf"<!-- example: {re.escape(name)} -->\n```\w+\n(.*?)```", text, re.DOTALL)
    assert found is not None, name
    return found[1]


class Notes:
    """The world behind the server: its own database file."""

    can_move = can_count = True

    def __init__(self, file: Path) -> None:
        self.file = file

    def move(self) -> None:
        with closing(sqlite3.connect(self.file, timeout=20)) as db, db:
            db.execute("UPDATE account SET note = ?", [secrets.token_hex(8)])

    def count(self) -> int:
        with closing(sqlite3.connect(self.file, timeout=20)) as db:
            return int(db.execute("SELECT count(*) FROM written").fetchone()[0])


@contextmanager
def serving(file: Path, changes: tuple[tuple[str, str], ...] = ()) -> Iterator[str]:
    """The server's address while it runs. Each change replaces a text that stands in the program once."""
    program = example("two_phase.py")
    for old, new in changes:
        assert program.count(old) == 1, old
        program = program.replace(old, new)
    module = types.ModuleType("two_phase")
    exec(compile(program, "two_phase.py", "exec"), module.__dict__)
    server = module.Server(str(file), 0)
    server.RequestHandlerClass.log_message = lambda *_: None
    server.handle_error = lambda *_: None
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
