"""The command line as a person meets it: what it says, where, and with which exit status."""
import http.client
import json
import os
import socket
import stat
import subprocess

import pytest

from conftest import CONFIG, PROGRAM, wait_for


TELEGRAM = '  - {{platform: telegram, bot: desk, token: "1:t", api_base: "http://127.0.0.1:9", mode: polling}}\n'


def run(*args, cwd="/tmp", **env):
    return subprocess.run([PROGRAM, *args], text=True, capture_output=True, timeout=30, cwd=cwd,
                          env={**os.environ, **env})


# ---- help ----


@pytest.mark.parametrize("args", [["help"], ["--help"], ["-h"], ["help", "serve"], ["help", "config"],
                                  ["gateway", "--help"], ["version"], ["--version"]])
def test_help_goes_to_stdout_and_exits_0(args):
    done = run(*args)
    assert done.returncode == 0 and done.stdout and not done.stderr


def test_every_command_has_its_help():
    names = [line.split()[0] for line in run("help").stdout.splitlines() if line.startswith("  ") and line[2] != " "]
    for name in [n for n in names if n != "bellhop"]:
        assert f"Usage: bellhop {name}" in run("help", name).stdout


@pytest.mark.parametrize("args", [[], ["fly"], ["status", "--loud"], ["status", "x"], ["gateway"], ["gateway", "fly"],
                                  ["gateway", "add"], ["gateway", "revoke"], ["gateway", "rotate", "a", "b"],
                                  ["gateway", "add", "--tenant"], ["gateway", "add", "--tenant", "t", "--bot", "b"],
                                  ["route", "add", "--key", "k"], ["mailbox"], ["mailbox", "show"],
                                  ["mailbox", "purge", "i"], ["mailbox", "show", "i", "--limit", "many"],
                                  ["help", "fly"], ["serve", "now"], ["status", "--json=yes"],
                                  ["status", "--state", "sleepy"], ["node", "fly"], ["node", "list", "now"]])
def test_misuse_exits_2_and_says_where_to_look(args):
    done = run(*args)
    assert done.returncode == 2
    assert "help" in done.stderr + done.stdout


# ---- no server ----


@pytest.mark.parametrize("args", [["status"], ["gateway", "list"], ["gateway", "add", "--tenant", "t"], ["route", "list"],
                                  ["mailbox", "list"], ["mailbox", "show", "x"]])
def test_without_a_server_it_says_so_and_how_to_start_one(args, tmp_path):
    done = run(*args, "--state-dir", str(tmp_path))
    assert done.returncode == 1 and done.stdout == ""
    assert "no server is running" in done.stderr and "bellhop serve" in done.stderr


def test_a_socket_left_by_a_crash_is_not_a_server(bellhop):
    bellhop.kill()
    done = bellhop.cli("status", check=False)
    assert done.returncode == 1 and "no server is running" in done.stderr
    bellhop.start()


# ---- gateways, routes ----


def test_gateway_add_prints_three_lines_and_nothing_else(bellhop):
    done = bellhop.cli("gateway", "add", "--tenant", "t", "--id", "my:gw")
    assert [line.split("=")[0] for line in done.stdout.splitlines()] == [
        "GATEWAY_RELAY_URL", "GATEWAY_RELAY_ID", "GATEWAY_RELAY_SECRET"]
    assert f"GATEWAY_RELAY_URL=http://127.0.0.1:{bellhop.port}\n" in done.stdout
    assert "GATEWAY_RELAY_ID=my:gw\n" in done.stdout
    assert "once" in done.stderr and "bellhop link --tenant t --instance my:gw" in done.stderr


def test_gateway_add_says_that_a_web_page_is_open(bellhop):
    done = bellhop.cli("gateway", "add", "--tenant", "t", "--platform", "web", "--bot", "lobby")
    assert len(done.stdout.splitlines()) == 3
    assert "It is open" in done.stderr and "/link" not in done.stderr
    assert json.loads(bellhop.cli("route", "list", "--json").stdout)[0]["open"] is True


