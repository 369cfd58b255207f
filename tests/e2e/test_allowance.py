"""Allowances: what people may ask of an instance, through the command line and the simulator of Telegram's Bot API."""
import json

from conftest import wait_for
from test_telegram import ANN, GROUP, config, sim  # noqa: F401

BOB = {"id": 6, "is_bot": False, "first_name": "Bob", "username": "bobby"}


def test_what_is_over_is_refused_told_once_and_shown(sim, make_bellhop, dial):  # noqa: F811
    server = make_bellhop(config(sim) + "allowances: {{timezone: Europe/Berlin}}\n")
    credential = server.add(platform="telegram", bot="my_bot")
    gateway = dial(server, credential, hello=("telegram", "my_bot"))
    server.cli("allowance", "--instance", credential.id, "--turns", "2/day", "--reply", "That was all for today.")
    assert "2/day" in server.cli("allowance", "list").stdout
    assert server.instance(credential.id)["allowance"] == "2/day per person"

    for text in ("one", "two"):
        sim.say(ANN, text)
        gateway.hear(text)
    over = sim.say(ANN, "three")
    wait_for(lambda: sim.texts(ANN) == ["That was all for today."])
    why = json.loads(server.cli("why", "--platform", "telegram", "--message", str(over), "--json").stdout)
    assert "allowance" in json.dumps(why)
    server.kill()  # the count and the word to the person are on disk
    server.start()
    gateway = dial(server, credential, hello=("telegram", "my_bot"))
    sim.say(ANN, "four")
    sim.say(GROUP, "hello", user=BOB)
    gateway.hear("hello")
    assert sim.texts(ANN) == ["That was all for today."]
    assert gateway.quiet()
    assert server.metric("deliveries_over_allowance_total") == 1

    sim.say(ANN, "/stop")
    gateway.hear("/stop")
    server.cli("allowance", "remove", "--instance", credential.id)
    sim.say(ANN, "five")
    gateway.hear("five")


def test_edits_are_no_way_around_it(sim, make_bellhop, dial):  # noqa: F811
    server = make_bellhop(config(sim))
    credential = server.add(platform="telegram", bot="my_bot")
    gateway = dial(server, credential, hello=("telegram", "my_bot"))
    server.cli("allowance", "--instance", credential.id, "--turns", "2/day", "--reply", "That was all for today.")
    said = sim.say(ANN, "one")
    gateway.hear("one")
    for n in range(4):
        sim.say(ANN, f"and this {n}", kind="edited_message", message_id=said, edit_date=7 + n)
    gateway.hear("[edited] and this 0")
    wait_for(lambda: sim.texts(ANN) == ["That was all for today."])
    assert gateway.quiet("inbound", 1)
    assert server.metric("deliveries_over_allowance_total") == 3

    # what waits can still be corrected
    gateway.close()
    server.cli("allowance", "--instance", credential.id, "--turns", "3/day")
    said = sim.say(ANN, "pay 100")
    wait_for(lambda: server.instance(credential.id)["entries"] == 1)
    sim.say(ANN, "pay 10", kind="edited_message", message_id=said, edit_date=9)
    sim.say(ANN, "four")
    wait_for(lambda: server.metric("deliveries_over_allowance_total") >= 4)
    gateway = dial(server, credential, hello=("telegram", "my_bot"))
    gateway.hear("pay 10")
    assert gateway.quiet("inbound", 0.5)


def test_mistakes_are_explained(sim, make_bellhop):  # noqa: F811
    server = make_bellhop(config(sim))
    credential = server.add(platform="telegram", bot="my_bot")
    for turns in ("50", "0/day", "5/year"):
        bad = server.cli("allowance", "--instance", credential.id, "--turns", turns, check=False)
        assert bad.returncode != 0 and "such as 50/day" in bad.stderr
    bad = make_bellhop(config(sim) + "allowances: {{timezone: Mars/Base}}\n", start=False).cli("doctor", check=False)
    assert "allowances.timezone" in bad.stdout + bad.stderr and "Europe/Berlin" in bad.stdout + bad.stderr
