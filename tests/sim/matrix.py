"""A strict simulator of a Matrix homeserver: sync, rooms, media, rate limits, application services.

It refuses what a homeserver refuses, with the specification's codes, and notes in `violations` what a well-behaved client
never does: unknown paths and arguments, tokens in the query, events without m.mentions, relations to nothing, forbidden HTML.
"""
import asyncio
import json
import re
import threading
import time
import urllib.parse

import aiohttp
from aiohttp import web

TAGS = set("del h1 h2 h3 h4 h5 h6 blockquote p a ul ol sup sub li b i u strong em s code hr br div table thead tbody tr th td "
           "caption pre span img details summary".split())
VERSIONS = ["r0.6.1", "v1.1", "v1.2", "v1.3", "v1.4", "v1.5", "v1.6", "v1.7", "v1.8", "v1.9", "v1.10", "v1.11", "v1.12"]
MESSAGES = {"m.text", "m.notice", "m.emote", "m.image", "m.file", "m.audio", "m.video", "m.location"}


class Refusal(Exception):
    def __init__(self, status, code, error="refused", headers=None, **more):
        self.status, self.body, self.headers = status, {"errcode": code, "error": error, **more}, headers or {}


def canonical(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()


class MatrixSim:
    SERVER = "example.org"
    BOT, ANN, BEN = "@desk:example.org", "@ann:example.org", "@ben:other.example"

    def __init__(self, token="syt-planted-token"):
        self.users = {self.BOT: "Desk", self.ANN: "Ann Lee", self.BEN: "Ben"}  # user -> display name
        self.passwords = {}
        self.tokens = {token: self.BOT}
        self.strict = {token}  # tokens of bellhop's: what they do is judged
        self.services = {}  # as_token -> dict(id, url, hs_token, sender, regex)
        self.rooms, self.stream = {}, []
        self.calls, self.violations, self.troubles, self.limited = [], [], [], 0
        self.txns, self.media, self.receipts, self.typing = {}, {}, [], []
        self.per_second, self.burst, self.levels = 0.2, 10, {}
        self.answering = threading.Event()  # clear: events are taken and not answered
        self.answering.set()
        self.versions, self.n, self.pushes, self.refused_pushes = list(VERSIONS), 0, [], 0
        self.deaf = False
        self.loop = asyncio.new_event_loop()
        ready = threading.Event()
        threading.Thread(target=self._serve, args=(ready,), daemon=True).start()
        ready.wait(10)

    # ---- the server ----

    def _serve(self, ready):
        asyncio.set_event_loop(self.loop)
        self.changed = asyncio.Condition()
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self.runner = web.AppRunner(app, access_log=None)
        self.loop.run_until_complete(self.runner.setup())
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        self.loop.run_until_complete(site.start())
        self.port = site._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        ready.set()
        self.loop.run_forever()

    def close(self):
        async def end():
            others = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
            for t in others:
                t.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await self.runner.cleanup()
        self.run(end())
        self.loop.call_soon_threadsafe(self.loop.stop)

    def run(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    def broke(self, what):
        self.violations.append(what)

    def trouble(self, name, status=None, code=None, headers=None, times=1, taken=False, **more):
        """The next call of @name is answered with this error; status None: cut.  @taken: done, then so answered."""
        self.troubles.append(dict(name=name, status=status, code=code, headers=headers or {}, times=times, taken=taken, more=more))

    def called(self, name):
        return [c for c in self.calls if c[0] == name]

    ROUTES = [  # name, method, path, arguments of the query
        ("versions", "GET", r"/_matrix/client/versions", ""),
        ("whoami", "GET", r"/_matrix/client/v3/account/whoami", ""),
        ("login", "POST", r"/_matrix/client/v3/login", ""),
        ("register", "POST", r"/_matrix/client/v3/register", "kind"),
        ("sync", "GET", r"/_matrix/client/v3/sync", "since timeout filter full_state set_presence"),
        ("filter", "POST", r"/_matrix/client/v3/user/([^/]+)/filter", ""),
        ("createRoom", "POST", r"/_matrix/client/v3/createRoom", ""),
        ("joined_rooms", "GET", r"/_matrix/client/v3/joined_rooms", ""),
        ("send", "PUT", r"/_matrix/client/v3/rooms/([^/]+)/send/([^/]+)/([^/]+)", ""),
        ("redact", "PUT", r"/_matrix/client/v3/rooms/([^/]+)/redact/([^/]+)/([^/]+)", ""),
        ("join", "POST", r"/_matrix/client/v3/(?:rooms/([^/]+)/join|join/([^/]+))", "server_name via"),
        ("leave", "POST", r"/_matrix/client/v3/rooms/([^/]+)/leave", ""),
        ("invite", "POST", r"/_matrix/client/v3/rooms/([^/]+)/invite", ""),
        ("joined_members", "GET", r"/_matrix/client/v3/rooms/([^/]+)/joined_members", ""),
        ("state", "GET", r"/_matrix/client/v3/rooms/([^/]+)/state(?:/([^/]+)/?([^/]*))?", ""),
        ("messages", "GET", r"/_matrix/client/v3/rooms/([^/]+)/messages", "from to dir limit filter"),
        ("event", "GET", r"/_matrix/client/v3/rooms/([^/]+)/event/([^/]+)", ""),
        ("typing", "PUT", r"/_matrix/client/v3/rooms/([^/]+)/typing/([^/]+)", ""),
        ("receipt", "POST", r"/_matrix/client/v3/rooms/([^/]+)/receipt/([^/]+)/([^/]+)", ""),
        ("relations", "GET", r"/_matrix/client/v1/rooms/([^/]+)/relations/([^/]+)/([^/]+)/([^/]+)", "limit from dir"),
        ("displayname", "PUT", r"/_matrix/client/v3/profile/([^/]+)/displayname", ""),
        ("get_displayname", "GET", r"/_matrix/client/v3/profile/([^/]+)/displayname", ""),
        ("upload", "POST", r"/_matrix/media/v3/upload", "filename"),
        ("download", "GET", r"/_matrix/client/v1/media/download/([^/]+)/([^/]+)", "allow_remote"),
        ("old_download", "GET", r"/_matrix/media/v3/download/([^/]+)/([^/]+)", "allow_remote"),
        ("ping", "POST", r"/_matrix/client/v1/appservice/([^/]+)/ping", ""),
    ]

    async def _handle(self, request):
        raw = request.raw_path.partition("?")[0]
        path = raw.replace("/client/r0/", "/client/v3/").replace("/media/r0/", "/media/v3/")  # older clients
        for name, method, pattern, takes in self.ROUTES:
            found = re.fullmatch(pattern, path)
            if found and method == request.method:
                break
        else:
            self.broke(f"{request.method} {path}")
            return web.json_response({"errcode": "M_UNRECOGNIZED", "error": "Unrecognized request"}, status=404)
        args = [urllib.parse.unquote(a) for a in found.groups() if a is not None]
        try:
            return await self._call(name, args, takes, request, raw)
        except Refusal as r:
            return web.json_response(r.body, status=r.status, headers=r.headers)
        except ConnectionResetError:
            request.transport.abort()
            return web.Response()
        except Exception as e:  # noqa: BLE001 - a mistake here must fail the test
            self.broke(f"the simulator failed in {name}: {e!r}")
            raise

    async def _call(self, name, args, takes, request, raw):
        body = await request.read()
        user = None if name in ("versions", "login", "old_download") else self._who(name, request)
        query = dict(request.query)
        judged = self._judged(request)
        if judged:
            if unknown := set(query) - set(takes.split()) - {"user_id"}:
                self.broke(f"{name} with {sorted(unknown)}")
            if "/r0/" in raw:
                self.broke(f"an old path: {raw}")
        if name not in ("upload",) and request.method in ("PUT", "POST"):
            if judged and not request.headers.get("Content-Type", "").startswith("application/json"):
                self.broke(f"{name} is no JSON")
            try:
                body = json.loads(body or b"{}")
            except ValueError:
                raise Refusal(400, "M_NOT_JSON") from None
        trouble = next((t for t in self.troubles if t["name"] == name and judged), None)
        if trouble:
            trouble["times"] -= 1
            if trouble["times"] <= 0:
                self.troubles.remove(trouble)
        answer = None
        if not trouble or trouble["taken"]:
            self.calls.append((name, args, user, body))
            answer = getattr(self, "do_" + name)(user, args, query, body, request, judged)
            if asyncio.iscoroutine(answer):
                answer = await answer
            while name in ("send", "redact") and judged and not self.answering.is_set():
                await asyncio.sleep(0.02)
        if trouble and trouble["status"] is None:
            raise ConnectionResetError
        if trouble:
            raise Refusal(trouble["status"], trouble["code"], headers=trouble["headers"], **trouble["more"])
        return answer if isinstance(answer, web.StreamResponse) else web.json_response(answer)

    def _token(self, request):
        header = request.headers.get("Authorization", "")
        return header[7:] if header.startswith("Bearer ") else request.query.get("access_token")

    def _judged(self, request):
        token = self._token(request)
        return token in self.strict or token in self.services

    def _who(self, name, request):
        token = self._token(request)
        if token is None:
            raise Refusal(401, "M_MISSING_TOKEN")
        if token in self.services:
            s = self.services[token]
            if "access_token" in request.query:
                self.broke("a token in the query")
            if name in ("register", "ping"):
                return s["sender"]
            user = request.query.get("user_id", s["sender"])
            if user != s["sender"] and not re.match(s["regex"], user):
                raise Refusal(403, "M_FORBIDDEN", "Application service cannot masquerade as this user")
            if user not in self.users:
                raise Refusal(403, "M_FORBIDDEN", "Application service has not registered this user")
            return user
        if token not in self.tokens:
            raise Refusal(401, "M_UNKNOWN_TOKEN", "Unrecognised access token", soft_logout=False)
        if token in self.strict and "access_token" in request.query:
            self.broke("a token in the query")
        return self.tokens[token]

    def _limit(self, user, request):
        """Of messages, per user, as Synapse's rc_message has it."""
        if self.per_second == 0 or self._token(request) in self.services:
            return
        at, level = self.levels.get(user, (time.monotonic(), 0.0))
        now = time.monotonic()
        level = max(0.0, level - (now - at) * self.per_second)
        if level + 1 > self.burst:
            wait = (level + 1 - self.burst) / self.per_second
            self.limited += 1
            raise Refusal(429, "M_LIMIT_EXCEEDED", "Too Many Requests", {"Retry-After": str(int(wait) + 1)},
                          retry_after_ms=int(wait * 1000) + 1)
        self.levels[user] = (now, level + 1)

    def _room(self, user, id, joined=True):
        room = self.rooms.get(id)
        if room is None or (joined and self._membership(room, user) != "join"):
            raise Refusal(403, "M_FORBIDDEN", f"User {user} not in room {id}")
        return room

    # ---- rooms ----

    def _membership(self, room, user):
        return room["state"].get(("m.room.member", user), {}).get("content", {}).get("membership", "leave")

    def members(self, room):
        return [k for (t, k), e in self.rooms[room]["state"].items() if t == "m.room.member" and e["content"]["membership"] == "join"]

    def _add(self, room, type, sender, content, state_key=None, **more):
        self.n += 1
        event = {"type": type, "room_id": room["id"], "sender": sender, "content": content, "event_id": f"${self.n:06d}{'e' * 37}",
                 "origin_server_ts": int(time.time() * 1000), "unsigned": {}, **more}
        if state_key is not None:
            event["state_key"] = state_key
            before = room["state"].get((type, state_key))
            if before:
                event["unsigned"]["prev_content"] = before["content"]
            room["state"][(type, state_key)] = event
        if len(canonical(event)) > 65536:
            raise Refusal(413, "M_TOO_LARGE", "event too large")
        room["timeline"].append(event)
        self.stream.append(event)
        event["pos"] = len(self.stream)
        for s in self.services.values():
            s["busy"] = True
            s["queue"].append(event)

        async def wake():
            async with self.changed:
                self.changed.notify_all()
        self.loop.call_soon_threadsafe(lambda: self.loop.create_task(wake()))
        return event

    def room(self, *members, name=None, encrypted=False, by=None, direct=False):
        """A room of people; the bot is in it if it is a member."""
        id = f"!room{len(self.rooms) + 1}:{self.SERVER}"
        by = by or self.ANN
        room = self.rooms[id] = {"id": id, "state": {}, "timeline": [], "far": None, "crowd": 0}
        self._add(room, "m.room.create", by, {"room_version": "11"}, "")
        for user in dict.fromkeys([by, *members]):
            self._add(room, "m.room.member", user, {"membership": "join", "displayname": self.users.get(user)}, user)
        if name:
            self._add(room, "m.room.name", by, {"name": name}, "")
        if encrypted:
            self.encrypt(id, by)
        return id

    def encrypt(self, room, by=None):
        self._add(self.rooms[room], "m.room.encryption", by or self.ANN, {"algorithm": "m.megolm.v1.aes-sha2"}, "")

    def enter(self, room, user, membership="join", by=None, **more):
        self._add(self.rooms[room], "m.room.member", by or user, {"membership": membership, "displayname": self.users.get(user), **more}, user)

    def upgrade(self, room, by):
        """The room goes on elsewhere, on the server of @by, where anybody may come in."""
        new = self.room(by=by)
        self.rooms[new]["far"] = by.partition(":")[2]
        self._add(self.rooms[room], "m.room.tombstone", by, {"body": "This room was replaced", "replacement_room": new}, "")
        return new

    def invite(self, room, user=None, by=None, **more):
        user = user or self.BOT
        if user not in self.users:
            self.run(self._query_user(user))
        self.enter(room, user, "invite", by or self.ANN, **more)

    def say(self, room, text, user=None, **content):
        """A person writes; the event's id."""
        content = {"msgtype": "m.text", "body": text, "m.mentions": {}, **content}
        return self._add(self.rooms[room], "m.room.message", user or self.ANN, content)["event_id"]

    def mention(self, room, text, who=None, **more):
        who = who or self.BOT
        return self.say(room, f"{self.users[who] or who[1:].partition(':')[0]}: {text}", **{"m.mentions": {"user_ids": [who]}, **more})

    def edit(self, room, id, text, user=None):
        return self.say(room, "* " + text, user, **{"m.new_content": {"msgtype": "m.text", "body": text, "m.mentions": {}},
                                                   "m.relates_to": {"rel_type": "m.replace", "event_id": id}})

    def redact(self, room, id, user=None):
        return self._redact(self.rooms[room], user or self.ANN, id)["event_id"]

    def react(self, room, id, key, user=None):
        return self._add(self.rooms[room], "m.reaction", user or self.ANN,
                         {"m.relates_to": {"rel_type": "m.annotation", "event_id": id, "key": key}})["event_id"]

    def sent(self, room, type="m.room.message", user=None):
        """The events of the bot, edits and all."""
        ours = {user} if user else {self.BOT, *(u for u in self.users if u.startswith("@desk_"))}
        return [e for e in self.rooms[room]["timeline"] if e["type"] == type and e["sender"] in ours and "state_key" not in e]

    def shown(self, room):
        """What people see of the bot's messages, edits applied."""
        seen = {}
        for e in self.sent(room):
            rel = e["content"].get("m.relates_to", {})
            if rel.get("rel_type") == "m.replace":
                seen[rel["event_id"]] = e["content"]["m.new_content"]["body"]
            elif e["content"]:
                seen[e["event_id"]] = e["content"]["body"]
        return list(seen.values())

    # ---- checking what is sent ----

    def _judge(self, room, user, type, content):
        if type == "m.reaction":
            rel = content.get("m.relates_to", {})
            if set(content) != {"m.relates_to"} or set(rel) != {"rel_type", "event_id", "key"} or rel["rel_type"] != "m.annotation":
                self.broke(f"reaction {content}")
            if any(e["type"] == "m.reaction" and e["sender"] == user and e["content"] == content for e in room["timeline"]):
                raise Refusal(400, "M_DUPLICATE_ANNOTATION", "Can't send same reaction twice")
        elif type == "m.room.message":
            if ("m.room.encryption", "") in room["state"] and content.get("msgtype") != "m.notice":
                self.broke("plain text in an encrypted room")
            self._judge_message(content)
            if "m.new_content" in content:
                self._judge_message(content["m.new_content"])
        else:
            self.broke(f"an event of type {type}")
        rel = content.get("m.relates_to", {})
        named = [r["event_id"] for r in (rel, rel.get("m.in_reply_to", {})) if "event_id" in r]
        known = {e["event_id"]: e for e in room["timeline"]}
        for id in named:
            if id not in known:
                raise Refusal(404 if type == "m.reaction" else 400, "M_NOT_FOUND" if type == "m.reaction" else "M_INVALID_PARAM", f"no {id}")
        if rel.get("rel_type") == "m.replace":
            if known[rel["event_id"]]["sender"] != user:
                raise Refusal(403, "M_FORBIDDEN", "not the sender of that event")
            if known[rel["event_id"]]["content"].get("m.relates_to", {}).get("rel_type") == "m.replace":
                self.broke("an edit of an edit")
        if rel.get("rel_type") == "m.thread" and "rel_type" in known[rel["event_id"]]["content"].get("m.relates_to", {}):
            raise Refusal(400, "M_UNKNOWN", "Cannot start threads from an event with a relation")

    def _judge_message(self, content):
        if content.get("msgtype") not in MESSAGES or not isinstance(content.get("body"), str) or "m.mentions" not in content:
            self.broke(f"message {str(content)[:200]}")
        if set(content["m.mentions"]) - {"user_ids"}:
            self.broke(f"mentions {content['m.mentions']}")
        if ("formatted_body" in content) != (content.get("format") == "org.matrix.custom.html"):
            self.broke("a format without a body, or the reverse")
        for tag in re.findall(r"</?([a-zA-Z0-9]+)", content.get("formatted_body", "")):
            if tag not in TAGS:
                self.broke(f"<{tag}> is not allowed")
        if content["msgtype"] in ("m.image", "m.file", "m.audio", "m.video") and content.get("url", "")[6:] not in self.media:
            self.broke(f"a file that was not uploaded: {content.get('url')}")

    # ---- the calls ----

    def do_versions(self, *_):
        return {"versions": self.versions, "unstable_features": {}}

    def do_whoami(self, user, *_):
        return {"user_id": user, "device_id": "DEVICE", "is_guest": False}

    def do_login(self, user, args, query, body, request, judged):
        who = body.get("identifier", {}).get("user", body.get("user", ""))
        who = who if who.startswith("@") else f"@{who}:{self.SERVER}"
        if body.get("type") != "m.login.password" or self.passwords.get(who) != body.get("password"):
            raise Refusal(403, "M_FORBIDDEN", "Invalid username or password")
        token = f"token-of-{who}"
        self.tokens[token] = who
        return {"user_id": who, "access_token": token, "device_id": "NIO", "home_server": self.SERVER}

    def do_register(self, user, args, query, body, request, judged):
        token = self._token(request)
        if body.get("type") != "m.login.application_service" or token not in self.services or not body.get("inhibit_login"):
            raise Refusal(401, "M_UNAUTHORIZED")
        who = f"@{body['username']}:{self.SERVER}"
        s = self.services[token]
        if who != s["sender"] and not re.match(s["regex"], who):
            raise Refusal(400, "M_EXCLUSIVE")
        if who in self.users:
            raise Refusal(400, "M_USER_IN_USE", "User ID already taken.")
        self.users[who] = None
        return {"user_id": who}

    def do_filter(self, *_):
        return {"filter_id": "1"}

    def do_createRoom(self, user, args, query, body, request, judged):
        id = self.room(by=user, name=body.get("name"))
        for who in body.get("invite", []):
            self.enter(id, who, "invite", user, is_direct=body.get("is_direct", False))
        return {"room_id": id}

    def do_joined_rooms(self, user, *_):
        return {"joined_rooms": [id for id, r in self.rooms.items() if self._membership(r, user) == "join"]}

    def _once(self, user, request, body):
        """The answer of an earlier request with this transaction id."""
        key = (user, self._token(request), request.raw_path.partition("?")[0])
        if key in self.txns and self.txns[key][0] != body:
            self.broke(f"a transaction id for two bodies: {key[2]}")
        return key, self.txns.get(key, (None, None))[1]

    def do_send(self, user, args, query, body, request, judged):
        room, type = self._room(user, args[0]), args[1]
        key, answer = self._once(user, request, body)
        if answer:
            return answer
        if judged:
            self._limit(user, request)
            self._judge(room, user, type, body)
        event = self._add(room, type, user, body)
        self.txns[key] = (body, {"event_id": event["event_id"]})
        return self.txns[key][1]

    def _redact(self, room, user, id):
        target = next((e for e in room["timeline"] if e["event_id"] == id), None)
        if target is None:
            raise Refusal(404, "M_NOT_FOUND")
        if target["sender"] != user:
            raise Refusal(403, "M_FORBIDDEN", "You don't have permission to redact events")
        target["content"] = {}
        return self._add(room, "m.room.redaction", user, {"redacts": id})

    def do_redact(self, user, args, query, body, request, judged):
        room = self._room(user, args[0])
        key, answer = self._once(user, request, body)
        if answer:
            return answer
        if judged:
            self._limit(user, request)
        event = self._redact(room, user, args[1])
        self.txns[key] = (body, {"event_id": event["event_id"]})
        return self.txns[key][1]

    def do_join(self, user, args, query, *_):
        room = self._room(user, args[0], joined=False)
        if room["far"] and self._membership(room, user) == "leave" and query.get("via", query.get("server_name")) != room["far"]:
            raise Refusal(404, "M_UNKNOWN", "Can't join remote room because no servers that are in the room have been provided.")
        if self._membership(room, user) == "leave" and not room["far"]:
            raise Refusal(403, "M_FORBIDDEN", "You are not invited to this room.")
        if self._membership(room, user) != "join":
            self.enter(args[0], user)
        return {"room_id": args[0]}

    def do_leave(self, user, args, *_):
        self._room(user, args[0], joined=False)
        self.enter(args[0], user, "leave")
        return {}

    def do_invite(self, user, args, query, body, request, judged):
        self._room(user, args[0])
        self.enter(args[0], body["user_id"], "invite", user)
        return {}

    def do_joined_members(self, user, args, *_):
        crowd = {f"@crowd{i}:example.org": {"display_name": "n" * 100, "avatar_url": None} for i in range(self._room(user, args[0])["crowd"])}
        return {"joined": {u: {"display_name": self.users.get(u), "avatar_url": None} for u in self.members(args[0])} | crowd}

    def do_state(self, user, args, *_):
        room = self._room(user, args[0])
        if len(args) == 1:
            return web.json_response([self._shown(e, user) for e in room["state"].values()])
        event = room["state"].get((args[1], args[2] if len(args) > 2 else ""))
        if event is None:
            raise Refusal(404, "M_NOT_FOUND", "Event not found.")
        return event["content"]

    def _shown(self, event, user, room_id=True):
        """An event as a client gets it."""
        return {k: v for k, v in event.items() if k != "pos" and (room_id or k != "room_id")}

    def _takes(self, filter):
        types = (filter or {}).get("types")
        return lambda e: types is None or e["type"] in types

    def _pos(self, token):
        if not re.fullmatch(r"s\d+", token or ""):
            raise Refusal(400, "M_INVALID_PARAM", "Invalid stream token")
        return int(token[1:])

    def _sync(self, user, since, filter):
        room_filter, rooms = filter.get("room", {}), {"join": {}, "invite": {}, "leave": {}}
        takes, state_takes = self._takes(room_filter.get("timeline")), self._takes(room_filter.get("state"))
        limit = room_filter.get("timeline", {}).get("limit", 10)
        for id, room in list(self.rooms.items()):
            own = room["state"].get(("m.room.member", user))
            if own is None:
                continue
            membership, new = own["content"]["membership"], [e for e in room["timeline"] if e["pos"] > since]
            if membership == "invite" and own["pos"] > since:
                stripped = [{k: e[k] for k in ("type", "state_key", "sender", "content")} for e in room["state"].values()
                            if e["type"] in ("m.room.name", "m.room.encryption", "m.room.create") or e is own]
                rooms["invite"][id] = {"invite_state": {"events": stripped}}
            elif membership in ("leave", "ban") and own["pos"] > since > 0:
                rooms["leave"][id] = {"timeline": {"events": [], "limited": False, "prev_batch": f"s{since}"}, "state": {"events": []}}
            elif membership == "join" and new:
                entered = any(e is own and own["unsigned"].get("prev_content", {}).get("membership") != "join" for e in new)
                full = since == 0 or entered
                if full:
                    new = list(room["timeline"])
                new = [e for e in new if takes(e)]
                timeline = new[-limit:]
                first = timeline[0]["pos"] if timeline else len(self.stream) + 1
                senders = {e["sender"] for e in timeline} | {user}
                state = [e for (t, k), e in room["state"].items() if state_takes(e) and e["pos"] < first and
                         (full or e["pos"] > since or t == "m.room.member") and (t != "m.room.member" or k in senders or e["pos"] > since)]
                rooms["join"][id] = {"timeline": {"events": [self._shown(e, user, False) for e in timeline],
                                                  "limited": len(timeline) < len(new) or entered, "prev_batch": f"s{first - 1}"},
                                     "state": {"events": [self._shown(e, user, False) for e in state]}, "ephemeral": {"events": []},
                                     "account_data": {"events": []}, "unread_notifications": {},
                                     "summary": {"m.joined_member_count": len(self.members(id))}}
        return rooms

    async def do_sync(self, user, args, query, body, request, judged):
        filter = json.loads(query["filter"]) if query.get("filter", "").startswith("{") else {}
        if judged and (filter.get("presence", {}).get("types") != [] or "timeout" not in query):
            self.broke("a sync that asks for everything")
        since = self._pos(query["since"]) if query.get("since") else 0
        if since > len(self.stream):
            raise Refusal(400, "M_INVALID_PARAM", "Invalid stream token")
        until = time.monotonic() + int(query.get("timeout", 0)) / 1000
        while True:
            while self.deaf:
                await asyncio.sleep(0.05)
            now, rooms = len(self.stream), self._sync(user, since, filter)
            left = until - time.monotonic()
            if any(rooms.values()) or left <= 0 or not query.get("since"):
                break
            async with self.changed:
                if len(self.stream) > now:
                    continue
                try:
                    await asyncio.wait_for(self.changed.wait(), left)
                except asyncio.TimeoutError:
                    pass
        return {"next_batch": f"s{now}", "rooms": rooms, "presence": {"events": []}, "account_data": {"events": []},
                "to_device": {"events": []}, "device_lists": {"changed": [], "left": []}, "device_one_time_keys_count": {},
                "device_unused_fallback_key_types": []}

    def do_messages(self, user, args, query, body, request, judged):
        room, limit = self._room(user, args[0]), int(query.get("limit", 10))
        takes = self._takes(json.loads(query.get("filter", "{}")))
        if query.get("dir") not in ("f", "b"):
            raise Refusal(400, "M_MISSING_PARAM")
        at, to = self._pos(query.get("from", "s0")), self._pos(query["to"]) if query.get("to") else None
        if query["dir"] == "f":
            found = [e for e in room["timeline"] if e["pos"] > at and (to is None or e["pos"] <= to)]
        else:
            found = [e for e in reversed(room["timeline"]) if e["pos"] <= at and (to is None or e["pos"] > to)]
        found, more = [e for e in found if takes(e)][:limit], len([e for e in found if takes(e)]) > limit
        answer = {"start": query.get("from", "s0"), "chunk": [self._shown(e, user) for e in found], "state": []}
        if more or query["dir"] == "b":
            last = found[-1]["pos"] if found else at
            answer["end"] = f"s{last if query['dir'] == 'f' else last - 1}"
        return answer

    def do_event(self, user, args, *_):
        event = next((e for e in self._room(user, args[0])["timeline"] if e["event_id"] == args[1]), None)
        if event is None:
            raise Refusal(404, "M_NOT_FOUND", "Event not found.")
        return self._shown(event, user)

    def do_typing(self, user, args, query, body, request, judged):
        self._room(user, args[0])
        if args[1] != user:
            raise Refusal(403, "M_FORBIDDEN", "Cannot set another user's typing state")
        if not isinstance(body.get("typing"), bool) or (body["typing"] and not 0 < body.get("timeout", 30000) <= 30000):
            self.broke(f"typing {body}")
        self.typing.append((args[0], user, body["typing"]))
        return {}

    def do_receipt(self, user, args, query, body, request, judged):
        self._room(user, args[0])
        if args[1] not in ("m.read", "m.read.private", "m.fully_read"):
            raise Refusal(400, "M_INVALID_PARAM")
        self.receipts.append((args[0], user, args[2]))
        return {}

    def do_relations(self, user, args, query, body, request, judged):
        room = self._room(user, args[0])
        found = [e for e in room["timeline"] if e["type"] == args[3] and
                 e["content"].get("m.relates_to", {}).get("event_id") == args[1] and e["content"]["m.relates_to"]["rel_type"] == args[2]]
        return {"chunk": [self._shown(e, user) for e in reversed(found)]}

    def do_displayname(self, user, args, query, body, request, judged):
        if args[0] != user:
            raise Refusal(403, "M_FORBIDDEN")
        self.users[user] = body["displayname"]
        return {}

    def do_get_displayname(self, user, args, *_):
        if args[0] not in self.users:
            raise Refusal(404, "M_NOT_FOUND")
        return {"displayname": self.users[args[0]]}

    async def do_upload(self, user, args, query, body, request, judged):
        if not body:
            raise Refusal(400, "M_UNKNOWN", "Request body is empty")
        if len(body) > 50 * 2**20:
            raise Refusal(413, "M_TOO_LARGE")
        return {"content_uri": "mxc://" + self.file(body, request.content_type, query.get("filename"))}

    def file(self, data, type="image/png", name="a.png"):
        id = f"{self.SERVER}/media{len(self.media) + 1}"
        self.media[id] = {"data": data, "type": type, "name": name}
        return id

    def do_download(self, user, args, query, body, request, judged):
        m = self.media.get("/".join(args))
        if m is None:
            raise Refusal(404, "M_NOT_FOUND")
        return web.Response(body=m["data"], content_type=m["type"], headers={"Content-Disposition": f'inline; filename="{m["name"]}"'})

    def do_old_download(self, *args):
        if self._judged(args[4]) and "v1.11" in self.versions:
            self.broke("media without authentication")
        return self.do_download(*args)

    # ---- application services ----

    def service(self, registration):
        """Registers an application service, and pushes to s["at"] from now on."""
        users = registration["namespaces"]["users"]
        s = {"id": registration["id"], "at": "", "hs_token": registration["hs_token"],
             "sender": f"@{registration['sender_localpart']}:{self.SERVER}", "regex": users[0]["regex"] if users else "(?!)", "queue": [],
             "txn": 0, "busy": False}
        self.services[registration["as_token"]] = s
        self.users.pop(s["sender"], None)  # nobody has registered it yet
        asyncio.run_coroutine_threadsafe(self._push(s), self.loop)
        return s

    def _interesting(self, s, event):
        """Is it about a user of the service, or in a room with one?"""
        ours = lambda u: u == s["sender"] or re.match(s["regex"], u)  # noqa: E731
        return ours(event.get("state_key", "")) or ours(event["sender"]) or any(ours(u) for u in self.members(event["room_id"]))

    async def _push(self, s):
        async with aiohttp.ClientSession() as http:
            while True:
                s["busy"] = bool(s["queue"])
                if not s["queue"] or not s["at"]:
                    await asyncio.sleep(0.01)
                    continue
                batch, s["queue"] = s["queue"][:100], s["queue"][100:]
                events = [e for e in batch if self._interesting(s, e)]
                if not events:
                    continue
                s["txn"] += 1
                body, wait = {"events": [self._shown(e, None) for e in events]}, 0.05
                while not await self.push_once(s, http, s["txn"], body):
                    await asyncio.sleep(wait)
                    wait = min(wait * 2, 1)

    async def push_once(self, s, http, txn, body):
        """PUTs one transaction; true if it was taken."""
        try:
            async with http.put(f"{s['at']}/_matrix/app/v1/transactions/{txn}", json=body,
                                headers={"Authorization": f"Bearer {s['hs_token']}"}, timeout=aiohttp.ClientTimeout(30)) as answer:
                text = await answer.text()
                self.pushes.append((txn, answer.status))
                if answer.status == 200 and json.loads(text) != {}:
                    self.broke(f"a transaction was answered {text}")
                return answer.status == 200
        except (aiohttp.ClientError, OSError, asyncio.TimeoutError):
            return False

    async def _query_user(self, user):
        for s in self.services.values():
            if re.match(s["regex"], user):
                async with aiohttp.ClientSession() as http:
                    async with http.get(f"{s['at']}/_matrix/app/v1/users/{urllib.parse.quote(user, safe='')}",
                                        headers={"Authorization": f"Bearer {s['hs_token']}"}) as answer:
                        if answer.status == 200 and user in self.users:
                            return
        raise Refusal(404, "M_NOT_FOUND", f"there is no user {user}")

    async def do_ping(self, user, args, query, body, request, judged):
        s = self.services.get(self._token(request))
        if s is None or s["id"] != args[0]:
            raise Refusal(403, "M_FORBIDDEN")
        try:
            async with aiohttp.ClientSession() as http:
                async with http.post(f"{s['at']}/_matrix/app/v1/ping", json=body, headers={"Authorization": f"Bearer {s['hs_token']}"}) as a:
                    if a.status != 200:
                        raise Refusal(502, "M_BAD_STATUS", status_=a.status)
        except (aiohttp.ClientError, OSError):
            raise Refusal(502, "M_CONNECTION_FAILED") from None
        return {"duration_ms": 1}