def test_gateway_add_says_when_there_is_no_such_bot(bellhop):
    for platform, bot in (("web", "cellar"), ("telegram", "lobby"), ("pigeon", "lobby")):
        done = bellhop.cli("gateway", "add", "--tenant", "t", "--platform", platform, "--bot", bot)
        assert len(done.stdout.splitlines()) == 3
        assert f"{{platform: {platform}, bot: {bot}}}" in done.stderr and "It is open" not in done.stderr


def test_a_public_url_is_what_gateways_are_told(make_bellhop):
    server = make_bellhop(CONFIG + "public_url: https://relay.example.org/\n")
    assert server.add().url == "https://relay.example.org"


def test_the_same_id_twice_is_refused_with_what_to_do(bellhop):
    bellhop.add(id="g")
    done = bellhop.cli("gateway", "add", "--tenant", "t", "--id", "g", check=False)
    assert done.returncode == 1 and "rotate g" in done.stderr and done.stdout == ""


@pytest.mark.parametrize("options", [["--id", "with blank"], ["--tenant", ""], ["--wake-url", "ftp://x"],
                                     ["--instance", "x" * 200], ["--id", "a\nb"]])
def test_bad_names_and_urls_are_refused(bellhop, options):
    done = bellhop.cli("gateway", "add", "--tenant", "t", *options, check=False)
    assert done.returncode == 1 and done.stderr and done.stdout == ""


def test_gateway_list_shows_everything_but_secrets(bellhop):
    c = bellhop.add(id="g", wake_url="http://127.0.0.1:9/w")
    bellhop.cli("gateway", "revoke", bellhop.add(id="old").id)
    listed = json.loads(bellhop.cli("gateway", "list", "--json").stdout)
    assert [(g["id"], g["tenant"], g["instance"], g["wakeUrl"]) for g in listed] == [
        ("g", "t", "g", "http://127.0.0.1:9/w"), ("old", "t", "old", None)]
    assert listed[1]["revokedAt"] and not listed[0]["revokedAt"]
    for text in (bellhop.cli("gateway", "list").stdout, bellhop.cli("status").stdout, json.dumps(listed)):
        assert c.secret not in text
    assert "revoked" in bellhop.cli("gateway", "list").stdout


def test_gateway_set_changes_the_wake_url(bellhop):
    bellhop.add(id="g")
    bellhop.cli("gateway", "set", "g", "--wake-url", "https://example.org/w")
    assert json.loads(bellhop.cli("gateway", "list", "--json").stdout)[0]["wakeUrl"] == "https://example.org/w"
    bellhop.cli("gateway", "set", "g", "--wake-url", "")
    assert json.loads(bellhop.cli("gateway", "list", "--json").stdout)[0]["wakeUrl"] is None


@pytest.mark.parametrize("args", [["rotate", "nobody"], ["revoke", "nobody"], ["set", "nobody", "--wake-url", "http://x"]])
def test_an_unknown_gateway_is_named(bellhop, args):
    done = bellhop.cli("gateway", *args, check=False)
    assert done.returncode == 1 and '"nobody"' in done.stderr


def test_routes_come_and_go(bellhop):
    route = ["--platform", "web", "--key", "attic", "--tenant", "t", "--instance", "i"]
    bellhop.cli("route", "add", *route)
    bellhop.cli("route", "add", *route)
    assert json.loads(bellhop.cli("route", "list", "--json").stdout) == [
        {"platform": "web", "key": "attic", "tenant": "t", "instance": "i", "open": True, "leads": True,
         "origin": "operator"}]
    bellhop.cli("route", "remove", *route)
    assert json.loads(bellhop.cli("route", "list", "--json").stdout) == []
    done = bellhop.cli("route", "remove", *route, check=False)
    assert done.returncode == 1 and "route list" in done.stderr


