"""Tenant by host: the webhooks of a bot come by a name of its own, and by no other."""
import http.client
import json
import urllib.parse

import pytest

from conftest import wait_for
from oracle import oracle  # noqa: F401 - a fixture
from relay import Answer
from test_telegram import ANN as PERSON
from test_telegram import SECRET, TelegramSim
from test_telegram import TOKEN as BOT_TOKEN
from test_twilio import ANN, AUTH, SID, TwilioSim

ACME, EVIL = "acme.hooks.example.org", "evil.hooks.example.org"
HEAD = """\
listen: 127.0.0.1:0
public_url: https://relay.example.org
state_dir: {{state}}
{more}
platforms:
"""
ENTRY = '  - {{{{platform: twilio, bot: "{bot}", account_sid: {sid}, auth_token: "{auth}", api_base: "{api}"{more}}}}}\n'


def post(server, path, body, headers):
    """With a Host of our choice."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.request("POST", path, body, headers)
    answer = connection.getresponse()
    got = Answer(answer.status, answer.headers, answer.read())
    connection.close()
    return got


class Town:
    """Two Twilio accounts, of two tenants, on one server."""

    def __init__(self, oracle, make_bellhop, dial, bots=("+15550100", "+15550200"), more=""):  # noqa: F811
        self.oracle, self.n = oracle, 0
        self.sims = {host: TwilioSim(SID + host[0], AUTH + host[0]) for host in (ACME, EVIL)}
        text = HEAD.format(more=more)
        for bot, host in zip(bots, (ACME, EVIL)):
            text += ENTRY.format(bot=bot, sid=SID + host[0], auth=AUTH + host[0], api=self.sims[host].url,
                                 more=f", host: {host.upper() if host == EVIL else host}, tenant: {host.split('.')[0]}")
        self.server = make_bellhop(text)
        names = bots if bots[0] != bots[1] else (bots[0], f"{bots[1]}@{EVIL}")
        self.bots, self.gateways = dict(zip((ACME, EVIL), bots)), {}
        for host, name in zip((ACME, EVIL), names):
            tenant = host.split(".")[0]
            c = self.server.add(id=tenant, tenant=tenant, platform="twilio", bot=name)
            self.gateways[host] = dial(self.server, c, hello=("twilio", name))

    def say(self, text, of=ACME, host=None, signed=None, **headers):
        """A message of the account of one host, sent by one host and signed for one."""
        self.n += 1
        path = f"/webhooks/twilio/{self.bots[of]}"
        params = {"Body": text, "To": self.bots[of], "MessageSid": f"SM{self.n:032x}", "AccountSid": SID + of[0], "From": ANN,
                  "NumMedia": "0", "SmsStatus": "received", "ApiVersion": "2010-04-01"}
        signature = self.oracle.ask("twilio", token=AUTH + of[0], url=f"https://{signed or of}{path}", params=params)["signature"]
        return post(self.server, path, urllib.parse.urlencode(params), {
            "Host": host or of, "Content-Type": "application/x-www-form-urlencoded", "X-Twilio-Signature": signature, **headers})

    def close(self):
        for sim in self.sims.values():
            sim.close()


@pytest.fixture
def make_town(oracle, make_bellhop, dial):  # noqa: F811
    made = []

    def make(**more):
        made.append(Town(oracle, make_bellhop, dial, **more))
        return made[-1]

    yield make
    for t in made:
        t.close()


@pytest.mark.parametrize("bots", [("+15550100", "+15550200"), ("+15550100", "+15550100")])
def test_a_host_has_its_own_bot(make_town, bots):
    town = make_town(bots=bots)
    for host, other in ((ACME, EVIL), (EVIL, ACME)):
        for by in (host, host.upper(), host + ":8443", host + "."):
            assert town.say(f"hi by {by}", host, by).status == 200
            assert town.gateways[host].hear(f"hi by {by}")
        unknown = post(town.server, "/webhooks/twilio/nobody", "x", {"Host": host})
        for answer in (town.say("x", host, other), town.say("x", host, "relay.example.org"), town.say("x", host, "127.0.0.1"),
                       town.say("x", host, other, signed=other), town.say("x", host, host, signed="relay.example.org"),
                       town.say("x", host, "relay.example.org", **{"X-Forwarded-Host": host})):  # from somebody we do not trust
            assert (answer.status, answer.text) == (401, unknown.text)
        assert town.gateways[host].act(op="send", chat_id=ANN, content=f"from {host}", reply_to=None, metadata={})["success"]
        assert town.sims[host].sent[-1] == {"To": ANN, "From": town.bots[host], "Body": f"from {host}"}
    assert town.say("x", ACME, "x" + ACME).status == 421  # no wildcards
    assert all(g.quiet() for g in town.gateways.values())
    status = json.loads(town.server.cli("status", "--json").stdout)["platforms"]
    addresses = {p["webhook"] for p in status}
    assert addresses == {f"https://{h}/webhooks/twilio/{urllib.parse.quote(town.bots[h])}" for h in (ACME, EVIL)}
    for shown in (town.server.cli("status").stdout, town.server.cli("doctor", check=False).stdout):
        assert all(a in shown for a in addresses), shown


def test_a_trusted_proxy_says_which_host_it_was(make_town):
    town = make_town(more="trusted_proxies: [127.0.0.1]")
    assert town.say("through the proxy", ACME, "127.0.0.1", **{"X-Forwarded-Host": ACME}).status == 200
    town.gateways[ACME].hear("through the proxy")
    assert town.say("x", ACME, ACME, **{"X-Forwarded-Host": EVIL}).status == 401
    assert town.say("x", ACME, "127.0.0.1", **{"X-Forwarded-Host": f"{ACME}, {EVIL}"}).status == 401  # the proxy wrote the last
    assert town.say("the last", ACME, "127.0.0.1", **{"X-Forwarded-Host": f"{EVIL}, {ACME}:443"}).status == 200
    town.gateways[ACME].hear("the last")


def test_telegram_is_told_the_address_of_the_host(make_bellhop, dial):
    sim = TelegramSim()
    sim.bot(BOT_TOKEN, "my_bot")
    sim.person(PERSON, "Ann")
    entry = f'  - {{{{platform: telegram, bot: my_bot, token: "{BOT_TOKEN}", api_base: "{sim.url}", mode: webhook, ' \
            f'webhook_secret: {SECRET}, host: {ACME}}}}}\n'
    server = make_bellhop(HEAD.format(more="") + entry)
    wait_for(lambda: sim.bots[BOT_TOKEN]["webhook"])
    assert sim.bots[BOT_TOKEN]["webhook"]["url"] == f"https://{ACME}/webhooks/telegram/my_bot"
    gateway = dial(server, server.add(platform="telegram", bot="my_bot"), hello=("telegram", "my_bot"))
    update = json.dumps({"update_id": 9, "message": {"message_id": 1, "date": 1, "text": "hi", "chat": {"id": PERSON, "type": "private"},
                                                     "from": {"id": PERSON, "is_bot": False, "first_name": "Ann"}}})
    headers = {"X-Telegram-Bot-Api-Secret-Token": SECRET, "Content-Type": "application/json"}
    assert post(server, "/webhooks/telegram/my_bot", update, {**headers, "Host": "relay.example.org"}).status == 401
    assert post(server, "/webhooks/telegram/my_bot", update, {**headers, "Host": ACME}).status == 200
    gateway.hear("hi")
    sim.close()


@pytest.mark.parametrize("host, said", [("'*.example.org'", "wildcard"), ("'a.org:80'", "port"), ("'https://a.org'", "scheme"),
                                        ("a..org.", "host")])
def test_what_is_no_name_is_refused(make_bellhop, host, said):
    server = make_bellhop(HEAD.format(more="") + ENTRY.format(bot="+1", sid=SID, auth=AUTH, api="http://127.0.0.1:1", more=f", host: {host}"),
                          start=False)
    refused = server.cli("doctor", check=False)
    assert refused.returncode != 0 and "host" in refused.stdout + refused.stderr and said in refused.stdout + refused.stderr


def test_hosts_are_for_webhooks_and_tell_bots_apart(make_bellhop):
    def doctor(text):
        done = make_bellhop(HEAD.format(more="") + text, start=False).cli("doctor", check=False)
        return done.stdout + done.stderr

    assert "host is for webhooks" in doctor(f"  - {{{{platform: web, bot: lobby, host: {ACME}}}}}\n")
    entry = dict(bot="+1", sid=SID, auth=AUTH, api="http://127.0.0.1:1")
    assert "there twice" in doctor(ENTRY.format(**entry, more="") * 2)
    server = make_bellhop(HEAD.format(more="") + "".join(ENTRY.format(**entry, more=f", host: {h}") for h in (ACME, ACME.upper())), start=False)
    server.begin()
    assert server.wait() != 0 and "this id and this host" in server.log()


def test_doctor_warns_of_routes_that_a_tenant_makes_void(make_town):
    town = make_town()
    assert "no effect" not in town.server.cli("doctor", check=False).stdout
    town.server.stop()
    text = town.server.config.read_text()
    town.server.config.write_text(text.replace("tenant: acme", "tenant: bank"))
    for _ in range(2):
        said = town.server.cli("doctor", check=False).stdout
        assert "+15550100 on twilio to tenant acme has no effect" in said and "tenant bank" in said, said
        assert "tenant evil has no effect" not in said
        if town.server.process is None:
            town.server.start()
