"""bellhop setup through a real terminal, against the simulators: what it asks, what it writes, what it leaves alone."""
import json
import os
import pty
import re
import select
import stat
import subprocess
import sys
import tempfile
import time

import pytest

from conftest import PROGRAM, ROOT, wait_for

sys.path.insert(0, str(ROOT / "tests" / "sim"))
from discord import APP, DiscordSim  # noqa: E402
from irc import IrcSim  # noqa: E402
from line import LineSim  # noqa: E402
from matrix import MatrixSim  # noqa: E402
from models import ModelSim  # noqa: E402
from slack import SlackSim  # noqa: E402
from teams import TeamsSim  # noqa: E402
from telegram import TelegramSim  # noqa: E402
from webapi import TwilioSim  # noqa: E402

TOKEN = "123456:AAE-setup-token"
PATIENCE = 40  # seconds until a terminal that says nothing has failed


class Terminal:
    """bellhop setup on a terminal of its own; see() waits for words, say() types."""

    def __init__(self, home, *args, **env):
        self.seen = self.rest = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(home)
            os.environ.update({"BELLHOP_LISTEN": "127.0.0.1:0", "HOME": str(home), "TERM": "dumb",
                               "https_proxy": "http://127.0.0.1:9", **env})
            os.execv(PROGRAM, ["bellhop", "setup", *args])

    def read(self, seconds):
        if not select.select([self.fd], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.fd, 65536).decode(errors="replace")
        except OSError:  # the other side has gone
            data = ""
        self.seen += data
        self.rest += data
        return data != ""

    def see(self, words):
        end = time.monotonic() + PATIENCE
        while words not in self.rest:
            left = end - time.monotonic()
            assert left > 0 and self.read(left), f"no {words!r} in:\n{self.seen}"
        self.rest = self.rest.split(words, 1)[1]

    def say(self, text, after=None):
        if after is not None:
            self.see(after)
        os.write(self.fd, text.encode() + b"\n")

    def stop(self, after=None):
        if after is not None:
            self.see(after)
        os.write(self.fd, b"\x03")

    def end(self):
        """The exit status; everything has been read."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and self.read(end - time.monotonic()):
            pass
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.fd)
        assert "Sanitizer" not in self.seen, self.seen
        return status


def tree(home):
    """Every file with its bytes and its mode, without the state of a server."""
    return {str(p.relative_to(home)): (p.read_bytes(), stat.S_IMODE(p.stat().st_mode)) for p in home.rglob("*")
            if p.is_file() and "bellhop-data" not in p.parts}


def run(home, *args, **env):
    done = subprocess.run([PROGRAM, "setup", *args], cwd=home, text=True, capture_output=True, timeout=120, stdin=subprocess.DEVNULL,
                          env={**os.environ, "BELLHOP_LISTEN": "127.0.0.1:0", "HOME": str(home), "https_proxy": "http://127.0.0.1:9", **env})
    assert "Sanitizer" not in done.stderr, done.stderr
    return done


def secret(home, text, name="given"):
    (home / name).write_text(text + "\n")
    return home / name


@pytest.fixture
def home(tmp_path):
    made = tmp_path / "home"
    made.mkdir()
    return made


@pytest.fixture
def telegram():
    sim = TelegramSim()
    sim.bot(TOKEN, "desk_bot")
    sim.person(5, "Ann")
    yield sim
    sim.close()


@pytest.fixture
def discord():
    sim = DiscordSim("discord-token")
    yield sim
    sim.close()


# ---- from nothing to an answer ----


def test_from_nothing_to_an_answer_on_telegram(home, telegram):
    t = Terminal(home, "--set", f"api_base={telegram.url}")
    t.say("telegram", after="Number or name [web]: ")
    t.see("BotFather")
    t.say(TOKEN, after="token (it is not shown): ")
    t.see("This is @desk_bot.")
    t.say("", after="Number or name [demo]: ")
    t.say("", after="Number or name [linked]: ")
    t.say("", after="Write them? [Y/n]: ")
    t.see("Reach the bot: https://t.me/desk_bot")
    t.see("send the bot this message: /link ")
    t.see("Waiting for the first message")
    code = re.search(r"this message: (/link \w+)", t.seen)[1]
    telegram.say(5, code)
    t.see("A message from 5 has arrived: it was a command to bellhop.")
    telegram.say(5, "hello")
    t.see("has arrived: the agent gets it.")
    t.see("The agent has answered. It works.")
    t.see("telegram desk_bot: its credentials are valid (@desk_bot)")
    t.see("Start it with: bellhop serve -c ")
    assert t.end() == 0
    assert any("demo agent" in text for text in telegram.texts(5))
    assert TOKEN not in t.seen
    files = tree(home)
    assert set(files) == {"bellhop.yaml", "conf.d/telegram-desk_bot.yaml", "conf.d/agent-telegram-desk_bot.yaml", "conf.d/web-lobby.yaml",
                          "secrets/telegram-desk_bot.token"}
    assert files["secrets/telegram-desk_bot.token"] == (TOKEN.encode(), 0o600)
    assert stat.S_IMODE((home / "secrets").stat().st_mode) == 0o700
    assert not any(TOKEN.encode() in data for name, (data, _) in files.items() if not name.startswith("secrets/"))
    assert not (home / "bellhop-data" / "admin.sock").exists(), "its server has ended"


def test_another_run_keeps_what_it_is_not_asked_to_change(home, telegram):
    first = run(home, "--yes", "--platform", "telegram", "--set", f"api_base={telegram.url}", "--set", "context=5",
                "--secret", f"token={secret(home, TOKEN)}", "--agent", "demo", "--who", "everybody")
    assert first.returncode == 0, first.stderr
    (home / "bellhop.yaml").write_text((home / "bellhop.yaml").read_text() + "log: {level: debug}\n")
    before = tree(home)
    t = Terminal(home)  # changes nothing
    t.say("", after="Number or name [none]: ")
    t.see("The configuration stays as it is.")
    assert t.end() == 0 and tree(home) == before
    t = Terminal(home, "--set", "reactions=true", "--wait", "0s")
    t.say("2", after="Number or name [none]: ")
    t.say("", after="\"new\" adds another [desk_bot]: ")
    t.say("", after="token (it is not shown; Enter keeps the old one): ")
    t.say("", after="Number or name [none]: ")
    t.say("y", after="Write them? [Y/n]: ")
    assert t.end() == 0, t.seen
    after = tree(home)
    bot = after.pop("conf.d/telegram-desk_bot.yaml")[0].decode()
    before.pop("conf.d/telegram-desk_bot.yaml")
    assert after == before
    assert "\n    reactions: true\n" in bot and "\n    context: 5\n" in bot and "\n    token_file: ../secrets/telegram-desk_bot.token\n" in bot


def test_a_bot_that_was_configured_by_hand_is_left_alone(home, telegram):
    (home / "bellhop.yaml").write_text(f"# mine\nplatforms:\n  - {{platform: telegram, bot: desk_bot, token: \"{TOKEN}\", "
                                       f"api_base: \"{telegram.url}\"}}\n")
    before = tree(home)
    given = secret(home.parent, TOKEN)
    done = run(home, "--yes", "--platform", "telegram", "--set", f"api_base={telegram.url}", "--secret", f"token={given}")
    assert done.returncode == 1 and "bellhop.yaml, line 3. Change it there; nothing was changed" in done.stderr
    assert tree(home) == before
    done = run(home, "--yes", "--platform", "web", "--bot", "attic", "--agent", "demo")
    assert done.returncode == 0, done.stderr
    assert (home / "bellhop.yaml").read_text().startswith(before["bellhop.yaml"][0].decode())
    assert (home / "bellhop.yaml").read_text().endswith("include: conf.d/*.yaml\n")
    assert not (home / "conf.d" / "web-lobby.yaml").exists(), "there was none before"


def test_what_somebody_added_to_a_file_of_setup_is_not_lost(home):
    assert run(home, "--yes", "--platform", "web", "--bot", "attic").returncode == 0
    with (home / "conf.d" / "web-attic.yaml").open("a") as f:
        f.write("  - {platform: web, bot: cellar}\n")
    before = (home / "conf.d" / "web-attic.yaml").read_text()
    done = run(home, "--yes", "--platform", "web", "--bot", "attic", "--set", "title=Up there")
    assert done.returncode == 0, done.stderr
    after = (home / "conf.d" / "web-attic.yaml").read_text()
    assert after.replace('    title: "Up there"\n', "") == re.sub("    # title:.*\n", "", before)
    assert run(home, "--yes", "--platform", "web", "--bot", "attic", "--agent", "demo").returncode == 0
    with (home / "conf.d" / "agent-web-attic.yaml").open("a") as f:
        f.write("  - {id: mine, tenant: me, substrate: none}\n")
    done = run(home, "--yes", "--platform", "web", "--bot", "attic", "--agent", "program", "--command", "cat")
    assert done.returncode == 1 and "the agent mine would be lost" in done.stderr


def test_what_another_run_wrote_meanwhile_is_not_overwritten(home):
    t = Terminal(home, "--platform", "web", "--bot", "attic", "--agent", "none", "--set", "title=")
    t.see("Write them? [Y/n]: ")
    assert run(home, "--yes", "--platform", "web", "--bot", "lobby", "--set", "title=Down here").returncode == 0
    before = tree(home)
    t.say("y")
    t.see("the configuration was changed meanwhile. Nothing was changed by this command: run it again")
    assert t.end() == 1 and tree(home) == before
    words = [PROGRAM, "setup", "--yes", "--platform", "web", "--bot", "lobby", "--set"]
    many = [subprocess.Popen([*words, value], cwd=home, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for value in ("title=Up", "history=77") * 3]
    done = [p.wait(timeout=60) for p in many]
    text = (home / "conf.d" / "web-lobby.yaml").read_text()
    assert ("    title: Up\n" in text) == (0 in done[0::2]) and ("    history: 77\n" in text) == (0 in done[1::2]), (done, text)
    assert 0 in done and not [name for name in tree(home) if ".new-" in name or ".old-" in name]


def test_what_somebody_wrote_into_the_file_of_a_bot_stays(home, telegram):
    words = ["--yes", "--platform", "telegram", "--set", f"api_base={telegram.url}"]
    assert run(home, *words, "--secret", f"token={secret(home.parent, TOKEN)}", "--who", "everybody").returncode == 0
    bot, kept, own = home / "conf.d" / "telegram-desk_bot.yaml", home / "secrets" / "telegram-desk_bot.token", secret(home, TOKEN, "own")
    for line, env in (("token_file: ../own  # rotated every night", {}), ("token: ${DESK_TOKEN}", {"DESK_TOKEN": TOKEN})):
        kept.unlink(missing_ok=True)
        bot.write_text(re.sub("    token.*", f"    {line}", bot.read_text()).replace("    # context: 0", "    # ask Bob before\n    context: 5") + "# the end\n")
        before = bot.read_text()
        done = run(home, *words, "--bot", "desk_bot", "--set", "reactions=true", **env)
        assert done.returncode == 0, done.stderr
        assert bot.read_text() == before.replace("    # reactions: false", "    reactions: true")
        assert not kept.exists() and own.read_text() == TOKEN + "\n"
        bot.write_text(bot.read_text().replace("    reactions: true", "    # reactions: false"))
    telegram.bot("77:new", "desk_bot")  # another token is asked for, so it takes the place of the reference
    done = run(home, *words, "--bot", "desk_bot", "--secret", f"token={secret(home.parent, '77:new')}", DESK_TOKEN=TOKEN)
    assert done.returncode == 0, done.stderr
    assert "    token_file: ../secrets/telegram-desk_bot.token\n" in bot.read_text() and kept.read_text() == "77:new"
    before = tree(home)
    done = run(home, *words, "--bot", "desk_bot")
    assert done.returncode == 0 and "The configuration stays as it is." in done.stderr and tree(home) == before


def test_a_value_of_several_lines_is_replaced_whole(home):
    assert run(home, "--yes", "--platform", "web", "--bot", "attic").returncode == 0
    bot = home / "conf.d" / "web-attic.yaml"
    before = bot.read_text()
    for value in (">-\n      Up\n      there", "Up\n      there  # folded", '"Up\n\n      there"'):
        bot.write_text(re.sub("    # title:.*", lambda m: f"    title: {value}", before))
        done = run(home, "--yes", "--platform", "web", "--bot", "attic", "--set", "title=Down")
        assert done.returncode == 0 and bot.read_text() == re.sub("    # title:.*", "    title: Down", before), (value, bot.read_text())


def test_who_may_write_is_changed_without_another_agent(home, telegram):
    words = ["--yes", "--platform", "telegram", "--set", f"api_base={telegram.url}"]
    assert run(home, *words, "--secret", f"token={secret(home.parent, TOKEN)}", "--agent", "demo").returncode == 0
    agent = home / "conf.d" / "agent-telegram-desk_bot.yaml"
    agent.write_text(agent.read_text().replace("    open: false", "    timeout: 2m  # it thinks long\n    open: false"))
    before = agent.read_text()
    done = run(home, *words, "--bot", "desk_bot", "--who", "everybody")
    assert done.returncode == 0 and agent.read_text() == before.replace("open: false", "open: true"), done.stderr
    done = run(home, *words, "--bot", "desk_bot")
    assert done.returncode == 0 and "The configuration stays as it is." in done.stderr
    agent.write_text(before.replace("    open: false\n", ""))
    done = run(home, *words, "--bot", "desk_bot", "--who", "everybody")
    assert done.returncode == 1 and "has no line `open: ...` to change. Change it there; nothing was changed" in done.stderr


def test_a_link_to_a_file_stays_one(home):
    (home / "mine").mkdir()
    (home / "mine" / "relay.yaml").write_text("log: {level: info}\n")
    (home / "bellhop.yaml").symlink_to("mine/relay.yaml")
    assert run(home, "--yes", "--platform", "web", "--bot", "attic").returncode == 0
    assert (home / "bellhop.yaml").is_symlink() and (home / "mine" / "relay.yaml").read_text().endswith("include: conf.d/*.yaml\n")


@pytest.mark.parametrize("text", ["log: {level: info}\n...\n", "{log: {level: info}}\n"])
def test_a_line_that_would_not_be_read_is_not_added(home, text):
    (home / "bellhop.yaml").write_text(text)
    before = tree(home)
    done = run(home, "--yes", "--platform", "web", "--bot", "attic")
    assert done.returncode == 1 and "Nothing was changed; edit the files by hand" in done.stderr and tree(home) == before


# ---- stopping, and mistakes ----


def test_ctrl_c_at_any_question_leaves_nothing(home, telegram):
    questions = [("Number or name [web]: ", "telegram"), ("token (it is not shown): ", TOKEN), ("Number or name [demo]: ", "model"),
                 ("url [http://127.0.0.1:11434/v1]: ", "http://127.0.0.1:9"), ("model: ", "m"),
                 ("key, if the server wants one (it is not shown): ", "k"), ("Number or name [linked]: ", "2"), ("Write them? [Y/n]: ", "y")]
    (home / "bellhop.yaml").write_text("# as it was\n")
    before = tree(home)
    for stop_at in range(len(questions)):
        t = Terminal(home, "--set", f"api_base={telegram.url}")
        for i, (question, answer) in enumerate(questions):
            question = question.replace("[web]", "[none]")
            if i == stop_at:
                t.stop(after=question)
                break
            t.say(answer, after=question)
        assert t.end() == 1, t.seen
        assert "Stopped. Nothing was changed." in t.seen
        assert tree(home) == before and not (home / "bellhop-data").exists(), questions[stop_at]


def test_the_end_of_the_input_stops_it_too(home):
    t = Terminal(home)
    t.see("Number or name [web]: ")
    os.write(t.fd, b"\x04")
    assert t.end() == 1 and "Nothing was changed" in t.seen and tree(home) == {}


def test_a_wrong_token_is_named_and_asked_for_again(home, telegram):
    t = Terminal(home, "--set", f"api_base={telegram.url}", "--wait", "0s")
    t.say("2", after="Number or name [web]: ")
    t.say("not a token", after="token (it is not shown): ")
    t.see("does not look like one from @BotFather")
    t.say("", after="Try again? [Y/n]: ")
    t.say("1:wrong", after="Enter keeps the old one): ")
    t.see("Telegram refuses the token (401): copy it again from @BotFather")
    t.say("y", after="Try again? [Y/n]: ")
    t.say(TOKEN, after="Enter keeps the old one): ")
    t.see("This is @desk_bot.")
    t.say("none", after="Number or name [demo]: ")
    t.say("n", after="Write them? [Y/n]: ")
    assert t.end() == 1 and "not written. Nothing was changed" in t.seen
    assert tree(home) == {} and TOKEN not in t.seen


def test_a_wrong_name_of_the_bot_is_asked_for_again(home):
    sim = IrcSim()
    t = Terminal(home, "--platform", "irc", "--set", "tls=false", "--agent", "none", "--wait", "0s")
    t.say("desk", after="bot: ")
    t.say(f"127.0.0.1:{sim.port}", after="server: ")
    t.say("#lobby", after="channels: ")
    t.say("", after="sasl.mechanism [none]: ")  # so nobody asks for the account
    t.see("`bot` must be nick@network")
    t.say("", after="Try again? [Y/n]: ")
    t.say("desk@home", after="bot [desk]: ")
    for question in (f"server [127.0.0.1:{sim.port}]: ", "channels [#lobby]: ", "sasl.mechanism [none]: "):
        t.say("", after=question)
    t.see(f"This is desk on 127.0.0.1:{sim.port}.")
    t.say("", after="Write them? [Y/n]: ")
    assert t.end() == 0, t.seen
    assert 'bot: "desk@home"' in (home / "conf.d" / "irc-desk%40home.yaml").read_text() and "sasl.user: " not in t.seen
    assert sim.violations == []
    sim.close()


def test_a_token_of_another_user_is_refused(home):
    sim = MatrixSim("matrix-token")
    t = Terminal(home, "--platform", "matrix", "--agent", "none", "--wait", "0s")
    t.say("@other:example.org", after="bot: ")
    t.say(sim.url, after="homeserver: ")
    t.say("matrix-token", after="token (it is not shown): ")
    t.see(f"the token belongs to {sim.BOT}, so `bot` must be that user id")
    t.say("", after="Try again? [Y/n]: ")
    t.say(sim.BOT, after="bot [@other:example.org]: ")
    t.say("", after=f"homeserver [{sim.url}]: ")
    t.say("", after="Enter keeps the old one): ")
    t.see(f"This is {sim.BOT}.")
    t.say("", after="Write them? [Y/n]: ")
    assert t.end() == 0, t.seen
    assert sim.violations == []
    sim.close()


def test_missing_intents_say_where_to_click(home, discord):
    discord.allowed_privileged = 0
    t = Terminal(home, "--platform", "discord", "--set", f"api_base={discord.url}", "--agent", "none", "--wait", "0s")
    t.say("discord-token", after="token (it is not shown): ")
    t.see("the Message Content Intent is off: switch it on at https://discord.com/developers/applications/" + APP + "/bot")
    discord.allowed_privileged = 1 << 15
    t.say("", after="Try again? [Y/n]: ")
    t.say("", after="Enter keeps the old one): ")
    t.see("This is Bellhop.")
    t.say("", after="Write them? [Y/n]: ")
    assert t.end() == 0, t.seen
    assert f'bot: {APP}\n' in (home / "conf.d" / f"discord-{APP}.yaml").read_text()


def test_without_network_the_keys_are_kept_only_if_wanted(home):
    given = secret(home.parent, TOKEN)
    words = ["--yes", "--platform", "telegram", "--bot", "desk", "--set", "api_base=http://127.0.0.1:9", "--secret", f"token={given}"]
    done = run(home, *words)
    assert done.returncode == 1 and "Telegram cannot be reached from here" in done.stderr and TOKEN not in done.stderr
    assert "--unchecked is not given. Nothing was changed" in done.stderr and tree(home) == {}
    done = run(home, *words, "--unchecked")
    assert done.returncode == 0 and "could not be checked" in done.stdout, done.stderr
    assert (home / "secrets" / "telegram-desk.token").read_text() == TOKEN


def test_a_disk_that_refuses_leaves_everything_as_it_was(home):
    (home / "bellhop.yaml").write_text("log: {level: info}\n")
    (home / "conf.d").write_text("a file where the folder should be")
    before = tree(home)
    done = run(home, "--yes", "--platform", "web", "--agent", "demo")
    assert done.returncode == 1 and "conf.d/" in done.stderr and "Nothing was changed" in done.stderr
    assert tree(home) == before


def test_a_folder_that_cannot_be_written_is_told_before_any_question(home):
    """As for a user who runs setup beside the package: /etc/bellhop is root's."""
    as_user = (lambda: os.setuid(65534)) if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        os.chmod(folder, 0o555)
        done = subprocess.run([PROGRAM, "setup", "--yes", "--platform", "web", "-c", f"{folder}/bellhop.yaml"], cwd="/", text=True,
                              capture_output=True, stdin=subprocess.DEVNULL, preexec_fn=as_user, timeout=60)
        assert done.returncode == 1 and f"this user cannot write to {folder}. Run the command as root" in done.stderr
        os.chmod(folder, 0o755)