def test_a_route_for_a_mistyped_name_is_refused_or_warned_about(bellhop):
    bellhop.cli("gateway", "add", "--tenant", "t", "--id", "g")
    done = bellhop.cli("route", "add", "--platform", "telegraph", "--key", "k", "--tenant", "t", check=False)
    assert done.returncode == 1 and "telegraph" in done.stderr and "telegram" in done.stderr
    place = ["--platform", "discord", "--key", "1"]
    done = bellhop.cli("route", "add", *place, "--tenant", "u")
    assert "Warning" in done.stderr and 'tenant "u" has no gateway' in done.stderr
    done = bellhop.cli("route", "add", *place, "--tenant", "t", "--instance", "h")
    assert "Warning" in done.stderr and 'instance "h"' in done.stderr
    assert bellhop.cli("route", "add", *place, "--tenant", "t", "--instance", "g").stderr == ""
    assert "route added: platform=discord key=1 tenant=t instance=g" in bellhop.log()


def test_a_route_is_listed_with_each_key_once(bellhop):
    bellhop.cli("gateway", "add", "--tenant", "t", "--platform", "web", "--bot", "lobby")
    pairs = json.loads(bellhop.cli("route", "list", "--json").stdout, object_pairs_hook=list)
    names = [name for name, _ in pairs[0]]
    assert len(names) == len(set(names))


def test_a_gateway_that_is_open_needs_no_link_code(make_bellhop):
    server = make_bellhop(CONFIG + TELEGRAM)
    done = server.cli("gateway", "add", "--tenant", "t", "--platform", "telegram", "--bot", "desk", "--open")
    assert "It is open" in done.stderr and "/link" not in done.stderr
    done = server.cli("gateway", "add", "--tenant", "t", "--platform", "telegram", "--bot", "desk")
    assert "/link " in done.stderr
    assert "link code made: tenant=t" in server.log() and "linked" not in server.log()


def test_a_bot_that_is_open_to_two_tenants_is_warned_about(bellhop):
    open_for = ["--platform", "web", "--bot", "lobby"]
    assert "Warning" not in bellhop.cli("gateway", "add", "--tenant", "a", *open_for).stderr
    assert "Warning" not in bellhop.cli("gateway", "add", "--tenant", "a", *open_for).stderr
    done = bellhop.cli("gateway", "add", "--tenant", "b", *open_for)
    assert 'Warning: the tenant "a" has an open route there too' in done.stderr
    done = bellhop.cli("route", "add", "--platform", "web", "--key", "lobby", "--tenant", "b")
    assert 'Warning: the tenant "a" has an open route there too' in done.stderr


def test_why_has_nothing_to_tell_on_a_fresh_server(bellhop):
    done = bellhop.cli("why")
    assert done.stdout == "" and "No message fits" in done.stderr and "why.keep" in done.stderr
    done = bellhop.cli("why", "--platform", "web", "--message", "1", check=False)
    assert done.returncode == 1 and "no message with this id" in done.stderr


# ---- mailboxes ----


def test_a_mailbox_is_listed_shown_and_purged(bellhop, dial):
    c = bellhop.add()
    dial(bellhop, c).sleep()
    bellhop.write("a secret thought")
    bellhop.write("another")
    listed = json.loads(bellhop.cli("mailbox", "list", "--json").stdout)
    assert [(m["instance"], m["entries"]) for m in listed] == [(c.id, 2)]
    assert c.id in bellhop.cli("mailbox", "list").stdout
    shown = bellhop.cli("mailbox", "show", c.id).stdout
    assert len(shown.splitlines()) == 2 and "thought" not in shown
    with_bodies = json.loads(bellhop.cli("mailbox", "show", c.id, "--bodies", "--json").stdout)
    assert [e["frame"]["event"]["text"] for e in with_bodies] == ["a secret thought", "another"]
    cut = bellhop.cli("mailbox", "show", c.id, "--limit", "1", "--json")
    assert len(json.loads(cut.stdout)) == 1 and cut.stderr == "... and 1 more\n"
    assert bellhop.cli("mailbox", "purge", c.id, "--yes").stdout == "2 deleted\n"
    assert json.loads(bellhop.cli("mailbox", "list", "--json").stdout) == []
    assert dial(bellhop, c).quiet()


