"""A Telegram Bot API server that refuses what the real one refuses, and can be told to misbehave.

    sim = TelegramSim(); sim.bot(TOKEN, "my_bot"); sim.person(5, "Ann")
    sim.say(5, "hello")                     # becomes an update, by getUpdates or by webhook
    sim.texts(5)                            # what the bot wrote there
    sim.limit(5, retry_after=1)             # the next send to that chat is answered 429
    sim.real_limits()                       # from now on Telegram's limits hold; sim.refused tells whom they hit
    sim.trouble("sendMessage", 500)         # the next call fails; nothing happened
    sim.trouble("sendMessage", None)        # the next call happens, its answer never comes

Stricter than the real server in one way: parameters it does not know and entities that the real one would
silently repair are refused, so that our mistakes are seen.
"""
import asyncio
import json
import mimetypes
import re
import threading
import time

import aiohttp
from aiohttp import web

LIMIT = 4096
RICH_LIMIT = 32768
STYLES = {"bold", "italic", "underline", "strikethrough", "spoiler"}
CODE = {"code", "pre"}
KNOWN = {
    "getMe": set(),
    "getUpdates": {"offset", "limit", "timeout", "allowed_updates"},
    "setWebhook": {"url", "secret_token", "allowed_updates", "max_connections", "drop_pending_updates"},
    "deleteWebhook": {"drop_pending_updates"},
    "getWebhookInfo": set(),
    "getChat": {"chat_id"},
    "sendChatAction": {"chat_id", "message_thread_id", "action"},
    "sendMessage": {"chat_id", "message_thread_id", "text", "parse_mode", "entities", "reply_parameters",
                    "link_preview_options"},
    "editMessageText": {"chat_id", "message_id", "text", "parse_mode", "entities", "link_preview_options",
                        "reply_markup", "rich_message"},
    "editMessageCaption": {"chat_id", "message_id", "caption", "caption_entities", "reply_markup"},
    "editMessageReplyMarkup": {"chat_id", "message_id", "reply_markup"},
    "answerCallbackQuery": {"callback_query_id", "text", "show_alert", "cache_time"},
    "setMessageReaction": {"chat_id", "message_id", "reaction", "is_big"},
    "createForumTopic": {"chat_id", "name", "icon_color"},
    "editForumTopic": {"chat_id", "message_thread_id", "name"},
    "setMyCommands": {"commands", "scope", "language_code"},
    "getFile": {"file_id"},
}
KNOWN["sendMessage"] |= {"reply_markup"}
KNOWN["sendMessageDraft"] = {"chat_id", "message_thread_id", "draft_id", "text", "parse_mode", "entities"}
KNOWN["sendRichMessage"] = {"chat_id", "message_thread_id", "rich_message", "disable_notification", "reply_parameters",
                            "reply_markup"}
KNOWN["sendRichMessageDraft"] = {"chat_id", "message_thread_id", "draft_id", "rich_message"}
RICH = {"sendRichMessage", "sendRichMessageDraft"}  # since API 10.1
# method -> the field of the file, content types it takes (None: any), bytes
FILES = {
    "sendPhoto": ("photo", {"image/jpeg", "image/png", "image/webp"}, 10 * 2**20),
    "sendAnimation": ("animation", {"image/gif", "video/mp4"}, 50 * 2**20),
    "sendVoice": ("voice", {"audio/ogg", "audio/mpeg", "audio/mp4", "audio/x-m4a"}, 50 * 2**20),
    "sendAudio": ("audio", {"audio/mpeg", "audio/mp4", "audio/x-m4a"}, 50 * 2**20),
    "sendVideo": ("video", {"video/mp4"}, 50 * 2**20),
    "sendDocument": ("document", None, 50 * 2**20),
}
for _method, (_field, _, _) in FILES.items():
    KNOWN[_method] = {"chat_id", "message_thread_id", "caption", "caption_entities", "reply_parameters", _field}
CAPTION = 1024
# what may be reacted with, as far as the tests need it
REACTIONS = {"\U0001F440", "\U0001F44D", "\U0001F44E", "\u2764", "\U0001F525", "\U0001F389", "\U0001F4AF", "\U0001F44C"}


