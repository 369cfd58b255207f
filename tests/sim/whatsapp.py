"""A strict simulator of the WhatsApp Cloud API: the Graph API, and signed webhooks that are repeated until they get a 200.

It refuses what Meta refuses, with Meta's codes, and notes in `violations` what a well-behaved client never does: unknown
members, a message over the pair rate or the number's throughput, a file that was never uploaded, typing for no message.
"""
import asyncio
import base64
import email
import hashlib
import hmac
import json
import re
import threading
import time
import urllib.error
import urllib.request

from aiohttp import web

VERSION = "v25.0"
DAY = 24 * 3600
MEDIA = {  # what an upload may be: type of message, bytes
    **{t: ("image", 5 << 20) for t in ("image/jpeg", "image/png")},
    **{t: ("audio", 16 << 20) for t in ("audio/aac", "audio/amr", "audio/mpeg", "audio/mp4", "audio/ogg")},
    **{t: ("video", 16 << 20) for t in ("video/mp4", "video/3gpp", "video/3gp")},
    **{t: ("document", 100 << 20) for t in (
        "text/plain", "application/pdf", "application/msword", "application/vnd.ms-excel", "application/vnd.ms-powerpoint",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "application/vnd.openxmlformats-officedocument.presentationml.presentation")},
    "image/webp": ("sticker", 500 << 10),
}
COMMON = {"messaging_product", "recipient_type", "to", "recipient", "type", "context", "biz_opaque_callback_data"}
MEMBERS = {  # of each type of message: needed, allowed
    "text": ({"body"}, {"body", "preview_url"}),
    "image": ({"id"}, {"id", "caption"}),
    "video": ({"id"}, {"id", "caption"}),
    "document": ({"id"}, {"id", "caption", "filename"}),
    "audio": ({"id"}, {"id", "voice"}),
    "sticker": ({"id"}, {"id"}),
    "reaction": ({"message_id", "emoji"}, {"message_id", "emoji"}),
    "interactive": ({"type", "body", "action"}, {"type", "body", "action", "header", "footer"}),
    "template": ({"name", "language"}, {"name", "language", "components"}),
}
TITLES = {100: "Invalid parameter", 190: "Invalid OAuth access token", 130429: "Rate limit hit", 131009: "Parameter value is not valid",
          131026: "Message undeliverable", 131047: "Re-engagement message", 131053: "Media upload error",
          131056: "(Business Account, Consumer Account) pair rate limit hit", 132000: "Number of parameters does not match",
          132001: "Template does not exist", 132018: "There is an issue with the parameters in the template"}


class Refusal(Exception):
    def __init__(self, code, details="", status=400, **more):
        self.status = status
        self.body = {"error": {"message": f"(#{code}) {TITLES.get(code, 'An error')}", "type": "OAuthException", "code": code,
                               "error_data": {"messaging_product": "whatsapp", "details": details}, "fbtrace_id": "AbCdEf", **more}}


def units(text):
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


