"""Every request of the corpus in forged/ must be refused, and all refusals must look alike."""
import json
import pathlib
import time
import urllib.parse

import pytest

import test_hook
import test_interactions
import test_line
import test_matrix
import test_slack
import test_teams
import test_twilio
import test_wecom
import test_whatsapp
from oracle import oracle  # noqa: F401 - a fixture
from test_interactions import raw, sim  # noqa: F401 - a fixture

CORPUS = pathlib.Path(__file__).with_name("forged")
CLASSES = ["0123456789abcdef", "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"]


def other(c):
    """Another character that could stand there."""
    alphabet = next((a for a in CLASSES if c in a), "A")
    return alphabet[(alphabet.find(c) + 7) % len(alphabet)]


class Forgery:
    """A rightly made request, and what can be done to it."""

    def __init__(self, bot, headers=None, body=b"", form=None, query=None, encrypt=None, sign=None):
        self.method, self.bot, self.headers, self.body = "POST", bot, dict(headers or {}), body
        self.form, self.params, self.encrypted, self.sign = form, query, encrypt, sign
        self.query_text, self.template = "", None

    def get(self, target):
        kind, _, name = target.partition(":")
        if kind == "header":
            return self.headers.get(name, "")
        if kind == "query":
            return self.params[name]
        if kind == "form":
            return dict(self.form)[name]
        return self.encrypted if kind == "encrypt" else self.body.decode()

    def set(self, target, text):
        kind, _, name = target.partition(":")
        if kind == "header":
            self.headers[name] = text
        elif kind == "query":
            self.params[name] = text
        elif kind == "form":
            self.form = [(k, text if k == name else v) for k, v in self.form]
        elif kind == "encrypt":
            self.encrypted = text
        else:
            self.form, self.body = None, text.encode()

    def do(self, verb, *args):
        getattr(self, "do_" + verb)(*args)

    def do_set(self, target, text):
        if target == "body":
            self.freeze()
        self.set(target, text)

    def freeze(self):
        if self.form is not None:
            self.body, self.form = urllib.parse.urlencode(self.form).encode(), None

    def do_change(self, target, at):
        text = self.get(target)
        at %= len(text)
        self.set(target, text[:at] + other(text[at]) + text[at + 1:])

    def do_flip(self, target, bit):
        body = bytearray(self.body)
        body[bit // 8] ^= 1 << bit % 8
        self.body = bytes(body)

    def do_drop(self, target):
        kind, _, name = target.partition(":")
        if kind == "form":
            self.form = [(k, v) for k, v in self.form if k != name]
        else:
            (self.headers if kind == "header" else self.params).pop(name)

    def do_again(self, target):
        self.form.append((target.partition(":")[2], self.get(target)))

    def do_more(self, target, text):
        self.form.append((target.partition(":")[2], text))

    def do_rename(self, target, name):
        self.form = [(name if k == target.partition(":")[2] else k, v) for k, v in self.form]

    def do_swap(self, a, b):
        x, y = self.get(a), self.get(b)
        self.set(a, y)
        self.set(b, x)

    def do_truncate(self, target, n):
        self.set(target, self.get(target)[:n])

    def do_append(self, target, text):
        self.freeze()
        self.set(target, self.get(target) + text)

    def do_prepend(self, target, text):
        self.set(target, text + self.get(target))

    def do_upper(self, target):
        self.set(target, self.get(target).upper())

    def do_respace(self, target):
        self.body = json.dumps(json.loads(self.body), separators=(",", ":")).encode()

    def do_shift(self, target, seconds):
        self.set(target, str(int(self.get(target)) + seconds))

    def do_shift_border(self, a, b):
        self.set(b, self.get(b) + self.get(a)[0])
        self.set(a, self.get(a)[1:])

    def do_change_signed(self, target, at):
        self.do_change(target, at)
        self.params.update(msg_signature=self.sign(self.encrypted))

    def do_set_signed(self, target, text):
        self.encrypted = text
        self.params.update(msg_signature=self.sign(text))

    def do_xml(self, text):
        self.template = text

    def do_bot(self, name):
        self.bot = name

    def do_method(self, name):
        self.method = name

    def do_query(self, text):
        self.query_text = text

    def send(self, server, platform):
        self.freeze()
        body, query = self.body, self.query_text
        if self.encrypted is not None:
            body = (self.template or "<xml><Encrypt><![CDATA[%E]]></Encrypt></xml>").replace("%E", self.encrypted).encode()
            query = "?" + urllib.parse.urlencode(self.params)
        headers = dict(self.headers)
        headers.setdefault("Content-Type", "text/xml")
        return raw(self.method, f"{server.url}/webhooks/{platform}/{self.bot}{query}",
                   None if self.method == "GET" else body, headers)


def now(offset=0, timestamp=None):
    return str(int(time.time()) + offset) if timestamp is None else timestamp


@pytest.fixture
def discord(oracle, sim, make_bellhop, dial):  # noqa: F811
    edge = test_interactions.Edge(oracle, sim, make_bellhop, dial)

    def make(seed=test_interactions.SEED, **when):
        body = {"id": "990000000000000001", "application_id": "900", "type": 2, "token": "x" * 60, "channel_id": "100",
                "guild_id": "77", "data": {"name": "ask"}, "member": {"user": {"id": "42", "username": "ann"}}}
        body, headers = edge.sign(body, timestamp=now(**when), seed=seed)
        return Forgery("900", headers, body)

    return edge, make, "passthrough_forward"


@pytest.fixture
def twilio(oracle, make_bellhop, dial):  # noqa: F811
    rig = test_twilio.Rig(oracle, make_bellhop, dial)

    def make(url=None, auth=test_twilio.AUTH):
        params = rig.params("hello")
        return Forgery(test_twilio.BOT, {"X-Twilio-Signature": rig.sign(params, url, auth),
                                         "Content-Type": "application/x-www-form-urlencoded"}, form=list(params.items()))

    yield rig, make, "inbound"
    rig.sim.close()


@pytest.fixture
def wecom(oracle, make_bellhop, dial):  # noqa: F811
    rig = test_wecom.Rig(oracle, make_bellhop, dial)

    def make(offset=0, timestamp=None, **more):
        encrypted, query = rig.seal(test_wecom.message("hello"), timestamp=now(offset, timestamp), **more)

        def sign(text):
            return oracle.ask("wecom_sign", token=test_wecom.TOKEN, timestamp=query["timestamp"], nonce=query["nonce"],
                              encrypted=text)["signature"]
        return Forgery(test_wecom.AGENT, query=query, encrypt=encrypted, sign=sign)

    yield rig, make, "inbound"
    rig.sim.close()


@pytest.fixture
def slack(make_bellhop, dial):
    sim = test_slack.SlackSim(test_slack.TOKEN, test_slack.APP_TOKEN, test_slack.SECRET)  # noqa: F811
    rig = test_slack.Rig(sim, make_bellhop, dial)

    def make(offset=0, timestamp=None, secret=None):
        body = json.dumps(sim.envelope(sim.message(test_slack.DM, "hello")), indent=1).encode()
        headers = sim.sign(body, int(now(offset, timestamp)), secret)
        return Forgery(test_slack.BOT, {"Content-Type": "application/json", **headers}, body)

    yield rig, make, "inbound"
    sim.close()


@pytest.fixture
def whatsapp(make_bellhop, dial):
    sim = test_whatsapp.WhatsAppSim(test_whatsapp.TOKEN, test_whatsapp.SECRET, test_whatsapp.VERIFY)  # noqa: F811
    rig = test_whatsapp.Rig(sim, make_bellhop, dial)

    def make(secret=None):
        body = json.dumps(sim.envelope(sim.change(sim.value(sim.message(test_whatsapp.ANN, "hello")))), indent=1).encode()
        return Forgery(test_whatsapp.BOT, {"Content-Type": "application/json", **sim.sign(body, secret)}, body)

    yield rig, make, "inbound"
    sim.close()


@pytest.fixture
def matrix(make_bellhop, dial):
    sim = test_matrix.MatrixSim(test_matrix.TOKEN)  # noqa: F811
    rig = test_matrix.Rig(sim, make_bellhop, dial, test_matrix.SERVICE)
    test_matrix.idle(rig)

    def make():
        body = json.dumps({"events": [test_matrix.event(rig, "hello", "$forged")]}, indent=1).encode()
        f = Forgery(f"{test_matrix.BOT}/_matrix/app/v1/transactions/forged", {"Content-Type": "application/json",
                                                                             "Authorization": f"Bearer {test_matrix.HS}"}, body)
        f.method = "PUT"
        return f

    yield rig, make, "inbound"
    sim.close()


@pytest.fixture
def line(make_bellhop, dial):
    rig = test_line.Rig(make_bellhop, dial)

    def make(secret=None):
        body = json.dumps(rig.sim.envelope(rig.sim.event("hello")), indent=1).encode()
        return Forgery(test_line.BOT, rig.sim.sign(body, secret), body)

    yield rig, make, "inbound"
    rig.sim.close()


@pytest.fixture
def hook(make_bellhop, dial):
    sim = test_hook.Chatwoot(test_hook.SECRET)
    rig = test_hook.chatwoot_rig(sim, make_bellhop, dial)

    def make(offset=0, timestamp=None, secret=test_hook.SECRET):
        body = json.dumps(sim.message("hello"), indent=1).encode()
        sim.secret = secret
        return Forgery("chatwoot", {"Content-Type": "application/json", **sim.headers(body, now(offset, timestamp))}, body)

    yield rig, make, "inbound"
    sim.close()


@pytest.fixture
def teams(make_bellhop, dial):
    sim = test_teams.TeamsSim(test_teams.PASSWORD)
    unendorsed = test_teams.Key("unendorsed")
    unendorsed.endorsements = ["webchat"]
    sim.connector_keys.append(unendorsed)
    rig = test_teams.Rig(sim, make_bellhop, dial)
    keys = {"stranger": sim.stranger, "connector": sim.connector_keys[0], "tenant": sim.tenant_keys[0], "unendorsed": unendorsed}

    def make(by="connector", claims=None, key=None, header=None, alg=None, activity=None, offset=0):
        claims = {k: int(time.time()) + v["now"] if isinstance(v, dict) else v for k, v in (claims or {}).items()}
        header = {**({"kid": keys[by].kid} if key == "stranger" else {}), **(header or {})}
        token = sim.token(keys.get(key), header, offset, **claims) if by == "connector" else sim.tenant_token(keys.get(key), header, **claims)
        if alg:
            token = test_teams.resign(token, alg, keys[by])
        said = {**sim.message("hello"), **(activity or {})}
        body = json.dumps({k: v for k, v in said.items() if v is not None}, indent=1).encode()
        return Forgery(test_teams.BOT, {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}, body)

    yield rig, make, "inbound"
    sim.close()


@pytest.mark.parametrize("platform", ["discord", "hook", "line", "matrix", "slack", "teams", "twilio", "wecom", "whatsapp"])
def test_forgeries_are_refused_and_look_alike(platform, request):
    rig, make, frame = request.getfixturevalue(platform)
    cases = json.loads((CORPUS / f"{platform}.json").read_text())["cases"]
    assert len(cases) >= 50
    let_in, seen = [], set()
    for case in cases:
        forgery = make(**case.get("with", {}))
        for step in case["do"]:
            forgery.do(*step)
        answer = forgery.send(rig.server, platform)
        if answer.status != 401:
            let_in.append((case["name"], answer.status, answer.text))
        seen.add((answer.text, answer.headers["Content-Type"], answer.headers["Content-Length"]))
    assert let_in == []
    assert len(seen) == 1, seen
    assert rig.gateway.quiet(frame)
    assert make().send(rig.server, platform).status == 200  # and the right one is taken
    rig.gateway.next(frame)