class Refusal(Exception):
    def __init__(self, code, description, **parameters):
        super().__init__(description)
        self.code, self.description, self.parameters = code, description, parameters


def bad(description, **parameters):
    return Refusal(400, "Bad Request: " + description, **parameters)


def units(text):
    return len(text.encode("utf-16-le")) // 2


# ---- styled text ----


def check_entities(text, entities):
    """In bounds, not inside a surrogate pair, properly nested, with the nestings the documentation allows."""
    borders, at = {0}, 0
    for c in text:
        at += units(c)
        borders.add(at)
    if len(entities) > 100:
        raise bad("can't parse entities: too many")
    open_, last = [], -1
    for e in entities:
        kind, off, n = e.get("type"), e.get("offset"), e.get("length")
        if kind not in STYLES | CODE | {"text_link", "blockquote", "text_mention"}:
            raise bad(f"can't parse entities: unsupported type {kind}")
        if type(off) is not int or type(n) is not int or n <= 0 or off not in borders or off + n not in borders:
            raise bad(f"can't parse entities: {kind} at {off}+{n} is not inside of the text")
        if kind == "text_link" and not re.match(r"(https?|tg)://\S", e.get("url", "")):
            raise bad("can't parse entities: bad URL")
        if off < last:
            raise bad("can't parse entities: not in order")
        last = off
        open_ = [o for o in open_ if o["offset"] + o["length"] > off]
        for o in open_:
            outer = o["type"]
            if off + n > o["offset"] + o["length"]:
                raise bad("can't parse entities: they overlap")
            if outer == kind or outer in CODE or (kind in CODE and outer != "blockquote") or \
                    (kind == "blockquote" and outer == "text_link"):
                raise bad(f"can't parse entities: {kind} inside of {outer}")
        open_.append(e)


def parse_markdown_v2(text):
    """What is left to see of MarkdownV2; raises as the real parser does."""
    marks = {"*": "bold", "_": "italic", "__": "underline", "~": "strike", "||": "spoiler"}
    out, open_, i = [], [], 0
    while i < len(text):
        c = text[i]
        if c == "\\" and i + 1 < len(text) and 1 <= ord(text[i + 1]) <= 126:
            out.append(text[i + 1])
            i += 2
            continue
        if text.startswith("```", i) or c == "`":
            mark = "```" if text.startswith("```", i) else "`"
            end, inner = i + len(mark), []
            while end < len(text) and not text.startswith(mark, end):
                end += text[end] == "\\"
                inner.append(text[end:end + 1])
                end += 1
            if end >= len(text):
                raise bad(f"can't parse entities: can't find end of {mark} at byte offset {i}")
            out += inner
            i = end + len(mark)
            continue
        if c == "[":
            open_.append("[")
            i += 1
            continue
        if c == "]" and open_ and open_[-1] == "[":
            open_.pop()
            i += 1
            if text.startswith("(", i):
                i = text.index(")", i) + 1 if ")" in text[i:] else len(text) + 1
            if i > len(text):
                raise bad("can't parse entities: can't find end of a URL")
            continue
        mark = next((m for m in ("__", "||", "*", "_", "~") if text.startswith(m, i)), None)
        if mark:
            if mark in open_ and open_[-1] != mark:
                raise bad(f"can't parse entities: {marks[mark]} at byte offset {i} overlaps")
            if open_ and open_[-1] == mark:
                open_.pop()
            else:
                open_.append(mark)
            i += len(mark)
            continue
        if c == ">" and (i == 0 or text[i - 1] == "\n"):
            i += 1
            continue
        if c in "_*[]()~`>#+-=|{}.!":
            raise bad(f"can't parse entities: character '{c}' is reserved and must be escaped with the preceding '\\'")
        out.append(c)
        i += 1
    if open_:
        raise bad(f"can't parse entities: can't find end of {marks.get(open_[-1], 'a link')}")
    return "".join(out)


