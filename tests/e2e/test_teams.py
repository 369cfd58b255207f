"""Microsoft Teams: the real program against a strict simulator of the login, the OpenID metadata and the connector."""
import base64
import contextlib
import hmac
import json
import os
import pathlib
import random
import sqlite3
import sys
import threading
import time

import pytest
from cryptography.hazmat.primitives import hashes, serialization  # noqa: F401 - for test_clients.py

import test_media
from conftest import rows_naming, wait_for
from many_rig import Many

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "sim"))
from teams import CARD, INFO, Key, TeamsSim, b64, certificate  # noqa: E402

BOT, TENANT, PASSWORD = TeamsSim.APP, TeamsSim.TENANT, "planted~password"
GROUP, CHANNEL, TEAM = TeamsSim.GROUP, TeamsSim.CHANNEL, TeamsSim.TEAM

CONFIG = """\
listen: 127.0.0.1:0
public_url: https://relay.example.org
state_dir: {{state}}
log: {{{{level: debug}}}}
{head}
platforms:
  - {{{{platform: teams, bot: {bot}, {login}, api_base: "{api}"{more}}}}}
"""


@pytest.fixture
def sim():
    s = TeamsSim(PASSWORD)
    yield s
    s.close()
    assert s.violations == []
    assert s.limited == 0


def config(sim, more="", head="", login=f'app_password: "{PASSWORD}", entra_tenant: {TENANT}'):
    return CONFIG.format(bot=BOT, api=sim.url, more=more, head=head, login=login)


class Rig:
    def __init__(self, sim, make_bellhop, dial, **more):
        self.sim = sim
        self.server = make_bellhop(config(sim, **more))
        self.hook()
        self.credential = self.server.add(platform="teams", bot=BOT)
        self.dial = lambda **more: dial(self.server, self.credential, hello=("teams", BOT), **more)
        self.gateway = self.dial()
        self.ann = sim.people["Ann"]["chat"]

    def hook(self):
        self.sim.request_url = f"{self.server.url}/webhooks/teams/{BOT}"

    def wrote(self, **more):
        """Somebody has written, and the agent has heard it.  The message's id."""
        id = self.sim.say("x", **more)
        self.gateway.hear("x")
        return id


@pytest.fixture
def make_rig(sim, make_bellhop, dial):
    made = []

    def make(**more):
        made.append(Rig(sim, make_bellhop, dial, **more))
        return made[-1]

    yield make
    for r in made:
        log = r.server.log()
        assert "planted" not in log and not any(t in log for t in sim.tokens)


@pytest.fixture
def rig(make_rig):
    return make_rig()


def status(server):
    return next(p for p in json.loads(server.cli("status", "--json").stdout)["platforms"] if p["platform"] == "teams")


def on_disk(server, kind, text):
    """How many records of @kind hold @text."""
    with contextlib.closing(sqlite3.connect(f"file:{server.state}/bellhop.db?mode=ro", uri=True)) as db:
        return db.execute("select count(*) from kv where ns = ? and instr(v, cast(? as blob)) > 0", (kind, text)).fetchone()[0]


def send(gateway, chat, content, **metadata):
    return gateway.act(op="send", chat_id=chat, content=content, reply_to=metadata.pop("reply_to", None), metadata=metadata)


def card_of(message):
    return next(x["content"] for x in message["attachments"] if x["contentType"] == CARD)


def texts(card):
    return [b["text"] for b in card["body"] if b["type"] == "TextBlock"]


def resign(token, alg, key):
    """The same claims, unsigned or with an HMAC whose secret is the public key."""
    head = b64(json.dumps({"alg": alg, "typ": "JWT", "kid": key.kid}).encode())
    text = f"{head}.{token.split('.')[1]}"
    public = key.private.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return f"{text}." + ("" if alg == "none" else b64(hmac.new(public, text.encode(), "sha256").digest()))


# ---- in ----


def test_a_person_writes_and_sees_the_answer(rig):
    s, g = rig.sim, rig.gateway
    said = s.say("hello w\u00f6rld <b>")
    event = g.hear("hello w\u00f6rld <b>")["event"]
    source, ann = event["source"], s.people["Ann"]
    assert (source["platform"], source["chat_id"], source["chat_type"], source["scope_id"]) == ("teams", rig.ann, "dm", TENANT)
    assert (source["user_id"], source["user_name"], event["message_id"]) == (ann["aadObjectId"], "Ann", said)
    assert source.get("thread_id") is None
    result = send(g, rig.ann, "**hi** Ann", reply_to=said)
    assert result["success"], result
    answer, = s.sent(rig.ann)
    assert result["message_id"] == answer["id"] and answer["reply"] == said
    assert (answer["text"], answer["textFormat"]) == ("**hi** Ann", "markdown")
    assert answer["recipient"]["id"] == ann["id"] and answer["conversation"]["tenantId"] == TENANT
    d = g.descriptor
    assert (d["platform"], d["max_message_length"], d["len_unit"], d["supports_edit"]) == ("teams", 12000, "utf16", True)
    assert {"send", "edit", "typing", "get_chat_info", "send_media", "prompt"} <= set(d["supported_ops"])
    assert "react" not in d["supported_ops"] and "thread_create" not in d["supported_ops"]
    assert g.act(op="get_chat_info", chat_id=rig.ann)["chat_info"] == {"name": "Ann", "type": "dm"}
    assert not g.act(op="react", chat_id=rig.ann, message_id=said, emoji="\U0001f44d")["success"]
    assert status(rig.server)["state"] == "live"


