"""Who may dial /relay, and in which words the others are refused."""
import base64
import signal
import socket

import pytest

from conftest import wait_for
from relay import Gateway, Refused, mint


def refusal(server, **how):
    with pytest.raises(Refused) as caught:
        Gateway(server.url, hello=None, **how)
    return caught.value


def closed(server, **how):
    return Gateway(server.url, hello=None, **how).wait_closed()


def test_a_good_token_is_let_in_and_gets_its_descriptor(bellhop, dial):
    gateway = dial(bellhop, bellhop.add())
    assert gateway.descriptor["platform"] == "web"
    assert gateway.descriptor["contract_version"] == 1


def test_a_token_that_never_expires_is_let_in(bellhop):
    c = bellhop.add()
    g = Gateway(bellhop.url, token=mint(c.id, c.secret, exp=0))
    g.close()


def test_tokens_that_never_expire_are_refused_when_configured(make_bellhop):
    server = make_bellhop("listen: 127.0.0.1:0\nstate_dir: {state}\nauth: {{require_expiry: true}}\n")
    c = server.add()
    assert refusal(server, token=mint(c.id, c.secret, exp=0)).status == 401
    Gateway(server.url, c.id, c.secret).close()


def test_a_little_clock_skew_is_forgiven(bellhop):
    c = bellhop.add()
    Gateway(bellhop.url, token=c.token(ttl=-100)).close()


def test_no_credential_is_closed_with_4401(bellhop):
    assert closed(bellhop) == (4401, "unauthorized")


@pytest.mark.parametrize("token", ["", "garbage", "%%%", base64.b64encode(b"a:b").decode(),
                                   base64.urlsafe_b64encode(b"gw:0:zz").decode(), "x" * 4000])
def test_what_is_not_a_token_is_closed_with_4401(bellhop, token):
    assert closed(bellhop, token=token)[0] == 4401


def test_a_wrong_signature_is_closed_with_4401(bellhop):
    c = bellhop.add()
    assert closed(bellhop, token=mint(c.id, "0" * 64))[0] == 4401
    assert closed(bellhop, token=mint(c.id, bytes.fromhex(c.secret).decode("latin-1")))[0] == 4401


def test_an_unknown_gateway_gets_401_and_may_come_back(bellhop):
    assert refusal(bellhop, token=mint("nobody", "s" * 64)).status == 401


def test_an_expired_token_gets_401_and_may_come_back(bellhop):
    c = bellhop.add()
    assert refusal(bellhop, token=c.token(ttl=-3600)).status == 401


def test_another_upgrade_path_gets_400(bellhop):
    c = bellhop.add()
    for path in ("/", "/relay/", "/relays", "/chat", "/admin/status", "/relay/enroll"):
        assert refusal(bellhop, token=c.token(), path=path).status == 400, path


def test_relay_without_an_upgrade_gets_426(bellhop):
    answer = bellhop.get("/relay")
    assert answer.status == 426 and answer.json["code"] == "upgrade_required"


def test_revoking_closes_live_sockets_with_4401_and_keeps_them_out(bellhop, dial):
    one, other = bellhop.add(), bellhop.add()
    a, b, c = dial(bellhop, one), dial(bellhop, one), dial(bellhop, other)
    bellhop.cli("gateway", "revoke", one.id)
    assert a.wait_closed()[0] == 4401
    assert b.wait_closed()[0] == 4401
    assert not c.over.is_set()
    assert closed(bellhop, token=one.token())[0] == 4401
    bellhop.restart()
    assert closed(bellhop, token=one.token())[0] == 4401


def test_rotation_keeps_the_old_secret_for_its_window(bellhop):
    c = bellhop.add()
    lines = dict(x.split("=", 1) for x in bellhop.cli("gateway", "rotate", c.id).stdout.splitlines())
    fresh = lines["GATEWAY_RELAY_SECRET"]
    assert fresh != c.secret
    for secret in (c.secret, fresh):
        Gateway(bellhop.url, c.id, secret).close()
    bellhop.restart()
    for secret in (c.secret, fresh):
        Gateway(bellhop.url, c.id, secret).close()
    bellhop.cli("gateway", "rotate", c.id, "--keep", "0s")
    assert closed(bellhop, token=mint(c.id, fresh))[0] == 4401


def test_losing_the_database_never_disables_a_gateway(bellhop):
    c = bellhop.add()
    assert bellhop.stop() == 0
    for file in bellhop.state.glob("bellhop.db*"):
        file.unlink()
    bellhop.start()
    assert refusal(bellhop, token=c.token()).status == 401


def test_while_draining_an_upgrade_gets_503_with_retry_after(bellhop, dial):
    """A socket that does not answer its close keeps the drain going for a moment: that is the window."""
    c = bellhop.add()
    stuck = dial(bellhop, c, read=False)
    early = socket.create_connection(("127.0.0.1", bellhop.port))
    early.sendall(b"GET /relay HTTP/1.1\r\nHost: localhost\r\n")  # accepted before the drain, asked during it
    wait_for(lambda: bellhop.metric("http_connections") >= 2)
    bellhop.signal(signal.SIGTERM)
    wait_for(lambda: "shutting down" in bellhop.log())
    early.sendall(b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                  b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
                  b"Authorization: Bearer " + c.token().encode() + b"\r\n\r\n")
    early.settimeout(5)
    answer = early.recv(4096)
    early.close()
    assert answer.startswith(b"HTTP/1.1 503 ") or answer == b""
    if answer:
        assert b"retry-after" in answer.lower()
    stuck.reading = True
    assert bellhop.wait() == 0


def test_a_proxy_prefix_or_query_changes_nothing_about_who_you_are(bellhop):
    """Claims beside the token are not read: the token alone says who it is."""
    c = bellhop.add(tenant="mine")
    g = Gateway(bellhop.url, c.id, c.secret)
    g.headers["X-Tenant"] = "other"
    g.close()
    assert closed(bellhop, path="/relay?token=" + c.token())[0] == 4401


def test_strangers_cannot_fill_the_log(bellhop):
    ask = (b"GET /relay HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
           b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
           b"Authorization: Bearer " + mint("nobody", "0" * 64).encode() + b"\r\n\r\n")
    with socket.create_connection(("127.0.0.1", bellhop.port)) as s:
        s.settimeout(30)
        s.sendall(ask * 500)
        got = b""
        while got.count(b"HTTP/1.1 401") < 500:
            got += s.recv(65536)
    lines = [line for line in bellhop.log().splitlines() if "gateway refused" in line]
    assert 50 <= len(lines) < 100
