"""A running server has given up what it does not need: seen in /proc, in what it says, and in what it can no longer open."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from conftest import CONFIG, PROGRAM, ROOT, wait_for
from test_tls import Papers, reload
from v1 import Program

sys.path.insert(0, str(ROOT / "tests" / "check"))
import hardened  # noqa: E402


def threads(server):
    """What /proc says of every thread: {field: value} each."""
    for task in pathlib.Path(f"/proc/{server.process.pid}/task").iterdir():
        yield dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines())


def test_every_thread_is_confined_and_status_and_doctor_say_so(bellhop):
    bellhop.add("--id", "g")
    assert bellhop.write("hello") == 200  # so that every thread is there
    found = list(threads(bellhop))
    assert len(found) > 1
    for thread in found:
        assert thread["Seccomp"] == "2" and thread["NoNewPrivs"] == "1", thread
    wait_for(lambda: "confined: files (Landlock" in bellhop.log() and "calls (seccomp)" in bellhop.log())
    assert "confined files (Landlock" in bellhop.cli("status").stdout
    status = json.loads(bellhop.cli("status", "--json").stdout)
    assert status["fullyConfined"] is True
    assert "ok    confined   files (Landlock" in bellhop.cli("doctor").stdout


def test_it_can_be_switched_off(make_bellhop):
    server = make_bellhop(CONFIG + "confine: off\n")
    assert all(thread["Seccomp"] == "0" for thread in threads(server))
    wait_for(lambda: "confined: switched off (confine: off)" in server.log())
    assert "warn  confined   switched off" in server.cli("doctor").stdout


def test_a_new_directory_needs_a_restart(make_bellhop, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    pairs = [Papers(d).sign("localhost") for d in (here, there)]
    server = make_bellhop(CONFIG, start=False)
    text = server.config.read_text()

    def show(cert, key):
        server.config.write_text(text + f"tls: {{cert: {cert}, key: {key}}}\n")

    show(*pairs[0])
    server.start()
    show(*pairs[1])
    assert "kept the old configuration" in reload(server) and str(there) in server.log()
    server.restart()
    assert server.cli("status").returncode == 0


def test_a_configuration_that_was_replaced_by_renaming_is_read(bellhop):
    new = bellhop.config.with_suffix(".new")
    new.write_text(bellhop.config.read_text().replace("level: debug", "level: info"))
    os.rename(new, bellhop.config)
    assert "taken: log.level" in reload(bellhop)


def test_a_certificate_behind_links_is_renewed(make_bellhop, tmp_path):
    """As certbot keeps them: live/cert.pem -> ../archive/cert1.pem, then ../archive/cert2.pem."""
    (tmp_path / "archive").mkdir()
    (tmp_path / "live").mkdir()
    papers = Papers(tmp_path / "archive")
    first, second = papers.sign("first"), papers.sign("second")
    links = [tmp_path / "live" / name for name in ("cert.pem", "key.pem")]

    def link(pair):
        for where, made in zip(links, pair):
            where.unlink(missing_ok=True)
            where.symlink_to(pathlib.Path("..") / "archive" / made.name)

    link(first)
    server = make_bellhop(CONFIG + f"tls: {{{{cert: {links[0]}, key: {links[1]}}}}}\n")
    link(second)
    assert "nothing has changed" in reload(server)
    shown = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{server.port}"], input="", text=True,
                           capture_output=True, timeout=30).stdout
    assert "CN = second" in shown, shown


def test_skills_in_a_directory_of_their_own_work(make_bellhop, tmp_path):
    server = make_bellhop(CONFIG + f"skills: {{{{kind: filesystem, dir: {tmp_path / 'skills'}}}}}\n")
    assert Program(server).write("greet").status in (200, 201)
    assert wait_for(lambda: [p for p in (tmp_path / "skills").rglob("*") if p.is_file()])


def test_the_tested_program_is_linked_like_a_release():
    missing = [what for what, there, always in hardened.looks(PROGRAM) if always and not there]
    assert not missing


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
@pytest.mark.parametrize("unit", sorted(p.name for p in (ROOT / "packaging").glob("*.service")))
def test_the_units_leave_little_open(unit):
    """Of ten points of exposure; a fresh unit has 9.6. What is left: the network, Unix sockets, the host's root directory."""
    said = subprocess.run(["systemd-analyze", "security", "--no-pager", "--offline=true", ROOT / "packaging" / unit],
                          capture_output=True, text=True, timeout=60)
    exposure = re.search(r"Overall exposure level .*: ([0-9.]+) ", said.stdout)
    assert exposure and float(exposure.group(1)) <= 1.5, said.stdout + said.stderr
    checked = subprocess.run(["systemd-analyze", "verify", ROOT / "packaging" / unit], capture_output=True, text=True, timeout=60)
    assert "Unknown" not in checked.stderr and "Failed to parse" not in checked.stderr, checked.stderr


@pytest.mark.parametrize("unit", sorted(p.name for p in (ROOT / "packaging").glob("*.service")))
def test_the_units_start_again_however_often_it_takes(unit):
    lines = (ROOT / "packaging" / unit).read_text().splitlines()
    assert "StartLimitIntervalSec=0" in lines[:lines.index("[Service]")] and "Restart=always" in lines
    if unit == "bellhop.service":  # what `node drain` ends with: test_carry.py
        assert "RestartPreventExitStatus=2 76" in lines and "SuccessExitStatus=76" in lines