def test_channels_threads_mentions_and_groups(rig):
    s, g = rig.sim, rig.gateway
    ben = s.mention("Ben", s.people["Ben"]["id"])
    a = s.message("please ask <at>Ben</at>\n", chat=CHANNEL, mention=True)
    a["entities"].append(ben)
    assert s.tell(a)[0] == 200
    source = g.hear("please ask @Ben")["event"]["source"]
    assert (source["chat_id"], source["chat_type"], source["thread_id"], source["chat_name"]) == (CHANNEL, "channel", a["id"], "lobby")
    assert source["guild_id"] == TENANT and source["parent_chat_id"] == TEAM
    s.say("more", chat=CHANNEL, thread=a["id"], mention=True)
    assert g.hear("more")["event"]["source"]["thread_id"] == a["id"]
    assert send(g, CHANNEL, "in the thread", thread_id=a["id"])["success"]
    assert send(g, CHANNEL, "a new post")["success"]
    assert [(m["text"], m["thread"]) for m in s.sent(CHANNEL)] == [("in the thread", a["id"]), ("a new post", None)]
    assert g.act(op="get_chat_info", chat_id=CHANNEL)["chat_info"] == {"name": "lobby", "type": "channel"}
    root = s.say("in General", chat=TEAM, mention=True)
    source = g.hear("in General")["event"]["source"]
    assert (source["thread_id"], source["chat_name"], source.get("parent_chat_id")) == (root, "General", None)
    s.say("all of us", chat=GROUP, mention=True)
    source = g.hear("all of us")["event"]["source"]
    assert (source["chat_id"], source["chat_type"], source["chat_name"]) == (GROUP, "group", "three of us")
    assert g.act(op="get_chat_info", chat_id=GROUP)["chat_info"] == {"name": "three of us", "type": "group"}


def test_only_what_is_addressed_to_the_bot_where_that_is_the_policy(rig):
    s, g = rig.sim, rig.gateway
    policy = {"platform": "teams", "requireAddress": True}
    assert rig.server.post("/relay/policy", policy, headers={"Authorization": f"Bearer {rig.credential.token()}"}).status == 200
    rig.wrote(chat=GROUP, mention=True)
    other = s.say("not for you", chat=CHANNEL)
    asked = s.say("a question", chat=CHANNEL, mention=True)
    g.hear("a question")
    s.say("more of it", chat=CHANNEL, thread=asked)  # the bot takes part in this thread
    g.hear("more of it")
    fake = s.message("<at>Bellhop</at> I wrote that by hand", chat=GROUP)
    assert s.tell(fake)[0] == 200
    s.say("still not", chat=CHANNEL, thread=other)
    assert send(g, CHANNEL, "an opinion", thread_id=other)["success"]
    s.say("thanks", chat=CHANNEL, thread=other)
    g.hear("thanks")
    own = send(g, GROUP, "mine")["message_id"]
    html = (f'<blockquote itemscope itemtype="http://schema.skype.com/Reply" itemid="{own}">'
            f'<strong itemprop="mri" itemid="{s.self_id}">Bellhop</strong></blockquote><p>why</p>')
    s.say("why", chat=GROUP, attachments=[{"contentType": "text/html", "content": html}])
    assert g.hear("why")["event"]["reply_to_message_id"] == own
    assert g.quiet()


def test_edits_and_deletions_change_what_waits(rig):
    s = rig.sim
    rig.gateway.close()
    first = s.message("befoer")
    gone = s.message("never mind")
    assert s.tell(first)[0] == s.tell(gone)[0] == 200
    edit = {**first, "type": "messageUpdate", "text": "before", "channelData": {**first["channelData"], "eventType": "editMessage"}}
    drop = {**gone, "type": "messageDelete", "channelData": {**gone["channelData"], "eventType": "softDeleteMessage"}}
    del drop["text"]
    assert s.tell(edit)[0] == s.tell(drop)[0] == 200
    g = rig.dial()
    g.hear("before")
    assert g.quiet()


