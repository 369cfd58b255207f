"""What the REST simulators of Twilio and WeCom share: a server in a thread that can be told to misbehave."""
import json
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class WebApi:
    """sim.trouble(status, body, headers): the next message is answered so and not taken; status None: taken, and the
    connection is cut before the answer; "lost": not taken, and cut.  sim.go.clear(): messages are taken and not answered until sim.go.set()."""

    def __init__(self):
        self.calls, self.violations, self.troubles, self.sent = [], [], [], []
        self.go = threading.Event()
        self.go.set()
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                self.answer(b"")

            def do_POST(self):
                self.answer(self.rfile.read(int(self.headers.get("Content-Length", 0))))

            def answer(self, body):
                url = urllib.parse.urlsplit(self.path)
                status, answer, headers = api.handle(self.command, url.path, urllib.parse.parse_qs(url.query), self.headers,
                                                     body)
                if status is None:
                    self.close_connection = True
                    self.connection.close()
                    return
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def date_time_string(self, timestamp=None):
                return super().date_time_string(api.now())

            def log_message(self, *_):
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, *about):
                if not isinstance(sys.exc_info()[1], ConnectionError):  # bellhop was killed
                    super().handle_error(*about)

        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def now(self):
        return time.time()

    def trouble(self, status, body=None, headers=None):
        self.troubles.append((status, body or {}, headers or {}))

    def broke(self, what):
        self.violations.append(what)

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class TwilioSim(WebApi):
    def __init__(self, account_sid, auth_token):
        self.account, self.auth, self.state = account_sid, auth_token, "active"
        self.people = {}  # what people sent: path -> bytes, or the address it is at
        self.numbers = []  # of the account: {"phone_number", "sms_url"}
        self.made, self.looks, self.behind, self.clock_s = [], [], 0, 0
        super().__init__()

    def now(self):
        """Its clock may be another than ours."""
        return time.time() + self.clock_s

    def listed(self, query):
        """What it took, newest first, as the list of messages has it; the next self.behind lists are empty."""
        if set(query) - {"To", "From", "PageSize", "Page", "PageToken", "DateSent", "DateSent<", "DateSent>"}:
            self.broke(f"list {sorted(query)}")
        self.looks.append({k: v[0] for k, v in query.items()})
        if self.behind > 0:
            self.behind -= 1
            return 200, {"messages": [], "page": 0, "next_page_uri": None}, {}
        found = [m for m in reversed(self.made) if all(m[k.lower()] == query[k][0] for k in ("To", "From") if k in query)]
        return 200, {"messages": found[:int(query.get("PageSize", ["50"])[0])], "page": 0, "next_page_uri": None}, {}

    def take(self, form):
        from email.utils import formatdate
        self.sent.append(form)
        self.made.append({"sid": f"SM{len(self.sent):032x}", "to": form["To"], "from": form.get("From"), "status": "queued",
                          "messaging_service_sid": form.get("MessagingServiceSid"), "body": form.get("Body", ""),
                          "num_media": "1" if "MediaUrl" in form else "0", "direction": "outbound-api",
                          "date_created": formatdate(self.now()).replace("-0000", "+0000"), "date_sent": None})
        return self.made[-1]["sid"]

    def handle(self, method, path, query, headers, body):
        import base64
        self.calls.append((method, path))
        if method == "GET" and path == f"/2010-04-01/Accounts/{self.account}.json":
            pair = base64.b64encode(f"{self.account}:{self.auth}".encode()).decode()
            if headers.get("Authorization") != f"Basic {pair}":
                return 401, {"code": 20003, "message": "Authenticate", "status": 401}, {}
            return 200, {"sid": self.account, "status": self.state}, {}
        if method == "GET" and path == f"/2010-04-01/Accounts/{self.account}/IncomingPhoneNumbers.json":
            found = [n for n in self.numbers if n["phone_number"] == query["PhoneNumber"][0]]
            return 200, {"incoming_phone_numbers": found, "page": 0}, {}
        if path in self.people and method == "GET":
            return self.media(path, headers)
        if path != f"/2010-04-01/Accounts/{self.account}/Messages.json" or method not in ("GET", "POST"):
            self.broke(f"{method} {path}")
            return 404, {"code": 20404, "status": 404}, {}
        expected = base64.b64encode(f"{self.account}:{self.auth}".encode()).decode()
        if headers.get("Authorization") != f"Basic {expected}":
            return 401, {"code": 20003, "message": "Authenticate", "status": 401}, {}
        if method == "GET":
            return self.listed(query)
        form = dict(urllib.parse.parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=True))
        if set(form) - {"To", "From", "MessagingServiceSid", "Body", "MediaUrl"} or \
                not (form.get("Body") or form.get("MediaUrl")):
            self.broke(f"form {sorted(form)}")
        if len(form.get("Body", "").encode("utf-16-le")) // 2 > 1600:
            self.broke("longer than 1600")
            return 400, {"code": 21617, "status": 400}, {}
        trouble = self.troubles.pop(0) if self.troubles else None
        if trouble and trouble[0] == "lost":
            return None, None, None
        if trouble and trouble[0] is not None:
            return trouble
        sid = self.take(form)
        self.go.wait(60)
        if trouble:
            return None, None, None
        return 201, {"sid": sid, "status": "queued"}, {}

    def media(self, path, headers):
        """Kept elsewhere: the API answers with the address, which must not be asked with the credential."""
        import base64
        expected = base64.b64encode(f"{self.account}:{self.auth}".encode()).decode()
        what = self.people[path]
        if isinstance(what, str):
            if headers.get("Authorization") != f"Basic {expected}":
                return 401, {}, {}
            return 307, {}, {"Location": what if "://" in what else self.url + what}
        if headers.get("Authorization"):
            self.broke("the credential was sent elsewhere")
        return 200, what, {"Content-Type": "image/png"}


