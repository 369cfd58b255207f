"""The six obligations the relay contract puts on whoever lets agents sleep (section 3.4), one test each, against
the real programs: bellhop serve, bellhop sleeper, bellhop agent."""
import os
import re
import time
from signal import SIGCONT, SIGSTOP, SIGTERM, SIGUSR2

from conftest import PROGRAM, wait_for
from relay import http
from test_agent import history, script  # noqa: F401 - a fixture
from test_sdk import free_port
from test_sleeper import ECHO, agent, children, rig, start_sleeper  # noqa: F401 - fixtures


def stays_awake(sleeper, reason):
    sleeper.warned("stays awake: " + reason)
    time.sleep(0.6)
    assert sleeper.count("asleep") == 0 and sleeper.count("draining") == 0
    assert sleeper.health()["maySleep"] is False
    assert children(sleeper.process.pid), "the process still runs"


def test_1_a_wake_url_is_registered_before_the_instance_can_ever_sleep(rig, bellhop):  # noqa: F811
    server, c, s = rig(register=False)
    stays_awake(s, "no wake URL is registered")
    # One that leads elsewhere is equivalent to none: here, to the connector itself, which answers it.
    server.cli("gateway", "set", c.id, "--wake-url", server.url + "/healthz")
    stays_awake(s, "the wake URL does not lead to this sleeper")
    # So is one that leads nowhere.
    server.cli("gateway", "set", c.id, "--wake-url", f"http://127.0.0.1:{free_port()}/wake")
    stays_awake(s, "the wake URL cannot be reached")
    # And with a good one it sleeps.
    server.cli("gateway", "set", c.id, "--wake-url", s.url + "/wake")
    s.asleep()
    server.write("hello")
    wait_for(lambda: history(server) == ["hello", "echo hello"])


def test_2_it_drains_through_going_idle_and_its_ack_before_it_sleeps(rig, start_sleeper, script):  # noqa: F811
    server, c, s = rig()
    s.asleep()
    s.said("asleep")  # the line comes behind the state
    order = [line for line in s.lines if re.search(r"draining|settling|asleep|agent: left", line)]
    assert order == ["sleeper: draining: idle", "agent: left: the connector keeps new messages",
                     "sleeper: settling: exit status 0", "sleeper: asleep: until a poke arrives"]
    assert server.instance(c.id)["state"] == "asleep" and server.metric("flips_total") >= 1
    # A process that leaves without going_idle is not let go: the connector did not confirm, so it is started again.
    port = free_port()
    server.cli("gateway", "set", c.id, "--wake-url", f"http://127.0.0.1:{port}/")
    s.end()
    rude = start_sleeper(server, c, port, script(f"""
        import subprocess
        p = subprocess.Popen([{str(PROGRAM)!r}, "agent", "--platform", "web=lobby", "--", "cat"],
                             start_new_session=True)  # our SIGTERM is not its SIGTERM
        def leave(*_):
            p.kill()
            p.wait()
            os._exit(0)
        signal.signal(signal.SIGTERM, leave)
        signal.pause()
        """, "rude.py"))
    rude.poke()
    rude.said("settling")
    rude.warned("stays awake: the process exited without telling the connector")
    assert rude.count("asleep") == 0
    rude.said("starting: the connector did not confirm")
    assert rude.end() in (0, 1)


def test_3_the_reconnect_loop_is_alive_before_it_may_sleep(bellhop, start_sleeper, script):  # noqa: F811
    port = free_port()
    c = bellhop.add(wake_url=f"http://127.0.0.1:{port}/wake")
    deaf = start_sleeper(bellhop, c, port, ["sleep", "600"], idle="200ms")
    deaf.said("starting")
    time.sleep(1.5)
    assert deaf.count("awake") == 0 and deaf.count("draining") == 0, "a process that never connects never sleeps"
    assert deaf.health()["state"] == "starting"
    assert deaf.end() == 1, "it was ended by our signal, not by its own choice"
    good = start_sleeper(bellhop, c, port, agent(script(ECHO)), idle="200ms")
    for i in range(1, 4):  # and one that does reconnects after every sleep, and is given what waited
        good.said("asleep", i)
        bellhop.write(f"round {i}")
        wait_for(lambda: history(bellhop)[-1] == f"echo round {i}")


def test_4_suspended_is_not_down(rig):  # noqa: F811
    server, c, s = rig()
    s.asleep()
    assert http("GET", s.url + "/healthz").status == 200
    h = s.health()
    assert h["healthy"] is True and h["state"] == "asleep"
    assert s.process.poll() is None, "the supervisor sees a running service"
    assert server.instance(c.id)["state"] == "asleep", "and the connector says asleep, not away"
    time.sleep(0.5)
    assert s.count("starting") == 1, "being looked at does not wake it"
    assert s.end(SIGTERM) == 0, "nor is ending it a failure"


def test_5_a_poke_may_be_lost_late_or_repeated(make_bellhop, start_sleeper, script):  # noqa: F811
    server = make_bellhop()
    port = free_port()
    c = server.add(wake_url=f"http://127.0.0.1:{port}/wake")
    s = start_sleeper(server, c, port, agent(script(ECHO)), "--schedule", "every 1h")
    s.asleep()
    # Lost: nobody listens while it happens; whoever comes back finds what waits.
    os.kill(s.process.pid, SIGSTOP)
    server.write("while deaf")
    time.sleep(0.5)
    os.kill(s.process.pid, SIGCONT)
    wait_for(lambda: history(server)[-1] == "echo while deaf")
    s.asleep()
    # Repeated: ten pokes are one wake, and with nothing waiting it goes back to sleep.
    wakes = s.health()["wakes"]
    for _ in range(10):
        assert s.poke() == 200
    assert s.health()["wakes"] == wakes + 1
    s.asleep()
    # Never: a second way to wake exists, and what waits is drained by whichever connection comes next.
    server.cli("gateway", "set", c.id, "--wake-url", f"http://127.0.0.1:{free_port()}/gone")
    server.write("no poke reaches it")
    time.sleep(0.5)
    assert s.health()["state"] == "asleep" and history(server)[-1] == "no poke reaches it"
    assert s.poke() == 200  # the scheduled job's stand-in
    wait_for(lambda: history(server)[-1] == "echo no poke reaches it")
    assert len(history(server)) == 4, "nothing twice"


def test_6_it_sleeps_only_when_the_connector_saw_it_idle(rig, script):  # noqa: F811
    server, c, s = rig(idle="2500ms", program=script("""
        for line in sys.stdin:
            time.sleep(6)
            print("thought about it", flush=True)
        """))
    s.said("awake")
    server.write("think")
    end = time.monotonic() + 5.5
    while time.monotonic() < end:  # a turn under way shows at the connector, so it is not idle
        assert s.health()["state"] in ("awake", "starting", "checking")
        time.sleep(0.05)
    wait_for(lambda: history(server)[-1] == "thought about it")
    assert s.count("draining") == 0
    s.asleep()
    # Asked to hurry while a delivery is unacknowledged, it waits for that delivery.
    s.poke()
    s.said("awake", 2)
    server.write("think again")
    s.process.send_signal(SIGUSR2)
    wait_for(lambda: history(server).count("thought about it") == 2, 30)
    assert len(history(server)) == 4
