"""docs/contract.md is pinned: a constant changed in the source makes the test of the page fail, and what the page says in
sentences is what a running server does."""
import json
import re
import shlex
import subprocess

import pytest

from conftest import BUILD, CONFIG, ROOT, wait_for
from test_enroll import ask, credential, enroll, provision, token
from test_media import download, upload

PAGE = (ROOT / "docs" / "contract.md").read_text()
MIB = 1 << 20


def rows(heading):
    """The rows of the table under @heading, as lists of cells."""
    table = PAGE.split(f"\n{heading}\n", 1)[1].split("|---", 1)[1].split("\n\n", 1)[0].splitlines()[1:]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in table]


def limit(name):
    return next(int(row[1]) for row in rows("## Limits and timers") if row[0] == name)


# ---- a change of the source is noticed ----


def command(target, source):
    """How the build compiles @source for @target, or links it; as words."""
    lines = subprocess.run(["ninja", "-C", BUILD, "-t", "commands", target], text=True, capture_output=True, check=True).stdout
    found = [line for line in lines.splitlines() if (source in line if source else f"-o {target} " in line)]
    return shlex.split(found[-1].split(" && ")[0])


def rebuild(tmp, test, changed, sources):
    """The unit test @test with @changed (path below src -> text) in place of what is there."""
    for path, text in changed.items():
        (tmp / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp / path).write_text(text)
    objects = []
    for source in sources:
        mine = tmp / source
        target = "libbellhop.a" if not source.startswith("tests/") else test
        words = command(target, source if source.startswith("tests/") else f"src/{source}")
        words = words[:words.index("-MD")]
        objects.append(str(tmp / source.replace("/", "_")) + ".o")
        where = str(mine) if mine.exists() else str(ROOT / ("" if source.startswith("tests/") else "src") / source)
        at = next(i for i, w in enumerate(words) if w.startswith("-I"))
        subprocess.run([*words[:at], f"-I{tmp}", *words[at:], "-O0", "-o", objects[-1], "-c", where], cwd=BUILD, check=True)
    words = command(test, None)
    out = words.index("-o") + 1
    words[out] = str(tmp / "test")
    unit = sources[0].removeprefix("tests/unit/").removesuffix(".c").replace("/", "_")
    rest = [w for w in words[out + 1:] if not w.endswith(f"/{unit}.c.o")]  # the test's own object is compiled anew
    subprocess.run([*words[:out + 1], *objects, *rest], cwd=BUILD, check=True)
    return subprocess.run([tmp / "test", unit], text=True, capture_output=True)


DOC, WHERE = "tests/unit/test_core", "tests/unit/test_platform"
DOC_SOURCES = ["tests/unit/core/test_contract_doc.c", "core/contract.c"]


@pytest.mark.parametrize("path, was, becomes, complaint, test, sources", [
    ("core/contract.h", "", "", None, DOC, DOC_SOURCES),
    ("core/contract.h", "CONTRACT_WINDOW 8", "CONTRACT_WINDOW 9", "the page says", DOC, DOC_SOURCES),
    ("core/contract.h", "CONTRACT_ACK_PATIENCE_MS 90000", "CONTRACT_ACK_PATIENCE_MS 60000", "the page says", DOC, DOC_SOURCES),
    ("core/contract.h", "CLOSE_CODE_RESTART = 1012", "CLOSE_CODE_RESTART = 1011", "the page says", DOC, DOC_SOURCES),
    ("core/descriptor.h", "CONTRACT_VERSION 1", "CONTRACT_VERSION 2", "the page says", DOC, DOC_SOURCES),
    ("core/frame.c", '"bodyB64"', '"body64"', "written but not on the page", DOC, [*DOC_SOURCES, "core/frame.c"]),
    ("platform/telegram/normalize.c", 'STR("forum")', 'STR("group")', "the page says", WHERE,
     ["tests/unit/platform/test_where.c", "platform/telegram/normalize.c"]),
], ids=["nothing", "a limit", "a timer", "a close code", "the version", "the passthrough object", "a discriminator"])
def test_a_constant_changed_in_the_source_fails_the_page(path, was, becomes, complaint, test, sources, tmp_path):
    text = (ROOT / "src" / path).read_text()
    assert was in text
    done = rebuild(tmp_path, test, {path: text.replace(was, becomes)}, sources)
    if complaint is None:
        assert done.returncode == 0, done.stdout + done.stderr
    else:
        assert done.returncode != 0 and complaint in done.stdout + done.stderr, done.stdout + done.stderr


# ---- what the sentences say ----


def hello(n):
    """A hello of exactly @n bytes, its newline not counted."""
    start = '{"type":"hello","platform":"web","botId":"lobby","x":"'
    return start + "x" * (n - len(start) - 2) + '"}'


