"""Every word of a page goes through gettext: read in a language that puts brackets around what is translated."""

import ast
import re
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.urls import include, path
from django.utils import translation

from audit.recording import SYSTEM
from plans import callbacks, policy_forecast
from plans.demo.agents import HOSTED_AGENT
from plans.demo.operations import UpdateAddress
from plans.demo.story import TASK_PREFIX
from plans.errors import Sentence, keep, kept
from plans.models import Target
from plans.states import AbandonReason, State
from reviewer import presence, urls
from reviewer.notifications.changing import add_chat
from reviewer.notifications.chat import PARAMETERS, SERVICES
from reviewer.notifications.models import Channel
from reviewer.said import in_words, kept_in_words
from reviewer.streams.changing import create_stream
from reviewer.streams.models import Stream
from tests.hosted_plans import make_billing_agent, plan_address
from tests.makers import make_agent, make_person, make_plan, make_target, policy_of
from tests.reviewer.pages import approval, client_of, url_of

pytestmark = pytest.mark.usefixtures("database")

OPEN, CLOSE = "⟦", "⟧"
WORD = re.compile(r"[A-Za-z]{2,}")
# Names, values and marks that no language changes.
SAME = {
    "limit",
    "account",
    "nonce",
    "ledger",
    "scope",
    "key",
    "Person",
    "entry",
    "sha256",
    "Plandesk",
    "UTC",
    "Berlin",
    "Enter",
    "Esc",
    "min",
    "px",
}
MADE = re.compile(
    r"(agent|ledger|task|plan)[-_]\d+|\w+@plandesk\.example|pdk_\w+|https?://\S+|invoice/4412|ACC-104|of-\w+|[0-9a-f]{64}"
)
FOREIGN = {"code", "bdi", "q", "blockquote", "option", "textarea", "time"}
FOREIGN_CLASSES = {"mono", "foreign", "rec", "val", "chip", "more", "kw", "tok", "avatar", "brand"}
LENA = ("Lena Brandt", "LB", "Person", "Europe/Berlin")
NOTIFICATIONS = "/settings/notifications/"
SAID = ("aria-label", "title", "placeholder", "alt")


@pytest.fixture
def bracketed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A language in which every text is itself, in brackets; what is put in stays outside them."""

    def one(text: str) -> str:
        return OPEN + re.sub(r"(%\(\w+\)[-#0-9.]*[sdrfg])", rf"{CLOSE}\1{OPEN}", str(text)) + CLOSE

    active = translation._trans  # type: ignore[attr-defined]
    translation.gettext("")  # so that the names below are there to be replaced
    monkeypatch.setattr(active, "gettext", one, raising=False)
    monkeypatch.setattr(active, "pgettext", lambda context, text: one(text), raising=False)
    monkeypatch.setattr(active, "ngettext", lambda a, b, n: one(a if n == 1 else b), raising=False)
    monkeypatch.setattr(active, "npgettext", lambda c, a, b, n: one(a if n == 1 else b), raising=False)


class Words(HTMLParser):
    """Collects the words of a page that stand in no brackets and are nobody's data."""

    def __init__(self, known: set[str]) -> None:
        super().__init__()
        self.known = known
        self.found: list[tuple[str, str]] = []
        self.path: list[tuple[str, bool]] = []
        self.is_inside = False  # brackets may hold markup

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        if tag not in ("meta", "link", "input", "br", "img", "path", "rect", "circle", "ellipse", "col"):
            classes = set((given.get("class") or "").split())
            self.path.append((tag, bool(classes & FOREIGN_CLASSES) or tag in FOREIGN or tag in ("script", "style")))
        for name in SAID:
            if given.get(name) and not any(is_foreign for _tag, is_foreign in self.path):
                self._look(str(given[name]))

    def handle_endtag(self, tag: str) -> None:
        while self.path and self.path.pop()[0] != tag:
            pass

    def handle_data(self, text: str) -> None:
        outside = ""
        for character in text:
            if character in (OPEN, CLOSE):
                self.is_inside = character == OPEN
            elif not self.is_inside:
                outside += character
        text = outside
        if not any(is_foreign for _tag, is_foreign in self.path):
            self._look(text)

    def _look(self, text: str) -> None:
        outside = re.sub(f"{OPEN}[^{CLOSE}]*{CLOSE}", " ", text)
        for known in sorted(self.known, key=len, reverse=True):
            outside = outside.replace(known, " ")
        if words := [word for word in WORD.findall(MADE.sub(" ", outside)) if word not in SAME]:
            self.found.append((" ".join(words), text.strip()[:120]))


