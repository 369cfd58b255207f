"""The chat page in a real browser, against the real program and an agent on the relay."""
import json
import re
import time
import urllib.error
import urllib.request

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from web_rig import Lobby, Page, wait_for


@pytest.fixture
def make_lobby(make_bellhop):
    made = []

    def make(**how):
        made.append(Lobby(make_bellhop, **how))
        return made[-1]

    yield make
    for lobby in made:
        lobby.close()


@pytest.fixture
def lobby(make_lobby):
    return make_lobby()


@pytest.fixture
def visit(lobby):
    """visit() opens the page as a new visitor. No browser may have anything to complain about."""
    pages = []

    def open_page(where=None, **how):
        pages.append(Page((where or lobby).chat_url, **how))
        return pages[-1]

    yield open_page
    try:
        for page in pages:
            assert page.complaints() == []
    finally:
        for page in pages:
            page.close()


def call(lobby, method, path, body=None, visitor="e2e-visitor-000000", **headers):
    """A program's request: status, parsed body, headers."""
    data = json.dumps(body).encode() if body is not None else None
    headers = {"X-Bellhop-Visitor": visitor, **headers}
    if data is not None:
        headers.setdefault("Content-Type", "application/json")
    request = urllib.request.Request(f"{lobby.chat_url}/lobby/{path}", data, headers, method=method)
    try:
        answer = urllib.request.urlopen(request, timeout=10)
    except urllib.error.HTTPError as e:
        answer = e
    text = answer.read().decode()
    return answer.status, (json.loads(text) if text.startswith("{") else text), answer.headers


# ---- talking ----


def test_a_message_reaches_the_agent_and_the_answer_comes_back(lobby, visit):
    agent, page = lobby.agent(), visit()
    page.presence("Online")
    page.write("Is there any mail?")
    event = agent.hear("Is there any mail?")
    assert event["source"]["platform"] == "web" and event["source"]["chat_type"] == "dm"
    page.sees("Is there any mail?")
    wait_for(lambda: page.find(".message.visitor[data-status=sent]"))
    assert agent.act(op="typing", chat_id=event["source"]["chat_id"], metadata={})["success"]
    page.one("#typing")
    page.one("#stop")
    agent.say(event["source"]["chat_id"], "Two **letters**.")
    page.sees("Two letters.")
    assert page.texts(".agent strong") == ["letters"]
    wait_for(lambda: not page.find("#typing")[0].is_displayed())
    assert agent.descriptor["label"] == "Web chat" and agent.descriptor["supports_edit"]


def test_an_edit_changes_the_message_in_place(lobby, visit):
    agent, page = lobby.agent(), visit()
    page.write("Think")
    chat = agent.hear()["source"]["chat_id"]
    message = agent.say(chat, "Thinking…")
    page.sees("Thinking…")
    result = agent.act(op="edit", chat_id=chat, message_id=message, content="Thought.", metadata={})
    assert result["success"]
    page.sees("Thought.")
    assert "Thinking…" not in page.texts()
    page.one(".agent .edited")


def test_an_answer_grows_while_it_is_written(lobby, visit):
    """Many edits a second are answered at once; the page follows, and what is kept is the last one, without a cursor."""
    agent, page = lobby.agent(), visit()
    page.write("Tell me a story")
    chat = agent.hear()["source"]["chat_id"]
    message = agent.say(chat, "Once ▉")
    page.sees("Once")
    edit = lambda text: agent.act(op="edit", chat_id=chat, message_id=message, content=text, metadata={})  # noqa: E731
    text, results = "Once", []
    for k in range(60):
        text += f" upon **a time** {k}," if k % 10 == 0 else f" {k}"
        results.append(edit(text + " ▉"))
        if k % 20 == 19:  # it is seen growing
            page.sees(text.replace("**", ""), ".message.agent.live .bubble")
    assert all(r["success"] for r in results) and not results[0].get("queued") and all(r.get("queued") for r in results[1:])
    assert edit("Once upon a time, 😀 **the end**.")["queued"]
    page.sees("Once upon a time, 😀 the end.")
    wait_for(lambda: not page.find(".message.live"), timeout=6)
    page.driver.refresh()
    page.sees("Once upon a time, 😀 the end.")
    assert len(page.find(".message.agent")) == 1


