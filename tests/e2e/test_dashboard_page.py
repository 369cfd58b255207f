"""The dashboard in a real browser: every section, every action, texts of strangers, phones, keyboards, axe."""
import json
import pathlib
import sys
import time

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from conftest import wait_for
from dashboard_rig import SECRET, Desk, Person, config
from relay import Gateway
from web_rig import wait_for as wait_page

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "sim"))
from telegram import TelegramSim  # noqa: E402

BOT = "777000:AAsecret-token_of-the-bot"
EVIL = "<img/src=x/onerror=window.hit=1>"
SECTIONS = ["now", "why", "why?part=trace", "why?part=slow", "waiting", "who?list=pairing", "who?list=links", "who?list=places",
            "who?list=rules", "who?list=routes", "who?list=gateways", "who?list=agents", "who?list=keys", "system", "chat"]


@pytest.fixture
def server(make_bellhop):
    return make_bellhop(config())


@pytest.fixture
def open_desk():
    """open_desk(server, ...) -> a Desk. No browser may have anything to complain about."""
    desks = []

    def make(server, *args, **how):
        desks.append(Desk(server, *args, **how))
        return desks[-1]

    yield make
    try:
        for desk in desks:
            assert desk.complaints() == []
    finally:
        for desk in desks:
            desk.close()


@pytest.fixture
def telegram():
    sim = TelegramSim()
    sim.bot(BOT, "desk_bot")
    yield sim
    sim.close()


@pytest.fixture
def busy(make_bellhop, telegram, dial):
    """A server with names and texts as strangers choose them, parked mail and an outbox that waits."""
    more = f'  - {{{{platform: telegram, bot: desk_bot, token: "{BOT}", api_base: "{telegram.url}", mode: polling}}}}\n'
    server = make_bellhop(config(more))
    server.front = server.add("--instance", "front", tenant="acme")
    server.evil = server.add("--instance", EVIL, tenant=EVIL, bot="attic")
    server.tele = server.add("--instance", "phone", tenant="acme", platform="telegram", bot="desk_bot")
    good = dial(server, server.front)
    server.write("fine")
    good.hear("fine")
    wait_for(lambda: server.metric("deliveries_acked_total") == 1)
    good.close()
    visitor = {"X-Bellhop-Visitor": "evil-visitor-000001"}
    server.post("/chat/lobby/api/name", {"name": EVIL}, headers=visitor)
    server.write(EVIL + " parked", visitor="evil-visitor-000001")
    g = dial(server, server.front, ack=False)
    g.hear(EVIL + " parked")
    g.cut()
    wait_for(lambda: server.instance("front")["parked"] == 1)
    server.write(EVIL, bot="attic", visitor="evil-visitor-000001")
    telegram.person(5, EVIL)
    phone = server.phone = dial(server, server.tele, hello=("telegram", "desk_bot"))
    telegram.say(5, EVIL)
    phone.hear(EVIL)
    telegram.limit(5, 60, times=9)
    for i in range(3):
        phone.send({"type": "outbound", "requestId": f"r{i}", "action": {"op": "send", "chat_id": "5", "content": f"{EVIL} {i}", "metadata": {}}})
    wait_for(lambda: len(json.loads(server.cli("outbox", "list", "--json").stdout)) == 3)
    return server


