"""Files, buttons, reactions, threads and commands, on every platform: the real program against strict simulators."""
import http.server
import json
import threading

import pytest

import test_discord
import test_telegram
from conftest import wait_for
from oracle import oracle  # noqa: F401 - a fixture
from test_discord import GENERAL
from test_media import PNG, download, files, kept
from test_telegram import ANN, FORUM
from test_telegram import sim as telegram_sim  # noqa: F401 - a fixture
from test_twilio import Rig as TwilioRig
from test_wecom import Rig as WecomRig

OGG = b"OggS" + b"opus" * 500


class Files:
    """A public web server, as far as bellhop is told: it lies at a private address."""

    def __init__(self, files):
        asked = self.asked = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                asked.append(self.path)
                body, kind = files.get(self.path.split("?")[0], (b"", None))
                self.send_response(200 if kind else 404)
                self.send_header("Content-Type", kind or "text/plain")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def elsewhere():
    made = Files({"/cat.png": (PNG, "image/png"), "/page": (b"<!doctype html>log in", "text/html")})
    yield made
    made.close()


@pytest.fixture
def telegram(telegram_sim, make_bellhop, dial, request):  # noqa: F811
    class Rig:
        pass

    r = Rig()
    r.sim = telegram_sim
    wait = getattr(request, "param", "60s")  # of a message for its files
    r.server = make_bellhop(test_telegram.config(telegram_sim) + f"media: {{{{allow_private: true, wait: {wait}}}}}\n")
    r.credential = r.server.add(platform="telegram", bot="my_bot", tenant="acme")
    r.gateway = dial(r.server, r.credential, hello=("telegram", "my_bot"))
    telegram_sim.say(ANN, "hello")
    r.gateway.hear("hello")
    yield r
    assert test_telegram.TOKEN not in r.server.log()


@pytest.fixture
def discord(make_bellhop, dial):
    sim = test_discord.DiscordSim(test_discord.TOKEN)
    r = test_discord.Rig(sim, make_bellhop, dial)
    sim.say(GENERAL, "hello <@%s>" % test_discord.BOT, mentions=[{"id": test_discord.BOT}])
    r.gateway.next("inbound")
    yield r
    r.check()
    sim.close()


def send_media(gateway, chat, url, kind="image", caption="", **more):
    return gateway.act(op="send_media", chat_id=str(chat), media_kind=kind, source_url=url, content=caption,
                       reply_to=None, metadata={}, **more)


def reference(rig, data=PNG, **more):
    return f"{rig.server.url}/relay/media/{kept(rig.server, rig.credential, data, **more)}"


# ---- files that agents send ----


def test_telegram_shows_an_agents_picture_with_its_caption(telegram):
    result = send_media(telegram.gateway, ANN, reference(telegram), caption="a **cat**", filename="cat.png")
    assert result["success"], result
    message = telegram.sim.sent(ANN)[-1]
    assert (message["caption"], message["photo"]["bytes"]) == ("a cat", PNG)
    assert str(message["message_id"]) == result["message_id"]
    assert telegram.sim.called("sendPhoto")[-1]["caption_entities"] == [{"type": "bold", "offset": 2, "length": 3}]


def test_an_edit_of_a_picture_changes_its_caption(telegram):
    result = send_media(telegram.gateway, ANN, reference(telegram), caption="a cat")
    edit = {"op": "edit", "chat_id": str(ANN), "message_id": result["message_id"], "metadata": {}}
    edited = telegram.gateway.act(**edit, content="a **tiger**")
    assert edited == {"success": True, "message_id": result["message_id"]}
    message, = telegram.sim.sent(ANN)
    assert (message["caption"], message["photo"]["bytes"]) == ("a tiger", PNG)
    assert message["caption_entities"] == [{"type": "bold", "offset": 2, "length": 5}]
    long = telegram.gateway.act(**edit, content="x" * 1025)
    assert not long["success"] and "caption is too long" in long["error"]


