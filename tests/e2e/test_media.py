"""Files: POST /relay/media, GET /relay/media/<id>, and what strangers try with them."""
import gzip
import http.client
import io
import json
import os
import socket
import threading
import time
import zipfile

import pytest

from conftest import CONFIG, wait_for

CAP = 25 * 1024 * 1024
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40


def ask(server, method, path, token=None, body=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    answer.content = answer.read()
    connection.close()
    return answer


def upload(server, credential, data=PNG, type="image/png", name="cat.png", **headers):
    return ask(server, "POST", "/relay/media", credential.token(), data, Content_Type=type, X_Media_Filename=name,
               **headers)


def kept(server, credential, data=PNG, **more):
    answer = upload(server, credential, data, **more)
    assert answer.status == 200, answer.content
    said = json.loads(answer.content)
    assert said["size"] == len(data) and len(said["id"]) == 32
    return said["id"]


def download(server, id, token=None, **headers):
    return ask(server, "GET", f"/relay/media/{id}", token, **headers)


def files(server):
    return sorted(p.name for p in (server.state / "media").iterdir())


def test_a_file_goes_in_and_comes_out_as_it_was(bellhop):
    mine = bellhop.add(tenant="acme")
    id = kept(bellhop, mine)
    answer = download(bellhop, id, mine.token())
    assert (answer.status, answer.content) == (200, PNG)
    assert answer.headers["Content-Type"] == "image/png"
    # as the released client reads it
    name = answer.headers["Content-Disposition"].split("filename=", 1)[1].strip().strip('"')
    assert name == "cat.png"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in answer.headers["Content-Security-Policy"]
    assert answer.headers["Content-Disposition"].startswith("attachment")
    bellhop.restart()
    assert download(bellhop, id, mine.token()).content == PNG


def test_a_file_is_read_by_its_tenant_only(bellhop):
    mine, friend, other = bellhop.add(tenant="acme"), bellhop.add(tenant="acme"), bellhop.add(tenant="rival")
    id = kept(bellhop, mine)
    assert download(bellhop, id, friend.token()).status == 200
    none = download(bellhop, "0" * 32, other.token())
    theirs = download(bellhop, id, other.token())
    assert theirs.status == none.status == 404 and theirs.content == none.content
    assert download(bellhop, id).status == 401
    assert download(bellhop, id + "?exp=99999999999&sig=AAAAAAAAAAAAAAAAAAAAAA").status == 401
    assert ask(bellhop, "POST", "/relay/media", None, PNG).status == 401
    assert ask(bellhop, "POST", "/relay/media", "nonsense", PNG).status == 401
    assert files(bellhop) == [id]


def test_ranges(bellhop):
    mine = bellhop.add(tenant="acme")
    id = kept(bellhop, mine)
    token = mine.token()
    part = download(bellhop, id, token, Range="bytes=8-17")
    assert (part.status, part.content) == (206, PNG[8:18])
    assert part.headers["Content-Range"] == f"bytes 8-17/{len(PNG)}"
    assert download(bellhop, id, token, Range="bytes=-5").content == PNG[-5:]
    assert download(bellhop, id, token, Range=f"bytes={len(PNG)}-").status == 416
    assert download(bellhop, id, token, Range="bytes=8-17", If_Range='"other"').status == 200
    assert download(bellhop, id, token, Range="bytes=8-17", If_Range=f'"{id}"').status == 206
    head = ask(bellhop, "HEAD", f"/relay/media/{id}", token)
    assert (head.status, head.content) == (200, b"") and head.headers["Content-Length"] == str(len(PNG))


def test_25_mib_and_not_a_byte_more(bellhop):
    mine = bellhop.add(tenant="acme")
    whole = os.urandom(CAP)
    id = kept(bellhop, mine, whole, type="video/mp4", name="v.mp4")
    assert download(bellhop, id, mine.token()).content == whole
    assert upload(bellhop, mine, whole + b"!").status == 413
    # the same without saying so first
    connection = http.client.HTTPConnection("127.0.0.1", bellhop.port, timeout=60)
    connection.putrequest("POST", "/relay/media")
    connection.putheader("Authorization", f"Bearer {mine.token()}")
    connection.putheader("Transfer-Encoding", "chunked")
    connection.endheaders()
    try:
        for at in range(0, CAP + 1, 1 << 20):
            piece = (whole + b"!")[at:at + (1 << 20)]
            connection.send(b"%x\r\n%s\r\n" % (len(piece), piece))
        connection.send(b"0\r\n\r\n")
    except OSError:
        pass  # it may hang up while we still speak
    else:
        assert connection.getresponse().status == 413
    connection.close()
    assert upload(bellhop, mine, b"").status == 413
    deadline = time.monotonic() + 10
    while files(bellhop) != [id] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert files(bellhop) == [id]


@pytest.mark.parametrize("said, told", [
    ("../../../etc/passwd", "passwd"), ("..\\..\\evil.exe", "evil.exe"), (".hidden", "hidden"),
    ('a"b;c.png', "a_b;c.png"), ("na\u00efve.png", "na__ve.png"), ("x" * 300 + ".png", "x" * 255)])
def test_names_are_only_names(bellhop, said, told):
    mine = bellhop.add(tenant="acme")
    id = kept(bellhop, mine, name=said)
    disposition = download(bellhop, id, mine.token()).headers["Content-Disposition"]
    assert disposition.split("filename=", 1)[1].strip('"') == told
    assert files(bellhop) == [id]


def test_a_lying_type_is_not_repeated(bellhop):
    mine = bellhop.add(tenant="acme")
    id = kept(bellhop, mine, b"<html><script>alert(1)</script>", type="image/png")
    assert download(bellhop, id, mine.token()).headers["Content-Type"] == "application/octet-stream"
    id = kept(bellhop, mine, PNG, type="nonsense")
    assert download(bellhop, id, mine.token()).headers["Content-Type"] == "image/png"


def test_an_upload_that_breaks_off_leaves_nothing(bellhop):
    mine = bellhop.add(tenant="acme")
    for _ in range(20):
        s = socket.create_connection(("127.0.0.1", bellhop.port))
        s.sendall(f"POST /relay/media HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {mine.token()}\r\n"
                  f"Content-Length: 1000000\r\n\r\n".encode() + b"x" * 200000)
        s.close()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and files(bellhop):
        time.sleep(0.05)
    assert files(bellhop) == []


def test_a_kill_in_the_middle_of_uploads_leaves_no_torn_file(bellhop):
    mine = bellhop.add(tenant="acme")
    whole, done, stop = os.urandom(300_000), {}, threading.Event()

    def push(n):
        while not stop.is_set():
            try:
                answer = upload(bellhop, mine, whole)
                if answer.status == 200:
                    done[json.loads(answer.content)["id"]] = True
            except (OSError, http.client.HTTPException):
                return

    threads = [threading.Thread(target=push, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    deadline = time.monotonic() + 30
    while len(done) < 30 and time.monotonic() < deadline:
        time.sleep(0.01)
    bellhop.kill()
    stop.set()
    for t in threads:
        t.join()
    bellhop.start()
    assert len(done) >= 30
    for id in done:  # what was answered is there
        assert download(bellhop, id, mine.token()).content == whole
    for id in files(bellhop):  # and all that is there is whole
        assert download(bellhop, id, mine.token()).content == whole


def test_one_tenant_cannot_fill_the_disk(make_bellhop):
    bellhop = make_bellhop(CONFIG + "media: {{per_tenant: 1MiB}}\n")
    greedy, modest = bellhop.add(tenant="greedy"), bellhop.add(tenant="modest")
    statuses = [upload(bellhop, greedy, b"x" * 300_000).status for _ in range(5)]
    assert statuses == [200, 200, 200, 507, 507]
    assert upload(bellhop, modest).status == 200


def test_uploads_that_stall_hold_nothing_up_and_are_let_go(bellhop):
    mine, other = bellhop.add(tenant="acme"), bellhop.add(tenant="other")
    head = (f"POST /relay/media HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {mine.token()}\r\n"
            f"Content-Length: 1000000\r\n\r\n").encode()
    stalled = [socket.create_connection(("127.0.0.1", bellhop.port)) for _ in range(40)]
    for s in stalled:
        s.sendall(head + b"x" * 70000)
    wait_for(lambda: len(files(bellhop)) == 40)
    assert all(name.endswith(".part") for name in files(bellhop))
    began = time.monotonic()
    assert upload(bellhop, other).status == 200 and time.monotonic() - began < 10
    wait_for(lambda: len(files(bellhop)) == 1, 90)  # nothing for 30 s is too slow
    for s in stalled:
        s.close()


def test_what_is_packed_stays_packed(bellhop):
    """A file that would be a gigabyte unpacked is what it is: nothing here looks into it."""
    mine = bellhop.add(tenant="acme")
    packed = gzip.compress(bytes(20 << 20))
    room = io.BytesIO()
    with zipfile.ZipFile(room, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("../../bomb", bytes(20 << 20))
    for data, type, headers in ((packed, "application/gzip", {}), (room.getvalue(), "application/zip", {}),
                                (packed, "image/png", {"Content_Encoding": "gzip"})):
        id = kept(bellhop, mine, data, type=type, **headers)
        answer = download(bellhop, id, mine.token())
        assert answer.content == data and "Content-Encoding" not in answer.headers
        assert (bellhop.state / "media" / id).stat().st_size == len(data)
        assert answer.headers["Content-Type"] != "image/png"


# ---- strangers who write to a bot ----


@pytest.fixture
def bot(make_bellhop, dial):
    """An open Telegram bot of a tenant with 8 MiB: 2 MiB for strangers, 512 KiB for each of them."""
    from test_telegram import TOKEN, TelegramSim, config
    sim = TelegramSim()
    sim.bot(TOKEN, "my_bot")
    for n in range(1, 9):
        sim.person(n, f"person {n}")
    server = make_bellhop(config(sim) + "media: {{per_tenant: 8MiB}}\n")
    credential = server.add(id="desk", tenant="acme", platform="telegram", bot="my_bot")
    gateway = dial(server, credential, hello=("telegram", "my_bot"))

    def send(person, kib=400):
        """Sends a file; did it come?"""
        send.n += 1
        sim.say(person, caption=f"file {send.n}", user={"id": person, "is_bot": False, "first_name": "x"},
                document={"file_id": sim.file(b"x" * (kib * 1024), f"f{send.n}.bin"), "file_name": "f.bin", "file_size": kib * 1024})
        event = gateway.next("inbound")["event"]
        assert event["text"].startswith(f"file {send.n}")
        assert event["media_urls"] or "there is no room for it" in event["text"], event
        return bool(event["media_urls"])

    send.n = 0
    yield server, credential, send
    sim.close()


def test_one_stranger_on_a_platform_leaves_room_for_the_others(bot):
    server, credential, send = bot
    assert send(1) and not send(1)
    assert send(2) and not send(2)
    server.cli("link", "add", "--instance", "desk", "--platform", "telegram", "--user", "1")
    assert all(send(1) for _ in range(4))  # the agent's own people have the tenant's room


def test_strangers_on_a_platform_leave_room_for_the_tenant(bot):
    server, credential, send = bot
    assert [send(n) for n in range(1, 8)] == [True] * 5 + [False] * 2  # 2 MiB
    assert upload(server, credential, b"x" * 5_000_000).status == 200