def test_a_message_and_a_line_may_be_as_long_as_the_page_says(bellhop, dial):
    size = limit("max_frame")
    assert size == MIB and "1009" in [row[0] for row in rows("## Close codes")]
    c = bellhop.add()
    gateway = dial(bellhop, c)
    gateway.send_raw(hello(size - 1) + "\n")
    gateway.next("descriptor")
    for part in (hello(size)[:700_000], hello(size)[700_000:], "\n"):  # a line of the whole size, in several messages
        gateway.send_raw(part)
    gateway.next("descriptor")
    gateway.send_raw("x" * (size + 1))
    assert gateway.wait_closed()[0] == 1009
    gateway = dial(bellhop, c)
    for part in ("x" * 700_000, "x" * (size - 700_000 + 1)):  # closed at once: its end need not come
        gateway.send_raw(part)
    assert gateway.wait_closed()[0] == 1009


def test_after_going_idle_ack_nothing_is_delivered_and_results_still_come(bellhop, dial):
    gateway = dial(bellhop, bellhop.add())
    bellhop.write("one")
    chat = gateway.hear("one")["event"]["source"]["chat_id"]
    gateway.send({"type": "going_idle"})
    gateway.next("going_idle_ack")
    assert bellhop.write("two") == 200
    assert gateway.quiet("inbound", 0.5)
    assert gateway.act(op="send", chat_id=chat, content="late", reply_to=None, metadata={})["success"]
    gateway.send({"type": "hello", "platform": "web", "botId": "lobby"})
    gateway.hear("two")


def test_a_delivery_is_parked_when_so_many_sockets_were_lost_with_it(bellhop, dial):
    c, attempts = bellhop.add(), limit("max_attempts")
    bellhop.write("poison")
    for n in range(attempts):
        assert bellhop.instance(c.id) is None or bellhop.instance(c.id)["parked"] == 0, f"parked after {n}"
        gateway = dial(bellhop, c, ack=False)
        gateway.hear("poison")
        gateway.cut()
        wait_for(lambda: bellhop.instance(c.id)["state"] != "live")
    wait_for(lambda: bellhop.instance(c.id)["parked"] == 1)
    gateway = dial(bellhop, c)
    assert gateway.quiet("inbound")


def test_a_relay_identity_without_a_bot_is_the_platform_it_was_provisioned_for(bellhop, dial):
    c = bellhop.add()
    gateway = dial(bellhop, c, hello=("relay", ""))
    assert gateway.descriptor["platform"] == "web" and "send" in gateway.descriptor["supported_ops"]
    bellhop.write("one")
    chat = gateway.hear("one")["event"]["source"]["chat_id"]
    other = dial(bellhop, c, hello=("unheard-of", "x"))
    assert other.descriptor["platform"] == "relay"
    say = dict(op="send", chat_id=chat, content="hi", reply_to=None, metadata={})
    assert other.act(**say)["success"] and other.act(platform="relay", **say)["success"]
    assert not other.act(platform="elsewhere", bot="y", **say)["success"]


def test_a_gateway_provisioned_for_several_platforms_is_known_by_all_of_them(bellhop, dial):
    me = token(bellhop, "provision")
    c = credential(bellhop, provision(bellhop, me, platform="discord", botId="app1"))
    for platform, bot in (("telegram", "my_bot"), ("web", "lobby")):
        assert credential(bellhop, provision(bellhop, me, platform=platform, botId=bot)).secret == c.secret
    bellhop.restart()
    shown = json.loads(bellhop.cli("gateway", "list", "--json").stdout)[0]
    assert [(i["platform"], i["bot"]) for i in shown["identities"]] == [
        ("web", "lobby"), ("telegram", "my_bot"), ("discord", "app1")]
    # A relay identity without a bot has the ops of the one it named last.
    web = dial(bellhop, c, hello=("web", "lobby")).descriptor
    assert dial(bellhop, c, hello=("relay", "")).descriptor == web


def test_a_gateway_provisioned_as_relay_speaks_where_it_was_spoken_to(bellhop, dial):
    c = credential(bellhop, provision(bellhop, token(bellhop, "provision", tenant="acme"), platform="relay", botId=""))
    bellhop.cli("route", "add", "--platform", "web", "--key", "lobby", "--tenant", "acme", "--instance", c.id)
    gateway = dial(bellhop, c, hello=("relay", ""))
    assert gateway.descriptor["platform"] == "relay" and "send" in gateway.descriptor["supported_ops"]
    bellhop.write("one")
    chat = gateway.hear("one")["event"]["source"]["chat_id"]
    sent = gateway.act(op="send", chat_id=chat, content="hi", reply_to=None, metadata={})
    assert sent["success"]
    assert gateway.act(op="edit", chat_id=chat, message_id=sent["message_id"], content="hi!", metadata={})["success"]


def test_a_message_of_the_chat_page_is_where_the_page_says(bellhop, dial):
    gateway = dial(bellhop, bellhop.add())
    bellhop.write("one")
    source = gateway.hear("one")["event"]["source"]
    names = re.findall(r"\w+", PAGE.split("### Where a message is", 1)[1].split("\n| platform", 1)[1].split("\n")[0])
    row = next(r for r in rows("### Where a message is") if r[0] == "web")
    for name, said in zip(["where", *names[1:]], row[1:]):
        if name == "chat_type":
            assert source[name] == said
        elif name != "where":
            assert source.get(name) == {"chat id": source["chat_id"], "–": None}[said], name


