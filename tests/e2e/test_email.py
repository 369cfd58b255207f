"""E-mail: Postfix, opendkim and Dovecot as Debian ships them, with bellhop's mailbox between them."""
import email.utils
import json
import os
import sqlite3
import subprocess
import time
import urllib.request

import pytest

from conftest import PROGRAM, days_pass, rows_naming, wait_for
from mail_faults import CutImap, FaultySmtp, WithholdingImap
from mail_servers import AUTHSERV, BOT, PASSWORD, MailServers

ALICE = "alice@people.test"

CONFIG = """\
listen: 127.0.0.1:0
state_dir: {{state}}
log: {{{{level: debug}}}}
platforms:
{platform}"""


def words(part):
    return part.get_content().replace("\r\n", "\n").strip()


@pytest.fixture(scope="module")
def servers():
    s = MailServers().start()
    yield s
    s.stop()


class Rig:
    def __init__(self, servers, make_bellhop, dial, tls="implicit", fresh=True, wait=True, **more):
        if fresh:
            servers.fresh()
        self.mail, self.heard = servers, set()
        self.server = make_bellhop(CONFIG.format(platform=servers.config(tls, **more).replace("{", "{{").replace("}", "}}")))
        self.credential = self.server.add(platform="email", bot=BOT)
        self.dial = lambda: dial(self.server, self.credential, hello=("email", BOT))
        self.gateway = self.dial()
        if wait:
            self.wait_live()

    def status(self):
        doc = json.loads(self.server.cli("status", "--json").stdout)
        return next(p for p in doc["platforms"] if p["platform"] == "email")

    def wait_live(self):
        wait_for(lambda: self.status()["idle"])  # live, and nothing is left to read

    def hear(self, text):
        """The next mail, whose text is @text.  After a crash a delivery may come again under its id, as everywhere."""
        frame = self.gateway.next("inbound")
        while frame["bufferId"] in self.heard:
            frame = self.gateway.next("inbound")
        self.heard.add(frame["bufferId"])
        ev = frame["event"]
        assert ev["text"].removeprefix("[Subject: Hello]\n\n") == text, ev
        return ev

    def again(self):
        """Start anew, with the same gateway."""
        self.server.start()
        self.gateway = self.dial()

    def why(self, message_id):
        return self.server.cli("why", "--platform", "email", "--message", message_id).stdout


@pytest.fixture
def rig(servers, make_bellhop, dial):
    r = Rig(servers, make_bellhop, dial)
    yield r
    assert PASSWORD not in r.server.log()


def test_a_mail_and_its_answer(rig):
    """From the first mail to the answer to the answer: one thread, plain text and HTML, nothing of it a loop."""
    sent = rig.mail.write("What is the time?\n\n-- \nAlice\nSome Street 1", subject="A question", sender="Alice A <alice@people.test>")
    ev = rig.gateway.next("inbound")["event"]
    assert ev["text"] == "[Subject: A question]\n\nWhat is the time?"
    src = ev["source"]
    assert (src["platform"], src["chat_id"], src["user_id"], src["chat_type"]) == ("email", ALICE, ALICE, "dm")
    assert (src["user_name"], src["thread_id"], src["chat_topic"]) == ("Alice A", sent, "A question")
    assert ev["message_id"] == sent
    wait_for(lambda: "Seen" in rig.mail.mails(BOT)[0].flags)

    done = rig.gateway.act(op="send", chat_id=ALICE, content="It is **noon**.\n\n- one\n- two <b>x</b>", reply_to=sent,
                           metadata={"thread_id": sent})
    assert done["success"], done
    [got] = rig.mail.wait_mails(ALICE, 1)
    assert got["Message-ID"] == done["message_id"]
    assert (got["In-Reply-To"], got["References"], got["Subject"]) == (sent, sent, "Re: A question")
    assert (got["Auto-Submitted"], got["From"], got["To"]) == ("auto-replied", BOT, ALICE)
    assert got.get_content_type() == "multipart/alternative"
    plain, html = got.iter_parts()
    assert words(plain) == "It is **noon**.\n\n- one\n- two <b>x</b>"
    assert "<strong>noon</strong>" in html.get_content() and "<li>one</li>" in html.get_content()
    assert "<b>" not in html.get_content()

    again = rig.mail.write("Thanks!\n\nOn Monday, desk@our.test wrote:\n> It is noon.\n>\n> - one\n", subject="Re: A question",
                           headers={"In-Reply-To": done["message_id"]})
    ev = rig.gateway.next("inbound")["event"]
    assert ev["text"] == "Thanks!"
    assert ev["source"]["thread_id"] == sent and ev["reply_to_message_id"] == done["message_id"]
    assert rig.gateway.act(op="send", chat_id=ALICE, content="Welcome", metadata={"thread_id": sent})["success"]
    got = rig.mail.wait_mails(ALICE, 2)[1]
    assert (got["In-Reply-To"], got["References"].split()) == (again, [sent, again])
    assert rig.gateway.descriptor["supported_ops"] == ["send", "get_chat_info", "send_media", "prompt"]