# ---- scripts ----


def test_misuse_is_told_in_a_sentence(home, telegram):
    (home / "bellhop.yaml").write_text("platforms: {}\n")
    assert "bellhop.yaml:1: platforms: expected a list" in run(home, "--yes").stderr
    (home / "bellhop.yaml").unlink()
    for words, said in [
            ((), "there is no terminal to ask questions on"),
            (("--yes", "--platform", "fax"), "--platform is one of: web telegram"),
            (("--yes", "--platform", "web", "--set", "colour=red"), "web has no key \"colour\""),
            (("--yes", "--platform", "web", "--set", "title"), "--set takes KEY=VALUE"),
            (("--yes", "--platform", "telegram", "--set", f"token={TOKEN}"), "token is a secret, and other users see command lines"),
            (("--yes", "--platform", "telegram", "--secret", "token=/none"), "cannot read /none"),
            (("--yes", "--platform", "telegram"), "\"token\" is missing: @BotFather gives it to you"),
            (("--yes", "--platform", "web", "--agent", "program"), "needs a command (--command)"),
            (("--yes", "--platform", "web", "--agent", "hermes", "--env-file", "/none"), "/none cannot be read and written")]:
        done = run(home, *words)
        assert done.returncode in (1, 2) and said in done.stderr, (words, done.stderr)
    assert tree(home) == {}