def test_reactions_where_they_are_wanted(make_rig):
    rig = make_rig(more=", reactions: true")
    s, g = rig.sim, rig.gateway
    rig.wrote()
    own = send(g, rig.ann, "well?")["message_id"]
    a = s.activity("messageReaction", replyToId=own, reactionsAdded=[{"type": "like"}])
    assert s.tell(a)[0] == s.tell(a)[0] == 200
    event = g.hear("reaction:added:like")["event"]
    assert event["reply_to_message_id"] == own
    s.tell(s.activity("messageReaction", replyToId=own, reactionsRemoved=[{"type": "like"}]))
    g.hear("reaction:removed:like")
    assert g.quiet()


def test_what_is_no_message_is_taken_and_ignored(rig):
    s, g = rig.sim, rig.gateway
    for a in (s.activity("typing"), s.activity("conversationUpdate", membersAdded=[{"id": "29:somebody"}]), s.activity("event", name="x"),
              s.activity("messageReaction", replyToId="1", reactionsAdded=[{"type": "like"}]), s.activity("endOfConversation"),
              {**s.message("elsewhere"), "channelId": "webchat"}, s.message(" "), {**s.message("x"), "from": {"id": s.self_id, "name": "me"}}):
        assert s.tell(a)[0] == 200, a
    assert s.tell(s.activity("invoke", name="task/fetch", value={}))[0] == 501
    for a in ({**s.message("x"), "conversation": {"id": "no/id"}}, {**s.message("x"), "from": {}}, {**s.message("x"), "id": "x" * 200}):
        assert s.tell(a)[0] == 400, a
    assert g.quiet()
    assert status(rig.server)["ignored"] == 8 and status(rig.server)["malformed"] == 3


def test_another_organisation_is_not_served(rig):
    s, g = rig.sim, rig.gateway
    assert s.tell(s.message("let me in", tenant=s.OTHER_TENANT))[0] == 200
    assert g.quiet()
    assert status(rig.server)["otherOrganisations"] == 1
    assert "another organisation than `entra_tenant`" in rig.server.cli("why", "--chat", rig.ann).stdout


def test_a_repeated_webhook_is_one_message(rig):
    s, g = rig.sim, rig.gateway
    a, token = s.message("once"), s.token()
    assert [s.tell(a, token)[0] for _ in range(3)] == [200] * 3
    g.hear("once")
    assert g.quiet()


# ---- keys ----


def test_a_key_that_is_new_is_fetched_and_an_old_one_forgotten(rig):
    s, g = rig.sim, rig.gateway
    rig.wrote()
    old, fetched = s.token(), s.key_fetches
    s.connector_keys = [Key("connector-two")]
    s.say("by the new key")
    g.hear("by the new key")
    assert s.key_fetches == fetched + 1
    assert s.tell(s.message("by the old key"), old)[0] == 401
    for i in range(20):  # strangers' keys cost few fetches
        assert s.tell(s.message("x"), s.token(key=s.stranger, header={"kid": f"made-up-{i}"}), wait=False)[0] in (401, 429)
    assert s.key_fetches <= fetched + 3
    assert g.quiet()


def test_webhooks_wait_for_the_first_keys(sim, make_bellhop, dial):
    sim.keys_up.clear()
    r = Rig(sim, make_bellhop, dial)
    threads = [threading.Thread(target=sim.say, args=(f"early {i}",)) for i in range(3)]
    forged = []
    threads.append(threading.Thread(target=lambda: forged.append(sim.tell(sim.message("x"), sim.token(key=sim.stranger)))))
    for t in threads:
        t.start()
    wait_for(lambda: status(r.server)["webhooksHeld"] == 4)
    sim.keys_up.set()
    assert {r.gateway.next("inbound")["event"]["text"] for _ in range(3)} == {"early 0", "early 1", "early 2"}
    for t in threads:
        t.join()
    assert forged[0][0] == 401


def test_the_tenants_own_tokens(rig):
    s, g = rig.sim, rig.gateway
    assert s.tell(s.message("v1"), s.tenant_token())[0] == 200
    g.hear("v1")
    v2 = {"iss": f"https://login.microsoftonline.com/{TENANT}/v2.0", "aud": BOT, "azp": BOT, "appid": BOT}
    assert s.tell(s.message("v2"), s.tenant_token(**v2))[0] == 200
    g.hear("v2")
    s.tenant_keys = [Key("tenant-two")]
    assert s.tell(s.message("rotated"), s.tenant_token())[0] == 200
    g.hear("rotated")


# ---- login ----


