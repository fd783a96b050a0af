"""With real workers: from a plan to a mail, and what a worker that is killed while it sends leaves behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from django.db.models import F

from reviewer.bundled import tie_to_parent
from reviewer.celery import app
from reviewer.installation import PROJECT
from reviewer.notifications.models import Message, Notice
from reviewer.notifications.sending import LEASE
from tests.fixtures import stop_process
from tests.makers import make_plan
from tests.reviewer.notifications.doubles import MailServer, eventually, running

pytestmark = [pytest.mark.usefixtures("database"), pytest.mark.slow]
QUEUE = "notifications-test"


@pytest.fixture
def held_mail_server() -> Iterator[MailServer]:
    """A mail server for workers of their own; this process does not send."""
    with running(MailServer()) as server:
        yield server


@pytest.fixture
def start_worker(held_mail_server: MailServer) -> Iterator[Callable[[], "subprocess.Popen[bytes]"]]:
    """`start_worker()`: a worker of its own queue that sends through the double."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "celery", "-A", "reviewer.celery", "worker", "--pool", "threads", "-Q", QUEUE]
        process = subprocess.Popen(
            [*command, "--concurrency", "2", "--without-gossip", "--without-mingle", "--loglevel", "WARNING"],
            cwd=PROJECT,
            env={**os.environ, "EMAIL_HOST": "127.0.0.1", "EMAIL_PORT": str(held_mail_server.port)},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=tie_to_parent(signal.SIGKILL),
        )
        started.append(process)
        return process

    yield start
    for process in started:
        stop_process(process)


def beat() -> None:
    app.send_task("notifications.find", queue=QUEUE)
    app.send_task("notifications.send", queue=QUEUE)


def test_a_plan_becomes_a_mail_in_a_real_worker_and_only_once(held_mail_server, start_worker, make_reader):
    make_reader(email="mara@x.example")
    plan = make_plan()
    start_worker()
    eventually(lambda: (beat(), held_mail_server.mails)[1], within=60)
    for _ in range(3):
        beat()
    eventually(lambda: Message.objects.get().sent_at)
    [mail] = held_mail_server.mails
    assert mail["To"] == "mara@x.example"
    assert plan.plan_id in mail.get_body(("plain",)).get_content()
    assert Notice.objects.count() == 1


def test_a_worker_that_is_killed_while_it_sends_neither_loses_nor_doubles_the_mail(
    held_mail_server, start_worker, make_reader
):
    make_reader()
    make_plan()
    held_mail_server.holds.set()
    first = start_worker()
    eventually(lambda: (beat(), held_mail_server.arrived.is_set())[1], within=60)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait(10)
    held_mail_server.holds.clear()
    message = Message.objects.get()
    assert (message.sent_at, message.try_count) == (None, 1)
    start_worker()
    Message.objects.update(next_try_at=F("next_try_at") - LEASE)  # it is over
    eventually(lambda: (beat(), Message.objects.get().sent_at)[1], within=60)
    assert len(held_mail_server.mails) == 1
    assert Notice.objects.count() == 1
