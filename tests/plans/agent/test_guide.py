"""What docs/agents.md shows works as it stands there, against the real desk."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from plans import registry
from plans.demo.models import Customer
from plans.models import Plan as Row
from plans.review import approve_plan
from plans.schema import shown_digest
from reviewer.installation import PROJECT
from tests import makers
from tests.fixtures import Site
from tests.plans.demo.makers import make_invoice
from tests.stub_target import StubTarget

GUIDE = (PROJECT / "docs" / "agents.md").read_text()
BLOCKS = re.findall(r"(?:<!-- example: (\w+) -->\n)?```python\n(.*?)```", GUIDE, re.DOTALL)
EXAMPLES = dict(BLOCKS)
SET_UP = EXAMPLES[""] + EXAMPLES["outcomes"]


@pytest.fixture
def planner(stub_target: StubTarget) -> Iterator[str]:
    """A target's door for dry runs, which plans at the stub and writes nothing."""

    class Door(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            body = json.dumps(stub_target.new_plan()).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Door) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture
def environ(site: Site, stub_target: StubTarget, planner: str) -> dict[str, str]:
    registry.ensure_hosted_targets()
    makers.make_target("ledger", base_url=stub_target.base_url, approvals=0)
    make_invoice()
    made = registry.create_agent(name="refund-bot", owner=makers.make_person("admin"), targets=["billing", "ledger"])
    keys = {"DESK_API_KEY": made.api_key, "DESK_WEBHOOK_SECRET": made.webhook_secret}
    return {"DESK": site.url, "TARGET": planner, "PATH": os.environ["PATH"], "PYTHONPATH": str(PROJECT), **keys}


def start(example: str, environ: dict[str, str], folder: Path) -> "subprocess.Popen[str]":
    first = "" if example == "first" else EXAMPLES["first"].splitlines()[0] + "\n"
    code = SET_UP + first + EXAMPLES[example]
    command = [sys.executable, "-u", "-W", "error", "-c", code]
    return subprocess.Popen(command, cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(example: str, environ: dict[str, str], folder: Path) -> str:
    with start(example, environ, folder) as agent:
        out, err = agent.communicate(timeout=60)
    assert (agent.returncode, err) == (0, "")
    return out


def test_every_example_of_the_guide_has_a_test() -> None:
    names = [name for name, _ in BLOCKS]
    assert sorted(names) == sorted(["", "first", "outcomes", "wait", "replan", "write", "submit", "async"])


@pytest.mark.parametrize(
    ("example", "said", "address"),
    [
        (
            "first",
            "update customer/77\ndone: {'address': '2 Harbour Street', 'customer_id': '77'}\n",
            "2 Harbour Street",
        ),
        ("replan", "done: {'address': '3 Mill Lane', 'customer_id': '77'}\n", "3 Mill Lane"),
        ("async", "done: {'address': '5 Harbour Street', 'customer_id': '77'}\n", "5 Harbour Street"),
    ],
)
def test_the_examples_that_write_do_so_once(
    environ: dict[str, str], tmp_path: Path, example: str, said: str, address: str
) -> None:
    assert run(example, environ, tmp_path) == said
    assert Customer.objects.get(pk="77").address == address
    assert Row.objects.get().state == "committed"


def test_the_example_that_writes_past_its_plan_sends_nothing(environ: dict[str, str], tmp_path: Path) -> None:
    said = run("write", environ, tmp_path)
    assert said == "we wrote to customer/77 ourselves, so it was not sent; plan again\n"
    assert Row.objects.get().abandonment.reason == "inputs_changed"


def test_the_example_with_a_remote_target_is_fed_and_committed(
    environ: dict[str, str], tmp_path: Path, stub_target: StubTarget
) -> None:
    assert run("submit", environ, tmp_path).startswith("done: ")
    assert stub_target.applied == 1
    assert Row.objects.get().summary == "Raise the limit of ACC-104 to 250"


def test_the_example_that_waits_is_told_of_the_decision(environ: dict[str, str], tmp_path: Path) -> None:
    with start("wait", environ, tmp_path) as agent:
        assert agent.stdout is not None
        rescue = threading.Timer(60, agent.kill)  # whatever goes wrong here, it does not wait for ten minutes
        rescue.start()
        assert agent.stdout.readline().startswith("ask for a decision at http")
        row = Row.objects.select_related("agent", "target", "task", "policy").get()
        time.sleep(0.3)
        digest = shown_digest(row)
        approve_plan(plan_pk=row.pk, person=makers.make_person("reviewer"), seen_digest=digest, fact="48000")
        said, err = agent.communicate(timeout=30)
        rescue.cancel()
    assert (agent.returncode, err) == (0, "")
    assert said.startswith("done: ")


def test_what_the_guide_links_to_and_names_is_there() -> None:
    import plans.agent

    for link in re.findall(r"\]\(((?!http)[^)#]+)\)", GUIDE):
        assert link == "frameworks.md" or (PROJECT / "docs" / link).exists()
    for name in re.findall(r"`([A-Z]\w+)`", GUIDE):
        assert hasattr(plans.agent, name), name
