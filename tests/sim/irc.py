"""A strict IRC server with the IRCv3 extensions that bellhop uses, for tests that need faults at will.

It refuses what servers refuse, and notes in `violations` what a well-behaved client never does: lines that are too long, tags that
it did not agree upon, text that is not UTF-8, more lines than the flood limit allows.  tests/e2e/test_irc.py runs the same tests
against ergo, if BELLHOP_ERGO names it: that is how this server is proven.
"""
import asyncio
import base64
import hashlib
import hmac
import os
import ssl
import threading
import time

CAPS = {"message-tags": "", "server-time": "", "account-tag": "", "batch": "", "echo-message": "", "labeled-response": "",
        "draft/chathistory": "", "draft/event-playback": "", "draft/multiline": "max-bytes=4096,max-lines=100", "draft/message-redaction": "", "chghost": "",
        "sasl": "PLAIN,EXTERNAL,SCRAM-SHA-256", "cap-notify": ""}
ROUNDS = 4096


def escape(value):
    for raw, as_ in (("\\", "\\\\"), (";", "\\:"), (" ", "\\s"), ("\r", "\\r"), ("\n", "\\n")):
        value = value.replace(raw, as_)
    return value


def unescape(value):
    out, i = "", 0
    while i < len(value):
        if value[i] == "\\":
            i += 1
            out += {":": ";", "s": " ", "r": "\r", "n": "\n"}.get(value[i:i + 1], value[i:i + 1])
        else:
            out += value[i]
        i += 1
    return out


def parse(text):
    tags, source = {}, ""
    if text.startswith("@"):
        head, text = text[1:].split(" ", 1)
        for tag in head.split(";"):
            key, _, value = tag.partition("=")
            tags[key] = unescape(value)
    if text.startswith(":"):
        source, text = text.split(" ", 1)
    head, colon, tail = text.partition(" :")
    words = head.split()
    return tags, (words[0].upper() if words else ""), words[1:] + ([tail] if colon else [])


def stamp(at):
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at * 1000) % 1000:03d}Z"


class Message:
    def __init__(self, sim, sender, command, target, lines, tags):
        sim.n += 1
        # every message has a time of its own, so that histories have one order
        sim.clock = max(time.time(), sim.clock + 0.001)
        self.msgid, self.at, self.command, self.target, self.lines = f"m{sim.n:06d}{os.urandom(4).hex()}", sim.clock, command, target, lines
        self.mask, self.account, self.bot, self.tags = sender.mask, sender.account, sender.bot, tags
        self.nick = sender.nick
        self.redacted = False


class Client:
    def __init__(self, sim, reader, writer):
        self.sim, self.reader, self.writer = sim, reader, writer
        self.nick = self.user = self.account = None
        self.caps, self.negotiating, self.registered, self.bot = set(), False, False, False
        self.label, self.replies, self.batch, self.scram, self.answer, self.later = None, None, None, None, "", None
        self.level, self.level_at = 0.0, time.monotonic()
        self.secure = writer.get_extra_info("ssl_object") is not None
        self.cert = self.secure and writer.get_extra_info("ssl_object").getpeercert(True)
        self.host = "host.test"
        self.labels = set()

    @property
    def mask(self):
        return f"{self.nick}!~{self.user}@{self.host}"

    def has(self, *caps):
        return all(c in self.caps for c in caps)

    def write(self, text):
        if not self.writer.is_closing():
            self.writer.write(text.encode() + b"\r\n")

    def send(self, text, tags=None):
        """A line for this client, with the tags that it asked for.  Answers to a labeled line are gathered."""
        tags = dict(tags or {})
        if self.has("server-time") and "time" not in tags:
            tags["time"] = stamp(time.time())
        if self.replies is not None:
            self.replies.append((text, tags))
        else:
            self.put(text, tags)

    def put(self, text, tags):
        if not self.has("message-tags"):
            tags = {k: v for k, v in tags.items() if k in ("time", "account", "batch", "label")}
        head = ";".join(k + ("=" + escape(v) if v else "") for k, v in tags.items())
        body = (text + "\r\n").encode()
        if len(body) > 512:  # as servers do, in whole characters
            text = body[:510].decode("utf-8", "ignore")
        self.write((f"@{head} " if head else "") + text)

    def flush(self):
        replies, label, self.replies, self.label = self.replies, self.label, None, None
        if replies is None:
            return
        if not replies:
            self.put(f":{self.sim.name} ACK", {"label": label})
        elif len(replies) == 1:
            self.put(replies[0][0], {**replies[0][1], "label": label})
        elif replies[0][0].split(" ")[1] == "BATCH" and replies[-1][0].split(" ")[1:3] == ["BATCH", "-" + replies[0][0].split(" ")[2][1:]]:
            self.put(replies[0][0], {**replies[0][1], "label": label})
            for text, tags in replies[1:]:
                self.put(text, tags)
        else:
            name = self.sim.name_batch()
            self.put(f":{self.sim.name} BATCH +{name} labeled-response", {"label": label})
            for text, tags in replies:
                self.put(text, {"batch": name, **tags})
            self.put(f":{self.sim.name} BATCH -{name}", {})

    def numeric(self, number, *words):
        self.send(f":{self.sim.name} {number:03d} {self.nick or '*'} " + " ".join(words))


