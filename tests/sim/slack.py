"""A strict simulator of Slack: the Web API, signed webhooks, Socket Mode.

It refuses what Slack refuses, with Slack's words, and notes in `violations` what a well-behaved app never does: unknown
arguments, a method over its rate limit, a message less than a second after the last one in its channel.
"""
import asyncio
import hashlib
import hmac
import json
import re
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

from aiohttp import WSMsgType, web

SCOPES = ("chat:write,app_mentions:read,channels:history,groups:history,im:history,mpim:history,channels:read,groups:read,"
          "im:read,mpim:read,users:read,reactions:write,files:read,files:write,commands")
TEXT_ARGS = "text blocks attachments parse link_names mrkdwn metadata markdown_text"
# arguments, scope, requests a minute, takes JSON
METHODS = {
    "auth.test": ("", None, 0, True),
    "chat.postMessage": (f"channel thread_ts reply_broadcast unfurl_links unfurl_media {TEXT_ARGS}", "chat:write", 0, True),
    "chat.update": (f"channel ts {TEXT_ARGS}", "chat:write", 50, True),
    "chat.delete": ("channel ts", "chat:write", 50, True),
    "chat.postEphemeral": (f"channel user thread_ts {TEXT_ARGS}", "chat:write", 100, True),
    "reactions.add": ("channel timestamp name", "reactions:write", 50, True),
    "reactions.remove": ("channel timestamp name", "reactions:write", 20, True),
    "assistant.threads.setStatus": ("channel_id thread_ts status loading_messages", "chat:write", 600, True),
    "conversations.info": ("channel include_num_members", "channels:read", 50, False),
    "conversations.history": ("channel oldest latest inclusive limit cursor include_all_metadata", "channels:history", 50, False),
    "conversations.replies": ("channel ts oldest latest inclusive limit cursor include_all_metadata", "channels:history", 50, False),
    "users.info": ("user include_locale", "users:read", 100, False),
    "apps.connections.open": ("", None, 50, True),
    "files.getUploadURLExternal": ("filename length alt_txt snippet_type", "files:write", 100, False),
    "files.completeUploadExternal": ("files channel_id channels thread_ts initial_comment blocks", "files:write", 100, True),
    "files.info": ("file", "files:read", 100, False),
    "oauth.v2.access": ("client_id client_secret code redirect_uri grant_type", None, 0, False),
    "chat.startStream": ("channel thread_ts markdown_text chunks recipient_user_id recipient_team_id task_display_mode", "chat:write", 20,
                         True),
    "chat.appendStream": ("channel ts markdown_text chunks", "chat:write", 100, True),
    "chat.stopStream": ("channel ts markdown_text chunks blocks metadata", "chat:write", 20, True),
}
BLOCKS = {"markdown", "section", "actions", "context", "divider", "header", "image", "rich_text", "table"}


class Refusal(Exception):
    def __init__(self, error, status=200, headers=None, **more):
        self.body, self.status, self.headers = {"ok": False, "error": error, **more}, status, headers or {}


def units(text):
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


