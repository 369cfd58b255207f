"""The gateway library as a program that answers everything and dials again at once: for `bellhop conformance --listen`. PROBE names the probe."""
import os
import signal
import threading

from probe import Probe

ended = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: ended.set())
probe = Probe(os.environ["PROBE"], *(os.environ["GATEWAY_RELAY_" + name] for name in ("URL", "ID", "SECRET")), backoff_min_ms=20, backoff_max_ms=40)
probe.do("mode", "reply")
probe.do("open")
while not ended.wait(0.05):
    pass
probe.do("close")
raise SystemExit(probe.quit())