@pytest.mark.parametrize("kind, type, data, method, field", [
    ("voice", "audio/ogg", OGG, "sendVoice", "voice"), ("audio", "audio/mpeg", b"ID3" + b"x" * 99, "sendAudio", "audio"),
    ("audio", "audio/ogg", OGG, "sendDocument", "document"), ("video", "video/mp4", b"....ftypisom" * 9, "sendVideo", "video"),
    ("image", "image/gif", b"GIF89a" + b"x" * 99, "sendAnimation", "animation"),
    ("document", "application/pdf", b"%PDF-1.7 ...", "sendDocument", "document"),
    ("image", "image/tiff", b"II*" + b"x" * 99, "sendDocument", "document")])
def test_telegram_takes_each_kind_as_what_it_is(telegram, kind, type, data, method, field):
    assert send_media(telegram.gateway, ANN, reference(telegram, data, type=type), kind)["success"]
    assert telegram.sim.called(method)[-1][field]["bytes"] == data


def test_what_telegram_does_not_take_as_a_picture_is_a_document(telegram):
    odd = PNG + b"not a picture"
    assert send_media(telegram.gateway, ANN, reference(telegram, odd))["success"]
    assert telegram.sim.called("sendPhoto") and telegram.sim.called("sendDocument")[-1]["document"]["bytes"] == odd


def test_a_long_caption_goes_on_as_messages(telegram):
    caption = "\n\n".join(f"paragraph {n} " + "word " * 40 for n in range(12))
    assert send_media(telegram.gateway, ANN, reference(telegram), caption=caption)["success"]
    first, *rest = [m.get("caption") or m.get("text") for m in telegram.sim.sent(ANN)[-2:]]
    assert len(first) <= 1024 and "".join((first + "".join(rest)).split()) == "".join(caption.split())


def test_a_file_at_a_public_address_is_fetched_and_sent(telegram, elsewhere):
    assert send_media(telegram.gateway, ANN, elsewhere.url + "/cat.png")["success"]
    assert telegram.sim.sent(ANN)[-1]["photo"]["bytes"] == PNG
    missing = send_media(telegram.gateway, ANN, elsewhere.url + "/none.png")
    assert not missing["success"] and "404" in missing["error"]


def test_a_page_at_the_address_of_a_picture_is_not_sent_as_one(telegram, elsewhere):
    result = send_media(telegram.gateway, ANN, elsewhere.url + "/page")
    assert not result["success"] and "web page" in result["error"]
    assert send_media(telegram.gateway, ANN, elsewhere.url + "/page", kind="document")["success"]
    assert [m["document"]["bytes"] for m in telegram.sim.sent(ANN)] == [b"<!doctype html>log in"]


def test_no_address_of_the_own_network_is_asked_unless_allowed(make_bellhop, telegram_sim, dial, elsewhere):  # noqa: F811
    server = make_bellhop(test_telegram.config(telegram_sim))
    credential = server.add(platform="telegram", bot="my_bot", tenant="acme")
    gateway = dial(server, credential, hello=("telegram", "my_bot"))
    telegram_sim.say(ANN, "hi")
    gateway.hear("hi")
    for url in (elsewhere.url + "/cat.png", "http://169.254.169.254/latest/meta-data", "http://[::1]:80/x",
                "file:///etc/passwd", "ftp://example.org/x", "", elsewhere.url + "/relay/media/" + "0" * 32):
        result = send_media(gateway, ANN, url)
        assert not result["success"] and "cannot be sent" in result["error"], (url, result)
    assert elsewhere.asked == []


def test_a_file_of_another_tenant_cannot_be_sent(telegram):
    other = telegram.server.add(tenant="rival", platform=None)
    theirs = kept(telegram.server, other)
    result = send_media(telegram.gateway, ANN, f"{telegram.server.url}/relay/media/{theirs}")
    assert not result["success"] and telegram.sim.called("sendPhoto") == []


def test_discord_gets_the_file_with_its_message(discord):
    result = send_media(discord.gateway, GENERAL, reference(discord), caption="look @everyone", filename="c a t.png")
    assert result["success"], result
    assert discord.sim.texts(GENERAL)[-1] == "look @everyone"
    file, = discord.sim.files[result["message_id"]]
    assert (file["filename"], file["content_type"], file["bytes"]) == ("c a t.png", "image/png", PNG)
    alone = send_media(discord.gateway, GENERAL, reference(discord))
    assert discord.sim.files[alone["message_id"]][0]["bytes"] == PNG
    large = send_media(discord.gateway, GENERAL, reference(discord, b"x" * (11 * 2**20), type="video/mp4"), "video")
    assert not large["success"]


