"""Where an agent's plans, keys and tokens outlive its process: a folder with one SQLite file."""

import dataclasses
import json
import os
import sqlite3
import stat
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from plans.agent import outcomes
from plans.agent.errors import StoreError
from plans.agent.plan import FEEDING, Plan, StoredPlan, plan_members
from plans.agent.secrets import Secret
from plans.states import State

BUSY_TIMEOUT: Final = 10.0
"""Seconds that one process waits for another's write."""

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS tasks (
    desk TEXT NOT NULL, task_id TEXT NOT NULL, runs INTEGER NOT NULL DEFAULT 0, is_ended INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (desk, task_id)) STRICT;
CREATE TABLE IF NOT EXISTS plans (
    id INTEGER PRIMARY KEY AUTOINCREMENT, desk TEXT NOT NULL, target TEXT NOT NULL, plan_id TEXT NOT NULL,
    task_id TEXT NOT NULL, operation TEXT NOT NULL, intent TEXT, inputs_sorted TEXT NOT NULL, plan TEXT NOT NULL,
    origin TEXT NOT NULL, state TEXT NOT NULL, may_have_arrived INTEGER NOT NULL DEFAULT 0,
    touched_by TEXT NOT NULL DEFAULT '[]', run INTEGER NOT NULL, outcome TEXT, is_told INTEGER NOT NULL DEFAULT 0,
    token TEXT, delivery_id TEXT, delivery TEXT, UNIQUE (desk, target, plan_id)) STRICT;
CREATE INDEX IF NOT EXISTS plans_by_task ON plans (desk, task_id);
CREATE TABLE IF NOT EXISTS untold (
    id INTEGER PRIMARY KEY AUTOINCREMENT, desk TEXT NOT NULL, task_id TEXT NOT NULL, what TEXT NOT NULL,
    path TEXT NOT NULL, body TEXT NOT NULL, at TEXT NOT NULL, is_given_up INTEGER NOT NULL DEFAULT 0) STRICT;
PRAGMA user_version = 1;
"""

_SELECT: Final = "SELECT plan, state, may_have_arrived, touched_by, run, outcome, is_told, delivery_id FROM plans"

_SUPERSEDED: Final = """
SELECT old.target, old.plan_id FROM plans AS old JOIN plans AS new ON new.desk = old.desk AND new.id <> old.id
WHERE new.desk = :desk AND new.target = :target AND new.plan_id = :plan_id
AND old.state = 'pending' AND old.may_have_arrived = 0 AND old.outcome IS NULL
AND ((old.target = new.target AND old.plan_id = :replaces) OR old.intent = new.intent
     OR (old.intent IS NULL AND new.intent IS NULL AND old.task_id = new.task_id AND old.target = new.target
         AND old.operation = new.operation AND old.inputs_sorted = new.inputs_sorted))
