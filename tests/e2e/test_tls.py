"""TLS as the operator sets it, seen by OpenSSL's own client, curl and Python: certificates read again on SIGHUP, versions,
cipher suites, client certificates."""
import json
import re
import socket
import ssl
import subprocess
from signal import SIGHUP

import pytest

from conftest import CONFIG, wait_for


def openssl(*words, input=""):
    return subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True, timeout=30, input=input)


class Papers:
    """An authority of our own and what it signs."""

    def __init__(self, dir, name="root"):
        self.dir, self.name = dir, name
        self.made(openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", 30,
                          "-subj", f"/CN={name}", "-keyout", dir / f"{name}.key", "-out", dir / f"{name}.pem"))
        self.pem = dir / f"{name}.pem"

    def made(self, done):
        assert done.returncode == 0, done.stderr

    def sign(self, name, days=30):
        key, request, cert, more = (self.dir / f"{name}.{end}" for end in ("key", "csr", "pem", "cnf"))
        more.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        self.made(openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
                          "-keyout", key, "-out", request))
        self.made(openssl("x509", "-req", "-in", request, "-CA", self.pem, "-CAkey", self.dir / f"{self.name}.key",
                          "-CAcreateserial", "-days", days, "-extfile", more, "-out", cert))
        return cert, key


@pytest.fixture(scope="module")
def papers(tmp_path_factory):
    return Papers(tmp_path_factory.mktemp("papers"))


@pytest.fixture
def tls(make_bellhop, papers, tmp_path):
    """tls(more settings) -> a server that shows what `papers` signed, from files that are this test's own."""

    def make(more="", name="first"):
        server = make_bellhop(CONFIG, start=False)
        server.cert, server.key = tmp_path / "cert.pem", tmp_path / "key.pem"
        show(server, papers.sign(name))
        server.config.write_text(server.config.read_text() +
                                 f"tls: {{cert: {server.cert}, key: {server.key}{', ' + more if more else ''}}}\n")
        return server.start()

    return make


def show(server, pair):
    for where, made in zip((server.cert, server.key), pair):
        where.write_bytes(made.read_bytes())


def reload(server):
    before = len(server.lines)
    server.signal(SIGHUP)
    return wait_for(lambda: next((line for line in server.lines[before:] if "reload:" in line), None))


def connect(server, *words):
    """What openssl s_client says of a connection."""
    return openssl("s_client", "-connect", f"127.0.0.1:{server.port}", *words)


def suite(done):
    return re.search(r"Cipher is (\S+)", done.stdout).group(1)


def curl(server, papers, path, *words):
    return subprocess.run(["curl", "-sS", "--noproxy", "*", "--cacert", papers.pem, "-o", "/dev/null", "-w", "%{http_code}",
                           *map(str, words), f"https://localhost:{server.port}{path}"], capture_output=True, text=True, timeout=30)


def subject(server):
    return re.search(r"subject=.*CN = (\S+)", connect(server).stdout).group(1)


def test_sighup_shows_the_renewed_certificate_and_cuts_nobody(tls, papers):
    server, second = tls(), papers.sign("second")
    context = ssl.create_default_context(cafile=papers.pem)
    with context.wrap_socket(socket.create_connection(("127.0.0.1", server.port)), server_hostname="localhost") as old:
        old.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")  # silent from the start it would be cut off
        assert old.recv(1000).startswith(b"HTTP/1.1 200 ")
        assert subject(server) == "first"
        show(server, second)
        assert subject(server) == "first"
        assert "nothing has changed" in reload(server)
        assert subject(server) == "second"
        old.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert old.recv(100).startswith(b"HTTP/1.1 200 ")
    assert curl(server, papers, "/healthz").stdout == "200"


def test_sighup_with_an_unusable_certificate_keeps_the_old_one(tls, papers):
    server = tls()
    server.key.write_bytes(papers.sign("another")[1].read_bytes())
    said = reload(server)
    assert "kept the old configuration" in said and str(server.key) in said and "mismatch" in said
    server.cert.unlink()
    assert str(server.cert) in reload(server)
    assert subject(server) == "first"
    text = server.config.read_text()
    server.config.write_text(text[:text.index("tls:")])
    assert "on or off needs a restart" in reload(server)
    assert curl(server, papers, "/healthz").stdout == "200"