def test_a_delivery_that_is_never_acked_is_parked_shown_and_redriven(make_bellhop, dial):
    server = make_bellhop(CONFIG + "delivery: {{max_attempts: 2}}\n")
    c = server.add()
    acked = dial(server, c)  # a client that acks, so that silence is not taken for an old client
    server.write("fine")
    acked.hear("fine")
    wait_for(lambda: server.metric("deliveries_acked_total") == 1)
    acked.close()
    server.write("poison")
    for _ in range(2):
        g = dial(server, c, ack=False)
        g.hear("poison")
        g.cut()
    wait_for(lambda: server.instance(c.id)["parked"] == 1)
    healthy = dial(server, c)
    server.write("after")
    healthy.hear("after")
    entries = json.loads(server.cli("mailbox", "show", c.id, "--json").stdout)
    assert [bool(e["parked"]) for e in entries if e["parked"]] == [True]
    assert server.cli("mailbox", "redrive", c.id).stdout == "1 put back in line\n"
    healthy.hear("poison")


def test_an_unknown_mailbox_is_named(bellhop):
    for verb in (["show"], ["purge", "--yes"], ["redrive"]):
        done = bellhop.cli("mailbox", verb[0], "nobody", *verb[1:], check=False)
        assert done.returncode == 1 and "nobody" in done.stderr


def test_an_instance_of_two_tenants_needs_a_tenant(bellhop):
    bellhop.add(tenant="a", instance="same")
    bellhop.add(tenant="b", instance="same")
    done = bellhop.cli("mailbox", "show", "same", check=False)
    assert done.returncode == 1 and "--tenant" in done.stderr
    assert bellhop.cli("mailbox", "show", "same", "--tenant", "a").returncode == 0


# ---- status, doctor ----


def test_status_tells_the_states_apart(bellhop, dial):
    live, asleep, never = bellhop.add(id="l"), bellhop.add(id="s"), bellhop.add(id="n")
    assert never.id == "n"
    g = dial(bellhop, live)
    dial(bellhop, asleep).sleep()
    states = {i["instance"]: i["state"] for i in json.loads(bellhop.cli("status", "--json").stdout)["instances"]}
    assert states == {"l": "live", "s": "asleep", "n": "never"}
    g.cut()
    wait_for(lambda: bellhop.instance("l")["state"] == "away")
    text = bellhop.cli("status").stdout
    assert "away" in text and "asleep" in text and "never" in text and "lobby" in text
    assert [bellhop.metric(f'instances{{state="{s}"}}') for s in ("live", "away", "asleep", "never")] == [0, 1, 1, 1]
    assert "0 live, 1 away, 1 asleep, 1 never" in bellhop.cli("top").stdout


def test_doctor_is_content_with_a_healthy_server(bellhop):
    bellhop.add()
    done = bellhop.cli("doctor")
    assert "All is well" in done.stdout and "running" in done.stdout


def test_doctor_knows_that_linked_people_need_no_route(bellhop):
    bellhop.cli("gateway", "add", "--tenant", "t", "--id", "g")
    assert "no route and no linked person" in bellhop.cli("doctor").stdout
    bellhop.cli("link", "add", "--instance", "g", "--platform", "telegram", "--user", "7", "--bot", "*")
    assert "no route" not in bellhop.cli("doctor").stdout


def test_doctor_says_for_whom_messages_wait_and_why(bellhop):
    bellhop.cli("gateway", "add", "--tenant", "t", "--id", "i4", "--platform", "web", "--bot", "lobby")
    bellhop.write("hello")
    found = wait_for(lambda: [f["detail"] for f in json.loads(bellhop.cli("doctor", "--json").stdout)
                              if f["check"] == "mailbox"])
    assert found[0].startswith("i4: 1 message waits, its gateway has never connected, and no wake URL is set.")


