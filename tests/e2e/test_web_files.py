"""Files and questions on the chat page: in a real browser, and as programs ask for them."""
import json
import socket
import sqlite3
import struct
import urllib.error
import urllib.request
import wave
import zlib

import pytest

from test_mcp import Chats
from test_media import download, kept
from test_media import upload as upload_as_gateway
from test_prompts import OPTIONS, answered, ask
from test_web import call, lobby, make_lobby, visit  # noqa: F401 - fixtures
from v1 import make_key
from web_rig import wait_for

ANN, BOB = "e2e-visitor-ann-0000", "e2e-visitor-bob-0000"


def png(width=120, height=80, color=(125, 42, 53)):
    rows = b"".join(b"\0" + bytes(color) * width for _ in range(height))
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))  # noqa: E731
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def raw(lobby, method, path, body=None, visitor=ANN, **headers):  # noqa: F811
    headers = {k.replace("_", "-"): v for k, v in headers.items()}
    request = urllib.request.Request(f"{lobby.chat_url}/lobby/api/{path}", body,
                                     {**({"X-Bellhop-Visitor": visitor} if visitor else {}), **headers}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as a:
            return a.status, a.read(), a.headers
    except urllib.error.HTTPError as e:
        with e:
            return e.code, e.read(), e.headers


def upload(lobby, data, type="image/png", name="cat.png", visitor=ANN, **more):  # noqa: F811
    status, body, _ = raw(lobby, "POST", "file", data, visitor, Content_Type=type, X_File_Name=name, **more)
    return status, json.loads(body)


def fetch(lobby, file, visitor=ANN, **more):  # noqa: F811
    return raw(lobby, "GET", f"file/{file['id']}?k={file['key']}", None, visitor, **more)


def records(lobby, ns, part=""):  # noqa: F811
    with sqlite3.connect(f"file:{lobby.server.state}/bellhop.db?mode=ro", uri=True) as db:
        return [(k, v) for k, v in db.execute("SELECT k, v FROM kv WHERE ns = ?", (ns,)) if part.encode() in bytes(k)]


# ---- as programs ask ----


def test_a_file_goes_with_a_message_to_the_agent(lobby):  # noqa: F811
    agent = lobby.agent()
    status, file = upload(lobby, png())
    assert status == 200 and (file["kind"], file["type"], file["name"], file["size"]) == ("image", "image/png", "cat.png", len(png()))
    status, _, _ = call(lobby, "POST", "api/message", {"text": "", "files": [file]}, visitor=ANN)
    assert status == 200
    event = agent.hear("")
    assert (event["message_type"], event["media_types"]) == ("photo", ["image/png"])
    assert event["media"] == [{"kind": "image", "mime": "image/png", "size": len(png()), "filename": "cat.png"}]
    got = download(lobby.server, event["media_urls"][0].split("/relay/media/")[1], lobby.credential.token())
    assert got.content == png()
    status, body, headers = fetch(lobby, file)
    assert (status, body, headers["Content-Type"]) == (200, png(), "image/png")
    assert headers["X-Content-Type-Options"] == "nosniff" and headers["Content-Disposition"].startswith("inline")
    assert "sandbox" in headers["Content-Security-Policy"]
    status, history, _ = call(lobby, "GET", "api/history", visitor=ANN)
    assert history["messages"][0]["files"] == [file]


def test_a_program_that_reads_the_mailbox_can_fetch_the_file(lobby):  # noqa: F811
    key = make_key(lobby.server, tenant="t", instance=lobby.credential.id)
    _, file = upload(lobby, png())
    assert call(lobby, "POST", "api/message", {"text": "look", "files": [file]}, visitor=ANN)[0] == 200
    message, = Chats(lobby.server, key).ask("chat_read")["messages"]
    assert download(lobby.server, message["media_urls"][0].split("/relay/media/")[1]).content == png()
    shown = lobby.server.cli("mailbox", "show", lobby.credential.id, "--bodies", "--json").stdout  # and so can an operator
    url, = json.loads(shown)[0]["frame"]["event"]["media_urls"]
    assert url.startswith("http") and download(lobby.server, url.split("/relay/media/")[1]).content == png()


def test_nothing_executable_comes_from_our_origin(lobby):  # noqa: F811
    lobby.agent()
    for type, name in (("text/html", "x.html"), ("image/svg+xml", "x.svg"), ("application/javascript", "x.js"),
                       ("application/xhtml+xml", "x"), ("text/xml", "x.xml"), ("application/pdf", "x.pdf")):
        status, file = upload(lobby, b"<script>alert(1)</script>", type, name)
        assert status == 200
        status, _, headers = fetch(lobby, file)
        assert headers["Content-Disposition"].startswith("attachment") and headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Content-Type"] == type and "sandbox" in headers["Content-Security-Policy"]


def test_only_whose_chat_it_is_sees_a_file_or_names_it(lobby):  # noqa: F811
    lobby.agent()
    _, file = upload(lobby, png())
    assert fetch(lobby, file, BOB)[0] == 404 and fetch(lobby, {**file, "key": "0" * 32})[0] == 404
    assert fetch(lobby, {**file, "key": ""})[0] == 404 and fetch(lobby, file, None)[0] == 401
    for wrong in (dict(visitor=BOB, files=[file]), dict(files=[{**file, "name": "other.png"}]), dict(files=[{**file, "size": 1}]),
                  dict(files=[{**file, "type": "text/html"}]), dict(files=[{}]), dict(files=[file] * 9),
                  dict(files=[{**file, "id": "0" * 32}])):
        visitor = wrong.pop("visitor", ANN)
        status, body, _ = call(lobby, "POST", "api/message", {"text": "x", **wrong}, visitor=visitor)
        assert (status, body["code"]) == (400, "bad_files"), wrong


def test_uploads_are_bounded_and_from_the_page_alone(lobby):  # noqa: F811
    lobby.agent()
    assert upload(lobby, png(), Origin="https://evil.example")[0] == 403
    assert upload(lobby, png(), visitor=None)[0] == 401
    status, said = upload(lobby, png(), name="..%2F..%2Fetc%2Fpass%00wd")
    assert status == 200 and "/" not in said["name"] and "\0" not in said["name"]
    request = urllib.request.Request(f"{lobby.chat_url}/api/file", b"x" * 10, {"X-Bellhop-Visitor": ANN, "Content-Length": str(25 * 2**20 + 1)},
                                     method="POST")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=10)
    assert refused.value.code == 413


