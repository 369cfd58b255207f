"""Pages that ask for their history over and over: reads are bounded, called off in time, and keep nobody waiting."""
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from test_hostile import MIB, SMALL, Raw, is_well, resident

VISITOR = "greedy-visitor-000001"


def fill_history(server, messages, size):
    """The gateway is away, so these also wait in its mailbox."""
    server.add()
    with ThreadPoolExecutor(16) as pool:
        statuses = set(pool.map(lambda n: server.write(f"{n} " + "x" * size, visitor=VISITOR), range(messages)))
    assert statuses == {200}


class Watch(threading.Thread):
    """An innocent person who writes all the time, and the memory of the server."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.stop, self.slowest, self.largest, self.times = server, False, 0, 0, 0
        self.start()

    def run(self):
        while not self.stop:
            began = time.monotonic()
            assert self.server.write("hello", visitor="innocent-visitor-0001") == 200
            self.slowest = max(self.slowest, time.monotonic() - began)
            self.largest = max(self.largest, resident(self.server))
            self.times += 1

    def end(self):
        self.stop = True
        self.join(30)


def attack(server, path, connections, seconds=5):
    """Each connection asks again and again, and nobody reads the answers."""
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nX-Bellhop-Visitor: {VISITOR}\r\n\r\n".encode()
    crowd = [Raw(server) for _ in range(connections)]
    end = time.monotonic() + seconds

    def pour(c):
        while time.monotonic() < end:
            if c.pour(request * 1000, seconds)[1]:
                return

    with ThreadPoolExecutor(connections) as pool:
        list(pool.map(pour, crowd))
    return crowd


def test_streams_that_push_each_other_out_take_no_memory_and_keep_nobody_waiting(make_bellhop):
    server = make_bellhop(env=SMALL)
    fill_history(server, 400, 15000)
    before, quiet = resident(server), Watch(server)
    time.sleep(2)
    quiet.end()
    watch = Watch(server)
    crowd = attack(server, "/chat/lobby/api/events?last=0000000000000001", 8)
    is_well(server)
    watch.end()
    for c in crowd:
        c.s.close()
    grown = watch.largest - before
    assert watch.times > 2
    assert grown < 100 * MIB, f"{grown / MIB:.0f} MiB"
    assert watch.slowest < max(5, 20 * quiet.slowest), f"an innocent message took {watch.slowest:.1f} s"


def test_histories_read_by_forty_connections_stay_within_bounds(make_bellhop):
    server = make_bellhop(env=SMALL)
    fill_history(server, 400, 15000)
    before = resident(server)
    watch = Watch(server)
    crowd = attack(server, "/chat/lobby/api/history?limit=1000", 40)
    is_well(server)
    watch.end()
    for c in crowd:
        c.s.close()
    grown = watch.largest - before
    assert grown < 200 * MIB, f"{grown / MIB:.0f} MiB"
    assert watch.slowest < 5, f"an innocent message took {watch.slowest:.1f} s"
