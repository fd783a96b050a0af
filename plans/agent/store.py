"""Where an agent's records outlive its process: what a store has to keep to, a folder with one SQLite file, memory."""

import os
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, Protocol
from weakref import WeakSet

from plans.agent.errors import StoreError

BUSY_TIMEOUT: Final = 10.0
"""Seconds that one process waits for another's write."""

_LAST: Final = "\U0010ffff"
"""No key holds it, and every key that begins with a prefix comes before the prefix with this behind it."""


class Records(Protocol):
    """The records of a store, inside one transaction: texts by key. Keys are printable ASCII, 1,000 characters long
    at most; a text is JSON, and may be some megabytes long."""

    def get(self, key: str) -> str | None:
        """The text under this key."""
        ...

    def put(self, key: str, text: str) -> None:
        """Puts the text under this key, in place of what was there."""
        ...

    def delete(self, key: str) -> None:
        """Removes the key, where it is there."""
        ...

    def find(self, prefix: str) -> list[tuple[str, str]]:
        """Every key that begins with this, with its text, in the order of the keys' characters."""
        ...


class Store(Protocol):
    """What the SDK keeps an agent's plans, keys and untold news in. Tokens come to it sealed under the API key.

    A store for many processes keeps to the same: a `writing` is alone (no other `writing` of the store, in any thread
    or process, overlaps it), all or nothing, and safe on disk before it is left; left by an exception, it changes
    nothing. A `reading` sees what the last finished writings left. It may be asked by many threads at once.
    """

    def reading(self) -> AbstractContextManager[Records]:
        """A transaction that changes nothing."""
        ...

    def writing(self) -> AbstractContextManager[Records]:
        """A transaction that may change something."""
        ...


class FileStore:
    """A folder (mode 0700) with one SQLite file (0600). Refused where others may enter or read it.

    What it has written is on disk (WAL, synchronous=FULL) before the call that wrote it returns; what it erases is
    overwritten. Safe with threads, processes and forks: a process has one connection, which one thread at a time uses,
    and none while it forks. Not for a network file system, which has no locks to rely on.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._file = self.path / "plans.sqlite3"
        self._db: sqlite3.Connection | None = None
        self._opened: tuple[int, int] | None = None
        _prepare(self.path, self._file)
        with _alone.lock:
            _stores.add(self)
        with self._transaction("BEGIN IMMEDIATE") as db:
            _make_table(db)

    def __repr__(self) -> str:
        return f"FileStore({str(self.path)!r})"

    @contextmanager
    def reading(self) -> Iterator[Records]:
        """A transaction that changes nothing."""
        with self._transaction("BEGIN") as db:
            yield _Rows(db)

    @contextmanager
    def writing(self) -> Iterator[Records]:
        """A transaction that may change something; alone, for it waits for those of other threads and processes."""
        with self._transaction("BEGIN IMMEDIATE") as db:
            yield _Rows(db)

    def close(self) -> None:
        """Closes this process's connection. The store goes on working, with a new one."""
        with _alone.lock:
            db, self._db = self._db, None
            if db is not None:
                db.close()

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        """The connection, for this thread alone; after an error it is closed, which rolls back."""
        with _alone.lock:
            is_whole = False
            try:
                db = self._db = self._db or self._connect()
                self._check_is_there()
                db.execute(begin)
                yield db
                db.execute("COMMIT")
                is_whole = True
            except sqlite3.Error as error:
                raise StoreError(f"{self._file} cannot be read or written: {error}.") from None
            finally:
                if not is_whole:
                    self.close()

    def _check_is_there(self) -> None:
        """A connection goes on in a file that nobody will find again: what is put there is lost with the process."""
        if _identity(self._file) != self._opened:
            raise StoreError(f"{self._file} was removed or replaced while it was in use.")

    def _connect(self) -> sqlite3.Connection:
        self._opened = _identity(self._file)  # before: a file that is replaced meanwhile is found out at once
        where = f"{self._file.absolute().as_uri()}?mode=rw"  # a file that is gone is not made anew, empty
        db = sqlite3.connect(where, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False, uri=True)
        try:
            for pragma in ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON"):
                db.execute(f"PRAGMA {pragma}")
            _forget_first_version(db)
        except BaseException:
            db.close()
            raise
        return db


