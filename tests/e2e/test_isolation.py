"""Six tenants that look alike, each trying everything with everybody else's ids: nothing crosses.

Names differ by case, or contain what a careless program would take for a separator.
"""
import itertools
import json

import pytest

from conftest import wait_for
from test_manage import bearer, grants

TENANTS = ["acme", "Acme", "acme:bot", "acme/bot", "acme.bot", "ACME"]
INSTANCES = ["bot", "Bot", "bot", "bot", "bot:acme", "bot"]


class Guest:
    """One tenant: a gateway, its socket, a person linked to it, a place, and what it heard."""

    def __init__(self, server, dial, i):
        self.server, self.tenant, self.instance = server, TENANTS[i], INSTANCES[i]
        self.credential = server.add(id=f"gw-{i}:{'x' * i}", tenant=self.tenant, instance=self.instance, platform=None)
        self.visitor = f"visitor-{i}-00000000"
        self.socket = dial(server, self.credential)
        self.place = {"platform": "discord", "guildId": ["g", "G", "g1", "g/1", "g:1", "g.1"][i], "channelId": "c"}
        code = self.post("/manage/link", {}).json["code"]
        assert server.write(f"/link {code}", visitor=self.visitor) == 200
        assert self.post("/manage/scope", self.place).status == 200
        assert self.post("/manage/principal", {"mode": "owner-only"}).status == 200
        server.write(f"hello from {i}", visitor=self.visitor)
        event = self.socket.hear(f"hello from {i}")["event"]
        self.chat, self.user = event["source"]["chat_id"], event["source"]["user_id"]
        self.message = event["message_id"]

    def post(self, path, body):
        return self.server.post(path, body, headers=bearer(self.credential))

    def names(self):
        return {"tenant": self.tenant, "instance": self.instance, "instanceId": self.instance,
                "gatewayId": self.credential.id, "tenantId": self.tenant}


@pytest.fixture
def guests(bellhop, dial):
    return [Guest(bellhop, dial, i) for i in range(len(TENANTS))]


def everything(server):
    kinds = ("bindings", "scopes", "principals", "policies", "dmDefaults")
    return {kind: sorted(json.dumps(g, sort_keys=True) for g in grants(server, kind)) for kind in kinds}


def test_no_route_and_no_frame_crosses_between_tenants(bellhop, guests):
    assert all(len(rows) >= 6 for kind, rows in everything(bellhop).items() if kind in ("bindings", "scopes"))
    before = everything(bellhop)
    for me, other in itertools.permutations(guests, 2):
        # routes: the other's names in the body, the other's place, the other's person
        assert me.post("/manage/scope", {**other.place, **other.names()}).status == 409
        theirs = me.post("/manage/scope/release", {**other.place, **other.names()})
        nobodys = me.post("/manage/scope/release", {**other.place, "guildId": "nobody's"})
        assert (theirs.status, theirs.text) == (nobodys.status, nobodys.text) == (404, nobodys.text)
        theirs = me.post("/manage/dm-default", {"platform": "web", "userId": other.user, **other.names()})
        nobodys = me.post("/manage/dm-default", {"platform": "web", "userId": "nobody"})
        assert (theirs.status, theirs.text) == (nobodys.status, nobodys.text) == (404, nobodys.text)
        assert me.post("/manage/principal", {"mode": "owner-only", **other.names()}).status == 200
        state = bellhop.get("/manage/instance", headers=bearer(me.credential)).json
        assert (state["tenant"], state["instanceId"]) == (me.tenant, me.instance)
        # frames: the other's chat, with every claim about it
        for metadata in ({}, {"scope_id": other.place["guildId"], "user_id": other.user},
                         {"guild_id": other.place["guildId"], "tenant": other.tenant, "instance": other.instance}):
            for op in ("send", "edit", "typing", "get_chat_info"):
                said = me.socket.act(op=op, chat_id=other.chat, content="crossed", message_id=other.message,
                                     reply_to=other.message, metadata=metadata)
                unknown = me.socket.act(op=op, chat_id="no such chat", content="crossed", message_id="m",
                                        reply_to=None, metadata=metadata)
                assert not said["success"] and said == unknown, (op, said, unknown)
        said = me.socket.act(platform="web", bot="lobby", op="send", chat_id=other.chat, content="crossed",
                             reply_to=None, metadata={})
        assert not said["success"]
        said = me.socket.act(op="follow_up", session_key=f"agent:main:web:dm:{other.chat}",
                             kind="discord.interaction_token", content="crossed")
        assert not said["success"]
        me.socket.send({"type": "interrupt", "session_key": f"agent:main:relay:dm:{other.chat}", "reason": None})
        me.socket.send({"type": "inbound_ack", "bufferId": "1"})
        me.socket.send({"type": "hello", "platform": "web", "botId": "lobby", **other.names()})
    assert everything(bellhop) == before
    for guest in guests:  # the only instance of a tenant gets its own tenant's interrupts, and nobody else's
        keys = [guest.socket.next("interrupt_inbound")["session_key"] for _ in range(len(guests) - 1)]
        assert sorted(keys) == sorted(f"agent:main:relay:dm:{g.chat}" for g in guests if g is not guest)
        assert guest.socket.quiet("interrupt_inbound", 0.05)


def test_everybody_still_reaches_only_their_own(bellhop, guests):
    for i, guest in enumerate(guests):
        bellhop.write(f"again {i}", visitor=guest.visitor)
        assert guest.socket.hear(f"again {i}")
        said = guest.socket.act(op="send", chat_id=guest.chat, content=f"answer {i}", reply_to=None, metadata={})
        assert said["success"], said
    for i, guest in enumerate(guests):
        assert guest.socket.quiet(seconds=0.05)
        assert guest.socket.seen == [f"hello from {i}", f"again {i}"]


def test_one_tenants_backlog_is_not_acked_or_read_by_another(bellhop, dial, guests):
    sleeper, nosy = guests[0], guests[1]  # "acme" and "Acme", "bot" and "Bot"
    sleeper.socket.sleep()
    for n in range(3):
        bellhop.write(f"kept {n}", visitor=sleeper.visitor)
    mailbox = lambda: bellhop.get("/manage/instance", headers=bearer(sleeper.credential)).json["mailbox"]  # noqa: E731
    wait_for(lambda: mailbox()["entries"] == 3)
    shown = json.loads(bellhop.cli("mailbox", "show", sleeper.instance, "--tenant", sleeper.tenant, "--bodies",
                                   "--json").stdout)
    rows = shown["entries"] if isinstance(shown, dict) else shown
    for row in rows:
        for id in {str(row["id"]), row.get("frame", {}).get("bufferId", "")}:
            nosy.socket.send({"type": "inbound_ack", "bufferId": id})
    bellhop.write("for the nosy one", visitor=nosy.visitor)
    nosy.socket.hear("for the nosy one")
    assert mailbox()["entries"] == 3
    back = dial(bellhop, sleeper.credential)
    for n in range(3):
        back.hear(f"kept {n}")


def test_a_deprovisioned_tenant_takes_nobody_with_it(bellhop, guests):
    gone = guests[0]
    assert gone.post("/manage/deprovision", guests[5].names()).status == 200
    assert gone.socket.wait_closed()[0] == 4401
    left = everything(bellhop)
    assert len(left["bindings"]) == 5 and not any('"tenant": "acme"}' in row or '"tenant": "acme",' in row
                                                  for row in left["bindings"])
    for i, guest in enumerate(guests[1:], 1):
        bellhop.write(f"still here {i}", visitor=guest.visitor)
        guest.socket.hear(f"still here {i}")
