"""A key or a token is used, and never seen: not in a repr, a copy, a pickle, JSON, an error, a log, an open file."""

import base64
import copy
import dataclasses
import http.client
import json
import logging
import os
import pickle
import signal
import stat
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from plans.agent import (
    AgentError,
    Committed,
    Desk,
    DeskError,
    FileStore,
    NotADryRun,
    Plan,
    PlanRefused,
    Refused,
    StoreError,
    Waiting,
)
from plans.agent.sealing import Seal
from plans.agent.secrets import Secret
from tests.plans.agent.conftest import make_desk
from tests.plans.agent.scripted_desk import API_KEY, ScriptedDesk, Step, problem

TEXT = "pt_9c0e_very_secret"


def test_a_secret_shows_itself_to_nobody() -> None:
    secret = Secret(TEXT)
    for shown in (repr(secret), str(secret), f"{secret}", f"{secret!r:>30}", f"{[secret]}", format(secret, ">40")):
        assert TEXT not in shown
    assert secret.reveal() == TEXT


@pytest.mark.parametrize(
    "leak",
    [
        pickle.dumps,
        copy.copy,
        copy.deepcopy,
        json.dumps,
        msgspec.json.encode,
        vars,
        hash,
        lambda secret: dataclasses.asdict(dataclasses.make_dataclass("Box", ["inside"])(secret)),
        lambda secret: setattr(secret, "text", "x"),
        iter,
        lambda secret: secret + "",
    ],
)
def test_a_secret_is_not_copied_pickled_or_encoded(leak: Callable[[Any], object]) -> None:
    with pytest.raises((TypeError, AttributeError)) as caught:
        leak(Secret(TEXT))
    assert TEXT not in str(caught.value)


def test_secrets_compare_and_are_hidden_in_text() -> None:
    assert Secret(TEXT) == Secret(TEXT)
    assert Secret(TEXT) != Secret(TEXT + "x")
    assert Secret(TEXT) != TEXT
    assert Secret(TEXT).hide_in(f"<{TEXT}>") == "<[secret]>"
    assert (Secret("1").hide_in("101"), Secret("1").hide_in("1")) == ("101", "[secret]")


