"""A gateway that does exactly what a test says, and HTTP without a library's opinions."""
import asyncio
import base64
import concurrent.futures
import hashlib
import hmac
import json
import queue
import threading
import time
import urllib.error
import urllib.request
import uuid

import websockets

PATIENCE_S = 30


def mint(gateway_id, secret, ttl=300, exp=None):
    exp = int(time.time()) + ttl if exp is None else exp
    signed = f"{gateway_id}:{exp}"
    mac = hmac.new(secret.encode(), signed.encode(), hashlib.sha256).hexdigest()
    return base64.urlsafe_b64encode(f"{signed}:{mac}".encode()).rstrip(b"=").decode()


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.text = status, headers, body.decode()

    @property
    def json(self):
        return json.loads(self.text)


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


def http(method, url, body=None, headers=None):
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    headers = dict(headers or {})
    if data is not None:
        headers.setdefault("Content-Type", "application/json")
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.build_opener(NoRedirect).open(request, timeout=PATIENCE_S) as a:
            return Answer(a.status, a.headers, a.read())
    except urllib.error.HTTPError as e:
        with e:
            return Answer(e.code, e.headers, e.read())


class Refused(Exception):
    """The upgrade was answered with an HTTP status."""

    def __init__(self, status, headers):
        super().__init__(f"HTTP {status}")
        self.status, self.headers = status, headers


class Over(ConnectionError):
    """The socket ended before, or while, something was said on it."""

    def __init__(self, closed):
        super().__init__(f"the socket is over: {closed}")


class Gateway:
    """One WebSocket on /relay, in a thread. Says hello, keeps every frame, acks unless told otherwise.

    frames("inbound") etc. are queues; closed is (code, reason) once the server closed it.
    """

    def __init__(self, url, gateway_id=None, secret=None, *, path="/relay", token=None, hello=("web", "lobby"),
                 ack=True, wait=True, read=True):
        self.url = url.replace("http", "ws", 1) + path
        self.headers = {}
        if token is None and gateway_id is not None:
            token = mint(gateway_id, secret)
        if token is not None:
            self.headers["Authorization"] = f"Bearer {token}"
        self.hello, self.ack, self.reading = hello, ack, read
        self.queues, self.results = {}, {}
        self.seen = []  # every inbound text, in order of arrival
        self.opened, self.over, self.decided = threading.Event(), threading.Event(), threading.Event()
        self.closed = self.refused = self.failed = None
        self.ending = threading.Lock()  # held while a coroutine is handed over, and when the socket is over
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._main, daemon=True)
        self.thread.start()
        if wait:
            self.wait_open()

    def wait_open(self):
        assert self.decided.wait(PATIENCE_S), "neither opened nor refused"
        if self.refused:
            raise Refused(*self.refused)
        if self.failed:
            raise self.failed
        if self.hello and self.reading:
            self.descriptor = self.next("descriptor")["descriptor"]

    def _main(self):
        try:
            self.loop.run_until_complete(self._run())
        except websockets.InvalidStatusCode as e:
            self.refused = (e.status_code, e.headers)
        except Exception as e:  # noqa: BLE001 - told to whoever waits
            self.failed = e
        finally:
            with self.ending:
                self.over.set()
                self.decided.set()
            self.loop.run_until_complete(self._end())
            self.loop.close()

    async def _end(self):
        """Whoever was still saying something is told that the socket is over."""
        await asyncio.sleep(0)
        late = asyncio.all_tasks() - {asyncio.current_task()}
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def _run(self):
        async with websockets.connect(self.url, extra_headers=self.headers, max_size=2**20, ping_interval=None,
                                      open_timeout=PATIENCE_S) as self.ws:
            if self.hello:
                await self._write({"type": "hello", "platform": self.hello[0], "botId": self.hello[1]})
            self.opened.set()
            self.decided.set()
            try:
                while not self.reading:
                    await asyncio.sleep(0.02)
                async for message in self.ws:
                    for line in message.splitlines():
                        await self._frame(json.loads(line))
            except websockets.ConnectionClosed:
                pass
            await self.ws.wait_closed()
            self.closed = (self.ws.close_code, self.ws.close_reason)

    async def _frame(self, frame):
        kind = frame["type"]
        if kind == "outbound_result" and frame["requestId"] in self.results:
            self.results.pop(frame["requestId"]).put(frame["result"])
            return
        if kind == "inbound":
            self.seen.append(frame["event"]["text"])
            if self.ack and "bufferId" in frame:
                await self._write({"type": "inbound_ack", "bufferId": frame["bufferId"]})
        self._queue(kind).put(frame)

    def _queue(self, kind):
        return self.queues.setdefault(kind, queue.Queue())

    async def _write(self, frame):
        await self.ws.send(json.dumps(frame) + "\n")

    def _now(self, coroutine):
        """Runs it in the socket's thread. Raises Over when the socket has ended, or ends before that is done."""
        with self.ending:
            if self.over.is_set():
                coroutine.close()
                raise Over(self.closed)
            done = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return done.result(PATIENCE_S)
        except (websockets.ConnectionClosed, concurrent.futures.CancelledError) as e:
            raise Over(self.closed) from e

    # ---- what tests say ----

    def send(self, frame):
        self._now(self._write(frame))

    def send_raw(self, data):
        """Exactly these bytes (or this text) as one WebSocket message."""
        self._now(self.ws.send(data))

    def next(self, kind, timeout=PATIENCE_S):
        """The next frame of that type."""
        try:
            return self._queue(kind).get(timeout=timeout)
        except queue.Empty:
            raise AssertionError(f"no {kind} within {timeout} s (closed: {self.closed})") from None

    def hear(self, text, timeout=PATIENCE_S):
        """The next inbound event, which must be @text."""
        frame = self.next("inbound", timeout)
        assert frame["event"]["text"] == text, frame
        return frame

    def quiet(self, kind="inbound", seconds=0.3):
        """True when no such frame arrives for a while."""
        try:
            self._queue(kind).get(timeout=seconds)
            return False
        except queue.Empty:
            return True

    def act(self, platform=None, bot=None, **action):
        request, answer = uuid.uuid4().hex, queue.Queue()
        self.results[request] = answer
        frame = {"type": "outbound", "requestId": request, "action": action}
        if platform:
            frame.update(platform=platform, botId=bot or "")
        self.send(frame)
        return answer.get(timeout=PATIENCE_S)

    def acknowledge(self, frame):
        self.send({"type": "inbound_ack", "bufferId": frame["bufferId"]})

    def sleep(self):
        """Go idle in good order, then leave."""
        self.send({"type": "going_idle"})
        self.next("going_idle_ack")
        self.close()

    def wait_closed(self, timeout=PATIENCE_S):
        assert self.over.wait(timeout), "still open"
        assert self.closed, (self.refused, self.failed)
        return self.closed

    def close(self):
        self.reading = True
        if not self.over.is_set() and self.opened.is_set():
            try:
                self._now(self.ws.close())
            except Exception:  # noqa: BLE001 - it is closing anyway
                pass
        self.over.wait(PATIENCE_S)

    def cut(self):
        """Vanish without a word, as a crashed machine does."""
        self.loop.call_soon_threadsafe(self.ws.transport.abort)
        self.over.wait(PATIENCE_S)