def test_the_marked_end_of_an_answer_survives_a_crash(lobby):
    agent = lobby.agent()
    call(lobby, "POST", "api/message", {"text": "Tell me a story"})
    chat = agent.hear()["source"]["chat_id"]
    message = agent.say(chat, "Once ▉")
    edit = lambda text, **more: agent.act(op="edit", chat_id=chat, message_id=message, content=text, metadata=more)  # noqa: E731
    edit("Once upon ▉")
    assert edit("Once upon a ▉")["queued"]
    assert edit("The end.", notify=True)["success"]
    lobby.server.kill()
    lobby.server.start()
    wait_for(lambda: [m["text"] for m in call(lobby, "GET", "api/history")[1]["messages"]] == ["Tell me a story", "The end."])


def test_a_draft_is_a_preview_until_the_answer_comes(lobby, visit):
    agent, page = lobby.agent(), visit()
    page.write("Hello")
    chat = agent.hear()["source"]["chat_id"]
    draft = lambda text, **more: agent.act(op="draft", chat_id=chat, draft_id=3, content=text, metadata={}, **more)  # noqa: E731
    assert draft("Good") == {"success": True, "queued": True}
    page.sees("Good")
    assert draft("Good mor```") == {"success": True, "queued": True}
    agent.say(chat, "Good morning.")
    page.sees("Good morning.")
    assert page.texts(".message.agent .bubble") == ["Good morning."]  # the preview is gone
    draft("Anything")
    page.sees("Anything")
    done = draft("Anything else?", final=True)
    page.sees("Anything else?")
    assert done["success"] and draft("Anything else?", final=True)["message_id"] == done["message_id"]
    assert page.texts(".message.agent .bubble") == ["Good morning.", "Anything else?"]


def test_typing_goes_away_when_it_is_cleared_or_forgotten(lobby, visit):
    agent, page = lobby.agent(), visit()
    page.write("Hello")
    chat = agent.hear()["source"]["chat_id"]
    agent.act(op="typing", chat_id=chat, metadata={})
    page.one("#typing")
    agent.act(op="typing", chat_id=chat, metadata={}, content="")
    wait_for(lambda: not page.find("#typing")[0].is_displayed(), timeout=2)
    agent.act(op="typing", chat_id=chat, metadata={})
    page.one("#typing")
    wait_for(lambda: not page.find("#typing")[0].is_displayed(), timeout=8)


def test_the_stop_button_interrupts_the_agent(lobby, visit):
    agent, page = lobby.agent(), visit()
    page.write("Count to a million")
    chat = agent.hear()["source"]["chat_id"]
    agent.act(op="typing", chat_id=chat, metadata={})
    page.one("#stop").click()
    assert agent.next("interrupt_inbound")["chat_id"] == chat
    page.sees("You asked the agent to stop")
    assert agent.hear()["text"] == "/stop"  # gateways with other session keys stop by the text


def test_shift_enter_starts_a_line_and_enter_sends(lobby, visit):
    agent, page = lobby.agent(), visit()
    page.write("one\ntwo")
    agent.hear("one\ntwo")
    page.sees("one\ntwo")
    assert page.one("#text").get_attribute("value") == ""


def test_an_input_methods_enter_does_not_send(lobby, visit):
    page = visit()
    page.one("#text").send_keys("nihon")
    page.js("""const e = new KeyboardEvent('keydown', {key: 'Enter', isComposing: true, bubbles: true, cancelable: true});
               document.getElementById('text').dispatchEvent(e);""")
    assert page.one("#text").get_attribute("value") == "nihon"
    assert page.texts() == []


def test_a_name_goes_with_the_messages(lobby, visit):
    agent, page = lobby.agent(), visit()
    page.one("#name-button").click()
    page.one("#name").send_keys("Ada", Keys.ENTER)
    wait_for(lambda: page.one("#name-label").text == "Ada")
    page.write("It is me")
    event = agent.hear()
    assert event["source"]["user_name"] == "Ada"
    info = agent.act(op="get_chat_info", chat_id=event["source"]["chat_id"])
    assert info["success"] and info.get("chat_info", info)["name"] == "Ada"


