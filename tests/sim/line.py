"""LINE's Messaging API as its documentation describes it: signed webhooks with several events, push messages with retry
keys that are performed once, and files at an address that takes the channel's token."""
import base64
import hashlib
import hmac
import json
import re
import urllib.error
import urllib.request

from webapi import WebApi

BOT, ANN, GROUP = "U" + "b" * 32, "U" + "a" * 32, "C" + "c" * 32
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class LineSim(WebApi):
    def __init__(self, token, secret):
        self.token, self.secret, self.to, self.n = token, secret, None, 0
        self.keys, self.files, self.preparing, self.note, self.loading, self.quotable = {}, {}, {}, None, [], []
        super().__init__()

    def sign(self, body, secret=None):
        mac = hmac.new((self.secret if secret is None else secret).encode(), body, hashlib.sha256).digest()
        return {"x-line-signature": base64.b64encode(mac).decode(), "Content-Type": "application/json; charset=utf-8",
                "User-Agent": "LineBotWebhook/2.0"}

    def event(self, text=None, chat=ANN, user=ANN, kind="message", mode="active", message=None, **more):
        self.n += 1
        source = {"type": "user", "userId": user} if chat.startswith("U") else {"type": "group", "groupId": chat, "userId": user}
        return {"type": kind, "mode": mode, "timestamp": 1462629479859 + self.n, "source": source, "replyToken": f"{self.n:032x}",
                "webhookEventId": f"01FZ74A0TDDPYRVKNK77XK{self.n:04d}", "deliveryContext": {"isRedelivery": False},
                "message": {"id": str(444573844083572737 + self.n), **(message or {"type": "text", "text": text, "quoteToken": self.quote()}), **more}}

    def quote(self):
        self.quotable.append(f"q3Plxr4AgKd{len(self.quotable)}")
        return self.quotable[-1]

    def unsend(self, event):
        """Its author takes a message back."""
        return {**{k: v for k, v in self.event(kind="unsend").items() if k not in ("message", "replyToken")}, "source": event["source"],
                "unsend": {"messageId": event["message"]["id"]}}

    def envelope(self, *events, destination=BOT):
        return {"destination": destination, "events": list(events)}

    def post(self, *events, body=None, again=False, quietly=False):
        """A webhook; its status.  @again: LINE repeats it.  @quietly: nobody may answer."""
        events = [{**e, "deliveryContext": {"isRedelivery": again}} for e in events]
        body = body if body is not None else json.dumps(self.envelope(*events)).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(self.to, body, self.sign(body)), timeout=30) as a:
                return a.status
        except urllib.error.HTTPError as e:
            with e:
                return e.code
        except OSError:
            assert quietly
            return None

    def handle(self, method, path, query, headers, body):
        self.calls.append((method, path))
        if headers.get("Authorization") != f"Bearer {self.token}":
            return 401, {"message": "Authentication failed"}, {}
        if method == "GET" and path == "/v2/bot/info":
            return 200, {"userId": BOT, "basicId": "@216ru", "displayName": "Desk", "chatMode": "bot", "markAsReadMode": "auto"}, {}
        content = re.fullmatch(r"/v2/bot/message/(\d+)/content", path)
        if method == "GET" and content and self.preparing.get(content[1], 0) > 0:  # a large video or audio
            self.preparing[content[1]] -= 1
            return 202, {}, {}
        if method == "GET" and content and content[1] in self.files:
            return 200, self.files[content[1]], {"Content-Type": "image/png"}
        if (method, path) == ("POST", "/v2/bot/chat/loading/start"):
            asked = json.loads(body)
            if set(asked) != {"chatId", "loadingSeconds"} or not re.fullmatch("U[0-9a-f]{32}", asked["chatId"]) or \
                    asked["loadingSeconds"] % 5 or not 5 <= asked["loadingSeconds"] <= 60:
                self.broke(asked)
                return 400, {"message": "The request body has 1 error(s)"}, {}
            self.loading.append(asked["chatId"])
            return 202, {}, {}
        if (method, path) != ("POST", "/v2/bot/message/push"):
            self.broke(f"{method} {path}")
            return 404, {"message": "Not found"}, {}
        return self.push(headers.get("X-Line-Retry-Key", ""), json.loads(body))

    def push(self, key, push):
        trouble = self.troubles.pop(0) if self.troubles else None
        if trouble and trouble[0] == "lost":
            return None, None, None
        if trouble and trouble[0] is not None:
            return trouble
        if not UUID.fullmatch(key) or set(push) != {"to", "messages"} or not re.fullmatch("[UCR][0-9a-f]{32}", push["to"]) or \
                not 1 <= len(push["messages"]) <= 5:
            self.broke((key, push))
            return 400, {"message": "The request body has 1 error(s)"}, {}
        for m in push["messages"]:
            fields = {"text": {"type", "text"}, "image": {"type", "originalContentUrl", "previewImageUrl"}}.get(m["type"])
            if "quoteToken" in m and (m["type"] != "text" or m["quoteToken"] not in self.quotable):
                self.broke(m)
                return 400, {"message": "The request body has 1 error(s)"}, {}
            if set(m) - {"quoteToken"} != fields or (m["type"] == "text" and not 1 <= len(m["text"].encode("utf-16-le")) // 2 <= 5000):
                self.broke(m)
                return 400, {"message": "The request body has 1 error(s)"}, {}
        if key in self.keys:
            return 409, {"message": "The retry key is already accepted", "sentMessages": [{"id": self.keys[key], "quoteToken": "q"}]}, \
                {"X-Line-Accepted-Request-Id": "123e4567-e89b-12d3-a456-426655440001"}
        self.sent.append((push["to"], push["messages"][0]))
        if self.note:
            self.note(*self.sent[-1])
        self.keys[key] = str(461230966842064896 + len(self.sent))
        id = self.keys[key]
        self.go.wait(60)
        if trouble:
            return None, None, None
        return 200, {"sentMessages": [{"id": id, "quoteToken": self.quote()}]}, {"X-Line-Request-Id": "r"}
