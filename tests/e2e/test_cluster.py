"""Three nodes on one PostgreSQL, while things die.

Sixty gateways that remember ids, spread over the nodes, each with a person who writes to it: on the web page of any
node, through Twilio's webhook that hits two nodes at once, through Telegram, which is polled and lets only one ask.
Nothing accepted is lost, every effect happens once, in order, at the right tenant, and never do two poll.

BELLHOP_CLUSTER_SECONDS=600 has the same things happen by chance for so long.
"""
import asyncio
import os
import random
import time
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM

import pytest

from cluster_rig import Cluster


async def kill(cluster, http):
    node = await cluster.wait_serving(http)
    process = node.process
    node.signal(SIGKILL)
    await cluster.wait_serving(http, other_than=process)


def terms(node):
    """How often it has got the lease."""
    return sum("serves: epoch" in line for line in [*node.history, *node.lines])


async def kill_successor(cluster, http):
    """Who serves, and then who takes over, while it starts."""
    node = await cluster.wait_serving(http)
    before = {n.name: terms(n) for n in cluster.nodes}
    node.signal(SIGKILL)

    async def begins():
        return next((n for n in cluster.nodes if n.process is not None and terms(n) > before[n.name]), None)
    successor = await cluster.until(begins, why="nobody takes over", every=0.002)
    process = successor.process
    successor.signal(SIGKILL)
    await cluster.wait_serving(http, other_than=process)


async def kill_another(cluster, http):
    (await cluster.another(http)).signal(SIGKILL)
    await asyncio.sleep(0.5)


async def pause(cluster, http):
    """Longer than its lease: when it goes on, it notices and ends."""
    node = await cluster.wait_serving(http)
    process, starts = node.process, len(node.codes)
    node.signal(SIGSTOP)
    await cluster.wait_serving(http, other_than=process)
    node.signal(SIGCONT)

    async def ended():
        return len(node.codes) > starts
    await cluster.until(ended, why=f"{node.name} goes on")
    assert node.codes[-1] == 75, node.codes


async def pause_another(cluster, http):
    node = await cluster.another(http)
    node.signal(SIGSTOP)
    await asyncio.sleep(cluster.lease_s + 0.5)
    node.signal(SIGCONT)


async def crash_database(cluster, _):
    await asyncio.to_thread(cluster.postgres.crash)
    await asyncio.to_thread(cluster.postgres.start)


async def cut_database(cluster, http):
    (await cluster.wait_serving(http)).database.cut()
    await asyncio.sleep(0.5)


async def deafen_database(cluster, http):
    """For longer than the lease; what the node had said arrives afterwards."""
    node = await cluster.wait_serving(http)
    process = node.process
    node.database.deaf()
    await cluster.wait_serving(http, other_than=process)
    node.database.hear()
    await asyncio.sleep(0.5)


async def cut_trunks(cluster, http):
    (await cluster.wait_serving(http)).trunk.cut()
    await asyncio.sleep(0.5)


async def deafen_trunks(cluster, http):
    """For longer than the lease."""
    node = await cluster.wait_serving(http)
    node.trunk.deaf()
    await asyncio.sleep(cluster.lease_s + 0.5)
    node.trunk.hear()


async def drain(cluster, http):
    node = await cluster.wait_serving(http)
    process = node.process
    node.signal(SIGTERM)
    await cluster.wait_serving(http, other_than=process)


FAULTS = {"kill -9 of who serves": kill, "kill -9 of who serves and of who takes over": kill_successor,
          "kill -9 of another": kill_another,
          "who serves stopped for longer than its lease": pause, "another stopped": pause_another,
          "PostgreSQL crashed": crash_database,
          "line to the database cut": cut_database, "line to the database deaf": deafen_database,
          "trunks cut": cut_trunks, "trunks deaf": deafen_trunks, "SIGTERM": drain}


