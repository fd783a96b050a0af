"""Signing in and out, over HTTP."""

import re
from urllib.parse import urlencode

import pytest
from django.conf import settings

from audit.models import Event
from tests.fixtures import PASSWORD

pytestmark = pytest.mark.usefixtures("database")

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
ELSEWHERE = [
    "//evil.example",
    "/\\evil.example",
    "/\t/evil.example",
    "/\n/evil.example",
    "https:evil.example",
    "https://evil.example/",
    "http:///evil.example",
    "javascript:alert(1)",
    "\\\\evil.example",
    " //evil.example",
    "///evil.example",
]


class Visitor:
    """A browser's cookies, without the browser."""

    def __init__(self, site):
        self.site = site
        self.cookies = {}

    def send(self, method, path, body=None, **headers):
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        sent = {"Cookie": cookie, "Referer": self.site.url + "/", **headers}
        answer = self.site.request(method, path, body=urlencode(body) if body else None, headers={**FORM, **sent})
        for line in answer.headers.getlist("Set-Cookie"):
            name, value = re.match(r"\s*([^=]+)=([^;]*)", line).groups()
            self.cookies[name] = value
        return answer

    def sign_in(self, email, password=PASSWORD, path="/login/", **fields):
        page = self.send("GET", path)
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.data.decode()).group(1)
        fields = {"csrfmiddlewaretoken": token, "login": email, "password": password, **fields}
        return self.send("POST", path, fields)


def kinds():
    return list(Event.objects.order_by("at", "id").values_list("kind", flat=True))


def test_a_person_signs_in_and_it_is_an_event(site, make_person):
    make_person("reviewer", email="ada@example.com")
    visitor = Visitor(site)
    answer = visitor.sign_in("ada@example.com")
    assert (answer.status, answer.headers["Location"]) == (302, "/")
    assert settings.SESSION_COOKIE_NAME in visitor.cookies
    assert kinds() == ["login.succeeded"]


def test_the_address_is_taken_in_any_case(site, make_person):
    make_person("reviewer", email="ada@example.com")
    assert Visitor(site).sign_in(" Ada@Example.COM ").status == 302


@pytest.mark.parametrize(
    ("email", "password"), [("ada@example.com", "not it at all"), ("nobody@example.com", PASSWORD)]
)
def test_a_wrong_password_and_an_unknown_address_get_the_same_answer(site, make_person, email, password):
    make_person("reviewer", email="ada@example.com")
    answer = Visitor(site).sign_in(email, password)
    assert answer.status == 200
    assert "or the password is wrong" in answer.data.decode()
    assert kinds() == ["login.failed"]
    assert password not in str(list(Event.objects.values()))


def test_a_disabled_person_gets_the_answer_of_a_wrong_password(site, make_person):
    person = make_person("reviewer", email="ada@example.com")
    person.is_active = False
    person.save(update_fields=["is_active"])
    answer = Visitor(site).sign_in("ada@example.com")
    assert answer.status == 200
    assert "or the password is wrong" in answer.data.decode()


def test_five_failures_lock_the_address_also_for_the_right_password(site, make_person):
    make_person("reviewer", email="ada@example.com")
    for _ in range(5):
        Visitor(site).sign_in("ada@example.com", "not it at all")
    answer = Visitor(site).sign_in("ada@example.com")
    assert answer.status == 200
    assert "Too many failed" in answer.data.decode()


def test_l129_a_forwarded_address_that_nobody_vouches_for_does_not_count(site, make_person):
    make_person("reviewer", email="ada@example.com")
    for value in ("203.0.113.9", "garbage", "9" * 5000):
        visitor = Visitor(site)
        visitor.send("GET", "/login/", **{"X-Forwarded-For": value})
        assert visitor.sign_in("ada@example.com").status == 302
        assert visitor.send("GET", "/login/", **{"X-Forwarded-For": value}).status < 500
    payloads = str(list(Event.objects.values())) + payload_texts()
    assert "203.0.113.9" not in payloads
    assert "127.0.0.1" in payloads


def payload_texts():
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT coalesce(string_agg(p::text, ' '), '') FROM audit_payload p")
        return cursor.fetchone()[0]