def test_strangers_cannot_use_up_the_room_of_a_tenant(make_lobby):  # noqa: F811
    lobby = make_lobby(delivery="}}\nmedia: {{per_tenant: 8MiB")  # noqa: F811
    agent, size = lobby.agent(), 450000
    own = lambda n: upload_as_gateway(lobby.server, lobby.credential, b"x" * n, name="own").status  # noqa: E731
    stalled = []
    for n in range(8):  # what they announce is more than they have
        s = socket.create_connection(("127.0.0.1", lobby.server.port))
        s.sendall(f"POST /chat/lobby/api/file HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Bellhop-Visitor: e2e-visitor-evil-{n:04}\r\n"
                  f"Content-Length: 500000\r\n\r\nx".encode())
        stalled.append(s)
    wait_for(lambda: lobby.server.metric("media_writing") == 8)
    assert upload(lobby, png())[0] == 200 and own(1000000) == 200
    for s in stalled:
        s.close()
    wait_for(lambda: lobby.server.metric("media_writing") == 0)
    status, file = upload(lobby, b"x" * size)
    assert status == 200 and upload(lobby, b"x" * size)[0] == 507  # a quarter is 2 MiB, and one visitor's a quarter of that
    assert upload(lobby, b"x" * size, visitor=BOB)[0] == 200
    assert upload(lobby, b"x" * size, visitor="e2e-visitor-made-up")[0] == 507  # and one address has the half
    assert own(4000000) == 200
    lobby.server.restart()
    agent = lobby.agent()
    assert upload(lobby, b"x" * size)[0] == 507 and own(1000000) == 200
    assert call(lobby, "POST", "api/message", {"text": "look", "files": [file]}, visitor=ANN)[0] == 200
    assert agent.hear("look")["media"][0]["size"] == size


