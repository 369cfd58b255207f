#!/usr/bin/python3
"""A stand-in for signal-cli, written from its manual pages and source (0.14.6): jsonRpc and daemon, with Signal's servers in a directory.

As a program:  signal_cli.py --config DIR -a NUMBER jsonRpc [--receive-mode=manual]
               signal_cli.py --config DIR -a NUMBER daemon --socket=PATH | --tcp=HOST:PORT [--receive-mode=manual]
As a module:   SignalSim(dir), which plays the people and reads what was sent.

What it shares with the real program: messages are stored in a cache before the server forgets them, printed as one line, and deleted from
the cache once the line is written; every request runs on a thread of its own; the account is locked by one process; errors have the
codes and the data of the source.  DIR has:

    queue/      what Signal's servers hold for the account, one envelope a file
    cache/      taken from the servers, not printed yet
    sent        what the account sent, a JSON object a line
    attachments/  files by id
    faults/     orders of the test, see take_fault()
    violations  what no client of signal-cli should do
"""
import base64
import fcntl
import json
import os
import pathlib
import re
import signal
import socket
import sys
import threading
import time
import uuid

STYLES = {"NONE", "BOLD", "ITALIC", "SPOILER", "STRIKETHROUGH", "MONOSPACE"}
USER_ERROR, IO_ERROR, UNTRUSTED, RATE = -1, -3, -4, -5
BURST, REFILL_S = 60, 1.0  # messages to one recipient, as the default of Signal's server


def utf16(text):
    return len(text.encode("utf-16-le")) // 2


class Refused(Exception):
    def __init__(self, code, message, data=None):
        super().__init__(message)
        self.error = {"code": code, "message": message, "data": data}


