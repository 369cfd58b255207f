"""The dashboard without a browser: who may sign in, what a session may do, and the live numbers."""
import json
import re
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from conftest import wait_for
from dashboard_rig import SECRET, Person, config, link_of
from relay import http


@pytest.fixture
def server(make_bellhop):
    return make_bellhop(config())


@pytest.fixture
def operator(server):
    p = Person(server)
    assert p.sign_in(token=SECRET).status == 200
    return p


# ---- signing in ----


def test_a_link_signs_in_once_and_only_on_this_machine(server):
    link = link_of(server)
    far = Person(server, headers={"X-Forwarded-For": "203.0.113.9"})
    assert far.sign_in(link=link).status == 403  # and the link is still good
    p = Person(server)
    assert p.sign_in(link=link).status == 200 and p.session()["signedIn"]
    again = Person(server).sign_in(link=link)
    assert again.status == 403 and "used already" in again.json["error"]
    assert Person(server).sign_in(link=link_of(server, "--ttl", "1ms")).status == 403  # too old
    assert server.cli("dashboard").stdout.startswith(f"{server.url}/dashboard#link=")
    assert link not in server.log() and p.cookie.split("=")[1] not in server.log()


def test_the_cookie_is_out_of_reach_and_secure_behind_https(make_bellhop):
    server = make_bellhop(config("public_url: https://hop.example\n"))
    near, far = Person(server), Person(server, headers={"X-Forwarded-For": "203.0.113.9", "Host": "hop.example"})
    assert near.sign_in(link=link_of(server)).status == 200
    words = near.set_cookie.split("; ")
    assert {"HttpOnly", "SameSite=Strict", "Path=/dashboard"} <= set(words) and "Secure" not in words
    assert far.sign_in(token=SECRET).status == 200 and far.session()["signedIn"]
    assert far.set_cookie.startswith("__Host-") and {"HttpOnly", "SameSite=Strict", "Path=/", "Secure"} <= set(far.set_cookie.split("; "))


def test_a_session_is_never_the_one_that_somebody_prepared(server, operator):
    chosen = Person(server, cookie="bellhop_dashboard=" + "A" * 43)
    assert not chosen.session()["signedIn"]
    chosen.sign_in(token=SECRET)
    assert "A" * 43 not in chosen.cookie and chosen.session()["signedIn"]
    victim = Person(server, cookie=operator.cookie)  # signs in over another session: that one ends
    assert victim.sign_in(token=SECRET).status == 200
    assert victim.cookie != operator.cookie and victim.session()["signedIn"] and not operator.session()["signedIn"]


def test_wrong_tokens_are_limited_and_links_and_keys_still_work(server):
    p, good = Person(server), Person(server)
    key = server.cli("token", "dashboard", "--tenant", "acme").stdout.strip()
    assert [p.sign_in(token=f"guess {i}").status for i in range(8)] == [403] * 5 + [429] * 3
    assert good.sign_in(token=SECRET).status == 429  # nobody learns that it was the right one
    assert good.sign_in(link=link_of(server)).status == 200
    assert Person(server).sign_in(token=key).status == 200  # nobody guesses it, so strangers lock nobody out
    assert Person(server).sign_in(token=key[:-1] + "x").status == 429
    assert Person(server, headers={"X-Forwarded-For": "203.0.113.9"}).sign_in(token="").status in (403, 429)
    assert "guess" not in server.log() and "sign-in refused" in server.log()