def test_a_certificate_instead_of_a_password(sim, make_bellhop, dial, tmp_path):
    sim.certificate, pem = certificate(sim.tenant_keys[0])
    path = tmp_path / "teams.pem"
    path.write_bytes(pem)
    r = Rig(sim, make_bellhop, dial, login=f'certificate: "{path}", entra_tenant: {TENANT}')
    r.wrote()
    assert send(r.gateway, r.ann, "hi")["success"]
    assert sim.asserted == "PS256"
    done = r.server.cli("doctor")
    assert f"ok    platform   teams {BOT}: its credentials are valid" in done.stdout, done.stdout
    sim.certificate = certificate(Key())[0]
    done = r.server.cli("doctor", check=False)
    assert "Microsoft refuses the app (invalid_client AADSTS700027): check `app_password` or `certificate`" in done.stdout, done.stdout


def test_a_token_that_ends_is_fetched_again(make_rig, sim):
    sim.life = 2
    rig = make_rig()
    rig.wrote()
    assert send(rig.gateway, rig.ann, "one")["success"]
    before = sim.logins
    wait_for(lambda: all(t < time.time() for t in sim.tokens.values()))
    assert send(rig.gateway, rig.ann, "two")["success"]
    assert sim.logins > before
    sim.life = 3600
    sim.tokens.clear()  # Teams does not take it any more
    wait_for(lambda: send(rig.gateway, rig.ann, "three")["success"])
    assert [m["text"] for m in sim.sent(rig.ann)] == ["one", "two", "three"]


def test_wrong_credentials_are_told(sim, make_bellhop, dial):
    r = Rig(sim, make_bellhop, dial, login=f'app_password: "planted-wrong", entra_tenant: {TENANT}')
    r.wrote()
    result = send(r.gateway, r.ann, "hi")
    assert not result["success"] and "Microsoft refuses the app (invalid_client AADSTS7000215)" in result["error"]
    assert "app_password" in status(r.server)["problem"]
    done = r.server.cli("doctor", check=False)
    assert "invalid_client AADSTS7000215" in done.stdout, done.stdout


# ---- out ----


def test_every_answer_of_teams_is_understood(rig):
    s, g = rig.sim, rig.gateway
    rig.wrote()
    others = [s.person(f"P{code}") for code in (412, 429, 502, 504)]
    for who, code in zip(others, (412, 429, 502, 504)):
        rig.wrote(who=who["name"])
        s.trouble(status=code, Retry_After="0")
        result = send(g, who["chat"], f"after {code}")
        assert result["success"], (code, result)
        assert [m["text"] for m in s.sent(who["chat"])] == [f"after {code}"]
    s.trouble(status=403, code="BotNotInConversationRoster")
    assert "not in this chat any more" in send(g, rig.ann, "x")["error"]
    s.trouble(status=404, code="ConversationNotFound")
    assert "does not have this chat" in send(g, rig.ann, "x")["error"]
    s.trouble(status=401, code="BotNotRegistered")
    assert "turn on its Teams channel in Azure" in send(g, rig.ann, "x")["error"]
    s.trouble(status=403, code="NeverHeardOf")
    assert "Teams refused this (HTTP 403, NeverHeardOf)" in send(g, rig.ann, "x")["error"]
    s.trouble(status=500)
    assert send(g, rig.ann, "x")["error"].startswith("timed out: ")
    s.trouble(taken=True)  # the answer is lost
    assert send(g, rig.ann, "perhaps")["error"].startswith("timed out: ")
    assert not send(g, "no/chat", "x")["success"]
    assert [m["text"] for m in s.sent(rig.ann)] == ["perhaps"]


def test_edits_typing_and_long_texts(rig):
    s, g = rig.sim, rig.gateway
    rig.wrote()
    id = send(g, rig.ann, "one")["message_id"]
    assert g.act(op="edit", chat_id=rig.ann, message_id=id, content="two", metadata={})["success"]
    assert s.sent(rig.ann)[0]["text"] == "two"
    assert not g.act(op="edit", chat_id=rig.ann, message_id="not/an/id", content="x", metadata={})["success"]
    s.trouble(status=404, code="ActivityNotFoundInConversation", method="PUT")
    gone = g.act(op="edit", chat_id=rig.ann, message_id=id, content="x", metadata={})
    assert "does not have this message" in gone["error"]
    for _ in range(3):
        assert g.act(op="typing", chat_id=rig.ann, metadata={})["success"]
    assert s.typed == [rig.ann]
    text = "\n\n".join(f"paragraph {i} " + "\U0001f600 word " * 300 for i in range(10))
    assert send(g, rig.ann, text)["success"]
    parts = s.sent(rig.ann)[1:]
    assert len(parts) >= 2 and "".join("".join(m["text"].split()) for m in parts) == "".join(text.split())


