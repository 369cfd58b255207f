"""A mail system of a test's own, as Debian ships it: Postfix, opendkim and Dovecot, on free ports.

Postfix receives mail from anywhere on `smtp_port`, lets opendkim check its signature (which adds the
Authentication-Results header of `mx.our.test`), and delivers into Maildirs.  Dovecot serves these over IMAP.  On
`submission_port` Postfix takes mail of users who log in.  Signatures are checked against keys in a file, so no name
server is needed.  Postfix starts as root only.
"""
import email.message
import email.policy
import email.utils
import http.server
import imaplib
import json
import os
import pathlib
import pwd
import shutil
import signal
import smtplib
import socket
import subprocess
import tempfile
import threading
import time
import urllib.parse
import uuid

import dkim

from servers import _until, free_port

BOT = "desk@our.test"
PASSWORD = "correct horse"
PEOPLE = ["alice@people.test", "bob@people.test", "eve@evil.test"]
AUTHSERV = "mx.our.test"


def _answers(port):
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as s:
            s.settimeout(5)
            return s.recv(1) != b""
    except OSError:
        return False


class Tokens:
    """A token server: gives out access tokens for its refresh token, replaces that one each time, and knows what it gave."""

    def __init__(self):
        self.refresh, self.good, self.asked, self.lasts = "refresh-0", set(), 0, 3600
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self, status, doc):
                body = json.dumps(doc).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self):  # noqa: N802
                form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                outer.asked += 1
                if form.get("grant_type") != ["refresh_token"] or form.get("client_id") != ["bellhop"] or \
                        form.get("refresh_token") != [outer.refresh]:
                    self.answer(400, {"error": "invalid_grant"})
                    return
                token = f"access-{outer.asked}"
                outer.good = {token}
                outer.refresh = f"refresh-{outer.asked}"
                self.answer(200, {"access_token": token, "token_type": "Bearer", "expires_in": outer.lasts,
                                  "refresh_token": outer.refresh})

            def do_GET(self):  # noqa: N802 - Dovecot asks whose token it is
                token = urllib.parse.parse_qs(urllib.parse.urlparse(self.path).query).get("access_token", [""])[0]
                if token in outer.good:
                    self.answer(200, {"email": BOT, "expires_in": 3600})
                else:
                    self.answer(401, {"error": "invalid_token"})

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


