# SPDX-License-Identifier: Apache-2.0
"""Daemons that read each other's memory over real verbs: the bytes, who moved them, and what happens when it fails.

Nodes a and b have RDMA, node c (transport=tcp) has not. Bounds are generous: the device is emulated, as is the machine.
"""
import contextlib
import os
import time

import pytest

from harness import env
from harness.cluster import in_threads, timed, write_key
from harness.cluster_lab import NO_HOLDER, until_right
from harness.content import get, pattern, put, wait_for
from nodes import MIB, HalfRead, large, put_seen

KIB = env.KIB
PULL_BYTES = 256 * KIB  # smaller objects come with the stream
N_MIB = 48              # of an object that something can happen in the middle of
DRAM_MIB = 192          # of each of the shared nodes
GRANT_SECONDS = 10

pytestmark = pytest.mark.mooncake


def remove(name, node):
    """Gives the memory back, where it has not been taken already."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(node.at(name))


# ---- who moves the bytes ----

@pytest.mark.parametrize("size", [1, 100 * KIB, PULL_BYTES, MIB + 1, 8 * MIB, 64 * MIB])
def test_bytes_come_out_of_the_holders_memory(nodes, size):
    """From 256 KiB on no thread of the holder sends one of them; smaller ones it sends itself."""
    if size > 8 * MIB:
        env.require_long()
    a, b, _ = nodes
    name, data = f"size.{size}", pattern(size, size)
    put_seen(name, data, a, b)
    pulled, served = b.pulled(), a.served()
    assert get(b.at(name)) == data
    is_pulled = size >= PULL_BYTES
    assert b.pulled() - pulled == (size if is_pulled else 0)
    assert a.served() - served == (0 if is_pulled else size)
    remove(name, a)


def test_auto_is_rdma_where_there_is_a_device(nodes):
    """Both ends say so, of themselves and of each other."""
    a, b, c = nodes
    put_seen("auto", pattern(1, MIB), a, b)
    get(b.at("auto"))
    assert [n.cluster()["transport"] for n in nodes] == ["rdma", "rdma", "tcp"]
    assert b.peer("a")["rdma"] and not b.peer("a")["pull_failures"]
    remove("auto", a)


def test_a_node_without_rdma_reads_and_is_read(nodes):
    """Between transport=tcp and transport=auto bytes go over the stream, both ways."""
    a, b, c = nodes
    for frm, to in ((a, c), (c, a)):
        name, data = f"{frm.name}{to.name}", pattern(2, 2 * MIB + 5)
        put_seen(name, data, frm, to)
        pulled, served = to.pulled(), frm.served()
        assert get(to.at(name)) == data
        assert to.pulled() == pulled and frm.served() - served == len(data)
        remove(name, frm)


def test_what_was_pulled_is_pulled_from_there(new_nodes):
    """The second reader has it out of the memory of the first."""
    env.require_long()
    a, b, c = cluster = new_nodes(3, dram="64M", transport="rdma").start()
    data = pattern(3, 8 * MIB)
    put_seen("f", data, a, b, c)
    assert get(b.at("f")) == data
    a.kill9()
    assert get(c.at("f")) == data
    assert c.pulled() == len(data) and b.served() == 0
    cluster.expect_errors("peer|directory|fetch")


@pytest.mark.limit(90)
def test_frames_that_are_recycled_are_not_registered_again(new_nodes):
    """Written, read, and dropped for others: after the first rounds the number of registrations stands still."""
    n_rounds = 10 if env.LONG else 3
    n_files = 8 * MIB // PULL_BYTES  # as many as each node has memory for
    a, b = new_nodes(2, dram="8M").start()
    counts = []
    for r in range(n_rounds):
        for k in range(n_files):
            name, data = f"r{r}.{k}", pattern(r * 1000 + k, PULL_BYTES)
            put_seen(name, data, a, b)
            assert get(b.at(name)) == data
        counts.append((a.registrations(), b.registrations()))
    print("registrations after each round:", counts)
    assert counts[-1] == counts[-2] and b.pulled() == n_rounds * n_files * PULL_BYTES
    assert all(n.tier()["registered"]["failures"] == 0 for n in (a, b))


@pytest.mark.limit(60 + 240 * env.LONG)
def test_many_grants_at_once(nodes, new_nodes):
    """Objects of 256 KiB, read by several threads: all are right, and all but a few come by RDMA."""
    n, n_threads = (1000, 16) if env.LONG else (40, 4)
    a, b = new_nodes(2, dram="320M").start() if env.LONG else nodes[:2]
    files = [pattern(k, PULL_BYTES) for k in range(n)]
    for k, data in enumerate(files):
        put(a.at(f"g{k}"), data)
    wait_for(lambda: sum(name[0] == "g" for name in os.listdir(b.path)) >= n, env.scaled(10), "all names")
    pulled, served = b.pulled(), a.served()

    def read(t):
        for k in range(t, n, n_threads):
            until_right(f"g{k}", b, f"g{k}", files[k])  # a directory that answers late is a miss

    in_threads(n_threads, read)
    print(b.peer("a"))
    pulled, served = b.pulled() - pulled, a.served() - served
    assert pulled + served >= n * PULL_BYTES and pulled > 0.9 * n * PULL_BYTES
    for k in range(n):
        os.unlink(a.at(f"g{k}"))


# ---- the holder ----

def test_a_killed_holder_is_replaced_in_the_middle(lab):
    """The bytes that have not come are read from a node without RDMA."""
    env.require_long()
    a, b, c = lab
    data = large(4, N_MIB)
    put_seen("f", data, c, a, b)
    assert get(a.at("f")) == data
    before = b.pulled()
    with HalfRead(b, "f", data) as half:
        a.kill9()
        n_right, n = half.finish(NO_HOLDER)
    assert n_right == n and 0 < b.pulled() - before < len(data)
    remove("f", b)


def test_the_only_holder_is_killed_and_comes_back(lab):
    """What has not come fails in bounded time; after the holder's restart all of it is right, and by RDMA."""
    a, b, _ = lab
    data = large(5, N_MIB)
    put_seen("f", data, a, b)
    with HalfRead(b, "f", data) as half:
        a.same_port().kill9()
        n_right, n = half.finish(NO_HOLDER)
    assert n_right < n
    pulled = b.pulled()
    a.remount()
    until_right("after the holder's restart", b, "f", data)
    assert b.pulled() > pulled
    remove("f", a)