def untranslated(html: str, known: set[str]) -> list[Any]:
    words = Words(known)
    words.feed(html)
    return words.found


def touching(name: str) -> dict[str, Any]:
    """A plan on a record of its own, so that none is in another's way."""
    return {"actions": [{"op": "update", "target": f"ledger/{name}", "field": "limit", "from": 1, "to": 2}]}


def names_of(*things: Any) -> set[str]:
    return {str(thing) for thing in things}


def test_no_word_of_a_page_is_left_out_of_the_translation(bracketed):
    admin = make_person("reviewer", "admin", "auditor", name="Lena Brandt", time_zone="Europe/Berlin")
    target = make_target("orders-db")
    made = make_agent(target, name="order-bot", owner=make_person("admin", name="Tom Okafor"))
    lost = make_plan(made=made, target=target, summary="Because")
    presence.note(plan_pk=lost.pk, person_pk=make_person("reviewer", name="Tom Okafor").pk)
    hard = [{"op": "delete", "target": "key/1", "from": {"scope": "read"}, "reversible": False}]
    plans = [
        lost,
        make_plan(made=made, target=target, plan={"actions": hard}, intent="hard"),
        *(
            make_plan(state, made=made, target=target, intent=f"of-{state.value}", plan=touching(state))
            for state in State
        ),
        *(make_plan("abandoned", reason=reason) for reason in AbandonReason),
        make_plan(made=make_agent(target, owner=admin, name="own-bot"), target=target),
    ]
    known = names_of(*LENA, "Tom Okafor", "TO", "orders-db", "order-bot", "own-bot", "limit.update",
                     "Person", "hard", "billing", "address.update", "refund",
                     admin.email, *(plan.plan_id for plan in plans))  # fmt: skip
    client = client_of(admin)
    paths = ["/", "/?show=unknown", "/?agent=nobody", "/history/", "/history/?state=x", "/settings/", "/agents/",
             "/agents/order-bot/", "/targets/", "/targets/orders-db/", "/callbacks/", "/streams/", "/people/",
             NOTIFICATIONS, "/nowhere/", f"/people/{admin.pk}/", *map(url_of, plans)]  # fmt: skip
    wrong = {found for path in paths for found in untranslated(client.get(path).content.decode(), known)}
    assert wrong == set()


def test_what_a_policy_would_ask_for_is_told_in_the_readers_language(bracketed, monkeypatch):
    target = make_target("orders-db")
    make_plan(target=target, made=make_agent(target, name="order-bot"))
    client = client_of(make_person("admin", name="Lena Brandt"))
    known = names_of(*LENA, "orders-db", "order-bot", "address.update")
    rules = ["approvals=1", "approvals=2&is_guarded=on&refuses_unconfirmed=on", "approvals=0", "approvals=few"]
    answers = [client.get(f"/targets/orders-db/policy/?{rule}", headers={"HX-Request": "true"}) for rule in rules]
    monkeypatch.setattr(policy_forecast, "MOST", 1)
    answers.append(client.get("/targets/orders-db/policy/?approvals=1", headers={"HX-Request": "true"}))
    plan_address(agent=make_billing_agent().agent)
    policy_of(Target.objects.get(name="billing"), approvals=1)
    plan_address()
    monkeypatch.setattr(UpdateAddress, "approvals", lambda *_: None)
    answers.append(client.get("/targets/billing/policy/?approvals=", headers={"HX-Request": "true"}))
    assert "⟦This can't be told: the operation ⟧address.update⟦ failed" in unescape(answers[-1].content.decode())
    assert [answer.status_code for answer in answers] == [200] * 6
    wrong = {found for answer in answers for found in untranslated(answer.content.decode(), known)}
    assert wrong == set()