def test_a_session_ends_with_its_credential(make_bellhop):
    text = config()
    server = make_bellhop(text)
    by_token, by_key = Person(server), Person(server)
    by_token.sign_in(token=SECRET)
    key = server.cli("token", "dashboard", "--read-only").stdout.strip()
    assert by_key.sign_in(token=key).status == 200 and by_key.session()["readOnly"]
    stream = by_key.events()
    stream.first("tick")
    mine = next(k for k in json.loads(server.cli("token", "list", "--json").stdout) if k["kind"] == "dashboard")
    with ThreadPoolExecutor() as pool:  # what a call waits for is not told to a revoked key either
        trace, began = pool.submit(by_key.ask, "trace", {"person": "nobody", "wait": 20000}), time.monotonic()
        wait_for(lambda: time.monotonic() - began > 0.5)
        server.cli("token", "revoke", mine["id"])
        assert trace.result().status != 200 and time.monotonic() - began < 15
    stream.first("over")
    wait_for(lambda: stream.over)
    assert not by_key.session()["signedIn"]
    server.config.write_text(text.replace(SECRET, "another-token").format(state=server.state))
    by_token.call("reload")
    assert by_token.ask("status", {}).status == 401 and Person(server).sign_in(token=SECRET).status == 403
    again = Person(server)
    assert again.sign_in(token="another-token").status == 200
    assert again.ask("signout", {}).status == 200 and again.ask("status", {}).status == 401


def test_a_page_may_revoke_the_key_that_it_signed_in_with(server):
    made = server.cli("token", "dashboard").stdout.strip()
    person = Person(server)
    assert person.sign_in(token=made).status == 200
    mine = [k for k in json.loads(server.cli("token", "list", "--json").stdout) if k["kind"] == "dashboard"][-1]
    assert person.ask("revokeToken", {"id": mine["id"]}).status == 200
    assert not person.session()["signedIn"] and server.cli("status").returncode == 0


def test_there_are_at_most_so_many_sessions(server):
    people = [Person(server) for _ in range(66)]
    for p in people:
        assert p.sign_in(token=SECRET).status == 200
    assert [p.session()["signedIn"] for p in people[:3]] == [False, False, True] and people[-1].session()["signedIn"]


