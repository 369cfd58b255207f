"""Discord's gateway and REST API, as documented: refuses what the real one refuses, and misbehaves when told to.

    sim = DiscordSim(TOKEN)
    sim.say(GENERAL, "hello")                    # Ann writes in #general
    sim.texts(GENERAL)                           # what the bot wrote there
    sim.limit(GENERAL, 1.5)                      # the next send to that channel is answered 429
    sim.trouble("POST", "/messages", 500)        # the next such call fails; nothing happened
    sim.trouble("POST", "/messages", None)       # the next such call happens, its answer never comes
    sim.interaction("token")                     # from now on Discord knows this token; sim.hooks["token"] is what it was used for
    sim.reconnect(), sim.invalidate(False), sim.close_with(4000), sim.cut(), sim.freeze()

Stricter than the real server in one way: fields it does not know are refused, so that our mistakes are seen.
Every rule that was broken is also written down in sim.violations.
"""
import asyncio
import base64
import email
import json
import re
import threading
import time

from aiohttp import WSMsgType, web

KNOWN_INTENTS = sum(1 << b for b in [*range(17), 20, 21, 24, 25])
PRIVILEGED = 1 << 1 | 1 << 8 | 1 << 15
GUILDS, GUILD_MESSAGES, DIRECT_MESSAGES, MESSAGE_CONTENT = 1, 1 << 9, 1 << 12, 1 << 15
MESSAGE_FIELDS = {"content", "nonce", "enforce_nonce", "allowed_mentions", "message_reference", "tts", "embeds", "flags",
                  "attachments", "components"}
EDIT_FIELDS = {"content", "allowed_mentions", "embeds", "flags", "attachments", "components"}
EDIT_FIELDS |= {"tts", "nonce", "enforce_nonce"}  # discord.js names them in every message
THREADS = (10, 11, 12)
VOICE = 1 << 13
GUILD_REACTIONS, DM_REACTIONS = 1 << 10, 1 << 13
READ_MESSAGE_HISTORY = 1 << 16

BOT, APP = "900000000000000009", "910000000000000009"
ANN, OWNER = "420000000000000042", "100000000000000001"
GUILD, GENERAL, STAFF, FORUM = "770000000000000077", "100000000000000100", "110000000000000110", "120000000000000120"
THREAD, POST, DM = "200000000000000200", "220000000000000220", "300000000000000300"


class Refusal(Exception):
    def __init__(self, status, code, message, headers=None, **more):
        super().__init__(message)
        self.status, self.headers = status, headers or {}
        self.body = {"message": message, "code": code, **more}


def bad(field, why):
    return Refusal(400, 50035, "Invalid Form Body", errors={field: {"_errors": [{"message": why}]}})


class Session:
    def __init__(self, id, intents, shard):
        self.id, self.intents, self.shard = id, intents, shard
        self.events, self.seq, self.ws, self.valid = [], 0, None, True