class Measured:
    def __init__(self):
        self.rows = {}

    async def during(self, name, cluster, http, settle=1.0):
        began = time.monotonic()
        await FAULTS[name](cluster, http)
        await cluster.wait_serving(http)
        await asyncio.sleep(settle)

        async def is_taken():
            return cluster.worst_gap(began) is not None
        await cluster.until(is_taken, why=f"nobody's message is taken after: {name}")
        self.rows.setdefault(name, []).append((cluster.worst_gap(began), cluster.worst_wait(began)))

    def show(self):
        for name, rows in self.rows.items():
            gap, wait = (max(r[k] for r in rows) for k in (0, 1))
            print(f"{name:48} {len(rows):3} times; nobody's taken for {gap:5.2f} s, one waited {wait:5.2f} s")


async def each_once(measured, cluster, http):
    for name in FAULTS:
        await measured.during(name, cluster, http)


async def by_chance(measured, cluster, http):
    end, chance = time.monotonic() + int(os.environ["BELLHOP_CLUSTER_SECONDS"]), random.Random(time.time_ns())
    while time.monotonic() < end:
        await measured.during(chance.choice(list(FAULTS)), cluster, http, settle=chance.uniform(0, 2))


def lived(cluster, during):
    """The promises hold, whatever @during did; what the nodes said is shown if not."""
    try:
        asyncio.run(cluster.run(during))
        print("\ntaken", sum(len(p.taken) for p in cluster.people), "brought again",
              sum(a.repeats for a in cluster.agents), "polls", cluster.telegram.polls)
        cluster.check_promises()
    except (AssertionError, asyncio.TimeoutError):
        print(*(n.words() for n in cluster.nodes), sep="\n---\n")
        raise


@pytest.fixture
def make_cluster():
    made = []

    def make(**more):
        made.append(Cluster(**more))
        return made[-1]

    yield make
    for cluster in made:
        cluster.clean()


def test_nothing_is_lost_doubled_or_out_of_order_while_nodes_and_servers_die(make_cluster):
    cluster = make_cluster(lease_s=3)
    measured = Measured()
    life = by_chance if "BELLHOP_CLUSTER_SECONDS" in os.environ else each_once

    async def during(cluster, http):
        carried = [await cluster.value(http, n, "node_carried_connections") for n in cluster.nodes]
        # each of the others has a third of the gateways; the first has them all
        assert carried[0] >= 40 and min(carried[1:]) >= 20, carried
        await life(measured, cluster, http)

    try:
        lived(cluster, during)
    finally:
        measured.show()
    for name, rows in measured.rows.items():
        assert all(gap is not None and gap < 20 for gap, _ in rows), (name, rows)


def test_a_rolling_restart_loses_nothing_and_nobody_waits_longer_than_three_seconds(make_cluster):
    cluster = make_cluster(lease_s=10, lines=False)

    async def during(cluster, http):
        cluster.began = time.monotonic()
        for node in cluster.nodes:
            process = node.process
            node.signal(SIGTERM)

            async def is_another():
                return node.process is not None and node.process is not process
            await cluster.until(is_another, why=f"{node.name} does not end")
            await cluster.wait_all_ready(http)
            await asyncio.sleep(1)

    lived(cluster, during)
    taken, heard = cluster.worst_wait(cluster.began), cluster.worst_wait(cluster.began, heard=True)
    print(f"waited at most {taken:.2f} s until it was taken, {heard:.2f} s until the agent had it; a start takes "
          f"{cluster.start_s:.2f} s", cluster.who_waited(cluster.began))
    assert all(n.codes and set(n.codes) == {0} for n in cluster.nodes), [n.codes for n in cluster.nodes]
    assert {c for a in cluster.agents for c in a.codes} <= {1012, 1000, None}, [a.codes for a in cluster.agents]
    # With sanitizers on a machine that is busy a start takes long, and there are three.
    most = 3 if "BELLHOP_LONG" in os.environ else 3 + 3 * cluster.start_s
    assert taken < most and heard < most, (taken, heard, cluster.start_s)