def test_a_tenant_signs_out_nobody_else_and_closes_nobody_elses_page(server, operator):
    other, mine = (server.cli("token", "dashboard", "--tenant", t).stdout.strip() for t in ("globex", "acme"))
    neighbour, people = Person(server), [Person(server) for _ in range(64)]
    assert neighbour.sign_in(token=other).status == 200
    live = operator.events()
    for p in people:
        assert p.sign_in(token=mine).status == 200
    assert operator.session()["signedIn"] and neighbour.session()["signedIn"] and not live.over
    assert [p.session()["signedIn"] for p in people[:3]] == [False, False, True]
    pages = [people[2 + i // 4].events() for i in range(63)]
    with pytest.raises(urllib.error.HTTPError, match="429"):
        people[20].events()  # its tenant has the most
    theirs = neighbour.events()  # one of the tenant's pages makes room
    theirs.first("tick")
    wait_for(lambda: sum(s.over for s in pages) == 1)
    assert not live.over
    for s in [live, theirs, *pages]:
        s.close()


def test_strangers_who_open_chat_pages_keep_nobody_from_the_dashboard(make_bellhop):
    server = make_bellhop(config("limits: {{streams: 2}}\n"))
    strangers = [urllib.request.urlopen(urllib.request.Request(f"{server.url}/chat/lobby/api/events", headers={
        "X-Bellhop-Visitor": f"a-visitor-of-many-{i:04}"}), timeout=60) for i in range(2)]
    p = Person(server)
    assert p.sign_in(token=SECRET).status == 200
    p.events().first("tick")
    for s in strangers:
        s.close()


# ---- requests that others make ----


def test_requests_of_other_sites_are_refused(server, operator):
    change = {"platform": "web", "key": "lobby", "tenant": "evil"}
    for headers, status in (({"X-Bellhop-Csrf": None}, 403), ({"X-Bellhop-Csrf": "A" * 43}, 403),
                            ({"Origin": "https://evil.example"}, 403), ({"Origin": "null"}, 403), ({"Sec-Fetch-Site": "cross-site"}, 403),
                            ({"Sec-Fetch-Site": "same-site"}, 403), ({"Content-Type": "text/plain"}, 415),
                            ({"Content-Type": "application/x-www-form-urlencoded"}, 415)):
        answer = operator.ask("addRoute", change, **headers)
        assert answer.status == status, (headers, answer.text)
    assert http("GET", f"{server.url}/dashboard/api/addRoute?platform=web&key=lobby&tenant=evil", headers={"Cookie": operator.cookie}).status == 405
    assert operator.ask("events", **{"Sec-Fetch-Site": "cross-site"}).status == 403
    assert Person(server).ask("signin", {"token": SECRET}, Origin="https://evil.example").status == 403
    assert operator.call("listRoutes")["routes"] == []
    operator.call("addRoute", **change)
    assert len(operator.call("listRoutes")["routes"]) == 1


def test_the_page_runs_nothing_but_itself_and_in_no_frame(server):
    script = re.search('src="(/dashboard/assets/[0-9a-f]{12}/start.js)"', server.get("/dashboard").text)[1]
    for path in ("/dashboard", script):
        answer = server.get(path)
        csp = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in csp and "frame-ancestors 'none'" in csp and "require-trusted-types-for 'script'" in csp
        assert "unsafe" not in csp and answer.headers["X-Frame-Options"] == "DENY" and answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "<script>" not in server.get("/dashboard").text and " style=" not in server.get("/dashboard").text
    for path in ("index.html", "app.js", "x/index.html", "../front.h", "x/y/app.js"):
        assert server.get("/dashboard/assets/" + path).status == 404
    assert server.get("/dashboard").headers["Cache-Control"] == "no-cache" and "immutable" in server.get(script).headers["Cache-Control"]
    assert server.get("/dashboard/assets/older/app.js").headers["Cache-Control"] == "no-cache"  # a page from before an upgrade
    assert server.post("/dashboard", {}).status == 405 and server.get("/dashboard/nothing").status == 404
    assert server.get("/dashboard", headers={"If-None-Match": server.get("/dashboard").headers["ETag"]}).status == 304


def test_the_front_page_leads_to_the_chat_else_to_the_dashboard(server, make_bellhop):
    assert server.get("/").headers["Location"] == "/chat"
    bare = make_bellhop("listen: 127.0.0.1:0\nstate_dir: {state}\nplatforms: []\n")
    assert bare.get("/").headers["Location"] == "/dashboard" and bare.get("/dashboard").status == 200
    assert Person(bare).sign_in(token="").status == 403  # no token is configured, so none is right
    assert Person(bare).sign_in(link=link_of(bare)).status == 200


# ---- what a session may do ----


def test_nobody_else_may_call_anything(server):
    stranger = Person(server)
    for op in ("status", "listGateways", "addGateway", "look"):
        assert stranger.ask(op, {}).status == 401
    assert stranger.ask("events").status == 401 and "ops" not in stranger.session()


def test_a_read_only_session_changes_nothing(server):
    whole, p = Person(server), Person(server)
    whole.sign_in(token=SECRET)
    p.sign_in(link=link_of(server, "--read-only"))
    ops, less = whole.session()["ops"], p.session()["ops"]
    assert {"status", "listGateways", "why", "showMailbox"} <= set(less) < set(ops)
    changes = [op for op in ops if op not in less]
    assert {"addGateway", "revokeGateway", "purgeMailbox", "linkPerson", "makeToken", "reload", "erase", "drain", "deprovision"} <= set(changes)
    for op in changes:
        assert p.ask(op, {"tenant": "t", "instance": "i", "id": "x"}).status == 403, op
    assert p.call("listGateways")["gateways"] == []
    assert whole.ask("listSkills", {}).status == 404 and whole.ask("deliver", {}).status == 403  # not the operator's


def test_a_tenants_session_sees_nothing_of_others(server, dial):
    """Whatever it asks for, and whomever it names."""
    mine, other = server.add("--instance", "desk", tenant="acme"), server.add("--instance", "vault", tenant="globex", bot="attic")
    agent = dial(server, mine)
    server.write("to acme")
    agent.hear("to acme")
    server.write("secret-of-globex", bot="attic", visitor="globex-visitor-0001")
    server.cli("link", "--tenant", "globex", "--instance", "vault", "--platform", "web", "--user", "globex-person", "--bot", "attic", check=False)
    for who in (Person(server), Person(server)):
        token = server.cli("token", "dashboard", "--tenant", "acme").stdout.strip()
        assert who.sign_in(token=token).status == 200
    p = who
    session = p.session()
    assert session["tenant"] == "acme" and not {"listTokens", "makeToken", "addGateway", "linkPerson", "erase", "reload", "flow"} & set(session["ops"])
    assert [g["id"] for g in p.call("listGateways")["gateways"]] == [mine.id]
    assert [i["instance"] for i in p.call("status")["instances"]] == ["desk"] and "store" not in p.call("status")
    asked = 0
    for op in session["ops"]:
        if op == "deprovision":
            continue
        for args in ({}, {"tenant": "globex"}, {"tenant": "globex", "instance": "vault"}, {"tenant": "", "instance": "vault"},
                     {"instance": "vault", "bodies": "1"}, {"platform": "web"}, {"tenant": "globex", "all": True}):
            text = p.ask(op, args).text
            assert "globex" not in text and other.id not in text and "secret-of" not in text, (op, args, text)
            asked += 1
    assert asked > 50 and server.instance("vault")["entries"] == 1
    for op in ("listTokens", "addGateway", "showAgents", "erase", "reload"):
        assert p.ask(op, {"tenant": "acme"}).status == 403
    assert p.ask("deprovision", {"tenant": "globex", "instance": "vault"}).status == 404
    stream = p.events()
    stream.look(sort="name")
    rows = stream.first("rows", lambda d: d["rows"])
    assert rows["total"] == 1 and [r["instance"] for r in rows["rows"]] == ["desk"]
    stream.first("bots")
    stream.close()
    assert "globex" not in json.dumps(stream.got) and all(set(t) == {"at"} for t in stream.all("tick"))


def test_an_erased_tenants_pages_are_signed_out(server):
    server.add(tenant="acme")
    link, other = link_of(server, "--tenant", "acme"), link_of(server, "--tenant", "globex")
    p, late = Person(server), Person(server)
    assert p.sign_in(link=link).status == 200
    unused = link_of(server, "--tenant", "acme")
    server.cli("erase", "--tenant", "acme", "--yes")
    assert not p.session()["signedIn"] and late.sign_in(link=unused).status == 403
    assert late.sign_in(link=other).status == 200


def test_a_tenants_cursor_names_nobody_and_only_its_own_leads_anywhere(server, operator):
    server.add(id="vault-1", tenant="globex", bot="attic")
    for i in range(501):
        operator.call("addGateway", tenant="acme", id=f"desk-{i:03}")
    p, other = Person(server), Person(server)
    for who, tenant in ((p, "acme"), (other, "globex")):
        assert who.sign_in(token=server.cli("token", "dashboard", "--tenant", tenant).stdout.strip()).status == 200
    for op, rows in (("listGateways", "gateways"), ("status", "instances")):
        first = p.call(op)
        assert "desk" not in first["next"] and "acme" not in first["next"]
        second = p.call(op, after=first["next"])
        assert len(first[rows] + second[rows]) == 501 and "next" not in second
        assert other.ask(op, {"after": first["next"]}).status == 410
    route, = operator.call("listRoutes")["routes"]
    taken = "".join(f"{route[part] or ''}\n" for part in ("platform", "key", "tenant", "instance"))
    free = taken.replace("globex", "zorg")
    assert [operator.ask("listRoutes", {"after": after}).status for after in (taken, free)] == [200, 410]
    assert len({p.ask("listRoutes", {"after": after}).status for after in (taken, free)}) == 1  # who has a route there is not told
    assert len({p.ask("listGateways", {"after": after}).status for after in ("vault-1", "vault-2")}) == 1


def test_a_tenants_page_that_calls_in_a_loop_is_told_to_wait_and_others_are_not(server, operator):
    pages = {}
    for tenant in ("acme", "globex"):
        pages[tenant] = Person(server)
        assert pages[tenant].sign_in(token=server.cli("token", "dashboard", "--tenant", tenant).stdout.strip()).status == 200
    for _ in range(3000):
        answer = pages["acme"].ask("listGateways", {})
        if answer.status != 200:
            break
    assert answer.status == 429 and answer.headers["Retry-After"] == "1"
    assert pages["globex"].ask("listGateways", {}).status == 200 and operator.ask("listGateways", {}).status == 200


# ---- live numbers ----


def test_a_page_gets_the_rows_that_it_shows_and_later_only_changes(server, operator, dial):
    credentials = [server.add("--instance", f"agent-{i:02}", tenant="t", bot="attic" if i else "lobby") for i in range(30)]
    agent = dial(server, credentials[0])
    stream = operator.events()
    stream.look(sort="name", count=10)
    first = stream.first("rows", lambda d: len(d["rows"]) == 10)
    assert first["total"] == first["found"] == 30 and [r["instance"] for r in first["rows"]] == [f"agent-{i:02}" for i in range(10)]
    assert first["tally"]["live"] == 1 and first["tally"]["never"] == 29
    mark = len(stream.got)
    server.write("hello")
    agent.hear("hello")
    later = wait_for(lambda: [r for k, d in stream.got[mark:] if k in ("rows", "changes") for r in d["rows"]])
    assert {r["instance"] for r in later} == {"agent-00"}  # nine others did not change
    assert all("order" not in d for k, d in stream.got[mark:] if k == "rows")
    stream.look(sort="name", offset=20, count=10)
    stream.first("rows", lambda d: [r["instance"] for r in d["rows"]] == [f"agent-{i:02}" for i in range(20, 30)])
    stream.look(filter="AGENT-07", count=10)
    assert stream.first("rows", lambda d: d["found"] == 1)["rows"][0]["instance"] == "agent-07"
    stream.look(state="live", count=10)
    assert stream.first("rows", lambda d: d["found"] == 1 and d["rows"][0]["state"] == "live")["rows"][0]["instance"] == "agent-00"
    server.cli("gateway", "revoke", credentials[7].id)
    stream.look(sort="name", count=100)
    stream.first("rows", lambda d: d["total"] == 29)
    ticks = stream.all("tick")
    assert ticks[-1]["counters"]["accepted"] >= 1 and ticks[-1]["store"]["healthy"]
    assert [b["bot"] for b in stream.first("bots")["platforms"]] == ["lobby", "attic"]
    stream.close()


def test_the_fifth_page_of_a_session_ends_the_first(operator):
    streams = [operator.events() for _ in range(5)]
    streams[0].first("rest")
    wait_for(lambda: streams[0].over)
    assert not any(s.over for s in streams[1:])
    for s in streams:
        s.close()


def test_many_instances_are_sorted_without_sending_them(server, operator):
    """The order of a window is the same as that of the whole list, in the middle of it too."""
    for i in range(300):
        operator.call("addGateway", tenant=f"t{(i * 7) % 10}", id=f"g{(i * 101) % 997:03}")
    names = sorted((g["tenant"], g["instance"]) for g in operator.call("listGateways")["gateways"])
    stream = operator.events()
    stream.look(sort="name", offset=137, count=20)
    got = stream.first("rows", lambda d: len(d["rows"]) == 20)
    rows = {r["n"]: (r["tenant"], r["instance"]) for r in got["rows"]}
    assert [rows[n] for n in got["order"]] == names[137:157] and got["found"] == 300
    stream.close()