class SlackSim:
    TEAM, APP, BOT_USER, BOT_ID = "T0TEAM1", "A0APP1", "U0BOT1", "B0BOT1"

    def __init__(self, token="xoxb-planted-bot-token", app_token="xapp-1-planted-app-token", secret="planted-signing-secret"):
        self.app_token, self.secret, self.scopes = app_token, secret, SCOPES
        self.tokens = {token: self.TEAM}  # token -> workspace
        self.users = {"U0ANN1": {"id": "U0ANN1", "name": "ann", "real_name": "Ann Lee", "profile": {"display_name": "Annie"}},
                      "U0BEN1": {"id": "U0BEN1", "name": "ben", "real_name": "Ben Roe", "profile": {"display_name": ""}}}
        self.channels = {}
        for id, name, kind in (("C0GENERAL", "general", "channel"), ("C0OTHER", "other", "channel"), ("D0ANN1", "U0ANN1", "im"),
                               ("G0MPIM1", "mpdm-ann--ben", "mpim")):
            self.channels[id] = {"id": id, "name": name, "kind": kind, "team": self.TEAM, "messages": []}
        self.calls, self.violations, self.troubles, self.ephemeral, self.statuses = [], [], [], [], []
        self.counts, self.posted, self.pings = {}, {}, []
        self.uploads, self.files, self.codes, self.upload_headers = {}, {}, {}, []
        self.pace = True  # a second between two messages of a channel
        self.answering = threading.Event()  # clear: chat.postMessage is taken and not answered
        self.answering.set()
        self.clock, self.n, self.request_url = 0, 0, None
        self.sockets, self.opened, self.acks, self.hellos, self.refreshes = [], 0, {}, True, 0
        self.max_sockets, self.deaf = 10, False
        self.unacked = {}
        self.loop = asyncio.new_event_loop()
        ready = threading.Event()
        threading.Thread(target=self._serve, args=(ready,), daemon=True).start()
        ready.wait(10)

    # ---- the server ----

    def _serve(self, ready):
        asyncio.set_event_loop(self.loop)
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_route("*", "/api/{method}", self._api)
        app.router.add_get("/link/", self._socket)
        app.router.add_post("/upload/{id}", self._upload)
        app.router.add_get("/files/{id}", self._download)
        self.runner = web.AppRunner(app, access_log=None)
        self.loop.run_until_complete(self.runner.setup())
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        self.loop.run_until_complete(site.start())
        self.port = site._server.sockets[0].getsockname()[1]
        self.root = f"http://127.0.0.1:{self.port}"
        self.url = self.root + "/api"
        ready.set()
        self.loop.run_forever()

    def close(self):
        async def end():
            for s in list(self.sockets):
                await s.close()
            await self.runner.cleanup()
            self.loop.stop()
        asyncio.run_coroutine_threadsafe(end(), self.loop)

    def broke(self, what):
        self.violations.append(what)

    def trouble(self, method, status=None, error=None, headers=None, times=1, taken=False, delay=0):
        """The next call of @method: @error in Slack's words, or the status alone; neither: cut.  @taken: done, then so answered."""
        self.troubles.append(dict(method=method, status=status, error=error, headers=headers or {}, times=times, taken=taken, delay=delay))

    def called(self, method):
        return [args for name, args in self.calls if name == method]

    async def _api(self, request):
        method, body = request.match_info["method"], await request.read()
        try:
            args = self._arguments(method, request, body)
            trouble = next((t for t in self.troubles if t["method"] == method), None)
            if trouble:
                trouble["times"] -= 1
                if trouble["times"] <= 0:
                    self.troubles.remove(trouble)
                await asyncio.sleep(trouble["delay"])
            if not trouble or trouble["taken"]:
                team = self._authorize(method, request, args)
                self._count(method, team)
                self.calls.append((method, args))
                answer = getattr(self, "do_" + method.replace(".", "_"))(args, team)
                while method == "chat.postMessage" and not self.answering.is_set():
                    await asyncio.sleep(0.02)
            if trouble:
                if trouble["error"]:
                    raise Refusal(trouble["error"], trouble["status"] or 200, trouble["headers"])
                if trouble["status"]:
                    return web.Response(status=trouble["status"], text="<html>trouble</html>", headers=trouble["headers"])
                request.transport.abort()
                return web.Response()
            headers = {"x-oauth-scopes": self.scopes, "x-accepted-oauth-scopes": METHODS[method][1] or ""}
            return web.json_response({"ok": True, **answer}, headers=headers)
        except Refusal as r:
            return web.json_response(r.body, status=r.status, headers=r.headers)

    def _arguments(self, method, request, body):
        if method not in METHODS:
            self.broke(f"unknown method {method}")
            raise Refusal("unknown_method")
        if request.method != "POST":
            self.broke(f"{request.method} {method}")
        known, _, _, takes_json = METHODS[method]
        kind = request.headers.get("Content-Type", "")
        if kind.startswith("application/json"):
            if not takes_json:
                self.broke(f"{method} takes no JSON")
                raise Refusal("invalid_arguments")
            try:
                args = json.loads(body)
            except ValueError:
                raise Refusal("invalid_json") from None
        elif kind.startswith("application/x-www-form-urlencoded") or not body:
            args = dict(urllib.parse.parse_qsl(body.decode(), keep_blank_values=True))
            for k in ("blocks", "metadata", "files", "chunks", "attachments"):
                if k in args:
                    args[k] = json.loads(args[k])
        else:
            self.broke(f"content type {kind}")
            raise Refusal("invalid_form_data")
        args.pop("token", None)
        args.pop("team_id", None)  # Bolt names the workspace with every call
        more = set(args) - set(known.split())
        if more:
            self.broke(f"{method}: unknown arguments {sorted(more)}")
        return args

    def _authorize(self, method, request, args):
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if method == "oauth.v2.access":
            return None
        if method == "apps.connections.open":
            if token != self.app_token:
                raise Refusal("invalid_auth")
            return self.TEAM
        if not token:
            raise Refusal("not_authed")
        if token not in self.tokens:
            raise Refusal("invalid_auth")
        scope = METHODS[method][1]
        if scope and scope not in self.scopes.split(","):
            raise Refusal("missing_scope", needed=scope, provided=self.scopes)
        return self.tokens[token]

    def _count(self, method, team):
        most, now = METHODS[method][2], time.monotonic()
        times = [t for t in self.counts.get((method, team), []) if now - t < 60]
        if most and len(times) >= most:
            self.broke(f"{method}: more than {most} a minute")
            raise Refusal("ratelimited", 429, {"Retry-After": "2"})
        self.counts[method, team] = times + [now]

    def _channel(self, args, team, key="channel"):
        c = self.channels.get(args.get(key))
        if not c or c["team"] != team:
            raise Refusal("channel_not_found")
        if c.get("archived"):
            raise Refusal("is_archived")
        return c

    def _message(self, c, ts):
        m = next((m for m in c["messages"] if m["ts"] == ts), None)
        if not m:
            raise Refusal("message_not_found")
        return m

    def _ts(self):
        self.clock = max(self.clock + 1, int(time.time() * 1e6))
        return f"{self.clock // 10**6}.{self.clock % 10**6:06d}"

    def _content(self, args):
        text, blocks = args.get("text", ""), args.get("blocks") or []
        if not text and not blocks and not args.get("markdown_text"):
            raise Refusal("no_text")
        if units(text) > 40000 or units(args.get("markdown_text", "")) > 12000:
            raise Refusal("msg_too_long")
        if len(blocks) > 50:
            raise Refusal("invalid_blocks")
        markdown = 0
        for b in blocks:
            if b.get("type") not in BLOCKS:
                raise Refusal("invalid_blocks")
            if b["type"] == "markdown":
                if not b.get("text"):
                    raise Refusal("invalid_blocks")
                markdown += units(b["text"])
            if b["type"] == "section" and not 0 < units(b["text"]["text"]) <= 3000:
                raise Refusal("invalid_blocks")
            if b["type"] == "actions":
                ids = [e["action_id"] for e in b["elements"]]
                if not 0 < len(ids) <= 25 or len(set(ids)) < len(ids):
                    raise Refusal("invalid_blocks")
                for e in b["elements"]:
                    if set(e) - {"type", "action_id", "value", "text", "style"} or not 0 < units(e["text"]["text"]) <= 75 or \
                            len(e["value"]) > 2000 or e.get("style", "danger") not in ("primary", "danger"):
                        raise Refusal("invalid_blocks")
        if markdown > 12000:
            raise Refusal("msg_blocks_too_long")
        shown = [text] if not blocks else [b["text"] for b in blocks if b["type"] == "markdown"]
        self.pings += re.findall(r"<[@!][^>]+>", " ".join([*shown, text]))
        if args.get("parse") == "full" or args.get("link_names"):
            self.pings += re.findall(r"@\w+", text)
        meta = args.get("metadata")
        if meta and (set(meta) != {"event_type", "event_payload"} or not re.fullmatch(r"[a-z][a-z0-9_]*", meta["event_type"])):
            raise Refusal("invalid_metadata_format")
        out = {"text": text or args.get("markdown_text", ""), "blocks": blocks}
        if meta:
            out["metadata"] = meta
        return out

    def do_auth_test(self, args, team):
        return {"url": "https://hotel.slack.com/", "team": "Hotel", "user": "bellhop", "team_id": team, "user_id": self.BOT_USER,
                "bot_id": self.BOT_ID, "is_enterprise_install": False}

    def do_chat_postMessage(self, args, team):
        c, now = self._channel(args, team), time.monotonic()
        if c.get("outside"):
            raise Refusal("not_in_channel")
        if self.pace and now - self.posted.get(c["id"], -9) < 1:
            self.broke(f"two messages in {c['id']} within {now - self.posted[c['id']]:.3f} s")
            raise Refusal("rate_limited", 429, {"Retry-After": "1"})
        content = self._content(args)
        if args.get("thread_ts") and not any(m["ts"] == args["thread_ts"] for m in c["messages"]):
            raise Refusal("thread_not_found")
        self.posted[c["id"]] = now
        m = {"type": "message", "user": self.BOT_USER, "bot_id": self.BOT_ID, "app_id": self.APP, "team": team, "ts": self._ts(), **content}
        if args.get("thread_ts"):
            m["thread_ts"] = args["thread_ts"]
        c["messages"].append(m)
        return {"channel": c["id"], "ts": m["ts"], "message": m}

    def do_chat_update(self, args, team):
        c = self._channel(args, team)
        m = self._message(c, args.get("ts"))
        if m.get("user") != self.BOT_USER:
            raise Refusal("cant_update_message")
        if m.get("streaming_state") == "in_progress":
            raise Refusal("streaming_state_conflict")
        if args.get("parse", "client") != "none" and re.search(r"@(channel|here|everyone)", args.get("text", "")):
            self.pings.append(args["text"])  # the default of this method links names
        m.update(self._content(args), edited={"user": self.BOT_USER, "ts": self._ts()})
        return {"channel": c["id"], "ts": m["ts"], "text": m["text"], "message": m}

    def do_chat_delete(self, args, team):
        c = self._channel(args, team)
        c["messages"].remove(self._message(c, args.get("ts")))
        return {"channel": c["id"], "ts": args["ts"]}

    def do_chat_postEphemeral(self, args, team):
        c = self._channel(args, team)
        self._content(args)
        self.ephemeral.append({**args, "channel": c["id"]})
        return {"message_ts": self._ts()}

    def do_reactions_add(self, args, team):
        m = self._message(self._channel(args, team), args.get("timestamp"))
        if not re.fullmatch(r"[a-z0-9_+'-]+", args.get("name", "")):
            raise Refusal("invalid_name")
        if args["name"] in m.setdefault("own_reactions", []):
            raise Refusal("already_reacted")
        m["own_reactions"].append(args["name"])
        return {}

    def do_reactions_remove(self, args, team):
        m = self._message(self._channel(args, team), args.get("timestamp"))
        if args.get("name") not in m.setdefault("own_reactions", []):
            raise Refusal("no_reaction")
        m["own_reactions"].remove(args["name"])
        return {}

    def do_assistant_threads_setStatus(self, args, team):
        c = self._channel(args, team, "channel_id")
        if not any(m["ts"] == args.get("thread_ts") for m in c["messages"]):
            raise Refusal("invalid_thread_ts")
        self.statuses.append((c["id"], args["thread_ts"], args["status"]))
        return {}

    def do_conversations_info(self, args, team):
        c = self._channel(args, team)
        if c["kind"] == "im":
            return {"channel": {"id": c["id"], "is_im": True, "user": c["name"]}}
        return {"channel": {"id": c["id"], "name": c["name"], "is_channel": c["kind"] == "channel", "is_mpim": c["kind"] == "mpim"}}

    def _listed(self, messages, args):
        limit = int(args.get("limit", 100))
        oldest, latest = float(args.get("oldest") or 0), float(args.get("latest") or 1e12)
        closed = args.get("inclusive") in ("true", "1", True)
        found = [m for m in messages if oldest < float(m["ts"]) < latest or closed and float(m["ts"]) in (oldest, latest)]
        if args.get("include_all_metadata") not in ("true", "1", True):
            found = [{k: v for k, v in m.items() if k != "metadata"} for m in found]
        return found[:limit], len(found) > limit

    def do_conversations_history(self, args, team):
        c = self._channel(args, team)
        found, more = self._listed([m for m in reversed(c["messages"]) if m.get("thread_ts", m["ts"]) == m["ts"]], args)
        return {"messages": found, "has_more": more}

    def do_conversations_replies(self, args, team):
        c = self._channel(args, team)
        m = self._message(c, args.get("ts"))
        root = m.get("thread_ts", m["ts"])
        found, more = self._listed([m for m in c["messages"] if m["ts"] == root or m.get("thread_ts") == root], args)
        return {"messages": found, "has_more": more}

    def do_users_info(self, args, team):
        if args.get("user") not in self.users:
            raise Refusal("user_not_found")
        return {"user": self.users[args["user"]]}

    # ---- people ----

    def sent(self, channel):
        return [m for m in self.channels[channel]["messages"] if m.get("user") == self.BOT_USER]

    def shown(self, channel):
        """What people read there, message by message."""
        return ["\n".join(b["text"] for b in m["blocks"] if b["type"] == "markdown") or m["text"] for m in self.sent(channel)]

    def sign(self, body, at=None, secret=None):
        stamp = str(int(time.time() if at is None else at))
        mac = hmac.new((secret or self.secret).encode(), b"v0:" + stamp.encode() + b":" + body, hashlib.sha256)
        return {"X-Slack-Request-Timestamp": stamp, "X-Slack-Signature": "v0=" + mac.hexdigest()}

    def post(self, body, kind="application/json", headers=None, url=None):
        """Sends what Slack would send, rightly signed unless @headers says otherwise; the status and the body of the answer."""
        body = body if isinstance(body, bytes) else body.encode()
        request = urllib.request.Request(url or self.request_url, body, {"Content-Type": kind, **(headers or self.sign(body))})
        try:
            with urllib.request.urlopen(request, timeout=20) as r:
                return r.status, r.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()

    def envelope(self, event, team=None, event_id=None):
        self.n += 1
        team = team or self.TEAM
        return {"token": "planted-verification-token", "team_id": team, "context_team_id": team, "api_app_id": self.APP, "event": event,
                "type": "event_callback", "event_id": event_id or f"Ev0{self.n:06d}", "event_time": int(time.time()),
                "authorizations": [{"enterprise_id": None, "team_id": team, "user_id": self.BOT_USER, "is_bot": True,
                                    "is_enterprise_install": False}],
                "is_ext_shared_channel": False, "event_context": "4-planted"}

    def message(self, channel, text, user="U0ANN1", **more):
        """A person's message, in the channel but not told to anybody."""
        c, ts = self.channels[channel], self._ts()
        m = {"client_msg_id": f"00000000-0000-4000-8000-{self.clock % 10**12:012d}", "type": "message", "user": user, "text": text,
             "team": c["team"], "ts": ts, "blocks": [{"type": "rich_text", "block_id": "b", "elements": []}], **more}
        c["messages"].append(m)
        return {**m, "channel": channel, "event_ts": ts, "channel_type": c["kind"]}

    def say(self, channel, text, user="U0ANN1", **more):
        """A person writes; the event goes out by webhook or socket.  The message's ts."""
        event = self.message(channel, text, user, **more)
        self.tell(self.envelope(event, self.channels[channel]["team"]))
        return event["ts"]

    def tell(self, body, retry=None):
        if self.request_url:
            headers = self.sign(json.dumps(body).encode())
            if retry:
                headers.update({"X-Slack-Retry-Num": str(retry), "X-Slack-Retry-Reason": "http_timeout"})
            status, text = self.post(json.dumps(body), headers=headers)
            assert status == 200, (status, text)
        else:
            self.push("events_api", body)

    def press(self, channel, ts, value, user="U0ANN1"):
        """A person presses the button with that value."""
        c = self.channels[channel]
        m = self._message(c, ts)
        button = next(e for b in m["blocks"] if b["type"] == "actions" for e in b["elements"] if e["value"] == value)
        self.interact({"type": "block_actions", "user": {"id": user, "username": self.users[user]["name"], "team_id": c["team"]},
                       "api_app_id": self.APP, "token": "planted-verification-token",
                       "container": {"type": "message", "message_ts": ts, "channel_id": channel, "is_ephemeral": False},
                       "trigger_id": f"1.{self.clock}.planted", "team": {"id": c["team"], "domain": "hotel"}, "enterprise": None,
                       "is_enterprise_install": False, "channel": {"id": channel, "name": c["name"]}, "message": m,
                       "state": {"values": {}}, "response_url": "https://hooks.slack.com/actions/planted",
                       "actions": [{**button, "block_id": "b", "type": "button", "action_ts": self._ts()}]})

    def interact(self, payload):
        if self.request_url:
            status, text = self.post(urllib.parse.urlencode({"payload": json.dumps(payload)}), "application/x-www-form-urlencoded")
            assert status == 200, (status, text)
        else:
            self.push("interactive", payload)

    def command(self, channel, command, text="", user="U0ANN1"):
        c = self.channels[channel]
        self._ts()
        form = {"token": "planted-verification-token", "team_id": c["team"], "team_domain": "hotel", "channel_id": channel,
                "channel_name": "directmessage" if c["kind"] == "im" else c["name"], "user_id": user, "user_name": self.users[user]["name"],
                "command": command, "text": text, "api_app_id": self.APP, "is_enterprise_install": "false",
                "response_url": "https://hooks.slack.com/commands/planted", "trigger_id": f"2.{self.clock}.planted"}
        if self.request_url:
            status, text = self.post(urllib.parse.urlencode(form), "application/x-www-form-urlencoded")
            assert status == 200, (status, text)
        else:
            self.push("slash_commands", form)

    # ---- Socket Mode ----

    def do_apps_connections_open(self, args, team):
        self.opened += 1
        return {"url": f"ws://127.0.0.1:{self.port}/link/?ticket=t{self.opened}&app_id={self.APP}"}

    async def _socket(self, request):
        ws = web.WebSocketResponse(autoping=not self.deaf)
        if len(self.sockets) >= self.max_sockets:
            self.broke("more sockets than Slack allows")
            return web.Response(status=429)
        await ws.prepare(request)
        self.sockets.append(ws)
        if self.hellos:
            await ws.send_json({"type": "hello", "num_connections": len(self.sockets), "connection_info": {"app_id": self.APP},
                                "debug_info": {"host": "applink", "build_number": 1, "approximate_connection_time": 3600}})
        try:
            async for m in ws:
                if m.type == WSMsgType.TEXT:
                    said = json.loads(m.data)
                    if set(said) - {"envelope_id", "payload"} or said["envelope_id"] not in self.unacked:
                        self.broke(f"a socket was told {m.data}")
                    self.acks[said["envelope_id"]] = said.get("payload")
                    self.unacked.pop(said["envelope_id"], None)
                elif m.type in (WSMsgType.PING, WSMsgType.PONG):
                    continue
        finally:
            self.sockets.remove(ws)
        return ws

    def push(self, kind, payload, socket=None, **more):
        """Over one of the open sockets, the newest unless told; the envelope's id."""
        self.n += 1
        id = f"envelope-{self.n}"
        body = {"envelope_id": id, "payload": payload, "type": kind, "accepts_response_payload": kind != "events_api", **more}
        if kind == "events_api":
            body.update({"retry_attempt": 0, "retry_reason": "", **more})
        self.unacked[id] = body
        asyncio.run_coroutine_threadsafe((socket or self.sockets[-1]).send_json(body), self.loop).result(10)
        return id

    def disconnect(self, reason, socket=None, close=False):
        async def tell(ws):
            await ws.send_json({"type": "disconnect", "reason": reason, "debug_info": {"host": "applink"}})
            if close:
                await ws.close()
        asyncio.run_coroutine_threadsafe(tell(socket or self.sockets[-1]), self.loop).result(10)

    def again(self, old=10):
        """Sends every envelope that was not acknowledged once more, as Slack does."""
        for id, body in list(self.unacked.items()):
            del self.unacked[id]
            self.push(body["type"], body["payload"], **({"retry_attempt": 1, "retry_reason": "timeout"} if body["type"] == "events_api" else {}))

    # ---- files ----

    def file(self, data, name="in.png", mimetype="image/png", **more):
        """A file that a person uploads: what an event says of it."""
        id = f"F0IN{len(self.files) + 1:04d}"
        self.files[id] = data
        return {"id": id, "name": name, "title": name, "mimetype": mimetype, "filetype": name.rsplit(".", 1)[-1], "size": len(data),
                "mode": "hosted", "url_private": f"{self.root}/files/{id}", "url_private_download": f"{self.root}/files/{id}", **more}

    async def _download(self, request):
        if request.headers.get("Authorization", "").removeprefix("Bearer ") not in self.tokens:
            raise web.HTTPFound("https://hotel.slack.com/?redir=files")
        return web.Response(body=self.files[request.match_info["id"]], content_type="application/octet-stream")

    def do_files_info(self, args, team):
        if args.get("file") not in self.files:
            raise Refusal("file_not_found")
        return {"file": {"id": args["file"], "url_private": f"{self.root}/files/{args['file']}", "size": len(self.files[args["file"]])}}

    def do_files_getUploadURLExternal(self, args, team):
        if int(args.get("length", 0)) <= 0 or not args.get("filename"):
            raise Refusal("missing_argument")
        id = f"F0OUT{len(self.uploads) + 1:04d}"
        self.uploads[id] = {"name": args["filename"], "length": int(args["length"]), "data": None, "team": team}
        return {"upload_url": f"{self.root}/upload/{id}", "file_id": id}

    async def _upload(self, request):
        u, data = self.uploads.get(request.match_info["id"]), await request.read()
        self.upload_headers.append(dict(request.headers))
        if request.headers.get("Content-Type", "").startswith("multipart/"):
            data = re.search(rb"\r\n\r\n(.*)\r\n--", data, re.S)[1]
        if not u or len(data) != u["length"]:
            return web.Response(status=400)
        u["data"] = data
        return web.Response(text=f"OK - {len(data)}")

    def do_files_completeUploadExternal(self, args, team):
        c = self._channel(args, team, "channel_id")
        out = []
        for f in args["files"]:
            u = self.uploads.get(f["id"])
            if not u or u["data"] is None:
                raise Refusal("file_not_found")
            if u.get("done"):
                raise Refusal("internal_error")
            u["done"] = True
            out.append({"id": f["id"], "title": f.get("title", u["name"])})
        self.pings += re.findall(r"<[@!][^>]+>", args.get("initial_comment", ""))
        m = {"type": "message", "user": self.BOT_USER, "bot_id": self.BOT_ID, "app_id": self.APP, "team": team, "ts": self._ts(),
             "text": args.get("initial_comment", ""), "blocks": [], "files": [{"id": f["id"], "name": self.uploads[f["id"]]["name"]} for f in out]}
        if args.get("thread_ts"):
            m["thread_ts"] = args["thread_ts"]
        c["messages"].append(m)
        return {"files": out}

    # ---- installing ----

    def do_oauth_v2_access(self, args, team):
        code = self.codes.pop(args.get("code"), None)
        if not code or (args.get("client_id"), args.get("client_secret")) != code["client"]:
            raise Refusal("invalid_code")
        return code["answer"]

    # ---- streams ----

    def do_chat_startStream(self, args, team):
        c = self._channel(args, team)
        if c["kind"] != "im" and not (args.get("recipient_user_id") and args.get("recipient_team_id")):
            raise Refusal("missing_recipient_user_id")
        if not any(m["ts"] == args.get("thread_ts") for m in c["messages"]):
            raise Refusal("invalid_thread_ts")
        m = {"type": "message", "user": self.BOT_USER, "bot_id": self.BOT_ID, "app_id": self.APP, "team": team, "ts": self._ts(), "text": "",
             "blocks": [], "thread_ts": args["thread_ts"], "streaming_state": "in_progress", "chunks": [],
             "stopped": False}
        if args.get("task_display_mode", "timeline") not in ("timeline", "plan"):
            raise Refusal("invalid_arguments")
        self._append(m, args)
        c["messages"].append(m)
        return {"channel": c["id"], "ts": m["ts"]}

    def _append(self, m, args):
        more = args.get("markdown_text", "")
        for chunk in args.get("chunks") or []:
            if chunk["type"] == "markdown_text":
                more += chunk["text"]
            elif chunk["type"] == "task_update":
                if set(chunk) - {"type", "id", "title", "status", "details", "output", "sources"} or not chunk.get("id") or \
                        not chunk.get("title") or chunk.get("status") not in ("pending", "in_progress", "complete", "error") or \
                        any(len(chunk.get(k, "")) > 256 for k in ("title", "details", "output")):
                    raise Refusal("invalid_chunks")
                self.pings += re.findall(r"<[@!][^>]+>", json.dumps(chunk))
                m["chunks"] = [c for c in m["chunks"] if c["id"] != chunk["id"]] + [chunk]
                if len(m["chunks"]) > 50:
                    raise Refusal("invalid_chunks")
            else:
                raise Refusal("invalid_chunks")
        if units(more) > 12000 or units(m["text"] + more) > getattr(self, "stream_cap", 12000):
            raise Refusal("msg_too_long")
        self.pings += re.findall(r"<[@!][^>]+>", more)
        m["text"] += more

    def do_chat_appendStream(self, args, team):
        m = self._message(self._channel(args, team), args.get("ts"))
        if m.get("streaming_state") != "in_progress":
            raise Refusal("message_not_in_streaming_state")
        if m["stopped"]:
            raise Refusal("stopped_by_user")
        if not args.get("markdown_text") and not args.get("chunks"):
            raise Refusal("no_text")
        self._append(m, args)
        return {"channel": args["channel"], "ts": m["ts"]}

    def do_chat_stopStream(self, args, team):
        m = self._message(self._channel(args, team), args.get("ts"))
        if m.get("streaming_state") != "in_progress":
            raise Refusal("message_not_in_streaming_state")
        self._append(m, args)
        m["streaming_state"] = "completed"
        if args.get("metadata"):
            m["metadata"] = args["metadata"]
        return {"channel": args["channel"], "ts": m["ts"], "message": m}
