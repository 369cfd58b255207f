"""What the tests of the chat page hold in their hands: an agent that does as it is told, and a browser."""
import shutil
import socket
import tempfile
import time

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from relay import PATIENCE_S, Gateway

CONFIG = """\
listen: 127.0.0.1:{port}
state_dir: {state}
delivery: {{live_acks: true{delivery}}}
platforms:
  - {{platform: web, bot: lobby, title: The Lobby}}
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(what, timeout=PATIENCE_S):
    """The first true answer of what(), or the assertion that it never came."""
    end = time.monotonic() + timeout
    while True:
        try:
            got = what()
        except StaleElementReferenceException:
            got = None  # the page changed under our hands: look again
        if got:
            return got
        assert time.monotonic() < end, f"never came true: {what.__doc__ or what.__name__}"
        time.sleep(0.05)


class Agent(Gateway):
    """A gateway that answers in chats."""

    def hear(self, text=None):
        """The next message, which must be @text when given."""
        event = self.next("inbound")["event"]
        assert text is None or event["text"] == text, event
        return event

    def say(self, chat, text, **more):
        result = self.act(op="send", chat_id=chat, content=text, reply_to=None, metadata={}, **more)
        assert result["success"], result
        return result["message_id"]


class Lobby:
    """A server whose address stays the same when it is started again, and its one agent."""

    def __init__(self, make_bellhop, *, routed=True, delivery=""):
        config = CONFIG.replace("{port}", str(free_port())).replace("{delivery}", delivery)
        self.server = make_bellhop(config)
        self.chat_url = f"{self.server.url}/chat"
        self.credential = self.server.add() if routed else None
        self.agents = []

    def agent(self):
        self.agents.append(Agent(self.server.url, self.credential.id, self.credential.secret))
        return self.agents[-1]

    def close(self):
        for agent in self.agents:
            agent.close()


class Page:
    """One browser with one visitor; tabs are opened with tab()."""

    def __init__(self, url, *, dark=False, phone=False):
        self.profile = tempfile.mkdtemp(prefix="bellhop-chromium-")
        self.driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=self._options(dark, phone))
        self.url = url
        self.driver.get(url)

    def _options(self, dark, phone):
        o = webdriver.ChromeOptions()
        for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                     "--disable-background-networking", "--disable-component-update", "--disable-sync",
                     "--disable-dev-shm-usage", "--hide-scrollbars", "--window-size=1100,820",
                     f"--user-data-dir={self.profile}"):
            o.add_argument(flag)
        if dark:
            o.add_argument("--blink-settings=preferredColorScheme=0")
        if phone:
            metrics = {"width": 390, "height": 844, "pixelRatio": 2.0, "touch": True}
            o.add_experimental_option("mobileEmulation", {"deviceMetrics": metrics})
        o.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        return o

    def close(self):
        self.driver.quit()
        shutil.rmtree(self.profile, ignore_errors=True)

    def find(self, css):
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def one(self, css):
        """The only visible element that fits."""
        return wait_for(lambda: next((e for e in self.find(css) if e.is_displayed()), None))

    def texts(self, css=".message .bubble"):
        return [e.text for e in self.find(css)]

    def sees(self, text, css=".message .bubble"):
        return wait_for(lambda: text in self.texts(css))

    def says(self, words):
        """Wait until the page says these words anywhere."""
        return wait_for(lambda: words in self.driver.find_element(By.TAG_NAME, "body").text)

    def write(self, text, enter=True):
        box = self.one("#text")
        for i, line in enumerate(text.split("\n")):
            if i:
                box.send_keys(Keys.SHIFT, Keys.ENTER, Keys.NULL)
            box.send_keys(line)
        if enter:
            box.send_keys(Keys.ENTER)
        else:
            self.one("#send").click()

    def presence(self, text):
        return wait_for(lambda: self.one("#presence-text").text == text)

    def js(self, script, *args):
        return self.driver.execute_script(script, *args)

    def complaints(self):
        """What the browser logged, but for answers the tests provoke."""
        return [e["message"] for e in self.driver.get_log("browser")
                if e["level"] == "SEVERE" and " 503 " not in e["message"] and "ERR_CONNECTION" not in e["message"]
                and "ERR_INCOMPLETE" not in e["message"]]