def test_a_bot_that_is_added_to_a_conversation_reads_what_was_said(rig):
    quoting = "see below\n\nOn Monday, bob@people.test wrote:\n> Can the desk do that?\n"
    thread = {"In-Reply-To": "<2@people.test>", "References": "<1@people.test> <2@people.test>"}
    rig.mail.write(quoting, subject="Re: Plans", headers=thread)
    ev = rig.gateway.next("inbound")["event"]
    assert ev["text"] == quoting.strip() and ev["source"]["thread_id"] == "<1@people.test>"
    rig.mail.write(quoting.replace("see below", "and?"), subject="Re: Plans", headers=thread)
    assert rig.gateway.next("inbound")["event"]["text"] == "and?"


def test_an_agent_begins_a_thread(rig):
    """Only with somebody who has written before: a mailbox is no way to reach strangers."""
    assert "not routed" in rig.gateway.act(op="send", chat_id=ALICE, content="buy this")["error"]
    rig.mail.write("hello")
    rig.gateway.next("inbound")
    done = rig.gateway.act(op="send", chat_id=ALICE, content="# The report\r\nBcc: eve@evil.test\n\nAll is well.")
    assert done["success"] and done["thread_id"] == done["message_id"]
    [got] = rig.mail.wait_mails(ALICE, 1)
    assert (got["Subject"], got["In-Reply-To"], got["Bcc"]) == ("The report", None, None)
    assert got["Auto-Submitted"] == "auto-generated"
    rig.mail.write("Good.", subject="Re: The report", headers={"In-Reply-To": done["message_id"]})
    ev = rig.gateway.next("inbound")["event"]
    assert ev["source"]["thread_id"] == done["message_id"] and ev["text"] == "Good."
    for wrong in ("alice", f"{ALICE}\r\nRCPT TO:<eve@evil.test>", BOT, f"<{ALICE}>", f"{ALICE},bob@people.test"):
        assert not rig.gateway.act(op="send", chat_id=wrong, content="x")["success"]


FORGED = {
    "no signature": {},
    "a signature of somebody else": {"sign": "evil.test"},
    "our server's header, forged": {"headers": {"Authentication-Results": f"{AUTHSERV}; dmarc=pass header.from=people.test"}},
    "forged and signed by somebody else": {"sign": "evil.test", "headers": {
        "Authentication-Results": f"{AUTHSERV}; dkim=pass header.d=people.test"}},
    "another server's header": {"headers": {"Authentication-Results": "mx.evil.test; dmarc=pass header.from=people.test"}},
    "the true name as a display name": {"sender": '"alice@people.test" <eve@evil.test>', "sign": None},
    "changed after it was signed": {"sign": "people.test", "spoil": True},
}