class WhatsAppSim:
    NUMBER_ID, NUMBER, WABA = "106540352242922", "15550783881", "102290129340398"

    def __init__(self, token="EAAplantedtoken", secret="plantedappsecret", verify="planted-verify-token"):
        self.token, self.secret, self.verify = token, secret, verify
        self.numbers = {self.NUMBER_ID: self.NUMBER}
        self.people, self.messages, self.media, self.uploads = {}, {}, {}, {}
        self.sent, self.typed, self.calls, self.violations, self.troubles, self.unheard = [], [], [], [], [], []
        self.templates = {("new_answer", "en_US"): 1}
        self.request_url, self.n, self.clock_s = None, 0, 0
        self.statuses, self.late_window = True, False  # late_window: a message after the window is taken, and fails by a status
        self.pair_burst, self.pair_gap, self.pairs, self.limited, self.second, self.stalls = 10, 6, {}, 0, [], []
        self.answering = threading.Event()  # clear: messages are taken, and not answered
        self.answering.set()
        self.hooks = threading.Event()  # clear: webhooks of statuses wait
        self.hooks.set()
        for name, bsuid, number in (("Ann", "US.13491208655302741918", "15551230001"), ("Ben", None, "15551230002"),
                                    ("Cleo", "DE.1502576394655843", None)):
            self.person(name, bsuid, number)
        self.loop = asyncio.new_event_loop()
        ready = threading.Event()
        threading.Thread(target=self._serve, args=(ready,), daemon=True).start()
        ready.wait(10)

    def person(self, name, bsuid=None, number=None, username=None):
        """Known by BSUID, by number, or by both.  The id that a chat with that person has."""
        who = {"name": name, "bsuid": bsuid, "number": number, "username": username, "heard": None}
        for id in (bsuid, number):
            if id:
                self.people[id] = who
        return bsuid or number

    # ---- the server ----

    def _serve(self, ready):
        asyncio.set_event_loop(self.loop)
        app = web.Application(client_max_size=128 * 2**20)
        app.router.add_get("/lookaside/{id}", self._download)
        app.router.add_route("*", f"/{VERSION}/{{path:.*}}", self._graph)
        self.runner = web.AppRunner(app, access_log=None)
        self.loop.run_until_complete(self.runner.setup())
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        self.loop.run_until_complete(site.start())
        self.port = site._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.loop.create_task(self._watch())
        ready.set()
        self.loop.run_forever()

    async def _watch(self):
        """Notes how late this loop is: on a busy machine requests that came one by one are read all at once."""
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.02)
            now = time.monotonic()
            self.stalls = [(t, s) for t, s in self.stalls if now - t < 1] + [(now, now - began - 0.02)]

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

    def trouble(self, what="messages", code=None, status=None, times=1, taken=False, **more):
        """The next POST to @what is refused with Meta's @code, or has that @status and no JSON; neither: cut.  @taken: done, then so."""
        self.troubles.append(dict(what=what, code=code, status=status, times=times, taken=taken, more=more))

    async def _graph(self, request):
        path, body = request.match_info["path"], await request.read()
        self.calls.append((request.method, path))
        leaf = path.rpartition("/")[2]
        trouble = next((t for t in self.troubles if t["what"] == leaf and request.method == "POST"), None)
        if trouble:
            trouble["times"] -= 1
            if trouble["times"] <= 0:
                self.troubles.remove(trouble)
        try:
            if not trouble or trouble["taken"]:
                answer = self._route(request, path, leaf, body)
                while leaf == "messages" and not self.answering.is_set():
                    await asyncio.sleep(0.02)
            if trouble:
                if trouble["code"]:
                    raise Refusal(trouble["code"], "as told", trouble["status"] or 400, **trouble["more"])
                if trouble["status"]:
                    return web.Response(status=trouble["status"], text="<html>not here</html>", content_type="text/html")
                request.transport.abort()
                return web.Response()
            return web.json_response(answer)
        except Refusal as e:
            return web.json_response(e.body, status=e.status)

    def _route(self, request, path, leaf, body):
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            raise Refusal(190, status=401)
        proof = request.query.get("appsecret_proof")
        if proof is not None and proof != hmac.new(self.secret.encode(), self.token.encode(), hashlib.sha256).hexdigest():
            raise Refusal(100, "Invalid appsecret_proof provided in the API argument")
        first, _, rest = path.partition("/")
        if rest and first not in self.numbers:
            raise Refusal(100, "Unsupported post request", error_subcode=33)
        if request.method == "POST" and rest == "messages":
            if not request.headers.get("Content-Type", "").startswith("application/json"):
                self.broke("a message that is not JSON")
            return self._take(first, json.loads(body))
        if request.method == "POST" and rest == "media":
            return self._upload(request, body)
        if request.method == "GET" and first in self.numbers and not rest:
            if set(request.query) - {"fields", "appsecret_proof"}:
                self.broke(f"GET number {dict(request.query)}")
            known = {"display_phone_number": "+1 555-078-3881", "verified_name": "Hotel", "quality_rating": "GREEN"}
            return {"id": first, **{f: known[f] for f in request.query.get("fields", "").split(",") if f in known}}
        if request.method == "GET" and first in self.media and not rest:
            m = self.media[first]
            if request.query.get("phone_number_id", m["number"]) != m["number"]:
                raise Refusal(100, "another number's media")
            return {"messaging_product": "whatsapp", "url": m.get("url") or f"{self.url}/lookaside/{first}", "mime_type": m["type"],
                    "sha256": m["sha256"], "file_size": len(m["data"]), "id": first}
        if request.method == "DELETE" and first in self.uploads:
            del self.uploads[first]
            return {"success": True}
        raise Refusal(100, f"{request.method} {path}", error_subcode=33)

    # ---- messages to people ----

    def _wamid(self, to):
        self.n += 1
        return "wamid." + base64.b64encode(f"{to}-{self.n:08d}".encode()).decode()

    def _take(self, number, m):
        if m.get("messaging_product") != "whatsapp":
            raise Refusal(100, "messaging_product is required")
        if m.get("status") == "read":
            return self._read(m)
        kind = m.get("type", "text")
        if kind not in MEMBERS or kind not in m:
            raise Refusal(131009, f"type {kind}")
        if set(m) - COMMON - {kind}:
            self.broke(f"unknown members {sorted(set(m) - COMMON - {kind})}")
        if m.get("recipient_type", "individual") != "individual":
            raise Refusal(131009, "recipient_type")
        who = self._recipient(m)
        needed, allowed = MEMBERS[kind]
        content = m[kind]
        if not needed <= set(content):
            raise Refusal(131008, f"{kind} lacks {sorted(needed - set(content))}")
        if set(content) - allowed:
            self.broke(f"{kind} has {sorted(set(content) - allowed)}")
            raise Refusal(100, f"Unexpected key on param {kind}")
        if len(m.get("biz_opaque_callback_data", "")) > 512:
            raise Refusal(131009, "biz_opaque_callback_data")
        getattr(self, "_check_" + kind, lambda *_: None)(content, who)
        context = m.get("context")
        if context is not None and (set(context) != {"message_id"} or self.messages.get(context["message_id"], {}).get("who") is not who):
            raise Refusal(131009, "context.message_id")
        open = who["heard"] is not None and self.now() - who["heard"] < DAY
        if kind != "template" and not open and not self.late_window:
            raise Refusal(131047, "More than 24 hours have passed since the recipient last replied")
        self._pace(number, who)
        id = self._wamid(m.get("to") or m.get("recipient"))
        self.messages[id] = {"who": who, "out": True}
        self.sent.append({**m, "id": id, "who": who["name"]})
        failed = kind != "template" and not open
        for status in ("failed",) if failed else ("sent", "delivered") if self.statuses else ():
            self.status(id, status, number=number, code=131047 if failed else None)
        return {"messaging_product": "whatsapp", "contacts": [
            {"input": m.get("to") or m.get("recipient"), **({"wa_id": who["number"]} if who["number"] else {}),
             **({"user_id": who["bsuid"]} if who["bsuid"] else {})}], "messages": [{"id": id}]}

    def _recipient(self, m):
        if "to" not in m and "recipient" not in m:
            raise Refusal(100, "to or recipient")
        if "to" in m and not re.fullmatch(r"\+?\d{5,20}", m["to"]):
            raise Refusal(131009, "to is not a phone number")
        if "recipient" in m and not re.fullmatch(r"[A-Z]{2}\.(ENT\.)?[A-Za-z0-9]{1,128}", m["recipient"]):
            raise Refusal(131009, "recipient is not a BSUID")
        who = self.people.get((m.get("to") or m.get("recipient")).lstrip("+"))
        if not who:
            raise Refusal(131026)
        return who

    def _pace(self, number, who):
        now = time.monotonic()
        self.second = [t for t in self.second if now - t < 1] + [now]
        if len(self.second) > 80 * (1 + sum(s for _, s in self.stalls)):
            self.broke("more than 80 messages in a second")
            raise Refusal(130429)
        key = (number, who["name"], who["number"], who["bsuid"])
        level, at = self.pairs.get(key, (0, now))
        level = max(0, level - (now - at) / self.pair_gap)
        if level + 1 > self.pair_burst:
            self.limited += 1
            raise Refusal(131056, "too many messages sent from this phone number to the same phone number")
        self.pairs[key] = (level + 1, now)

    def _read(self, m):
        if set(m) - {"messaging_product", "status", "message_id", "typing_indicator"}:
            self.broke(f"typing has {sorted(m)}")
        got = self.messages.get(m.get("message_id"))
        if not got or got.get("out"):
            raise Refusal(131009, "message_id")
        if m.get("typing_indicator", {"type": "text"}) != {"type": "text"}:
            raise Refusal(131009, "typing_indicator")
        self.typed.append((m["message_id"], "typing_indicator" in m))
        return {"success": True}

    def _check_text(self, c, who):
        if not isinstance(c["body"], str) or not c["body"].strip():
            raise Refusal(100, "The parameter text['body'] is required.")
        if units(c["body"]) > 4096:
            self.broke("a text longer than 4096")
            raise Refusal(100, "Param text['body'] must be at most 4096 characters long.")

    def _check_file(self, kind, c):
        up = self.uploads.get(c["id"])
        if not up:
            raise Refusal(131053, "no such media")
        if up["kind"] != kind and not (kind == "document" and up["kind"] != "sticker"):
            raise Refusal(131053, f"{up['type']} is no {kind}")
        if units(c.get("caption", "")) > 1024:
            self.broke("a caption longer than 1024")
            raise Refusal(100, "caption")

    _check_image = lambda self, c, who: self._check_file("image", c)  # noqa: E731
    _check_video = lambda self, c, who: self._check_file("video", c)  # noqa: E731
    _check_audio = lambda self, c, who: self._check_file("audio", c)  # noqa: E731
    _check_sticker = lambda self, c, who: self._check_file("sticker", c)  # noqa: E731
    _check_document = lambda self, c, who: self._check_file("document", c)  # noqa: E731

    def _check_reaction(self, c, who):
        if self.messages.get(c["message_id"], {}).get("who") is not who:
            raise Refusal(131009, "reaction.message_id")
        if units(c["emoji"]) > 16 or re.match(r"[\x00-\x7f]", c["emoji"]):
            raise Refusal(131009, "reaction.emoji")

    def _check_interactive(self, c, who):
        body, action = c["body"].get("text", ""), c["action"]
        if set(c["body"]) != {"text"} or not body or units(body) > 1024:
            raise Refusal(131009, "interactive.body")
        if c["type"] == "button":
            titles = [b["reply"]["title"] for b in action["buttons"]]
            ids = [b["reply"]["id"] for b in action["buttons"]]
            ok = set(action) == {"buttons"} and all(set(b) == {"type", "reply"} and b["type"] == "reply" for b in action["buttons"]) and \
                1 <= len(titles) <= 3 and all(1 <= units(t) <= 20 for t in titles) and len(set(titles)) == len(titles) and \
                all(1 <= len(i) <= 256 for i in ids) and len(set(ids)) == len(ids)
        elif c["type"] == "list":
            rows = [r for s in action["sections"] for r in s["rows"]]
            ok = set(action) == {"button", "sections"} and 1 <= units(action["button"]) <= 20 and 1 <= len(rows) <= 10 and \
                (len(action["sections"]) == 1 or all(s.get("title") for s in action["sections"])) and \
                all(set(r) <= {"id", "title", "description"} and 1 <= units(r["title"]) <= 24 and units(r.get("description", "x")) <= 72 and
                    1 <= len(r["id"]) <= 200 for r in rows) and len({r["id"] for r in rows}) == len(rows)
        else:
            ok = False
        if not ok:
            self.broke(f"interactive {json.dumps(c)}")
            raise Refusal(131009, "interactive.action")

    def _check_template(self, c, who):
        want = self.templates.get((c["name"], c["language"].get("code")))
        if want is None:
            raise Refusal(132001, f"template name ({c['name']}) does not exist in {c['language'].get('code')}", 404)
        given = [p for part in c.get("components", []) if part["type"] == "body" for p in part["parameters"]]
        if len(given) != want:
            raise Refusal(132000, f"expected {want}, got {len(given)}")
        for p in given:
            if set(p) != {"type", "text"} or p["type"] != "text" or not p["text"] or re.search(r"[\n\t]| {4}", p["text"]):
                raise Refusal(132018, "Param text cannot have new-line/tab characters or more than 4 consecutive spaces")
            if units(p["text"]) > 1024:
                raise Refusal(132005, "translated text too long")

    # ---- files ----

    def _upload(self, request, body):
        form = email.message_from_bytes(b"Content-Type: " + request.headers["Content-Type"].encode() + b"\r\n\r\n" + body)
        parts = {p.get_param("name", header="Content-Disposition"): p for p in form.get_payload()}
        product = parts["messaging_product"].get_payload() if "messaging_product" in parts else request.query.get("messaging_product")
        if product != "whatsapp":
            raise Refusal(100, "messaging_product")
        if set(parts) - {"messaging_product", "type", "file"} or not parts["file"].get_filename():
            self.broke(f"upload of {sorted(parts)}")
        type, data = parts["file"].get_content_type(), parts["file"].get_payload(decode=True)
        if "type" in parts and parts["type"].get_payload(decode=True).decode().partition(";")[0] != type:
            self.broke("an upload with two types")
        if type not in MEDIA:
            raise Refusal(100, f"Param file must be a file with one of the following types: {', '.join(MEDIA)}. Received {type}")
        if type == "audio/ogg" and parts["file"].get_param("codecs") != "opus":
            raise Refusal(131053, "only OPUS codecs")
        kind, most = MEDIA[type]
        if not data or len(data) > most:
            raise Refusal(131053, f"{len(data)} bytes of {type}")
        id = f"{7000000000000000 + len(self.uploads) + 1}"
        self.uploads[id] = {"kind": kind, "type": type, "data": data, "name": parts["file"].get_filename()}
        return {"id": id}

    def file(self, data, type="image/png", number=None, **more):
        """A file of a person's; its id."""
        id = f"{5000000000000000 + len(self.media) + 1}"
        self.media[id] = {"data": data, "type": type, "sha256": hashlib.sha256(data).hexdigest(), "number": number or self.NUMBER_ID, **more}
        return id

    async def _download(self, request):
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.Response(status=401)
        m = self.media[request.match_info["id"]]
        return web.Response(body=m["data"], content_type=m["type"])

    # ---- webhooks ----

    def change(self, value, field="messages", number=None):
        number = number or self.NUMBER_ID
        return {"field": field, "value": {"messaging_product": "whatsapp", "metadata": {
            "display_phone_number": self.numbers[number], "phone_number_id": number}, **value}}

    def envelope(self, *changes):
        return {"object": "whatsapp_business_account", "entry": [{"id": self.WABA, "changes": list(changes)}]}

    def contact(self, who):
        return {"profile": {"name": who["name"], **({"username": who["username"]} if who["username"] else {})},
                **({"wa_id": who["number"]} if who["number"] else {}), **({"user_id": who["bsuid"]} if who["bsuid"] else {})}

    def message(self, id, text=None, type="text", at=None, **more):
        """What a person writes: the message object."""
        who, at = self.people[id], self.now() if at is None else at
        who["heard"] = max(who["heard"] or 0, at)
        m = {**({"from": who["number"]} if who["number"] else {}), **({"from_user_id": who["bsuid"]} if who["bsuid"] else {}),
             "id": self._wamid(id), "timestamp": str(int(at)), "type": type, **({"text": {"body": text}} if text is not None else {}), **more}
        self.messages[m["id"]] = {"who": who}
        return m

    def value(self, *messages):
        who = [self.messages[m["id"]]["who"] for m in messages]
        return {"contacts": [self.contact(w) for w in who], "messages": list(messages)}

    def say(self, id, text=None, number=None, **more):
        """A person writes, and the webhook is taken.  The message's id."""
        m = self.message(id, text, **more)
        self.tell(self.envelope(self.change(self.value(m), number=number)))
        return m["id"]

    def press(self, id, message, title):
        """A person presses the button, or picks the row, of that title."""
        sent = next(s for s in self.sent if s["id"] == message)["interactive"]
        kind = "button_reply" if sent["type"] == "button" else "list_reply"
        options = [b["reply"] for b in sent["action"].get("buttons", [])] + [r for s in sent["action"].get("sections", []) for r in s["rows"]]
        option = next(o for o in options if o["title"] == title)
        return self.say(id, type="interactive", context={"from": self.NUMBER, "id": message}, interactive={"type": kind, kind: dict(option)})

    def status(self, id, status, number=None, code=None, recipient=None, data=None, wait=False):
        """Tells how a message ended; in the background, and again until it is heard, unless @wait."""
        m = next((s for s in self.sent if s["id"] == id), {})
        mark = data if data is not None else m.get("biz_opaque_callback_data")
        who = {"recipient_user_id": m["recipient"]} if m.get("recipient") else {"recipient_id": recipient or m.get("to", "").lstrip("+")}
        s = {"id": id, "status": status, "timestamp": str(int(self.now())), **who, **({"biz_opaque_callback_data": mark} if mark else {})}
        if code:
            s["errors"] = [{"code": code, "title": TITLES.get(code, "x"), "message": TITLES.get(code, "x"), "error_data": {"details": "x"},
                            "href": "https://developers.facebook.com/docs/whatsapp/cloud-api/support/error-codes/"}]
        body = self.envelope(self.change({"statuses": [s]}, number=number))
        if wait:
            self.tell(body)
        else:
            asyncio.run_coroutine_threadsafe(self._repeat(body), self.loop)

    async def _repeat(self, body):
        self.unheard.append(body)
        while True:
            await asyncio.sleep(0.02)
            if not self.request_url or not self.hooks.is_set():
                continue
            try:
                status, _ = await self.loop.run_in_executor(None, self.post, json.dumps(body))
                if status == 200:
                    break
            except OSError:
                pass
            await asyncio.sleep(0.3)
        self.unheard.remove(body)

    def sign(self, body, secret=None):
        return {"X-Hub-Signature-256": "sha256=" + hmac.new((secret or self.secret).encode(), body, hashlib.sha256).hexdigest()}

    def post(self, body, headers=None):
        body = body.encode() if isinstance(body, str) else body
        headers = {"Content-Type": "application/json", "User-Agent": "facebookexternalua", **(self.sign(body) if headers is None else headers)}
        try:
            with urllib.request.urlopen(urllib.request.Request(self.request_url, body, headers), timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()

    def tell(self, body):
        status, text = self.post(json.dumps(body, ensure_ascii=False))  # Meta's escaping differs; the bytes are what is signed
        assert status == 200, (status, text)

    def shown(self, id):
        """The texts that the person sees."""
        who = self.people[id]
        return [s["text"]["body"] for s in self.sent if self.people[(s.get("to") or s.get("recipient")).lstrip("+")] is who and "text" in s]