def test_a_key_with_a_passphrase_is_refused_and_nobody_is_asked_for_it(make_bellhop, papers, tmp_path):
    cert, key = papers.sign("locked")
    papers.made(openssl("ec", "-in", key, "-aes256", "-passout", "pass:secret", "-out", tmp_path / "locked.key"))
    server = make_bellhop(CONFIG + f"tls: {{{{cert: {cert}, key: {tmp_path / 'locked.key'}}}}}\n", start=False)
    with pytest.raises(AssertionError, match="locked.key"):
        server.start()
    server.process.wait(20)
    server.process = None


def test_old_versions_are_not_spoken(tls):
    server = tls()
    assert connect(server, "-tls1_2").returncode == 0
    assert connect(server, "-tls1_3").returncode == 0
    old = connect(server, "-tls1_1", "-cipher", "ALL:@SECLEVEL=0")
    assert old.returncode != 0 and "alert protocol version" in old.stderr, old.stderr


def test_the_oldest_version_can_be_raised(tls):
    server = tls("min_version: 1.3")
    assert connect(server, "-tls1_3").returncode == 0
    assert "alert protocol version" in connect(server, "-tls1_2").stderr


def test_only_suites_with_forward_secrecy_and_authentication_by_default(tls):
    server = tls()
    assert suite(connect(server, "-tls1_2")).startswith("ECDHE-ECDSA-AES")
    for weak in ("ECDHE-ECDSA-AES128-SHA256", "ECDHE-ECDSA-AES256-SHA"):
        assert "alert handshake failure" in connect(server, "-tls1_2", "-cipher", weak).stderr, weak


def test_suites_can_be_chosen(tls):
    server = tls("ciphers: 'TLS_CHACHA20_POLY1305_SHA256:ECDHE-ECDSA-AES256-GCM-SHA384'")
    assert suite(connect(server, "-tls1_3")) == "TLS_CHACHA20_POLY1305_SHA256"
    assert suite(connect(server, "-tls1_2")) == "ECDHE-ECDSA-AES256-GCM-SHA384"
    assert connect(server, "-tls1_3", "-ciphersuites", "TLS_AES_128_GCM_SHA256").returncode != 0
    server.config.write_text(server.config.read_text().replace("ECDHE-ECDSA-AES256-GCM-SHA384", "no-such-suite"))
    assert "tls.ciphers" in reload(server)
    assert suite(connect(server, "-tls1_2")) == "ECDHE-ECDSA-AES256-GCM-SHA384"


def test_all_must_show_a_certificate_of_the_authority(tls, papers, tmp_path):
    server = tls(f"client_ca: {papers.pem}")
    cert, key = papers.sign("client")
    (tmp_path / "else").mkdir()
    stranger, stranger_key = Papers(tmp_path / "else", "elsewhere").sign("stranger")
    assert curl(server, papers, "/healthz", "--cert", cert, "--key", key).stdout == "200"
    for _ in range(2):  # a resumed session needs it too
        assert curl(server, papers, "/healthz").stdout == "000"
        assert curl(server, papers, "/healthz", "--cert", stranger, "--key", stranger_key).stdout == "000"
    assert "alert handshake failure" in connect(server, "-tls1_2").stderr
    assert "alert unknown ca" in connect(server, "-tls1_2", "-cert", stranger, "-key", stranger_key).stderr
    assert "instances" in server.cli("status", "--json").stdout


def test_gateways_alone_must_show_one(tls, papers):
    server = tls(f"client_ca: {papers.pem}, client_certs: gateways")
    cert, key = papers.sign("gateway")
    upgrade = ["--http1.1", "-H", "Connection: Upgrade", "-H", "Upgrade: websocket", "-H", "Sec-WebSocket-Version: 13",
               "-H", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "--max-time", "5"]
    assert curl(server, papers, "/chat").stdout in ("200", "302", "303")
    assert curl(server, papers, "/relay", *upgrade).stdout == "403"
    assert curl(server, papers, "/relay", *upgrade, "--cert", cert, "--key", key).stdout == "101"


def test_doctor_knows_how_long_the_certificate_is_good(tls, papers):
    server = tls()

    def finding():
        said = json.loads(server.cli("doctor", "--json", check=False).stdout)
        return next((f["result"], f["detail"]) for f in said if f["check"] == "tls")

    assert finding()[0] == "ok" and re.search("(29|30) more days", finding()[1])
    show(server, papers.sign("soon", days=3))
    assert finding()[0] == "warn" and re.search("[23] more days", finding()[1])
    server.key.write_text("nothing")
    assert finding()[0] == "bad" and str(server.key) in finding()[1]