def test_a_lost_answer_does_not_post_a_file_twice_on_discord(discord):
    discord.sim.trouble("POST", "/messages", None)
    before = len(discord.sim.sent(GENERAL))
    assert send_media(discord.gateway, GENERAL, reference(discord), caption="once")["success"]
    assert len(discord.sim.sent(GENERAL)) == before + 1


def test_twilio_is_told_where_to_fetch_it(oracle, make_bellhop, dial):  # noqa: F811
    r = TwilioRig(oracle, make_bellhop, dial)
    r.say("hi")
    r.gateway.hear("hi")
    assert send_media(r.gateway, "+15551234567", reference(r), caption="look")["success"]
    form = r.sim.sent[-1]
    assert form["Body"] == "look" and form["MediaUrl"].startswith("https://relay.example.org/relay/media/")
    id, query = form["MediaUrl"].split("/relay/media/")[1].split("?")
    assert download(r.server, f"{id}?{query}").content == PNG
    assert download(r.server, f"{id}?{query[:-4]}AAAA").status == 401
    assert r.sim.violations == []
    r.sim.close()


def test_wecom_gets_the_upload_then_the_message(oracle, make_bellhop, dial):  # noqa: F811
    r = WecomRig(oracle, make_bellhop, dial)
    r.say("hi")
    r.gateway.hear("hi")
    chat = "ann"
    result = send_media(r.gateway, chat, reference(r), caption="look", filename="cat.png")
    assert result["success"], result
    assert r.sim.sent[-2:] == [(chat, ("image", ("cat.png", PNG))), (chat, "look")]
    assert send_media(r.gateway, chat, reference(r, OGG, type="audio/ogg"), "voice")["success"]
    assert r.sim.sent[-1][1][0] == "file"
    assert r.sim.violations == []
    r.sim.close()


# ---- files that people send ----


def fetch(rig, event, n=0, token=True):
    """As a gateway does it."""
    url = event["media_urls"][n]
    return download(rig.server, url.split("/relay/media/")[1], rig.credential.token() if token else None)


def photo(rig, data=PNG, **more):
    sizes = [{"file_id": "small", "file_size": 10}, {"file_id": rig.sim.file(data), "file_size": len(data)}]
    return rig.sim.say(ANN, photo=sizes, **more)


def test_a_photo_comes_with_its_message(telegram):
    photo(telegram, caption="my cat")
    event = telegram.gateway.next("inbound")["event"]
    assert (event["text"], event["message_type"]) == ("my cat", "photo")
    assert event["media_types"] == ["image/jpeg"]
    assert event["media"] == [{"kind": "image", "mime": "image/jpeg", "size": len(PNG), "caption": "my cat"}]
    assert event["media_urls"][0].startswith("https://relay.example.org/relay/media/")
    assert test_telegram.TOKEN not in json.dumps(event)
    assert fetch(telegram, event).content == PNG
    assert fetch(telegram, event, token=False).content == PNG  # an older gateway shows no token: its URL is signed
    other = telegram.server.add(tenant="rival", platform=None)
    id = event["media_urls"][0].split("/relay/media/")[1].split("?")[0]
    assert download(telegram.server, id, other.token()).status == 404


def test_a_newer_gateway_gets_a_bare_url(telegram):
    telegram.gateway.act(op="typing", chat_id=str(ANN), metadata={})
    photo(telegram)
    event = telegram.gateway.next("inbound")["event"]
    assert "?" not in event["media_urls"][0]
    assert fetch(telegram, event, token=False).status == 401 and fetch(telegram, event).content == PNG


def test_a_voice_note_comes_in_as_one(telegram):
    telegram.sim.say(ANN, voice={"file_id": telegram.sim.file(OGG, "voice/file_2.oga"), "duration": 3,
                                 "mime_type": "audio/ogg", "file_size": len(OGG)})
    event = telegram.gateway.next("inbound")["event"]
    assert (event["message_type"], event["media"][0]["kind"], event["media_types"]) == ("voice", "voice", ["audio/ogg"])
    assert fetch(telegram, event).content == OGG