def test_no_answer_to_a_press_is_left_out_of_the_translation(bracketed):
    client, plan = client_of(make_person("reviewer", name="Lena Brandt")), make_plan()
    known = names_of("Lena Brandt", "LB", plan.plan_id, plan.agent.name, plan.target.name, "limit.update", "Person")
    answers = [
        client.post(url_of(plan, "reject"), approval(plan)),
        client.post(url_of(plan, "approve"), approval(plan) | {"digest": "0" * 64}),
        client.post(url_of(plan, "settle"), {"reason": "seen"}),
        client.post(url_of(plan, "replan")),
        client.post(url_of(plan, "reject"), approval(plan, reason="Wrong account")),
        client.post(url_of(plan, "approve"), approval(plan)),
    ]
    assert [answer.status_code for answer in answers] == [422, 503, 409, 409, 200, 409]
    wrong = {found for answer in answers for found in untranslated(answer.content.decode(), known)}
    assert wrong == set()


def test_a_sentence_of_the_domain_is_translated_by_its_template_and_values_in_it_too(bracketed):
    sentence = Sentence("The %(what)s must be %(how)s.", what=Sentence("base URL"), how="https")
    assert sentence == "The base URL must be https."
    assert in_words(sentence) == "⟦The ⟧⟦base URL⟧⟦ must be ⟧https⟦.⟧"
    assert in_words("") == ""
    plain = Sentence("The %(what)s must be %(how)s.", what="base URL", how="https")
    assert kept_in_words(keep(sentence)) == in_words(plain)
    assert kept(keep(sentence)) == sentence
    assert keep(Sentence("Nothing was sent.")) == kept("Nothing was sent.") == "Nothing was sent."


REFUSALS = {
    "DecisionRefused", "RegistryError", "PolicyError", "PersonError", "CannotChange", "NotDelivered", "BadAddress",
    "BadSubscription", "StreamRefused", "BeyondTheLog", "NotSent", "NoAnswer", "CannotPlay", "NoDemonstration",
}  # fmt: skip
"""What people read why, with one sentence as its last argument."""


def sentences() -> Iterator[tuple[str, int, ast.Call]]:
    for file in [*Path("plans").glob("*.py"), *Path("plans/demo").glob("*.py"), *Path("reviewer").rglob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call):
                name = node.func.id if isinstance(node.func, ast.Name) else ""
                if name in REFUSALS:
                    yield str(file), node.lineno, node


def test_no_refusal_that_people_read_is_put_together_from_pieces():
    found = list(sentences())
    assert len(found) > 30
    assert [
        (path, line) for path, line, call in found if any(isinstance(arg, ast.JoinedStr) for arg in call.args)
    ] == []
    plain = [
        (path, line)
        for path, line, call in found
        for arg in call.args[-1:]
        if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
    ]
    assert plain == []