def test_slack_is_asked_with_both_tokens(home):
    sim = SlackSim()
    bot, app = secret(home.parent, next(iter(sim.tokens)), "bot"), secret(home.parent, sim.app_token or "xapp-1", "app")
    sim.app_token = app.read_text().strip()
    words = ["--yes", "--platform", "slack", "--bot", "A0123456789", "--set", f"api_base={sim.url}", "--secret", f"bot_token={bot}",
             "--secret", f"app_token={app}"]
    sim.app_token, right = "xapp-other", sim.app_token
    done = run(home, *words)
    assert done.returncode == 1 and "Slack refuses `app_token` (invalid_auth)" in done.stderr, done.stderr
    sim.app_token = right
    done = run(home, *words)
    assert done.returncode == 0 and "This is @bellhop in Hotel." in done.stderr, done.stderr
    assert "slack A0123456789: its credentials are valid (@bellhop in Hotel)" in done.stdout
    sim.close()


def test_teams_is_asked_with_the_login_of_its_app(home):
    sim = TeamsSim("teams-secret")
    words = ["--yes", "--platform", "teams", "--bot", sim.APP, "--set", f"entra_tenant={sim.TENANT}", "--set", f"api_base={sim.url}",
             "--public-url", "https://relay.example.org", "--secret"]
    done = run(home, *words, f"app_password={secret(home.parent, 'wrong', 'wrong')}")
    assert done.returncode == 1 and "Microsoft refuses the app (invalid_client AADSTS7000215)" in done.stderr, done.stderr
    assert tree(home) == {}
    done = run(home, *words, f"app_password={secret(home.parent, 'teams-secret')}")
    assert done.returncode == 0, done.stderr
    assert f"Its webhook is https://relay.example.org/webhooks/teams/{sim.APP}" in done.stderr
    assert f"teams {sim.APP}: its credentials are valid" in done.stdout
    text = (home / "conf.d" / f"teams-{sim.APP}.yaml").read_text()
    assert f"entra_tenant: {sim.TENANT}" in text and "teams-secret" not in text
    assert sim.violations == []
    sim.close()


