"""Metrics: documented, without content, and every query of every board and rule runs on a real Prometheus."""
import json
import re
import shutil
import socket
import subprocess
import urllib.parse

import pytest

from conftest import CONFIG, ROOT, wait_for
from relay import http

BOARDS = sorted((ROOT / "packaging/grafana").glob("*.json"))
RULES = ROOT / "packaging/prometheus/bellhop.rules.yml"
MARK = "zqmark"


@pytest.fixture
def busy(make_bellhop, dial):
    """A server with traffic of every kind that a test can make; every name and text has the mark in it."""
    server = make_bellhop(CONFIG)
    c = server.add(id=f"{MARK}-gateway", tenant=f"{MARK}-tenant", instance=f"{MARK}-instance")
    g = dial(server, c)
    visitor = f"{MARK}-visitor-0123456789"
    server.post("/chat/lobby/api/name", {"name": f"{MARK} name"}, headers={"X-Bellhop-Visitor": visitor})
    for i in range(3):
        assert server.write(f"{MARK} text {i}", visitor=visitor, client_id=f"{MARK}-{i}") == 200
        chat = g.next("inbound")["event"]["source"]["chat_id"]
    assert g.act(op="send", chat_id=chat, content=f"{MARK} answer")["success"]
    assert not g.act(op="send", chat_id=f"{MARK}-foreign", content=f"{MARK} refused")["success"]
    server.cli("link", "add", "--tenant", f"{MARK}-tenant", "--instance", f"{MARK}-instance", "--platform", "web", "--user", f"{MARK}-user",
               "--bot", "lobby")
    server.cli("token", "agent", "--tenant", f"{MARK}-tenant", "--identity", f"{MARK}-identity")
    wait_for(lambda: server.metric("deliveries_acked_total") == 3)
    return server, chat


def test_no_text_name_or_id_of_a_person_is_in_the_metrics(busy):
    server, chat = busy
    text = server.get("/metrics").text
    assert MARK not in text and chat not in text
    assert 'bellhop_delivery_seconds_count{until="acked"} 3' in text
    assert 'bellhop_gate_verdicts_total{received="yes",reason="open"} 3' in text
    assert 'bellhop_platform_events_total{platform="web",bot="lobby"} 3' in text
    labels = set(re.findall(r'([a-z_]+)="', text))
    assert labels <= {"platform", "bot", "state", "reason", "received", "until", "le", "for", "limit", "store", "version", "kind"}, labels
    for name in re.findall(r"^# TYPE (\S+) ", text, re.M):
        assert f"# HELP {name} " in text


def test_every_metric_is_on_the_page_and_every_name_there_exists(busy):
    server, _ = busy
    shown = set(re.findall(r"^# TYPE (\S+) ", server.get("/metrics").text, re.M))
    page = (ROOT / "docs/metrics.md").read_text()
    told = set(re.findall(r"^\| `(bellhop_[a-z_]+)` \|", page, re.M))
    assert shown - told == set()
    others = {"bellhop_node_epoch", "bellhop_node_lease_left_ms", "bellhop_node_carried_connections"}  # with PostgreSQL
    assert told - shown - others == set()


def queries():
    for path in BOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                yield f"{path.stem}: {panel['title']}", target["expr"].replace("$__rate_interval", "30s")
    for expr in re.findall(r"^ +expr: (.*)$", RULES.read_text(), re.M):
        yield "rule", expr


@pytest.mark.skipif(not shutil.which("prometheus"), reason="needs Debian's prometheus")
def test_every_query_of_every_board_and_rule_runs_on_a_real_prometheus(busy, tmp_path):
    server, _ = busy
    subprocess.run(["promtool", "check", "rules", RULES], check=True, capture_output=True)
    subprocess.run(["promtool", "test", "rules", RULES.parent / "rules_test.yml"], check=True, capture_output=True)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    config = tmp_path / "prometheus.yml"
    config.write_text(f"global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: ['{RULES}']\n"
                      f"scrape_configs: [{{job_name: bellhop, static_configs: [{{targets: ['127.0.0.1:{server.port}']}}]}}]\n")
    process = subprocess.Popen(["prometheus", f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}",
                                f"--web.listen-address=127.0.0.1:{port}"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def ask(expr):
        try:
            answer = http("GET", f"http://127.0.0.1:{port}/api/v1/query?query={urllib.parse.quote(expr)}")
        except OSError:
            return None  # it is not up yet
        assert answer.status in (200, 503), (expr, answer.text)
        return answer.json["data"]["result"] if answer.status == 200 else None

    try:
        wait_for(lambda: ask("count_over_time(bellhop_mailbox_entries[1m]) >= 3"), 60)
        n = 0
        for where, expr in queries():
            found = ask(expr)
            n += 1
            if where != "rule" and "outbox" not in expr and "histogram_quantile" not in expr:
                assert found, f"{where}: nothing answers {expr}"
            names = set(re.findall(r"bellhop_[a-z_]+", expr))
            page = (ROOT / "docs/metrics.md").read_text()
            for name in names:
                assert f"`{re.sub('_bucket$', '', name)}`" in page, f"{where}: there is no {name}"
        assert n > 50 and len(BOARDS) == 2
    finally:
        process.terminate()
        process.communicate()