def test_a_burst_keeps_to_the_limits_and_the_order(rig):
    s, g = rig.sim, rig.gateway
    rig.wrote()
    for i in range(6):
        g.send({"type": "outbound", "requestId": f"r{i}", "action": {"op": "send", "chat_id": rig.ann, "content": f"m{i}", "metadata": {}}})
    wait_for(lambda: len(s.sent(rig.ann)) == 6)
    assert [m["text"] for m in s.sent(rig.ann)] == [f"m{i}" for i in range(6)]
    assert s.limited == 0


def test_proactive_sends_work_after_a_restart(rig):
    s = rig.sim
    rig.wrote()
    rig.wrote(chat=CHANNEL, mention=True)
    s.tell(s.activity("installationUpdate", "Ben", action="add"))
    rig.server.stop()
    rig.server.start()
    rig.hook()
    g = rig.dial()
    assert send(g, rig.ann, "after the restart")["success"]
    assert send(g, CHANNEL, "there, too")["success"]
    assert s.sent(rig.ann)[-1]["recipient"]["id"] == s.people["Ann"]["id"]
    assert any(p.startswith("conversations/a:1Ann") for _, p in s.calls)
    assert status(rig.server)["chats"] == 3
    s.tell(s.activity("installationUpdate", "Ben", action="remove"))
    assert status(rig.server)["chats"] == 2


def test_a_service_url_of_a_stranger_gets_nothing(rig):
    """The bot's token goes to hosts of Teams only, whatever a signed activity says."""
    s = rig.sim
    for url in (f"http://localhost:{s.port}/amer/", "https://smba.trafficmanager.net.evil.example/", "http://smba.trafficmanager.net/amer/",
                "https://evil.example/smba.trafficmanager.net/", "https://smba.trafficmanager.net@evil.example/"):
        assert s.tell({**s.message("x"), "serviceUrl": url}, s.token(serviceurl=url))[0] == 401, url
        assert s.tell({**s.message("x"), "serviceUrl": url}, s.tenant_token())[0] == 401, url
    assert rig.gateway.quiet()


# ---- questions ----


def ask(g, chat, **more):
    return g.act(op="prompt", chat_id=chat, content=more.pop("content", "**Deploy** it?"), prompt_id=more.pop("id", "q1"),
                 options=more.pop("options", [{"id": "y", "label": "Yes", "style": "primary"}, {"id": "n", "label": "No", "style": "danger"}]),
                 metadata=more.pop("metadata", {}), **more)


def test_a_question_is_a_card_and_its_answer_comes_at_once(rig):
    s, g = rig.sim, rig.gateway
    rig.wrote()
    result = ask(g, rig.ann)
    assert result["success"], result
    message = result["message_id"]
    card = card_of(s.messages[rig.ann, message])
    assert texts(card) == ["**Deploy** it?"] and [a["title"] for a in s.actions(card)] == ["Yes", "No"]
    assert [a["style"] for a in s.actions(card)] == ["positive", "destructive"]
    code, answer = s.press(rig.ann, message, "Yes")
    assert code == 200 and (answer["statusCode"], answer["type"]) == (200, CARD)
    assert texts(answer["value"]) == ["**Deploy** it?", "\u2714 Yes"] and not s.actions(answer["value"])
    event = g.next("inbound")["event"]
    assert event["source"]["user_id"] == s.people["Ann"]["aadObjectId"] and "y" in json.dumps(event)
    wait_for(lambda: s.messages[rig.ann, message].get("edited"))
    assert texts(card_of(s.messages[rig.ann, message])) == ["**Deploy** it?", "\u2714 Yes"]
    assert not s.actions(card_of(s.messages[rig.ann, message]))


def test_a_press_too_late_an_old_client_and_a_question_after_a_restart(rig):
    s, g = rig.sim, rig.gateway
    rig.wrote(chat=CHANNEL, mention=True)
    root = next(i for c, i in s.messages if c == CHANNEL)
    message = ask(g, CHANNEL, metadata={"thread_id": root})["message_id"]
    again = dict(s.messages[CHANNEL, message])
    assert send(g, CHANNEL, "well?", thread_id=root)["success"]  # records are written in order: the card's is on disk now
    rig.server.kill()
    rig.server.start()
    rig.hook()
    g = rig.dial()
    code, _ = s.press(CHANNEL, message, "No", submit=True)
    assert code == 200
    assert "n" in json.dumps(g.next("inbound")["event"])
    wait_for(lambda: s.messages[CHANNEL, message].get("edited"))
    assert texts(card_of(s.messages[CHANNEL, message])) == ["**Deploy** it?", "\u2714 No"]
    s.messages[CHANNEL, message] = again
    code, answer = s.press(CHANNEL, message, "Yes")
    assert (code, answer["type"]) == (200, "application/vnd.microsoft.activity.message") and "answered already" in answer["value"]
    assert g.quiet()