class DiscordSim:
    def __init__(self, token, shards=1, heartbeat_ms=41250, max_concurrency=1):
        self.token, self.shards, self.heartbeat_ms, self.max_concurrency = token, shards, heartbeat_ms, max_concurrency
        self.remaining, self.allowed_privileged = 1000, 1 << 15
        self.sessions, self.frozen, self.refuse_close = {}, False, None
        self.identifies, self.resumes, self.calls, self.violations = [], [], [], []
        self.window, self.window_s = 5, 1.0  # so many writes per channel and window
        self.per_second, self.second, self.refused = 0, (0, 0), []  # of the bot; 0: no limit
        self.buckets, self.troubles, self.limits, self.nonces = {}, [], {}, {}
        self.messages, self.forbidden, self.typed = {}, {}, []
        self.callbacks = {}  # interaction token -> how it was answered
        self.hold_answers = False  # what is posted happens, and is not answered
        self.answer_after_s = 0  # a distance that every answer crosses
        self.hooks = {}  # interaction token -> what was done with it
        self.voiceless = set()  # channels where the bot may send no voice messages
        self.threadless = set()  # channels where the bot may open no threads
        self.thread_members = {}  # private thread -> ids of people; who writes there is one
        self.untold = set()  # kinds of events that the bot is not told of
        self.people = {ANN: {"id": ANN, "username": "ann", "global_name": "Ann"}}
        self.guilds = {GUILD: self._guild()}
        self.channels = {c["id"]: {**c, "guild_id": GUILD} for c in
                         self.guilds[GUILD]["channels"] + self.guilds[GUILD]["threads"]}
        self.channels[DM] = {"id": DM, "type": 1, "recipients": [self.people[ANN]]}
        self.last_id, self.lock = 0, threading.RLock()
        self.loop = asyncio.new_event_loop()
        ready = threading.Event()
        threading.Thread(target=self._main, args=(ready,), daemon=True).start()
        assert ready.wait(10)

    @staticmethod
    def _guild():
        return {
            "id": GUILD, "name": "Hotel", "owner_id": OWNER, "large": False, "member_count": 3,
            "roles": [{"id": GUILD, "name": "@everyone", "permissions": str(1024 | READ_MESSAGE_HISTORY)},
                      {"id": "500", "name": "bellhop", "permissions": "0", "tags": {"bot_id": BOT}}],
            "channels": [{"id": GENERAL, "type": 0, "name": "general", "topic": "all things", "permission_overwrites": []},
                         {"id": STAFF, "type": 0, "name": "staff", "permission_overwrites": []},
                         {"id": FORUM, "type": 15, "name": "questions", "topic": "ask here", "permission_overwrites": []}],
            "threads": [{"id": THREAD, "type": 11, "name": "dinner", "parent_id": GENERAL},
                        {"id": POST, "type": 11, "name": "how do I", "parent_id": FORUM}],
            "members": [{"user": {"id": ANN, "username": "ann"}, "nick": "Annie", "roles": []}],
        }

    # ---- the server ----

    def _main(self, ready):
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self._start())
        ready.set()
        self.loop.run_forever()

    async def _start(self, port=0):
        app = web.Application(client_max_size=2**20)
        for path in ("/gw", "/gw/", "/resume", "/resume/"):
            app.router.add_get(path, self._socket)
        app.router.add_route("*", "/api/v10/{path:.*}", self._rest)
        self.runner = web.AppRunner(app)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", port, shutdown_timeout=0.2)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/api/v10"
        self.ws_url = f"ws://127.0.0.1:{self.port}"

    def _now(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(10)

    def down(self):
        self.cut()
        self._now(self.runner.cleanup())

    def up(self):
        self._now(self._start(self.port))

    def close(self):
        self.down()
        self._now(self._end_tasks())
        self.loop.call_soon_threadsafe(self.loop.stop)

    async def _end_tasks(self):
        tasks = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
        for t in tasks:
            t.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def broke(self, what):
        self.violations.append(what)

    # ---- the gateway ----

    async def _socket(self, request):
        ws = web.WebSocketResponse(max_msg_size=4096, autoping=True)
        await ws.prepare(request)
        ws.session, ws.path, ws.transport, ws.frozen = None, request.path, request.transport, False
        if request.query.get("v") != "10" or request.query.get("encoding") != "json":
            self.broke("gateway version or encoding")
            await ws.close(code=4012)
            return ws
        ws.beat = time.monotonic()
        ws.received = []
        await ws.send_json({"op": 10, "d": {"heartbeat_interval": self.heartbeat_ms}, "s": None, "t": None})
        watch = asyncio.ensure_future(self._watch(ws))
        try:
            async for message in ws:
                if message.type != WSMsgType.TEXT:
                    await ws.close(code=4002)
                    break
                await self._take(ws, message.data)
        finally:
            watch.cancel()
            if ws.session is not None and ws.session.ws is ws:
                ws.session.ws = None
        return ws

    async def _watch(self, ws):
        """The connection of a client that does not beat is closed."""
        while not ws.closed:
            await asyncio.sleep(0.05)
            if time.monotonic() - ws.beat > self.heartbeat_ms / 1000 * 1.6 + 0.2 and not ws.frozen:
                self.broke("missed a heartbeat")
                await ws.close(code=4000)

    async def _take(self, ws, text):
        now = time.monotonic()
        ws.received = [t for t in ws.received if now - t < 60] + [now]
        if len(ws.received) > 120:
            self.broke("more than 120 gateway messages in a minute")
            await ws.close(code=4008)
            return
        try:
            frame = json.loads(text)
            op, d = frame["op"], frame.get("d")
        except (ValueError, KeyError, TypeError):
            self.broke("not a gateway message")
            await ws.close(code=4002)
            return
        if op == 1:
            ws.beat = now
            if not isinstance(d, (int, type(None))):
                self.broke("heartbeat without a sequence")
                await ws.close(code=4002)
            elif not self.frozen and not ws.frozen:
                await ws.send_json({"op": 11})
        elif op == 2:
            await self._identify(ws, d)
        elif op == 6:
            await self._resume(ws, d)
        elif op in (3, 4, 8, 31):
            await ws.close(code=4003 if ws.session is None else 1000)
        else:
            self.broke(f"opcode {op}")
            await ws.close(code=4001)

    async def _identify(self, ws, d):
        if ws.session is not None:
            self.broke("identified twice")
            await ws.close(code=4005)
            return
        shard = d.get("shard", [0, 1])
        code = self.refuse_close
        if d.get("token") != self.token:
            code = 4004
        elif not isinstance(d.get("intents"), int) or d["intents"] & ~KNOWN_INTENTS:
            code = 4013
        elif d["intents"] & PRIVILEGED & ~self.allowed_privileged:
            code = 4014
        elif not {"os", "browser", "device"} <= set(d.get("properties", {})):
            code = 4002
        elif not (0 <= shard[0] < shard[1]):
            code = 4010
        elif shard[1] < self.shards:
            code = 4011
        if code:
            await ws.close(code=code)
            return
        now = time.monotonic()
        key = shard[0] % self.max_concurrency
        if any(k == key and now - at < 5 for k, at in self.identifies):
            self.broke("identified too fast")
            await ws.send_json({"op": 9, "d": False})
            return
        self.identifies.append((key, now))
        self.remaining -= 1
        session = Session(f"session-{len(self.sessions)}", d["intents"], tuple(shard))
        self.sessions[session.id] = session
        ws.session, session.ws = session, ws
        ours = [g for g in self.guilds if (int(g) >> 22) % shard[1] == shard[0]]
        await self._dispatch(session, "READY", {
            "v": 10, "user": {"id": BOT, "username": "bellhop", "bot": True}, "session_id": session.id,
            "resume_gateway_url": self.ws_url + "/resume", "shard": shard, "application": {"id": BOT, "flags": 0},
            "guilds": [{"id": g, "unavailable": True} for g in ours]})
        for g in ours:
            await self._dispatch(session, "GUILD_CREATE", self._guild_now(g))

    def _guild_now(self, id):
        """As GUILD_CREATE tells it: with the newest message of every channel."""
        guild = {**self.guilds[id]}
        for part in ("channels", "threads"):
            guild[part] = [{**c, "last_message_id": max((m["id"] for m in self.messages.get(c["id"], [])), key=int,
                                                        default=None)} for c in guild[part]]
        return guild

    async def _resume(self, ws, d):
        session = self.sessions.get(d.get("session_id"))
        self.resumes.append({"path": ws.path, "seq": d.get("seq"), "ok": session is not None and session.valid})
        if d.get("token") != self.token:
            await ws.close(code=4004)
        elif session is None or not session.valid:
            await ws.send_json({"op": 9, "d": False})
        elif not isinstance(d.get("seq"), int) or d["seq"] > session.seq:
            self.broke("resumed from the future")
            await ws.close(code=4007)
        else:
            if ws.path not in ("/resume", "/resume/"):
                self.broke("resumed at the wrong address")
            if session.ws is not None and not session.ws.closed:
                await session.ws.close(code=4000)
            ws.session, session.ws = session, ws
            for event in [e for e in session.events if e["s"] > d["seq"]]:
                await ws.send_json(event)
            await self._dispatch(session, "RESUMED", {})

    async def _dispatch(self, session, kind, d):
        session.seq += 1
        event = {"op": 0, "t": kind, "s": session.seq, "d": d}
        session.events.append(event)
        ws = session.ws
        if ws is not None and not ws.closed and not ws.frozen:
            try:
                await ws.send_json(event)
            except ConnectionError:
                pass

    def _session_for(self, guild):
        """The newest valid session that gets this guild's events."""
        for s in reversed(list(self.sessions.values())):
            if s.valid and (int(guild or 0) >> 22) % s.shard[1] == s.shard[0]:
                return s
        return None

    async def _tell(self, kind, d, need=0):
        session = self._session_for(d.get("guild_id"))
        if session is None or (need and not session.intents & need) or kind in self.untold:
            return
        if kind == "MESSAGE_CREATE" and d.get("guild_id") and not session.intents & MESSAGE_CONTENT and \
                not any(m["id"] == BOT for m in d["mentions"]):
            d = {**d, "content": "", "embeds": [], "attachments": []}
        await self._dispatch(session, kind, d)

    # ---- REST ----

    async def _rest(self, request):
        path = "/" + request.match_info["path"]
        body = await request.read()
        try:
            if not re.match(r"DiscordBot \(\S+, [\d.]+\)( |$)", request.headers.get("User-Agent", "")):
                self.broke("user agent")
                raise Refusal(403, 40333, "internal network error")
            by_token = path.startswith(("/interactions/", "/webhooks/")) and "Authorization" not in request.headers
            if not by_token and request.headers.get("Authorization") != f"Bot {self.token}":
                self.calls.append((request.method, path, None))
                raise Refusal(401, 0, "401: Unauthorized")
            data = None
            if request.content_type == "multipart/form-data":
                data = self._multipart(request.headers["Content-Type"], body)
            elif body:
                if request.headers.get("Content-Type") != "application/json":
                    raise Refusal(400, 50035, "Invalid Content-Type")
                try:
                    data = json.loads(body)
                except ValueError:
                    raise Refusal(400, 50109, "The request body contains invalid JSON.") from None
            self.calls.append((request.method, path, data))
            trouble = next((t for t in self.troubles if t["method"] == request.method and t["path"] in path), None)
            if trouble:
                trouble["times"] -= 1
                if trouble["times"] == 0:
                    self.troubles.remove(trouble)
                await asyncio.sleep(trouble["delay"])
                if trouble["status"]:
                    return web.Response(status=trouble["status"], text="<html>trouble</html>")
            headers = self._count(request.method, path)
            await asyncio.sleep(self.answer_after_s)
            status, answer = await self._do(request.method, path, dict(request.query), data)
            while self.hold_answers and request.method == "POST" and path.endswith("/messages"):
                await asyncio.sleep(0.02)
            if trouble:
                request.transport.abort()
                return web.Response(status=200)
            if status == 204:
                return web.Response(status=204, headers=headers)
            return web.json_response(answer, status=status, headers=headers)
        except Refusal as r:
            return web.json_response(r.body, status=r.status, headers=r.headers)

    @staticmethod
    def _multipart(content_type, body):
        """payload_json and files[n]; every file has its entry in attachments."""
        form = email.message_from_bytes(b"Content-Type: " + content_type.encode() + b"\r\n\r\n" + body)
        data, files = None, {}
        for part in form.get_payload():
            name = part.get_param("name", header="Content-Disposition")
            if name == "payload_json":
                data = json.loads(part.get_payload(decode=True))
            elif m := re.fullmatch(r"files\[(\d+)\]", name or ""):
                files[int(m[1])] = (part.get_filename(), part.get_content_type(), part.get_payload(decode=True))
            else:
                raise bad(name, "an unknown part")
        if data is not None:
            data["attachments"] = [{**a, "id": int(a["id"])} for a in data.get("attachments", [])]
        if data is None or sorted(files) != sorted(a["id"] for a in data["attachments"]):
            raise bad("attachments", "do not match the files")
        if sum(len(f[2]) for f in files.values()) > 10 * 2**20:
            raise Refusal(413, 40005, "Request entity too large")
        if any(set(a) - {"id", "filename", "title", "description", "duration_secs", "waveform"} for a in data["attachments"]):
            raise bad("attachments", "unknown field")
        return {**data, "attachments": [{**a, "filename": files[a["id"]][0], "content_type": files[a["id"]][1],
                                         "bytes": files[a["id"]][2]} for a in data["attachments"]]}

    def _count(self, method, path):
        """One bucket per kind of route and channel, as the headers tell."""
        m = re.match(r"/channels/(\d+)(/messages|/typing)?", path)
        now = time.monotonic()
        if self.per_second and now - self.second[0] >= 1:
            self.second = (now, 0)
        self.second = (self.second[0], self.second[1] + 1)
        if self.per_second and self.second[1] > self.per_second:
            self.refused.append((now, method, path))
            raise Refusal(429, 0, "You are being rate limited.", headers={
                "Retry-After": "1", "X-RateLimit-Scope": "global", "X-RateLimit-Global": "true"},
                retry_after=self.second[0] + 1 - now, **{"global": True})
        if not m:
            return {}
        kind = method + (m[2] or "")
        key = (kind, m[1])
        start, used = self.buckets.get(key, (now, 0))
        if now - start >= self.window_s:
            start, used = now, 0
        left = start + self.window_s - now
        injected = self.limits.get(m[1]) if method == "POST" and m[2] == "/messages" else None
        if injected:
            del self.limits[m[1]]
            wait, scope = injected
            raise Refusal(429, 0, "You are being rate limited.", headers={
                "Retry-After": str(int(wait) + 1), "X-RateLimit-Scope": scope,
                **({"X-RateLimit-Global": "true"} if scope == "global" else {})},
                retry_after=wait, **{"global": scope == "global"})
        headers = {"X-RateLimit-Limit": str(self.window), "X-RateLimit-Remaining": str(max(0, self.window - used - 1)),
                   "X-RateLimit-Reset-After": f"{left:.3f}", "X-RateLimit-Reset": f"{time.time() + left:.3f}",
                   "X-RateLimit-Bucket": f"bucket-{kind}"}
        if used >= self.window:
            self.refused.append((now, method, path))
            self.broke(f"{kind} on an exhausted bucket")
            raise Refusal(429, 0, "You are being rate limited.", headers={**headers, "Retry-After": "1",
                                                                           "X-RateLimit-Scope": "user"},
                          retry_after=left, **{"global": False})
        self.buckets[key] = (start, used + 1)
        return headers

    async def _do(self, method, path, query, data):
        if path == "/gateway/bot" and method == "GET":
            return 200, {"url": self.ws_url + "/gw", "shards": self.shards, "session_start_limit": {
                "total": 1000, "remaining": self.remaining, "reset_after": 2000, "max_concurrency": self.max_concurrency}}
        if path == "/applications/@me" and method == "GET":
            flags = sum(1 << limited for intent, limited in ((8, 13), (1, 15), (15, 19)) if self.allowed_privileged >> intent & 1)
            return 200, {"id": APP, "name": "Bellhop", "flags": flags, "bot_public": True}
        m = re.match(r"/guilds/(\d+)(/channels|/threads/active)?$", path)
        if m and method == "GET":
            return 200, self._get_guild(m[1], m[2])
        m = re.match(r"/webhooks/(\w+)/([\w.-]+)(/messages/@original)?$", path)
        if m:
            return 200, self._hook(method, m[1], m[2], m[3] is not None, query, data)
        m = re.match(r"/interactions/(\d+)/([\w.-]+)/callback$", path)
        if m and method == "POST":
            if m[2] in self.callbacks:
                raise Refusal(400, 40060, "Interaction has already been acknowledged.")
            if data.get("type") not in (1, 4, 5, 6, 7, 8):
                raise bad("type", "unknown value")
            self._check_components(data.get("data", {}).get("components", []))
            self.callbacks[m[2]] = data
            return 204, None
        m = re.match(r"/guilds/(\d+)/members/(\d+)$", path)
        if m and method == "GET":
            return 200, self._get_member(*m.groups())
        m = re.match(r"/channels/(\d+)/thread-members/(\d+)$", path)
        if m and method == "GET" and m[1] in self.channels:
            if m[2] not in self.thread_members.get(m[1], ()):
                raise Refusal(404, 10013, "Unknown User")
            return 200, {"id": m[1], "user_id": m[2], "join_timestamp": "2026-01-01T00:00:00Z", "flags": 0}
        m = re.match(r"/applications/(\w+)/commands(?:/(\d+))?$", path)
        if m:
            return self._commands(method, m[2], data)
        m = re.match(r"/channels/(\d+)/messages/(\d+)/reactions/([^/]+)/@me$", path)
        if m and method in ("PUT", "DELETE") and m[1] in self.channels:
            return self._react(method, m[1], m[2], m[3])
        m = re.match(r"/channels/(\d+)(?:/messages/(\d+))?/threads$", path)
        if m and method == "POST" and m[1] in self.channels:
            return await self._make_thread(m[1], m[2], data)
        m = re.match(r"/channels/(\d+)$", path)
        if m and method == "PATCH" and m[1] in self.channels:
            self.channels[m[1]]["name"] = data["name"]
            await self._tell("THREAD_UPDATE" if self.channels[m[1]]["type"] in THREADS else "CHANNEL_UPDATE", self.channels[m[1]])
            return 200, self.channels[m[1]]
        m = re.match(r"/channels/(\d+)(?:/(messages|typing)(?:/(\d+))?)?$", path)
        if not m:
            raise Refusal(404, 0, "404: Not Found")
        channel, what, message = m.groups()
        if channel not in self.channels:
            raise Refusal(404, 10003, "Unknown Channel")
        if channel in self.forbidden:
            raise Refusal(403, *self.forbidden[channel])
        if what is None and method == "GET":
            return 200, self.channels[channel]
        if what == "typing" and method == "POST":
            self.typed.append(channel)
            return 204, None
        if what == "messages" and method == "GET" and message is None:
            return 200, self._history(channel, query)
        if what == "messages" and method == "GET":
            for found in self.messages.get(channel, []):
                if found["id"] == message:
                    return 200, found
            raise Refusal(404, 10008, "Unknown Message")
        if what == "messages" and method == "POST" and message is None:
            return 200, await self._create(channel, data)
        if what == "messages" and method == "PATCH" and message is not None:
            return 200, self._edit(channel, message, data)
        raise Refusal(405, 0, "405: Method Not Allowed")

    def _hook(self, method, application, token, original, query, data):
        if token not in self.hooks:
            raise Refusal(401, 50027, "Invalid Webhook Token")
        done = self.hooks[token]
        self._check_content(data, EDIT_FIELDS)
        if method == "PATCH" and original:
            done["original"] = data.get("content")
            done["files"] = data.get("attachments", [])
            done["edits"] += 1
        elif method == "POST" and not original and query == {"wait": "true"}:
            done["follow_ups"].append(data["content"])
        else:
            self.broke(f"{method} on a webhook")
            raise Refusal(405, 0, "405: Method Not Allowed")
        self.last_hook_id = getattr(self, "last_hook_id", 880000000000000000) + 1
        return {"id": str(self.last_hook_id), "content": data.get("content")}

    def _get_guild(self, id, what):
        if id not in self.guilds:
            raise Refusal(404, 10004, "Unknown Guild")
        g = self.guilds[id]
        if what == "/channels":
            return g["channels"]
        if what == "/threads/active":
            return {"threads": g["threads"], "members": []}
        return {k: v for k, v in g.items() if k not in ("channels", "threads", "members")}

    def _get_member(self, guild, user):
        if guild not in self.guilds:
            raise Refusal(404, 10004, "Unknown Guild")
        for member in self.guilds[guild]["members"]:
            if member["user"]["id"] == user:
                return member
        raise Refusal(404, 10007, "Unknown Member")

    def _history(self, channel, query):
        limit = int(query.get("limit", 50))
        if not 1 <= limit <= 100:
            raise bad("limit", "must be between 1 and 100")
        if len(set(query) & {"around", "before", "after"}) > 1 or set(query) - {"around", "before", "after", "limit"}:
            raise bad("_", "around, before and after are mutually exclusive")
        if not self.bot_may(channel, READ_MESSAGE_HISTORY):
            return []
        found = self.messages.get(channel, [])
        if "before" in query:
            found = [m for m in found if int(m["id"]) < int(query["before"])][-limit:]
        else:
            found = [m for m in found if int(m["id"]) > int(query.get("after", 0))][:limit]
        rest = {"guild_id", "member"}  # REST does not say these
        return [{k: v for k, v in m.items() if k not in rest} for m in reversed(found)]

    def bot_may(self, channel, permission):
        """By what is denied to everybody there; a thread has its parent's overwrites."""
        c = self.channels[channel]
        c = self.channels[c["parent_id"]] if c["type"] in THREADS else c
        denied = sum(int(o["deny"]) for o in c.get("permission_overwrites", []) if o["id"] == c.get("guild_id"))
        return not denied & permission

    @staticmethod
    def _check_content(data, fields):
        if not isinstance(data, dict):
            raise bad("_", "expected an object")
        unknown = set(data) - fields
        if unknown:
            raise bad(unknown.pop(), "unknown field")
        content = data.get("content")
        DiscordSim._check_components(data.get("components", []))
        DiscordSim._check_voice(data)
        if data.get("attachments") and content is None:
            return
        if not isinstance(content, str) or not content.strip():
            raise Refusal(400, 50006, "Cannot send an empty message")
        if len(content) > 2000:
            raise bad("content", "Must be 2000 or fewer in length.")
        mentions = data.get("allowed_mentions")
        if mentions is not None:
            if set(mentions) - {"parse", "roles", "users", "replied_user"} or \
                    set(mentions.get("parse", [])) - {"users", "roles", "everyone"}:
                raise bad("allowed_mentions", "unknown value")

    @staticmethod
    def _check_voice(data):
        files = data.get("attachments", [])
        if not data.get("flags", 0) & VOICE:
            if any(f.get("waveform") is not None or f.get("duration_secs") is not None for f in files):
                raise bad("attachments", "only voice messages have these")
            return
        if len(files) != 1 or data.get("content") is not None or data.get("embeds") or data.get("components"):
            raise Refusal(400, 50160, "Voice messages do not support additional content.")
        f = files[0]
        if not isinstance(f.get("duration_secs"), (int, float)) or not 0 < f["duration_secs"] <= 1200:
            raise Refusal(400, 50161, "Voice messages must have supporting metadata.")
        if not 1 <= len(base64.b64decode(f["waveform"], validate=True)) <= 256:
            raise bad("waveform", "between 1 and 256 bytes")

    @staticmethod
    def _check_components(rows):
        seen = set()
        if not isinstance(rows, list) or len(rows) > 5:
            raise bad("components", "Must be between 1 and 5 in length.")
        for row in rows:
            if row.get("type") != 1 or not 1 <= len(row.get("components", [])) <= 5:
                raise bad("components", "an action row has 1 to 5 buttons")
            for b in row["components"]:
                if set(b) - {"type", "style", "label", "custom_id", "disabled"} or b["type"] != 2 or \
                        b["style"] not in (1, 2, 3, 4) or not 1 <= len(b["label"]) <= 80 or \
                        not 1 <= len(b["custom_id"]) <= 100 or b["custom_id"] in seen:
                    raise bad("components", f"bad button {b}")
                seen.add(b["custom_id"])

    def _react(self, method, channel, id, emoji):
        message = next((m for m in self.messages.get(channel, []) if m["id"] == id), None)
        if message is None:
            raise Refusal(404, 10008, "Unknown Message")
        if len(emoji) > 8:
            raise Refusal(400, 10014, "Unknown Emoji")
        mine = message.setdefault("mine", [])
        if method == "PUT" and emoji not in mine:
            mine.append(emoji)
        elif method == "DELETE" and emoji in mine:
            mine.remove(emoji)
        return 204, None

    async def _make_thread(self, channel, message, data):
        if not 1 <= len(data.get("name", "")) <= 100:
            raise bad("name", "Must be between 1 and 100 in length.")
        if set(data) - {"name", "type", "auto_archive_duration", "message", "rate_limit_per_user", "invitable"}:
            raise bad("_", "unknown field")
        kind = self.channels[channel]["type"]
        if kind not in (0, 5, 15, 16) or (kind in (15, 16)) != ("message" in data) or (message and kind in (15, 16)):
            raise Refusal(400, 50024, "Cannot execute action on this channel type")
        if data.get("auto_archive_duration", 60) not in (60, 1440, 4320, 10080):
            raise bad("auto_archive_duration", "unknown value")
        if message and not any(m["id"] == message for m in self.messages.get(channel, [])):
            raise Refusal(404, 10008, "Unknown Message")
        if channel in self.threadless:
            raise Refusal(403, 50013, "Missing Permissions")
        if "message" in data:
            self._check_content(data["message"], MESSAGE_FIELDS)
        with self.lock:
            self.last_id += 1
            id = message or str(self.last_id)
        if id in self.channels:
            raise Refusal(400, 160004, "A thread has already been created for this message")
        thread = {"id": id, "type": 11, "guild_id": self.channels[channel]["guild_id"], "parent_id": channel,
                  "name": data["name"], "owner_id": BOT, "thread_metadata": {"archived": False}}
        self.channels[id] = thread
        self.guilds[thread["guild_id"]]["threads"].append(thread)
        if "message" in data:
            self._message(id, {"id": BOT, "username": "bellhop", "bot": True}, data["message"]["content"])
        await self._tell("THREAD_CREATE", {**thread, "newly_created": True})
        return 201, thread

    def _commands(self, method, id, data):
        have = self.commands
        if method == "GET" and id is None:
            return 200, list(have.values())
        if method in ("POST", "PATCH"):
            if not re.fullmatch(r"[a-z0-9_-]{1,32}", data["name"]) or not 1 <= len(data["description"]) <= 100:
                raise bad("name", "Command name is invalid")
            if len(have) >= 100 or set(data) - {"name", "description", "options", "type"}:
                raise bad("_", "too many commands, or an unknown field")
            for o in data.get("options", []):
                if not re.fullmatch(r"[a-z0-9_-]{1,32}", o.get("name", "")) or not 1 <= len(o.get("description", "")) <= 100 or \
                        o.get("type") not in range(1, 12):
                    raise bad("options", "an option is wrong")
            if method == "POST":
                id = next((i for i, c in have.items() if c["name"] == data["name"]), None)
            with self.lock:
                self.last_id += 1
            id = id or str(self.last_id)
            have[id] = {"id": id, "type": 1, "options": [], **data}
            return 200, have[id]
        if method == "DELETE" and id in have:
            del have[id]
            return 204, None
        raise Refusal(404, 10063, "Unknown application command")

    commands = {}

    async def _create(self, channel, data):
        self._check_content(data, MESSAGE_FIELDS)
        if data.get("flags", 0) & VOICE and channel in self.voiceless:
            raise Refusal(403, 50173, "Cannot send voice messages in this channel")
        nonce, reference = data.get("nonce"), data.get("message_reference")
        if nonce is not None and not (isinstance(nonce, (str, int)) and len(str(nonce)) <= 25):
            raise bad("nonce", "Must be 25 or fewer in length.")
        if data.get("enforce_nonce") and (channel, nonce) in self.nonces:
            return self.nonces[channel, nonce]
        if reference is not None:
            if set(reference) - {"type", "message_id", "channel_id", "guild_id", "fail_if_not_exists"}:
                raise bad("message_reference", "unknown field")
            known = any(m["id"] == reference["message_id"] for m in self.messages.get(channel, []))
            if not known and reference.get("fail_if_not_exists", True):
                raise bad("message_reference", "Unknown message")
            reference = reference if known else None
        if len(re.findall("@everyone|@here", data.get("content", ""))) and \
                "everyone" in data.get("allowed_mentions", {"parse": ["everyone"]}).get("parse", []):
            self.broke("pinged everyone")
        bot = {"id": BOT, "username": "bellhop", "bot": True}
        message = self._message(channel, bot, data.get("content", ""), type=19 if reference else 0)
        message["components"] = data.get("components", [])
        self.files = getattr(self, "files", {})
        self.files[message["id"]] = data.get("attachments", [])
        if reference:
            message["message_reference"] = {**reference, "channel_id": channel}
        message["nonce"] = nonce
        self.nonces[channel, nonce] = message
        await self._tell("MESSAGE_CREATE", message)
        return message

    def _edit(self, channel, id, data):
        message = next((m for m in self.messages.get(channel, []) if m["id"] == id), None)
        if message is None:
            raise Refusal(404, 10008, "Unknown Message")
        self._check_content({"content": message["content"], **data}, EDIT_FIELDS)  # what is left out stays
        if message["author"]["id"] != BOT:
            raise Refusal(403, 50005, "Cannot edit a message authored by another user")
        message["content"] = data.get("content", message["content"])
        if "components" in data:
            message["components"] = data["components"]
        return message

    # ---- what tests say ----

    def interaction(self, token):
        """Discord made an interaction with this token; returns what is done with it."""
        return self.hooks.setdefault(token, {"original": None, "edits": 0, "follow_ups": []})

    def _message(self, channel, author, content, **more):
        with self.lock:
            now = int(time.time() * 1000) - 1420070400000
            self.last_id = max(self.last_id + 1, now << 22)
            message = {"id": str(self.last_id), "channel_id": channel, "author": author, "content": content, "type": 0,
                       "timestamp": "2026-01-01T00:00:00Z", "edited_timestamp": None, "tts": False, "pinned": False,
                       "mention_everyone": False, "mentions": [], "mention_roles": [], "attachments": [], "embeds": [],
                       "flags": 0, "components": [], **more}
            ch = self.channels[channel]
            if "guild_id" in ch:
                message.update(guild_id=ch["guild_id"], channel_type=ch["type"],
                               member={"nick": "Annie" if author["id"] == ANN else None, "roles": []})
            self.messages.setdefault(channel, []).append(message)
            return message

    def say(self, channel, content, user=ANN, unseen=False, **more):
        """Somebody writes; @unseen: the session never hears of it, as when Discord lost it."""
        author = self.people.get(user) or {"id": user, "username": f"user{user}"}
        message = self._message(channel, author, content, **more)
        if channel in self.thread_members:
            self.thread_members[channel].add(user)
        if not unseen:
            self._now(self._tell("MESSAGE_CREATE", message,
                                 GUILD_MESSAGES if "guild_id" in message else DIRECT_MESSAGES))
        return message

    def private_thread(self, id, parent, name="private"):
        self.thread_members[id] = set()
        thread = {"id": id, "type": 12, "guild_id": self.channels[parent]["guild_id"], "parent_id": parent, "name": name}
        self.channels[id] = thread
        self.guilds[thread["guild_id"]]["threads"].append(thread)
        self.tell("THREAD_CREATE", thread)

    def archive(self, id):
        """Later sessions are not told of it; Discord still shows it to those who ask."""
        for guild in self.guilds.values():
            guild["threads"] = [t for t in guild["threads"] if t["id"] != id]

    def react(self, channel, message, emoji, user=ANN, removed=False):
        """A person reacts, as Discord tells it: the author of the message only when it is added."""
        said = next(m for m in self.messages[channel] if m["id"] == message)
        guild = self.channels[channel].get("guild_id")
        d = {"user_id": user, "channel_id": channel, "message_id": message, "emoji": emoji, "burst": False, "type": 0}
        if guild:
            d["guild_id"] = guild
        if not removed:
            d["message_author_id"] = said["author"]["id"]
            if guild:
                d["member"] = {"user": self.people[user], "nick": "Annie" if user == ANN else None, "roles": []}
        self._now(self._tell("MESSAGE_REACTION_REMOVE" if removed else "MESSAGE_REACTION_ADD", d,
                             GUILD_REACTIONS if guild else DM_REACTIONS))

    def tell(self, kind, d):
        self._now(self._tell(kind, d))

    def sent(self, channel):
        return [m for m in self.messages.get(channel, []) if m["author"]["id"] == BOT]

    def texts(self, channel):
        return [m["content"] for m in self.sent(channel)]

    def called(self, method, path):
        return [c for c in list(self.calls) if c[0] == method and path in c[1]]

    def trouble(self, method, path, status, times=1, delay=0):
        self.troubles.append({"method": method, "path": path, "status": status, "times": times, "delay": delay})

    def real_limits(self):
        """Five in five seconds for each channel and kind of request, and 50 a second of the bot."""
        self.window, self.window_s, self.per_second = 5, 5.0, 50

    def limit(self, channel, retry_after, scope="user"):
        self.limits[channel] = (retry_after, scope)

    def live(self):
        return [s for s in list(self.sessions.values()) if s.ws is not None and not s.ws.closed]

    async def _each(self, what):
        for s in self.live():
            await what(s.ws)

    def reconnect(self):
        self._now(self._each(lambda ws: ws.send_json({"op": 7, "d": None})))

    def ask_beat(self):
        self._now(self._each(lambda ws: ws.send_json({"op": 1, "d": None})))

    def invalidate(self, resumable):
        for s in self.sessions.values():
            s.valid = s.valid and resumable
        self._now(self._each(lambda ws: ws.send_json({"op": 9, "d": resumable})))

    def forget_sessions(self):
        """Resuming will be in vain."""
        for s in self.sessions.values():
            s.valid = False

    def close_with(self, code):
        self._now(self._each(lambda ws: ws.close(code=code)))

    def cut(self):
        """The connection vanishes without a word."""
        async def abort(ws):
            ws.transport.abort()
        self._now(self._each(abort))

    def freeze(self):
        """The connection stays, and nothing comes through it any more: half closed."""
        async def stop(ws):
            ws.frozen = True
        self._now(self._each(stop))