class MemoryStore:
    """For tests, and for agents whose work may be lost with their process: nothing of it outlives the process.

    Safe with threads. A forked child goes on with a copy of its own, so do not let both use it.
    """

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def __repr__(self) -> str:
        return "MemoryStore()"

    @contextmanager
    def writing(self) -> Iterator[Records]:
        """A transaction; alone."""
        with _alone.lock:
            records = _Texts(dict(self._texts))
            yield records
            self._texts = records.texts

    reading = writing


class _Alone:
    """One transaction at a time in this process, and none while it forks.

    A child would inherit a lock that nobody holds there any more, and what SQLite knows of the parent's own locks
    (sqlite.org/howtocorrupt.html, 2.6): so a fork waits for the transaction, and finds every connection closed.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        os.register_at_fork(before=self._before, after_in_parent=self._in_parent, after_in_child=self._in_child)

    def _before(self) -> None:
        self.lock.acquire()
        for store in list(_stores):
            store.close()

    def _in_parent(self) -> None:
        self.lock.release()

    def _in_child(self) -> None:
        self.lock = threading.RLock()


_stores: "WeakSet[FileStore]" = WeakSet()
_alone: Final = _Alone()


class _Rows:
    """The table of a file, inside a transaction of this connection."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def get(self, key: str) -> str | None:
        found = self._db.execute("SELECT text FROM records WHERE key = ?", (key,)).fetchone()
        return str(found[0]) if found else None

    def put(self, key: str, text: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO records (key, text) VALUES (?, ?)", (key, text))

    def delete(self, key: str) -> None:
        self._db.execute("DELETE FROM records WHERE key = ?", (key,))

    def find(self, prefix: str) -> list[tuple[str, str]]:
        between = (prefix, prefix + _LAST)
        sql = "SELECT key, text FROM records WHERE key >= ? AND key < ? ORDER BY key"
        return [(str(key), str(text)) for key, text in self._db.execute(sql, between)]


class _Texts:
    """A copy of the texts in memory, until the transaction is left."""

    def __init__(self, texts: dict[str, str]) -> None:
        self.texts = texts

    def get(self, key: str) -> str | None:
        return self.texts.get(key)

    def put(self, key: str, text: str) -> None:
        self.texts[key] = text

    def delete(self, key: str) -> None:
        self.texts.pop(key, None)

    def find(self, prefix: str) -> list[tuple[str, str]]:
        return sorted((key, text) for key, text in self.texts.items() if key.startswith(prefix))


def _identity(file: Path) -> tuple[int, int] | None:
    """Which file it is; None where there is none."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _make_table(db: sqlite3.Connection) -> None:
    if db.execute("PRAGMA user_version").fetchone()[0] != 2:
        db.execute("CREATE TABLE records (key TEXT PRIMARY KEY, text TEXT NOT NULL) STRICT, WITHOUT ROWID")
        db.execute("PRAGMA user_version = 2")


def _forget_first_version(db: sqlite3.Connection) -> None:
    """Erases what a version before this one kept: its tokens lie there in clear text."""
    if db.execute("PRAGMA user_version").fetchone()[0] == 1:
        for old in ("tasks", "plans", "untold"):
            db.execute(f"DROP TABLE IF EXISTS {old}")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _prepare(folder: Path, file: Path) -> None:
    """Makes folder and file for this user alone, and refuses them where others may already enter or read them."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(file, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600))
        for place in (folder, file):
            found = place.stat()
            if stat.S_IMODE(found.st_mode) & 0o077 or found.st_uid != os.geteuid():
                raise StoreError(f"{place} holds plans and their keys: it must be this user's alone (chmod go=).")
    except OSError as error:
        raise StoreError(f"{folder} cannot hold the store: {error.strerror}.") from None