def test_a_webhook_platform_asks_for_the_address(home):
    sid, auth = "AC" + "1" * 32, secret(home.parent, "twilio-secret")
    sim = TwilioSim(sid, "twilio-secret")
    words = ["--yes", "--platform", "twilio", "--bot", "+15550100", "--set", f"account_sid={sid}", "--set", f"api_base={sim.url}",
             "--secret", f"auth_token={auth}"]
    done = run(home, *words)
    assert done.returncode == 1 and "the account has no number +15550100" in done.stderr
    assert "public_url must begin with https://" in done.stderr and tree(home) == {}
    sim.numbers = [{"phone_number": "+15550100", "sms_url": "https://demo.twilio.com/welcome"}]
    done = run(home, *words, "--public-url", "https://relay.example.org")
    assert done.returncode == 0, done.stderr
    assert "Its webhook is https://relay.example.org/webhooks/twilio/+15550100" in done.stderr
    assert "Twilio does not send this number's messages to bellhop" in done.stdout
    assert "public_url: \"https://relay.example.org\"" in (home / "conf.d" / "public-url.yaml").read_text()
    with (home / "conf.d" / "twilio-%2B15550100.yaml").open("a") as f:
        f.write("    tenant: acme\n    host: acme.example.org\n    debounce: 2s\n")
    assert run(home, *words, "--set", "plane=passthrough").returncode == 0
    text = (home / "conf.d" / "twilio-%2B15550100.yaml").read_text()
    assert "\n    tenant: acme\n    host: acme.example.org\n    debounce: 2s\n" in text and "\n    plane: passthrough\n" in text
    assert "https://relay.example.org" in (home / "conf.d" / "public-url.yaml").read_text()
    done = run(home, *words, "--public-url", "https://new.example.org")
    assert done.returncode == 0 and "Its webhook is https://new.example.org/webhooks/twilio/" in done.stderr, done.stderr
    assert "https://new.example.org" in (home / "conf.d" / "public-url.yaml").read_text()
    (home / "conf.d" / "public-url.yaml").rename(home / "conf.d" / "mine.yaml")
    done = run(home, *words, "--public-url", "https://relay.example.org")
    assert done.returncode == 1 and "public_url is https://new.example.org in the configuration. Change it there" in done.stderr
    assert sim.violations == []
    sim.close()


