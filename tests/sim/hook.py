"""Services that `platform: hook` connects: Nextcloud Talk and Chatwoot as their documentation describes them, and one
of our own that does what a test says. Each signs its webhooks, and refuses what the real one refuses."""
import hashlib
import hmac
import json
import secrets
import time
import urllib.error
import urllib.request

from webapi import WebApi


def sign(secret, data):
    return hmac.new(secret.encode(), data, hashlib.sha256)


class Service(WebApi):
    """to: the address of its webhook."""

    def __init__(self, secret):
        self.secret, self.to, self.n, self.keys = secret, None, 0, {}
        self.traces = []  # of the messages in `sent`; None: it had none
        super().__init__()

    def headers(self, body):
        """Of a webhook."""
        raise NotImplementedError

    def post(self, body, headers=None, more=None):
        """Sends a webhook; returns its status. headers: instead of the service's own; more: beside them."""
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        heads = {"Content-Type": "application/json", **(headers or self.headers(body)), **(more or {})}
        request = urllib.request.Request(self.to, body, heads)
        try:
            with urllib.request.urlopen(request, timeout=10) as a:
                return a.status
        except urllib.error.HTTPError as e:
            with e:
                return e.code

    def take(self, path, headers, message):
        """What the service does with a request; returns status and answer, or None: it is not there."""
        raise NotImplementedError

    def handle(self, method, path, query, headers, body):
        self.calls.append((method, path))
        if method == "GET":
            return 404, {}, {}
        trouble = self.troubles.pop(0) if self.troubles else None
        if trouble and trouble[0] == "lost":
            return None, None, None
        if trouble and trouble[0] is not None:
            return trouble
        status, answer = self.take(path, headers, json.loads(body))
        self.go.wait(60)
        if trouble:
            return None, None, None
        return status, answer, {}


class Talk(Service):
    """Nextcloud Talk, bots-v1."""

    def headers(self, body):
        random = secrets.token_urlsafe(48)
        return {"X-Nextcloud-Talk-Random": random, "X-Nextcloud-Talk-Backend": self.url + "/", "OCS-APIRequest": "true",
                "X-Nextcloud-Talk-Signature": sign(self.secret, random.encode() + body).hexdigest()}

    def note(self, text, room="n3xtc10ud", who="ada", name="message", parameters=None, **more):
        self.n += 1
        return {"type": "Note", "id": str(1566 + self.n), "name": name, "mediaType": "text/markdown",
                "content": json.dumps({"message": text, "parameters": parameters or {}}), **more}

    def message(self, text, room="n3xtc10ud", who="ada", type="Create", **more):
        return {"type": type, "actor": {"type": "Person", "id": f"users/{who}", "name": who.title()},
                "object": self.note(text, **more), "target": {"type": "Collection", "id": room, "name": "world"}}

    def say(self, text, **more):
        return self.post(self.message(text, **more))

    def take(self, path, headers, message):
        room = path.removeprefix("/ocs/v2.php/apps/spreed/api/v1/bot/").removesuffix("/message")
        random, signature = headers.get("X-Nextcloud-Talk-Bot-Random", ""), headers.get("X-Nextcloud-Talk-Bot-Signature", "")
        if not path.startswith("/ocs/v2.php/") or "/" in room or headers.get("OCS-APIRequest") != "true" or \
                set(message) - {"message", "replyTo", "referenceId", "silent"} or not isinstance(message.get("replyTo", 0), int):
            self.broke((path, message))
            return 404, {}
        if len(random) < 32 or not signature or not message["message"].strip():
            return 400, {}
        if not hmac.compare_digest(sign(self.secret, (random + message["message"]).encode()).hexdigest(), signature.lower()):
            return 401, {}
        if len(message["message"]) > 32000:
            return 413, {}
        self.sent.append((room, message["message"], message.get("replyTo")))
        return 201, {"ocs": {"meta": {"status": "ok", "statuscode": 201}, "data": None}}


class Chatwoot(Service):
    """An account of Chatwoot with an agent bot."""
    TOKEN = "chatwoot-access-token-planted"

    def headers(self, body, at=None):
        at = str(int(time.time()) if at is None else at)
        return {"X-Chatwoot-Timestamp": at, "X-Chatwoot-Delivery": secrets.token_hex(8),
                "X-Chatwoot-Signature": "sha256=" + sign(self.secret, at.encode() + b"." + body).hexdigest()}

    def message(self, text, conversation=7, event="message_created", kind="incoming", **more):
        self.n += 1
        return {"event": event, "id": 400 + self.n, "content": text, "created_at": "2026-03-03 13:05:57 UTC", "message_type": kind,
                "content_type": "text", "content_attributes": {}, "source_id": "", "private": False,
                "sender": {"id": 21, "name": "Ann", "email": "ann@example.org"}, "inbox": {"id": 3, "name": "site"},
                "conversation": {"id": conversation, "inbox_id": 3, "status": "pending", "channel": "Channel::WebWidget"},
                "account": {"id": 5, "name": "acme"}, **more}

    def say(self, text, **more):
        return self.post(self.message(text, **more))

    def take(self, path, headers, message):
        parts = path.split("/")
        if parts[:5] != ["", "api", "v1", "accounts", "5"] or parts[5] != "conversations" or parts[7:] != ["messages"] or \
                set(message) - {"content", "message_type", "private", "content_type"}:
            self.broke((path, message))
            return 404, {}
        if headers.get("api_access_token") != self.TOKEN:
            return 401, {"error": "Invalid Access Token"}
        self.sent.append((int(parts[6]), message["content"], message["message_type"]))
        return 200, {"id": 9000 + len(self.sent), "content": message["content"], "conversation_id": int(parts[6])}


class Plain(Service):
    """A service of our own: signs the body in base64, and knows idempotency keys."""

    def headers(self, body):
        import base64
        return {"X-Sign": base64.b64encode(sign(self.secret, body).digest()).decode()}

    def message(self, text, chat="c1", who="u1", **more):
        self.n += 1
        return {"id": self.n, "chat": chat, "from": {"id": who, "name": who.upper()}, "text": text, **more}

    def say(self, text, **more):
        return self.post(self.message(text, **more))

    def take(self, path, headers, message):
        key = headers.get("Idempotency-Key")
        if key is None or key not in self.keys:
            self.sent.append((path, message))
            self.traces.append(headers.get("traceparent"))
            if key is not None:
                self.keys[key] = len(self.sent)
        return 200, {"message": {"id": f"m{self.keys.get(key, len(self.sent))}"}}