def test_plans_and_tasks_and_desks_show_and_pickle_no_token(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task:
        plan = task.dry_run("address.update", {"customer_id": "77"})
        token = server.plans[plan.plan_id]["token"]
        shown = f"{plan!r} {task!r} {desk!r} {desk._line!r} {desk._line.ledger.store!r} {task.plans()!r}"
        shown += json.dumps(dataclasses.asdict(plan), default=str) + pickle.dumps(plan).decode("latin-1")
        for secret in (token, API_KEY, server.secret.reveal()):
            assert secret not in shown
        assert pickle.loads(pickle.dumps(plan)) == plan
        for thing in (task, desk):
            with pytest.raises(TypeError):
                pickle.dumps(thing)
    assert not [field.name for field in dataclasses.fields(Plan) if "token" in field.name]


def test_no_error_outcome_or_log_holds_a_secret_even_if_the_desk_echoes_it(
    desk: Desk, server: ScriptedDesk, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    http.client.HTTPConnection.debuglevel = 1  # prints every header and body, unless it is kept from it
    try:
        with desk.task("t1") as task:
            plan = task.dry_run("address.update", {"customer_id": "77"})
            token = server.plans[plan.plan_id]["token"]
            echo = f"you sent {token} with Bearer {API_KEY}"
            server.next("commit", Step(status=422, members={"type": "/p/invalid", "detail": echo, "errors": [echo]}))
            with pytest.raises(DeskError) as caught:
                task.commit(plan)
            told = "".join(traceback.format_exception(caught.value)) + repr(vars(caught.value))
            server.next("commit", Step(status=422, members={"type": "/p/refused", "detail": echo}))
            outcome = task.commit(plan)
            assert isinstance(outcome, Refused)
            server.next("dry-run", problem(422, "cannot-plan", detail=f"with Bearer {API_KEY}"))
            with pytest.raises(PlanRefused) as refused:
                task.dry_run("address.update", {"customer_id": "78"})
            told += str(refused.value) + repr(outcome) + repr(task.plans())
    finally:
        http.client.HTTPConnection.debuglevel = 0
    captured = capsys.readouterr()
    for text in (told, caplog.text, captured.out, captured.err):
        assert API_KEY not in text
        assert server.secret.reveal() not in text
        assert token not in text
    assert "[secret]" in outcome.reason


def test_the_store_is_for_its_user_alone_and_forgets_tokens_that_are_no_longer_needed(
    server: ScriptedDesk, base_url: str, folder: Path
) -> None:
    with make_desk(server, base_url, folder) as desk:
        with desk.task("t1") as task:
            plan = task.dry_run("address.update", {"customer_id": "77"})
            waiting = task.dry_run("refund", {"invoice_id": "1"})
            tokens = [server.plans[one.plan_id]["token"].encode() for one in (plan, waiting)]
            files = list(folder.iterdir())
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
            task.commit(plan)
        held = b"".join(file.read_bytes() for file in folder.iterdir())
    assert not [token for token in tokens if token in held]


def told_with_variables(error: BaseException) -> str:
    """A traceback as an error reporter sends it, with the variables of every frame that is ours or below."""
    told = traceback.TracebackException.from_exception(error, capture_locals=True)
    frames = [frame for frame in told.stack if "/tests/" not in frame.filename]
    assert frames
    chain = [one for one in (error.__cause__, error.__context__) if one is not None]
    return repr([frame.locals for frame in frames]) + "".join(told_with_variables(one) for one in chain)


def interrupt() -> Step:
    """Ctrl-C while the answer is on its way."""
    return Step(delay=0.2, then=lambda: os.kill(os.getpid(), signal.SIGINT), is_dropped=True)


def answer_of(plan_id: str, **members: object) -> dict[str, object]:
    return {
        "plan_id": plan_id, "plan_token": TEXT, "expires_at": "2099-03-14T09:41:12Z", "input_fingerprint": "f",
        "actions": [{"op": "update", "target": "invoice/1", "field": "cents", "to": 1}], **members,
    }  # fmt: skip


@pytest.mark.parametrize("door", ["commit", "feed", "dry-run"])
@pytest.mark.parametrize("how", ["refused", "interrupted"])
def test_a138_a_traceback_with_its_variables_shows_no_token_key_or_secret(
    desk: Desk, server: ScriptedDesk, door: str, how: str
) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with desk.task("t1") as task:
            plan = task.dry_run("address.update", {"customer_id": "77"})
            server.next(door, problem(422, "invalid") if how == "refused" else interrupt())
            act: Callable[[], object] = {
                "commit": lambda: task.commit(plan),
                "feed": lambda: task.submit("ledger", "refund", {"invoice_id": "1"}, answer_of("plan_r")),
                "dry-run": lambda: task.dry_run("address.update", {"customer_id": "78"}),
            }[door]
            with pytest.raises(DeskError if how == "refused" else KeyboardInterrupt) as caught:
                act()
    finally:
        signal.signal(signal.SIGINT, before)
    told = told_with_variables(caught.value)
    for secret in (TEXT, server.plans[plan.plan_id]["token"], API_KEY, server.secret.reveal()):
        assert secret not in told


@pytest.mark.parametrize(
    "answer",
    [
        answer_of("plan_r", dry_run=False),
        answer_of("plan_r", actions=[]),
        answer_of("plan_r", expires_at="soon"),
        answer_of("plan_r", input_fingerprint=7),
        answer_of("plan_r", cost=float("nan")),
        json.dumps(answer_of("plan_r"))[:-1],
        json.dumps(answer_of("plan_r")).encode() + b"\xff",
    ],
)
def test_a138_an_answer_that_is_refused_is_not_in_the_traceback(desk: Desk, answer: Any) -> None:
    with desk.task("t1") as task, pytest.raises(NotADryRun) as caught:
        task.submit("ledger", "refund", {"invoice_id": "1"}, answer)
    assert TEXT not in told_with_variables(caught.value) + str(caught.value)


def test_a_token_is_kept_sealed_only_while_the_agent_may_send_it(
    desk: Desk, server: ScriptedDesk, folder: Path
) -> None:
    def held() -> bytes:
        return b"".join(file.read_bytes() for file in folder.iterdir())

    server.next("feed", Step(status=503), Step(status=201, members={}))
    with desk.task("t1") as task:
        hosted = task.dry_run("address.update", {"customer_id": "77"})
        approved = task.dry_run("refund", {"invoice_id": "1"})
        with pytest.raises(AgentError):
            task.submit("ledger", "refund", {"invoice_id": "1"}, answer_of("plan_r"))
        ledger = desk._line.ledger
        for token in (TEXT, *(server.plans[one.plan_id]["token"] for one in (hosted, approved))):
            assert token.encode() not in held()
        fed = task.plans()[-1].plan
        assert [ledger.token(plan) is not None for plan in (hosted, approved, fed)] == [True, False, True]
        assert ledger.delivery(fed) is not None
        again = task.submit("ledger", "refund", {"invoice_id": "1"}, answer_of("plan_r"))
        assert ledger.delivery(again) is None
        assert isinstance(task.commit(again), Waiting)
        assert ledger.token(again) is None  # people decide, so the desk commits it
        task.commit(hosted)
        assert ledger.token(hosted) is None


def test_a_token_kept_under_another_api_key_opens_no_more_and_its_plan_is_made_anew(
    server: ScriptedDesk, base_url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with make_desk(server, base_url, folder) as desk:
        plan = desk.task("t1").dry_run("address.update", {"customer_id": "77"})
    monkeypatch.setattr("tests.plans.agent.scripted_desk.API_KEY", "pk_live_rotated_0123456789")
    store = FileStore(folder)
    with (
        Desk(base_url, "pk_live_rotated_0123456789", agent="refund-bot", store=store) as rotated,
        rotated.task("t1") as task,
    ):
        assert isinstance(task.commit(plan), Waiting)  # nothing was sent: there is nothing to send it with
        assert server.at("commit") == []
        again = task.dry_run("address.update", {"customer_id": "77"})
        assert again.plan_id != plan.plan_id
        assert isinstance(task.commit(again), Committed)


def test_a_seal_opens_in_its_own_place_with_its_own_key_and_unchanged() -> None:
    seal = Seal(Secret(API_KEY))
    sealed = seal.seal(Secret(TEXT), "a/plan_1")
    assert seal.open(sealed, "a/plan_1") == Secret(TEXT)
    assert TEXT not in sealed
    assert sealed != seal.seal(Secret(TEXT), "a/plan_1")
    assert seal.open(sealed, "a/plan_2") is None
    assert Seal(Secret(API_KEY + "x")).open(sealed, "a/plan_1") is None
    held = base64.b64decode(sealed[3:])
    for place in range(len(held)):
        changed = held[:place] + bytes([held[place] ^ 1]) + held[place + 1 :]
        assert seal.open("s1." + base64.b64encode(changed).decode(), "a/plan_1") is None
    for wrong in ("", "s1.", "s1.AAAA", TEXT, "s1.\u00e9", sealed[:-4]):
        assert seal.open(wrong, "a/plan_1") is None


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o707])
def test_a_folder_others_may_enter_is_refused(folder: Path, mode: int) -> None:
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(StoreError, match="chmod"):
        FileStore(folder)


def test_a_file_others_may_read_or_that_is_a_link_is_refused(folder: Path, tmp_path: Path) -> None:
    FileStore(folder)
    (folder / "plans.sqlite3").chmod(0o644)
    with pytest.raises(StoreError):
        FileStore(folder)
    (folder / "plans.sqlite3").unlink()
    (folder / "plans.sqlite3").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError):
        FileStore(folder)


def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot hold the store"):
        FileStore(tmp_path / "file" / "agent")


@pytest.mark.parametrize(
    "address",
    [
        "http://desk.example",
        "ftp://desk.example",
        "desk.example",
        "",
        "https://a:b@desk.example",
        "https://desk.example?x=1",
    ],
)
def test_an_address_that_would_show_the_key_is_refused(folder: Path, address: str) -> None:
    with pytest.raises(ValueError, match="address") as caught:
        Desk(address, API_KEY, agent="a", store=FileStore(folder))
    assert API_KEY not in str(caught.value)


def test_a_webhook_secret_that_is_none_is_told_at_once(folder: Path) -> None:
    with pytest.raises(ValueError, match="secret"):
        Desk("https://desk.example", API_KEY, agent="a", store=FileStore(folder), webhook_secret="")