def visible(p):
    text, mode = p.get("text"), p.get("parse_mode")
    if not isinstance(text, str) or not text.strip():
        raise bad("message text is empty")
    if mode is not None:
        if mode != "MarkdownV2":
            raise bad("unsupported parse_mode")
        text = parse_markdown_v2(text)
    entities = p.get("entities", [])
    if not isinstance(entities, list):
        raise bad("can't parse entities: expected an Array")
    check_entities(text, entities)
    if units(text) > LIMIT:
        raise bad("message is too long")
    return text


def rich_content(p):
    """The fields of a message with rich content; its Markdown is not parsed but becomes one block."""
    rich = p["rich_message"]
    if not isinstance(rich, dict) or set(rich) - {"markdown", "html", "blocks", "is_rtl", "skip_entity_detection", "media"}:
        raise bad("can't parse InputRichMessage")
    if set(rich) & {"html", "blocks"} or not isinstance(rich.get("markdown"), str) or not rich["markdown"].strip():
        raise bad("RICH_MESSAGE_CONTENT_REQUIRED")
    if len(rich["markdown"]) > RICH_LIMIT:
        raise bad("rich message is too long")
    if "text" in p or "entities" in p:
        raise bad("text and rich_message are given")
    return {"rich_message": {"blocks": [{"type": "paragraph", "text": rich["markdown"]}]}}


def content(p):
    """The fields of a message that has what @p says."""
    return rich_content(p) if "rich_message" in p else {"text": visible(p), "entities": p.get("entities", [])}


def text_of(message):
    """Its text, or its rich Markdown; None: it is a file."""
    return message["rich_message"]["blocks"][0]["text"] if "rich_message" in message else message.get("text")


class Window:
    """At most @most in any @seconds. A token bucket of that size, so that a simulator that was kept from running does not see
    a burst where there was none: what it allows is never less than the rate, and at most twice that once."""

    def __init__(self, most, seconds):
        self.most, self.rate, self.left, self.at = most, most / seconds, most, time.monotonic()

    def wait(self):
        now = time.monotonic()
        self.left = min(self.most, self.left + (now - self.at) * self.rate)
        self.at = now
        return 0 if self.left >= 1 else (1 - self.left) / self.rate


