"""What the tests of the chat page hold in their hands: an agent that does as it is told, and a browser."""
import asyncio
import base64
import hashlib
import hmac
import json
import queue
import shutil
import tempfile
import threading
import time
import uuid

import websockets
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

PATIENCE_S = 10


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


class Agent:
    """A gateway in a thread: acknowledges what it gets, keeps it in .heard, acts when told."""

    def __init__(self, relay_url, gateway_id, secret, bot="lobby"):
        self.url, self.gateway_id, self.secret, self.bot = relay_url, gateway_id, secret, bot
        self.heard = queue.Queue()
        self.interrupts = queue.Queue()
        self.results = {}
        self.idle = threading.Event()
        self.ready = threading.Event()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_until_complete, args=(self._run(),), daemon=True)
        self.thread.start()
        assert self.ready.wait(PATIENCE_S), "the agent never got its descriptor"

    def _token(self):
        body = f"{self.gateway_id}:{int(time.time()) + 300}"
        mac = hmac.new(self.secret.encode(), body.encode(), hashlib.sha256).hexdigest()
        return base64.urlsafe_b64encode(f"{body}:{mac}".encode()).rstrip(b"=").decode()

    async def _run(self):
        headers = {"Authorization": f"Bearer {self._token()}"}
        async with websockets.connect(self.url, extra_headers=headers, max_size=None) as self.ws:
            await self._write({"type": "hello", "platform": "web", "botId": self.bot})
            try:
                async for message in self.ws:
                    for line in message.splitlines():
                        await self._frame(json.loads(line))
            except websockets.ConnectionClosed:
                pass

    async def _frame(self, frame):
        kind = frame["type"]
        if kind == "descriptor":
            self.descriptor = frame["descriptor"]
            self.ready.set()
        elif kind == "inbound":
            self.heard.put(frame["event"])
            if frame.get("bufferId"):
                await self._write({"type": "inbound_ack", "bufferId": frame["bufferId"]})
        elif kind == "outbound_result":
            self.results.pop(frame["requestId"]).put(frame["result"])
        elif kind == "interrupt_inbound":
            self.interrupts.put(frame)
        elif kind == "going_idle_ack":
            self.idle.set()

    async def _write(self, frame):
        await self.ws.send(json.dumps(frame) + "\n")

    def _now(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(PATIENCE_S)

    def act(self, **action):
        """Perform an action and return its result."""
        request, answer = uuid.uuid4().hex, queue.Queue()
        self.results[request] = answer
        self._now(self._write({"type": "outbound", "requestId": request, "action": action}))
        return answer.get(timeout=PATIENCE_S)

    def say(self, chat, text, **more):
        result = self.act(op="send", chat_id=chat, content=text, reply_to=None, metadata={}, **more)
        assert result["success"], result
        return result["message_id"]

    def hear(self, text=None):
        """The next message, which must be @text when given."""
        event = self.heard.get(timeout=PATIENCE_S)
        assert text is None or event["text"] == text
        return event

    def sleep(self):
        self._now(self._write({"type": "going_idle"}))
        assert self.idle.wait(PATIENCE_S), "going_idle was never confirmed"
        self.leave()

    def leave(self):
        if self.thread.is_alive():
            self._now(self.ws.close())
            self.thread.join(PATIENCE_S)


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
