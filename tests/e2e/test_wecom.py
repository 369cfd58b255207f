"""WeCom: encrypted and signed by its own library, sent through a simulator of its message API."""
import json
import pathlib
import sys
import threading
import time
import urllib.parse

import pytest

from conftest import wait_for
from oracle import oracle  # noqa: F401 - a fixture
from test_interactions import raw

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "sim"))
from webapi import WecomSim  # noqa: E402

CORP, SECRET, TOKEN, AGENT = "wwcorp0123", "secret-of-the-agent-planted", "callback-token-planted", "1000002"
KEY = "jWmYm7qr5nMoAUwZRjGtBxmz3KA1tkAj3ykkR6q2B2C"

CONFIG = """\
listen: 127.0.0.1:0
state_dir: {{state}}
log: {{{{level: debug}}}}
platforms:
  - {{{{platform: wecom, bot: "{agent}", corp_id: {corp}, secret: "{secret}", token: "{token}", encoding_aes_key: {key}, api_base: "{api}"}}}}
"""


def message(text, msg_id="1", user="ann", kind="text", more=""):
    return (f"<xml><ToUserName><![CDATA[{CORP}]]></ToUserName><FromUserName><![CDATA[{user}]]></FromUserName>"
            f"<CreateTime>1348831860</CreateTime><MsgType><![CDATA[{kind}]]></MsgType><Content><![CDATA[{text}]]></Content>"
            f"<MsgId>{msg_id}</MsgId><AgentID>{AGENT}</AgentID>{more}</xml>")


class Rig:
    def __init__(self, oracle, make_bellhop, dial, **sim):  # noqa: F811
        self.oracle, self.sim = oracle, WecomSim(CORP, SECRET, **sim)
        self.server = make_bellhop(CONFIG.format(corp=CORP, secret=SECRET, token=TOKEN, key=KEY, agent=AGENT,
                                                 api=self.sim.url))
        self.credential = self.server.add(platform="wecom", bot=AGENT)
        self.dial = lambda: dial(self.server, self.credential, hello=("wecom", AGENT))
        self.gateway = self.dial()

    def seal(self, text, corp=CORP, token=TOKEN, key=KEY, timestamp=None, nonce="1372623149"):
        timestamp = str(int(time.time())) if timestamp is None else timestamp
        made = self.oracle.ask("wecom", token=token, key=key, id=corp, timestamp=timestamp, nonce=nonce, message=text)
        return made["encrypted"], {"msg_signature": made["signature"], "timestamp": timestamp, "nonce": nonce}

    def post(self, encrypted, query, body=None, bot=AGENT):
        body = body or (f"<xml><ToUserName><![CDATA[{CORP}]]></ToUserName><AgentID><![CDATA[{AGENT}]]></AgentID>"
                        f"<Encrypt><![CDATA[{encrypted}]]></Encrypt></xml>").encode()
        return raw("POST", f"{self.server.url}/webhooks/wecom/{bot}?{urllib.parse.urlencode(query)}", body,
                   {"Content-Type": "text/xml"})

    def say(self, text, *args, **more):
        return self.post(*self.seal(message(text, *args, **more)))


@pytest.fixture
def rig(oracle, make_bellhop, dial):  # noqa: F811
    r = Rig(oracle, make_bellhop, dial)
    yield r
    r.sim.close()
    assert r.sim.violations == []
    for secret in (SECRET, TOKEN, KEY, "access-token-"):
        assert secret not in r.server.log()


def send(gateway, text, chat="ann"):
    return gateway.act(op="send", chat_id=chat, content=text, reply_to=None, metadata={})


def test_the_address_is_proven_with_an_echo(rig):
    encrypted, query = rig.seal("6699887766")
    answer = raw("GET", f"{rig.server.url}/webhooks/wecom/{AGENT}?{urllib.parse.urlencode({**query, 'echostr': encrypted})}",
                 None, {})
    assert (answer.status, answer.text) == (200, "6699887766")
    query["msg_signature"] = query["msg_signature"][::-1]
    answer = raw("GET", f"{rig.server.url}/webhooks/wecom/{AGENT}?{urllib.parse.urlencode({**query, 'echostr': encrypted})}",
                 None, {})
    assert answer.status == 401


