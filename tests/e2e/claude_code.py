"""A stand-in for Claude Code with one channel, as its reference page describes the client.

It starts the channel as a child and speaks MCP over its standard input and output. What comes before it has loaded the
channel is dropped without a word. What comes while the model is busy waits and is handed over together, on the next
turn. Nothing is acknowledged: the model calls tools, or it does not. A permission dialog is relayed and takes the first
verdict that carries its id.
"""
import json
import os
import queue
import subprocess
import threading

from conftest import PROGRAM, wait_for

NAMES = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


class Failed(Exception):
    """The channel ended, or refused a request."""


class ClaudeCode:
    """One session. model(events) runs on every turn, in a thread of its own; None: events pile up in .events."""

    def __init__(self, server, key, *options, instance="desk", model=None, loads=True, env=None):
        self.process = subprocess.Popen(
            [PROGRAM, "mcp", "--channel", "--instance", instance, "--settle", "0s", "-c", server.config, *options],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **(env or {}), "BELLHOP_KEY": key})
        self.model, self.loaded = model, False
        self.events, self.dropped, self.verdicts = [], [], {}
        self.turns = queue.Queue()
        self.answers, self.last, self.lock = {}, 0, threading.Lock()
        self.came = threading.Condition()
        self.errors, self.ended = [], False
        self.threads = [threading.Thread(target=t, daemon=True) for t in (self._read, self._complain, self._think)]
        for thread in self.threads:
            thread.start()
        self.hello = self.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {},
                                             "clientInfo": {"name": "claude-code", "version": "2.1.211"}})
        self.say("notifications/initialized")
        self.loaded = loads
        self.tools = {t["name"]: t for t in self.ask("tools/list")["tools"]}

    # ---- the wire ----

    def write(self, text):
        try:
            with self.lock:
                self.process.stdin.write(text + "\n")
                self.process.stdin.flush()
        except (BrokenPipeError, ValueError, OSError) as e:
            raise Failed("the channel has gone") from e

    def say(self, method, params=None):
        self.write(json.dumps({"jsonrpc": "2.0", "method": method, "params": params or {}}))

    def ask(self, method, params=None, timeout=60):
        with self.came:
            self.last += 1
            number = self.last
        self.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}))
        with self.came:
            if not self.came.wait_for(lambda: number in self.answers or self.ended, timeout):
                raise AssertionError(f"no answer to {method}")
            if number not in self.answers:
                raise Failed("the channel has gone")
            answer = self.answers.pop(number)
        if "error" in answer:
            raise Failed(answer["error"]["message"])
        return answer["result"]

    def call(self, tool, **arguments):
        """The tool's answer as the model reads it: (text, is it an error)."""
        result = self.ask("tools/call", {"name": tool, "arguments": arguments})
        (part,) = result["content"]
        assert part["type"] == "text"
        return part["text"], result["isError"]

    def do(self, tool, **arguments):
        text, failed = self.call(tool, **arguments)
        assert not failed, text
        return json.loads(text)

    def _read(self):
        for line in self.process.stdout:
            message = json.loads(line)
            assert message["jsonrpc"] == "2.0", message
            with self.came:
                if "id" in message:
                    self.answers[message["id"]] = message
                else:
                    self._notice(message["method"], message["params"])
                self.came.notify_all()
        with self.came:
            self.ended = True
            self.came.notify_all()
        self.turns.put(None)

    def _notice(self, method, params):
        if method == "notifications/claude/channel/permission":
            assert params["behavior"] in ("allow", "deny")
            self.verdicts.setdefault(params["request_id"], params["behavior"])
            return
        assert method == "notifications/claude/channel", method
        assert isinstance(params["content"], str)
        for key, value in params["meta"].items():  # others would be dropped silently
            assert set(key) <= NAMES and isinstance(value, str), params
        event = {"content": params["content"], **params["meta"]}
        if not self.loaded:
            self.dropped.append(event)
            return
        self.events.append(event)
        self.turns.put(event)

    def _complain(self):
        for line in self.process.stderr:
            self.errors.append(line)

    def _think(self):
        while True:
            group = [self.turns.get()]
            while not self.turns.empty():  # what came while it was busy
                group.append(self.turns.get())
            events = [e for e in group if e is not None]
            if self.model is not None and events:
                try:
                    self.model(self, events)
                except Failed:
                    return
            if None in group:
                return

    # ---- a session ----

    def deliveries(self):
        return [e for e in self.events if "delivery" in e]

    def texts(self):
        return [e["content"] for e in self.deliveries()]

    def wait(self, n, timeout=30):
        """The first n deliveries."""
        wait_for(lambda: len(self.deliveries()) >= n, timeout)
        return self.deliveries()[:n]

    def ask_permission(self, request_id, tool="Bash", description="Run shell command", preview='{"command": "ls"}'):
        self.say("notifications/claude/channel/permission_request",
                 {"request_id": request_id, "tool_name": tool, "description": description, "input_preview": preview})

    def end(self, timeout=20):
        """The client exits: the channel's standard input ends. The exit status of the channel."""
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        return self.gone(timeout)

    def kill(self):
        self.process.kill()
        self.gone()

    def gone(self, timeout=20):
        code = self.process.wait(timeout)
        for thread in self.threads:
            if thread is not threading.current_thread():
                thread.join(10)
        complaints = "".join(self.errors)
        assert "Sanitizer" not in complaints and "runtime error" not in complaints, complaints
        return code
