"""Somebody at the desk without scripts: cookies, links and forms."""

import html
import http.cookies
import re
import urllib.parse
from dataclasses import dataclass, field

import urllib3


@dataclass
class Visitor:
    """A browser without scripts: cookies, forms, and nothing else."""

    url: str
    http: urllib3.PoolManager = field(default_factory=lambda: urllib3.PoolManager(retries=False, timeout=60))
    cookies: dict[str, str] = field(default_factory=dict)
    page: str = ""

    def ask(self, method: str, path: str, fields: dict[str, str] | None = None) -> int:
        headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items()), "Origin": self.url}
        if fields is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        body = None if fields is None else urllib.parse.urlencode(fields)
        answer = self.http.request(method, self.url + path, headers=headers, body=body, redirect=False)
        for line in answer.headers.getlist("Set-Cookie"):
            self.cookies |= {name: morsel.value for name, morsel in http.cookies.SimpleCookie(line).items()}
        self.page = answer.data.decode()
        return answer.status

    def get(self, path: str) -> int:
        return self.ask("GET", path)

    def press(self, action: str, **typed: str) -> int:
        """Submits the form of the present page that goes to `action` (or is marked so), with its hidden fields."""
        for found in re.finditer(r"<form\b([^>]*)>(.*?)</form>", self.page, re.DOTALL):
            address = re.search(r'action="([^"]*)"', found[1])
            if address and (f'data-action="{action}"' in found[1] or address[1] == action):
                hidden = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', found[2])
                fields = {name: html.unescape(value) for name, value in hidden} | typed
                return self.ask("POST", html.unescape(address[1]), fields)
        raise AssertionError(f"there is no form for {action} on this page")

    def sign_in(self, email: str, password: str) -> None:
        self.get("/login/")
        assert self.press("/login/", login=email, password=password) == 302, self.page

    @property
    def state(self) -> str:
        found = re.search(r'id="plan"[^>]*data-state="([a-z]+)"|data-state="([a-z]+)"[^>]*id="plan"', self.page)
        return (found[1] or found[2]) if found else ""