def test_doctor_checks_the_credentials(rig):
    done = rig.server.cli("doctor", check=False)
    assert f"ok    platform   wecom {AGENT}: its credentials are valid" in done.stdout and done.returncode == 0, done.stdout
    rig.sim.secret = "another"
    rig.server.stop()
    done = rig.server.cli("doctor", check=False)
    assert done.returncode == 1 and "errcode 40001): check `corp_id` and `secret`" in done.stdout
    assert SECRET not in done.stdout + done.stderr and "access-token-" not in done.stdout + done.stderr
    rig.sim.close()
    done = rig.server.cli("doctor", check=False)
    assert done.returncode == 0 and "the platform does not answer" in done.stdout
    rig.server.start()


def test_a_person_writes_and_gets_the_answer(rig):
    answer = rig.say("你好 <b>")
    assert (answer.status, answer.text) == (200, "")
    source = rig.gateway.hear("你好 <b>")["event"]["source"]
    assert (source["platform"], source["chat_id"], source["chat_type"], source["user_id"]) == ("wecom", "ann", "dm", "ann")
    assert send(rig.gateway, "再见") == {"success": True, "message_id": "m-1"}
    assert rig.sim.sent == [("ann", "再见")]


def test_people_of_two_corporations_are_two_people(oracle, make_bellhop, dial):  # noqa: F811
    """Ids are unique in a corporation only: what is said to ann of one must not reach ann of the other."""
    other = "wwother9"

    def entries(more="", tenant=""):
        bots = [f"  - {{{{platform: wecom, bot: '{bot}', corp_id: {corp}, secret: {SECRET}, token: {TOKEN}, encoding_aes_key: {KEY}, "
                f"api_base: '{sim.url}'{ours}}}}}\n"
                for bot, corp, sim, ours in ((AGENT, CORP, here, tenant), ("1000003", other, there, more))]
        return CONFIG.format(corp=CORP, secret=SECRET, token=TOKEN, key=KEY, agent=AGENT, api=here.url).split("  - ")[0] + "".join(bots)

    here, there = WecomSim(CORP, SECRET), WecomSim(other, SECRET)
    server = make_bellhop(entries(), start=False)
    refused = server.cli("doctor", check=False)
    assert refused.returncode != 0 and "scoped_ids" in refused.stderr + refused.stdout
    server.config.write_text(entries(", tenant: u", ", tenant: t").format(state=server.state))  # two tenants share no agent
    server.start()
    server.stop()
    server.config.write_text(entries(", scoped_ids: true").format(state=server.state))
    server.start()
    g = dial(server, server.add("--platform", "wecom", "--bot", AGENT, "--platform", "wecom", "--bot", "1000003", "--open", platform=None),
             hello=("wecom", AGENT))
    r = Rig.__new__(Rig)
    r.oracle, r.server = oracle, server
    assert r.say("of here").status == 200
    ann = g.hear("of here")["event"]
    encrypted, query = r.seal(message("of there", "2").replace(CORP, other).replace(AGENT, "1000003"), corp=other)
    body = f"<xml><ToUserName>{other}</ToUserName><AgentID>1000003</AgentID><Encrypt>{encrypted}</Encrypt></xml>".encode()
    assert r.post(encrypted, query, body, bot="1000003").status == 200
    namesake = g.hear("of there")["event"]
    assert ann["source"]["chat_id"] == ann["source"]["user_id"] == "ann"
    assert namesake["source"]["chat_id"] == namesake["source"]["user_id"] == f"{other}:ann" and namesake["source"]["user_name"] == "ann"
    assert send(g, "for ann of here")["success"] and send(g, "for ann of there", chat=f"{other}:ann")["success"]
    assert here.sent == [("ann", "for ann of here")] and there.sent == [("ann", "for ann of there")]
    assert not send(g, "for everybody", chat=f"{other}:@all")["success"]
    for sim in (here, there):
        sim.close()


def test_retries_are_one_delivery(rig):
    for _ in range(3):
        assert rig.say("once", "42").status == 200
    rig.gateway.hear("once")
    assert rig.gateway.quiet()


def test_the_answer_waits_for_the_disk_and_not_for_the_gateway(rig):
    rig.gateway.sleep()
    began = time.monotonic()
    assert rig.say("asleep").status == 200
    assert time.monotonic() - began < 1
    rig.dial().hear("asleep")


