"""Programs that deliver to agents, and what they send."""
import time
import urllib.parse
import uuid

from v1 import Program

CONFIG = """\
listen: 127.0.0.1:0
state_dir: {{state}}
wake: {{{{cooldown: 300ms, timeout: 2s, allow_private: true}}}}
dispatch: {{{{retry: 50ms, retry_max: 400ms}}}}
delivery: {{{{max_attempts: {attempts}}}}}
log: {{{{level: debug}}}}
platforms:
  - {{{{platform: web, bot: lobby}}}}
agents:
{agents}
"""


def config(*agents, attempts=60):
    """A configuration with these entries of `agents:`, each as YAML on one line without its braces."""
    lines = "".join("  - {{" + a + "}}\n" for a in agents)
    return CONFIG.format(agents=lines or "  []", attempts=attempts)


def meta(dispatch_id=None, skill="morning-status", **more):
    return {"dispatch_id": dispatch_id or str(uuid.uuid4()), "sent_at": int(time.time() * 1000),
            "origin": {"skill_name": skill, "trigger_kind": "cron"}, **more}


def augment(content, dispatch_id=None, **more):
    return {"kind": "augment", "content": content, "meta": meta(dispatch_id, **more)}


def template(prompt, dispatch_id=None, **more):
    return {"kind": "template", "prompt": prompt, "meta": meta(dispatch_id, **more)}


class Sender(Program):
    """A program with a key of tenant t."""

    def __init__(self, server, tenant="t", **more):
        super().__init__(server, tenant=tenant, **more)

    def path(self, agent, what):
        return f"/v1/agents/{urllib.parse.quote(agent, safe='')}/{what}"

    def deliver(self, agent, payload):
        return self.ask("POST", self.path(agent, "deliver"), payload)

    def wake(self, agent, opts=None, **headers):
        return self.ask("POST", self.path(agent, "wake"), opts, **headers)

    def request(self, agent, payload, timeout_ms=5000, **headers):
        return self.ask("POST", self.path(agent, "request"), {**payload, "timeout_ms": timeout_ms}, **headers)

    def status(self, agent):
        return self.get(self.path(agent, "status"))

    def replies(self, agent, after=None, limit=None):
        query = urllib.parse.urlencode({k: v for k, v in (("after", after), ("limit", limit)) if v is not None})
        return self.get(self.path(agent, "replies") + ("?" + query if query else ""))
