"""Proxies in front of the real servers: one loses what SMTP replies, one cuts IMAP connections, one withholds mails."""
import socket
import threading
import time


class _Proxy:
    def __init__(self, to):
        self.to, self.open = to, True
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.pairs = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while self.open:
            try:
                client, _ = self.listener.accept()
                server = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                continue
            self.pairs.append((client, server))
            threading.Thread(target=self.serve, args=(client, server), daemon=True).start()

    def close(self):
        self.open = False
        self.listener.close()
        self.cut()

    def cut(self):
        for pair in self.pairs:
            for s in pair:
                try:
                    s.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
        self.pairs = []


class FaultySmtp(_Proxy):
    """plan: one entry per mail: None, a reply to RCPT ("451 ..."), "lose" (the reply to the mail) or "cut" (in the mail).
    While `hold` is set, the reply to a mail waits."""

    def __init__(self, to, plan=()):
        self.plan, self.mails, self.hold = list(plan), 0, False
        super().__init__(to)

    def serve(self, client, server):
        c, s = client.makefile("rb"), server.makefile("rb")

        def reply():
            out = b""
            while True:
                line = s.readline()
                out += line
                if len(line) < 4 or line[3:4] != b"-":
                    return out

        try:
            client.sendall(reply())
            while True:
                line = c.readline()
                if not line:
                    break
                if line.upper().startswith(b"RCPT") and self.plan and self.plan[0] and self.plan[0][0] in "45":
                    client.sendall(self.plan.pop(0).encode() + b"\r\n")
                    continue
                server.sendall(line)
                answer = reply()
                client.sendall(answer)
                if line.upper().startswith(b"DATA") and answer.startswith(b"354"):
                    fault = self.plan.pop(0) if self.plan else None
                    if fault == "cut":
                        c.readline()
                        break
                    while True:
                        line = c.readline()
                        server.sendall(line)
                        if line in (b".\r\n", b""):
                            break
                    answer = reply()
                    self.mails += 1
                    while self.hold:
                        time.sleep(0.01)
                    if fault == "lose":
                        break
                    client.sendall(answer)
        except OSError:
            pass
        for x in (client, server):
            try:
                x.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class CutImap(_Proxy):
    """Passes bytes on; after @every bytes from the server it cuts the connection (0: never).  @hide: a capability that the server
    does not announce."""

    def __init__(self, to, every=0, hide=None):
        self.every, self.left, self.cuts, self.hide = every, every, 0, hide
        super().__init__(to)

    def serve(self, client, server):
        threading.Thread(target=self._pump, args=(client, server), daemon=True).start()
        try:
            while True:
                data = server.recv(4096)
                if not data:
                    break
                if self.hide:
                    data = data.replace(b" " + self.hide, b"")
                if self.every:
                    self.left -= len(data)
                    if self.left <= 0:
                        self.left = self.every
                        self.cuts += 1
                        client.sendall(data[: len(data) // 2])
                        break
                client.sendall(data)
        except OSError:
            pass
        for x in (client, server):
            try:
                x.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def _said(self, client):
        """What bellhop says, as the server gets it."""
        while data := client.recv(4096):
            yield data

    def _pump(self, client, server):
        try:
            for data in self._said(client):
                server.sendall(data)
        except OSError:
            pass
        try:
            server.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


class WithholdingImap(CutImap):
    """The fetch of a UID in `uids` is answered with NO: it becomes a command that the server refuses.  With @empty the answer is OK
    and lacks the mail, as some servers answer for one that they cannot read."""

    def __init__(self, to, empty=False):
        self.uids, self.refused, self.empty = set(), 0, empty
        super().__init__(to)

    def _said(self, client):
        for line in client.makefile("rb"):
            word = line.split()
            if word[1:3] == [b"UID", b"FETCH"] and b"BODY.PEEK[]" in line and int(word[3]) in self.uids:
                self.refused += 1
                line = line.replace(b"BODY.PEEK[]", b"FLAGS") if self.empty else word[0] + b" UID COPY " + word[3] + b" no-such-folder\r\n"
            yield line