# ---- the HTTP routes ----


def refusals(heading):
    return {(int(row[0]), row[1]) for row in rows(heading)}


def refusals_in(path, until=None):
    """Every refusal that the source of a route can write: a status and a word."""
    text, found = (ROOT / "src" / path).read_text(), set()
    for status, words in re.findall(r'[^0-9]([45][0-9][0-9]),\s*((?:err == \w+ \? "\w+" : )?"\w+")', text.split(until or "\0")[0]):
        found |= {(int(status), word) for word in re.findall(r'"(\w+)"', words)}
    return found


def test_enroll_and_provision_read_and_answer_what_the_page_says(bellhop):
    source = (ROOT / "src" / "http" / "enroll_route.c").read_text()
    fields = {row[0]: row[1:3] for row in rows("### Enroll and provision fields")}
    assert set(re.findall(r'json_(?:str|get)\(doc, "(\w+)"\)', source)) == set(fields)
    me = token(bellhop, "provision")
    full = {"gatewayId": "gw-1", "instanceId": "agent-1", "wakeUrl": "https://wake.example/1", "platform": "web", "botId": "lobby",
            "routeKeys": ["hall"], "displayName": "Ada"}
    assert set(full) | {"enrollmentToken"} == set(fields)
    kept = {"gatewayId": "id", "instanceId": "instance", "wakeUrl": "wakeUrl", "displayName": "displayName"}
    for at, path in enumerate(("/relay/enroll", "/relay/provision")):
        body = {**full, "gatewayId": f"gw-{at}", "instanceId": f"agent-{at}", "routeKeys": [f"hall-{at}"]}
        if at == 0:
            body["enrollmentToken"] = token(bellhop, "enroll")
        answer = ask(bellhop, path, me, body)
        assert answer.status == 200 and list(answer.json) == [row[0] for row in rows("### Enroll and provision answers")], answer.text
        said = next(g for g in json.loads(bellhop.cli("gateway", "list", "--json").stdout) if g["id"] == f"gw-{at}")
        assert {f: said[k] for f, k in kept.items()} == {f: body[f] for f in kept}
        assert (said.get("identities") or []) == ([] if fields["platform"][at] == "ignored" else [{"platform": "web", "bot": "lobby"}])
        assert answer.json["routeKeys"] == ([] if fields["routeKeys"][at] == "ignored" else body["routeKeys"])
        for field in full:  # what may be left out
            less = {**body, "gatewayId": f"less-{at}-{field}", "enrollmentToken": token(bellhop, "enroll") if at == 0 else ""}
            less.pop(field)
            assert (ask(bellhop, path, me, less).status == 200) == (fields[field][at] != "required"), (path, field)
    assert enroll(bellhop, me, None).status == 403 and fields["enrollmentToken"] == ["required", "ignored"]


def test_enroll_and_provision_refuse_as_the_page_says(make_bellhop):
    listed = refusals("### Enroll and provision refusals")
    assert refusals_in("http/enroll_route.c") == listed
    bellhop = make_bellhop(CONFIG + "limits: {{tenant_provisions: 1}}\n")
    me, once = token(bellhop, "provision"), token(bellhop, "enroll")
    assert enroll(bellhop, me, once).status == 200
    answers = [enroll(bellhop, me, once, gateway="gw-2"), enroll(bellhop, me, "x"), ask(bellhop, "/relay/provision", me, []),
               provision(bellhop, "nobody"), *(provision(bellhop, me) for _ in range(30))]
    seen = {(a.status, a.json["code"]) for a in answers if a.status != 200}
    assert all(a.json["error"] for a in answers if a.status != 200)
    assert seen == listed - {(503, "identity_unavailable")}  # test_enroll.py has a provider that is down


def test_files_are_answered_and_refused_as_the_page_says(bellhop):
    listed = refusals("### Media refusals")
    assert refusals_in("http/media_route.c", until="/* ---- files of the chat page") == listed
    mine, other = bellhop.add(tenant="acme"), bellhop.add(tenant="zorg")
    answer = json.loads(upload(bellhop, mine).content)
    assert list(answer) == [row[0] for row in rows("### Media answers")]
    assert download(bellhop, answer["id"], mine.token()).status == 200
    most = next(int(row[1]) for row in rows("### Limits of the routes") if row[0] == "media_bytes")
    refused = [download(bellhop, answer["id"], other.token()), download(bellhop, answer["id"]), upload(bellhop, mine, b""),
               upload(bellhop, mine, b"x" * (most + 1))]
    assert {(a.status, json.loads(a.content)["code"]) for a in refused} <= listed
    assert [a.status for a in refused] == [404, 401, 413, 413]
    assert upload(bellhop, mine, b"x" * most).status == 200
