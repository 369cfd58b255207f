"""Getting a credential: enrollment, provisioning, and the three kinds of identity."""
import http.server
import json
import pathlib
import subprocess
import threading
import time

import pytest

from conftest import CONFIG, ROOT, Credential, wait_for
from relay import Gateway, Refused
from relay import http as ask_http
from test_manage import at_once, bearer, grants

PACKAGES = ROOT / "build" / "npm"


def token(server, kind, tenant="acme", **options):
    words = ["token", kind, "--tenant", tenant]
    for name, value in options.items():
        words += ["--" + name.replace("_", "-"), value]
    return server.cli(*words).stdout.strip()


def ask(server, path, identity, body):
    return server.post(path, body, headers={"Authorization": f"Bearer {identity}"} if identity else {})


def enroll(server, identity, enrollment, gateway="gw-1", **more):
    return ask(server, "/relay/enroll", identity, {"enrollmentToken": enrollment, "gatewayId": gateway, **more})


def provision(server, identity, gateway="gw-1", **more):
    body = {"gatewayId": gateway, "platform": "web", "botId": "lobby", "gatewayEndpoint": "", "routeKeys": [], **more}
    return ask(server, "/relay/provision", identity, body)


def credential(server, answer):
    assert answer.status == 200, answer.text
    a = answer.json
    return Credential(f"GATEWAY_RELAY_URL={server.url}\nGATEWAY_RELAY_ID={a['gatewayId']}\n"
                      f"GATEWAY_RELAY_SECRET={a['secret']}\n")


# ---- enrollment ----


def test_a_gateway_enrolls_once_with_a_token(bellhop, dial):
    me = token(bellhop, "provision")
    once = token(bellhop, "enroll", instance="agent-1", wake_url="https://wake.example/1")
    answer = enroll(bellhop, me, once)
    assert answer.json["tenant"] == "acme" and answer.json["gatewayId"] == "gw-1" and answer.json["deliveryKey"]
    dial(bellhop, credential(bellhop, answer))
    state = bellhop.get("/manage/instance", headers=bearer(credential(bellhop, answer))).json
    assert (state["tenant"], state["instanceId"], state["wakeUrlRegistered"]) == ("acme", "agent-1", True)
    again = enroll(bellhop, me, once, gateway="gw-2")
    assert again.status == 403 and again.json["code"] == "token_used"
    bellhop.restart()
    assert enroll(bellhop, me, once, gateway="gw-3").status == 403
    second = enroll(bellhop, me, token(bellhop, "enroll"), gateway="gw-4")
    assert second.json["deliveryKey"] == answer.json["deliveryKey"]  # one per tenant
    assert second.json["secret"] != answer.json["secret"]
    for secret in (me, once, answer.json["secret"], answer.json["deliveryKey"]):
        assert secret not in bellhop.log()
        assert secret.encode() not in b"".join(p.read_bytes() for p in bellhop.state.glob("bellhop.db*"))


def test_enrollment_is_refused_without_saying_too_much(bellhop):
    me, other = token(bellhop, "provision"), token(bellhop, "provision", tenant="zorg")
    good = token(bellhop, "enroll")
    short = token(bellhop, "enroll", ttl="1ms")
    time.sleep(0.01)
    assert enroll(bellhop, None, good).status == 401
    assert enroll(bellhop, "nonsense", good).status == 401
    assert enroll(bellhop, good, good).status == 401  # an enrollment token is no identity
    refusals = [enroll(bellhop, other, good), enroll(bellhop, me, me), enroll(bellhop, me, short),
                enroll(bellhop, me, good[:-3] + "AAA"), enroll(bellhop, me, "x"), enroll(bellhop, me, None)]
    assert {(a.status, a.text) for a in refusals} == {(403, refusals[0].text)}
    assert enroll(bellhop, me, good, gateway="").status == 400
    assert enroll(bellhop, me, good, gateway="has blanks").status == 400
    assert enroll(bellhop, me, good).status == 200  # all of that did not use it up


def test_a_token_redeemed_twice_at_once_works_once(bellhop):
    me = token(bellhop, "provision")
    for round in range(3):
        once = token(bellhop, "enroll")
        answers = at_once(*[lambda i=i: enroll(bellhop, me, once, gateway=f"gw-{round}-{i}") for i in range(5)])
        assert sorted(a.status for a in answers) == [200] + [403] * 4