# ---- sleep ----


def test_a_message_to_a_sleeping_agent_is_kept_and_answered_later(lobby, visit):
    agent, page = lobby.agent(), visit()
    page.presence("Online")
    agent.sleep()
    page.says("The agent is asleep. Your message is kept until it wakes.")
    page.write("Wake up, please")
    page.presence("Waking up…")
    agent = lobby.agent()
    event = agent.hear("Wake up, please")
    page.presence("Online")
    page.says("The agent is awake.")
    agent.say(event["source"]["chat_id"], "Here I am.")
    page.sees("Here I am.")


def test_without_a_route_the_page_tells_the_operator_what_to_run(make_lobby, visit):
    page = visit(make_lobby(routed=False))
    page.presence("Nobody here")
    page.says("bellhop gateway add --tenant demo --platform web --bot lobby")


# ---- staying in step ----


def test_the_conversation_is_there_after_a_reload_and_after_a_restart(lobby, visit):
    agent, page = lobby.agent(), visit()
    page.write("Remember this")
    chat = agent.hear()["source"]["chat_id"]
    agent.say(chat, "I will.")
    page.sees("I will.")
    page.driver.refresh()
    page.sees("I will.")
    assert page.texts() == ["Remember this", "I will."]
    agent.close()
    lobby.server.restart()
    agent = lobby.agent()
    wait_for(lambda: page.one("#presence-text").text == "Online", timeout=25)
    agent.say(chat, "And I did.")
    page.sees("And I did.")
    page.write("Well done")
    agent.hear("Well done")
    page.driver.refresh()
    page.sees("Well done")
    assert page.texts() == ["Remember this", "I will.", "And I did.", "Well done"]


def test_two_tabs_of_one_visitor_show_the_same(lobby, visit):
    agent, page = lobby.agent(), visit()
    driver = page.driver
    first = driver.current_window_handle
    page.presence("Online")
    driver.switch_to.new_window("tab")
    driver.get(page.url)
    page.presence("Online")
    page.write("From the second tab")
    chat = agent.hear()["source"]["chat_id"]
    agent.say(chat, "To both.")
    page.sees("To both.")
    driver.switch_to.window(first)
    page.sees("To both.")
    assert page.texts() == ["From the second tab", "To both."]


def test_two_visitors_do_not_see_each_other(lobby, visit):
    agent, ada, bob = lobby.agent(), visit(), visit()
    ada.write("I am Ada")
    to_ada = agent.hear("I am Ada")["source"]["chat_id"]
    bob.write("I am Bob")
    to_bob = agent.hear("I am Bob")["source"]["chat_id"]
    assert to_ada != to_bob
    agent.say(to_ada, "For Ada only")
    agent.say(to_bob, "For Bob only")
    ada.sees("For Ada only")
    bob.sees("For Bob only")
    assert ada.texts() == ["I am Ada", "For Ada only"]
    assert bob.texts() == ["I am Bob", "For Bob only"]


def test_a_message_refused_for_now_can_be_sent_again(make_lobby, visit):
    lobby = make_lobby(delivery=", max_mailbox_bytes: 64KiB")
    agent, page = lobby.agent(), visit(lobby)
    page.presence("Online")
    agent.sleep()
    page.presence("Asleep")
    for n in range(1, 9):  # until the mailbox is full
        page.js("document.getElementById('text').value = arguments[0]; "
                "document.getElementById('text').dispatchEvent(new Event('input'))", f"{n} " + "x" * 15000)
        page.one("#send").click()
        wait_for(lambda: len(page.find(".message[data-status=sent], .message[data-status=failed]")) == n)
        if page.find(".message[data-status=failed]"):
            break
    assert "Try again in a moment" in page.one(".message[data-status=failed] .state").text
    page.driver.refresh()  # what was not sent is not lost by a reload
    page.one(".message[data-status=failed]")
    agent = lobby.agent()
    for i in range(1, n):
        assert agent.hear()["text"].startswith(f"{i} ")
    page.presence("Online")
    page.one(".retry").click()
    assert agent.hear()["text"].startswith(f"{n} ")
    wait_for(lambda: not page.find(".message[data-status=failed]"))