def test_forged_mail_reaches_nobody(rig):
    """Nothing that does not come from people.test is delivered, and `why` tells the reason; it stays unread."""
    ids = {}
    for name, how in FORGED.items():
        m = rig.mail.compose(how.get("sender", ALICE), f"forged: {name}", headers=how.get("headers"))
        raw = rig.mail.sign(m, how["sign"]) if how.get("sign") else bytes(m)
        if how.get("spoil"):
            raw = raw.replace(b"forged:", b"FORGED:")
        rig.mail.inject(raw, "eve@evil.test")
        ids[name] = m["Message-ID"]
    two = rig.mail.sign(b"From: eve@evil.test\r\n" + bytes(rig.mail.compose(ALICE, "two authors", message_id="<two@x>")), "evil.test")
    rig.mail.inject(two, "eve@evil.test")
    ids["two authors"] = "<two@x>"
    for name, headers in (("vacation", {"Auto-Submitted": "auto-replied"}), ("bulk", {"Precedence": "bulk"}),
                          ("list", {"List-Id": "<l.people.test>"})):
        ids[name] = rig.mail.write(name, headers=headers)
    m = rig.mail.compose(ALICE, "null")
    rig.mail.inject(rig.mail.sign(m), "")
    ids["null sender"] = m["Message-ID"]
    rig.mail.write("this one is true")
    assert rig.gateway.next("inbound")["event"]["text"].endswith("this one is true")
    assert len(rig.gateway.seen) == 1
    for name, message_id in ids.items():
        assert "bellhop refused it: " in rig.why(message_id), name
    assert rig.status()["refused"] == len(ids)
    seen = [words(m) for m in wait_for(lambda: [m for m in rig.mail.mails(BOT) if "Seen" in m.flags])]
    assert seen == ["this one is true"]


def test_what_came_while_it_was_down(rig):
    """The first start answers nothing old; later starts answer what came meanwhile, also after kill -9 and with new UIDs."""
    mails = rig.mail
    for n in range(3):
        mails.write(f"while up {n}", message_id=f"<up{n}@people.test>")
    for n in range(3):
        rig.hear(f"while up {n}")
    rig.server.kill()
    for n in range(3):
        mails.write(f"while down {n}")
    mails.wait_mails(BOT, 6)
    rig.again()
    for n in range(3):
        rig.hear(f"while down {n}")
    rig.server.stop()
    was = mails.uidvalidity()
    mails.write("with new UIDs")
    mails.wait_mails(BOT, 7)
    mails.new_uidvalidity()
    assert mails.uidvalidity() != was
    rig.again()
    rig.hear("with new UIDs")
    rig.wait_live()
    rig.gateway.quiet()
    assert [t.split("\n")[-1] for t in rig.gateway.seen] == ["with new UIDs"]
    assert rig.status()["known"] == 6
    mails.write("while up 0", message_id="<up0@people.test>")  # sent again by a server that lost the reply
    mails.write("and on")
    rig.hear("and on")
    assert len(rig.gateway.seen) == 2


def test_a_restored_folder_answers_nothing_twice(rig):
    """Also what has no Message-ID, when the host has long forgotten its event ids."""
    drop_in(rig.mail, 2, named=False)  # a server that mails pass through adds an id
    rig.hear("alice 0")
    rig.hear("bob 1")
    rig.mail.write("with one")
    rig.hear("with one")
    rig.server.stop()
    days_pass(rig.server, 3)
    rig.mail.new_uidvalidity()
    rig.again()
    rig.wait_live()
    rig.gateway.quiet()
    assert rig.gateway.seen == [] and rig.status()["known"] == 3


def test_a_restored_folder_answers_nothing_older_than_what_is_remembered(rig):
    """Mails are remembered for half a year, and a folder may be older."""
    drop_in(rig.mail, 1, date=time.time() - 200 * 86400)
    rig.hear("alice 0")
    rig.server.stop()
    db = sqlite3.connect(f"{rig.server.state}/bellhop.db")
    db.execute("DELETE FROM kv WHERE ns = 'email_mail'")  # as the sweep did meanwhile
    (key, value), = db.execute("SELECT k, v FROM kv WHERE ns = 'email'").fetchall()
    began = {**json.loads(value), "since": int(time.time() - 300 * 86400) * 1000}
    db.execute("UPDATE kv SET v = ? WHERE ns = 'email' AND k = ?", (json.dumps(began).encode(), key))
    db.commit()
    db.close()
    days_pass(rig.server, 200)
    rig.mail.new_uidvalidity()
    rig.mail.write("new")
    rig.again()
    rig.hear("new")
    rig.wait_live()
    rig.gateway.quiet()
    assert rig.gateway.seen == ["[Subject: Hello]\n\nnew"]