def test_now_shows_bots_instances_and_the_flow(server, dial, open_desk):
    agent = dial(server, server.add("--instance", "front", tenant="acme"))
    desk = open_desk(server)
    assert "#link" not in desk.driver.current_url
    wait_page(lambda: desk.texts(".bot b") == ["lobby", "attic"])
    wait_page(lambda: "acme/front" in desk.texts(".row .name"))
    desk.says("All well")
    mark = desk.js("return document.querySelector('.curves .key b').textContent")
    end = time.monotonic() + 30
    while desk.find(".flow li")[0].text.split("\n")[1] in ("–/s", "0/s"):  # people write until the picture moves
        server.write("hello")
        agent.hear("hello")
        assert time.monotonic() < end
    assert mark == "–" or desk.js("return document.querySelector('.curves svg').getAttribute('aria-label')").startswith("Messages per second: in ")
    agent.sleep()
    wait_page(lambda: desk.texts(".row .chip") == ["asleep"])
    desk.press("acme/front")
    desk.says("The mailbox is empty.")
    desk.press("Close", "dialog[open]")
    urls = desk.js("return performance.getEntriesByType('resource').map((e) => e.name)")
    assert urls and all(u.startswith(server.url + "/dashboard/") for u in urls), urls
    assert sum(desk.js("return performance.getEntriesByType('resource').filter((e) => !e.name.includes('/api/')).map((e) => e.decodedBodySize)")) < 200 * 1024
    server.restart()  # the session is gone; the page says so
    desk.says("Your session is over. Sign in again.")
    desk.one("input[name=token]").send_keys(SECRET + Keys.ENTER)
    wait_page(lambda: "acme/front" in desk.texts(".row .name"))
    desk.press("Sign out", "header")
    desk.one("input[name=token]")
    assert desk.driver.get_cookies() == []
    desk.driver.get_log("browser")  # the restart, and a call without a session


def test_the_list_is_there_again_however_late_a_request_is(server, open_desk):
    server.add("--instance", "front", tenant="acme")
    desk = open_desk(server)
    assert desk.one(".curves svg text").text == "0" and desk.find(".curves svg text")[2].text == "1"  # nothing happened yet
    wait_page(lambda: "acme/front" in desk.texts(".row .name"))
    desk.js("""const send = window.fetch; window.late = 0;
        window.fetch = async (url, o) => {
          if (url.endsWith('/look') && JSON.parse(o.body).count === 0) { await new Promise((r) => setTimeout(r, 700)); window.late += 1; }
          return send(url, o);
        };""")
    desk.js("location.hash = '#why'; setTimeout(() => { location.hash = '#now'; }, 100)")
    wait_page(lambda: desk.js("return window.late") == 1)
    time.sleep(0.5)  # for the answer to the window that was left
    wait_page(lambda: "acme/front" in desk.texts(".row .name"))
    assert desk.one(".total").text == "1 instance"