def test_doctor_works_without_a_server(bellhop):
    bellhop.add(wake_url="http://127.0.0.1:9/w")
    assert bellhop.stop() == 0
    done = bellhop.cli("doctor", check=False)
    assert "not running" in done.stdout and "master key opens this database" in done.stdout
    assert "127.0.0.1:9" in done.stdout
    bellhop.start()


def test_doctor_changes_nothing_where_nothing_is(tmp_path):
    done = run("doctor", "--state-dir", str(tmp_path / "new"), cwd=tmp_path)
    assert done.returncode == 0 and "does not exist yet" in done.stdout
    assert not (tmp_path / "new").exists()


def test_doctor_finds_a_lost_key_and_an_open_directory(bellhop):
    bellhop.add()
    assert bellhop.stop() == 0
    key = (bellhop.state / "master.key").read_bytes()
    (bellhop.state / "master.key").unlink()
    bellhop.state.chmod(0o755)
    done = bellhop.cli("doctor", check=False)
    assert done.returncode == 1 and "restore it" in done.stdout and "chmod 700" in done.stdout
    found = json.loads(bellhop.cli("doctor", "--json", check=False).stdout)
    assert {"state_dir", "key"} <= {f["check"] for f in found if f["result"] == "bad"}
    (bellhop.state / "master.key").write_bytes(key)
    (bellhop.state / "master.key").chmod(0o600)
    bellhop.state.chmod(0o700)
    bellhop.start()


def test_doctor_names_a_private_wake_url(make_bellhop):
    server = make_bellhop(CONFIG.replace("allow_private: true", "allow_private: false"))
    server.add(wake_url="http://127.0.0.1:9/w")
    done = server.cli("doctor", check=False)
    assert done.returncode == 1 and "wake.allow_private" in done.stdout


def test_doctor_judges_wake_urls_by_the_settings_of_the_running_server(make_bellhop):
    server = make_bellhop(CONFIG.replace("allow_private: true", "allow_private: false"),
                          env={"BELLHOP_WAKE_ALLOW_PRIVATE": "true"})
    server.add(wake_url=server.url + "/w")
    del server.env["BELLHOP_WAKE_ALLOW_PRIVATE"]
    done = server.cli("doctor", check=False)
    assert done.returncode == 0 and "can be reached" in done.stdout, done.stdout


# ---- answers to strangers ----


@pytest.mark.parametrize("path, says", [("/v1/skills", "bellhop token agent"), ("/manage/instance", "bellhop gateway add"),
                                        ("/relay/media/x", "bellhop gateway add"), ("/relay", "bellhop gateway add"),
                                        ("/v1/nothing", "/v1/openapi.json"), ("/nothing", "/chat")])
def test_an_answer_to_a_stranger_names_what_to_do_next(bellhop, path, says):
    answer = bellhop.get(path)
    assert answer.status in (401, 404, 426) and says in answer.json["error"], answer.text


# ---- the state directory ----


def test_what_is_on_disk_belongs_to_the_user_alone(bellhop):
    bellhop.add()
    assert stat.S_IMODE(bellhop.state.stat().st_mode) == 0o700
    for name in ("admin.sock", "master.key", "bellhop.db"):
        assert stat.S_IMODE((bellhop.state / name).stat().st_mode) == 0o600, name


def test_secrets_are_not_readable_on_disk_or_in_the_log(bellhop, dial):
    c = bellhop.add()
    dial(bellhop, c)
    assert bellhop.stop() == 0
    for file in bellhop.state.iterdir():
        if file.is_file():
            assert c.secret.encode() not in file.read_bytes(), file
    assert c.secret not in bellhop.log()
    bellhop.start()


# ---- many ----


class AdminSocket(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("bellhop", timeout=60)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)

    def ask(self, method, path, body=None):
        self.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"} if body else {})
        answer = self.getresponse()
        return answer.status, json.loads(answer.read() or b"null")


