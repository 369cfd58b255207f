"""People and servers of IRC for tests: a small client, ngircd as Debian ships it, ergo if BELLHOP_ERGO names its program.

ergo is not in Debian.  tests/sim/irc.py stands in for it in the suite; with BELLHOP_ERGO=/path/to/ergo (its `default.yaml` beside
it) the same tests run against ergo itself.
"""
import base64
import os
import pathlib
import queue
import shutil
import socket
import subprocess
import sys
import tempfile
import threading

from servers import _until, free_port

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "sim"))
from irc import escape, unescape  # noqa: E402

CAPS = ("message-tags server-time account-tag batch echo-message labeled-response draft/multiline draft/chathistory "
        "draft/message-redaction").split()


class Line:
    """One line, taken apart."""

    def __init__(self, text):
        self.raw, self.tags, self.source = text, {}, ""
        if text.startswith("@"):
            tags, text = text[1:].split(" ", 1)
            for tag in tags.split(";"):
                key, _, value = tag.partition("=")
                self.tags[key] = unescape(value)
        text = text.lstrip(" ")
        if text.startswith(":"):
            self.source, text = text[1:].split(" ", 1)
        head, colon, tail = text.partition(" :")
        words = head.split()
        self.command, self.params = words[0].upper(), words[1:] + ([tail] if colon else [])
        self.nick = self.source.split("!")[0]

    def __repr__(self):
        return f"<{self.raw}>"


class Person:
    """A client in a thread.  Keeps every line; said() takes messages in order."""

    def __init__(self, port, nick, account=None, password="planted-irc-password", caps=True, join=()):
        self.nick, self.lines, self.said_queue = nick, [], queue.Queue()
        self.welcome = threading.Event()
        self.arrived = threading.Condition()
        self.sock = socket.create_connection(("127.0.0.1", port), 30)
        self.sock.settimeout(None)  # somebody to whom nobody writes for long still listens
        self.batches, self.asked, self.offered = {}, 0, []
        self.send("CAP LS 302")
        self.send(f"NICK {nick}")
        self.send(f"USER {nick} 0 * :{nick}")
        self.wants, self.account, self.password = caps, account, password
        threading.Thread(target=self._read, daemon=True).start()
        assert self.welcome.wait(30), self.lines
        for channel in join:
            self.join(channel)

    def send(self, text):
        self.sock.sendall(text.encode() + b"\r\n")

    def _read(self):
        rest = b""
        try:
            while data := self.sock.recv(65536):
                *lines, rest = (rest + data).split(b"\r\n")
                for raw in lines:
                    if raw:
                        self._take(Line(raw.decode("utf-8", "replace")))
        except OSError:
            pass

    def _take(self, l):
        if l.command == "PING":
            self.send("PONG :" + l.params[-1])
        elif l.command == "CAP" and l.params[1] == "LS":
            self.offered += [c.split("=")[0] for c in l.params[-1].split()]
            if l.params[2] == "*":
                return
            want = [c for c in CAPS if c in self.offered] if self.wants else []
            want += ["sasl"] if self.account else []
            self.send("CAP REQ :" + " ".join(want) if want else "CAP END")
        elif l.command == "CAP" and l.params[1] == "ACK":
            self.send("AUTHENTICATE PLAIN" if self.account else "CAP END")
        elif l.command == "CAP" and l.params[1] == "NAK":
            self.send("CAP END")
        elif l.command == "AUTHENTICATE":
            pair = f"\0{self.account}\0{self.password}".encode()
            self.send("AUTHENTICATE " + base64.b64encode(pair).decode())
        elif l.command == "903":
            self.send("CAP END")
        elif l.command in ("376", "422"):
            self.welcome.set()
        elif l.command == "BATCH" and l.params[0][0] == "+":
            self.batches[l.params[0][1:]] = (l, [])
        elif l.command == "BATCH":
            head, inside = self.batches.pop(l.params[0][1:])
            if head.params[1] == "draft/multiline":
                text = ""
                for n, part in enumerate(inside):
                    text += ("\n" if n and "draft/multiline-concat" not in part.tags else "") + part.params[1]
                whole = Line(f":{head.source} PRIVMSG {head.params[2]} :x")
                whole.tags, whole.params[1] = head.tags, text
                self._message(whole)
        elif l.tags.get("batch") in self.batches:
            self.batches[l.tags["batch"]][1].append(l)
        elif l.command in ("PRIVMSG", "TAGMSG", "REDACT"):
            self._message(l)
        with self.arrived:
            self.lines.append(l)
            self.arrived.notify_all()

    def _message(self, l):
        if l.nick != self.nick:
            self.said_queue.put(l)

    # ---- what tests say ----

    def line(self, what, timeout=30, start=0):
        """The first line for which what() is true."""
        with self.arrived:
            at = start
            found = None

            def look():
                nonlocal at, found
                while at < len(self.lines) and found is None:
                    if what(self.lines[at]):
                        found = self.lines[at]
                    at += 1
                return found
            assert self.arrived.wait_for(look, timeout), self.lines[-10:]
            return found

    def sync(self):
        """The server has done all that was sent so far."""
        self.asked += 1
        token = f"sync{self.asked}"
        self.send("PING :" + token)
        self.line(lambda l: l.command == "PONG" and l.params[-1] == token)

    def join(self, channel):
        start = len(self.lines)
        self.send("JOIN " + channel)
        self.line(lambda l: l.command == "366" and l.params[1].lower() == channel.lower(), start=start)

    def say(self, target, text, **tags):
        head = ";".join(f"+{k.replace('__', '/')}={escape(v)}" for k, v in tags.items())
        self.send((f"@{head} " if head else "") + f"PRIVMSG {target} :{text}")

    def say_many(self, target, lines):
        """One multiline message."""
        self.asked += 1
        self.send(f"BATCH +m{self.asked} draft/multiline {target}")
        for text in lines:
            self.send(f"@batch=m{self.asked} PRIVMSG {target} :{text}")
        self.send(f"BATCH -m{self.asked}")

    def tag(self, target, **tags):
        head = ";".join(f"+{k.replace('__', '/')}={escape(v)}" for k, v in tags.items())
        self.send(f"@{head} TAGMSG {target}")

    def hear(self, text=None, timeout=30):
        """The next message, which must be @text."""
        l = self.said_queue.get(timeout=timeout)
        while l.command != "PRIVMSG":
            l = self.said_queue.get(timeout=timeout)
        if text is not None:
            assert l.params[1] == text, l
        return l

    def hear_tag(self, tag, timeout=30):
        l = self.said_queue.get(timeout=timeout)
        while tag not in l.tags:
            l = self.said_queue.get(timeout=timeout)
        return l

    def register(self, password="planted-irc-password"):
        """An account of this nick's name."""
        start = len(self.lines)
        self.send(f"REGISTER * * {password}")
        self.line(lambda l: l.command in ("REGISTER", "FAIL"), start=start)

    def close(self):
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.sock.close()