def test_only_the_chat_of_a_slow_file_waits_and_in_order(telegram):
    telegram.sim.file_delay = 1.2
    photo(telegram, caption="first")
    telegram.sim.say(ANN, "second")
    telegram.sim.person(6, "Bob")
    telegram.sim.say(6, "from elsewhere", user={"id": 6, "is_bot": False, "first_name": "Bob"})
    heard = [telegram.gateway.next("inbound")["event"]["text"] for _ in range(3)]
    assert heard == ["from elsewhere", "first", "second"]


@pytest.mark.parametrize("telegram", ["2s"], indirect=True)
def test_a_file_that_does_not_come_is_said_to_be_missing(telegram):
    telegram.sim.file_delay = 30
    photo(telegram, caption="slow")
    event = telegram.gateway.next("inbound", 15)["event"]
    assert event["text"].startswith("slow\n[a file is missing: ") and event["media_urls"] == []
    telegram.sim.say(ANN, photo=[{"file_id": "unknown"}])
    event = telegram.gateway.next("inbound", 15)["event"]
    assert "[a file is missing: Telegram did not say where the file is]" in event["text"]


def test_a_crash_while_a_file_is_fetched_loses_nothing(telegram, dial):
    telegram.sim.file_delay = 1.5
    photo(telegram, caption="precious")
    wait_for(lambda: ("download", "photos/file_1.jpg") in telegram.sim.calls)
    telegram.server.kill()
    telegram.sim.file_delay = 0
    telegram.server.start()
    gateway = dial(telegram.server, telegram.credential, hello=("telegram", "my_bot"))
    event = gateway.next("inbound", 20)["event"]
    assert event["text"] == "precious"
    assert fetch(telegram, event).content == PNG
    telegram.sim.say(ANN, "after")
    assert gateway.next("inbound", 20)["event"]["text"] == "after"


def test_a_sleeper_still_gets_its_file(telegram, dial):
    telegram.gateway.send({"type": "going_idle"})
    telegram.gateway.next("going_idle_ack")
    telegram.gateway.close()
    photo(telegram, caption="while asleep")
    wait_for(lambda: files(telegram.server))
    telegram.server.restart()
    gateway = dial(telegram.server, telegram.credential, hello=("telegram", "my_bot"))
    event = gateway.next("inbound", 20)["event"]
    assert event["text"] == "while asleep" and fetch(telegram, event).content == PNG


# ---- Discord's addresses hold for a day ----


@pytest.fixture
def fading(make_bellhop, dial, elsewhere):
    """Discord with a gateway that can sleep; its attachments lie on a server of their own."""
    sim = test_discord.DiscordSim(test_discord.TOKEN)
    r = test_discord.Rig(sim, make_bellhop, dial)
    with open(r.server.config, "a") as f:
        f.write("media: {allow_private: true}\n")
    r.server.restart()
    r.gateway = r.dial()
    r.live()

    def show(*files, text="look"):
        sim.say(GENERAL, text, attachments=[{"id": str(n), "filename": path[1:], "size": len(PNG), "content_type": "image/png",
                                             "url": f"{elsewhere.url}{path}?ex=1&is=2&hm=3"} for n, path in enumerate(files)])

    def sleep():
        r.gateway.send({"type": "going_idle"})
        r.gateway.next("going_idle_ack")
        r.gateway.close()

    r.show, r.sleep = show, sleep
    yield r
    r.check()
    sim.close()


def test_who_is_awake_gets_discords_own_address(fading, elsewhere):
    fading.show("/cat.png")
    event = fading.gateway.next("inbound")["event"]
    assert event["media_urls"] == [f"{elsewhere.url}/cat.png?ex=1&is=2&hm=3"] and event["text"] == "look"
    assert elsewhere.asked == [] and files(fading.server) == []


def test_a_sleeper_gets_discords_file_when_its_address_is_long_dead(fading, elsewhere):
    fading.sleep()
    fading.show("/cat.png")
    fading.sim.say(GENERAL, "and this")
    wait_for(lambda: files(fading.server), 30)
    elsewhere.close()
    fading.server.restart()
    gateway = fading.dial()
    event = gateway.next("inbound", 20)["event"]
    assert event["text"] == "look" and "/relay/media/" in event["media_urls"][0]
    assert event["media"] == [{"kind": "image", "mime": "image/png", "size": len(PNG), "filename": "cat.png"}]
    assert fetch(fading, event).content == PNG
    assert gateway.next("inbound", 20)["event"]["text"] == "and this"