def test_without_an_agent_nobody_pays_for_files(make_lobby):  # noqa: F811
    empty = make_lobby(routed=False)
    status, said = upload(empty, png())
    assert (status, said["code"]) == (409, "nobody_here")


def test_a_question_is_answered_by_its_visitor_once(lobby):  # noqa: F811
    agent = lobby.agent()
    call(lobby, "POST", "api/message", {"text": "hi"}, visitor=ANN)
    chat = agent.hear("hi")["source"]["chat_id"]
    result = ask(agent, chat)
    assert result["success"]
    press = lambda option, visitor=ANN, prompt="0a1b2c3d": call(lobby, "POST", "api/press", {"prompt": prompt, "option": option},  # noqa: E731
                                                                visitor=visitor)[0]
    assert (press("once", BOB), press("nope"), press("once", prompt="other"), press("a:b")) == (409, 409, 409, 409)
    assert call(lobby, "POST", "api/press", {"prompt": 1}, visitor=ANN)[0] == 400
    assert press("always") == 200
    answered(agent, "always", "Always", result["message_id"])
    assert press("once") == 409 and agent.quiet()
    chosen = lambda: call(lobby, "GET", "api/history", visitor=ANN)[1]["messages"][-1]["prompt"].get("chosen")  # noqa: E731
    wait_for(lambda: chosen() == "always")


def test_a_kill_before_the_choice_is_in_the_history(lobby):  # noqa: F811
    """An answered question does not get its buttons back because bellhop died before it could change its message."""
    agent = lobby.agent()
    call(lobby, "POST", "api/message", {"text": "hi"}, visitor=ANN)
    chat = agent.hear("hi")["source"]["chat_id"]
    result = ask(agent, chat)
    last = lambda: call(lobby, "GET", "api/history", visitor=ANN)[1]["messages"][-1]  # noqa: E731
    (asked,), (question,) = records(lobby, "web", result["message_id"]), records(lobby, "prompt")
    assert call(lobby, "POST", "api/press", {"prompt": "0a1b2c3d", "option": "deny"}, visitor=ANN)[0] == 200
    answered(agent, "deny", "Deny", result["message_id"])
    wait_for(lambda: last()["prompt"].get("chosen") == "deny" and not records(lobby, "prompt"))
    lobby.server.kill()
    over = json.dumps({**json.loads(question[1]), "over": True, "chosen": "deny"}).encode()
    with sqlite3.connect(f"{lobby.server.state}/bellhop.db") as db:  # the press was taken, the message not changed yet
        db.executemany("INSERT OR REPLACE INTO kv (ns, k, v) VALUES (?, ?, ?)", [("web", *asked), ("prompt", question[0], over)])
    lobby.server.start()
    wait_for(lambda: last()["prompt"].get("chosen") == "deny")
    wait_for(lambda: not records(lobby, "prompt"))


# ---- in a browser ----