def test_the_holder_stops_and_goes_on(lab):
    """A device reads from a process that stands still, but a peer that does not answer is soon given up."""
    a, b, _ = lab
    data = large(6, N_MIB)
    put_seen("f", data, a, b)
    with HalfRead(b, "f", data) as half:
        a.pause()
        half.finish(NO_HOLDER)
        a.resume()
    until_right("after the holder went on", b, "f", data)
    remove("f", a)


@pytest.mark.limit(180)
def test_the_holder_restarts_while_its_objects_are_read(lab):
    """Over and over: each time there is other memory behind its keys."""
    env.require_long()
    a, b, _ = lab
    n_turns, n_at_once = 5, 3
    a.same_port()
    for turn in range(n_turns):
        files = {f"f{turn}.{k}": large(100 * turn + k, 20) for k in range(n_at_once)}
        for name, data in files.items():
            put_seen(name, data, a, b)
        with contextlib.ExitStack() as stack:
            halves = [stack.enter_context(HalfRead(b, name, data)) for name, data in files.items()]
            a.kill9()
            a.remount()
            for half in halves:
                half.finish(NO_HOLDER)
        for name, data in files.items():
            until_right(name, b, name, data)
            remove(name, a)


# ---- the reader ----

def push_out(node, n_mib):
    """Writes so much on a node that what nobody holds there is dropped, and its frames get other bytes."""
    for k in range(0, n_mib, 16):
        put(node.at(f"push{k}"), large(1000 + k, 16))
    for k in range(0, n_mib, 16):
        remove(f"push{k}", node)  # the first ones may have been dropped for the last


