# SPDX-License-Identifier: Apache-2.0
"""The network between nodes fails, or what comes over it is wrong; clocks differ. Reads become misses or errors in
bounded time, never wrong bytes. Each test prints the time to the first correct answer.
"""
import os
import random
import socket
import time

import pytest

from harness import clock, env
from harness.cluster import HOST, seconds_of, seconds_until, timed
from harness.cluster_lab import (BACK, GONE, NEXT_HOLDER, NO_HOLDER, read_fails, read_right, spread_to,
                                 until_right)
from harness.content import exists, flip, get, pattern, peek, put
from harness.netspace import NetCluster
from harness.relay import Relay

MIB = env.MIB
pytestmark = [pytest.mark.mooncake, pytest.mark.one_mode, pytest.mark.slow_asan]


# ---- the network fails ----

def test_delay(new_cluster):
    """20 ms each way on every path to a node: bytes are right, and come within seconds."""
    relays = [Relay(HOST) for _ in range(3)]
    try:
        c = new_cluster(3, dram="64M")
        for n, r in zip(c, relays):
            n.behind(r)
            r.set(delay=0.02)
        c.start()
        for i in range(3):
            name, data = f"f{i}", pattern(i, 5 * MIB)
            put(c[i].at(name), data)
            for k in (1, 2):
                reader = c[(i + k) % 3]
                seconds_until(lambda: exists(reader.at(name)), 5, name)
                read_right("5 MiB with 20 ms each way", reader, name, data, 10)
        took = seconds_of(put, c[2].at("f0"), b"new")
        print(f"overwrite with 20 ms each way: {took * 1000:.0f} ms")
        assert [get(n.at("f0")) for n in c] == [b"new"] * 3
    finally:
        for r in relays:
            r.destroy()


def test_packets_are_lost(new_cluster):
    """2 % of all packets of one node: slower, now and then a miss, and right."""
    c = new_cluster(3, kind=NetCluster, dram="64M").start()
    c.net.lose(1, 0.02)
    assert any(0 < c.net.loss_seen(1, 2, 400) < 0.2 for _ in range(5))
    for i in range(8):
        put(c[i % 3].at(f"f{i}"), pattern(i, MIB))
        for n in c:
            until_right(f"1 MiB of {c[i % 3].name} on {n.name}", n, f"f{i}", pattern(i, MIB))


def test_packets_are_reordered_and_late(new_cluster):
    """netem: 10 ms, a quarter of the packets overtaken."""
    c = new_cluster(3, kind=NetCluster, dram="64M").start()
    for i in (1, 2, 3):
        c.net.netem(i, "delay", "10ms", "3ms", "reorder", "25%", "50%")
    for i in range(6):
        put(c[i % 3].at(f"f{i}"), pattern(i, MIB))
        for n in c:
            seconds_until(lambda n=n: exists(n.at(f"f{i}")), 10, f"f{i} on {n.name}")
            read_right(f"1 MiB of {c[i % 3].name} on {n.name}", n, f"f{i}", pattern(i, MIB), BACK)


@pytest.mark.limit(120)
@pytest.mark.parametrize("is_half_open", [False, True], ids=["cut", "half-open"])
def test_the_line_between_two_of_three_nodes(new_cluster, is_half_open):
    """Cut, or answers alone are lost: what the third holds comes from there, what it does not hold is an error in
    bounded time, changes return; when the line is back all is right."""
    c = new_cluster(3, kind=NetCluster, dram="64M").start()
    c.expect_errors("peer|directory|fetch|remote")
    spread_to(c, "shared", pattern(1, MIB), c[0], c[2])
    spread_to(c, "own", pattern(2, MIB), c[0])
    spread_to(c, "warm", pattern(3, MIB), c[0], c[1])  # connections are there
    (c.net.cut_one_way if is_half_open else c.net.cut)(1, 2)
    read_right("from the third", c[1], "shared", pattern(1, MIB), NEXT_HOLDER)
    read_fails("what only the far one holds", c[1], "own", NO_HOLDER)
    took = seconds_of(put, c[1].at("warm"), b"new")
    print(f"overwrite past the cut: {took:.2f} s")
    assert took < env.scaled(NO_HOLDER) and get(c[2].at("warm")) == b"new"
    c.net.join(1, 2)
    until_right("when the line is back", c[1], "own", pattern(2, MIB))
    seconds_until(lambda: peek(c[0].at("warm")) == b"new", BACK, "the new version on who was cut off")