@pytest.mark.parametrize("elsewhere", ELSEWHERE)
def test_a136_next_never_leaves_the_site(site, make_person, elsewhere):
    make_person("reviewer", email="ada@example.com")
    answer = Visitor(site).sign_in("ada@example.com", next=elsewhere)
    assert (answer.status, answer.headers["Location"]) == (302, "/")
    answer = Visitor(site).sign_in("ada@example.com", path="/login/?" + urlencode({"next": elsewhere}))
    assert (answer.status, answer.headers["Location"]) == (302, "/")


def test_a136_next_leads_back_to_a_page_here(site, make_person):
    make_person("reviewer", email="ada@example.com")
    answer = Visitor(site).sign_in("ada@example.com", next="/plans/bot/billing/plan_1/?tab=history")
    assert answer.headers["Location"] == "/plans/bot/billing/plan_1/?tab=history"


def test_without_a_csrf_token_nobody_signs_in(site, make_person):
    make_person("reviewer", email="ada@example.com")
    answer = site.request("POST", "/login/", body=urlencode({"login": "ada@example.com"}), headers=FORM)
    assert answer.status == 403
    assert "session changed" in answer.data.decode()
    assert kinds() == []


def test_v101_under_htmx_a_dead_token_is_a_short_message(site):
    answer = site.request("POST", "/login/", body="login=x", headers={**FORM, "HX-Request": "true"})
    assert answer.status == 403
    assert "<html" not in answer.data.decode()
    assert "Reload the page" in answer.data.decode()


def test_signing_out_ends_the_session(site, make_person):
    make_person("reviewer", email="ada@example.com")
    visitor = Visitor(site)
    visitor.sign_in("ada@example.com")
    stolen = visitor.cookies[settings.SESSION_COOKIE_NAME]
    page = visitor.send("GET", "/logout/")
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.data.decode()).group(1)
    assert visitor.send("POST", "/logout/", {"csrfmiddlewaretoken": token}).headers["Location"] == "/login/"
    visitor.cookies[settings.SESSION_COOKIE_NAME] = stolen
    assert visitor.send("GET", "/logout/").status == 302


def test_signing_out_takes_a_post(site, make_person):
    make_person("reviewer", email="ada@example.com")
    visitor = Visitor(site)
    visitor.sign_in("ada@example.com")
    assert visitor.send("GET", "/logout/").status == 200
    assert visitor.send("GET", "/logout/").status == 200


def test_there_is_no_signing_up(site):
    assert site.request("GET", "/signup/").status == 404
    assert "sign up" not in site.request("GET", "/login/").data.decode().lower()


def test_headers_are_strict_from_the_first_page_on(site):
    headers = site.request("GET", "/login/").headers
    assert headers["Content-Security-Policy"] == (
        "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "same-origin"
    assert "no-store" in headers["Cache-Control"]
    assert "HX-Request" in headers["Vary"]
    assert headers["X-Request-Id"].startswith("req_")


@pytest.mark.slow
def test_cookies_are_secure_where_the_site_is_https(make_site):
    site = make_site(BASE_URL="https://localhost")
    cookies = " ".join(site.request("GET", "/login/").headers.getlist("Set-Cookie"))
    assert "__Host-csrf=" in cookies
    assert "Secure" in cookies
    assert "HttpOnly" in cookies
    assert "SameSite=Lax" in cookies


@pytest.mark.parametrize("path", ["/api/v1/nothing-here", "/webhooks/", "/webhooks/a/b/c"])
def test_machines_get_problem_documents(site, path):
    answer = site.request("GET", path)
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["status"] == answer.status
    assert answer.headers["Cache-Control"] == "no-store"


def test_a_host_that_is_not_ours_is_refused_without_html_for_machines(site):
    answer = site.request("GET", "/api/v1/nothing-here", headers={"Host": "evil.example"})
    assert answer.status == 400
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert site.request("GET", "/login/", headers={"Host": "evil.example"}).status == 400


def test_health_needs_no_session_and_tells_nothing(site):
    answer = site.request("GET", "/healthz")
    assert answer.json() == {"status": "ok"}
    assert "Set-Cookie" not in answer.headers