def test_an_address_that_is_none_is_asked_for_again(home):
    sim = LineSim("line-token", "line-secret")
    t = Terminal(home, "--platform", "line", "--set", f"api_base={sim.url}", "--agent", "none", "--wait", "0s")
    t.say("line-token", after="token (it is not shown): ")
    t.say("line-secret", after="channel_secret (it is not shown): ")
    t.say("relay.example.org", after="public_url: ")
    t.see("The address must begin with https://.")
    t.say("https://relay.example.org", after="public_url: ")
    t.see("Its webhook is https://relay.example.org/webhooks/line/")
    t.say("n", after="Write them? [Y/n]: ")
    assert t.end() == 1 and tree(home) == {}
    sim.close()


# ---- who answers ----


def test_a_model_is_looked_at_and_its_key_is_a_file(home):
    server = ModelSim(key="model-key")
    key = secret(home.parent, "model-key")
    words = ["--yes", "--platform", "web", "--agent", "model", "--url", server.url, "--model"]
    assert "has no model \"none-such\". It has: qwen3, llama3.2" in run(home, *words, "none-such", "--key-file", key).stderr
    assert "the server refuses the key (401)" in run(home, *words, "qwen3").stderr
    done = run(home, *words, "qwen3", "--key-file", key)
    assert done.returncode == 0 and "The server answers, and has the model." in done.stderr, done.stderr
    text = (home / "conf.d" / "agent-web-lobby.yaml").read_text()
    assert "substrate: chat" in text and "model: qwen3" in text and "key_file: ../secrets/agent-web-lobby.key" in text
    assert (home / "secrets" / "agent-web-lobby.key").read_text() == "model-key" and server.violations == []
    server.close()
    assert "does not answer" in run(home, *words, "qwen3").stderr