def test_a_lost_line_shows_a_banner_and_heals(lobby, visit):
    agent, page = lobby.agent(), visit()
    page.write("Hello")
    agent.hear()
    agent.close()
    lobby.server.stop()
    page.says("The connection is lost.")
    page.write("Are you there?")
    page.one(".message[data-status=failed]")
    lobby.server.start()
    agent = lobby.agent()
    wait_for(lambda: not page.find("#banner")[0].is_displayed(), timeout=25)
    agent.hear("Are you there?")  # sent again by itself: it never reached anybody
    wait_for(lambda: not page.find(".message[data-status=failed]"))


# ---- safety ----

HOSTILE = [
    "<script>window.pwned = 1</script>",
    "<img src=x onerror='window.pwned = 1'>",
    "[click me](javascript:window.pwned=1)",
    "[data](data:text/html,<script>1</script>)",
    "`</code><script>window.pwned = 1</script>`",
    "```html\n</code></pre><script>window.pwned = 1</script>\n```",
    "> <svg onload=window.pwned=1>",
    "- <iframe srcdoc='<script>1</script>'>",
    "# <style>*{display:none}</style>",
]


def test_hostile_text_stays_text(lobby, visit):
    agent, page = lobby.agent(), visit()
    page.write(HOSTILE[0])
    chat = agent.hear(HOSTILE[0])["source"]["chat_id"]
    for text in HOSTILE:
        agent.say(chat, text)
    wait_for(lambda: len(page.find(".agent")) == len(HOSTILE))
    said = "\n".join(page.texts())
    for part in ("<script>window.pwned = 1</script>", "<img src=x", "(javascript:window.pwned=1)", "<svg onload", "<style>"):
        assert part in said
    assert page.js("return window.pwned") is None
    assert page.find(".bubble script, .bubble img, .bubble svg, .bubble iframe, .bubble style, .bubble a") == []


def test_markdown_becomes_structure(lobby, visit):
    agent, page = lobby.agent(), visit()
    page.write("Show me")
    chat = agent.hear()["source"]["chat_id"]
    agent.say(chat, "# Title\n\nSome *soft* and **strong** `code`, ~~gone~~ and snake_case_name.\n\n"
                    "1. one\n2. two\n   - inner\n\n> quoted\n\n```python\nprint('<b>')\n```\n\n"
                    "See [the guide](https://example.org/a) and https://example.org/b_(c). 2 * 3 * 4")
    bubble = page.one(".agent .bubble")
    found = {css: [e.text for e in bubble.find_elements(By.CSS_SELECTOR, css)]
             for css in ("h3", "em", "strong", "p code", "del", "ol > li", "li li", "blockquote", "pre code", "a")}
    assert found["h3"] == ["Title"] and found["em"] == ["soft"] and found["strong"] == ["strong"]
    assert found["p code"] == ["code"] and found["del"] == ["gone"]
    assert len(found["ol > li"]) == 2 and found["li li"] == ["inner"]
    assert found["blockquote"] == ["quoted"] and found["pre code"] == ["print('<b>')"]
    assert found["a"] == ["the guide", "https://example.org/b_(c)"]
    link = bubble.find_element(By.CSS_SELECTOR, "a")
    assert "noopener" in link.get_attribute("rel") and link.get_attribute("target") == "_blank"
    assert "snake_case_name" in bubble.text and "2 * 3 * 4" in bubble.text
    bubble.find_element(By.CSS_SELECTOR, ".copy").click()
    wait_for(lambda: bubble.find_element(By.CSS_SELECTOR, ".copy").text != "Copy")


def test_long_and_strange_markdown_is_rendered_quickly(lobby, visit):
    page = visit()
    page.presence("Not here yet")
    took = page.driver.execute_async_script("""
        const done = arguments[0];
        import('/chat/assets/markdown.js').then(({ markdown }) => {
          const start = performance.now();
          for (const c of ['*', '_', '`', '[', '**a', '[a](', '> ', '- ', '~~', '***a* ', 'http://', '\\\\', '#', '1. ', '`` ` '])
            markdown(c.repeat(16000 / c.length));
          done(performance.now() - start);
        });""")
    assert took < 4000