def test_many_options_and_a_long_question(rig):
    s, g = rig.sim, rig.gateway
    rig.wrote()
    options = [{"id": f"o{i}", "label": f"Option {i}"} for i in range(14)]
    result = ask(g, rig.ann, content="long " * 2000 + "?", options=options)
    assert result["success"], result
    sent = s.sent(rig.ann)
    card = card_of(sent[-1])
    assert len(sent) == 3 and len(s.actions(card)) == 14 and texts(card)[0].endswith("?")
    assert s.press(rig.ann, sent[-1]["id"], "Option 13")[0] == 200
    assert "o13" in json.dumps(g.next("inbound")["event"])


# ---- streams ----


def draft(g, n, text, chat, final=False, **more):
    return g.act(op="draft", chat_id=chat, draft_id=n, content=text, final=final, metadata=more)


def test_an_answer_grows_in_a_personal_chat(rig):
    s, g = rig.sim, rig.gateway
    rig.wrote()
    draft(g, 1, "One two", rig.ann)
    wait_for(lambda: s.streams)
    (chat, id), stream = next(iter(s.streams.items()))
    draft(g, 1, "One two three four", rig.ann)
    wait_for(lambda: len(stream["texts"]) >= 2)
    began = time.monotonic()
    draft(g, 1, "One two three four five. Six seven", rig.ann)
    wait_for(lambda: len(stream["texts"]) >= 3)
    assert time.monotonic() - began >= 1.2
    result = draft(g, 1, "One two three four five. Six seven eight.", rig.ann, final=True)
    assert result["success"] and result["message_id"] == id, result
    m, = s.sent(rig.ann)
    assert m["text"] == "One two three four five. Six seven eight." and not m["streaming"]
    assert s.edits == []
    assert g.act(op="edit", chat_id=rig.ann, message_id=id, content="better", metadata={})["success"]


def test_a_stream_whose_end_differs_is_edited(rig):
    s, g = rig.sim, rig.gateway
    rig.wrote()
    draft(g, 1, "A first thought", rig.ann)
    wait_for(lambda: s.streams)
    result = draft(g, 1, "Something else", rig.ann, final=True)
    assert result["success"], result
    m, = s.sent(rig.ann)
    assert m["text"] == "Something else" and len(s.edits) == 1


def test_a_stream_that_teams_ends_goes_on_as_edits(rig):
    s, g = rig.sim, rig.gateway
    rig.wrote()
    draft(g, 1, "One two", rig.ann)
    wait_for(lambda: s.streams)
    s.stream_s = 0
    draft(g, 1, "One two three", rig.ann)
    wait_for(lambda: s.edits)
    result = draft(g, 1, "One two three four.", rig.ann, final=True)
    assert result["success"], result
    m, = s.sent(rig.ann)
    assert m["text"] == "One two three four."


def test_the_last_text_after_two_minutes_is_an_edit(rig):
    s, g = rig.sim, rig.gateway
    rig.wrote()
    draft(g, 1, "One two", rig.ann)
    wait_for(lambda: s.streams)
    s.stream_s = 0
    result = draft(g, 1, "One two three.", rig.ann, final=True)
    assert result["success"], result
    m, = s.sent(rig.ann)
    assert m["text"] == "One two three." and len(s.edits) == 1


def test_a_person_stops_a_stream(rig):
    s, g = rig.sim, rig.gateway
    rig.wrote()
    draft(g, 1, "One two", rig.ann)
    wait_for(lambda: s.streams)
    s.stop_stream(*next(iter(s.streams)))
    result = draft(g, 1, "One two three.", rig.ann, final=True)
    assert result["success"], result
    m, = s.sent(rig.ann)
    assert m["text"] == "One two" and s.edits == []


def test_drafts_elsewhere_and_where_streams_are_off_are_edits(rig):
    s, g = rig.sim, rig.gateway
    rig.wrote(chat=GROUP, mention=True)
    rig.wrote()
    s.streaming = False
    for chat in (GROUP, rig.ann):
        draft(g, 1, "One two", chat)
        wait_for(lambda: s.sent(chat))
        result = draft(g, 1, "One two three.", chat, final=True)
        assert result["success"], result
        m, = s.sent(chat)
        assert m["text"] == "One two three."


# ---- files ----


def fetched(rig, url):
    return test_media.ask(rig.server, "GET", url[url.index("/relay/media"):], rig.credential.token()).content


def media(rig, chat, data, name, type, caption="", kind="document"):
    id = test_media.kept(rig.server, rig.credential, data, type=type, name=name)
    return rig.gateway.act(op="send_media", chat_id=chat, media_kind=kind, source_url=f"/relay/media/{id}", filename=name, content=caption,
                           metadata={})