# ---- provisioning ----


def test_a_gateway_provisions_at_every_start_and_is_not_locked_out(bellhop, dial):
    me = token(bellhop, "provision")
    first = provision(bellhop, me, instanceId="agent-1", wakeUrl="https://wake.example/1", routeKeys=["hall"])
    assert first.json["routeKeys"] == ["hall"] and first.json["tenant"] == "acme"
    gateway = dial(bellhop, credential(bellhop, first))
    bellhop.write("anybody?")
    assert gateway.quiet()  # what it said of itself opens nothing
    bellhop.cli("route", "add", "--platform", "web", "--key", "lobby", "--tenant", "acme", "--instance", "agent-1")
    bellhop.write("hello")
    gateway.hear("hello")
    for platform in ("telegram", "discord"):  # the newer gateway: once per platform, keeps the first secret
        again = provision(bellhop, me, platform=platform, botId="b", instanceId="agent-1")
        assert again.json["secret"] == first.json["secret"]
    bellhop.restart()
    assert provision(bellhop, me, platform="relay", botId="").json["secret"] == first.json["secret"]
    dial(bellhop, credential(bellhop, first))
    listed = json.loads(bellhop.cli("gateway", "list", "--json").stdout)
    assert len(listed) == 1 and listed[0]["instance"] == "agent-1"


def test_an_id_belongs_to_its_tenant_and_a_revoked_one_stays_out(bellhop):
    me, other = token(bellhop, "provision"), token(bellhop, "provision", tenant="zorg")
    mine = provision(bellhop, me)
    taken = provision(bellhop, other)
    assert taken.status == 403 and "acme" not in taken.text
    assert provision(bellhop, me).json["secret"] == mine.json["secret"]
    bellhop.cli("gateway", "revoke", "gw-1")
    assert provision(bellhop, me).status == 403
    assert enroll(bellhop, me, token(bellhop, "enroll")).status == 200  # the operator let it in again


def test_route_keys_of_another_tenant_are_left_out(bellhop, dial):
    me, other = token(bellhop, "provision"), token(bellhop, "provision", tenant="zorg")
    mine = dial(bellhop, credential(bellhop, provision(bellhop, me, routeKeys=["hall"])))
    theirs = provision(bellhop, other, gateway="gw-2", routeKeys=["hall", "roof", "attic", "*"])
    assert theirs.json["routeKeys"] == ["roof"]  # attic is a bot: all its chats are nobody's to claim
    bellhop.cli("route", "add", "--platform", "web", "--key", "lobby", "--tenant", "acme", "--instance", "gw-1")
    thief = dial(bellhop, credential(bellhop, theirs))
    bellhop.write("for the lobby")
    mine.hear("for the lobby")
    assert thief.quiet()


def test_malformed_provisioning_gets_a_sentence(bellhop):
    me = token(bellhop, "provision")
    for more in ({"routeKeys": "lobby"}, {"routeKeys": [1]}, {"routeKeys": ["a"] * 300}, {"gatewayId": 5},
                 {"wakeUrl": "ftp://x"}, {"instanceId": "a b"}, {"routeKeys": ["a\nb"]}):
        a = provision(bellhop, me, **more)
        assert a.status == 400 and a.json["error"], (more, a.text)
    assert ask(bellhop, "/relay/provision", me, []).status == 400


# ---- an identity provider ----


class Provider:
    """Serves a JWKS and an account endpoint, and counts who asks."""

    def __init__(self):
        self.jwks, self.accounts, self.asked, self.status = {"keys": []}, {}, [], 200
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer.asked.append(self.path)
                shown = self.headers.get("Authorization", "").removeprefix("Bearer ")
                account = outer.accounts.get(shown)
                status = outer.status if self.path == "/jwks" else 200 if account else 401
                body = json.dumps(outer.jwks if self.path == "/jwks" else account or {}).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Jose:
    """The npm package jose, in a process of its own."""

    def __init__(self):
        assert (PACKAGES / "node_modules" / "jose").is_dir(), "run ./dev test, or: npm install --prefix build/npm jose"
        self.process = subprocess.Popen(["node", pathlib.Path(__file__).parent / "mint_jwt.cjs", PACKAGES], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, **question):
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        said = json.loads(self.process.stdout.readline())
        assert "error" not in said, said
        return said

    def key(self, name, **more):
        return self.ask(op="key", name=name, **more)

    def sign(self, key, claims, **header):
        return self.ask(op="sign", key=key, claims=claims, header={"kid": key, **header})["token"]

    def close(self):
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()