def test_a_hermes_gateway_gets_its_three_lines_once(home):
    env = home / "hermes.env"
    env.write_text("# mine\nOPENAI_API_KEY=sk-1\nGATEWAY_RELAY_URL=http://old\nLAST=1")
    env.chmod(0o640)
    words = ["--yes", "--platform", "web", "--agent", "hermes", "--env-file", str(env)]
    done = run(home, *words)
    assert done.returncode == 0 and "has the gateway's three lines" in done.stderr, done.stderr
    lines = env.read_text().splitlines()
    assert lines[:2] == ["# mine", "OPENAI_API_KEY=sk-1"] and lines[3] == "LAST=1"
    assert re.match(r"GATEWAY_RELAY_URL=http://127\.0\.0\.1:\d+$", lines[2])
    assert [line.split("=")[0] for line in lines[4:]] == ["GATEWAY_RELAY_ID", "GATEWAY_RELAY_SECRET"]
    assert stat.S_IMODE(env.stat().st_mode) == 0o640
    assert lines[5].split("=", 1)[1] not in done.stderr + done.stdout
    done = run(home, *words)
    assert "names a gateway of this server already; it stays as it is" in done.stderr and env.read_text().splitlines() == lines


@pytest.mark.skipif(os.geteuid() != 0, reason="only root finds the state of a service")
def test_root_starts_no_server_on_the_state_of_the_service(home):
    (home / "state").mkdir(mode=0o700)
    os.chown(home / "state", 65534, 65534)
    (home / "bellhop.yaml").write_text(f"state_dir: {home}/state\n")
    done = run(home, "--yes", "--platform", "web", "--agent", "demo", "--wait", "5s")
    assert done.returncode == 0 and "Start the service, and run this command again" in done.stderr, done.stderr
    assert done.stderr.endswith("Start it with: systemctl start bellhop\n") and list((home / "state").iterdir()) == []