"""

# A connection that a forked child inherits may neither be used nor closed there (sqlite.org/howtocorrupt.html, 2.6).
_inherited: list[sqlite3.Connection] = []


@dataclass(frozen=True, slots=True)
class Untold:
    """Something the desk is still to be told."""

    id: int
    task_id: str
    what: str
    path: str
    body: str
    at: str

    @property
    def is_write(self) -> bool:
        """Whether it is a write, the one of these that has a time."""
        return self.path.endswith("/writes")


class FileStore:
    """A folder (mode 0700) with one SQLite file (0600) that holds tasks, plans, their keys and their tokens.

    Tokens lie there in plain text, as a private key does: whoever may read this user's files may commit this agent's
    plans, so the folder is refused where others may enter it. A token is erased when its plan or its task ends, and
    SQLite overwrites it. Do not keep the folder in backups or on a network file system.

    What it has written is on disk (WAL, synchronous=FULL) before the call that wrote it returns. Safe with threads,
    processes and forks: each thread of each process has a connection of its own.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._file = self.path / "plans.sqlite3"
        self._local = threading.local()
        _prepare(self.path, self._file)
        self._connection().executescript(_SCHEMA)

    def __repr__(self) -> str:
        return f"FileStore({str(self.path)!r})"

    # tasks

    def open_task(self, desk: str, task_id: str) -> int:
        """Begins one more run of the task, and returns its number, from 1."""
        with self._writing() as db:
            db.execute("INSERT OR IGNORE INTO tasks (desk, task_id) VALUES (?, ?)", (desk, task_id))
            db.execute("UPDATE tasks SET runs = runs + 1 WHERE desk = ? AND task_id = ?", (desk, task_id))
            row = db.execute("SELECT runs FROM tasks WHERE desk = ? AND task_id = ?", (desk, task_id)).fetchone()
        return int(row[0])

    def is_ended(self, desk: str, task_id: str) -> bool:
        """Whether the task has ended; it never opens again."""
        found = (
            self._connection()
            .execute("SELECT is_ended FROM tasks WHERE desk = ? AND task_id = ?", (desk, task_id))
            .fetchone()
        )
        return bool(found and found[0])

    def end_task(self, desk: str, task_id: str, *, at: str, path: str) -> Untold:
        """Ends the task, erases its tokens, and keeps that the desk is to be told, all at once. Returns the latter."""
        with self._writing() as db:
            db.execute("UPDATE tasks SET is_ended = 1 WHERE desk = ? AND task_id = ?", (desk, task_id))
            db.execute("UPDATE plans SET token = NULL, delivery = NULL WHERE desk = ? AND task_id = ?", (desk, task_id))
            kept = _keep_untold(db, desk, Untold(0, task_id, f"end of task {task_id}", path, "{}", at))
        self._connection().execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return kept

    # plans

    def add_plan(
        self, desk: str, plan: Plan, *, inputs_sorted: str, run: int, token: Secret,
        delivery_id: str | None = None, delivery: Secret | None = None,
    ) -> StoredPlan:  # fmt: skip
        """Keeps a new plan with its key and token, and ends here what it takes the place of.

        A fed plan begins as `feeding`, with the delivery that is repeated byte for byte until the desk has it.
        """
        members = json.dumps(dataclasses.asdict(plan), default=str)
        with self._writing() as db:
            db.execute(
                "INSERT INTO plans (desk, target, plan_id, task_id, operation, intent, inputs_sorted, plan, origin,"
                " state, run, token, delivery_id, delivery) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    desk, plan.target, plan.plan_id, plan.task_id, plan.operation, plan.intent, inputs_sorted, members,
                    plan.origin, FEEDING if delivery else State.PENDING.value, run, token.reveal(), delivery_id,
                    delivery and delivery.reveal(),
                ),
            )  # fmt: skip
        return self.get_plan(desk, plan.target, plan.plan_id)

    def receive_plan(self, desk: str, plan: Plan, state: str) -> StoredPlan:
        """The desk has the plan: its key and address are known, the delivery is no longer needed."""
        members = json.dumps(dataclasses.asdict(plan), default=str)
        with self._writing() as db:
            db.execute(
                "UPDATE plans SET plan = ?, state = ?, delivery = NULL WHERE desk = ? AND target = ? AND plan_id = ?",
                (members, state, desk, plan.target, plan.plan_id),
            )
        return self.get_plan(desk, plan.target, plan.plan_id)

    def supersede(self, desk: str, newer: Plan) -> None:
        """Ends here what the desk ended when it took this plan: its agent's pending plans that it stands in for."""
        with self._writing() as db:
            rows = db.execute(_SUPERSEDED, {"desk": desk, "target": newer.target, "plan_id": newer.plan_id,
                                            "replaces": newer.replaces}).fetchall()  # fmt: skip
            for target, plan_id in rows:
                _settle(db, desk, target, outcomes.Abandoned(plan_id, "superseded"))

    def get_plan(self, desk: str, target: str, plan_id: str) -> StoredPlan:
        """The plan as it is known here. LookupError where it is not."""
        found = self._find("desk = ? AND target = ? AND plan_id = ?", desk, target, plan_id)
        if not found:
            raise LookupError(plan_id)
        return found[0]

    def find_plans(self, desk: str, task_id: str) -> list[StoredPlan]:
        """Every plan of the task, in the order they were made."""
        return self._find("desk = ? AND task_id = ?", desk, task_id)

    def find_same(
        self, desk: str, task_id: str, target: str | None, operation: str, inputs_sorted: str, intent: str | None
    ) -> list[StoredPlan]:
        """The task's plans of the same operation, inputs and intent, in the order they were made."""
        return self._find(
            "desk = ? AND task_id = ? AND operation = ? AND inputs_sorted = ? AND intent IS ?"
            " AND origin = ? AND target = coalesce(?, target)",
            desk, task_id, operation, inputs_sorted, intent, "hosted" if target is None else "fed", target,
        )  # fmt: skip

    def find_in_flight(self, desk: str) -> list[StoredPlan]:
        """The agent's plans, of any task, that may still be written."""
        return [stored for stored in self._find("desk = ? AND outcome IS NULL", desk) if stored.is_in_flight]

    def take_up(self, desk: str, plan: Plan, run: int) -> None:
        """Notes that this run was given this plan."""
        with self._writing() as db:
            where = (run, desk, plan.target, plan.plan_id)
            db.execute("UPDATE plans SET run = ? WHERE desk = ? AND target = ? AND plan_id = ?", where)

    def token(self, desk: str, plan: Plan) -> Secret | None:
        """The plan's token, while there is one."""
        text = self._cell("token", desk, plan)
        return Secret(text) if text else None

    def delivery(self, desk: str, plan: Plan) -> Secret | None:
        """The body of the feed, while the desk does not have it."""
        text = self._cell("delivery", desk, plan)
        return Secret(text) if text else None

    def begin_attempt(self, desk: str, plan: Plan) -> bool:
        """On disk before the first byte of a commit: an attempt may arrive. False where the plan may not be sent now.

        A plan whose end is known, whose token is gone, or that one of the agent's writes touched, is never sent.
        """
        with self._writing() as db:
            done = db.execute(
                "UPDATE plans SET may_have_arrived = 1, state = 'committing' WHERE desk = ? AND target = ?"
                " AND plan_id = ? AND outcome IS NULL AND token IS NOT NULL AND touched_by = '[]'",
                (desk, plan.target, plan.plan_id),
            )
        return done.rowcount == 1

    def note_unsent(self, desk: str, plan: Plan) -> None:
        """Every attempt so far is proven to have written nothing."""
        self._set(desk, plan.target, plan.plan_id, "may_have_arrived = 0, state = ?", State.PENDING.value)

    def note_state(self, desk: str, plan: Plan, state: str) -> None:
        """What the desk calls the plan's state; pending is unknown here while an attempt may still be on its way."""
        with self._writing() as db:
            db.execute(
                "UPDATE plans SET state = iif(may_have_arrived AND ?1 = 'pending', 'unknown', ?1)"
                " WHERE desk = ?2 AND target = ?3 AND plan_id = ?4 AND outcome IS NULL",
                (state, desk, plan.target, plan.plan_id),
            )

    def withdraw(self, desk: str, plan: Plan) -> None:
        """Erases the token of a plan its agent no longer wants: it cannot be sent any more."""
        with self._writing() as db:
            where = (desk, plan.target, plan.plan_id)
            db.execute("UPDATE plans SET token = NULL WHERE desk = ? AND target = ? AND plan_id = ?", where)

    def forget_plan(self, desk: str, plan: Plan) -> None:
        """Drops a plan that the desk refused to take, with its token."""
        with self._writing() as db:
            where = (desk, plan.target, plan.plan_id)
            db.execute("DELETE FROM plans WHERE desk = ? AND target = ? AND plan_id = ?", where)

    def settle(self, desk: str, plan: Plan, outcome: outcomes.Ended) -> None:
        """Keeps how the plan ended, and erases its token."""
        with self._writing() as db:
            _settle(db, desk, plan.target, outcome)

    def note_told(self, desk: str, plan: Plan) -> None:
        """A call is about to tell how the plan ended."""
        with self._writing() as db:
            where = (desk, plan.target, plan.plan_id)
            db.execute("UPDATE plans SET is_told = 1 WHERE desk = ? AND target = ? AND plan_id = ?", where)

    def touch(
        self, desk: str, target: str, targets: Iterable[str], *,
        besides: str | None = None, made_before: datetime | None = None,
    ) -> list[str]:  # fmt: skip
        """Marks the agent's plans in flight, of any task, that touch one of these; returns their ids.

        A plan made after the write (`made_before`, by the desk's clock) saw it, and is not marked.
        """
        written = set(targets)
        ids = []
        with self._writing() as db:
            for stored in self._read(db, "desk = ? AND target = ? AND outcome IS NULL", (desk, target)):
                touched = sorted(written & stored.plan.touches)
                is_older = made_before is None or stored.plan.created_at <= made_before
                if touched and is_older and stored.is_in_flight and stored.plan.plan_id != besides:
                    marks = json.dumps(sorted({*stored.touched_by, *touched}))
                    where = (marks, desk, target, stored.plan.plan_id)
                    db.execute("UPDATE plans SET touched_by = ? WHERE desk = ? AND target = ? AND plan_id = ?", where)
                    ids.append(stored.plan.plan_id)
        return ids

    # what the desk is still to be told

    def keep_untold(self, desk: str, untold: Untold) -> Untold:
        """Keeps that the desk is to be told this, until `drop_untold`; returns it with its id."""
        with self._writing() as db:
            return _keep_untold(db, desk, untold)

    def drop_untold(self, untold: Untold) -> None:
        """The desk has been told, or will never listen."""
        with self._writing() as db:
            db.execute("DELETE FROM untold WHERE id = ?", (untold.id,))

    def give_up(self, untold: Untold) -> None:
        """The call that was to tell it has stopped trying: anybody may."""
        with self._writing() as db:
            db.execute("UPDATE untold SET is_given_up = 1 WHERE id = ?", (untold.id,))

    def find_untold(self, desk: str, *, before: str) -> list[Untold]:
        """What nobody is trying to tell any more, oldest first: given up, or left by a process killed before."""
        rows = self._connection().execute(
            "SELECT id, task_id, what, path, body, at FROM untold"
            " WHERE desk = ? AND (is_given_up OR at < ?) ORDER BY id",
            (desk, before),
        )
        return [Untold(*row) for row in rows]

    # SQLite

    def _find(self, where: str, *values: object) -> list[StoredPlan]:
        return self._read(self._connection(), where, values)

    def _read(self, db: sqlite3.Connection, where: str, values: tuple[object, ...]) -> list[StoredPlan]:
        rows = db.execute(" ".join((_SELECT, "WHERE", where, "ORDER BY id")), values)  # `where`: written in this file
        return [
            StoredPlan(
                plan=plan_members(json.loads(row[0])),
                state=row[1],
                may_have_arrived=bool(row[2]),
                touched_by=tuple(json.loads(row[3])),
                run=row[4],
                outcome=outcomes.from_text(row[5]) if row[5] else None,
                is_told=bool(row[6]),
                delivery_id=row[7],
            )
            for row in rows.fetchall()
        ]

    def _cell(self, column: str, desk: str, plan: Plan) -> str | None:
        found = (
            self._connection()
            .execute(
                f"SELECT {column} FROM plans WHERE desk = ? AND target = ? AND plan_id = ?",  # noqa: S608
                (desk, plan.target, plan.plan_id),
            )
            .fetchone()
        )
        return found[0] if found else None

    def _set(self, desk: str, target: str, plan_id: str, change: str, value: object) -> None:
        with self._writing() as db:
            db.execute(
                f"UPDATE plans SET {change} WHERE desk = ? AND target = ? AND plan_id = ? AND outcome IS NULL",  # noqa: S608
                (value, desk, target, plan_id),
            )

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        db = self._connection()
        db.execute("BEGIN IMMEDIATE")
        try:
            yield db
        except BaseException:
            db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")

    def _connection(self) -> sqlite3.Connection:
        known: tuple[int, sqlite3.Connection] | None = getattr(self._local, "connection", None)
        if known is not None and known[0] == os.getpid():
            return known[1]
        if known is not None:
            _inherited.append(known[1])
        db = sqlite3.connect(self._file, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False)
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON"):
            db.execute(f"PRAGMA {pragma}")
        self._local.connection = (os.getpid(), db)
        return db