def test_pictures_and_files_of_people(make_rig):
    rig = make_rig(head="media: {{allow_private: true}}")
    s, g = rig.sim, rig.gateway
    s.say("see", attachments=[s.picture(test_media.PNG), {"contentType": "text/html", "content": "<p>see</p>"}])
    event = g.hear("see")["event"]
    url, = event["media_urls"]
    assert event["message_type"] == "photo" and fetched(rig, url) == test_media.PNG
    s.say(None, attachments=[s.file(b"some notes")])  # from another host, which must not see the token
    event = g.next("inbound")["event"]
    url, = event["media_urls"]
    assert event["message_type"] == "document" and fetched(rig, url) == b"some notes"


def test_pictures_go_inline_and_files_by_consent(rig):
    s, g = rig.sim, rig.gateway
    rig.wrote()
    rig.wrote(chat=GROUP, mention=True)
    for chat in (rig.ann, GROUP):
        assert media(rig, chat, test_media.PNG, "cat.png", "image/png", "a cat", "image")["success"]
        sent = s.sent(chat)[-1]
        assert sent["text"] == "a cat" and base64.b64decode(sent["attachments"][0]["contentUrl"].partition(",")[2]) == test_media.PNG
    result = media(rig, rig.ann, b"%PDF-1.4 much", "r.pdf", "application/pdf", "the report")
    assert result["success"], result
    offer = s.messages[rig.ann, result["message_id"]]["attachments"][0]
    assert offer["name"] == "r.pdf" and offer["content"]["sizeInBytes"] == 13
    id, (code, _) = s.consent(rig.ann, result["message_id"])
    assert code == 200
    wait_for(lambda: id in s.uploads)
    assert s.uploads[id] == b"%PDF-1.4 much"
    wait_for(lambda: s.sent(rig.ann)[-1]["attachments"][0]["contentType"] == INFO)
    again, (code, _) = s.consent(rig.ann, result["message_id"])  # a second time: the offer is over
    wait_for(lambda: "not kept any more" in s.sent(rig.ann)[-1].get("text", ""))
    assert again not in s.uploads
    result = media(rig, GROUP, b"%PDF-1.4", "r.pdf", "application/pdf", "the report")
    assert result["success"], result
    link = s.sent(GROUP)[-1]["text"]
    assert link.startswith("the report\n\n[r.pdf](https://relay.example.org/relay/media/"), link


def test_an_offer_is_taken_after_a_restart_and_declined_ones_go(rig):
    s = rig.sim
    rig.wrote()
    first = media(rig, rig.ann, b"one" * 10, "a.bin", "application/octet-stream")["message_id"]
    second = media(rig, rig.ann, b"two" * 10, "b.bin", "application/octet-stream")["message_id"]
    rig.server.kill()
    rig.server.start()
    rig.hook()
    assert s.consent(rig.ann, second, accept=False)[1][0] == 200
    evil = f"http://localhost:{s.port}/upload/evil"  # neither https nor a host of Teams
    id, _ = s.consent(rig.ann, first, upload=evil)
    wait_for(lambda: "not kept any more" in s.sent(rig.ann)[-1].get("text", ""))
    assert s.uploads == {}


# ---- crashes ----


def outbound(g, request, chat, text):
    g.send({"type": "outbound", "requestId": request, "action": {"op": "send", "chat_id": chat, "content": text, "metadata": {}}})


def test_a_crash_between_request_and_answer_is_told_and_sends_nothing_twice(rig):
    s, g = rig.sim, rig.gateway
    rig.wrote()
    s.answering.clear()
    outbound(g, "r1", rig.ann, "once")
    wait_for(lambda: s.sent(rig.ann))
    rig.server.kill()
    s.answering.set()
    rig.server.start()
    rig.hook()
    g = rig.dial()
    outbound(g, "r1", rig.ann, "once")
    assert g.next("outbound_result")["result"]["error"].startswith("timed out: ")
    assert send(g, rig.ann, "next")["success"]
    assert [m["text"] for m in s.sent(rig.ann)] == ["once", "next"]


def test_a_crash_before_the_request_loses_nothing(rig):
    s, g = rig.sim, rig.gateway
    rig.wrote()
    s.trouble(status=429, times=50, Retry_After="1")
    outbound(g, "r1", rig.ann, "kept")
    wait_for(lambda: [r["state"] for r in json.loads(rig.server.cli("outbox", "list", "--json").stdout)] == ["waiting"])
    rig.server.kill()
    s.troubles.clear()
    rig.server.start()
    rig.hook()
    rig.dial()
    wait_for(lambda: [m["text"] for m in s.sent(rig.ann)] == ["kept"])