class WecomSim(WebApi):
    def __init__(self, corp_id, secret, expires_in=7200):
        self.corp, self.secret, self.expires_in = corp_id, secret, expires_in
        self.tokens, self.valid, self.slow = [], set(), 0
        self.uploads, self.people = {}, {}
        super().__init__()

    def handle(self, method, path, query, headers, body):
        self.calls.append((method, path))
        if path == "/cgi-bin/gettoken" and method == "GET":
            time.sleep(self.slow)
            if query != {"corpid": [self.corp], "corpsecret": [self.secret]}:
                return 200, {"errcode": 40001, "errmsg": "invalid credential"}, {}
            self.tokens.append(f"access-token-{len(self.tokens)}-planted")
            self.valid.add(self.tokens[-1])
            return 200, {"errcode": 0, "errmsg": "ok", "access_token": self.tokens[-1], "expires_in": self.expires_in}, {}
        if path == "/cgi-bin/media/get" and method == "GET":
            data = self.people.get(query.get("media_id", [""])[0])
            if not self.valid & set(query.get("access_token", [])) or data is None:
                return 200, {"errcode": 40007, "errmsg": "invalid media_id"}, {}
            return 200, data, {"Content-Type": "application/octet-stream"}
        if path == "/cgi-bin/media/upload" and method == "POST":
            return self.upload(query, headers, body)
        if path != "/cgi-bin/message/send" or method != "POST":
            self.broke(f"{method} {path}")
            return 404, {}, {}
        if not self.valid & set(query.get("access_token", [])):
            return 200, {"errcode": 42001, "errmsg": "access_token expired"}, {}
        message = json.loads(body)
        kind = message.get("msgtype")
        if set(message) != {"touser", "msgtype", "agentid", kind} or \
                kind not in ("text", "image", "voice", "video", "file") or not isinstance(message["agentid"], int):
            self.broke(f"message {message}")
        if kind == "text" and len(message["text"]["content"].encode()) > 2048:
            self.broke("longer than 2048 bytes")
        if kind != "text" and message[kind].get("media_id") not in self.uploads:
            return 200, {"errcode": 40007, "errmsg": "invalid media_id"}, {}
        trouble = self.troubles.pop(0) if self.troubles else None
        if trouble and trouble[0] is not None:
            return trouble
        self.sent.append((message["touser"], message["text"]["content"] if kind == "text" else
                          (kind, self.uploads[message[kind]["media_id"]])))
        if trouble:
            return None, None, None
        return 200, {"errcode": 0, "errmsg": "ok", "msgid": f"m-{len(self.sent)}"}, {}

    def upload(self, query, headers, body):
        import email
        if not self.valid & set(query.get("access_token", [])):
            return 200, {"errcode": 42001, "errmsg": "access_token expired"}, {}
        kind = query.get("type", [""])[0]
        form = email.message_from_bytes(b"Content-Type: " + headers["Content-Type"].encode() + b"\r\n\r\n" + body)
        parts = form.get_payload()
        if len(parts) != 1 or parts[0].get_param("name", header="Content-Disposition") != "media" or \
                not parts[0].get_filename():
            self.broke("upload is not one named file called media")
        data, type = parts[0].get_payload(decode=True), parts[0].get_content_type()
        takes = {"image": ("image/png", "image/jpeg"), "voice": ("audio/amr",), "video": ("video/mp4",), "file": None}[kind]
        if len(data) <= 5 or (takes and type not in takes):
            return 200, {"errcode": 40004, "errmsg": "invalid media type"}, {}
        id = f"media-{len(self.uploads)}"
        self.uploads[id] = (parts[0].get_filename(), data)
        return 200, {"errcode": 0, "errmsg": "ok", "type": kind, "media_id": id, "created_at": "1"}, {}