def test_the_page_asks_for_nothing_from_elsewhere(lobby, visit):
    page = visit()
    page.presence("Not here yet")
    names = page.js("return performance.getEntriesByType('resource').map(e => e.name)")
    assert names and all(n.startswith(page.url) for n in names)
    status, _, headers = call(lobby, "GET", "")
    assert status == 200 and "script-src 'self'" in headers["Content-Security-Policy"]
    assert "HttpOnly" in headers["Set-Cookie"] and "SameSite=Lax" in headers["Set-Cookie"]


def test_the_cookie_is_out_of_reach_of_scripts_and_of_the_agent(lobby, visit):
    agent, page = lobby.agent(), visit()
    page.write("Hello")
    event = agent.hear()
    token = page.driver.get_cookie("bellhop_visitor")["value"]
    assert page.js("return document.cookie") == ""
    assert token not in json.dumps(event)


# ---- for programs ----


def test_a_repeated_post_is_delivered_once(lobby):
    agent = lobby.agent()
    first = call(lobby, "POST", "api/message", {"text": "once", "client_id": "c1"})
    again = call(lobby, "POST", "api/message", {"text": "once", "client_id": "c1"})
    assert first[0] == again[0] == 200 and first[1]["id"] == again[1]["id"]
    call(lobby, "POST", "api/message", {"text": "end", "client_id": "c2"})
    agent.hear("once")
    agent.hear("end")
    messages = call(lobby, "GET", "api/history")[1]["messages"]
    assert [m["text"] for m in messages] == ["once", "end"]


def test_a_stream_resumes_after_the_last_event_it_saw(lobby):
    agent = lobby.agent()
    call(lobby, "POST", "api/message", {"text": "hello"})
    chat = agent.hear()["source"]["chat_id"]
    agent.say(chat, "one")
    last = call(lobby, "GET", "api/history")[1]["messages"][-1]["rev"]
    agent.say(chat, "two")
    agent.say(chat, "three")
    request = urllib.request.Request(f"{lobby.chat_url}/lobby/api/events",
                                     headers={"X-Bellhop-Visitor": "e2e-visitor-000000", "Last-Event-ID": last})
    with urllib.request.urlopen(request, timeout=10) as stream:
        assert stream.headers["Content-Type"] == "text/event-stream"
        told = []
        while len(told) < 2:
            line = stream.readline().decode()
            if line.startswith("data: {\"id\""):
                told.append(json.loads(line[6:])["text"])
    assert told == ["two", "three"]


@pytest.mark.parametrize("headers, body, status", [
    ({"Content-Type": "text/plain"}, {"text": "x"}, 415),
    ({"Origin": "https://evil.example"}, {"text": "x"}, 403),
    ({"X-Bellhop-Visitor": "short"}, {"text": "x"}, 401),
    ({}, {"text": ""}, 400),
    ({}, {"text": "x" * 16385}, 413),
    ({}, ["text"], 400),
])
def test_bad_requests_get_a_clear_error(lobby, headers, body, status):
    got, answer, _ = call(lobby, "POST", "api/message", body, **headers)
    assert got == status
    assert re.match(r"[A-Z\"].+\.$", answer["error"]) and re.match(r"^[a-z_]+$", answer["code"])


# ---- everybody ----


def test_on_a_phone_everything_fits_and_works(lobby, visit):
    agent, page = lobby.agent(), visit(phone=True)
    page.presence("Online")
    page.write("From my phone", enter=False)
    chat = agent.hear("From my phone")["source"]["chat_id"]
    agent.say(chat, "```\n" + "a very long line of code " * 12 + "\n```\n\n" + "w" * 300)
    wait_for(lambda: page.find(".agent"))
    width, scroll = page.js("return [innerWidth, document.documentElement.scrollWidth]")
    assert width == 390 and scroll <= width
    box = page.js("const r = document.getElementById('composer').getBoundingClientRect(); return [r.left, r.right, r.bottom]")
    assert box[0] >= 0 and box[1] <= 390 and box[2] <= 844
    for css in ("#send", "#name-button"):
        assert page.one(css).size["height"] >= 40
    assert not page.find(".keys")[0].is_displayed()


