"""A strict simulator of an OpenAI-style server: /v1/responses and /v1/chat/completions, streamed or whole.

What the person's last text says decides what it does: "stall", "cut", "limit", "whole", "refuse STATUS [RETRY-AFTER]",
"forget", "slow", "picture", "how many".  Anything else is said back.  `violations` has what no server would accept.
"""
import base64
import itertools
import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FIELDS = {"responses": {"model", "input", "stream", "user", "previous_response_id"},
          "chat": {"model", "messages", "stream", "user"}}
PARTS = {"responses": {"input_text": {"text"}, "input_image": {"image_url", "detail"}}, "chat": {"text": {"text"}, "image_url": {"image_url"}}}


class Refusal(Exception):
    def __init__(self, status, message, headers=None):
        self.status, self.message, self.headers = status, message, headers or {}


class ModelSim:
    def __init__(self, key=None, lenient=False, port=0):
        self.key, self.lenient = key, lenient
        self.violations, self.requests, self.responses, self.closed = [], [], {}, 0
        self.refused, self.numbers = {}, itertools.count(1)
        self.release = threading.Event()
        self.lost = (400, "Previous response with id '{}' not found. (previous_response_not_found)")
        sim = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_POST(self):
                sim.serve(self)

            def do_GET(self):
                sim.list(self)

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.release.set()
        self.server.shutdown()
        self.server.server_close()

    def wrong(self, sentence):
        self.violations.append(sentence)
        raise Refusal(400, sentence)

    models = ["qwen3", "llama3.2"]

    def list(self, h):
        if h.path != "/v1/models":
            self.violations.append(f"there is no {h.path}")
        if self.key and h.headers["Authorization"] != f"Bearer {self.key}":
            return self.whole(h, {"error": {"message": "Incorrect API key provided"}}, 401, {})
        self.whole(h, {"object": "list", "data": [{"id": m, "object": "model"} for m in self.models]}, 200, {})

    # ---- the request ----

    def serve(self, h):
        body = h.rfile.read(int(h.headers["Content-Length"] or 0))
        try:
            api, request = self.checked(h, body)
            self.requests.append({"api": api, "headers": dict(h.headers), **request})
            self.answer(h, api, request)
        except Refusal as r:
            self.whole(h, {"error": {"message": r.message, "type": "invalid_request_error", "param": None, "code": None}}, r.status, r.headers)
        except (BrokenPipeError, ConnectionResetError):
            self.closed += 1
            h.close_connection = True

    def checked(self, h, body):
        api = {"/v1/responses": "responses", "/v1/chat/completions": "chat"}.get(h.path)
        if api is None:
            self.wrong(f"there is no {h.path}")
        if self.key and h.headers["Authorization"] != f"Bearer {self.key}":
            raise Refusal(401, "Incorrect API key provided")
        if h.headers.get_content_type() != "application/json":
            self.wrong("not JSON")
        request = json.loads(body.decode())
        if not self.lenient and set(request) - FIELDS[api]:
            self.wrong(f"unknown fields {set(request) - FIELDS[api]}")
        if request.get("model") != "small":
            raise Refusal(404, "The model does not exist")
        if not self.lenient and not re.fullmatch(r"bellhop-[0-9a-f]{32}", request.get("user", "")):
            self.wrong("no stable user")
        previous = request.get("previous_response_id")
        if previous is not None and previous not in self.responses:
            raise Refusal(self.lost[0], self.lost[1].format(previous))
        said = request["input" if api == "responses" else "messages"]
        if isinstance(said, str):
            said = [{"role": "user", "content": said}]
        roles = [m["role"] for m in said]
        if api == "chat" and any(a == b for a, b in zip(roles, roles[1:])) or roles[-1] != "user":
            self.wrong(f"roles do not alternate: {roles}")
        for m in said:
            if isinstance(m["content"], list):
                for part in m["content"]:
                    if set(part) - {"type"} != PARTS[api].get(part["type"]):
                        self.wrong(f"a part is wrong: {part['type']} {sorted(part)}")
            elif not isinstance(m["content"], str) or not m["content"]:
                self.wrong("empty content")
        request["said"] = said
        return api, request

    # ---- the answer ----

    def answer(self, h, api, request):
        content = request["said"][-1]["content"]
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        text = " ".join(p["text"] for p in parts if "text" in p)
        earlier = self.responses.get(request.get("previous_response_id"), 0) if api == "responses" else len(request["said"]) - 1
        words = re.fullmatch(r"refuse (\d+)(?: (\d+))?( always)?", text)
        if words and (words[3] or not self.refused.get(request.get("user"))):
            self.refused[request.get("user")] = True
            raise Refusal(int(words[1]), "no", {"Retry-After": words[2]} if words[2] else {})
        if text == "forget":
            self.responses.clear()
        if text == "stall":
            self.release.wait(60)
        answer = f"You said: {text}"
        if text == "how many":
            answer = f"{earlier} before"
        images = [p["image_url"] if api == "responses" else p["image_url"]["url"] for p in parts if "image_url" in p]
        if images:
            answer = f"I see {len(base64.b64decode(images[0].split(',', 1)[1]))} bytes of {images[0].split(';')[0][5:]}"
        number = next(self.numbers)
        if api == "responses":
            self.responses[f"resp_{number}"] = earlier + 1
        if text == "whole" or not request.get("stream"):
            self.whole(h, self.object(api, f"resp_{number}", answer, text == "limit"))
        else:
            self.stream(h, api, f"resp_{number}", answer, text)

    def object(self, api, number, answer, cut, status=None):
        if api == "chat":
            return {"id": number, "object": "chat.completion", "created": int(time.time()), "model": "small", "choices": [
                {"index": 0, "message": {"role": "assistant", "content": answer}, "finish_reason": "length" if cut else "stop"}]}
        return {"id": number, "object": "response", "created_at": int(time.time()), "model": "small",
                "status": status or ("incomplete" if cut else "completed"), "error": None,
                "incomplete_details": {"reason": "max_output_tokens"} if cut else None, "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
                "parallel_tool_calls": True, "tools": [], "tool_choice": "auto", "metadata": {}, "instructions": None, "temperature": 1, "top_p": 1,
                "output": [] if status == "in_progress" else [{"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [
                    {"type": "output_text", "text": answer, "annotations": []}]}]}

    def whole(self, h, body, status=200, headers=None):
        data = json.dumps(body).encode()
        h.send_response(status)
        h.send_header("Content-Type", "application/json")
        h.send_header("Content-Length", str(len(data)))
        for name, value in (headers or {}).items():
            h.send_header(name, value)
        h.end_headers()
        h.wfile.write(data)

    def stream(self, h, api, number, answer, text):
        h.send_response(200)
        h.send_header("Content-Type", "text/event-stream")
        h.send_header("Connection", "close")
        h.end_headers()
        h.close_connection = True
        sequence = itertools.count()

        def event(kind, **more):
            more = {"type": kind, "sequence_number": next(sequence), **more}
            h.wfile.write(f"event: {kind}\ndata: {json.dumps(more)}\n\n".encode())
            h.wfile.flush()

        def chunk(delta, why=None):
            more = {"id": number, "object": "chat.completion.chunk", "created": 1, "model": "small",
                    "choices": [{"index": 0, "delta": delta, "finish_reason": why}]}
            h.wfile.write(f"data: {json.dumps(more)}\r\n\r\n".encode())
            h.wfile.flush()

        h.wfile.write(b": hello\n\n")
        if api == "responses":
            event("response.created", response=self.object(api, number, "", False, "in_progress"))
            event("response.output_item.added", output_index=0, item={"type": "message", "id": "msg_1", "status": "in_progress", "role": "assistant",
                                                                      "content": []})
            event("response.content_part.added", item_id="msg_1", output_index=0, content_index=0,
                  part={"type": "output_text", "text": "", "annotations": []})
        else:
            chunk({"role": "assistant", "content": ""})
        pieces = re.findall(r"\S+\s*", answer)
        for i, piece in enumerate(pieces):
            if text.startswith("cut") and (i == 2 or text == "cut early"):
                if text != "cut early" or not self.refused.get(text):
                    self.refused[text] = True
                    return
            if text == "hold" and i == 2:
                self.release.wait(60)
            if api == "responses":
                event("response.output_text.delta", item_id="msg_1", output_index=0, content_index=0, delta=piece, logprobs=[])
            else:
                chunk({"content": piece})
            time.sleep(0.02)
        if api == "chat":
            chunk({}, "length" if text == "limit" else "stop")
            h.wfile.write(b"data: [DONE]\r\n\r\n")
            return
        event("response.output_text.done", item_id="msg_1", output_index=0, content_index=0, text=answer, logprobs=[])
        end = self.object(api, number, answer, text == "limit")
        event("response.incomplete" if text == "limit" else "response.completed", response=end)
