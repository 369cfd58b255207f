"""Capability URLs: an agent is reached by whoever has one, by nobody else, and no longer than it stands."""
import hashlib
import hmac
import json

import pytest

from conftest import wait_for
from dispatch_rig import augment, config
from relay import http


@pytest.fixture
def house(make_bellhop, tmp_path):
    (tmp_path / "drop").mkdir()
    return make_bellhop(config(f"id: filer, substrate: file, dir: {tmp_path / 'drop'}", "id: nobody, substrate: none"))


class Hook:
    def __init__(self, server, agent="filer", *flags):
        lines = server.cli("dispatch", "hook", "--agent", agent, "--tenant", "acme", *flags).stdout.splitlines()
        told = dict(line.split("=", 1) for line in lines)
        self.parts = {"deliver": told["URL"], "wake": told["WAKE_URL"], "status": told["STATUS_URL"]}
        self.secret = told.get("SECRET")

    def post(self, what, body, sign=True, **headers):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        if sign and self.secret:
            headers["X-Signature"] = "sha256=" + hmac.new(self.secret.encode(), data, hashlib.sha256).hexdigest()
        return http("POST", self.parts[what], data, {"Content-Type": "application/json", **headers})

    def status(self, server=None):
        """Behind a restart the port is another one."""
        url = self.parts["status"] if server is None else server.url + self.parts["status"][self.parts["status"].index("/v1/"):]
        return http("GET", url).status


def test_a_hook_delivers_what_is_signed_and_refuses_the_rest(house, tmp_path):
    hook = Hook(house)
    body = {"agent_id": "filer", **augment("hello", "d-1")}
    assert hook.post("deliver", body, sign=False).status == 401
    assert hook.post("deliver", body, sign=False, **{"X-Signature": "sha256=" + "0" * 64}).status == 401
    assert hook.post("deliver", body, sign=False, **{"X-Signature": "sha256=zz"}).status == 401
    assert not list((tmp_path / "drop").iterdir())
    answer = hook.post("deliver", body)
    assert answer.status == 200 and answer.json["delivery_id"] == "d-1"
    wait_for(lambda: (tmp_path / "drop" / "d-1.json").exists())
    assert json.loads((tmp_path / "drop" / "d-1.json").read_text()) == body
    assert hook.post("deliver", body).json["warnings"]
    assert hook.post("deliver", b"{nonsense").status == 400


def test_a_hook_is_for_one_agent_whatever_its_sender_calls_it(house, tmp_path):
    assert Hook(house).post("deliver", {"agent_id": "nobody", **augment("x", "d-2")}).status == 200
    wait_for(lambda: (tmp_path / "drop" / "d-2.json").exists())
    assert "agent:nobody" not in house.cli("mailbox", "list", "--json").stdout


def test_the_words_of_a_wake_need_one(house, tmp_path):
    hook, bare = Hook(house), Hook(house, "filer", "--no-signature")
    rung = hook.post("wake", {"agent_id": "filer", "context": "of a stranger", "session_id": "s"}, sign=False)
    assert rung.status == 200 and "session_id" not in rung.json and "nothing to deliver" in rung.json["warnings"][0]
    assert hook.post("wake", {"context": "signed"}).json["woken"] is False
    assert bare.post("wake", {"context": "without"}).json["woken"] is False
    said = lambda: {json.loads(p.read_text())["content"] for p in (tmp_path / "drop").glob("*.json")}
    wait_for(lambda: said() == {"signed", "without"})


def test_revoking_says_what_went_and_asks_whose_where_it_matters(house):
    mine = Hook(house)
    house.cli("dispatch", "hook", "--agent", "filer", "--tenant", "zorg")
    asked = house.cli("dispatch", "hook", "--agent", "filer", "--revoke", check=False)
    assert asked.returncode == 1 and "--tenant" in asked.stderr and mine.status() == 200
    assert "1 hook" in house.cli("dispatch", "hook", "--agent", "filer", "--tenant", "zorg", "--revoke").stderr
    assert "1 hook" in house.cli("dispatch", "hook", "--agent", "filer", "--revoke").stderr
    assert "no hook" in house.cli("dispatch", "hook", "--agent", "filer", "--revoke").stderr
    assert mine.status() == 404


def test_wakes_and_looks_need_no_signature(house):
    hook = Hook(house)
    for body in ({"agent_id": "filer"}, b"", {"context": "look", "session_id": "s1"}):
        answer = hook.post("wake", body, sign=False)
        assert answer.status == 200 and answer.json["woken"] is False, answer.body
    assert hook.status() == 200


def test_a_hook_without_a_signature_is_made_by_wish_only(house):
    hook = Hook(house, "nobody", "--no-signature")
    assert hook.secret is None
    assert hook.post("deliver", augment("x")).status == 200


def test_a_revoked_hook_leads_nowhere_and_others_stand(house):
    first, second, other = Hook(house), Hook(house), Hook(house, "nobody")
    url = first.parts["deliver"]
    assert http("POST", url.replace("/deliver", "0/deliver"), b"{}").status == 404  # another secret
    house.cli("dispatch", "hook", "--agent", "filer", "--revoke")
    for gone in (first, second):
        assert gone.post("deliver", augment("x")).status == 404
        assert gone.post("wake", {}).status == 404
        assert gone.status() == 404
    assert other.status() == 200
    house.restart()
    assert first.status(house) == 404 and other.status(house) == 200


def test_a_key_is_no_hook_and_a_hook_no_key(house):
    hook = Hook(house)
    capability = hook.parts["wake"].split("/")[-2]
    assert http("GET", house.url + "/v1/agents", None, {"Authorization": f"Bearer {capability}"}).status == 401
    key = house.cli("token", "agent", "--tenant", "acme").stdout.strip()
    assert http("GET", f"{house.url}/v1/hooks/{key}/status").status == 404


def test_the_secret_of_a_hook_is_told_once(house):
    hook = Hook(house)
    assert hook.secret not in house.cli("token", "list", "--json").stdout
    assert hook.secret.encode() not in (house.state / "bellhop.db").read_bytes()