@pytest.mark.limit(120)
def test_changes_past_a_cut_line(new_cluster):
    """Two nodes lose each other and keep the directory: what one changes is gone on the other when the change returns,
    from the first one on, while nobody has found the cut yet."""
    c = new_cluster(2, kind=NetCluster, dram="64M").start()
    c.expect_errors("peer|directory|fetch|remote")
    a, b = c
    for i in range(12):
        spread_to(c, f"f{i}", pattern(i, 10000), a, b)
    c.net.cut(1, 2)
    times = []
    for i in range(12):
        times.append(seconds_of(os.unlink, b.at(f"f{i}")) if i % 2 else seconds_of(put, b.at(f"f{i}"), b"new"))
        assert peek(a.at(f"f{i}")) is None, f"f{i}: who is cut off has it in {times[-1]:.2f} s"
    print("changes past a cut line, ms:", [round(t * 1000, 1) for t in times])
    assert times[0] < env.scaled(4) and sorted(times)[6] < env.scaled(0.5)
    assert a.cluster()["directory"]["letters"] >= 12
    c.net.join(1, 2)
    until_right("when the line is back", a, "f0", b"new")
    assert all(peek(a.at(f"f{i}")) == (None if i % 2 else b"new") for i in range(12))


@pytest.mark.limit(120)
def test_old_bytes_never_return(new_cluster):
    """A holder is cut off from everybody; meanwhile one file is removed, one overwritten, and the directory is wiped.
    It comes back with its old copies: they are nowhere to be read, now and after it restarted."""
    c = new_cluster(3, kind=NetCluster, dram="64M").start()
    c.expect_errors("peer|directory|fetch|remote")
    a, b, third = c
    for name in ("removed", "replaced"):
        spread_to(c, name, b"old" * 1000, a, b, third)
    c.net.unplug(2)
    took = seconds_of(os.unlink, a.at("removed"))
    print(f"unlink past a holder that is cut off: {took:.2f} s")
    assert took < env.scaled(NO_HOLDER)
    took = seconds_of(put, third.at("replaced"), b"new" * 1000)
    print(f"overwrite past it: {took:.2f} s")
    assert took < env.scaled(NO_HOLDER)
    assert peek(a.at("removed")) is peek(third.at("removed")) is None and get(a.at("replaced")) == b"new" * 1000
    c.server.command("FLUSHALL")
    c.net.plug(2)

    def check(n):
        assert peek(n.at("removed")) is None, f"on {n.name} the removed file is back"
        assert peek(n.at("replaced")) in (None, b"new" * 1000), f"on {n.name} old bytes are back"

    def is_settled():
        check(a)
        check(third)
        return c.is_formed() and peek(b.at("removed")) is None and peek(b.at("replaced")) == b"new" * 1000

    print(f"right on who was cut off after {seconds_until(is_settled, 30, 'the new state on all'):.2f} s")
    b.same_port().kill9()
    b.remount()
    c.wait_formed()
    for _ in range(20):
        for n in c:
            check(n)
        time.sleep(0.05)
    assert all(get(n.at("replaced")) == b"new" * 1000 for n in c)


# ---- bytes go wrong ----

def frame_of(node, size):
    """Path of the frame of the only object of that size."""
    found = [os.path.join(folder, f) for where in node.dram_mounts() for folder, _, files in os.walk(where)
             for f in files if os.path.getsize(os.path.join(folder, f)) == size]
    assert len(found) == 1, found
    return found[0]


def test_a_holder_whose_memory_went_bad(lab, cdir):
    """A bit of a frame is flipped: no other node gets these bytes; with a second holder it gets the right ones."""
    a, b, c = lab
    size = 3 * MIB + 4711
    spread_to(lab, f"{cdir}/f", pattern(1, size), a, c)
    spread_to(lab, f"{cdir}/g", pattern(2, size + 1), a)
    lab.expect_errors("checksum|crc|corrupt|wrong")
    flip(frame_of(a, size), 2 * MIB + 5)
    flip(frame_of(a, size + 1), 2 * MIB + 5)
    read_right("from the good holder", b, f"{cdir}/f", pattern(1, size), NEXT_HOLDER)
    took, got = timed(get, b.at(cdir, "g"))
    print(f"without a good holder: {took * 1000:.1f} ms, {got if isinstance(got, OSError) else 'bytes'}")
    assert isinstance(got, OSError) and got.errno in GONE