def test_one_caller_fetches_the_token_for_all(rig):
    rig.sim.slow = 0.5
    for n in range(8):
        rig.say(f"n{n}", str(n), user=f"u{n}")
        rig.gateway.hear(f"n{n}")
    results = []
    threads = [threading.Thread(target=lambda n=n: results.append(send(rig.gateway, "x", f"u{n}"))) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [r["success"] for r in results] == [True] * 8
    assert len(rig.sim.tokens) == 1


def test_the_token_is_refreshed_ahead_of_its_end(oracle, make_bellhop, dial):  # noqa: F811
    r = Rig(oracle, make_bellhop, dial, expires_in=2)
    r.say("x")
    r.gateway.hear("x")
    assert send(r.gateway, "a")["success"]
    time.sleep(1.6)
    assert send(r.gateway, "b")["success"]  # with the old one, while a new one is fetched
    wait_for(lambda: len(r.sim.tokens) == 2)
    assert send(r.gateway, "c")["success"]
    r.sim.close()


def test_a_token_that_was_taken_back_is_replaced(rig):
    rig.say("x")
    rig.gateway.hear("x")
    assert send(rig.gateway, "a")["success"]
    rig.sim.valid.clear()
    assert send(rig.gateway, "b")["success"]
    assert [t for _, t in rig.sim.sent] == ["a", "b"]


def test_refusals_are_told_in_words(rig):
    rig.say("x")
    rig.gateway.hear("x")
    rig.sim.trouble(200, {"errcode": 60111, "errmsg": "userid not found"})
    assert send(rig.gateway, "a")["error"] == "WeCom does not know this person"
    rig.sim.trouble(200, {"errcode": -1, "errmsg": "system busy"})
    assert send(rig.gateway, "b")["success"]
    rig.sim.trouble(502)
    assert send(rig.gateway, "c")["error"].startswith("timed out")
    rig.sim.trouble(None)
    assert send(rig.gateway, "d")["error"].startswith("timed out")
    assert [t for _, t in rig.sim.sent] == ["b", "d"]


def test_wrong_credentials_are_a_problem_of_the_operator(rig):
    rig.sim.secret = "another"
    rig.say("x")
    rig.gateway.hear("x")
    assert send(rig.gateway, "a")["error"].startswith("network trouble")
    status = json.loads(rig.server.cli("status", "--json").stdout)["platforms"][0]
    assert status["state"] == "degraded" and "secret" in status["problem"] and SECRET not in json.dumps(status)


def test_long_texts_are_split_by_bytes(rig):
    rig.say("x")
    rig.gateway.hear("x")
    assert send(rig.gateway, "长" * 1500)["success"]
    assert "".join(t for _, t in rig.sim.sent) == "长" * 1500


def test_forgeries_all_look_alike(rig):
    good, query = rig.seal(message("x"))
    body = f"<xml><Encrypt>{good}</Encrypt></xml>"
    bomb = '<!DOCTYPE x [<!ENTITY a "a"><!ENTITY b "&a;&a;">]>' + body.replace("</xml>", "<y>&b;</y></xml>")
    resigned = lambda e: {**query, "msg_signature": rig.oracle.ask(  # noqa: E731
        "wecom_sign", token=TOKEN, timestamp=query["timestamp"], nonce=query["nonce"], encrypted=e)["signature"]}
    padding = [good[:-8] + c * 4 + good[-4:] for c in "AQgw"]  # rightly signed, wrongly padded
    attempts = [
        rig.post(good, {**query, "nonce": "1"}), rig.post(good, {**query, "timestamp": "1"}), rig.post(good, {}),
        rig.post(*rig.seal(message("x"), corp="another")), rig.post(*rig.seal(message("x"), token="another")),
        rig.post(*rig.seal(message("x"), key=KEY[::-1])), rig.post(*rig.seal(message("x"), timestamp="1409659813")),
        rig.post(good, query, body=bomb.encode()), rig.post(good, query, body=b"<xml>"), rig.post(good, query, bot="nobody"),
        *[rig.post(e, resigned(e)) for e in padding], rig.post("", resigned("")), rig.post("AAAA", resigned("AAAA")),
    ]
    assert [a.status for a in attempts] == [401] * len(attempts)
    assert len({a.text for a in attempts}) == 1
    assert rig.gateway.quiet()
    assert rig.post(good, query).status == 200