class MailServers:
    def __init__(self):
        memory = pathlib.Path("/dev/shm")
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="bh-mail-", dir=memory if os.access(memory, os.W_OK) else None))
        os.chmod(self.dir, 0o755)
        self.imap_port, self.smtp_port, self.submission_port, self.milter_port = (free_port() for _ in range(4))
        self.imaps_port, self.smtps_port = free_port(), free_port()
        self.mail = self.dir / "mail"
        self.owner = pwd.getpwnam("nobody")
        self.processes = {}
        self._certificates()
        self._keys()
        self._dovecot()
        self._postfix()
        self._opendkim()

    # ---- settings

    def _certificates(self):
        self.ca = self.dir / "ca.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                        "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", self.dir / "key.pem",
                        "-out", self.ca], check=True, capture_output=True)
        os.chmod(self.dir / "key.pem", 0o600)

    def _keys(self):
        """One key for both domains of people: the one of evil.test signs for evil.test only."""
        self.dkim = {}
        lines = []
        for domain in ("people.test", "evil.test"):
            key = self.dir / f"{domain}.key"
            subprocess.run(["openssl", "genrsa", "-traditional", "-out", key, "1024"], check=True, capture_output=True)
            public = subprocess.run(["openssl", "rsa", "-in", key, "-pubout", "-outform", "DER"], check=True,
                                    capture_output=True).stdout
            import base64
            lines.append(f"s1._domainkey.{domain} v=DKIM1; k=rsa; p={base64.b64encode(public).decode()}")
            self.dkim[domain] = key.read_bytes()
        (self.dir / "keys.txt").write_text("\n".join(lines) + "\n")

    def _dovecot(self):
        d = self.dir / "dovecot"
        d.mkdir()
        users = [BOT, *PEOPLE]
        (d / "users").write_text("".join(f"{u}:{{PLAIN}}{PASSWORD}\n" for u in users))
        self.tokens = Tokens()
        (d / "oauth2").write_text(f"tokeninfo_url = {self.tokens.url}/info?access_token=\nusername_attribute = email\n")
        (d / "conf").write_text(f"""
base_dir = {d}/run
state_dir = {d}/state
log_path = {d}/log
protocols = imap
listen = 127.0.0.1
ssl = yes
ssl_cert = <{self.ca}
ssl_key = <{self.dir}/key.pem
disable_plaintext_auth = no
auth_mechanisms = plain login xoauth2
auth_failure_delay = 0
mail_location = maildir:{self.mail}/%d/%n:INDEX=MEMORY
mail_uid = nobody
mail_gid = nogroup
first_valid_uid = 1
first_valid_gid = 1
default_internal_user = dovecot
default_login_user = dovenull
imap_idle_notify_interval = 2 mins
service imap-login {{
  inet_listener imap {{
    port = {self.imap_port}
  }}
  inet_listener imaps {{
    port = {self.imaps_port}
    ssl = yes
  }}
}}
service auth {{
  unix_listener {d}/auth {{
    mode = 0666
  }}
}}
service anvil {{
  chroot =
  unix_listener anvil-auth-penalty {{
    mode = 0
  }}
}}
passdb {{
  driver = oauth2
  mechanisms = xoauth2
  args = {d}/oauth2
}}
passdb {{
  driver = passwd-file
  args = {d}/users
}}
userdb {{
  driver = static
  args = uid=nobody gid=nogroup home={self.dir}/home/%u
}}
namespace inbox {{
  inbox = yes
}}
""")

    def _postfix(self):
        p = self.dir / "postfix"
        for name in ("etc", "spool", "data"):
            (p / name).mkdir(parents=True)
        owner = pwd.getpwnam("postfix")
        os.chown(p / "data", owner.pw_uid, owner.pw_gid)
        boxes = "".join(f"{u} {u.split('@')[1]}/{u.split('@')[0]}/\n" for u in (BOT, *PEOPLE))
        (p / "etc/boxes").write_text(boxes + "gone@people.test people.test/gone/\n")
        (p / "etc/transport").write_text("gone@people.test gone:\n")
        (p / "etc/main.cf").write_text(f"""
compatibility_level = 3.6
queue_directory = {p}/spool
data_directory = {p}/data
maillog_file = /dev/stdout
myhostname = {AUTHSERV}
mydestination =
mynetworks =
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
alias_maps =
local_transport = error:no local mail
virtual_mailbox_domains = our.test, people.test, evil.test
virtual_mailbox_base = {self.mail}
virtual_mailbox_maps = texthash:{p}/etc/boxes
virtual_uid_maps = static:{self.owner.pw_uid}
virtual_gid_maps = static:{self.owner.pw_gid}
virtual_minimum_uid = 1
transport_maps = texthash:{p}/etc/transport
smtpd_relay_restrictions = permit_sasl_authenticated, reject_unauth_destination
smtpd_milters = inet:127.0.0.1:{self.milter_port}
milter_default_action = tempfail
smtpd_sasl_type = dovecot
smtpd_sasl_path = {self.dir}/dovecot/auth
smtpd_tls_cert_file = {self.ca}
smtpd_tls_key_file = {self.dir}/key.pem
smtpd_tls_security_level = may
smtpd_peername_lookup = no
smtp_host_lookup = native
disable_dns_lookups = yes
message_size_limit = 50000000
mailbox_size_limit = 0
virtual_mailbox_limit = 0
default_process_limit = 20
in_flow_delay = 0
smtpd_error_sleep_time = 0
smtpd_client_connection_count_limit = 0
""")
        submission = """ -o smtpd_milters= -o smtpd_sasl_auth_enable=yes -o smtpd_tls_auth_only=no
  -o smtpd_recipient_restrictions=permit_sasl_authenticated,reject"""
        (p / "etc/master.cf").write_text(f"""
127.0.0.1:{self.smtp_port} inet n - n - - smtpd
127.0.0.1:{self.submission_port} inet n - n - - smtpd
  {submission}
127.0.0.1:{self.smtps_port} inet n - n - - smtpd
  -o smtpd_tls_wrappermode=yes {submission}
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
tlsmgr unix - - n 1000? 1 tlsmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
verify unix - - n - 1 verify
proxymap unix - - n - - proxymap
error unix - - n - - error
retry unix - - n - - error
discard unix - - n - - discard
virtual unix - n n - - virtual
anvil unix - - n - 1 anvil
scache unix - - n - 1 scache
showq unix n - n - - showq
postlog unix-dgram n - n - 1 postlogd
gone unix - n n - - pipe
  flags= user=nobody argv={p}/etc/gone
""")
        script = p / "etc/gone"
        script.write_text("#!/bin/sh\ncat >/dev/null\necho 5.1.1 no such person\nexit 67\n")
        os.chmod(script, 0o755)
        self.mail.mkdir()
        os.chown(self.mail, self.owner.pw_uid, self.owner.pw_gid)
        (self.dir / "home").mkdir()
        os.chown(self.dir / "home", self.owner.pw_uid, self.owner.pw_gid)

    def _opendkim(self):
        (self.dir / "opendkim.conf").write_text(f"""
Mode v
Socket inet:{self.milter_port}@127.0.0.1
AuthservID {AUTHSERV}
AlwaysAddARHeader yes
TestPublicKeys {self.dir}/keys.txt
RequireSafeKeys no
Syslog no
MinimumKeyBits 1024
PidFile {self.dir}/opendkim.pid
UserID {self.owner.pw_name}
""")

    # ---- life

    def _spawn(self, name, *argv):
        log = open(self.dir / f"{name}.log", "ab")
        self.processes[name] = subprocess.Popen([str(a) for a in argv], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                                start_new_session=True)

    def start(self):
        self._spawn("opendkim", "/usr/sbin/opendkim", "-f", "-x", self.dir / "opendkim.conf")
        self.start_imap()
        self.start_smtp()
        _until(lambda: self._milter_up())
        return self

    def _milter_up(self):
        try:
            socket.create_connection(("127.0.0.1", self.milter_port), 1).close()
            return True
        except OSError:
            return False

    def start_imap(self):
        self._spawn("dovecot", "/usr/sbin/dovecot", "-F", "-c", self.dir / "dovecot/conf")
        _until(lambda: _answers(self.imap_port))

    def start_smtp(self):
        self._spawn("postfix", "/usr/sbin/postfix", "-c", self.dir / "postfix/etc", "start-fg")
        _until(lambda: _answers(self.smtp_port))

    def stop_one(self, name):
        p = self.processes.pop(name, None)
        if p is None:
            return
        if name == "postfix":
            subprocess.run(["/usr/sbin/postfix", "-c", self.dir / "postfix/etc", "abort"], capture_output=True)
        else:
            os.killpg(p.pid, signal.SIGTERM)
        try:
            p.wait(1)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(p.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        p.wait()

    def stop(self):
        for name in list(self.processes):
            self.stop_one(name)
        shutil.rmtree(self.dir, ignore_errors=True)

    def fresh(self):
        """Empties every mailbox, as if nobody had ever written."""
        _until(lambda: not any(f.is_file() for q in ("maildrop", "incoming", "active", "deferred")
                               for f in (self.dir / "postfix/spool" / q).rglob("*")))
        for box in self.mail.glob("*/*"):
            shutil.rmtree(box)

    # ---- people

    def compose(self, sender, text, subject="Hello", to=BOT, headers=None, message_id=None, attach=()):
        m = email.message.EmailMessage(policy=email.policy.SMTP)
        m["From"], m["To"], m["Subject"] = sender, to, subject
        m["Date"] = email.utils.formatdate()
        m["Message-ID"] = message_id or f"<{uuid.uuid4().hex}@{email.utils.parseaddr(sender)[1].split('@')[1]}>"
        for k, v in (headers or {}).items():
            m[k] = v
        m.set_content(text)
        for name, kind, data in attach:
            m.add_attachment(data, maintype=kind.split("/")[0], subtype=kind.split("/")[1], filename=name)
        return m

    def sign(self, message, domain="people.test"):
        raw = bytes(message) if not isinstance(message, bytes) else message
        raw = b"\r\n".join(raw.replace(b"\r\n", b"\n").split(b"\n"))
        return dkim.sign(raw, b"s1", domain.encode(), self.dkim[domain]) + raw

    def inject(self, raw, sender, to=BOT):
        """@raw arrives from the outside world."""
        with smtplib.SMTP("127.0.0.1", self.smtp_port, "people.test", timeout=20) as s:
            s.sendmail(sender, [to], raw)

    def write(self, text, sender="alice@people.test", signed=True, **more):
        """A person writes to the bot; returns the Message-ID."""
        m = self.compose(sender, text, **more)
        domain = email.utils.parseaddr(sender)[1].split("@")[1]
        self.inject(self.sign(m, domain) if signed else bytes(m), email.utils.parseaddr(sender)[1])
        return m["Message-ID"]

    def imap(self, user=BOT):
        box = imaplib.IMAP4("127.0.0.1", self.imap_port)
        box.login(user, PASSWORD)
        return box

    def mails(self, user, folder="INBOX"):
        """All mails of a user, as messages, without changing anything."""
        box = self.imap(user)
        box.select(folder, readonly=True)
        _, found = box.search(None, "ALL")
        out = []
        for n in found[0].split():
            _, data = box.fetch(n, "(BODY.PEEK[] FLAGS)")
            m = email.message_from_bytes(data[0][1], policy=email.policy.default)
            m.flags = (data[0][0] + (data[1] if isinstance(data[1], bytes) else b"")).decode()
            out.append(m)
        box.logout()
        return out

    def wait_mails(self, user, n, seconds=20):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            got = self.mails(user)
            if len(got) >= n:
                return got
            time.sleep(0.1)
        raise AssertionError(f"{user} has {len(got)} mails, not {n}")

    def new_uidvalidity(self, user=BOT):
        """As after a restored backup: the same mails, but every UID means another one."""
        was = self.uidvalidity(user)
        self.stop_one("dovecot")
        box = self.mail / user.split("@")[1] / user.split("@")[0]
        for f in box.glob("dovecot-uid*"):
            f.unlink()
        while time.time() < was + 1:  # UIDVALIDITY is the second in which the list is made
            time.sleep(0.05)
        self.start_imap()

    def uidvalidity(self, user=BOT):
        box = self.imap(user)
        box.select("INBOX", readonly=True)
        found = int(box.response("UIDVALIDITY")[1][0])
        box.logout()
        return found

    def config(self, tls="implicit", smtp_port=None, imap_port=None, password=PASSWORD, **more):
        ports = {"implicit": (self.imaps_port, self.smtps_port), "starttls": (self.imap_port, self.submission_port),
                 "off": (self.imap_port, self.submission_port)}[tls]
        ports = imap_port or ports[0], smtp_port or ports[1]
        extra = "".join(f", {k}: {v}" for k, v in more.items())
        return (f"  - {{platform: email, bot: {BOT}, authserv_id: {AUTHSERV}, ca: {self.ca}{extra},\n"
                f"     imap: {{host: localhost, port: {ports[0]}, user: {BOT}, password: '{password}', tls: {tls}}},\n"
                f"     smtp: {{host: localhost, port: {ports[1]}, user: {BOT}, password: '{password}', tls: {tls}}}}}\n")