@pytest.mark.limit(90)
def test_a_line_that_flips_bits(new_cluster, relay):
    """One bit in a megabyte from one of two holders, lengths and headers among them: every byte that a reader gets is
    right, and with a good line it is as before."""
    c = new_cluster(3, dram="128M")
    c[0].behind(relay)
    c.start().expect_errors(".")
    files = {f"f{i}": pattern(i, 6 * MIB) for i in range(8)}
    for name, data in files.items():
        spread_to(c, name, data, *((c[0], c[2]) if name < "f4" else (c[0],)))
    relay.set(spoil=MIB)
    times = []
    for name, data in files.items():
        took, got = timed(get, c[1].at(name))
        times.append(took)
        assert got == data or isinstance(got, OSError) and got.errno in GONE, f"{name}: wrong bytes"
        assert name >= "f4" or got == data, f"{name}: {got} with a second holder"
    print("over a bad line, ms:", [round(t * 1000) for t in times])
    assert max(times) < env.scaled(NO_HOLDER)
    relay.set(spoil=0)
    put(c[0].at("good"), pattern(9, 6 * MIB))
    until_right("over a good line", c[1], "good", pattern(9, 6 * MIB))
    for name, data in files.items():
        until_right(name, c[1], name, data)


def test_a_line_that_stalls(new_cluster, relay):
    """Everything stays connected and nothing passes: the other holder serves; later the line is used again."""
    c = new_cluster(3, dram="64M")
    c[0].behind(relay)
    c.start().expect_errors("peer|directory|fetch|remote")
    spread_to(c, "both", pattern(1, 2 * MIB), c[0], c[2])
    spread_to(c, "own", pattern(2, 2 * MIB), c[0])
    spread_to(c, "warm", pattern(3, MIB), c[0], c[1])
    relay.set(stalled=True)
    read_right("from the other holder", c[1], "both", pattern(1, 2 * MIB), NEXT_HOLDER)
    read_fails("over a stalled line", c[1], "own", NO_HOLDER)
    assert c[1].peer("a")["state"] in ("down", "probing") and c[1].peer("a")["reason"]
    relay.set(stalled=False)
    until_right("when it passes again", c[1], "own", pattern(2, 2 * MIB))


def test_strangers_at_the_peer_port(lab, cdir):
    """Noise, lengths that lie, requests of another protocol, and connections that say nothing: the node closes them,
    takes no memory for them, and serves its peers meanwhile."""
    a, b, _ = lab
    chance = random.Random(1)
    texts = [b"", b"\0", b"GET / HTTP/1.1\r\n\r\n", b"*1\r\n$4\r\nPING\r\n", b"\xff" * 4096, b"\0" * 100000,
             b"MCFS" + b"\xff" * 60] + [chance.randbytes(chance.choice((3, 8, 64, 5000, 200000))) for _ in range(40)]
    host, port = a.address.rsplit(":", 1)
    idle = []
    before = resident_bytes(a)
    for i, text in enumerate(texts):
        s = socket.create_connection((host.strip("[]"), int(port)), timeout=env.scaled(5))
        idle.append(s)
        try:
            s.sendall(text)
        except OSError:
            pass  # it has closed already
        if i % 8 == 0:
            put(a.at(cdir, f"f{i}"), pattern(i, 100000))
            until_right("a peer's read meanwhile", b, f"{cdir}/f{i}", pattern(i, 100000), 5)

    def are_closed():
        for s in list(idle):
            s.setblocking(False)
            try:
                while s.recv(65536):
                    pass
                s.close()
                idle.remove(s)
            except BlockingIOError:
                pass
            except OSError:
                s.close()
                idle.remove(s)
        return not idle

    print(f"all closed after {seconds_until(are_closed, 20, 'strangers are shown out'):.1f} s")
    assert resident_bytes(a) < before + 64 * MIB


def resident_bytes(node):
    """Memory of its daemon, frames left out."""
    with open(f"/proc/{node.pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("RssAnon")) * 1024


# ---- clocks ----

@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_is_an_hour_wrong(new_cluster, tmp_path, hours):
    """Every change wins over what was there before it, whichever node makes it; leases hold."""
    c = new_cluster(2, dram="64M")
    odd = c.add("odd")
    odd.prefix = clock.skewed(str(tmp_path), hours * 3600)
    c.start()
    for i in range(12):
        put(c[i % 3].at("f"), pattern(i, 1000))
        for n in c:
            seconds_until(lambda n=n: peek(n.at("f")) == pattern(i, 1000), 2, f"round {i} on {n.name}")
    for i in range(9):
        put(c[i % 3].at(f"g{i}"), b"x")
        for n in c:
            seconds_until(lambda n=n: exists(n.at(f"g{i}")), 5, f"g{i}")
        os.unlink(c[i // 3].at(f"g{i}"))
        assert [peek(n.at(f"g{i}")) for n in c] == [None] * 3
    time.sleep(env.scaled(1))
    assert c.is_formed()