@pytest.mark.parametrize("final", [False, True])
def test_a_crash_in_a_stream_completes_its_message(rig, final):
    s, g = rig.sim, rig.gateway
    rig.wrote()
    draft(g, 1, "One two", rig.ann)
    wait_for(lambda: s.streams)
    draft(g, 1, "One two three", rig.ann)
    wait_for(lambda: s.sent(rig.ann)[0]["text"] == "One two three")
    wait_for(lambda: on_disk(rig.server, "outgoing", "One two three"))  # its record is written behind the answer
    if final:
        s.answering.clear()
        g.send({"type": "outbound", "requestId": "d", "action": {"op": "draft", "chat_id": rig.ann, "draft_id": 1, "final": True,
                                                                 "content": "One two three four.", "metadata": {}}})
        wait_for(lambda: not s.sent(rig.ann)[0]["streaming"])
    rig.server.kill()
    s.answering.set()
    rig.server.start()
    rig.hook()
    wait_for(lambda: not s.sent(rig.ann)[0].get("streaming"))  # whether the gateway comes back or not
    g = rig.dial()
    result = draft(g, 1, "One two three four.", rig.ann, final=True)
    assert result["success"], result
    m, = s.sent(rig.ann)
    assert m["text"] == "One two three four."


def test_the_limits_hold_when_bellhop_is_killed(rig):
    """What a process has sent it forgets when it dies: the next one begins without bursts.  The fixture asserts that no limit was met."""
    s, g = rig.sim, rig.gateway
    rig.wrote()
    for i in range(5):
        assert send(g, rig.ann, f"before {i}")["success"]
    rig.wrote(who="Ben")
    s.answering.clear()
    outbound(g, "r1", s.people["Ben"]["chat"], "under way")
    wait_for(lambda: s.sent(s.people["Ben"]["chat"]))
    rig.server.kill()
    s.answering.set()
    rig.server.start()
    rig.hook()
    g = rig.dial()
    for i in range(5):
        outbound(g, f"after {i}", rig.ann, f"after {i}")
    wait_for(lambda: len(s.sent(rig.ann)) == 10)


def test_many_messages_each_once_and_in_order_whatever_fails(sim, make_bellhop, dial):
    """BELLHOP_TEAMS_MESSAGES of them in and as many out, with repeats, lost answers, limits and kills.  bellhop itself meets no limit."""
    total = int(os.environ.get("BELLHOP_TEAMS_MESSAGES", 60))
    chats = {sim.person(f"P{i}")["chat"]: f"P{i}" for i in range(max(20, total // 10))}
    r, dice = Rig(sim, make_bellhop, dial), random.Random(7)
    many = Many(r, chats, lambda c: [m["text"] for m in sim.sent(c)], lambda: status(r.server)["requestsWaiting"], r.hook, window=min(100, max(15, total // 100)))
    for n in range(total):
        chat = dice.choice(list(chats))
        a = sim.message(many.text(chat), who=chats[chat])
        if n % 9 == 4:
            sim.trouble(status=dice.choice((412, 429, 502, 504)), Retry_After="0")
        if n % 17 == 8:
            sim.trouble(taken=True)
        assert sim.tell(a)[0] == 200
        if n % 5 == 0:
            assert sim.tell(a)[0] == 200
        if n in (total // 3, 2 * total // 3):
            many.crash()
        many.breathe()
    many.check()


# ---- operators ----


def test_doctor_and_the_settings(rig, make_bellhop, sim):
    done = rig.server.cli("doctor")
    assert f"ok    platform   teams {BOT}: its credentials are valid" in done.stdout, done.stdout
    for login, why in ((f'app_password: "x", certificate: "y", entra_tenant: {TENANT}', "`app_password` or `certificate`, not both"),
                       (f"entra_tenant: {TENANT}", "`app_password` or `certificate`"),
                       ('app_password: "x", entra_tenant: contoso', "`entra_tenant` is the id of a tenant"),
                       (f'certificate: "/nowhere.pem", entra_tenant: {TENANT}', "cannot be read")):
        server = make_bellhop(config(sim, login=login), start=False)
        done = server.cli("serve", check=False)
        assert done.returncode != 0 and why in done.stderr, done.stderr


def test_a_person_is_forgotten(rig):
    s = rig.sim
    rig.wrote()
    rig.wrote(who="Ben")
    assert ask(rig.gateway, rig.ann, content="Shall Ann go?")["success"]
    assert media(rig, rig.ann, b"%PDF-1.4", "about-ann.pdf", "application/pdf", "a file")["success"]
    done = rig.server.cli("erase", "--person", f"teams:{s.people['Ann']['aadObjectId']}", "--yes", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert status(rig.server)["chats"] == 1
    rig.server.restart()
    assert status(rig.server)["chats"] == 1
    rig.server.stop()
    assert rows_naming(rig.server, rig.ann) == rows_naming(rig.server, "Shall Ann go?") == []
    assert rows_naming(rig.server, "about-ann.pdf") == ["media"]  # the agent's file
