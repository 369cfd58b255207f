"""Thousands of messages with faults, for every platform: each is answered once and in order, whatever fails.

A test says what its people write and what goes wrong; the rig is the gateway that answers.  The gateway is a careful one: it keeps
every answer until it knows its end.  When bellhop was killed, the ends of recorded answers come on the next socket.  Of the others
the rig asks the platform, and says again what is not there.
"""
import json
import queue
import threading
import time

from conftest import wait_for


class Many:
    """@rig has gateway, dial() and server; @up aims the simulator at the server that was started again.  @shown(chat): what the bot
    has written there.  @window: people wait for answers when so many are missing."""

    def __init__(self, rig, chats, shown, waiting, up=lambda: None, window=15, **metadata):
        self.rig, self.shown, self.waiting, self.up, self.window, self.metadata = rig, shown, waiting, up, window, metadata
        self.said, self.heard = {c: [] for c in chats}, {c: [] for c in chats}
        self.open, self.unsure, self.refused = {}, set(), []  # requests without a result; told "timed out" or "queued"; other errors
        self.forgotten = set()  # refused: a chat whose first message came in the last moment before a kill is not known after it
        self.again, self.n_said, self.n_heard, self.kills = [], 0, 0, 0
        self.lock, self.over, self.gateway = threading.Lock(), threading.Event(), rig.gateway
        self.thread = threading.Thread(target=self._answer, daemon=True)
        self.thread.start()

    def text(self, chat):
        """What the next message of @chat says."""
        self.said[chat].append(f"m{len(self.said[chat]) + 1}")
        self.n_said += 1
        return self.said[chat][-1]

    # ---- the gateway ----

    def _say(self, chat, text):
        self.open[f"{chat} {text}"] = (chat, text)
        try:
            self.gateway.send({"type": "outbound", "requestId": f"{chat} {text}", "action": {
                "op": "send", "chat_id": chat, "content": f"re {text}", "metadata": self.metadata}})
        except Exception:  # noqa: BLE001 - bellhop is being killed; crash() finds out what became of it
            pass

    def _take(self, frame):
        result, key = frame["result"], self.open.pop(frame["requestId"], None)
        if key is not None and result.get("queued"):
            self.unsure.add(key)  # bellhop has it, and tells nobody how it ends
        if key is None or result["success"]:
            return
        if result["error"].startswith("timed out"):
            self.unsure.add(key)
        elif self.kills and key[1] == "m1" and "not routed" in result["error"]:
            self.forgotten.add(key)
        else:
            self.refused.append((key, result["error"]))

    def _answer(self):
        while not self.over.is_set():
            with self.lock:
                idle = True
                for kind in ("outbound_result", "inbound"):
                    try:
                        frame = self.gateway._queue(kind).get_nowait()
                    except queue.Empty:
                        continue
                    idle = False
                    if kind == "outbound_result":
                        self._take(frame)
                        continue
                    chat, text = frame["event"]["source"]["chat_id"], frame["event"]["text"]
                    if text not in self.heard[chat][-50:]:  # the last ones may come again after a crash
                        self.heard[chat].append(text)
                        self.n_heard += 1
                        self._say(chat, text)
            if idle:
                time.sleep(0.005)

    def breathe(self):
        """People wait for answers, too."""
        wait_for(lambda: self.n_said - self.n_heard + len(self.open) < self.window, 120)

    def crash(self):
        """bellhop is killed with answers under way."""
        wait_for(lambda: self.open or self.n_heard == self.n_said, 120)
        self.rig.server.kill()
        with self.lock:  # nothing new is said until the old is known
            self.kills += 1
            left = self.gateway
            while not left._queue("outbound_result").empty():
                self._take(left._queue("outbound_result").get())
            unheard = left._queue("inbound")  # acknowledged: nobody sends them again
            self.rig.server.start()
            self.up()
            self.gateway = self.rig.dial()
            new = self.gateway._queue("inbound")
            with new.mutex:
                new.queue.extendleft(reversed(unheard.queue))
            # one that is on its way to the platform does not wait, but is in the outbox
            outbox = lambda: json.loads(self.rig.server.cli("outbox", "list", "--json").stdout)  # noqa: E731
            wait_for(lambda: all(o["state"] == "unknown" for o in outbox()), 120)
            for chat, text in list(self.open.values()):
                if f"re {text}" in self.shown(chat):
                    self.open.pop(f"{chat} {text}")
            results = self.gateway._queue("outbound_result")
            while not results.empty():
                self._take(results.get())
            for chat, text in list(self.open.values()):
                self.again.append((chat, text))
                self._say(chat, text)

    def check(self, once=False):
        """Each was heard and answered once and in order.  @once: the platform takes keys, so no end is unknown."""
        wait_for(lambda: self.n_heard >= self.n_said and not self.open, 120 + self.n_said / 20)
        wait_for(lambda: self.waiting() == 0, 120)
        self.over.set()
        self.thread.join(30)
        assert self.heard == self.said, {c: (self.heard[c], t) for c, t in self.said.items() if self.heard[c] != t}
        assert not self.refused, self.refused
        lost = 0
        for chat, texts in self.said.items():
            answers = [t.removeprefix("re ") for t in self.shown(chat)]
            there = set(answers)
            assert answers == [t for t in texts if t in there], f"twice or out of order in {chat}: {answers}"
            missing = {(chat, t) for t in texts if t not in there}
            assert missing <= self.unsure | self.forgotten, f"nobody was told that these are missing: {missing - self.unsure}"
            lost += len(missing - self.forgotten)
        assert lost <= (0 if once else self.window * self.kills), (lost, self.kills)
        assert len(self.forgotten) <= self.window * self.kills, self.forgotten
        print(f"said {self.n_said}, killed {self.kills} times, told to be unsure of {len(self.unsure)}, missing {lost}, "
              f"refused in new chats {len(self.forgotten)}, said again {len(self.again)}")