def test_the_first_start_answers_nothing_old(servers, make_bellhop, dial):
    servers.fresh()
    servers.write("old")
    servers.wait_mails(BOT, 1)
    rig = Rig(servers, make_bellhop, dial, tls="starttls", fresh=False)
    servers.write("new")
    assert rig.gateway.next("inbound")["event"]["text"].endswith("new")
    servers.new_uidvalidity()
    servers.write("newest")
    assert rig.gateway.next("inbound")["event"]["text"].endswith("newest")
    rig.gateway.quiet()
    assert len(rig.gateway.seen) == 2 and not [m for m in servers.mails(BOT) if words(m) == "old" and "Seen" in m.flags]


def test_a_server_without_idle_is_asked(servers, make_bellhop, dial):
    imap = CutImap(servers.imap_port, hide=b"IDLE")
    rig = Rig(servers, make_bellhop, dial, tls="off", imap_port=imap.port, wait=False, poll="1s")
    wait_for(lambda: rig.status()["uidvalidity"] and rig.status()["state"] == "live")
    for text in ("one", "two"):
        servers.write(text)
        rig.hear(text)
    assert not rig.status()["idle"] and rig.status()["connects"] == 1
    imap.close()


def test_faults_of_the_smtp_server(servers, make_bellhop, dial):
    """A lost reply repeats the same mail, 4xx waits 5 s, 5xx is the action's error, and a crash changes none of it."""
    smtp = FaultySmtp(servers.submission_port, ["lose"])
    rig = Rig(servers, make_bellhop, dial, tls="off", smtp_port=smtp.port)
    for who in (ALICE, "bob@people.test"):
        servers.write("hi", sender=who)
        rig.hear("hi")
    lost = rig.gateway.act(op="send", chat_id=ALICE, content="once")
    assert lost["success"], lost
    twice = servers.wait_mails(ALICE, 2)
    assert {m["Message-ID"] for m in twice} == {lost["message_id"]} and smtp.mails == 2
    smtp.plan = ["550 5.7.1 not you"]
    done = rig.gateway.act(op="send", chat_id="bob@people.test", content="no")
    assert not done["success"] and "550 5.7.1 not you" in done["error"]
    # Killed while it waits out a 4xx: the next start goes on with it.
    smtp.plan = ["451 4.7.1 greylisted"]
    rig.gateway.send({"type": "outbound", "requestId": "r1", "action": {"op": "send", "chat_id": ALICE, "content": "later"}})
    wait_for(lambda: "greylisted" in rig.server.cli("outbox", "list", "--json").stdout)
    rig.server.kill()
    rig.again()
    assert words(servers.wait_mails(ALICE, 3)[2].get_body(("plain",))) == "later"
    # Killed when the mail is sent and the reply is not there: the same mail again.
    smtp.hold = True
    rig.gateway.send({"type": "outbound", "requestId": "r2", "action": {"op": "send", "chat_id": ALICE, "content": "held"}})
    wait_for(lambda: smtp.mails == 4)
    rig.server.kill()
    smtp.hold = False
    rig.again()
    held = servers.wait_mails(ALICE, 5)[3:]
    assert len({m["Message-ID"] for m in held}) == 1 and words(held[0].get_body(("plain",))) == "held"
    assert len(servers.mails("bob@people.test")) == 0
    smtp.close()


def test_mails_wait_for_a_full_mailbox(servers, make_bellhop, dial):
    """They stay in the folder, `status` says why, and all of them come, in order, once there is room."""
    rig = Rig(servers, lambda c: make_bellhop(c + "delivery: {{max_mailbox_bytes: 64KiB}}\n"), dial)
    rig.gateway.sleep()
    texts = [f"{n} " + "x" * 20000 for n in range(4)]
    for text in texts:
        servers.write(text)
    wait_for(lambda: "a mailbox is full" in (rig.status()["problem"] or ""))
    rig.gateway = rig.dial()
    for text in texts:
        rig.hear(text)
    wait_for(lambda: rig.status()["problem"] is None)


@pytest.mark.parametrize("empty", [False, True], ids=["by NO", "by OK without the mail"])
def test_a_mail_that_the_server_withholds_is_not_lost(servers, make_bellhop, dial, empty):
    """A refused FETCH is no deleted mail: it is tried again, the order is kept, and `status` shows what waits."""
    imap = WithholdingImap(servers.imap_port, empty)
    rig = Rig(servers, make_bellhop, dial, tls="off", imap_port=imap.port)
    servers.write("first")
    rig.hear("first")
    imap.uids = {rig.status()["uid"] + 1}
    servers.write("withheld")
    servers.write("behind it")
    wait_for(lambda: "refuses to give the mail" in (rig.status()["problem"] or ""))
    assert rig.gateway.quiet()
    imap.uids = set()
    rig.hear("withheld")
    rig.hear("behind it")
    wait_for(lambda: rig.status()["problem"] is None)
    imap.close()