def test_what_cannot_be_kept_for_a_sleeper_keeps_its_address(fading, elsewhere):
    fading.sleep()
    fading.show("/gone.png", "/page", "/cat.png")
    wait_for(lambda: files(fading.server), 30)
    event = fading.dial().next("inbound", 20)["event"]
    assert event["text"] == "look\n[the address of a file may not hold: its address answered with status 404]\n" \
                            "[the address of a file may not hold: it answered with a web page]"
    assert event["media_urls"][:2] == [f"{elsewhere.url}{path}?ex=1&is=2&hm=3" for path in ("/gone.png", "/page")]
    assert fetch(fading, event, 2).content == PNG


def test_no_attachment_lies_in_the_own_network(make_bellhop, dial, elsewhere):
    """Discord's word is no reason to ask an address of ours: the sleeper gets it as it is."""
    sim = test_discord.DiscordSim(test_discord.TOKEN)
    r = test_discord.Rig(sim, make_bellhop, dial)
    r.gateway.send({"type": "going_idle"})
    r.gateway.next("going_idle_ack")
    r.gateway.close()
    sim.say(GENERAL, "look", attachments=[{"id": "1", "url": f"{elsewhere.url}/cat.png", "content_type": "image/png"}])
    wait_for(lambda: any(i["entries"] for i in json.loads(r.server.cli("status", "--json").stdout)["instances"]))
    event = r.dial().next("inbound", 20)["event"]
    assert event["text"] == "look\n[the address of a file may not hold: its address is not a public one]"
    assert elsewhere.asked == [] and files(r.server) == []
    sim.close()


def test_twilios_files_are_fetched_with_its_credential_and_from_its_storage_without(oracle, make_bellhop, dial):  # noqa: F811
    r = TwilioRig(oracle, make_bellhop, dial)
    with open(r.server.config, "a") as f:
        f.write("media: {allow_private: true}\n")
    r.server.restart()
    r.gateway = r.dial()
    r.sim.people = {"/Media/ME1": "/storage/ME1", "/storage/ME1": PNG}
    r.say("look", NumMedia="1", MediaUrl0=r.sim.url + "/Media/ME1", MediaContentType0="image/png")
    event = r.gateway.next("inbound")["event"]
    assert (event["text"], event["message_type"], event["media_types"]) == ("look", "photo", ["image/png"])
    assert fetch(r, event).content == PNG
    assert r.sim.violations == []
    r.sim.close()


@pytest.mark.parametrize("to", ["http://169.254.169.254/latest/meta-data/", "http://[fe80::1]/x", "file:///etc/passwd"])
def test_a_redirect_to_a_metadata_address_is_not_followed(oracle, make_bellhop, dial, to):  # noqa: F811
    r = TwilioRig(oracle, make_bellhop, dial)
    with open(r.server.config, "a") as f:
        f.write("media: {allow_private: true}\n")  # and not even then
    r.server.restart()
    r.gateway = r.dial()
    r.sim.people["/m/ME1"] = to
    r.say("look", NumMedia="1", MediaUrl0=r.sim.url + "/m/ME1", MediaContentType0="image/png")
    event = r.gateway.next("inbound", 30)["event"]
    assert event["text"].startswith("look\n[a file is missing: ") and event["media_urls"] == []
    r.sim.close()


def test_a_page_that_says_it_is_a_picture_is_not_passed_on_as_one(telegram):
    page = b"<!DOCTYPE html><html><script>alert(1)</script></html>"
    telegram.sim.say(ANN, caption="look", photo=[{"file_id": telegram.sim.file(page), "width": 2}])
    event = telegram.gateway.next("inbound", 30)["event"]
    assert not any(t.startswith("image/") or "html" in t for t in event["media_types"]), event


