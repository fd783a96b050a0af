"""The bridge from the event loop to Django: what arrives is what a plain WSGI server would have handed on."""

import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from plans.models import Plan
from tests.fixtures import Site, start_site, stop_process
from tests.ground import free_port
from tests.makers import envelope, feed_data, make_agent, make_person, make_plan, make_target
from tests.plans.http import signed
from tests.reviewer.open_connections import Connection, cookies_of, press_approve
from tests.reviewer.pages import url_of
from tests.stub_target import Hold, StubTarget

pytestmark = [pytest.mark.usefixtures("database"), pytest.mark.slow]


@pytest.fixture(scope="module")
def _plain_site(ground) -> Iterator[Site]:
    site = start_site(free_port(), arguments=["--wsgi", "--workers", "1"], BASE_URL=ground.url)
    yield site
    stop_process(site.process)


@pytest.fixture
def plain_site(_plain_site: Site, database: None) -> Site:
    """The same site without an event loop."""
    return _plain_site


@pytest.fixture(params=["event loop", "plain"])
def either(request, site, plain_site) -> Site:
    """The site on each kind of server."""
    return site if request.param == "event loop" else plain_site


REQUESTS = {
    "page": ("GET", "/login/?next=/history/", {}),
    "head": ("HEAD", "/login/", {}),
    "not found": ("GET", "/%2e%2e/etc", {}),
    "encoded path": ("GET", "/plans/a%2Fb/%C3%A9/%FF/", {}),
    "encoded name of a door": ("GET", "/api/v1/pl%61ns/none", {}),
    "method": ("DELETE", "/webhooks/nobody", {}),
    "host": ("GET", "/login/", {"Host": "elsewhere.example"}),
    "static": ("GET", "/static/reviewer/shell.css", {}),
    "unchanged": ("GET", "/static/reviewer/shell.css", {"If-Modified-Since": "Thu, 01 Jan 2099 00:00:00 GMT"}),
    "range": ("GET", "/static/reviewer/shell.css", {"Range": "bytes=0-9"}),
}
VARYING = {"x-request-id", "date", "set-cookie", "connection", "transfer-encoding", "content-length"}


@pytest.mark.parametrize(("method", "path", "headers"), REQUESTS.values(), ids=REQUESTS.keys())
def test_both_servers_answer_the_same(site, plain_site, method, path, headers):
    def answer(server: Site):
        response = server.http.request(method, server.url + path, headers=headers, redirect=False)
        told = {name.lower(): value for name, value in response.headers.items() if name.lower() not in VARYING}
        body = b"" if b"csrfmiddlewaretoken" in response.data else response.data
        return response.status, told, body

    assert answer(site) == answer(plain_site)


def feed_request(made, body: bytes, host: str, *, chunked: bool) -> bytes:
    headers = signed(made.webhook_secret, body)
    lines = [f"POST /webhooks/{made.agent.name} HTTP/1.1", f"Host: {host}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if not chunked:
        return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body
    pieces = [body[start : start + 1000] for start in range(0, len(body), 1000)]
    coded = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    return "\r\n".join([*lines, "Transfer-Encoding: chunked", "", ""]).encode() + coded


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_a_body_arrives_whole_however_it_is_sent(either, chunked):
    made = make_agent(target := make_target())
    body = envelope(feed_data(target.name, summary="x" * 1900))
    request = feed_request(made, body, urlsplit(either.url).netloc, chunked=chunked)
    with Connection(either, "", request=request) as agent:
        assert agent.status == 201, agent.received
        assert agent.json["state"] == "pending"


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_a_body_beyond_the_limit_is_413_and_one_at_the_limit_is_read(either, chunked):
    made = make_agent(make_target())
    host = urlsplit(either.url).netloc
    with Connection(either, "", request=feed_request(made, b" " * (1024 * 1024), host, chunked=chunked)) as agent:
        assert agent.status == 400  # read whole, and no JSON
    with Connection(either, "", request=feed_request(made, b" " * (1024 * 1024 + 1), host, chunked=chunked)) as agent:
        assert agent.status == 413
        assert agent.json["type"].endswith("/too-large")


@pytest.mark.parametrize(("mebibytes", "header"), [(2, "Expect: 100-continue"), (9, "Accept: */*")])
def test_a_body_that_is_held_back_or_much_too_much_is_refused_before_it_is_sent(site, mebibytes, header):
    made = make_agent(make_target())
    head, _, _ = feed_request(made, b"", urlsplit(site.url).netloc, chunked=False).partition(b"Content-Length")
    request = head + f"{header}\r\nContent-Length: {mebibytes * 1024 * 1024}\r\n\r\n".encode()
    with Connection(site, "", request=request) as agent:
        agent.read_until("\r\n\r\n", seconds=8)  # a body is waited for for 20
        assert agent.status == 413


def test_a_header_with_an_underscore_does_not_pass_for_the_one_that_a_proxy_is_believed(make_site):
    site = make_site(TRUSTED_PROXIES="127.0.0.1", HSTS_SECONDS="60")
    for name, is_believed in (("X-Forwarded-Proto", True), ("X_Forwarded_Proto", False)):
        response = site.request("GET", "/login/", headers={name: "https"})
        assert ("Strict-Transport-Security" in response.headers) is is_believed


def test_an_approval_is_carried_out_though_its_browser_has_left(site):
    browser = cookies_of(make_person("reviewer"))
    with StubTarget() as stub:
        hold = Hold()
        stub.script(hold)
        plan = make_plan(target=make_target(base_url=stub.base_url))
        from plans.schema import shown_digest

        body = f"digest={shown_digest(plan)}".encode()
        lines = [f"POST {url_of(plan, 'approve')} HTTP/1.1", f"Host: {urlsplit(site.url).netloc}"]
        lines += [f"{name}: {value}" for name, value in browser.items()]
        lines += ["Content-Type: application/x-www-form-urlencoded", f"Content-Length: {len(body)}", "", ""]
        with Connection(site, "", request="\r\n".join(lines).encode() + body):
            assert hold.reached.wait(30)
        time.sleep(0.3)
        hold.until.set()
        deadline = time.monotonic() + 15
        while Plan.objects.get(pk=plan.pk).state != "committed":
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_body_that_is_cut_short_decides_nothing(site):
    browser = cookies_of(make_person("reviewer"))
    plan = make_plan()
    lines = [f"POST {url_of(plan, 'approve')} HTTP/1.1", f"Host: {urlsplit(site.url).netloc}"]
    lines += [f"{name}: {value}" for name, value in browser.items()]
    lines += ["Content-Type: application/x-www-form-urlencoded", "Content-Length: 1000", "", "digest="]
    with Connection(site, "", request="\r\n".join(lines).encode()):
        time.sleep(0.3)
    time.sleep(0.5)
    assert plan.approvals.count() == 0
    assert press_approve(site, browser, plan).status == 503  # a target that answers nobody: the site is well