def test_the_service_is_installed_for_the_user(home):
    if os.geteuid() == 0:
        done = run(home, "--yes", "--platform", "web", "--service")
        assert "The service reads /etc/bellhop/bellhop.yaml" in done.stderr
        return
    tools = home.parent / "bin"
    tools.mkdir()
    (tools / "systemctl").write_text(f"#!/bin/sh\necho \"$@\" >>{home.parent}/called\n")
    (tools / "systemctl").chmod(0o755)
    done = run(home, "--yes", "--platform", "web", "--service", PATH=f"{tools}:{os.environ['PATH']}")
    assert "runs while you are logged in" in done.stderr and "loginctl enable-linger" in done.stderr
    unit = (home / ".config" / "systemd" / "user" / "bellhop.service").read_text()
    assert f'serve -c "{home}/bellhop.yaml"' in unit
    assert (home.parent / "called").read_text().splitlines() == ["--user daemon-reload", "--user enable bellhop.service",
                                                                  "--user restart bellhop.service"]


def test_how_the_code_is_sent_where_apps_keep_a_slash_to_themselves(home):
    sim = SlackSim()
    sim.app_token = "xapp-1"
    bot, app = secret(home.parent, next(iter(sim.tokens)), "bot"), secret(home.parent, sim.app_token, "app")
    t = Terminal(home, "--platform", "slack", "--bot", "A0123456789", "--set", f"api_base={sim.url}", "--secret", f"bot_token={bot}",
                 "--secret", f"app_token={app}", "--agent", "demo", "--who", "linked")
    t.say("", after="Write them? [Y/n]: ")
    t.see("send the bot this message: /link ")
    t.see("Slack keeps lines that begin with / to itself: put a blank before the /.")
    t.stop(after="Waiting for the first message")
    t.end()
    sim.close()


