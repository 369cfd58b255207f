"""A strict simulator of what Microsoft Teams is to a bot: the login, the OpenID metadata of both issuers, the connector, and
webhooks that carry a signed token.

It refuses what Teams refuses, with Teams' codes, and notes in `violations` what a well-behaved bot never does: an activity for
another conversation than its address, unknown members, a stream out of order, a token where none belongs.
"""
import asyncio
import base64
import json
import re
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid

from aiohttp import web
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

ISSUER, AUDIENCE = "https://api.botframework.com", "https://api.botframework.com"
WINDOWS = ((1, 7), (2, 8), (30, 60))  # requests in a conversation: seconds, most
MEMBERS = {"type", "channelId", "from", "conversation", "recipient", "text", "textFormat", "replyToId", "attachments", "entities", "id",
           "serviceUrl", "channelData", "inputHint", "locale", "summary", "attachmentLayout", "timestamp", "localTimestamp", "value"}
CARD, CONSENT, INFO = ("application/vnd.microsoft.card.adaptive", "application/vnd.microsoft.teams.card.file.consent",
                       "application/vnd.microsoft.teams.card.file.info")


class Refusal(Exception):
    def __init__(self, status, code, message="", headers=None):
        self.status, self.headers = status, headers
        self.body = {"error": {"code": code, "message": message or code}}


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unb64(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def units(text):
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


class Key:
    def __init__(self, kid=None, bits=2048):
        self.private, self.kid = rsa.generate_private_key(public_exponent=65537, key_size=bits), kid or uuid.uuid4().hex[:20]

    def jwk(self, **more):
        n = self.private.public_key().public_numbers()
        return {"kty": "RSA", "use": "sig", "kid": self.kid, "x5t": self.kid, "n": b64(n.n.to_bytes((n.n.bit_length() + 7) // 8, "big")),
                "e": b64(n.e.to_bytes(3, "big")), **more}

    def sign(self, claims, **header):
        head = {"alg": "RS256", "kid": self.kid, "x5t": self.kid, "typ": "JWT", **header}
        head = {k: v for k, v in head.items() if v is not None}
        text = f"{b64(json.dumps(head).encode())}.{b64(json.dumps(claims).encode())}"
        return f"{text}.{b64(self.private.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


KEYS = [Key("connector-one"), Key("tenant-one"), Key("a-strangers-key")]  # they take long to make


class TeamsSim:
    APP, TENANT, OTHER_TENANT = ("00001111-aaaa-2222-bbbb-3333cccc4444", "aaaabbbb-0000-cccc-1111-dddd2222eeee",
                                 "bbbbcccc-1111-dddd-2222-eeee3333ffff")
    TEAM = "19:team0general@thread.tacv2"
    CHANNEL = "19:channel0lobby@thread.tacv2"
    GROUP = "19:group0of0three@thread.v2"

    def __init__(self, password="planted~password", tenant=TENANT, life=3600):
        self.password, self.tenant, self.life = password, tenant, life
        self.self_id = f"28:{self.APP}"
        self.connector_keys, self.tenant_keys, self.stranger = [KEYS[0]], [KEYS[1]], KEYS[2]
        self.certificate, self.asserted = None, None  # an x509.Certificate: assertions of its key are taken; the algorithm of the last
        self.tokens, self.logins, self.key_fetches, self.calls = {}, 0, 0, []
        self.messages, self.order, self.streams, self.typed, self.edits, self.puts = {}, [], {}, [], [], []
        self.violations, self.troubles, self.limited, self.at, self.files, self.uploads = [], [], 0, {}, {}, {}
        self.request_url, self.paced, self.clock_s, self.last_id, self.heads = None, True, 0, 0, []
        self.streaming, self.stream_s = True, 120
        self.keys_up, self.answering = threading.Event(), threading.Event()  # clear: not answered
        self.keys_up.set()
        self.answering.set()
        self.people, self.places = {}, {}
        for name in ("Ann", "Ben", "Cleo"):
            self.person(name)
        self.places[self.GROUP] = {"kind": "groupChat", "name": "three of us"}
        self.places[self.CHANNEL] = {"kind": "channel", "name": "lobby"}
        self.places[self.TEAM] = {"kind": "channel", "name": None}
        self.loop = asyncio.new_event_loop()
        ready = threading.Event()
        threading.Thread(target=self._serve, args=(ready,), daemon=True).start()
        ready.wait(10)

    def person(self, name):
        n = len(self.people) + 1
        who = {"name": name, "id": f"29:1{name}-of-this-bot", "aadObjectId": f"{n:08d}-1111-2222-3333-444444444444",
               "chat": f"a:1{name}-and-the-bot_{n}"}
        self.people[name] = who
        self.places[who["chat"]] = {"kind": "personal", "name": None, "who": who}
        return who

    # ---- the server ----

    def _serve(self, ready):
        asyncio.set_event_loop(self.loop)
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_get("/v1/.well-known/openidconfiguration", self._metadata)
        app.router.add_get("/v1/.well-known/keys", self._keys)
        app.router.add_get("/{tenant}/v2.0/.well-known/openid-configuration", self._tenant_metadata)
        app.router.add_get("/{tenant}/discovery/v2.0/keys", self._tenant_keys)
        app.router.add_post("/{tenant}/oauth2/v2.0/token", self._login)
        app.router.add_put("/upload/{id}", self._upload)
        app.router.add_get("/download/{id}", self._download)
        app.router.add_route("*", "/{region}/v3/{path:.*}", self._connector)
        app.router.add_route("*", "/v3/{path:.*}", self._connector)
        self.runner = web.AppRunner(app, access_log=None)
        self.loop.run_until_complete(self.runner.setup())
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        self.loop.run_until_complete(site.start())
        self.port = site._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.service_url = f"{self.url}/amer/"
        ready.set()
        self.loop.run_forever()

    def close(self):
        async def end():
            tasks = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
            for t in tasks:
                t.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.runner.cleanup()
            self.loop.stop()
        asyncio.run_coroutine_threadsafe(end(), self.loop)

    def now(self):
        return time.time() + self.clock_s

    def broke(self, what):
        self.violations.append(what)

    def trouble(self, what="activities", status=None, code=None, message="", times=1, taken=False, method=None, **headers):
        """The next request whose path has @what gets this answer; no status: it is cut off.  @taken: done, then so."""
        self.troubles.append(dict(what=what, status=status, code=code, message=message, times=times, taken=taken, method=method,
                                  headers={k.replace("_", "-"): v for k, v in headers.items()}))

    # ---- keys and logins ----

    async def _metadata(self, request):
        while not self.keys_up.is_set():
            await asyncio.sleep(0.02)
        return web.json_response({"issuer": ISSUER, "jwks_uri": f"{self.url}/v1/.well-known/keys",
                                  "authorization_endpoint": "https://invalid.botframework.com",
                                  "id_token_signing_alg_values_supported": ["RS256"],
                                  "token_endpoint_auth_methods_supported": ["private_key_jwt"]})

    async def _keys(self, request):
        self.key_fetches += 1
        return web.json_response({"keys": [k.jwk(endorsements=getattr(k, "endorsements", ["msteams", "webchat", "skype"]))
                                           for k in self.connector_keys]})

    async def _tenant_metadata(self, request):
        tenant = request.match_info["tenant"]
        return web.json_response({"issuer": f"https://login.microsoftonline.com/{tenant}/v2.0",
                                  "jwks_uri": f"{self.url}/{tenant}/discovery/v2.0/keys",
                                  "token_endpoint": f"{self.url}/{tenant}/oauth2/v2.0/token"})

    async def _tenant_keys(self, request):
        return web.json_response({"keys": [k.jwk(issuer=f"https://login.microsoftonline.com/{self.tenant}/v2.0")
                                           for k in self.tenant_keys]})

    def _assertion_ok(self, form, path):
        head, claims, signature = form["client_assertion"].split(".")
        h, c = json.loads(unb64(head)), json.loads(unb64(claims))
        self.asserted = h["alg"]
        old = {"alg": "RS256", "typ": "JWT", "x5t": b64(self.certificate.fingerprint(hashes.SHA1()))}
        new = {"alg": "PS256", "typ": "JWT", "x5t#S256": b64(self.certificate.fingerprint(hashes.SHA256()))}
        how = {"RS256": padding.PKCS1v15(), "PS256": padding.PSS(mgf=padding.MGF1(hashes.SHA256()), salt_length=32)}
        if h not in (old, new):
            return False
        try:
            self.certificate.public_key().verify(unb64(signature), f"{head}.{claims}".encode(), how[h["alg"]], hashes.SHA256())
        except InvalidSignature:
            return False
        return c["aud"] in (self.url + path, "https://login.microsoftonline.com" + path) and c["iss"] == c["sub"] == self.APP and c["nbf"] - 300 <= time.time() < c["exp"] <= time.time() + 3600 and c["jti"]

    async def _login(self, request):
        form, tenant = await request.post(), request.match_info["tenant"]
        self.logins += 1
        trouble = self._trouble("token", request)
        if trouble:
            return web.Response(status=trouble["status"], text="<html>", content_type="text/html")

        def no(error, code):
            return web.json_response({"error": error, "error_description": f"AADSTS{code}: it is refused.", "error_codes": [code]},
                                     status=400 if error == "invalid_request" else 401)
        if form.get("grant_type") != "client_credentials" or form.get("scope") != f"{AUDIENCE}/.default":
            return no("invalid_request", 900144)
        if tenant not in (self.tenant, "botframework.com"):
            return no("invalid_request", 90002)
        if form.get("client_id") != self.APP:
            return no("unauthorized_client", 700016)
        if "client_assertion" in form:
            kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
            if form.get("client_assertion_type") != kind or not self.certificate or not self._assertion_ok(form, request.path):
                return no("invalid_client", 700027)
        elif form.get("client_secret") != self.password:
            return no("invalid_client", 7000215)
        token = self.tenant_token()
        self.tokens[token] = time.time() + self.life
        return web.json_response({"token_type": "Bearer", "expires_in": self.life, "ext_expires_in": self.life, "access_token": token})

    def tenant_token(self, key=None, header=None, **claims):
        """As Entra signs one for the bot, and as Teams may show it to the bot of one tenant."""
        now = int(time.time())
        claims = {"aud": AUDIENCE, "iss": f"https://sts.windows.net/{self.tenant}/", "iat": now, "nbf": now, "exp": now + self.life,
                  "appid": self.APP, "tid": self.tenant, "ver": "1.0", "uti": uuid.uuid4().hex, **claims}
        return (key or self.tenant_keys[0]).sign({k: v for k, v in claims.items() if v is not None}, **(header or {}))

    def token(self, key=None, header=None, offset=0, **claims):
        """As the Bot Framework signs one for a webhook."""
        now = int(time.time()) + offset
        claims = {"serviceurl": self.service_url, "nbf": now, "exp": now + 3600, "iss": ISSUER, "aud": self.APP, **claims}
        return (key or self.connector_keys[0]).sign({k: v for k, v in claims.items() if v is not None}, **(header or {}))

    # ---- the connector ----

    def _trouble(self, path, request):
        found = next((t for t in self.troubles if t["what"] in path and t["method"] in (None, request.method)), None)
        if found:
            found["times"] -= 1
            if found["times"] <= 0:
                self.troubles.remove(found)
        return found

    async def _connector(self, request):
        path, body = request.match_info["path"], await request.read()
        self.calls.append((request.method, path))
        trouble = self._trouble(path, request)
        try:
            answer = status = None
            if not trouble or trouble["taken"]:
                answer, status = self._route(request, path, body)
                while not self.answering.is_set():
                    await asyncio.sleep(0.02)
            if trouble and not trouble["status"]:
                request.transport.abort()
                return web.Response()
            if trouble:
                raise Refusal(trouble["status"], trouble["code"] or "ServiceError", trouble["message"], trouble["headers"])
            if isinstance(answer, bytes):
                return web.Response(body=answer, content_type="image/png")
            return web.json_response(answer, status=status)
        except Refusal as e:
            return web.json_response(e.body, status=e.status, headers=e.headers)

    def _route(self, request, path, body):
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme != "Bearer" or self.tokens.get(token, 0) < time.time():
            raise Refusal(401, "Unauthorized", "Authorization has been denied for this request.")
        m = re.fullmatch(r"conversations/([^/]+)/(activities|pagedmembers|members)(?:/([^/]+))?", path)
        if m:
            chat, _, thread = m[1].partition(";messageid=")
            if chat not in self.places:
                raise Refusal(404, "ConversationNotFound")
            if self.places[chat].get("gone"):
                raise Refusal(403, "BotNotInConversationRoster", "The bot is not part of the conversation roster.")
            if thread and (self.places[chat]["kind"] != "channel" or (chat, thread) not in self.messages):
                raise Refusal(404, "ConversationNotFound")
        if m and m[2] == "activities":
            if body and not request.headers.get("Content-Type", "").startswith("application/json"):
                self.broke("an activity that is not JSON")
            if request.method in ("POST", "PUT"):
                self._pace(chat)
            a = json.loads(body) if body else {}
            if request.method == "POST":
                return self._take(m[1], chat, thread, a, m[3])
            if request.method == "PUT" and m[3]:
                return self._edit(m[1], chat, a, m[3])
            if request.method == "DELETE" and (chat, m[3]) in self.messages:
                self.messages.pop((chat, m[3]))
                return {}, 200
        if m and m[2] in ("pagedmembers", "members") and request.method == "GET":
            who = [self.places[chat]["who"]] if "who" in self.places[chat] else list(self.people.values())
            who = [{**{k: w[k] for k in ("id", "name", "aadObjectId")}, "tenantId": self.tenant, "userRole": "user"} for w in who]
            return ({"members": who} if m[2] == "pagedmembers" else who), 200
        m = re.fullmatch(r"teams/([^/]+)/conversations", path)
        if m and request.method == "GET" and m[1] == self.TEAM:
            return {"conversations": [{"id": c, "name": p["name"]} for c, p in self.places.items() if p["kind"] == "channel"]}, 200
        if path == "conversations" and request.method == "POST":
            who = json.loads(body)["members"][0]["id"]
            return {"id": next(w["chat"] for w in self.people.values() if w["id"] == who), "serviceUrl": self.service_url}, 201
        m = re.fullmatch(r"attachments/([^/]+)/views/original", path)
        if m and m[1] in self.files:
            return self.files[m[1]], 200
        raise Refusal(404, "NotFound", f"{request.method} {path}")

    def _pace(self, chat):
        now = time.monotonic()
        seen = self.at[chat] = [t for t in self.at.get(chat, []) if now - t < 30] + [now]
        if self.paced and any(sum(now - t < s for t in seen) > most for s, most in WINDOWS):
            self.limited += 1
            raise Refusal(429, "Throttled", "Too many requests.", {"Retry-After": "1"})

    def _new_id(self):
        self.last_id = max(self.last_id + 1, int(time.time() * 1000))
        return str(self.last_id)

    def _check(self, conversation, chat, a):
        if a.get("type") not in ("message", "typing"):
            raise Refusal(400, "BadSyntax", "Activity type not supported")
        if set(a) - MEMBERS:
            self.broke(f"unknown members {sorted(set(a) - MEMBERS)}")
        if a.get("from", {}).get("id", self.self_id) != self.self_id:
            raise Refusal(400, "BadSyntax", "from is not the bot")
        if a.get("conversation", {}).get("id", conversation) != conversation:
            self.broke(f"an activity of {a['conversation']['id']} for {conversation}")
        if a.get("conversation", {}).get("tenantId", self.tenant) != self.tenant:
            raise Refusal(403, "ForbiddenOperationException")
        if a.get("textFormat", "markdown") not in ("markdown", "plain", "xml"):
            raise Refusal(400, "BadSyntax", "textFormat")
        light = {**a, "attachments": [{**x, "contentUrl": ""} for x in a.get("attachments", [])]}
        if units(json.dumps(light, ensure_ascii=False)) * 2 > 100 * 1024:
            self.broke("a message over 100 KB")
            raise Refusal(413, "MessageSizeTooBig")
        for x in a.get("attachments", []):
            self._check_attachment(chat, x)

    def _check_attachment(self, chat, x):
        kind, content = x.get("contentType"), x.get("content")
        if kind == CARD:
            ok = content.get("type") == "AdaptiveCard" and content.get("version") in ("1.2", "1.3", "1.4", "1.5") and content.get("body")
            for action in self.actions(content):
                ok = ok and action["type"] in ("Action.Execute", "Action.Submit", "Action.OpenUrl") and action.get("title") and \
                    action.get("style", "default") in ("default", "positive", "destructive") and isinstance(action.get("data", {}), dict)
            for block in content["body"]:
                if block["type"] == "ActionSet":
                    ok = ok and 1 <= len(block["actions"]) <= 6
                else:
                    ok = ok and block["type"] == "TextBlock" and block.get("text")
        elif kind == CONSENT:
            ok = self.places[chat]["kind"] == "personal" and x.get("name") and content.get("sizeInBytes", 0) > 0 and \
                "acceptContext" in content and "declineContext" in content
        elif kind == INFO:
            ok = x.get("contentUrl") and x.get("name") and content.get("uniqueId") and content.get("fileType")
        elif str(kind).startswith("image/"):
            url = x.get("contentUrl", "")
            ok = url.startswith("https://") or (url.startswith(f"data:{kind};base64,") and kind in ("image/png", "image/jpeg", "image/gif") and
                                                0 < len(base64.b64decode(url.partition(",")[2], validate=True)) <= 1 << 20)
        else:
            ok = False
        if not ok:
            self.broke(f"attachment {json.dumps(x)[:500]}")
            raise Refusal(400, "BadSyntax", "Invalid attachment")

    @staticmethod
    def actions(card):
        return [a for b in card.get("body", []) if b["type"] == "ActionSet" for a in b["actions"]] + card.get("actions", [])

    def _take(self, conversation, chat, thread, a, reply):
        self._check(conversation, chat, a)
        stream = [e for e in a.get("entities", []) if e.get("type") == "streaminfo" and "streamType" in e]
        if "streamType" in a.get("channelData", {}):  # as older packages write it
            stream = [a["channelData"]]
        if stream:
            return self._stream(chat, a, stream[0])
        if a["type"] == "typing":
            self.typed.append(chat)
            return {"id": self._new_id()}, 201
        if a.get("replyToId", reply) != reply:
            self.broke("replyToId is not the address")
        if (chat, reply) not in self.messages:  # Microsoft's own packages reply to ids that they make up
            reply = None
        if not a.get("text") and not a.get("attachments"):
            raise Refusal(400, "BadSyntax", "The activity has no content")
        id = self._new_id()
        self.messages[chat, id] = {**a, "id": id, "chat": chat, "thread": thread or None, "reply": reply, "by": "bot"}
        self.order.append((chat, id))
        return {"id": id}, 201

    def _stream(self, chat, a, info):
        if set(info) - {"type", "streamId", "streamType", "streamSequence"}:
            self.broke(f"streaminfo has {sorted(info)}")
        if self.places[chat]["kind"] != "personal" or not self.streaming:
            raise Refusal(403, "ContentStreamNotAllowed", "Content stream is not allowed")
        if not a.get("text"):
            raise Refusal(400, "BadRequest", "Start streaming activities should include text")
        id, kind, n = info.get("streamId"), info.get("streamType", "streaming"), info.get("streamSequence")
        if not id:
            if kind == "final" or n != 1 or a["type"] != "typing":
                self.broke(f"a stream that starts with {info}")
                raise Refusal(400, "BadRequest", "Start streaming activities should have sequence 1")
            id = self._new_id()
            self.streams[chat, id] = {"n": 1, "since": time.monotonic(), "text": a["text"], "over": None, "texts": [a["text"]]}
            self.messages[chat, id] = {**a, "id": id, "chat": chat, "thread": None, "by": "bot", "streaming": True}
            self.order.append((chat, id))
            return {"id": id}, 201
        s = self.streams.get((chat, id))
        if not s:
            raise Refusal(400, "BadRequest", "no such stream")
        if s["over"]:
            raise Refusal(403, "ContentStreamNotAllowed", s["over"])
        if time.monotonic() - s["since"] > self.stream_s:
            s["over"] = "Content stream finished due to exceeded streaming time."
            raise Refusal(403, "ContentStreamNotAllowed", s["over"])
        if not a["text"].startswith(s["text"]):
            raise Refusal(403, "ContentStreamNotAllowed", "Request streamed content should contain the previously streamed content")
        if (kind == "final") != (a["type"] == "message") or (kind == "final" and n is not None) or (kind != "final" and not n):
            self.broke(f"a {a['type']} with {info}")
        if kind != "final" and n != s["n"] + 1:
            self.broke(f"stream sequence {n} after {s['n']}")
        s["n"], s["text"] = n, a["text"]
        s["texts"].append(a["text"])
        self.messages[chat, id].update(text=a["text"], streaming=kind != "final")
        if kind == "final":
            s["over"] = "Content stream is not allowed on an already completed streamed message"
        return {}, 202

    def stop_stream(self, chat, id):
        """The person presses Stop."""
        self.streams[chat, id]["over"] = "Content stream was canceled by user."

    def _edit(self, conversation, chat, a, id):
        self._check(conversation, chat, a)
        m = self.messages.get((chat, id))
        if not m or m["by"] != "bot":
            raise Refusal(404, "ActivityNotFoundInConversation")
        if a.get("id", id) != id or a["type"] != "message":
            self.broke("an edit of something else")
        if m.get("streaming") and (chat, id) in self.streams and not self.streams[chat, id]["over"]:
            self.broke("an edit of a message that still grows")
        self.edits.append((chat, id, a.get("text")))
        self.messages[chat, id] = {**a, "id": id, "chat": chat, "thread": m["thread"], "by": "bot", "edited": True}
        return {"id": id}, 200

    def sent(self, chat):
        """The messages of the bot in this chat, as they are now."""
        return [self.messages[c, i] for c, i in self.order if c == chat and (c, i) in self.messages]

    # ---- files ----

    def picture(self, data):
        """In a message; the attachment."""
        id = f"0-eus-d{len(self.files)}"
        self.files[id] = data
        return {"contentType": "image/*", "contentUrl": f"{self.service_url}v3/attachments/{id}/views/original"}

    def file(self, data, name="notes.txt"):
        """In a personal chat; the attachment.  Its address is on another host, and takes no token."""
        id = f"f{len(self.files)}"
        self.files[id] = data
        return {"contentType": "application/vnd.microsoft.teams.file.download.info", "name": name,
                "contentUrl": f"https://contoso.sharepoint.com/personal/ann/Documents/{name}",
                "content": {"downloadUrl": f"http://localhost:{self.port}/download/{id}", "uniqueId": str(uuid.uuid4()),
                            "fileType": name.rpartition(".")[2]}}

    async def _download(self, request):
        if "Authorization" in request.headers:
            self.broke("a token was shown to another host")
        return web.Response(body=self.files[request.match_info["id"]], content_type="text/plain")

    async def _upload(self, request):
        body = await request.read()
        if "Authorization" in request.headers or request.headers.get("Content-Range") != f"bytes 0-{len(body) - 1}/{len(body)}":
            self.broke(f"an upload with {dict(request.headers)}")
        self.uploads[request.match_info["id"]] = body
        return web.json_response({"id": request.match_info["id"]}, status=201)

    # ---- activities ----

    def activity(self, type="message", who="Ann", chat=None, thread=None, tenant=None, **more):
        """What Teams sends.  @chat: another place than the person's own."""
        person = self.people[who]
        chat = chat or person["chat"]
        place, tenant = self.places[chat], tenant or self.tenant
        conversation = {"conversationType": place["kind"], "tenantId": tenant, "id": chat + (f";messageid={thread}" if thread else "")}
        if place["kind"] != "personal":
            conversation["isGroup"] = True
        if place["kind"] == "groupChat":
            conversation["name"] = place["name"]
        data = {"tenant": {"id": tenant}}
        if place["kind"] == "channel":
            data.update(team={"id": self.TEAM, "name": "Hotel"}, channel={"id": chat, **({"name": place["name"]} if place["name"] else {})})
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + ".123Z"
        data.update(more.pop("channelData", {}))
        return {"type": type, "id": self._new_id() if type == "message" else f"f:{uuid.uuid4()}", "timestamp": stamp, "localTimestamp": stamp,
                "serviceUrl": self.service_url, "channelId": "msteams", "from": {k: person[k] for k in ("id", "name", "aadObjectId")},
                "conversation": conversation, "recipient": {"id": self.self_id, "name": "Bellhop"}, "channelData": data,
                "entities": [{"locale": "en-US", "country": "US", "platform": "Web", "type": "clientInfo"}], "locale": "en-US", **more}

    def mention(self, name="Bellhop", id=None, text=None):
        return {"type": "mention", "mentioned": {"id": id or self.self_id, "name": name}, "text": text or f"<at>{name}</at>"}

    def message(self, text=None, who="Ann", chat=None, thread=None, mention=False, **more):
        place = self.places[chat or self.people[who]["chat"]]
        a = self.activity("message", who, chat, **more)
        if place["kind"] == "channel":
            a["conversation"]["id"] += f";messageid={thread or a['id']}"
        if mention:
            a["entities"].append(self.mention())
            text = f"<at>Bellhop</at> {text}"
        if text is not None:
            a.update(text=text, textFormat="plain")
        self.messages[chat or self.people[who]["chat"], a["id"]] = {**a, "by": who}
        return a

    def tell(self, activity, token=None, url=None, wait=True):
        """Sends a webhook; its status and answer.  @wait: again until it is taken, as Teams does."""
        body = json.dumps(activity).encode()
        for _ in range(100):
            request = urllib.request.Request(url or self.request_url, body, {
                "Authorization": f"Bearer {token or self.token()}", "Content-Type": "application/json; charset=utf-8"})
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    return answer.status, json.loads(answer.read() or b"null")
            except urllib.error.HTTPError as e:
                if not wait or e.code not in (429, 502, 503, 504):
                    return e.code, e.read().decode()
            except OSError:
                if not wait:
                    raise
            time.sleep(0.1)
        raise AssertionError("nobody takes the webhook")

    def say(self, text=None, **more):
        """A person writes, and the webhook is taken.  The message's id."""
        a = self.message(text, **more)
        status, answer = self.tell(a)
        assert status == 200, (status, answer)
        return a["id"]

    def press(self, chat, message, title, who="Ann", submit=False):
        """A person presses the button of that title; the status and the answer."""
        m = self.messages[chat, message]
        card = next(x["content"] for x in m["attachments"] if x["contentType"] == CARD)
        action = next(a for a in self.actions(card) if a["title"] == title)
        if submit:
            return self.tell(self.activity("message", who, chat, thread=m.get("thread"), replyToId=message, value=action["fallback"]["data"]))
        value = {"action": {"type": "Action.Execute", "title": title, "verb": action["verb"], "data": action["data"]}, "trigger": "manual"}
        return self.tell(self.activity("invoke", who, chat, thread=m.get("thread"), name="adaptiveCard/action", replyToId=message, value=value))

    def consent(self, chat, message, accept=True, who="Ann", upload=None):
        """A person takes the offered file, or does not."""
        offer = next(x for x in self.messages[chat, message]["attachments"] if x["contentType"] == CONSENT)
        id = uuid.uuid4().hex
        value = {"type": "fileUpload", "action": "accept" if accept else "decline",
                 "context": offer["content"]["acceptContext" if accept else "declineContext"]}
        if accept:
            value["uploadInfo"] = {"contentUrl": f"https://contoso.sharepoint.com/personal/ann/Documents/{offer['name']}",
                                   "name": offer["name"], "uploadUrl": upload or f"{self.url}/upload/{id}", "uniqueId": id,
                                   "fileType": offer["name"].rpartition(".")[2]}
        return id, self.tell(self.activity("invoke", who, chat, name="fileConsent/invoke", replyToId=message, value=value))


def certificate(key):
    """A self-signed certificate of @key, and the PEM file for `certificate`."""
    from datetime import datetime, timedelta
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "bellhop")])
    made = (x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.private.public_key()).serial_number(7)
            .not_valid_before(datetime.utcnow() - timedelta(days=1)).not_valid_after(datetime.utcnow() + timedelta(days=9))
            .sign(key.private, hashes.SHA256()))
    pem = key.private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return made, pem + made.public_bytes(serialization.Encoding.PEM)