@pytest.mark.skipif(not os.environ.get("BELLHOP_LONG"), reason="takes 40 s: ./dev crash runs it")
def test_a_mail_that_cannot_be_read_holds_up_no_others(servers, make_bellhop, dial):
    """The server gives all mails but one, again and again: that one is passed over."""
    imap = WithholdingImap(servers.imap_port)
    rig = Rig(servers, make_bellhop, dial, tls="off", imap_port=imap.port)
    imap.uids = {rig.status()["uid"] + 1}
    servers.write("broken")
    servers.write("behind it")
    wait_for(lambda: rig.gateway.seen or rig.status()["refused"], 90)
    rig.hear("behind it")
    assert imap.refused == 5 and "passed over" in rig.server.log() and rig.status()["problem"] is None
    imap.close()


def test_an_smtp_login_that_works_again_ends_the_problem(servers, make_bellhop, dial):
    smtp = FaultySmtp(servers.submission_port, ["535 5.7.8 wrong password"])
    rig = Rig(servers, make_bellhop, dial, tls="off", smtp_port=smtp.port)
    servers.write("hi")
    rig.hear("hi")
    done = rig.gateway.act(op="send", chat_id=ALICE, content="at last")
    assert "the SMTP server refuses the login" in rig.server.log()
    assert done["success"] and rig.status()["problem"] is None, (done, rig.status())
    smtp.close()


def test_a_mail_that_comes_back_is_the_error_of_its_action(rig):
    rig.mail.write("hi", sender="gone@people.test", signed=False)
    rig.mail.inject(rig.mail.sign(rig.mail.compose("gone@people.test", "hello")), "gone@people.test")
    rig.hear("hello")
    rig.gateway.send({"type": "outbound", "requestId": "r1", "action": {"op": "send", "chat_id": "gone@people.test", "content": "there?"}})
    done = rig.gateway.next("outbound_result")["result"]
    assert done["success"]
    wait_for(lambda: rig.status()["bounced"] == 1)
    actions = json.loads(rig.server.cli("why", "--action", "r1", "--json").stdout)
    assert sorted(a["ended"] for a in actions) == ["done", "refused"] and actions[0]["id"] == actions[1]["id"], actions
    shown = rig.server.cli("why", "--action", actions[0]["id"]).stdout
    assert "refused, the mail came back: 5.1.1" in shown and "no such person" in shown, shown
    # A stranger's report, which names a mail that was never sent, changes nothing.
    forged = next(m for m in rig.mail.mails(BOT) if m.get_content_type() == "multipart/report").as_bytes()
    proof = done["message_id"][18:34]
    rig.mail.inject(forged.replace(proof.encode(), b"0" * 16), "")
    rig.mail.write("still here")
    rig.hear("still here")
    assert rig.status()["bounced"] == 1 and len(rig.gateway.seen) == 2


def test_the_doctor_asks_both_servers(rig):
    good = rig.server.cli("doctor", check=False).stdout
    assert "email" in good and BOT in good
    text = rig.server.config.read_text()
    rig.server.config.write_text(text.replace(f"password: '{PASSWORD}'", "password: wrong", 1))
    assert "imap" in rig.server.cli("doctor", check=False).stdout
    rig.server.config.write_text("password: wrong".join(text.rsplit(f"password: '{PASSWORD}'", 1)))
    assert "smtp" in rig.server.cli("doctor", check=False).stdout
    rig.server.config.write_text(text)


