"""What the tests of the dashboard hold in their hands: a person without a browser, and one with."""
import json
import threading
import urllib.request

from selenium.webdriver.common.by import By

from conftest import ROOT, wait_for
from relay import http
from web_rig import Page, free_port
from web_rig import wait_for as wait_page

AXE = ROOT / "build/npm/node_modules/axe-core/axe.min.js"
SECRET = "an-admin-token-of-some-length"
CONFIG = """\
listen: 127.0.0.1:{port}
state_dir: {{state}}
admin: {{{{token: {token}}}}}
delivery: {{{{max_attempts: 1}}}}
wake: {{{{allow_private: true}}}}
platforms:
  - {{{{platform: web, bot: lobby}}}}
  - {{{{platform: web, bot: attic}}}}
{more}"""


def config(more="", token=SECRET):
    return CONFIG.format(port=free_port(), token=token, more=more)


class Person:
    """Somebody at the dashboard, without a browser."""

    def __init__(self, server, *, cookie=None, headers=None):
        self.server, self.cookie, self.headers, self.csrf = server, cookie, headers or {}, ""

    def ask(self, name, body=None, **headers):
        headers = {**self.headers, **({"Cookie": self.cookie} if self.cookie else {}), **headers}
        if body is not None:
            headers.setdefault("X-Bellhop-Csrf", self.csrf)
        headers = {k: v for k, v in headers.items() if v is not None}
        return http("POST" if body is not None else "GET", f"{self.server.url}/dashboard/api/{name}", body, headers)

    def sign_in(self, **how):
        answer = self.ask("signin", how)
        if answer.status == 200:
            self.set_cookie = answer.headers["Set-Cookie"]
            self.cookie = self.set_cookie.split(";")[0]
            self.csrf = answer.json["csrf"]
        return answer

    def call(self, op, **args):
        answer = self.ask(op, args)
        assert answer.status == 200, (op, answer.status, answer.text)
        return answer.json

    def session(self):
        return self.ask("session").json

    def events(self):
        return Events(self)


class Events:
    """The stream of a page: a list that grows."""

    def __init__(self, person):
        request = urllib.request.Request(f"{person.server.url}/dashboard/api/events", headers={"Cookie": person.cookie, **person.headers})
        self.answer, self.got, self.person, self.over = urllib.request.urlopen(request, timeout=60), [], person, False
        threading.Thread(target=self._read, daemon=True).start()
        self.stream = self.first("hello")["stream"]

    def _read(self):
        kind = None
        try:
            for line in self.answer:
                line = line.decode().rstrip("\n")
                if line.startswith("event: "):
                    kind = line[7:]
                elif line.startswith("data: "):
                    self.got.append((kind, json.loads(line[6:])))
        except (OSError, ValueError, AttributeError):
            pass
        self.over = True

    def all(self, kind):
        return [d for k, d in list(self.got) if k == kind]

    def first(self, kind, fits=lambda d: True):
        return wait_for(lambda: [d for d in self.all(kind) if fits(d)][:1])[0]

    def look(self, **what):
        assert self.person.ask("look", {"stream": self.stream, "count": 100, **what}).status == 200

    def close(self):
        self.answer.close()


def link_of(server, *args):
    return server.cli("dashboard", *args).stdout.strip().split("#link=")[1]


class Desk(Page):
    """The dashboard in a browser, signed in."""

    def __init__(self, server, *args, **how):
        self.server = server
        super().__init__(f"{server.url}/dashboard#link={link_of(server, *args)}", **how)
        self.one("#nav")

    def go(self, section):
        self.js("location.hash = '#' + arguments[0]", section)
        name = section.split("?")[0]
        wait_page(lambda: self.find(f"#nav a[href='#{name}'][aria-current]"))
        self.settled()

    def settled(self):
        wait_page(lambda: "Reading…" not in self.text() and "Looking…" not in self.text())

    def text(self):
        return self.driver.find_element(By.TAG_NAME, "body").text

    def press(self, words, within="main"):
        """The button or link that says so."""
        def press():
            e = next((e for e in self.find(f"{within} button, {within} a") if e.is_displayed() and e.is_enabled() and
                      (e.text == words or e.get_attribute("aria-label") == words)), None)
            return e is not None and (e.click() or True)
        wait_page(press)

    def fill(self, **fields):
        box = self.one("dialog[open]")
        for name, value in fields.items():
            e = box.find_element(By.NAME, name)
            if value is True:
                e.click()
            elif e.tag_name == "select":
                self.js("arguments[0].value = arguments[1]", e, value)
            else:
                e.clear()
                e.send_keys(value)

    def agree(self, words):
        self.press(words, "dialog[open]")
        wait_page(lambda: words not in [b.text for b in self.find("dialog[open] button")])

    def secret(self):
        text = self.one("dialog[open] .secret").text
        self.agree("Done")
        return text

    def undo(self, said):
        """Take the change back of which the page said so."""
        wait_page(lambda: (t := [t for t in self.find("#toasts .toast") if t.text.startswith(said) and "Undo" in t.text]) and
                  (t[-1].find_element(By.CLASS_NAME, "undo").click() or True))

    def row(self, *words):
        """The row of a table with all of these words."""
        return wait_page(lambda: next((r for r in self.find("main tbody tr") if all(w in r.text for w in words)), None))

    def gone(self, *words):
        wait_page(lambda: not any(all(w in r.text for w in words) for r in self.find("main tbody tr")))

    def press_in(self, words, *row):
        def press():
            r = next((r for r in self.find("main tbody tr") if all(w in r.text for w in row)), None)
            e = r and next((b for b in r.find_elements(By.TAG_NAME, "button") if b.text == words), None)
            return bool(e) and (self.js("arguments[0].click()", e) or True)
        wait_page(press)

    def axe(self):
        self.js(AXE.read_text())
        found = self.driver.execute_async_script("const done = arguments[arguments.length - 1]; axe.run(document, {resultTypes: ['violations']})"
                                                 ".then((r) => done(r.violations.map((v) => [v.id, v.help, v.nodes.map((n) => n.html).slice(0, 3)])))")
        return found