def test_who_may_is_changed_and_changed_back(server, open_desk):
    server.cli("agent", "add", "robot", "--tenant", "acme", "--substrate", "webhook", "--url", "http://127.0.0.1:9/robot")
    desk = open_desk(server)
    desk.go("who?list=gateways")
    desk.press("Add")
    desk.fill(tenant="acme", id="gw1", instance="front", platform="web", bot="lobby")
    desk.agree("Add")
    secret = desk.secret()
    assert f"GATEWAY_RELAY_URL={server.url}\nGATEWAY_RELAY_ID=gw1\nGATEWAY_RELAY_SECRET=" in secret
    desk.press("Rotate gw1")
    desk.agree("Rotate")
    again = dict(line.split("=", 1) for line in desk.secret().split("\n"))["GATEWAY_RELAY_SECRET"]
    assert again not in secret
    Gateway(server.url, "gw1", again).close()
    desk.press("Wake URL of gw1")
    desk.fill(wakeUrl="http://127.0.0.1:9/wake")
    desk.agree("Set")
    desk.row("gw1", "http://127.0.0.1:9/wake")
    desk.undo("Set.")
    desk.gone("gw1", "http://127.0.0.1:9/wake")
    desk.press("Enrollment token")
    desk.fill(tenant="acme")
    desk.agree("Make")
    assert len(desk.secret()) > 40
    desk.go("who?list=links")
    desk.press("Link")
    desk.fill(tenant="acme", instance="front", platform="telegram", userId="ann7", bot="b1")
    desk.agree("Link")
    desk.press_in("Unlink", "ann7")
    desk.agree("Unlink")
    desk.gone("ann7")
    desk.undo("Unlinked.")
    desk.row("ann7", "acme/front", "b1")
    desk.press("Link")
    desk.fill(tenant="acme", instance="front")
    desk.agree("Link")
    assert desk.secret().startswith("/link ")
    desk.go("who?list=places")
    desk.press("Claim")
    desk.fill(tenant="acme", instance="front", platform="discord", guildId="g1", channelId="c1")
    desk.agree("Claim")
    desk.press_in("Release", "discord g1 c1")
    desk.gone("g1")
    desk.undo("Released.")
    desk.row("g1")
    desk.go("who?list=rules")
    desk.press("Set a principal")
    desk.fill(tenant="acme", instance="front", mode="allow-list", allow="1, 2")
    desk.agree("Set")
    desk.press_in("Change", "allow-list")
    desk.fill(mode="any")
    desk.agree("Set")
    desk.gone("allow-list")
    desk.undo("Set.")
    desk.row("allow-list", "1", "2")
    desk.press("Set a policy")
    desk.fill(tenant="acme", instance="front", platform="discord", requireAddress=True)
    desk.agree("Set")
    desk.row("discord", "yes")
    desk.press("Set an allowance")
    desk.fill(tenant="acme", instance="front", turns="5/day", reply="That was enough for today.")
    desk.agree("Set")
    desk.row("5/day", "person", "enough for today")
    desk.press_in("Remove", "5/day")
    desk.gone("5/day")
    desk.undo("Removed.")
    desk.row("5/day")
    desk.go("who?list=routes")
    desk.press("Add")
    desk.fill(platform="discord", key="guild9", tenant="acme")
    desk.agree("Add")
    desk.press_in("Remove", "guild9")
    desk.agree("Remove")
    desk.gone("guild9")
    desk.undo("Removed.")
    desk.row("guild9")
    desk.go("who?list=keys")
    desk.press("Make a key")
    desk.fill(kind="dashboard", tenant="acme", readOnly=True)
    desk.agree("Make")
    assert Person(server).sign_in(token=desk.secret()).status == 200
    desk.press_in("Revoke", "dashboard")
    desk.agree("Revoke")
    desk.gone("dashboard")
    desk.go("who?list=agents")
    desk.row("robot", "webhook")
    desk.press_in("Show", "robot")
    desk.says("http://127.0.0.1:9/robot")
    desk.press("Close", "dialog[open]")
    desk.press_in("Change", "robot")
    assert desk.one("dialog[open] textarea").get_attribute("value") == "url: http://127.0.0.1:9/robot"
    desk.fill(keys="url: http://127.0.0.1:9/other\nname: Robbie\ntimeout: 7s")
    desk.agree("Change")
    desk.row("robot", "Robbie", "/other")
    desk.undo("Changed.")
    desk.row("robot", "/robot")
    desk.gone("robot", "Robbie")
    desk.press_in("Remove", "robot")
    desk.agree("Remove")
    desk.gone("robot")
    desk.undo("Removed.")
    desk.row("robot", "webhook", "/robot")
    desk.press("Add")
    offered = desk.js("return [...document.querySelectorAll('select[name=substrate] option')].map((o) => o.value)")
    for substrate in offered:  # the server knows each
        said = server.cli("agent", "add", "try", "--tenant", "acme", "--substrate", substrate, "--unset", "x", check=False).stderr
        assert "substrate" not in said, (substrate, said)
    desk.fill(tenant="acme", id="spool", substrate="file", keys=f"dir: {server.state}")
    desk.agree("Add")
    desk.row("spool", "file")
    desk.undo("Added.")
    desk.gone("spool")
    desk.press("Add")
    desk.fill(tenant="acme", id="bad", keys="url: nowhere")
    desk.agree("Add")
    desk.says("start with http:// or https://")
    desk.driver.get_log("browser")  # the refusal
    desk.gone("bad")
    desk.go("who?list=gateways")
    desk.press("Revoke gw1")
    desk.agree("Revoke")
    desk.row("gw1", "revoked")


