"""The platforms' own libraries, asked to sign and encrypt: nothing of bellhop's crypto is used to test it."""
import base64
import json
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NPM = ROOT / "build" / "npm"
PACKAGES = ["tweetnacl", "twilio", "@wecom/crypto"]


class Oracle:
    def __init__(self):
        self.process = subprocess.Popen(["node", pathlib.Path(__file__).with_name("oracle.js"), NPM], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, op, **more):
        self.process.stdin.write(json.dumps({"op": op, **more}) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert "error" not in answer, answer["error"]
        return answer

    def close(self):
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()


def b64(data):
    return base64.b64encode(data if isinstance(data, bytes) else data.encode()).decode()


@pytest.fixture(scope="module")
def oracle():
    missing = [p for p in PACKAGES if not (NPM / "node_modules" / p).is_dir()]
    assert not missing, f"run ./dev test, or: npm install --prefix build/npm {' '.join(missing)}"
    o = Oracle()
    yield o
    o.close()