def test_picked_pasted_and_dropped_files_are_sent_with_thumbnails(lobby, visit, tmp_path):  # noqa: F811
    agent, page = lobby.agent(), visit()
    page.presence("Online")
    picture, notes = tmp_path / "holiday.png", tmp_path / f"notes & plans{' and more' * 12}.txt"
    picture.write_bytes(png())
    notes.write_text("buy milk")
    page.find("#picker")[0].send_keys(f"{picture}\n{notes}")
    page.js("""
      const bytes = Uint8Array.from(atob(arguments[0]), (c) => c.charCodeAt(0));
      const data = new DataTransfer();
      data.items.add(new File([bytes], 'pasted.png', { type: 'image/png' }));
      document.dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true }));
      const more = new DataTransfer();
      more.items.add(new File([bytes], 'dropped.png', { type: 'image/png' }));
      document.dispatchEvent(new DragEvent('drop', { dataTransfer: more, bubbles: true, cancelable: true }));
    """, __import__("base64").b64encode(png(60, 60, (154, 106, 28))).decode())
    wait_for(lambda: len(page.find(".chip.there")) == 4)
    assert len(page.find(".chip img")) == 3
    page.write("look at these")
    event = agent.hear("look at these")
    assert sorted(m["filename"] for m in event["media"]) == ["dropped.png", "holiday.png", notes.name, "pasted.png"]
    wait_for(lambda: len(page.find(".message.visitor .file img")) == 3 and not page.find(".chip"))
    wait_for(lambda: all(page.js("return arguments[0].naturalWidth > 0", i) for i in page.find(".message.visitor .file img")))
    assert page.texts(".message.visitor .file.document .file-name") == [notes.name]
    assert page.js("return document.querySelector('.file.document .file-size').clientHeight") < 30  # one line beside it
    page.driver.refresh()
    wait_for(lambda: len(page.find(".message.visitor .file img")) == 3)


def test_a_file_that_is_not_taken_is_said_so(lobby, visit, tmp_path):  # noqa: F811
    lobby.agent()
    page = visit()
    page.presence("Online")
    large = tmp_path / "film.mp4"
    with open(large, "wb") as f:
        f.truncate(25 * 2**20 + 1)
    page.find("#picker")[0].send_keys(str(large))
    page.says("film.mp4 is larger than 25 MB.")
    assert not page.find(".chip")


def test_the_agents_picture_and_voice_are_shown_and_its_question_pressed(lobby, visit, tmp_path):  # noqa: F811
    agent, page = lobby.agent(), visit()
    page.presence("Online")
    page.write("hello")
    chat = agent.hear("hello")["source"]["chat_id"]
    base = f"{lobby.server.url}/relay/media/"
    media = dict(op="send_media", chat_id=chat, reply_to=None, metadata={})
    sound = tmp_path / "a.wav"
    with wave.open(str(sound), "wb") as w:
        w.setnchannels(1)
        w.setsampwidth(2)
        w.setframerate(8000)
        w.writeframes(b"\0\0" * 8000)
    shown = agent.act(**media, media_kind="image", source_url=base + kept(lobby.server, lobby.credential, png(300, 200)), content="a **chart**")
    assert shown["success"], shown
    assert agent.act(**media, media_kind="voice", content="", filename="note.wav",
                     source_url=base + kept(lobby.server, lobby.credential, sound.read_bytes(), type="audio/wav"))["success"]
    wait_for(lambda: page.js("return document.querySelector('.agent .file img')?.naturalWidth") == 300)
    assert page.texts(".agent .bubble strong") == ["chart"]
    wait_for(lambda: page.js("return document.querySelector('.agent .file audio')?.duration") == 1)
    assert agent.act(op="typing", chat_id=chat, content="is reading the logs", metadata={})["success"]
    page.says("is reading the logs")
    assert agent.act(op="typing", chat_id=chat, content="", metadata={})["success"]
    wait_for(lambda: not page.find("#typing")[0].is_displayed())
    result = ask(agent, chat, content="Run **rm -rf**?")
    wait_for(lambda: page.texts(".prompt .option") == ["Allow once", "Always", "Deny"])
    page.js("window.scrollTo(0, 0)")
    page.find(".prompt .option")[1].click()
    answered(agent, "always", "Always", result["message_id"])
    wait_for(lambda: page.texts(".prompt .option.chosen"))
    assert all(not b.is_enabled() for b in page.find(".prompt .option"))
    page.driver.refresh()
    wait_for(lambda: len(page.find(".prompt .option.chosen")) == 1)
    assert len(OPTIONS) == len(page.find(".prompt .option:disabled"))