def test_objects_change_and_go_under_a_reader(lab):
    """Overwritten where they come from, and that memory gets other bytes: the reader has the old ones, or an error."""
    a, b, _ = lab
    for k in range(6 if env.LONG else 1):
        old, new = large(20 + k, N_MIB), large(40 + k, N_MIB)
        put_seen("f", old, a, b)
        with HalfRead(b, "f", old) as half:
            if k % 2:
                os.unlink(a.at("f"))
            else:
                put(a.at("f"), new)
            push_out(a, DRAM_MIB if env.LONG else N_MIB)
            half.finish(NO_HOLDER)
        put(a.at("f"), new)  # which may have been pushed out as well
        until_right("the new version", b, "f", new)
        remove("f", a)


def test_the_reader_stops_and_goes_on(lab):
    """For longer than a grant lives, while what it was granted goes: the old bytes, or an error."""
    env.require_long()
    a, b, _ = lab
    old, new = large(7, N_MIB), large(8, N_MIB)
    put_seen("f", old, a, b)
    with HalfRead(b, "f", old) as half:
        b.pause()
        put(a.at("f"), new)
        time.sleep(GRANT_SECONDS + 2)
        push_out(a, DRAM_MIB)
        b.resume()
        half.finish(2 * NO_HOLDER)
    put(a.at("f"), new)  # which was pushed out as well
    until_right("after the reader went on", b, "f", new)
    remove("f", a)


# ---- what a node may not do ----

def test_a_small_limit_of_locked_memory(nodes, new_nodes):
    """64 KiB and no CAP_IPC_LOCK: the node works, the log names the limit, bytes go over the stream, both ways."""
    env.require_tool("prlimit", "setpriv")
    a = nodes[0]
    cluster = new_nodes(0, server=nodes.server, dram="32M")
    poor = cluster.add("poor")
    poor.prefix = ["prlimit", "--memlock=65536:65536", "setpriv", "--bounding-set=-ipc_lock"]
    poor.expect_errors("cannot register .* bytes")
    cluster.start()
    for frm, to in ((a, poor), (poor, a)):
        name, data = f"{frm.name}{to.name}", pattern(9, 2 * MIB)
        put_seen(name, data, frm, to)
        pulled, served = to.pulled(), frm.served()
        assert get(to.at(name)) == data
        assert to.pulled() == pulled and frm.served() - served == len(data)
        remove(name, frm)
    registered = poor.tier()["registered"]
    print(registered)
    assert registered["registrations"] == 0 and registered["failures"] and registered["memlock_bytes"] == 65536
    assert "memlock 64 KiB" in poor.log_tail(100)


def test_a_node_with_another_key_pulls_nothing(nodes, new_nodes, tmp_path):
    """It is refused over the stream, and so has no key of anybody's memory."""
    a = nodes[0]
    nodes.expect_errors("key|peer|HELLO|hello|fetch")
    cluster = new_nodes(0, server=nodes.server, dram="32M", key=write_key(str(tmp_path / "other")))
    stranger = cluster.add("stranger")
    stranger.expect_errors("key|peer|HELLO|hello|fetch")
    cluster.start()
    put_seen("f", pattern(10, MIB), a, stranger)
    took, got = timed(get, stranger.at("f"))
    print(f"refused after {took:.2f} s: {got}")
    assert isinstance(got, OSError) and took < env.scaled(10)
    assert stranger.pulled() == 0 and any("key" in p["reason"] for p in stranger.cluster()["peers"])
    remove("f", a)


# ---- the device ----

def test_the_device_goes_in_the_middle(lab, device):
    """The rest comes over the stream, right and soon; with a device again and daemons anew it is RDMA again."""
    a, b, _ = lab
    data = large(11, N_MIB)
    put_seen("f", data, a, b)
    before = b.pulled()
    with HalfRead(b, "f", data) as half:
        device.remove()
        n_right, n = half.finish(NO_HOLDER)
    assert n_right == n and 0 < b.pulled() - before < len(data)
    put_seen("g", data[:MIB], a, b)
    before = b.pulled()
    assert get(b.at("g")) == data[:MIB] and b.pulled() == before
    assert not b.peer("a")["rdma"]
    for node in lab:
        node.stop()
    device.come_back()
    for node in lab:
        node.start()
    lab.wait_formed()
    put_seen("h", data[:MIB], a, b)
    assert get(b.at("h")) == data[:MIB] and b.pulled() == MIB
    for name in "fgh":
        remove(name, a)