def test_a_mail_that_no_agent_gets_stays_unread(servers, make_bellhop, dial):
    """Mail of people whom the gate does not let in is not marked as read; that of a linked person is."""
    servers.fresh()
    server = make_bellhop(CONFIG.format(platform=servers.config("implicit").replace("{", "{{").replace("}", "}}")))
    credential = server.add(platform="email", bot=BOT, open=False, instance="mine")
    gateway = dial(server, credential, hello=("email", BOT))
    status = lambda: next(p for p in json.loads(server.cli("status", "--json").stdout)["platforms"] if p["platform"] == "email")  # noqa: E731
    wait_for(lambda: status()["idle"])
    servers.write("let me in", sender="bob@people.test")
    servers.write("/link " + server.cli("link", "--instance", "mine").stdout.split()[0])
    wait_for(lambda: any("Linked" in words(next(iter(m.iter_parts()), m)) for m in servers.mails(ALICE)))
    servers.write("hello")
    assert gateway.next("inbound")["event"]["text"].endswith("hello")
    wait_for(lambda: sum("Seen" in m.flags for m in servers.mails(BOT)) == 2)
    assert [words(m) for m in servers.mails(BOT) if "Seen" not in m.flags] == ["let me in"]


def test_questions_are_answered_by_number(rig):
    rig.mail.write("do it")
    rig.gateway.next("inbound")
    asked = rig.gateway.act(op="prompt", chat_id=ALICE, content="Deploy?", prompt_kind="choice", prompt_id="p1",
                            options=[{"id": "y", "label": "Yes"}, {"id": "n", "label": "No"}])
    assert asked["success"], asked
    [got] = rig.mail.wait_mails(ALICE, 1)
    text = words(got.get_body(("plain",)))
    assert "1" in text and "Yes" in text
    rig.mail.write("2\n\nOn Monday, desk@our.test wrote:\n> Deploy?\n", headers={"In-Reply-To": asked["message_id"]})
    ev = rig.gateway.next("inbound")["event"]
    assert "n" in str(ev) and ev.get("prompt_response", ev.get("press", {})), ev


def test_files_both_ways(rig):
    photo = bytes.fromhex("89504e470d0a1a0a") + b"\0" * 300000
    rig.mail.write("look", attach=[("bild ä.png", "image/png", photo), ("../../note.txt", "text/plain", b"a note")])
    ev = rig.gateway.next("inbound")["event"]
    got = [urllib.request.urlopen(u).read() for u in ev["media_urls"]]
    assert got == [photo, b"a note\n"] or got == [photo, b"a note"]
    assert [m["filename"] for m in ev["media"]] == ["bild ä.png", "note.txt"]
    upload = rig.server.post("/relay/media", photo, headers={"Authorization": f"Bearer {rig.credential.token()}",
                                                             "Content-Type": "image/png", "X-Filename": "back.png"})
    url = f"{rig.server.url}/relay/media/{upload.json['id']}"
    done = rig.gateway.act(op="send_media", chat_id=ALICE, content="as **asked**", media_kind="image", source_url=url,
                           filename="zurück.png")
    assert done["success"], done
    [mail] = rig.mail.wait_mails(ALICE, 1)
    assert words(mail.get_body(("plain",))) == "as **asked**"
    [part] = mail.iter_attachments()
    assert (part.get_filename(), part.get_content_type(), part.get_content()) == ("zurück.png", "image/png", photo)


def test_a_person_is_erased(rig):
    sent = rig.mail.write("What is the time?", subject="Between us")
    rig.hear("[Subject: Between us]\n\nWhat is the time?")
    assert rig.gateway.act(op="send", chat_id=ALICE, content="Noon", metadata={"thread_id": sent})["success"]
    erased = json.loads(rig.server.cli("erase", "--person", f"email:{ALICE}", "--yes", "--json").stdout)
    assert erased["mails"] > 0
    rig.server.stop()
    assert rows_naming(rig.server, ALICE) == [] and rows_naming(rig.server, "Between us") == []


@pytest.mark.parametrize("url, fine", [("http://localhost:9/t", True), ("http://127.0.0.1:9/t", True), ("https://login.example/t", True),
                                       ("http://localhost.evil.example/t", False), ("http://127.0.0.1.evil.example/t", False),
                                       ("http://localhost@evil.example/t", False), ("http://login.example/t", False)])
def test_only_a_token_server_on_this_machine_is_asked_without_tls(tmp_path, url, fine):
    config = tmp_path / "bellhop.yaml"
    config.write_text(f"state_dir: {tmp_path}/state\nplatforms:\n  - {{platform: email, bot: {BOT}, authserv_id: mx.example.org,\n"
                      "     imap: {host: 127.0.0.1, port: 9, user: u}, smtp: {host: 127.0.0.1, port: 9, user: u},\n"
                      f"     oauth: {{token_url: '{url}', client_id: c, refresh_token: r}}}}\n")
    done = subprocess.run([PROGRAM, "doctor", "-c", config], text=True, capture_output=True, timeout=60)
    assert ("`oauth.token_url` must begin with https://" not in done.stdout + done.stderr) == fine, done