class TelegramSim:
    def __init__(self):
        self.bots, self.chats = {}, {}
        self.next_id, self.next_update = 100, 5000
        self.calls = []  # (method, parameters), in order
        self.troubles, self.limits = [], {}
        self.windows, self.refused, self.drafts = None, [], []
        self.shuffle = False  # batches come in the wrong order
        self.rich = True  # False: an API server from before rich messages
        self.lock = threading.RLock()
        self.loop = asyncio.new_event_loop()
        ready = threading.Event()
        threading.Thread(target=self._main, args=(ready,), daemon=True).start()
        assert ready.wait(10)

    def _main(self, ready):
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self._start())
        ready.set()
        self.loop.run_forever()

    async def _start(self, port=0):
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_get("/file/bot{token}/{path:.*}", self._download)
        app.router.add_route("*", "/bot{token}/{method}", self._handle)
        self.runner = web.AppRunner(app)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", port, shutdown_timeout=0.2)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def _now(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(10)

    def down(self):
        """Nobody answers at this address any more."""
        self._now(self.runner.cleanup())

    def up(self):
        self._now(self._start(self.port))

    def close(self):
        self.down()
        self._now(self._end_tasks())
        self.loop.call_soon_threadsafe(self.loop.stop)

    async def _end_tasks(self):
        tasks = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ---- the world ----

    def bot(self, token, username, user_id=777):
        self.bots[token] = {"id": user_id, "is_bot": True, "first_name": username, "username": username,
                            "can_read_all_group_messages": False, "updates": [], "webhook": None, "polls": [],
                            "wake": asyncio.Event(), "pushing": False}

    def person(self, chat_id, name):
        self.chats[chat_id] = {"id": chat_id, "type": "private", "first_name": name, "messages": {}}

    def group(self, chat_id, title, **more):
        self.chats[chat_id] = {"id": chat_id, "type": "supergroup", "title": title, "messages": {}, **more}

    def chat_of(self, chat):
        return {k: v for k, v in chat.items() if k not in ("messages", "topics", "gone", "moved")}

    def update(self, kind, body, token=None, update_id=None):
        with self.lock:
            self.next_update += 1
            update = {"update_id": update_id or self.next_update, kind: body}
            for t, b in self.bots.items():
                if token in (None, t):
                    b["updates"].append(update)
                    self.loop.call_soon_threadsafe(self._stir, t)
        return update

    def react(self, chat_id, message_id, new, old=(), user=None):
        """A person changes what they think of a message. Bots hear of it only if they ask for such updates."""
        user = user or {"id": 5, "is_bot": False, "first_name": "Ann", "last_name": "Lee", "username": "annlee"}
        return self.update("message_reaction", {
            "chat": self.chat_of(self.chats[chat_id]), "message_id": message_id, "user": user, "date": int(time.time()),
            "old_reaction": [{"type": "emoji", "emoji": e} for e in old],
            "new_reaction": [{"type": "emoji", "emoji": e} for e in new]})

    def say(self, chat_id, text=None, user=None, kind="message", **more):
        """A person writes; entities for mentions and commands are made as Telegram makes them."""
        chat = self.chats[chat_id]
        user = user or {"id": 5, "is_bot": False, "first_name": "Ann", "last_name": "Lee", "username": "annlee"}
        with self.lock:
            self.next_id += 1
            message = {"message_id": self.next_id, "date": int(time.time()), "chat": self.chat_of(chat)}
            if kind.endswith("channel_post"):
                message["sender_chat"] = self.chat_of(chat)
            else:
                message["from"] = user
            if text is not None:
                message["text"] = text
                found = [{"type": "bot_command" if m.group().startswith("/") else "mention",
                          "offset": units(text[:m.start()]), "length": units(m.group())}
                         for m in re.finditer(r"(?<!\S)/\w+(@\w+)?|@\w{4,}", text)]
                if found:
                    message["entities"] = found
            message.update(more)
            chat["messages"][message["message_id"]] = message
            self.update(kind, message)
        return message["message_id"]

    def sent(self, chat_id):
        return [m for m in list(self.chats[chat_id]["messages"].values()) if m.get("from", {}).get("is_bot")]

    def texts(self, chat_id):
        return [text_of(m) for m in self.sent(chat_id) if text_of(m) is not None]

    def called(self, method):
        return [p for m, p in list(self.calls) if m == method]

    # ---- misbehaviour ----

    def trouble(self, method, status, description="Internal Server Error", times=1, delay=0, **parameters):
        """The next calls of @method are answered with @status. None: they happen, then the line is cut."""
        self.troubles.append({"method": method, "status": status, "description": description, "times": times,
                              "delay": delay, "parameters": parameters})

    def limit(self, chat_id, retry_after, times=1):
        self.limits.setdefault(chat_id, []).extend([retry_after] * times)

    def real_limits(self, strict=False):
        """30 calls a second for a bot; in a chat one message or edit a second on average (@strict: a second apart), in a group
        20 a minute; previews and typing 20 in 5 s and 40 in 30 s."""
        self.windows, self.strict = {}, strict

    def _count(self, method, p):
        chat = p.get("chat_id")
        group = isinstance(chat, int) and chat < 0
        wanted = [("bot", 30, 1)]
        if method in ("sendMessage", "sendRichMessage", "editMessageText", "editMessageCaption") or method in FILES:
            wanted += [(chat, 1, 1) if self.strict else (chat, 10, 10)] + ([(("group", chat), 20, 60)] if group else [])
        elif method in ("sendMessageDraft", "sendRichMessageDraft", "sendChatAction"):
            wanted += [(("typing", chat), 20, 5), (("typing long", chat), 40, 30)]
        elif chat is None:
            return
        found = [self.windows.setdefault(key, Window(most, seconds)) for key, most, seconds in wanted]
        late = max(w.wait() for w in found)
        if late > 0:
            self.refused.append((time.monotonic(), method, chat))
            seconds = int(late) + 1
            raise Refusal(429, f"Too Many Requests: retry after {seconds}", retry_after=seconds)
        for w in found:
            w.left -= 1

    def _trouble(self, method):
        for t in self.troubles:
            if t["method"] == method and t["times"] > 0:
                t["times"] -= 1
                return t
        return None

    # ---- answering ----

    async def _handle(self, request):
        token, method = request.match_info["token"], request.match_info["method"]
        try:
            bot = self.bots.get(token)
            if bot is None:
                raise Refusal(401, "Unauthorized")
            if method not in KNOWN:
                raise Refusal(404, "Not Found: method not found")
            p = await self._parameters(request, method)
            self.calls.append((method, p))
            if method in RICH and not self.rich:
                raise Refusal(404, "Not Found: method not found")
            unknown = set(p) - KNOWN[method]
            if unknown:
                raise bad(f"unknown parameters {sorted(unknown)}")
            if self.windows is not None:
                self._count(method, p)
            trouble = self._trouble(method)
            if trouble and trouble["delay"]:
                await asyncio.sleep(trouble["delay"])
            if trouble and trouble["status"]:
                raise Refusal(trouble["status"], trouble["description"], **trouble["parameters"])
            if method in FILES:
                result = await self._send_file(method, bot, token, p)
            else:
                result = await getattr(self, "_" + method)(bot, token, p)
            if trouble:
                request.transport.abort()
            return web.json_response({"ok": True, "result": result})
        except Refusal as r:
            if r.code >= 500:
                return web.Response(status=r.code, text="<html>" + r.description + "</html>", content_type="text/html")
            answer = {"ok": False, "error_code": r.code, "description": r.description}
            if r.parameters:
                answer["parameters"] = r.parameters
            return web.json_response(answer, status=r.code)

    async def _parameters(self, request, method):
        if request.content_type == "multipart/form-data" and method in FILES:
            return await self._form(request, method)
        body = await request.read()
        if body and request.content_type != "application/json":
            raise bad("expected JSON")
        return json.loads(body) if body else {}

    async def _form(self, request, method):
        """Fields are texts; what is an object or an array in JSON is one in JSON here, too."""
        p = {}
        for name, value in (await request.post()).items():
            if hasattr(value, "file"):
                p[name] = {"name": value.filename, "type": value.content_type, "bytes": value.file.read()}
            elif name in ("caption_entities", "reply_parameters"):
                p[name] = json.loads(value)
            elif name in ("message_thread_id",):
                p[name] = int(value)
            else:
                p[name] = value
        field = FILES[method][0]
        if str(p.get(field)).startswith("attach://"):  # the other way to name a file
            p[field] = p.pop(p[field][len("attach://"):])
        file = p.get(field)
        if isinstance(file, dict) and file["type"] == "application/octet-stream":  # it looks for itself
            file["type"] = mimetypes.guess_type(file["name"])[0] or file["type"]
        return p

    async def _send_file(self, method, bot, token, p):
        field, types, most = FILES[method]
        chat = self._chat(p)
        self._limited(chat)
        file, caption = p.get(field), p.get("caption", "")
        if not isinstance(file, dict) or not file["bytes"]:
            raise bad("file must be non-empty")
        if len(file["bytes"]) > most:
            raise Refusal(413, "Request Entity Too Large")
        if types and file["type"] not in types:
            raise bad({"sendPhoto": "IMAGE_PROCESS_FAILED", "sendVoice": "VOICE_MESSAGES_FORBIDDEN"}.get(
                method, "wrong file type"))
        if method == "sendPhoto" and b"not a picture" in file["bytes"]:
            raise bad("PHOTO_INVALID_DIMENSIONS")
        check_entities(caption, p.get("caption_entities", []))
        if units(caption) > CAPTION:
            raise bad("message caption is too long")
        with self.lock:
            self.next_id += 1
            message = {"message_id": self.next_id, "date": int(time.time()), "chat": self.chat_of(chat),
                       "caption": caption, field: file, "from": await self._getMe(bot, token, {})}
            reply = p.get("reply_parameters")
            if reply and reply["message_id"] in chat["messages"]:
                message["reply_to_message"] = {"message_id": reply["message_id"]}
            chat["messages"][message["message_id"]] = message
        return {k: v for k, v in message.items() if k != field}

    # ---- files of people ----

    def file(self, data, path="photos/file_1.jpg"):
        """What getFile knows; returns the file_id."""
        self.files = getattr(self, "files", {})
        id = f"file-{len(self.files)}"
        self.files[id] = (path, data)
        return id

    async def _getFile(self, bot, token, p):
        path, data = getattr(self, "files", {}).get(p.get("file_id"), (None, None))
        if path is None:
            raise bad("invalid file_id")
        if len(data) > 20 * 2**20:
            raise bad("file is too big")
        return {"file_id": p["file_id"], "file_unique_id": "u" + p["file_id"], "file_size": len(data),
                "file_path": path}

    file_delay = 0

    async def _download(self, request):
        self.calls.append(("download", request.match_info["path"]))
        await asyncio.sleep(self.file_delay)
        if request.match_info["token"] not in self.bots:
            return web.Response(status=401)
        for path, data in getattr(self, "files", {}).values():
            if path == request.match_info["path"]:
                return web.Response(body=data, content_type="application/octet-stream")
        return web.Response(status=404)

    # ---- buttons, reactions, topics, commands ----

    @staticmethod
    def _check_markup(p):
        markup = p.get("reply_markup")
        if markup is None:
            return None
        rows = markup.get("inline_keyboard")
        if set(markup) != {"inline_keyboard"} or not isinstance(rows, list):
            raise bad("object expected as reply markup")
        for row in rows:
            for button in row:
                if set(button) != {"text", "callback_data"} or not button["text"]:
                    raise bad("inline keyboard button is wrong")
                if not 1 <= len(button["callback_data"].encode()) <= 64:
                    raise bad("BUTTON_DATA_INVALID")
        return markup

    def press(self, chat_id, message_id, data, user=None):
        """Somebody presses a button."""
        user = user or {"id": 5, "is_bot": False, "first_name": "Ann", "last_name": "Lee", "username": "annlee"}
        message = self.chats[chat_id]["messages"][message_id]
        self.presses = getattr(self, "presses", 0) + 1
        id = f"press-{self.presses}"
        self.update("callback_query", {"id": id, "from": user, "chat_instance": "1", "data": data,
                                       "message": {k: v for k, v in message.items() if k != "reply_markup"}})
        return id

    answered = []

    async def _answerCallbackQuery(self, bot, token, p):
        if len(p.get("text", "")) > 200:
            raise bad("MESSAGE_TOO_LONG")
        if p["callback_query_id"] in self.answered:
            raise bad("query is too old and response timeout expired or query ID is invalid")
        self.answered = self.answered + [p["callback_query_id"]]
        return True

    async def _editMessageReplyMarkup(self, bot, token, p):
        message = self._chat(p)["messages"].get(p.get("message_id"))
        if message is None:
            raise bad("message to edit not found")
        message["reply_markup"] = self._check_markup(p)
        return True

    async def _setMessageReaction(self, bot, token, p):
        message = self._chat(p)["messages"].get(p.get("message_id"))
        if message is None:
            raise bad("message to react not found")
        reaction = p.get("reaction", [])
        if len(reaction) > 1 or any(r["type"] != "emoji" or r["emoji"] not in REACTIONS for r in reaction):
            raise bad("REACTION_INVALID")
        message["reactions"] = [r["emoji"] for r in reaction]
        return True

    async def _createForumTopic(self, bot, token, p):
        chat = self._chat(p)
        if not chat.get("is_forum"):
            raise bad("the chat is not a forum")
        if not 1 <= len(p.get("name", "")) <= 128:
            raise bad("TOPIC_NAME_INVALID")
        with self.lock:
            self.next_id += 1
            chat.setdefault("topics", []).append(self.next_id)
            chat.setdefault("topic_names", {})[self.next_id] = p["name"]
        return {"message_thread_id": self.next_id, "name": p["name"], "icon_color": 7322096}

    async def _editForumTopic(self, bot, token, p):
        chat = self._chat(p)
        if not 0 <= len(p.get("name", "")) <= 128:
            raise bad("TOPIC_NAME_INVALID")
        chat.setdefault("topic_names", {})[p["message_thread_id"]] = p["name"]
        return True

    commands = None

    async def _setMyCommands(self, bot, token, p):
        commands = p["commands"]
        if len(commands) > 100:
            raise bad("BOT_COMMANDS_TOO_MUCH")
        for c in commands:
            if not re.fullmatch(r"[a-z0-9_]{1,32}", c["command"]) or not 1 <= len(c["description"]) <= 256:
                raise bad("BOT_COMMAND_INVALID")
        self.commands = commands
        return True

    async def _getMe(self, bot, token, p):
        return {k: bot[k] for k in ("id", "is_bot", "first_name", "username", "can_read_all_group_messages")}

    # ---- updates ----

    def _stir(self, token):
        bot = self.bots[token]
        bot["wake"].set()
        bot["wake"] = asyncio.Event()
        if bot["webhook"] and not bot["pushing"]:
            bot["pushing"] = True
            self.loop.create_task(self._push(token))

    async def _getUpdates(self, bot, token, p):
        if bot["webhook"]:
            raise Refusal(409, "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to "
                               "delete the webhook first")
        for other in bot["polls"]:
            other.cancel()
        allowed, timeout = p.get("allowed_updates", []), p.get("timeout", 0)
        if not isinstance(allowed, list) or not 0 <= timeout <= 50:
            raise bad("wrong parameters of getUpdates")
        with self.lock:
            offset = p.get("offset", 0)
            bot["updates"] = [u for u in bot["updates"] if u["update_id"] >= offset or u.get("stuck")]
        mine = asyncio.ensure_future(self._wait(bot, allowed, timeout))
        bot["polls"].append(mine)
        try:
            return await mine
        except asyncio.CancelledError:
            if mine.cancelled():
                raise Refusal(409, "Conflict: terminated by other getUpdates request; make sure that only one bot "
                                   "instance is running") from None
            raise
        finally:
            bot["polls"].remove(mine)

    async def _wait(self, bot, allowed, timeout):
        end = time.monotonic() + timeout
        while True:
            wake = bot["wake"]
            with self.lock:
                batch = [u for u in bot["updates"] if not allowed or set(u) & set(allowed)][:100]
            left = end - time.monotonic()
            if batch or left <= 0:
                return list(reversed(batch)) if self.shuffle else batch
            try:
                await asyncio.wait_for(wake.wait(), left)
            except asyncio.TimeoutError:
                pass

    async def _deleteWebhook(self, bot, token, p):
        bot["webhook"] = None
        return True

    async def _getWebhookInfo(self, bot, token, p):
        return {"url": (bot["webhook"] or {}).get("url", ""), "has_custom_certificate": False,
                "pending_update_count": len(bot["updates"])}

    async def _setWebhook(self, bot, token, p):
        if not re.fullmatch(r"https://[^ ]+", p.get("url", "")):
            raise bad("bad webhook: An HTTPS URL must be provided for webhook")
        if not re.fullmatch(r"[A-Za-z0-9_-]{0,256}", p.get("secret_token", "")):
            raise bad("secret token contains unallowed characters")
        bot["webhook"] = p
        for poll in bot["polls"]:
            poll.cancel()
        self._stir(token)
        return True

    webhook_to = None  # the plain address behind the public https one

    async def _push(self, token):
        bot = self.bots[token]
        async with aiohttp.ClientSession() as session:
            while bot["webhook"] and bot["updates"]:
                update, hook = bot["updates"][0], bot["webhook"]
                url = hook["url"]
                if self.webhook_to:
                    url = re.sub(r"^https://[^/]+", self.webhook_to, url)
                headers = {}
                if hook.get("secret_token"):
                    headers["X-Telegram-Bot-Api-Secret-Token"] = hook["secret_token"]
                try:
                    async with session.post(url, json=update, headers=headers) as answer:
                        ok = 200 <= answer.status < 300
                except aiohttp.ClientError:
                    ok = False
                if ok:
                    with self.lock:
                        bot["updates"].remove(update)
                else:
                    await asyncio.sleep(0.2)
            bot["pushing"] = False  # before anything is awaited: an update that comes now starts another

    # ---- messages ----

    def _chat(self, p, write=True):
        chat_id = p.get("chat_id")
        if isinstance(chat_id, str) and re.fullmatch(r"-?\d+", chat_id):
            chat_id = int(chat_id)
        chat = self.chats.get(chat_id)
        if chat is None:
            raise bad("chat not found")
        if chat.get("moved") and write:
            raise bad("group chat was upgraded to a supergroup chat", migrate_to_chat_id=chat["moved"])
        if chat.get("gone") and write:
            raise Refusal(403, "Forbidden: " + chat["gone"])
        thread = p.get("message_thread_id")
        if thread is not None and (not chat.get("is_forum") or thread not in chat.get("topics", ())):
            raise bad("message thread not found")
        return chat

    def _limited(self, chat):
        waiting = self.limits.get(chat["id"])
        if waiting:
            seconds = waiting.pop(0)
            raise Refusal(429, f"Too Many Requests: retry after {seconds}", retry_after=seconds)

    async def _sendMessage(self, bot, token, p):
        chat = self._chat(p)
        self._limited(chat)
        shown = content(p)
        markup = self._check_markup(p)
        reply = p.get("reply_parameters")
        if reply and reply["message_id"] not in chat["messages"] and not reply.get("allow_sending_without_reply"):
            raise bad("message to be replied not found")
        with self.lock:
            self.next_id += 1
            message = {"message_id": self.next_id, "date": int(time.time()), "chat": self.chat_of(chat), **shown,
                       "from": await self._getMe(bot, token, {})}
            if reply and reply["message_id"] in chat["messages"]:
                message["reply_to_message"] = {"message_id": reply["message_id"]}
            if markup:
                message["reply_markup"] = markup
            if p.get("message_thread_id"):
                message.update(message_thread_id=p["message_thread_id"], is_topic_message=True)
            chat["messages"][message["message_id"]] = message
        return message

    async def _sendRichMessage(self, bot, token, p):
        if "rich_message" not in p:
            raise bad("RICH_MESSAGE_CONTENT_REQUIRED")
        return await self._sendMessage(bot, token, p)

    async def _editMessageText(self, bot, token, p):
        chat = self._chat(p)
        self._limited(chat)
        if not self.rich:  # an older server ignores what it does not know
            p.pop("rich_message", None)
        shown = content(p)
        message = chat["messages"].get(p.get("message_id"))
        if message is None:
            raise bad("message to edit not found")
        if not message["from"]["is_bot"]:
            raise bad("message can't be edited")
        if text_of(message) is None:
            raise bad("there is no text in the message to edit")
        if shown.items() <= message.items():
            raise bad("message is not modified: specified new message content and reply markup are exactly the same "
                      "as a current content and reply markup of the message")
        for key in ("text", "entities", "rich_message"):
            message.pop(key, None)
        message.update(shown, edit_date=int(time.time()))
        message["reply_markup"] = self._check_markup(p)
        return message

    async def _editMessageCaption(self, bot, token, p):
        chat, caption, entities = self._chat(p), p.get("caption", ""), p.get("caption_entities", [])
        self._limited(chat)
        message = chat["messages"].get(p.get("message_id"))
        if message is None or text_of(message) is not None or not message["from"]["is_bot"]:
            raise bad("message can't be edited")
        check_entities(caption, entities)
        if units(caption) > CAPTION:
            raise bad("message caption is too long")
        message.update(caption=caption, caption_entities=entities, edit_date=int(time.time()))
        return {"message_id": message["message_id"]}

    async def _sendMessageDraft(self, bot, token, p):
        chat = self._chat(p)
        self._limited(chat)
        if chat["type"] != "private":
            raise bad("drafts can be sent to private chats only")
        if type(p.get("draft_id")) is not int or p["draft_id"] == 0:
            raise bad("draft_id must be a non-zero integer")
        self.drafts.append((chat["id"], p["draft_id"], text_of(content(p))))
        return True

    async def _sendRichMessageDraft(self, bot, token, p):
        if "rich_message" not in p:
            raise bad("RICH_MESSAGE_CONTENT_REQUIRED")
        return await self._sendMessageDraft(bot, token, p)

    async def _sendChatAction(self, bot, token, p):
        self._limited(self._chat(p))
        if p.get("action") not in ("typing", "upload_photo", "upload_document"):
            raise bad("wrong parameter action in request")
        return True

    async def _getChat(self, bot, token, p):
        return self.chat_of(self._chat(p, write=False))