def test_a_running_server_that_needs_a_restart_is_not_called_well(home):
    assert run(home, "--yes", "--platform", "web", "--bot", "lobby").returncode == 0
    server = subprocess.Popen([PROGRAM, "serve", "-c", home / "bellhop.yaml"], env={**os.environ, "BELLHOP_LISTEN": "127.0.0.1:0"},
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert "ready" in server.stdout.readline()
        done = run(home, "--yes", "--platform", "web", "--bot", "lobby", "--agent", "demo")  # an agent needs no restart
        assert done.returncode == 0 and "/chat/lobby in a browser" in done.stderr, done.stderr
        agents = subprocess.run([PROGRAM, "agent", "list", "-c", home / "bellhop.yaml"], capture_output=True, text=True, timeout=60).stdout
        assert "web-lobby" in agents and done.stdout.endswith("All is well.\n"), (agents, done.stdout)
        for words in (("--bot", "lobby", "--set", "title=Up there"), ("--bot", "attic", "--agent", "demo")):
            done = run(home, "--yes", "--platform", "web", *words)
            assert done.stderr.endswith("The running server does not have the bot as it is now: restart it.\n\nThe checks of `bellhop doctor`:\n")
            assert "warn  server     `platforms` has changed in the configuration: restart the server" in done.stdout
            assert "All is well" not in done.stdout
    finally:
        server.terminate()
        server.wait()


def test_a_running_server_is_waited_for(home, make_bellhop):
    server = make_bellhop()
    config = server.config
    t = Terminal(config.parent, "-c", str(config), "--platform", "web", "--bot", "new", "--set", "title=", "--agent", "demo")
    t.say("", after="Write them? [Y/n]: ")
    t.see("Restart it, so that it opens the bot")
    assert server.restart()
    t.see("/chat/new in a browser and write something.")
    wait_for(lambda: server.write("hello", bot="new") in (200, 202))
    t.see("the agent gets it.")
    t.see("The agent has answered. It works.")
    assert t.end() == 0, t.seen
    assert json.loads(server.cli("status", "--json").stdout)["pid"] == server.process.pid, "the server goes on"