def _settle(db: sqlite3.Connection, desk: str, target: str, outcome: outcomes.Ended) -> None:
    db.execute(
        "UPDATE plans SET state = ?, outcome = ?, token = NULL, delivery = NULL"
        " WHERE desk = ? AND target = ? AND plan_id = ? AND outcome IS NULL",
        (_STATES[type(outcome)], outcomes.to_text(outcome), desk, target, outcome.plan_id),
    )


def _keep_untold(db: sqlite3.Connection, desk: str, untold: Untold) -> Untold:
    done = db.execute(
        "INSERT INTO untold (desk, task_id, what, path, body, at) VALUES (?, ?, ?, ?, ?, ?)",
        (desk, untold.task_id, untold.what, untold.path, untold.body, untold.at),
    )
    return dataclasses.replace(untold, id=int(done.lastrowid or 0))


_STATES: Final[dict[type[outcomes.Ended], str]] = {
    outcomes.Committed: State.COMMITTED.value,
    outcomes.Conflict: State.CONFLICTED.value,
    outcomes.Expired: State.ABANDONED.value,
    outcomes.Abandoned: State.ABANDONED.value,
    outcomes.Rejected: State.REJECTED.value,
    outcomes.Refused: State.REFUSED.value,
}


def _prepare(folder: Path, file: Path) -> None:
    """Makes folder and file for this user alone, and refuses them where others may already enter or read them."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(file, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600))
        for place in (folder, file):
            found = place.stat()
            if stat.S_IMODE(found.st_mode) & 0o077 or found.st_uid != os.geteuid():
                raise StoreError(f"{place} holds plan tokens: it must be this user's alone (chmod go=).")
    except OSError as error:
        raise StoreError(f"{folder} cannot hold the store: {error.strerror}.") from None