class Process:
    """A server that runs as a program."""

    def begin(self, words, **more):
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more)

        def answers():
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return True
            except OSError:
                return False
        _until(answers)
        return self

    def stop(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)

    close = stop


class Ngircd(Process):
    """Plain IRC: no tags, no accounts, no history."""

    def __init__(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="bh-ngircd-"))
        self.dir.chmod(0o755)
        self.port = free_port()
        conf = self.dir / "ngircd.conf"
        conf.write_text(f"""\
[Global]
Name = irc.our.test
Info = a test
Listen = 127.0.0.1
Ports = {self.port}
[Limits]
MaxConnectionsIP = 0
MaxNickLength = 20
PingTimeout = 30
[Options]
DNS = no
Ident = no
PAM = no
SyslogFacility = local1
""")
        self.words = ["/usr/sbin/ngircd", "-n", "-f", str(conf)]
        self.begin(self.words)

    def again(self):
        self.process.kill()
        self.process.wait()
        self.begin(self.words)


class Ergo(Process):
    """IRCv3, with accounts and history."""

    def __init__(self, accounts=(), fakelag=False):
        import yaml
        program = pathlib.Path(os.environ["BELLHOP_ERGO"])
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="bh-ergo-"))
        self.port = free_port()
        conf = yaml.safe_load((program.parent / "default.yaml").read_text())
        conf["server"]["listeners"] = {f"127.0.0.1:{self.port}": {}}
        conf["server"]["motd"] = ""
        conf["server"]["ip-limits"] = {"count": False, "throttle": False}
        conf["accounts"]["registration"]["throttling"]["enabled"] = False
        conf["accounts"]["login-throttling"]["enabled"] = False
        conf["accounts"]["multiclient"]["always-on"] = "opt-out"
        conf["datastore"]["path"] = str(self.dir / "ircd.db")
        conf["languages"] = {"enabled": False}
        conf["accounts"]["advertise-scram"] = True
        conf["fakelag"]["enabled"] = fakelag
        conf["history"]["client-length"] = conf["history"]["channel-length"] = 20000
        conf["logging"] = [{"method": "stderr", "type": "*", "level": "error"}]
        conf.pop("lock-file", None)
        (self.dir / "ircd.yaml").write_text(yaml.safe_dump(conf))
        words = [str(program), "--conf", str(self.dir / "ircd.yaml"), "--quiet"]
        subprocess.run([words[0], "initdb", *words[1:]], check=True, capture_output=True)
        self.begin([words[0], "run", *words[1:]], cwd=self.dir)
        for name in accounts:
            p = Person(self.port, name, caps=False)
            p.register()
            p.close()