def test_people_who_wait_are_let_in_denied_and_blocked(make_bellhop, telegram, dial, open_desk):
    more = f'  - {{{{platform: telegram, bot: desk_bot, token: "{BOT}", api_base: "{telegram.url}", mode: polling}}}}\n'
    server = make_bellhop(config(more))
    phone = dial(server, server.add("--instance", "phone", tenant="acme", platform="telegram", bot="desk_bot", open=False), hello=("telegram", "desk_bot"))
    desk = open_desk(server)
    for id, name in ((5, "Ann"), (6, "Bob"), (7, EVIL)):
        telegram.person(id, name)
        telegram.say(id, "a private word", user={"id": id, "is_bot": False, "first_name": name})
    wait_for(lambda: server.metric('pairing_people{state="waiting"}') == 3)
    desk.go("who")
    for name in ("Ann", "Bob", EVIL):
        desk.row(name, "telegram desk_bot", "direct chat")
    assert "a private word" not in desk.text() and desk.find("main img") == [] and desk.js("return window.hit") is None
    desk.press(f"Block {EVIL}")
    desk.row(EVIL, "blocked")
    desk.undo("Blocked.")
    desk.press(f"Approve {EVIL}")
    assert EVIL in desk.one("dialog[open] h2").text and desk.js("return window.hit") is None
    desk.press("Cancel", "dialog[open]")
    desk.press("Deny Bob")
    desk.row("Bob", "denied")
    desk.press("Forget Bob")
    desk.agree("Forget")
    desk.gone("Bob")
    desk.press("Approve Ann")
    desk.fill(tenant="acme", instance="phone")
    desk.agree("Approve")
    desk.says("Ann is the owner of phone.")
    desk.gone("Ann")
    telegram.say(5, "at last", user={"id": 5, "is_bot": False, "first_name": "Ann"})
    phone.hear("at last")
    desk.undo("Approved.")
    wait_for(lambda: json.loads(server.cli("link", "list", "--json").stdout) == [])


def test_what_waits_is_shown_and_decided(busy, open_desk, telegram, dial):
    desk = open_desk(busy)
    desk.go("waiting")
    desk.press("Show")
    desk.says(EVIL + " parked")
    desk.press("Close", "dialog[open]")
    sections = desk.find("main section")
    parked, outbox = sections[0], sections[1]
    assert wait_page(lambda: outbox.find_elements(By.CSS_SELECTOR, "tbody tr"))
    for box in outbox.find_elements(By.CSS_SELECTOR, "tbody input")[1:]:
        box.click()
    desk.press("Drop", "main section:nth-of-type(2)")
    desk.agree("Drop")
    wait_page(lambda: len(outbox.find_elements(By.CSS_SELECTOR, "tbody tr")) == 1)
    parked.find_element(By.CSS_SELECTOR, "input[type=checkbox]").click()
    desk.press("Redrive", "main section:nth-of-type(1)")
    desk.says("Nothing is parked.")
    dial(busy, busy.front).hear(EVIL + " parked")
    desk.go("now")
    desk.press(f"{EVIL}/{EVIL}")
    desk.says("Waiting")
    desk.press("Delete all", "dialog[open]")
    desk.agree("Delete")
    desk.says("The mailbox is empty.")
    assert busy.instance(EVIL)["entries"] == 0