def test_many_gateways_are_listed_in_pages_and_the_command_line_shows_them_all_once(bellhop):
    admin, n = AdminSocket(bellhop.state / "admin.sock"), 1100
    for i in range(n):
        status, _ = admin.ask("POST", "/admin/gateways/add", {"id": f"many{i}", "tenant": f"t{i % 3}", "platform": "web", "bot": "lobby"})
        assert status < 300
    status, page = admin.ask("GET", "/admin/status")
    assert status == 200 and len(page["instances"]) == 500 and page["next"] and page["store"]
    status, page = admin.ask("GET", "/admin/status?after=" + page["next"])
    assert status == 200 and len(page["instances"]) == 500 and "store" not in page
    everyone = {f"many{i}" for i in range(n)}
    for command, names in ((["status"], lambda doc: [i["instance"] for i in doc["instances"]]),
                           (["gateway", "list"], lambda doc: [g["id"] for g in doc]),
                           (["route", "list"], lambda doc: [r["instance"] for r in doc])):
        shown = [x for x in names(json.loads(bellhop.cli(*command, "--json").stdout)) if x in everyone]
        assert len(shown) == n and set(shown) == everyone
    some = json.loads(bellhop.cli("status", "--tenant", "t1", "--state", "never", "--json").stdout)["instances"]
    assert {i["instance"] for i in some} == {f"many{i}" for i in range(1, n, 3)}
    one = json.loads(bellhop.cli("status", "--tenant", "t1", "--instance", "many1", "--json").stdout)["instances"]
    assert [i["instance"] for i in one] == ["many1"]
    assert json.loads(bellhop.cli("status", "--waiting", "--json").stdout)["instances"] == []


def test_what_the_operator_asks_wrongly_is_refused_with_a_code_and_a_sentence(bellhop):
    admin = AdminSocket(bellhop.state / "admin.sock")
    for method, path, body, expected in [
            ("POST", "/admin/gateways/add", {"tenant": 7}, (400, "malformed")),
            ("POST", "/admin/gateways/add", {"tenant": "t", "open": "yes"}, (400, "malformed")),
            ("POST", "/admin/gateways/revoke", {"id": "nobody"}, (404, "not_found")),
            ("GET", "/admin/gateways/add", None, (405, "method_not_allowed")),
            ("POST", "/admin/token", {"kind": "agent"}, (400, "malformed")),
            ("POST", "/admin/token", {"kind": "other", "tenant": "t"}, (400, "malformed")),
            ("POST", "/admin/tokens/revoke", {"id": "nobody"}, (404, "not_found")),
            ("GET", "/admin/mailbox", None, (400, "malformed")),
            ("GET", "/admin/mailbox?instance=nobody", None, (404, "not_found")),
            ("GET", "/admin/mailbox?instance=nobody&limit=x", None, (400, "malformed")),
            ("GET", "/admin/outbox?id=9", None, (404, "not_found")),
            ("POST", "/admin/outbox/drop", {"id": "9"}, (404, "not_found")),
            ("POST", "/admin/manage/link", {"instance": "nobody"}, (404, "not_found")),
            ("POST", "/admin/manage/link", None, (400, "malformed")),
            ("POST", "/admin/erase", {"dryRun": True}, (400, "malformed")),
            ("POST", "/admin/drain?node=nobody", None, (404, "not_found")),
            ("GET", "/manage/instance", None, (404, "not_found")),
            ("GET", "/admin/nothing", None, (404, "not_found"))]:
        status, answer = admin.ask(method, path, body)
        assert (status, answer["code"]) == expected and answer["error"] and "class" not in answer, (path, answer)


def test_a_page_that_begins_behind_a_route_that_is_gone_says_so(bellhop):
    admin = AdminSocket(bellhop.state / "admin.sock")
    status, answer = admin.ask("GET", "/admin/routes?after=web%0Anowhere%0At%0A%0A")
    assert status == 410 and answer["code"] == "gone"