class Account:
    """One account, in one process."""

    PARAMS = {
        "send": {"recipient", "groupId", "message", "attachments", "textStyles", "quoteTimestamp", "quoteAuthor", "quoteMessage",
                 "editTimestamp", "voiceNote", "mentions", "notifySelf"},
        "sendReaction": {"recipient", "groupId", "emoji", "targetAuthor", "targetTimestamp", "remove"},
        "sendTyping": {"recipient", "groupId", "stop"},
        "sendReceipt": {"recipient", "targetTimestamp", "type"},
        "remoteDelete": {"recipient", "groupId", "targetTimestamp"},
        "getAttachment": {"id", "recipient", "groupId"},
        "subscribeReceive": set(),
        "unsubscribeReceive": {"subscription"},
        "version": set(),
    }

    def __init__(self, dir, number, manual):
        self.dir, self.number, self.manual = pathlib.Path(dir), number, manual
        for name in ("queue", "cache", "attachments", "faults"):
            (self.dir / name).mkdir(exist_ok=True, parents=True)
        self.lock_file = open(self.dir / "lock", "w")
        try:
            fcntl.flock(self.lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("INFO  SignalAccount - Config file is in use by another instance, waiting...", file=sys.stderr, flush=True)
            fcntl.flock(self.lock_file, fcntl.LOCK_EX)
        state = json.loads((self.dir / "account.json").read_text())
        if state.get("unregistered"):
            print(f"User {number} is not registered.", file=sys.stderr, flush=True)
            sys.exit(1)
        (self.dir / "pid.tmp").write_text(str(os.getpid()))
        os.rename(self.dir / "pid.tmp", self.dir / "pid")
        self.people, self.groups, self.uuid = state["people"], state["groups"], state["uuid"]
        self.lock = threading.Lock()
        self.receivers = {}  # subscription -> write
        self.next_subscription = 0
        self.last = 0
        self.bucket = {}

    def violate(self, what):
        with open(self.dir / "violations", "a") as f:
            f.write(json.dumps(what) + "\n")

    # ---- receiving ----

    def receive_forever(self):
        retry = True
        while True:
            if not self.receivers or (self.dir / "deaf").exists():
                retry = True
                time.sleep(0.01)
                continue
            if retry:
                for path in sorted((self.dir / "cache").iterdir()):
                    self.hand_over(path)
                retry = False
            waiting = sorted((self.dir / "queue").iterdir())
            if not waiting:
                time.sleep(0.01)
            for path in waiting[:1]:
                if path.name.endswith(".tmp"):
                    time.sleep(0.001)
                    continue
                cached = self.dir / "cache" / path.name
                os.rename(path, cached)  # on disk, then acknowledged to the server
                self.hand_over(cached)

    def hand_over(self, path):
        message = json.loads(path.read_text())
        for number, (write, wrapped) in list(self.receivers.items()):
            params = {"subscription": number, "result": message} if wrapped else message
            write({"jsonrpc": "2.0", "method": "receive", "params": params})
        path.unlink()

    # ---- faults ----

    def take_fault(self, method):
        """The oldest order for this method: die_before, die_after, hang, drop, slow:S, error:CODE:MESSAGE, rate:SECONDS, network, unregistered,
        untrusted, captcha."""
        for path in sorted((self.dir / "faults").iterdir()):
            name, _, what = path.read_text().partition(" ")
            if name == method:
                try:
                    path.unlink()
                except FileNotFoundError:
                    continue
                return what
        return ""

    # ---- requests ----

    def timestamp(self):
        with self.lock:
            self.last = max(self.last + 1, int(time.time() * 1000))
            return self.last

    def results(self, targets, type, **more):
        return [{"recipientAddress": {"uuid": t, "number": self.people.get(t, {}).get("number"), "username": None}, "type": type, **more}
                for t in targets]

    def resolve(self, params, method):
        """The recipients, as CommandUtil reads them."""
        people, groups = params.get("recipient"), params.get("groupId")
        people = [people] if isinstance(people, str) else people or []
        groups = [groups] if isinstance(groups, str) else groups or []
        targets = []
        for p in people:
            if re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", p):
                if p not in self.people and p != self.uuid:
                    raise Refused(USER_ERROR, f"The user {p} is not registered.")
                targets.append(p)
            elif re.fullmatch(r"\+[1-9][0-9]{4,14}", p):
                known = [u for u, x in self.people.items() if x.get("number") == p]
                if not known:
                    raise Refused(USER_ERROR, f"The user {p} is not registered.")
                targets += known
            else:
                self.violate({"method": method, "recipient": p})
                raise Refused(USER_ERROR, f"Invalid phone number '{p}'")
        for g in groups:
            if g not in self.groups:
                raise Refused(USER_ERROR, "Group not found: " + g)
            targets += self.groups[g]["members"]
        if not targets:
            raise Refused(USER_ERROR, "No recipients given")
        return targets

    def limit(self, targets):
        for t in targets:
            level, at = self.bucket.get(t, (0, time.monotonic()))
            now = time.monotonic()
            level = max(0, level - (now - at) / REFILL_S)
            if level + 1 > BURST:
                self.violate({"limited": t})
                self.fail_rate(targets, 1)
            self.bucket[t] = (level + 1, now)

    def fail_rate(self, targets, seconds, **more):
        raise Refused(RATE, "Failed to send message due to rate limiting", {"response": {
            "timestamp": self.timestamp(), "results": self.results(targets, "RATE_LIMIT_FAILURE", retryAfterSeconds=seconds, **more)}})

    def fault(self, what, targets):
        response = lambda type: {"response": {"timestamp": self.timestamp(), "results": self.results(targets, type)}}
        if what.startswith("rate:"):
            self.fail_rate(targets, int(what[5:]))
        if what == "captcha":
            self.fail_rate(targets, 1, token="challenge-token")
        if what == "network":
            raise Refused(USER_ERROR, "Failed to send message", response("NETWORK_FAILURE"))
        if what == "unregistered":
            raise Refused(USER_ERROR, "Failed to send message", response("UNREGISTERED_FAILURE"))
        if what == "untrusted":
            raise Refused(UNTRUSTED, "Failed to send message due to untrusted identities", response("IDENTITY_FAILURE"))
        if what.startswith("error:"):
            _, code, message = what.split(":", 2)
            raise Refused(int(code), message)
        if what.startswith("slow:"):
            time.sleep(float(what[5:]))
        if what == "hang":
            time.sleep(3600)
        if what == "die_before":
            os.kill(os.getpid(), signal.SIGKILL)

    def record(self, method, params, timestamp):
        line = json.dumps({"method": method, "timestamp": timestamp, **params}) + "\n"
        fd = os.open(self.dir / "sent", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(fd, line.encode())
        os.close(fd)

    def check_send(self, p):
        message = p.get("message", "")
        if not message and not p.get("attachments"):
            raise Refused(USER_ERROR, "Sending empty message is not allowed, either a message, attachment or sticker must be given.")
        for style in p.get("textStyles", []):
            m = re.fullmatch(r"(\d+):(\d+):(.+)", style)
            if m is None or m[3] not in STYLES:
                raise Refused(USER_ERROR, f"Invalid textStyle syntax ({style})")
            if int(m[2]) == 0 or int(m[1]) + int(m[2]) > utf16(message):
                self.violate({"style": style, "units": utf16(message)})
        if "quoteTimestamp" in p and "quoteAuthor" not in p:
            raise Refused(USER_ERROR, "Quote author parameter is missing")
        for a in p.get("attachments", []):
            m = re.fullmatch(r"data:([^;,]+);filename=([^;,]*);base64,([A-Za-z0-9+/=]+)", a)
            if m is None:
                raise Refused(USER_ERROR, "Failed to open attachment")
            base64.b64decode(m[3], validate=True)

    def call(self, method, params, write):
        if method not in self.PARAMS:
            raise Refused(-32601, "Method not implemented")
        account = params.pop("account", None)
        if account not in (None, self.number):
            self.violate({"account": account})
        unknown = set(params) - self.PARAMS[method]
        if unknown:
            self.violate({"method": method, "unknown": sorted(unknown)})
        what = self.take_fault(method)
        if method == "version":
            self.fault(what, [])
            return {"version": "0.14.6"}
        if method == "subscribeReceive":
            self.fault(what, [])
            number, self.next_subscription = self.next_subscription, self.next_subscription + 1
            self.receivers[number] = (write, True)
            return number
        if method == "unsubscribeReceive":
            if self.receivers.pop(params.get("subscription"), None) is None:
                raise Refused(USER_ERROR, "Unknown subscription id")
            return {}
        if method == "getAttachment":
            self.fault(what, [])
            path = self.dir / "attachments" / params["id"]
            if "/" in params["id"] or not path.exists():
                raise Refused(USER_ERROR, "Could not find attachment with ID: " + params["id"])
            return {"data": base64.b64encode(path.read_bytes()).decode()}
        targets = self.resolve(params, method)
        if method == "send":
            self.check_send(params)
        if method in ("sendReaction", "remoteDelete") and "targetTimestamp" not in params:
            raise Refused(-32603, "null (NullPointerException)")
        if method == "sendReceipt" and params.get("type") not in (None, "read", "viewed"):
            raise Refused(USER_ERROR, "Unknown receipt type: " + params["type"])
        self.fault(what, targets)
        if method != "sendReceipt":
            self.limit(targets)
        timestamp = self.timestamp()
        self.record(method, params, timestamp)
        if what == "die_after":
            os.kill(os.getpid(), signal.SIGKILL)
        if what.startswith("after:"):
            time.sleep(float(what[6:]))
        if what == "drop":
            time.sleep(3600)
        return {"timestamp": timestamp, "results": self.results(targets, "SUCCESS")}

    def answer(self, line, write):
        try:
            request = json.loads(line)
        except ValueError as e:
            self.violate({"not json": line[:200]})
            write({"jsonrpc": "2.0", "error": {"code": -32700, "message": str(e), "data": None}, "id": None})
            return
        if "result" in request or "error" in request:
            return  # the answer to no request, which the source logs
        if request.get("jsonrpc") != "2.0" or not isinstance(request.get("method"), str):
            self.violate({"not a request": line[:200]})
            write({"jsonrpc": "2.0", "error": {"code": -32600, "message": "method field must be set", "data": None}, "id": request.get("id")})
            return
        try:
            result = self.call(request["method"], dict(request.get("params") or {}), write)
            reply = {"jsonrpc": "2.0", "result": result, "id": request.get("id")}
        except Refused as e:
            reply = {"jsonrpc": "2.0", "error": e.error, "id": request.get("id")}
        if request.get("id") is not None:
            write(reply)

    def serve(self, lines, fd):
        lock = threading.Lock()

        def write(message):
            data = (json.dumps(message, separators=(",", ":"), ensure_ascii=False) + "\n").encode()
            with lock:  # as Java's writers do: pieces of 8 KiB
                for at in range(0, len(data), 8192):
                    piece = data[at:at + 8192]
                    while piece:
                        piece = piece[os.write(fd, piece):]

        if not self.manual:
            self.receivers[-1] = (write, False)
        mine = []
        for line in lines:
            t = threading.Thread(target=self.answer, args=(line, write), daemon=True)
            t.start()
            mine.append(t)
        for number, (w, _) in list(self.receivers.items()):
            if w is write:
                del self.receivers[number]


def main(argv):
    if "--version" in argv:
        print("signal-cli 0.14.6")
        return 0
    config, number, rest = None, None, []
    words = iter(argv)
    for word in words:
        if word in ("--config", "-c"):
            config = next(words)
        elif word in ("-a", "--account"):
            number = next(words)
        else:
            rest.append(word)
    command, options = rest[0], rest[1:]
    signal.signal(signal.SIGTERM, lambda *a: os._exit(143))
    account = Account(config, number, "--receive-mode=manual" in options)
    threading.Thread(target=account.receive_forever, daemon=True).start()
    if command == "jsonRpc":
        print("INFO  App - signal-cli simulated", file=sys.stderr, flush=True)
        account.serve(sys.stdin, 1)
        return 0
    where = next(o for o in options if o.startswith(("--socket=", "--tcp=")))
    kind, _, address = where.partition("=")
    if kind == "--socket":
        server = socket.socket(socket.AF_UNIX)
        pathlib.Path(address).unlink(missing_ok=True)
        server.bind(address)
    else:
        host, _, port = address.rpartition(":")
        server = socket.create_server((host, int(port)))
    server.listen()
    while True:
        connection, _ = server.accept()

        def talk(c):
            try:
                account.serve(c.makefile("r", encoding="utf-8"), c.fileno())
            except OSError:
                pass
            c.close()
        threading.Thread(target=talk, args=(connection,), daemon=True).start()


class SignalSim:
    """Signal and its people, for a test."""

    NUMBER, UUID = "+15550001000", "11111111-1111-4111-8111-111111111111"
    ANN, BEN = "9d0652a3-dcc3-4d11-975f-74d61598733f", "3f2504e0-4f89-41d3-9a0c-0305e82c3301"
    CLEO = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
    GROUP = "Pmpi+EfPWmsxiomLe9Nx2XF9HOE483p6iKiFj65iMwI="

    def __init__(self, dir):
        self.dir = pathlib.Path(dir)
        for name in ("queue", "cache", "attachments", "faults"):
            (self.dir / name).mkdir(exist_ok=True, parents=True)
        self.people = {self.ANN: {"number": "+15551230001", "name": "Ann"}, self.BEN: {"number": "+15551230002", "name": "Ben"},
                       self.CLEO: {"number": None, "name": "Cleo"}}
        self.groups = {self.GROUP: {"name": "Kitchen", "members": [self.ANN, self.BEN]}}
        self.save()
        self.count = 0
        self.last = 0
        self.killed = 0

    def save(self, **more):
        (self.dir / "account.json").write_text(json.dumps({"uuid": self.UUID, "people": self.people, "groups": self.groups, **more}))

    @property
    def command(self):
        return [sys.executable, str(pathlib.Path(__file__).resolve()), "--config", str(self.dir), "-a", self.NUMBER, "jsonRpc"]

    def person(self, name, number=None):
        id = str(uuid.uuid4())
        self.people[id] = {"number": number, "name": name}
        self.save()
        return id

    def now(self):
        self.last = max(self.last + 1, int(time.time() * 1000))
        return self.last

    # ---- people write ----

    def deliver(self, who, _exception=None, _at=None, **kinds):
        """Puts an envelope into the queue of Signal's servers.  Returns its timestamp."""
        at = _at or self.now()
        known = self.people.get(who, {"number": self.NUMBER, "name": "the bot"})
        message = {"account": self.NUMBER, "envelope": {
            "source": known["number"] or who, "sourceNumber": known["number"], "sourceUuid": who, "sourceName": known["name"],
            "sourceDevice": 1, "timestamp": at, "serverReceivedTimestamp": at, "serverDeliveredTimestamp": at, **kinds}}
        if _exception:
            message["exception"] = _exception
        self.raw(message)
        return at

    def raw(self, message):
        self.count += 1
        path = self.dir / "queue" / f"{self.count:08}"
        path.with_suffix(".tmp").write_text(json.dumps(message))
        os.rename(path.with_suffix(".tmp"), path)

    def data(self, at, text, group=None, **more):
        d = {"timestamp": at, "message": text, "expiresInSeconds": 0, "viewOnce": False, **more}
        if group:
            d["groupInfo"] = {"groupId": group, "groupName": self.groups.get(group, {}).get("name"), "revision": 1, "type": "DELIVER"}
        return d

    def say(self, who, text, group=None, **more):
        """Returns the message's id, as an agent sees it."""
        at = self.now()
        self.deliver(who, _at=at, dataMessage=self.data(at, text, group, **more))
        return f"{at}:{who}"

    def edit(self, who, id, text, group=None):
        at = self.now()
        self.deliver(who, _at=at, editMessage={"targetSentTimestamp": int(id.split(":")[0]), "dataMessage": self.data(at, text, group)})

    def address(self, who):
        if who == self.UUID:
            return {"uuid": who, "number": self.NUMBER, "name": self.NUMBER}
        return {"uuid": who, "number": self.people[who]["number"], "name": self.people[who]["number"] or who}

    def quote(self, author, at, text):
        a = self.address(author)
        return {"id": int(at), "author": a["name"], "authorNumber": a["number"], "authorUuid": a["uuid"], "text": text, "attachments": []}

    def mention(self, who, start, length=1):
        return {**self.address(who), "start": start, "length": length}

    def react(self, who, author, at, emoji, remove=False, group=None):
        a = self.address(author)
        self.say(who, None, group, reaction={"emoji": emoji, "targetAuthor": a["name"], "targetAuthorNumber": a["number"],
                                             "targetAuthorUuid": author, "targetSentTimestamp": int(at), "isRemove": remove})

    def file(self, name, type, content):
        id = f"{uuid.uuid4().hex}.{name.rsplit('.', 1)[-1] if name else 'bin'}"
        (self.dir / "attachments" / id).write_bytes(content)
        return {"contentType": type, "filename": name, "id": id, "size": len(content), "width": None, "height": None, "caption": None,
                "uploadTimestamp": 0}

    # ---- what the account did ----

    def calls(self, method=None):
        path = self.dir / "sent"
        lines = path.read_text().splitlines() if path.exists() else []
        found = [json.loads(x) for x in lines]
        return [x for x in found if method is None or x["method"] == method]

    @property
    def sent(self):
        return self.calls("send")

    def texts(self, chat):
        return [x.get("message", "") for x in self.sent if x.get("recipient") == [chat] or x.get("groupId") == chat]

    def fault(self, method, what):
        self.count += 1
        path = self.dir / "faults" / f"{self.count:08}"
        tmp = self.dir / f"fault{self.count}.tmp"
        tmp.write_text(f"{method} {what}")
        os.rename(tmp, path)

    def pid(self):
        path = self.dir / "pid"
        return int(path.read_text()) if path.exists() else 0

    def kill(self):
        """Kills the program that has the account, once there is one that was not killed yet."""
        while True:
            pid = self.pid()
            if pid and pid != self.killed:
                self.killed = pid
                try:
                    os.kill(pid, signal.SIGKILL)
                    return
                except ProcessLookupError:  # it ended with bellhop
                    pass
            time.sleep(0.01)

    @property
    def violations(self):
        path = self.dir / "violations"
        return path.read_text().splitlines() if path.exists() else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
