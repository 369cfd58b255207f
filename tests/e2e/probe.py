"""Drives tests/sdk/probe.c: commands in, JSON lines out."""
import json
import os
import queue
import subprocess
import threading
import time


class Probe:
    def __init__(self, program, url, gateway_id="gw-test", secret="secret", *identities, env=None,
                 **options):
        self.process = subprocess.Popen(
            [str(program), url, gateway_id, secret, *identities], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})
        self.lines = queue.Queue()
        self.seen = []
        threading.Thread(target=self._read, daemon=True).start()
        for name, value in options.items():
            self.do("set", name, value)

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(json.loads(line))
        self.lines.put({"t": "eof"})

    def do(self, *words):
        self.process.stdin.write(" ".join(str(w) for w in words) + "\n")
        self.process.stdin.flush()

    def expect(self, type_, timeout=15, **fields):
        """The next line of this type (with these fields), skipping others; they stay in .seen."""
        deadline = time.monotonic() + timeout
        while True:
            line = self.lines.get(timeout=max(0.01, deadline - time.monotonic()))
            self.seen.append(line)
            if line["t"] == type_ and all(line.get(k) == v for k, v in fields.items()):
                return line
            assert line["t"] != "eof", f"the probe ended while waiting for {type_} {fields}"

    def ask(self, type_, *words, timeout=40):
        self.do(*words)
        return self.expect(type_, timeout)

    def mode(self, mode, ms=0):
        """What its on_event does from now on."""
        self.ask("mode", "mode", mode, ms)

    def open(self):
        self.do("open")
        return self.expect("state", state="ready")

    def quit(self):
        """End it and insist that it ended well (sanitizers speak through the exit status)."""
        if self.process.poll() is None:
            self.do("quit")
        return self.process.wait(30)