def test_a_mailbox_without_a_password(servers, make_bellhop, dial):
    """XOAUTH2 for both servers; a token that is refused is fetched anew, and the replaced refresh token survives a restart."""
    oauth = f"{{token_url: '{servers.tokens.url}/token', client_id: bellhop, refresh_token: {servers.tokens.refresh}}}"
    rig = Rig(servers, make_bellhop, dial, oauth=oauth, password="")
    servers.write("hi")
    rig.hear("hi")
    assert rig.gateway.act(op="send", chat_id=ALICE, content="one")["success"]
    servers.tokens.good = set()  # revoked
    done = rig.gateway.act(op="send", chat_id=ALICE, content="two")
    assert done["success"] and servers.tokens.asked == 2, done
    rig.server.restart()
    rig.gateway = rig.dial()
    rig.wait_live()
    assert servers.tokens.asked == 3
    log = rig.server.log()
    assert "access-" not in log and "refresh-" not in log
    servers.wait_mails(ALICE, 2)


def drop_in(servers, n, start=0, named=True, date=None):
    """@n mails at once, as a mail server delivers them: from two people, in turn."""
    box = servers.mail / "our.test" / "desk"
    for kind in ("new", "cur", "tmp"):
        (box / kind).mkdir(parents=True, exist_ok=True)
    for i in range(start, start + n):
        who = ("alice", "bob")[i % 2]
        (box / "tmp" / f"{1800000000 + i}.M{i}.x").write_text(
            f"Return-Path: <{who}@people.test>\nAuthentication-Results: {AUTHSERV}; dkim=pass header.d=people.test\n"
            f"From: {who}@people.test\nTo: {BOT}\n" + f"Message-ID: <m{i}@people.test>\nIn-Reply-To: <root@people.test>\n" * named +
            f"Date: {email.utils.formatdate(date)}\n\n{who} {i}\n")
        (box / "tmp" / f"{1800000000 + i}.M{i}.x").rename(box / "new" / f"{1800000000 + i}.M{i}.x")
    for path in (servers.mail / "our.test", box, *(box / kind for kind in ("new", "cur", "tmp"))):
        os.chown(path, servers.owner.pw_uid, servers.owner.pw_gid)
    for f in (box / "new").iterdir():
        try:
            os.chown(f, servers.owner.pw_uid, servers.owner.pw_gid)
        except FileNotFoundError:
            pass


def test_a_flood_of_mail_with_faults(servers, make_bellhop, dial):
    """Connections break in the middle of mails, and bellhop is killed: every mail comes, once, in the order of its author."""
    total = int(os.environ.get("BELLHOP_MAILS", "200"))
    kills = max(1, total // 1000)
    imap = CutImap(servers.imap_port, every=40000)
    rig = Rig(servers, make_bellhop, dial, tls="off", imap_port=imap.port, wait=False)
    wait_for(lambda: rig.status()["uidvalidity"])
    got, ids = {}, set()
    drop_in(servers, total)

    def note(frame):
        if frame["bufferId"] not in ids:
            ids.add(frame["bufferId"])
            who, n = frame["event"]["text"].split()
            assert n not in got, f"{n} came twice"
            got[n] = who

    def take(until):
        end = time.monotonic() + 60 + total / 20
        while len(got) < until:
            assert time.monotonic() < end, (len(got), imap.cuts, rig.status())
            try:
                frame = rig.gateway.next("inbound", 1)
            except Exception:  # noqa: BLE001 - nothing came
                continue
            note(frame)

    for k in range(kills):
        take((k + 1) * total // (kills + 1))
        rig.server.kill()
        try:
            while True:  # acknowledged already: these do not come again
                note(rig.gateway.next("inbound", 0.5))
        except AssertionError as e:
            assert "no inbound within" in str(e)
        rig.again()
    take(total)
    assert imap.cuts > 0
    for who, first in (("alice", 0), ("bob", 1)):
        assert [int(n) for n, w in got.items() if w == who] == list(range(first, total, 2))
    imap.close()