def luminance(page, css, what):
    r, g, b = page.js(f"return getComputedStyle(document.querySelector('{css}')).{what}.match(/[\\d.]+/g).slice(0, 3).map(Number)")
    linear = [(c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4) for c in (r, g, b)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(page, css, ground):
    a, b = luminance(page, css, "color"), luminance(page, ground, "backgroundColor")
    return (max(a, b) + 0.05) / (min(a, b) + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_light_and_dark_are_both_readable(lobby, visit, dark):
    agent, page = lobby.agent(), visit(dark=dark)
    page.write("Hello")
    chat = agent.hear()["source"]["chat_id"]
    agent.say(chat, "A [link](https://example.org/) and `code`.")
    wait_for(lambda: page.find(".agent a"))
    assert (luminance(page, "body", "backgroundColor") < 0.2) == dark
    for css, ground in ((".agent .bubble", ".agent .bubble"), (".visitor .bubble", ".visitor .bubble"),
                        (".agent a", ".agent .bubble"), (".meta", "body"), (".presence", ".top"), (".hint", "body"),
                        (".agent code", ".agent code")):
        assert contrast(page, css, ground) >= 4.5, css


def test_a_screen_reader_finds_its_way(lobby, visit):
    agent, page = lobby.agent(), visit()
    page.presence("Online")
    assert page.js("return document.documentElement.lang") == "en"
    log = page.find("#log")[0]
    assert log.get_attribute("role") == "log" and log.get_attribute("aria-live") and log.get_attribute("aria-label")
    nameless = page.js("""return [...document.querySelectorAll('button, input, textarea, a')].filter(e =>
        !(e.textContent.trim() || e.getAttribute('aria-label') || (e.labels && e.labels.length))).map(e => e.outerHTML)""")
    assert nameless == []
    assert len(page.find("h1")) == 1 and len(page.find("main")) == 1
    assert page.find("img:not([alt])") == []
    page.write("Hello")
    chat = agent.hear()["source"]["chat_id"]
    agent.say(chat, "Hi")
    page.sees("Hi")
    assert "Agent:" in page.find(".agent")[0].get_attribute("textContent")


def test_the_keyboard_is_enough(lobby, visit):
    agent, page = lobby.agent(), visit()
    page.presence("Online")
    active = lambda: page.js("return document.activeElement.id || document.activeElement.className")
    assert active() == "text"  # ready to write
    first = page.js("const e = document.querySelector('a[href], button, input, textarea'); e.focus(); return e.className")
    assert first == "skip" and page.js("return document.activeElement.getBoundingClientRect().top") >= 0
    page.driver.switch_to.active_element.send_keys(Keys.ENTER)
    wait_for(lambda: active() == "text")
    outline = page.js("document.getElementById('name-button').focus(); return getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"
    page.write("typed")
    chat = agent.hear()["source"]["chat_id"]
    agent.act(op="typing", chat_id=chat, metadata={})
    page.one("#stop")
    page.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert agent.next("interrupt_inbound")["chat_id"] == chat


def test_who_reads_old_messages_is_not_dragged_away(lobby, visit):
    agent, page = lobby.agent(), visit()
    page.write("Tell me a lot")
    chat = agent.hear()["source"]["chat_id"]
    for n in range(12):
        agent.say(chat, f"Part {n}\n\n" + "word " * 60)
    wait_for(lambda: len(page.find(".agent")) == 12)
    at_end = "const s = document.getElementById('scroller'); return s.scrollHeight - s.scrollTop - s.clientHeight < 5"
    wait_for(lambda: page.js(at_end))
    page.js("document.getElementById('scroller').scrollTop = 0")
    time.sleep(0.2)
    agent.say(chat, "News")
    page.says("1 new message")
    assert page.js("return document.getElementById('scroller').scrollTop") == 0
    page.one("#newer").click()
    wait_for(lambda: page.js(at_end))
    assert not page.find("#newer")[0].is_displayed()