class IrcSim:
    """sim.trouble("taken"): the bot's next message is taken, and the connection cut before its echo; "lost": cut before it is taken.
    sim.cut(nick), sim.kick(channel, nick), sim.split(nick), sim.announce(caps), sim.withdraw(cap)."""

    name = "irc.sim.test"

    def __init__(self, caps=None, accounts=(), flood=None, sts=None, tls=None, isupport=(), refuse=(), certs=None, always_on=(),
                 reserve=True, bot_mode="B"):
        self.caps = dict(CAPS if caps is None else {c: CAPS.get(c, "") for c in caps})
        self.accounts = {a: "planted-irc-password" for a in accounts}
        self.certs = certs or {}  # DER -> account
        self.always_on = set(always_on)  # accounts that get messages while they are away
        self.bot_mode = bot_mode
        self.reserve = reserve  # nicks belong to the accounts of their names
        self.flood, self.sts, self.isupport, self.refuse = flood, sts, list(isupport), set(refuse)
        self.clients, self.channels, self.history, self.bans, self.about = {}, {}, {}, {}, {}
        self.violations, self.troubles, self.seen, self.killed = [], [], [], 0
        self.n, self.clock, self.batches, self.deaf = 0, 0.0, 0, False
        self.no_history_before, self.no_ids = 0.0, False
        self.loop = asyncio.new_event_loop()
        ready = threading.Event()
        threading.Thread(target=self._serve, args=(ready, tls), daemon=True).start()
        ready.wait(10)

    def _serve(self, ready, tls):
        asyncio.set_event_loop(self.loop)

        async def begin():
            self.server = await asyncio.start_server(self._client, "127.0.0.1", 0, limit=2**17)
            self.port = self.server.sockets[0].getsockname()[1]
            if tls:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(*tls)
                context.load_verify_locations(tls[0])
                context.verify_mode = ssl.CERT_OPTIONAL
                self.secure = await asyncio.start_server(self._client, "127.0.0.1", 0, limit=2**17, ssl=context)
                self.tls_port = self.secure.sockets[0].getsockname()[1]
        self.loop.run_until_complete(begin())
        ready.set()
        self.loop.run_forever()

    def call(self, function, *args):
        """In the server's thread."""
        async def run():
            return function(*args)
        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(30)

    def close(self):
        def end():
            for c in list(self.clients.values()):
                c.writer.close()
            self.server.close()
            self.loop.stop()
        self.loop.call_soon_threadsafe(end)

    stop = close

    def broke(self, what):
        self.violations.append(what)

    def name_batch(self):
        self.batches += 1
        return f"b{self.batches}"

    # ---- what tests do ----

    def trouble(self, how, times=1):
        self.troubles += [how] * times

    def cut(self, nick, error=None):
        def run():
            c = self.clients.get(nick.lower())
            if c:
                if error:
                    c.write(f"ERROR :{error}")
                self.leave(c, error or "Connection reset by peer")
        self.call(run)

    def kick(self, channel, nick, why="out"):
        self.call(lambda: self.part(self.clients[nick.lower()], channel, f":{self.name} KICK {channel} {nick} :{why}"))

    def split(self, nick):
        """@nick is on the other side of a netsplit: it is seen to quit, and comes back at once."""
        def run():
            c = self.clients[nick.lower()]
            rooms = [ch for ch, members in self.channels.items() if c in members]
            others = {m for ch in rooms for m in self.channels[ch] if m is not c}
            for m in others:
                name = self.name_batch()
                tags = {"batch": name} if m.has("batch") else {}
                for what, line in (("netsplit", f":{c.mask} QUIT :a.test b.test"), ("netjoin", f":{c.mask} JOIN {rooms[0]}")):
                    if m.has("batch"):
                        m.send(f":{self.name} BATCH +{name} {what} a.test b.test")
                    m.send(line, tags)
                    if m.has("batch"):
                        m.send(f":{self.name} BATCH -{name}")
        self.call(run)

    def announce(self, **caps):
        def run():
            self.caps.update(caps)
            for c in self.clients.values():
                c.send(f":{self.name} CAP {c.nick} NEW :" + " ".join(k + (f"={v}" if v else "") for k, v in caps.items()))
        self.call(run)

    def withdraw(self, cap):
        def run():
            self.caps.pop(cap, None)
            for c in self.clients.values():
                c.caps.discard(cap)
                c.send(f":{self.name} CAP {c.nick} DEL :{cap}")
        self.call(run)

    def rename(self, nick, to):
        self.call(lambda: self.on_nick(self.clients[nick.lower()], {}, [to]))

    # ---- connections ----

    async def _client(self, reader, writer):
        c = Client(self, reader, writer)
        try:
            while not writer.is_closing():
                raw = await reader.readuntil(b"\n")
                if self.deaf:
                    continue
                self.take(c, raw.rstrip(b"\r\n"))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.LimitOverrunError, OSError):
            pass
        finally:
            self.leave(c, "Connection closed")

    def leave(self, c, why):
        if c.nick and self.clients.get(c.nick.lower()) is c:
            del self.clients[c.nick.lower()]
            others = {m for members in self.channels.values() if c in members for m in members if m is not c}
            for members in self.channels.values():
                members.discard(c)
            for m in others:
                m.send(f":{c.mask} QUIT :{why}")
        if not c.writer.is_closing():
            c.writer.close()

    def bill(self, c):
        """The flood limit: a bucket of lines."""
        if not self.flood or not c.registered:
            return True
        burst, per_second = self.flood
        now = time.monotonic()
        c.level = max(0.0, c.level - (now - c.level_at) * per_second)
        c.level_at = now
        c.level += 1
        if c.level <= burst + 1:
            return True
        self.killed += 1
        c.write("ERROR :Closing Link: Excess Flood")
        self.leave(c, "Excess Flood")
        return False

    def take(self, c, raw):
        if not raw:
            return
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            self.broke(f"not UTF-8: {raw!r}")
            return
        body = text.split(" ", 1)[1] if text.startswith("@") else text
        if len(body.encode()) > 510:
            self.broke(f"line too long: {len(body.encode())}")
            c.numeric(417, ":Input line was too long")
            return
        if text.startswith("@") and len(text.split(" ", 1)[0].encode()) > 4094:
            self.broke("tags too long")
            return
        tags, command, params = parse(text)
        if tags and not c.has("message-tags") and not set(tags) <= {"label", "batch"}:
            self.broke(f"tags without message-tags: {text}")
        self.seen.append((c.nick, text))
        if not self.bill(c):
            return
        if command in ("PRIVMSG", "BATCH", "TAGMSG") and self.troubles and c.account == "desk":
            how = self.troubles[0]
            inside = command == "BATCH" and params[0][0] == "+" or "batch" in tags
            if how == "lost":
                self.troubles.pop(0)
                self.leave(c, "lost")
                return
            if how == "taken" and not inside:
                self.troubles.pop(0)
                c.write = lambda _: None
                self.run(c, tags, command, params)
                self.leave(c, "taken")
                return
        self.run(c, tags, command, params)

    def run(self, c, tags, command, params):
        label = tags.pop("label", None)
        if label and c.has("labeled-response"):
            if label in c.labels:
                self.broke(f"label {label} twice")
            c.labels.add(label)
            if command == "BATCH" and params[0][0] == "+":
                c.later = label  # the whole batch is answered at its end
            else:
                c.label, c.replies = label, []
        elif label:
            self.broke("a label without labeled-response")
        handler = getattr(self, "on_" + command.lower(), None)
        if handler is None:
            c.numeric(421, command, ":Unknown command")
        elif not c.registered and command not in ("CAP", "NICK", "USER", "PASS", "AUTHENTICATE", "PING", "QUIT"):
            c.numeric(451, ":You have not registered")
        else:
            handler(c, tags, params)
        c.flush()

    # ---- registration ----

    def on_cap(self, c, tags, p):
        what = p[0].upper()
        if what == "LS":
            c.negotiating = c.negotiating or not c.registered
            caps = dict(self.caps)
            if self.sts:
                caps["sts"] = self.sts
            words = [k + (f"={v}" if v else "") for k, v in caps.items()]
            half = len(words) // 2
            c.send(f":{self.name} CAP * LS * :" + " ".join(words[:half]))
            c.send(f":{self.name} CAP * LS :" + " ".join(words[half:]))
        elif what == "REQ":
            names = p[1].split()
            bad = [n for n in names if n not in self.caps or (c.nick == "desk" and n in self.refuse)]
            if "sts" in names:
                self.broke("sts was asked for")
            if not bad:
                c.caps.update(names)
            c.send(f":{self.name} CAP {c.nick or '*'} {'NAK' if bad else 'ACK'} :{p[1]}")
        elif what == "LIST":
            c.send(f":{self.name} CAP {c.nick or '*'} LIST :" + " ".join(c.caps))
        elif what == "END":
            c.negotiating = False
            self.welcome(c)

    def on_pass(self, c, tags, p):
        pass

    def on_nick(self, c, tags, p):
        holder = self.clients.get(p[0].lower())
        if (holder and holder is not c) or (c.registered and self.is_reserved(c, p[0])):
            c.numeric(433, p[0], ":Nickname is already in use")
            return
        old = c.mask if c.nick else None
        if c.nick and self.clients.get(c.nick.lower()) is c:
            del self.clients[c.nick.lower()]
        c.nick = p[0]
        if c.registered:
            self.clients[c.nick.lower()] = c
            told = {c} | {m for members in self.channels.values() if c in members for m in members}
            for m in told:
                m.send(f":{old} NICK {c.nick}")
        else:
            self.welcome(c)

    def is_reserved(self, c, nick):
        return self.reserve and nick.lower() in self.accounts and c.account != nick.lower()

    def on_user(self, c, tags, p):
        c.user = p[0]
        self.welcome(c)

    def welcome(self, c):
        if c.registered or c.negotiating or not c.nick or not c.user:
            return
        if self.clients.get(c.nick.lower()) or self.is_reserved(c, c.nick):
            c.numeric(433, c.nick, ":Nickname is already in use")
            return
        c.registered = True
        self.clients[c.nick.lower()] = c
        c.numeric(1, f":Welcome {c.mask}")
        c.numeric(4, self.name, "sim-1", "B", "n")
        words = ["CASEMAPPING=ascii", "CHANTYPES=#", *([f"BOT={self.bot_mode}"] if self.bot_mode else []), "UTF8ONLY", "CHATHISTORY=50", "MSGREFTYPES=msgid,timestamp", *self.isupport]
        c.numeric(5, *words, ":are supported by this server")
        c.numeric(422, ":no MOTD")

    def on_authenticate(self, c, tags, p):
        if not c.has("sasl"):
            self.broke("AUTHENTICATE without sasl")
        if c.scram is None:
            c.scram = {"mechanism": p[0], "step": 0}
            if p[0] not in self.caps["sasl"].split(","):
                c.scram = None
                c.numeric(908, self.caps["sasl"], ":are available")
                c.numeric(904, ":SASL authentication failed")
                return
            c.write("AUTHENTICATE +")
            return
        c.answer += "" if p[0] == "+" else p[0]
        if len(p[0]) == 400:
            return
        answer, c.answer = base64.b64decode(c.answer).decode(), ""
        getattr(self, "sasl_" + c.scram["mechanism"].split("-")[0].lower())(c, answer)

    def logged_in(self, c, account):
        if account:
            c.account = account
            c.numeric(900, c.nick + "!*@*", account, f":You are now logged in as {account}")
            c.numeric(903, ":SASL authentication successful")
        else:
            c.numeric(904, ":SASL authentication failed")
        c.scram = None

    def sasl_plain(self, c, answer):
        _, user, password = answer.split("\0")
        self.logged_in(c, user if self.accounts.get(user) == password else None)

    def sasl_external(self, c, answer):
        self.logged_in(c, self.certs.get(c.cert) if c.cert else None)

    def sasl_scram(self, c, answer):
        s = c.scram
        s["step"] += 1
        fields = dict(f.split("=", 1) for f in answer.split(",") if "=" in f)
        if s["step"] == 1:
            assert answer.startswith("n,,"), answer
            s.update(user=fields["n"], bare=answer[3:], salt=os.urandom(16), nonce=fields["r"] + os.urandom(9).hex())
            s["first"] = f"r={s['nonce']},s={base64.b64encode(s['salt']).decode()},i={ROUNDS}"
            c.write("AUTHENTICATE " + base64.b64encode(s["first"].encode()).decode())
        elif s["step"] == 2:
            password = self.accounts.get(s["user"], "")
            salted = hashlib.pbkdf2_hmac("sha256", password.encode(), s["salt"], ROUNDS)
            message = f"{s['bare']},{s['first']},{answer.rsplit(',p=', 1)[0]}".encode()
            key = hmac.digest(salted, b"Client Key", "sha256")
            mac = hmac.digest(hashlib.sha256(key).digest(), message, "sha256")
            good = base64.b64decode(fields["p"]) == bytes(a ^ b for a, b in zip(key, mac)) and fields["r"] == s["nonce"]
            if not good or not password:
                self.logged_in(c, None)
                return
            proof = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), message, "sha256")
            if "liar" in self.refuse:
                proof = bytes(32)
            c.write("AUTHENTICATE " + base64.b64encode(b"v=" + base64.b64encode(proof)).decode())
        else:
            self.logged_in(c, s["user"])

    def on_register(self, c, tags, p):
        self.accounts[c.nick.lower()] = p[2]
        c.account = c.nick.lower()
        c.send(f":{self.name} REGISTER SUCCESS {c.nick} :done")

    # ---- channels ----

    def on_ping(self, c, tags, p):
        c.send(f":{self.name} PONG {self.name} :{p[-1]}")

    def on_pong(self, c, tags, p):
        pass

    def on_quit(self, c, tags, p):
        self.leave(c, "Quit")

    def on_whois(self, c, tags, p):
        who = self.clients.get(p[0].lower())
        if who is None:
            c.numeric(401, p[0], ":No such nick")
        else:
            c.numeric(311, who.nick, "~" + who.user, who.host, "*", ":somebody")
            if who.account:
                c.numeric(330, who.nick, who.account, ":is logged in as")
        c.numeric(318, p[0], ":End of /WHOIS list")

    def on_mode(self, c, tags, p):
        if len(p) > 1 and p[1] == "+B":
            c.bot = True
            c.send(f":{c.mask} MODE {c.nick} +B")

    def on_join(self, c, tags, p):
        name = p[0].lower()
        if self.bans.get(name):
            c.numeric(self.bans[name][0], name, ":" + self.bans[name][1])
            return
        members = self.channels.setdefault(name, set())
        members.add(c)
        for m in members:
            m.send(f":{c.mask} JOIN {p[0]}")
        self.history.setdefault(name, []).append(Message(self, c, "JOIN", p[0], [("", False)], {}))
        c.numeric(353, "=", p[0], ":" + " ".join(m.nick for m in members))
        c.numeric(366, p[0], ":End of NAMES list")

    def part(self, c, name, line):
        for m in self.channels.get(name.lower(), set()):
            m.send(line)
        self.channels.get(name.lower(), set()).discard(c)

    def on_part(self, c, tags, p):
        self.part(c, p[0], f":{c.mask} PART {p[0]}")

    # ---- messages ----

    def key(self, c, target):
        return target.lower() if target.startswith("#") else frozenset((c.nick.lower(), target.lower()))

    def receivers(self, c, target):
        """The clients that get it; None: refused."""
        if target.startswith("#"):
            members = self.channels.get(target.lower())
            if members is None:
                c.numeric(403, target, ":No such channel")
                return None
            if c not in members:
                c.numeric(404, target, ":Cannot send to channel")
                return None
            return [m for m in members if m is not c]
        to = self.clients.get(target.lower())
        if to is None and target.lower() in self.always_on:
            return []
        if to is None:
            c.numeric(401, target, ":No such nick")
            return None
        return [to]

    def show(self, to, m, nested=None, label=None, context=False):
        """Message @m as @to gets it."""
        tags = {"time": stamp(m.at)} if self.no_ids else {"msgid": m.msgid, "time": stamp(m.at)}
        if context:
            tags["draft/chathistory-context"] = ""
        if not to.has("server-time"):
            tags.pop("time")
        if m.account and to.has("account-tag"):
            tags["account"] = m.account
        if m.bot:
            tags["bot"] = ""
        tags.update(m.tags)
        if nested:
            tags["batch"] = nested
        if m.command == "JOIN":  # as ergo does
            to.send(f":{m.mask} JOIN {m.target}" if to.has("draft/event-playback") else
                    f":HistServ!HistServ@localhost PRIVMSG {m.target} :{m.nick} joined the channel", tags)
            return
        if len(m.lines) > 1 and to.has("draft/multiline", "batch"):
            name = self.name_batch()
            to.send(f":{m.mask} BATCH +{name} draft/multiline {m.target}", tags)
            for text, joins in m.lines:
                to.send(f":{m.mask} {m.command} {m.target} :{text}", {"batch": name, **({"draft/multiline-concat": ""} if joins else {})})
            to.send(f":{self.name} BATCH -{name}")
            return
        for n, (text, _) in enumerate(m.lines):
            if text is None:
                if to.has("message-tags"):
                    to.send(f":{m.mask} TAGMSG {m.target}", tags)
            elif text or len(m.lines) == 1:
                to.send(f":{m.mask} {m.command} {m.target} :{text}", tags if n == 0 else {k: v for k, v in tags.items() if k != "msgid"})

    def deliver(self, c, command, target, lines, tags):
        to = self.receivers(c, target)
        if to is None:
            return
        m = Message(self, c, command, target, lines, {k: v for k, v in tags.items() if k.startswith("+")})
        if lines[0][0] is not None:
            self.history.setdefault(self.key(c, target), []).append(m)
        else:
            self.about.setdefault(m.tags.get("+draft/reply"), []).append(m)
        for other in to:
            self.show(other, m)
        if c.has("echo-message"):
            self.show(c, m)

    def on_privmsg(self, c, tags, p):
        if "batch" in tags:
            self.add(c, tags, p)
        elif len(p) < 2 or not p[1]:
            c.numeric(412, ":No text to send")
        else:
            self.deliver(c, "PRIVMSG", p[0], [(p[1], False)], tags)

    def on_notice(self, c, tags, p):
        self.deliver(c, "NOTICE", p[0], [(p[1], False)], tags)

    def on_tagmsg(self, c, tags, p):
        self.deliver(c, "TAGMSG", p[0], [(None, False)], tags)

    def on_redact(self, c, tags, p):
        for m in self.history.get(self.key(c, p[0]), []):
            if m.msgid == p[1]:
                m.redacted = True
                for other in self.receivers(c, p[0]) + ([c] if c.has("echo-message") else []):
                    other.send(f":{c.mask} REDACT {p[0]} {p[1]} :{p[2] if len(p) > 2 else ''}")
                return
        c.send(f":{self.name} FAIL REDACT UNKNOWN_MSGID {p[0]} {p[1]} :no such message")

    def on_batch(self, c, tags, p):
        if p[0][0] == "+":
            if not c.has("draft/multiline") or p[1] != "draft/multiline":
                self.broke(f"a batch that was not agreed upon: {p}")
            c.batch = (p[0][1:], p[2], tags, [])
            return
        name, target, tags, lines = c.batch
        c.batch = None
        size = sum(len(t.encode()) + (0 if j else 1) for t, j in lines)
        if name != p[0][1:] or size > 4097 or len(lines) > 100 or all(not t for t, _ in lines) or any(j and not t for t, j in lines):
            self.broke(f"a bad multiline message: {size} bytes, {len(lines)} lines")
            c.send(f":{self.name} FAIL BATCH MULTILINE_INVALID :no")
            return
        label, c.later = c.later, None
        if label:
            c.label, c.replies = label, []
        self.deliver(c, "PRIVMSG", target, lines, tags)

    def add(self, c, tags, p):
        extra = set(tags) - {"batch", "draft/multiline-concat"}
        if c.batch is None or tags["batch"] != c.batch[0] or p[0] != c.batch[1] or extra:
            self.broke(f"a stray line of a batch: {tags} {p}")
            return
        c.batch[3].append((p[1], "draft/multiline-concat" in tags))

    # ---- history ----

    def on_chathistory(self, c, tags, p):
        if not c.has("draft/chathistory"):
            self.broke("CHATHISTORY without its capability")
        what = p[0].upper()
        if what == "TARGETS":
            since, limit = p[1].removeprefix("timestamp="), int(p[3])
            name = self.name_batch()
            c.send(f":{self.name} BATCH +{name} draft/chathistory-targets")
            found = []
            for key, messages in self.history.items():
                mine = key if isinstance(key, str) else next(iter(key - {c.nick.lower()}), None) if c.nick.lower() in key else None
                if mine and messages and stamp(messages[-1].at) > since:
                    found.append((stamp(messages[-1].at), mine))
            if limit > 50:
                self.broke(f"more chats than CHATHISTORY=50: {limit}")
            for at, mine in sorted(found)[:limit]:
                c.send(f":{self.name} CHATHISTORY TARGETS {mine} {at}", {"batch": name})
            c.send(f":{self.name} BATCH -{name}")
            return
        target, ref, limit = p[1], p[2], int(p[3])
        if limit > 50:
            self.broke(f"more history than CHATHISTORY=50: {limit}")
        if target.startswith("#") and c not in self.channels.get(target.lower(), set()):
            c.send(f":{self.name} FAIL CHATHISTORY INVALID_TARGET {what} {target} :not yours")
            return
        got = [m for m in self.history.get(self.key(c, target), []) if m.at >= self.no_history_before and not m.redacted]
        if what == "AFTER" and ref.startswith("msgid="):
            at = next((n for n, m in enumerate(got) if m.msgid == ref[6:]), None)
            if at is None:
                c.send(f":{self.name} FAIL CHATHISTORY MESSAGE_ERROR {what} {target} :Messages could not be retrieved")
                return
            got = got[at + 1:][:limit]
        elif what == "AFTER":
            got = [m for m in got if stamp(m.at) > ref.removeprefix("timestamp=")][:limit]
        elif what == "LATEST":
            got = got[-limit:]
        name = self.name_batch()
        c.send(f":{self.name} BATCH +{name} chathistory {target}")
        for m in got:
            self.show(c, m, nested=name)
            for reaction in self.about.get(m.msgid, []):
                self.show(c, reaction, nested=name, context=True)
        c.send(f":{self.name} BATCH -{name}")
