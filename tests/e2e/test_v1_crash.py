"""kill -9 while programs write: what was answered is there, whole, and nothing is torn."""
import hashlib
import threading
import time

import pytest

from conftest import CONFIG
from v1 import Program, body, make_key

ROUNDS = 3


class Writer(threading.Thread):
    """Writes until the server is gone; remembers what was answered."""

    def __init__(self, server, key, number):
        super().__init__(daemon=True)
        self.me = Program(server, key)
        self.number, self.skills, self.entries = number, {}, {}
        self.asked = {}  # the last write of each skill, answered or not

    def run(self):
        try:
            for i in range(100000):
                name = f"w{self.number}-{i % 7}"
                text = body(name) + f"# {i}\n" + "x" * (i % 5000)
                self.asked[name] = text
                written = self.me.write(name, text)
                assert written.status == 200, written.text
                self.skills[name] = text
                kept = self.me.ask("POST", "/v1/data", {"content": f"apple {self.number} {i}"})
                assert kept.status == 200, kept.text
                self.entries[kept.json["id"]] = kept.json["detail"]
        except OSError:
            pass  # killed


@pytest.mark.parametrize("kind", ["sqlite", "filesystem"])
def test_no_answered_write_is_lost_and_none_is_torn(make_bellhop, kind):
    server = make_bellhop(CONFIG + f"skills: {{{{kind: {kind}}}}}\nlimits: {{{{key_requests: 0, tenant_requests: 0}}}}\n")
    key = make_key(server)
    answered = 0
    for _ in range(ROUNDS):
        writers = [Writer(server, key, n) for n in range(3)]
        for w in writers:
            w.start()
        end = time.monotonic() + 20
        while min(len(w.entries) for w in writers) < 10 and time.monotonic() < end:
            time.sleep(0.02)
        server.kill()
        for w in writers:
            w.join(20)
        server.start()
        me = Program(server, key)
        for w in writers:
            for name, text in w.skills.items():
                skill = me.get(f"/v1/skills/{name}").json
                assert skill["source"] in (text, w.asked[name])
                assert skill["content_hash"] == hashlib.sha256(skill["source"].encode()).hexdigest()
                history = me.get(f"/v1/skills/{name}/versions").json
                assert history[-1]["content_hash"] == skill["content_hash"]
                assert hashlib.sha256(text.encode()).hexdigest() in {v["content_hash"] for v in history}
            for entry, text in w.entries.items():
                assert me.get(f"/v1/data/{entry}").json["detail"] == text
            answered += len(w.skills) + len(w.entries)
    assert answered > 100