@pytest.fixture
def provider():
    p = Provider()
    yield p
    p.close()


@pytest.fixture
def jose():
    j = Jose()
    yield j
    j.close()


def claims(**more):
    now = int(time.time())
    return {"iss": "https://id.example", "aud": "bellhop", "exp": now + 300, "iat": now, "org": {"id": "acme"}, **more}


def by_jwt(provider, line="jwks_url: {url}/jwks"):
    return CONFIG + "identity: {{kind: jwt, issuer: https://id.example, audience: bellhop, tenant_claim: org.id, " + \
        line.format(url=provider.url) + "}}\n"


def test_signed_tokens_are_believed_when_everything_about_them_is_right(make_bellhop, provider, jose):
    provider.jwks = {"keys": [jose.key("k1")["jwk"], jose.key("k2")["jwk"],
                              {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA", "kid": "ec"}]}
    server = make_bellhop(by_jwt(provider))
    now = int(time.time())
    assert provision(server, jose.sign("k1", claims())).json["tenant"] == "acme"
    assert provision(server, jose.sign("k2", claims(aud=["other", "bellhop"])), gateway="gw-2").status == 200
    wrong = {
        "expired": jose.sign("k1", claims(exp=now - 200)),
        "no expiry": jose.sign("k1", {k: v for k, v in claims().items() if k != "exp"}),
        "not yet": jose.sign("k1", claims(nbf=now + 600)),
        "wrong audience": jose.sign("k1", claims(aud="somebody")),
        "no audience": jose.sign("k1", {k: v for k, v in claims().items() if k != "aud"}),
        "wrong issuer": jose.sign("k1", claims(iss="https://evil.example")),
        "no tenant": jose.sign("k1", claims(org={})),
        "a tenant that is no name": jose.sign("k1", claims(org={"id": 7})),
        "another key under a known id": jose.sign("k1", claims(), kid="k2"),
        "no key id among several": jose.ask(op="sign", key="k1", claims=claims())["token"],
        "alg none": jose.ask(op="unsecured", claims=claims())["token"],
        "a changed signature": jose.sign("k1", claims())[:-4] + "AAAA",
        "our own kind of token": token(server, "provision"),
    }
    for why, bad in wrong.items():
        a = provision(server, bad)
        assert a.status == 401 and a.json["code"] == "unauthorized", (why, a.text)
    # the public key as a shared secret
    pem = jose.key("k3")
    provider.jwks["keys"].append(pem["jwk"])
    for secret in (pem["pem"], pem["pem"].strip(), json.dumps(pem["jwk"])):
        forged = jose.ask(op="hmac", secret=secret, claims=claims(), header={"kid": "k3"})["token"]
        assert provision(server, forged).status == 401
        forged = jose.ask(op="hmac", secret=secret, claims=claims(), header={"kid": "k1"})["token"]
        assert provision(server, forged).status == 401


def test_the_log_says_which_fault_a_token_has(make_bellhop, provider, jose):
    provider.jwks = {"keys": [jose.key("k1")["jwk"]]}
    server = make_bellhop(by_jwt(provider))
    jose.key("made-up")
    for says, bad in (("has expired (exp)", jose.sign("k1", claims(exp=int(time.time()) - 200))),
                      ("another audience (aud) than identity.audience", jose.sign("k1", claims(aud="somebody"))),
                      ("another issuer (iss) than identity.issuer", jose.sign("k1", claims(iss="https://evil.example"))),
                      ("an unknown key (kid)", jose.sign("made-up", claims())),
                      ("lacks the claim of identity.tenant_claim", jose.sign("k1", claims(org={})))):
        assert says not in server.log()
        wait_for(lambda: provision(server, bad).status == 401 and says in server.log(), every=0.2)  # the log has a limit


def test_keys_may_be_rotated_and_made_up_key_ids_do_not_flood_the_provider(make_bellhop, provider, jose):
    provider.jwks = {"keys": [jose.key("old")["jwk"]]}
    server = make_bellhop(by_jwt(provider))
    assert provision(server, jose.sign("old", claims())).status == 200
    assert len(provider.asked) == 1
    time.sleep(10.2)  # keys are not fetched again sooner
    provider.jwks = {"keys": [jose.key("new")["jwk"]]}
    jose.key("made-up")
    good, old = jose.sign("new", claims()), jose.sign("old", claims())
    made_up = [jose.sign("made-up", claims(), kid=f"k{i}") for i in range(20)]
    assert provision(server, good).status == 200
    began = time.monotonic()
    assert provision(server, old).status == 401
    for bearer in made_up:
        assert provision(server, bearer).status == 401
    assert len(provider.asked) <= 2 + (time.monotonic() - began) // 10


def test_a_provider_that_is_down_is_not_the_callers_fault(make_bellhop, provider, jose):
    provider.status = 500
    jose.key("k1")
    server = make_bellhop(by_jwt(provider))
    a = provision(server, jose.sign("k1", claims()))
    assert a.status == 503 and a.json["code"] == "identity_unavailable"


def test_a_public_key_may_be_pinned(make_bellhop, provider, jose, tmp_path):
    (tmp_path / "id.pem").write_text(jose.key("k1")["pem"])
    server = make_bellhop(by_jwt(provider, f"public_key: {tmp_path}/id.pem"))
    assert provision(server, jose.sign("k1", claims())).status == 200
    jose.key("k2")
    assert provision(server, jose.sign("k2", claims())).status == 401
    assert provider.asked == []


def test_a_token_for_an_agent_manages_that_instance_and_no_other(make_bellhop, provider, jose):
    provider.jwks = {"keys": [jose.key("k1")["jwk"]]}
    server = make_bellhop(by_jwt(provider))
    server.add(id="gw-a", tenant="acme", instance="agent-1")
    server.add(id="gw-b", tenant="zorg", instance="agent-1")
    server.add(id="gw-c", tenant="zorg", instance="agent-2")

    def manage(**more):
        signed = jose.sign("k1", claims(**{"aud": "agent:agent-1", **more}))
        return server.post("/manage/principal", {"mode": "any", "instanceId": "agent-2"},
                           headers={"Authorization": f"Bearer {signed}"}).status

    assert manage() == 200
    assert [(g["tenant"], g["instance"]) for g in grants(server, "principals")] == [("acme", "agent-1")]
    assert manage(org={}) == 401                    # two tenants have an agent-1: it must say which
    assert manage(org={}, aud="agent:agent-2") == 200  # one has an agent-2
    assert manage(aud="agent:agent-2") == 401       # which is not acme's
    assert manage(aud="agent:nobody") == 401
    assert manage(aud=["agent:agent-1", "agent:agent-2"]) == 401
    assert manage(aud="agent:") == 401
    assert manage(aud="bellhop") == 401
    assert manage(exp=int(time.time()) - 300) == 401
    signed = jose.sign("k1", claims(aud="agent:agent-1"))
    state = server.get("/manage/instance", headers={"Authorization": f"Bearer {signed}"}).json
    assert (state["tenant"], state["instanceId"], state["gatewayId"]) == ("acme", "agent-1", "gw-a")
    assert provision(server, signed).status == 401  # it speaks for an agent, not for a caller


def test_a_token_for_an_agent_opens_its_socket_and_no_other(make_bellhop, provider, jose, dial):
    """Management and upgrade share their ways in; a JWT that is not accepted is 401, never 4401."""
    provider.jwks = {"keys": [jose.key("k1")["jwk"]]}
    server = make_bellhop(by_jwt(provider))
    server.add(id="gw-a", tenant="acme", instance="agent-1")
    server.add(id="gw-b", tenant="zorg", instance="agent-1")
    jose.key("k2")

    def dials(key="k1", **more):
        signed = jose.sign(key, claims(**{"aud": "agent:agent-1", **more}))
        try:
            return Gateway(server.url, token=signed)
        except Refused as e:
            return e.status

    gateway = dials()
    server.write("hello")
    assert gateway.hear("hello")["event"]["text"] == "hello"
    assert server.instance("agent-1")["tenant"] == "acme" and server.instance("agent-1")["state"] == "live"
    gateway.close()
    assert dials(org={}) == 401                    # two tenants have an agent-1: it must say which
    assert dials(aud="agent:agent-2") == 401       # nobody has that instance
    assert dials(aud="bellhop") == 401             # it is for a caller, not for an agent
    assert dials(exp=int(time.time()) - 300) == 401
    assert dials(key="k2") == 401                  # signed by somebody else
    for reason in ("no gateway has the instance", "names no agent", "has expired", "unknown key"):
        wait_for(lambda: reason in server.log())  # each fault is logged as what it is
    for forged in ("a.b.c", "..", "eyJhbGciOiJub25lIn0.e30."):
        try:
            Gateway(server.url, token=forged)
            raise AssertionError(forged)
        except Refused as e:
            assert e.status == 401
    server.cli("gateway", "revoke", "gw-a")
    assert dials() == 401


def test_without_keys_a_jwt_is_401_at_the_socket_too(bellhop):
    try:
        Gateway(bellhop.url, token="eyJhbGciOiJSUzI1NiJ9.e30.c2ln")
        raise AssertionError("let in")
    except Refused as e:
        assert e.status == 401


def test_a_display_name_is_kept_and_shown(bellhop):
    me = token(bellhop, "provision")
    assert provision(bellhop, me, instanceId="agent-1", displayName="Ann's helper \u2603").status == 200
    bellhop.restart()

    def shown():
        gateways = json.loads(bellhop.cli("gateway", "list", "--json").stdout)
        return gateways[0]["displayName"]

    assert shown() == "Ann's helper \u2603"
    assert provision(bellhop, me, instanceId="agent-1").status == 200  # not said: it stays
    assert shown() == "Ann's helper \u2603"
    for odd in ("two\nlines", "x" * 300, "", 5):
        assert provision(bellhop, me, instanceId="agent-1", displayName=odd).status == 200
    assert shown() == "Ann's helper \u2603"


def test_an_account_server_may_vouch(make_bellhop, provider):
    provider.accounts = {"good": {"org": {"id": "acme"}}, "odd": {"org": 5}}
    server = make_bellhop(CONFIG + f"identity: {{{{kind: introspect, url: {provider.url}/account, tenant_field: org.id}}}}\n")
    assert provision(server, "good").json["tenant"] == "acme"
    assert provision(server, "good", gateway="gw-2").json["tenant"] == "acme"
    assert provider.asked == ["/account"]  # believed for a minute
    assert provision(server, "bad").status == 401
    assert provision(server, "odd").status == 401
    provider.close()
    assert provision(server, "another").status == 503
    assert provision(server, "good").status == 200


def test_callers_that_nobody_knows_are_not_asked_about_without_end(make_bellhop, provider):
    provider.accounts = {"good": {"org": {"id": "acme"}}}
    server = make_bellhop(CONFIG + f"identity: {{{{kind: introspect, url: {provider.url}/account, tenant_field: org.id}}}}\n"
                          "webhooks: {{refused_per_source: 1}}\ntrusted_proxies: [127.0.0.1]\n")

    def ask(bearer, address):
        return ask_http("POST", server.url + "/relay/provision", {"gatewayId": "gw-1"},
                    {"Authorization": f"Bearer {bearer}", "X-Forwarded-For": address}).status

    made_up = [ask(f"made-up-{n}", "203.0.113.7") for n in range(30)]
    assert made_up[:10] == [401] * 10 and made_up[-1] == 429
    assert len(provider.asked) < 25
    assert ask("good", "203.0.113.8") == 200


def test_an_identity_that_cannot_work_stops_the_start(make_bellhop, provider):
    for text, said in (("{{kind: jwt, jwks_url: http://x/}}", "identity.issuer"), ("{{kind: jwt}}", "identity.jwks_url"),
                       ("{{kind: introspect}}", "identity.url"),
                       ("{{kind: jwt, issuer: i, audience: a, public_key: /nowhere}}", "identity.public_key")):
        server = make_bellhop(CONFIG + f"identity: {text}\n", start=False)
        done = server.cli("serve", check=False)
        assert done.returncode != 0 and said in done.stderr, (text, done.stderr)


def test_revocation_is_immediate(bellhop, dial):
    me = token(bellhop, "provision")
    c = credential(bellhop, provision(bellhop, me))
    gateway = dial(bellhop, c)
    bellhop.cli("gateway", "revoke", "gw-1")
    assert gateway.wait_closed()[0] == 4401
    assert dial(bellhop, c, hello=None).wait_closed()[0] == 4401
