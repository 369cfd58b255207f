"""Programs at /v1: a key, and calls that say as whom."""
import json
import os
import subprocess
import uuid

from conftest import PROGRAM, ROOT
from relay import http

BODY = "# Skill: {name}\n# Status: {status}\n# Description: says hello\n\nt:\n    ! hi\n\ndefault: t\n"


def body(name="hello", status="Draft"):
    return BODY.format(name=name, status=status)


def make_key(server, tenant="acme", *flags, **options):
    words = ["token", "agent", "--tenant", tenant, *flags]
    for name, value in options.items():
        words += ["--" + name, value]
    return server.cli(*words).stdout.strip()


class Program:
    """Somebody with a key."""

    def __init__(self, server, key=None, namespace=None, **more):
        self.server, self.key = server, key if key is not None else make_key(server, **more)
        self.headers = {"Authorization": f"Bearer {self.key}"}
        if namespace:
            self.headers["X-Bellhop-Namespace"] = namespace

    def ask(self, method, path, body=None, **headers):
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        return http(method, self.server.url + path, body, {**self.headers, **headers})

    def get(self, path, **headers):
        return self.ask("GET", path, **headers)

    def write(self, name, source=None, **metadata):
        return self.ask("PUT", f"/v1/skills/{name}", {"source": source or body(name), "metadata": metadata})

    def names(self, query=""):
        return [s["name"] for s in self.get("/v1/skills" + query).json]


def fresh_namespace():
    return "n" + uuid.uuid4().hex[:12]


def node(script, *args, env=None, timeout=120):
    """Run a Node program of this folder with the packages of build/npm; its standard output."""
    done = subprocess.run(["node", ROOT / "tests" / "e2e" / script, *map(str, args)], text=True, capture_output=True,
                          timeout=timeout, env={**os.environ, "BELLHOP_PROGRAM": str(PROGRAM), **(env or {})})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def node_json(script, *args, **more):
    return json.loads(node(script, *args, **more))