def test_wecoms_files_are_fetched_with_its_token(oracle, make_bellhop, dial):  # noqa: F811
    r = WecomRig(oracle, make_bellhop, dial)
    r.say("hi")
    r.gateway.hear("hi")
    assert r.gateway.act(op="send", chat_id="ann", content="yes", reply_to=None, metadata={})["success"]
    r.sim.people["m-1"] = PNG
    r.say("", "2", kind="image", more="<PicUrl><![CDATA[https://x.example/p]]></PicUrl><MediaId><![CDATA[m-1]]></MediaId>")
    event = r.gateway.next("inbound")["event"]
    assert event["message_type"] == "photo" and fetch(r, event).content == PNG
    r.say("", "3", kind="file", more="<MediaId><![CDATA[gone]]></MediaId>")
    assert "[a file is missing" in r.gateway.next("inbound")["event"]["text"]
    assert r.sim.violations == []
    r.sim.close()


# ---- reactions and threads ----


def react(gateway, chat, message, emoji, remove=False):
    return gateway.act(op="react", chat_id=str(chat), message_id=str(message), emoji=emoji, remove=remove, metadata={})


def test_a_turn_is_shown_by_reactions(telegram, discord):
    said = telegram.sim.say(ANN, "work")
    telegram.gateway.hear("work")
    message = telegram.sim.chats[ANN]["messages"][said]
    for emoji, remove, shown in (("\U0001F440", False, ["\U0001F440"]), ("\U0001F440", False, ["\U0001F440"]),
                                 ("\U0001F440", True, []), ("\u2705", False, ["\U0001F44D"])):
        assert react(telegram.gateway, ANN, said, emoji, remove)["success"]
        assert message["reactions"] == shown
    assert not react(telegram.gateway, ANN, 99999, "\U0001F440")["success"]
    said = discord.sim.messages[GENERAL][-1]
    for emoji, remove in (("\U0001F440", False), ("\U0001F440", False), ("\U0001F440", True), ("\u2705", False)):
        assert react(discord.gateway, GENERAL, said["id"], emoji, remove)["success"]
    assert said["mine"] == ["\u2705"]


def test_a_thread_is_made_from_a_message_and_renamed(discord):
    said = discord.sim.messages[GENERAL][-1]["id"]
    make = dict(op="thread_create", chat_id=GENERAL, thread_name="a plan", message_id=said, metadata={})
    assert discord.gateway.act(**make)["thread_id"] == said
    assert discord.gateway.act(**make)["thread_id"] == said  # it has one
    assert discord.sim.channels[said]["name"] == "a plan"
    rename = dict(op="thread_rename", chat_id=GENERAL, message_id=said, metadata={})
    wait_for(lambda: discord.gateway.act(**rename, thread_name="b", only_if_current_name="a plan")["success"])
    assert discord.sim.channels[said]["name"] == "b"
    ours = dict(**rename, thread_name="c", only_if_connector_created=True)
    wait_for(lambda: discord.gateway.act(**ours)["success"])  # nobody else has named it
    discord.server.restart()
    discord.gateway = discord.dial()
    discord.live()
    discord.sim.channels[said]["name"] = "people's own"
    discord.sim.tell("THREAD_UPDATE", {**discord.sim.channels[said], "guild_id": test_discord.GUILD})
    wait_for(lambda: not discord.gateway.act(**ours)["success"])
    elsewhere = discord.gateway.act(op="thread_rename", chat_id=GENERAL, message_id=test_discord.POST, thread_name="x",
                                    metadata={})
    assert not elsewhere["success"]
    alone = discord.gateway.act(op="thread_create", chat_id=GENERAL, thread_name="alone", metadata={})
    assert discord.sim.channels[alone["thread_id"]]["name"] == "alone"


def test_a_topic_is_made_in_a_forum(telegram):
    telegram.sim.say(FORUM, "@my_bot hi")
    telegram.gateway.next("inbound")
    made = telegram.gateway.act(op="thread_create", chat_id=str(FORUM), thread_name="a plan", metadata={})
    assert telegram.sim.chats[FORUM]["topic_names"][int(made["thread_id"])] == "a plan"
    rename = dict(op="thread_rename", chat_id=str(FORUM), message_id=made["thread_id"], thread_name="b", metadata={})
    assert telegram.gateway.act(**rename)["success"]
    assert telegram.sim.chats[FORUM]["topic_names"][int(made["thread_id"])] == "b"
    assert not telegram.gateway.act(**rename, only_if_current_name="a plan")["success"]
    assert telegram.gateway.act(**rename, only_if_current_name="b")["success"]
    assert not telegram.gateway.act(op="thread_create", chat_id=str(ANN), thread_name="x", metadata={})["success"]