@pytest.mark.slow
def test_no_refusal_about_notifications_and_streams_is_left_out_of_the_translation(bracketed, settings):
    settings.EMAIL_HOST = ""
    admin = make_person("reviewer", "admin", name="Lena Brandt")
    client = client_of(admin)
    client.get(NOTIFICATIONS)
    mail = Channel.objects.get(person=admin)
    chat = add_chat(person=admin, address="jsons://127.0.0.1:9/hook")
    Channel.objects.filter(pk=mail.pk).update(
        failing_since="2026-11-30T21:04:05Z",
        last_failure=keep(Sentence("The mail server answered %(code)s.", code=451)),
    )
    create_stream(name="siem", url="https://siem.example/hook", by=SYSTEM)
    error = keep(Sentence("The destination answered %(status)d.", status=503))
    Stream.objects.update(failures=2, last_error=error)
    known = names_of("siem", "jsons", "EMAIL_HOST", ", ".join(SERVICES), ", ".join(sorted(PARAMETERS)), "jsonjson",
                     "slack", *LENA, admin.email)  # fmt: skip
    addresses = ["", "smtp://x", "json://x/", "jsons://x/?verify=no", "slack://x", "jsons://127.0.0.1:9/hook", "a b"]
    answers = [
        *(client.post(NOTIFICATIONS, {"do": "chat", "address": address}) for address in addresses),
        *(client.post(NOTIFICATIONS, {"do": do, "channel": mail.pk}) for do in ("test", "remove")),
        client.post(NOTIFICATIONS, {"do": "test", "channel": chat.pk}),
        client.post(NOTIFICATIONS, {"do": "push", "endpoint": "x", "p256dh": "x", "auth": "x"}),
        client.post("/streams/", {"do": "create", "name": "siem", "url": "https://x.example/", "from_index": 0}),
        client.post("/streams/", {"do": "create", "name": "other", "url": "ftp://x.example/", "from_index": 0}),
        client.post("/streams/", {"do": "create", "name": "other", "url": "https://x.example/", "from_index": 999999}),
        client.get("/streams/"),
        client.get("/streams/siem/"),
    ]
    why = keep(Sentence("The mail server answered %(code)s.", code=451))
    Channel.objects.filter(pk=chat.pk).update(failing_since="2026-11-30T21:04:05Z", last_failure=why)
    answers.append(client.get(NOTIFICATIONS))
    assert [answer.status_code for answer in answers] == [422] * 7 + [200, 409, 200] + [422] * 4 + [200] * 3
    wrong = {found for answer in answers for found in untranslated(answer.content.decode(), known)}
    assert wrong == set()
    assert "⟦The mail server answered ⟧451⟦.⟧" in answers[-1].content.decode()
    assert "⟦The destination answered ⟧503⟦.⟧" in answers[-2].content.decode()


def test_what_a_callbacks_attempt_and_a_targets_test_came_to_is_translated(bracketed, settings):
    settings.CALLBACK_ALLOW_PRIVATE = True
    admin = make_person("admin", name="Lena Brandt")
    target = make_target("orders-db")
    made = make_agent(target, name="order-bot", callback_url="http://127.0.0.1:9/told", owner=admin)
    make_plan("rejected", made=made, target=target)
    assert callbacks.deliver_due() == 1
    client = client_of(admin)
    answers = [client.get("/callbacks/"), client.post("/targets/orders-db/", {"do": "test"})]
    assert [answer.status_code for answer in answers] == [200, 200]
    for answer in answers:
        assert "⟦No connection: ⟧Connection refused⟦.⟧" in answer.content.decode()


def test_the_demonstration_is_told_in_the_readers_language_and_a_state_in_the_desks_words(bracketed, settings):
    with_the_demonstration = ModuleType("with_the_demonstration")
    with_the_demonstration.urlpatterns = [  # type: ignore[attr-defined]  # as every module of addresses has
        *urls.urlpatterns,
        path("demo/", include("reviewer.views.demo")),
    ]
    settings.ROOT_URLCONF = with_the_demonstration
    target = make_target("billing-here")
    made = make_agent(target, name=HOSTED_AGENT)
    told = {"task_id": f"{TASK_PREFIX}1", "inputs": {"invoice_id": "4412", "amount_cents": 48_000}}
    first = make_plan("conflicted", made=made, target=target, plan=touching("one"), **told)
    client = client_of(make_person("reviewer", name="Lena Brandt"))
    pages = [client.get("/demo/")]
    assert "⟦Conflict, nothing written⟧" in pages[0].content.decode()
    second = make_plan(
        "abandoned", made=made, target=target, plan=touching("one"), replaces=first.plan_id,
        reason=AbandonReason.INPUTS_CHANGED, **told,
    )  # fmt: skip
    pages += [client.get("/demo/"), client.post("/demo/interfere"), client.post("/demo/nowhere")]
    assert [page.status_code for page in pages] == [200, 200, 409, 404]
    text = pages[1].content.decode()
    assert "⟦Dropped: its record was written to⟧" in text
    assert "inputs_changed" not in text
    known = names_of("Lena Brandt", "LB", first.plan_id, second.plan_id, target.name, "Person", "update", "ledger/one")
    wrong = {found for page in pages for found in untranslated(page.content.decode(), known)}
    assert wrong == set()