def test_why_a_message_went_where_now_and_later(server, dial, open_desk, tmp_path):
    """A search, a trace that is saved, what is slow, and the audit log of what the dashboard changed."""
    front = server.add("--instance", "front", tenant="acme")
    agent = dial(server, front)
    desk = open_desk(server)
    desk.driver.execute_cdp_cmd("Page.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    server.write("first")
    person = agent.hear("first")["event"]["source"]["user_id"]
    desk.go("why")
    desk.says("Received by acme/front")
    desk.one("main input[type=search]").send_keys(person + Keys.ENTER)
    wait_page(lambda: person in desk.text() and "acked" in desk.text())
    desk.go("why?part=trace")
    desk.one("input[name=what]").send_keys(person)
    desk.press("Start")
    end = time.monotonic() + 30
    while "Received by acme/front" not in desk.text():  # the trace has begun by one of them
        server.write("again")
        agent.hear("again")
        assert time.monotonic() < end
    desk.press("Stop")
    desk.press("Save to a file")
    saved = wait_for(lambda: [f for f in tmp_path.iterdir() if f.suffix == ".jsonl"])[0]
    records = [json.loads(line) for line in saved.read_text().splitlines()]
    assert {r["kind"] for r in records} >= {"event"} and all(r["event"]["userId"] == person for r in records if r["kind"] == "event")
    desk.go("why?part=slow")
    desk.row("acme/front")
    desk.go("who?list=routes")
    desk.press("Add")
    desk.fill(platform="discord", key="guild7", tenant="acme")
    desk.agree("Add")
    desk.row("guild7")
    desk.go("system")
    desk.row("addRoute", "127.0.0.1", "guild7")
    desk.press("Verify")
    desk.says("is unbroken")


def test_texts_of_strangers_stay_texts(busy, open_desk):
    """Names, messages, ids and instances that are markup: the page shows them and runs nothing."""
    desk = open_desk(busy)
    desk.driver.execute_cdp_cmd("Page.setBypassCSP", {"enabled": True})  # the page itself must be safe
    desk.driver.refresh()
    desk.one("#nav")
    seen = 0
    for section in [*SECTIONS, f"why?q={EVIL}", f"why?tenant={EVIL}&instance={EVIL}", "who?list=%3Cimg%3E"]:
        desk.go(section)
        seen += EVIL in desk.text()
        assert desk.find("main img") == [] and desk.js("return window.hit") is None, section
    assert seen >= 3
    desk.go("now")
    desk.press(f"{EVIL}/{EVIL}")
    desk.says(EVIL)
    desk.press("Close", "dialog[open]")
    desk.go("waiting")
    for button in desk.find("main td.actions button"):
        button.click()
        wait_page(lambda: EVIL in desk.one("dialog[open] pre").text)
        desk.press("Close", "dialog[open]")
    desk.go("chat")
    desk.one("input[name=text]").send_keys(EVIL + Keys.ENTER)
    wait_page(lambda: EVIL in str(desk.texts(".said")))
    assert desk.js("return window.hit") is None and desk.find("main img") == []


def test_a_name_of_a_file_stays_text(busy, dial, open_desk):
    name, visitor = "<img src=x onerror=window.hit=1>.png", {"X-Bellhop-Visitor": "evil-visitor-000001"}
    file = busy.post("/chat/lobby/api/file", b"a picture", headers={**visitor, "Content-Type": "image/png", "X-File-Name": name}).json
    assert busy.post("/chat/lobby/api/message", {"text": "", "client_id": "f1", "files": [file]}, headers=visitor).status == 200
    gateway = dial(busy, busy.front, ack=False)
    while not gateway.next("inbound")["event"].get("media"):
        pass
    gateway.cut()
    wait_for(lambda: busy.instance("front")["parked"] == 2)
    desk = open_desk(busy)
    desk.driver.execute_cdp_cmd("Page.setBypassCSP", {"enabled": True})  # the page itself must be safe
    desk.driver.refresh()
    desk.one("#nav")
    desk.go("waiting")
    wait_page(lambda: len(desk.find("main section:nth-of-type(1) td.actions button")) == 2)
    seen = ""
    for button in desk.find("main section:nth-of-type(1) td.actions button"):
        button.click()
        seen += wait_page(lambda: desk.one("dialog[open] pre").text)
        desk.press("Close", "dialog[open]")
    assert "onerror=window.hit=1>.png" in seen
    assert desk.find("dialog img, main img") == [] and desk.js("return window.hit") is None


def test_the_test_chat_talks_to_an_agent(server, dial, open_desk):
    agent = dial(server, server.add())
    desk = open_desk(server)
    desk.go("chat")
    desk.says("the agent is live")
    desk.one("input[name=text]").send_keys("Is there any mail?" + Keys.ENTER)
    chat = agent.hear("Is there any mail?")["event"]["source"]["chat_id"]
    assert agent.act(op="send", chat_id=chat, content="Two letters.", metadata={})["success"]
    wait_page(lambda: "Two letters." in str(desk.texts(".said.agent")))
    desk.press("New visitor")
    desk.says("Nothing was said yet.")


def test_the_test_chat_says_why_nobody_answers(server, open_desk):
    desk = open_desk(server)
    desk.go("chat")
    desk.says("no agent answers here")
    server.add("--id", "idle")
    desk.press("New visitor")
    desk.says("no agent has connected yet")
    theirs = open_desk(server, "--tenant", "acme")
    theirs.go("chat")
    theirs.says("none belongs to this tenant alone")


def test_long_names_push_nothing_out_of_sight(busy, open_desk):
    desk = open_desk(busy)
    for section in SECTIONS:
        desk.go(section)
        cut = "return [...document.querySelectorAll('.tablebox')].filter((b) => b.scrollWidth > b.clientWidth).map((b) => b.innerText)"
        wait_page(lambda: desk.js(cut) == [] or pytest.fail(f"{section}: {desk.js(cut)}"))


def test_a_long_tenant_hides_no_instance_and_buttons_stand_beside_each_other(server, open_desk):
    server.cli("gateway", "add", "--id", "gw-long", "--tenant", "an-organisation-with-a-long-name.example.org", "--instance", "the-front-desk")
    desk = open_desk(server)
    inside = """const row = document.querySelector('.rows-body .row .name button'), last = row.lastChild;
        const range = document.createRange(); range.selectNodeContents(last);
        const text = range.getBoundingClientRect(), box = row.getBoundingClientRect();
        return last.textContent === 'the-front-desk' && text.left < box.right - 40;"""
    wait_page(lambda: desk.texts(".row .name"))
    assert desk.js(inside)
    desk.go("who?list=gateways")
    desk.row("gw-long")
    for width, lines in ((1100, 2), (1400, 1)):
        desk.driver.set_window_size(width, 820)
        assert desk.js("return new Set([...document.querySelectorAll('td.actions button')].map((b) => b.getBoundingClientRect().top)).size") <= lines


def test_an_empty_server_says_what_to_do_next(server, open_desk):
    desk = open_desk(server)
    desk.says("No instance yet. Add a gateway")
    desk.press("Add a gateway")
    wait_page(lambda: "No gateway yet." in desk.text())
    desk.go("why")
    desk.says("No message has come yet.")
    desk.one("main input[type=search]").send_keys("7003" + Keys.ENTER)
    desk.says("Nothing is known about it.")
    desk.go("why?part=trace")
    desk.says("Start it, then let the person write")


def test_nothing_of_a_session_stays_after_it(server, open_desk):
    server.cli("route", "add", "--platform", "discord", "--key", "guild7", "--tenant", "acme")
    desk = open_desk(server)
    desk.go("who?list=routes")
    desk.press_in("Remove", "guild7")
    desk.agree("Remove")
    desk.one(".toast .undo")
    desk.press("Sign out", "header")
    desk.one("input[name=token]")
    assert desk.find(".toast") == []


def test_a_parked_message_is_not_called_delivered(busy, open_desk):
    desk = open_desk(busy)
    desk.press("Show them")
    desk.says("Parked")
    desk.go("why?tenant=acme&instance=front")
    heads = wait_page(lambda: desk.texts(".record .record-head .chip"))
    assert sorted(heads) == ["delivered", "parked"]
    assert "1 socket was lost with it, session " in desk.text()


def test_what_has_the_focus_is_under_no_bar(busy, open_desk):
    desk = open_desk(busy, phone=True)
    wait_page(lambda: desk.find(".rows-body .row"))
    covered = desk.js("""const out = [];
        for (const b of document.querySelectorAll('main button, main input, main select')) for (const low of [true, false]) {
          const at = b.getBoundingClientRect();
          scrollBy(0, low ? at.bottom - innerHeight + 4 : at.top - 4);
          b.blur(); b.focus();
          const r = b.getBoundingClientRect(), hit = document.elementFromPoint(r.left + r.width / 2, r.top + r.height / 2);
          if (hit && hit.closest('.nav, .top')) out.push([b.textContent || b.id, low]);
        }
        return out;""")
    assert covered == []
    wait_page(lambda: desk.find("#nav-waiting:not([hidden])"))
    desk.go("waiting")
    shades = desk.js("""return ['#nav a[aria-current]', '#nav a[aria-current] .badge'].map((s) => getComputedStyle(document.querySelector(s)).backgroundColor
        .match(/\\d+/g).slice(0, 3).map((v) => (v / 255) ** 2.2).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0.05))""")
    assert max(shades) / min(shades) > 3  # a badge is seen on the section that is shown


def test_two_browsers_see_each_other_change_things(server, dial, open_desk):
    one, two = open_desk(server), open_desk(server, "--read-only")
    two.says("read-only")
    one.go("who?list=gateways")
    one.press("Add")
    one.fill(tenant="acme", id="gw1")
    one.agree("Add")
    secret = dict(line.split("=", 1) for line in one.secret().split("\n"))
    wait_page(lambda: "acme/gw1" in two.texts(".row .name"))
    agent = Gateway(server.url, "gw1", secret["GATEWAY_RELAY_SECRET"])
    wait_page(lambda: two.texts(".row .chip") == ["live"])
    agent.close()
    two.go("who?list=gateways")
    two.row("gw1")
    assert not any(b.text in ("Add", "Revoke", "Rotate") for b in two.find("main button"))
    one.press("Sign out", "header")
    two.go("now")
    two.says("read-only")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing(busy, open_desk, dark):
    desk = open_desk(busy, dark=dark)
    desk.driver.execute_cdp_cmd("Page.setBypassCSP", {"enabled": True})  # axe is a script of ours
    desk.driver.refresh()
    desk.one("#nav")
    wait_page(lambda: desk.find(".rows-body .row"))
    for section in SECTIONS:
        desk.go(section)
        assert desk.axe() == [], section
    desk.go("who?list=gateways")
    desk.press("Add")
    assert desk.axe() == []
    desk.press("Cancel", "dialog[open]")
    desk.press("Sign out", "header")
    desk.one("input[name=token]")
    assert desk.axe() == []


def test_the_page_fits_a_phone(busy, open_desk):
    desk = open_desk(busy, phone=True)
    for section in SECTIONS:
        desk.go(section)
        assert desk.js("return document.documentElement.scrollWidth") <= 390, section
        assert desk.one("#nav").rect["y"] > 700
    desk.go("now")
    desk.one("#nav a[href='#why']").click()
    wait_page(lambda: desk.find("#nav a[href='#why'][aria-current]"))


def test_everything_is_reached_with_the_keyboard(server, open_desk):
    server.add("--instance", "front", tenant="acme")
    desk = open_desk(server)
    keys = lambda *k: ActionChains(desk.driver).send_keys(*k).perform()  # noqa: E731
    focus = lambda: desk.js("return document.activeElement.textContent || document.activeElement.placeholder")  # noqa: E731
    wait_page(lambda: desk.find(".rows-body .row"))
    keys("/")
    assert desk.driver.switch_to.active_element.get_attribute("id") == "filter"
    keys("front")
    keys(Keys.TAB, Keys.TAB)
    for _ in range(8):
        if focus().startswith("acme/front"):
            break
        keys(Keys.TAB)
    assert focus() == "acme/front"
    keys(Keys.ENTER)
    desk.says("The mailbox is empty.")
    keys(Keys.ESCAPE)
    wait_page(lambda: not desk.find("dialog[open]"))
    assert focus() == "acme/front"
    desk.js("document.activeElement.blur()")
    keys("?")
    desk.one("dialog[open] kbd")
    keys(Keys.ESCAPE)
    for number, name in enumerate(["now", "why", "waiting", "who", "system", "chat"], 1):
        keys(str(number))
        wait_page(lambda: desk.find(f"#nav a[href='#{name}'][aria-current]"))
    keys("4")
    desk.settled()
    for name in ("Links", "Link"):
        for _ in range(40):
            if focus() == name:
                break
            keys(Keys.TAB)
        keys(Keys.ENTER)
        if name == "Links":
            wait_page(lambda: "list=links" in desk.driver.current_url)
            desk.settled()
    wait_page(lambda: desk.find("dialog[open]"))
    for text in ("acme", "front", "telegram", "ann7", "b1"):
        keys(text, Keys.TAB)
    keys(Keys.ENTER) if focus() == "Link" else keys(Keys.TAB, Keys.ENTER)
    desk.row("ann7", "b1")
