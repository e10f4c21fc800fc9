# SPDX-License-Identifier: Apache-2.0
"""Bytes that lie on another node are read as if they lay here: whole, right, and fetched once."""
import errno
import hashlib
import json
import mmap
import os
import random
import shutil
import signal
import subprocess
import time

import pytest

from harness import env, session as fp
from harness.client import Client
from harness.cluster import HOST, in_threads, seconds_of, seconds_until, timed
from harness.content import exists, get, pattern, put, wait_for, xattr
from harness.ctl import check_ctl, ctl_json
from harness.progs import check_prog
from harness.relay import Relay
from harness.session_lab import fresh_name
from test_replay import read_trace, real_trace, small_trace, unbounded, write_trace

MIB = env.MIB
pytestmark = [pytest.mark.mooncake, pytest.mark.options(dram="640M"), pytest.mark.slow_asan]


def put_seen(cluster, name, data, i=0):
    """Writes name on node i and waits until all see it."""
    put(cluster[i].at(name), data)
    for n in cluster:
        seconds_until(lambda n=n: exists(n.at(name)), 5, f"{name} on {n.name}")


def remove(cluster, *names):
    """Gives the memory back."""
    for name in names:
        os.unlink(cluster[0].at(name))


def first_difference(got, data):
    """Where two byte strings of megabytes differ, in words; '' where they do not."""
    if got == data:
        return ""
    if isinstance(got, OSError):
        return str(got)
    if len(got) != len(data):
        return f"{len(got)} bytes instead of {len(data)}"
    return f"byte {next(i for i in range(len(data)) if got[i] != data[i])} is wrong"


# ---- sizes ----

@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, MIB - 1, MIB, MIB + 1, 7 * MIB + 3, 64 * MIB])
def test_bytes_written_on_one_node_are_read_on_all(cluster, cdir, size):
    """Read twice on each: from the holder, then from here. Then what was read serves a third node."""
    name, data = f"{cdir}/f", pattern(size, size)
    put_seen(cluster, name, data)
    for n in list(cluster)[1:]:
        cold, got = timed(get, n.at(name))
        assert not first_difference(got, data)
        warm, got = timed(get, n.at(name))
        assert not first_difference(got, data)
        print(f"{size} bytes on {n.name}: {cold * 1000:.1f} ms, then {warm * 1000:.1f} ms")
    remove(cluster, name)


@pytest.mark.limit(120)
def test_ranges_of_a_quarter_gigabyte_while_it_is_fetched(cluster, cdir):
    """Four threads read 200 ranges at random from the moment of the open, a fifth from front to back."""
    name, size = f"{cdir}/f", 256 * MIB
    data = b"".join(pattern(k, 64 * MIB) for k in range(4))
    put_seen(cluster, name, data)
    b = cluster[1]
    fd = os.open(b.at(name), os.O_RDONLY)
    times = []

    def read(i):
        if i == 4:
            began = time.monotonic()
            for at in range(0, size, 8 * MIB):
                assert os.pread(fd, 8 * MIB, at) == data[at:at + 8 * MIB], f"at {at}"
            print(f"front to back: {size / MIB / (time.monotonic() - began):.0f} MiB/s")
            return
        chance = random.Random(i)
        for _ in range(50):
            at, n = chance.randrange(size), chance.choice((1, 4096, 65536, 3 * MIB))
            took, got = timed(os.pread, fd, n, at)
            assert got == data[at:at + n], f"range {at}, {n}"
            times.append(took)

    try:
        in_threads(5, read)
        print(f"ranges: longest {max(times) * 1000:.0f} ms, first {times[0] * 1000:.1f} ms")
        assert os.pread(fd, 10, size - 5) == data[-5:] and os.pread(fd, 10, size) == b""
    finally:
        os.close(fd)
    remove(cluster, name)


def test_holes_and_unwritten_ends_arrive_as_zeros(cluster, cdir):
    """A file with a hole and a tail that was never written."""
    name = f"{cdir}/f"
    fd = os.open(cluster[0].at(name), os.O_WRONLY | os.O_CREAT)
    os.pwrite(fd, b"x" * 1000, 3 * MIB + 17)
    os.ftruncate(fd, 5 * MIB + 1)
    os.close(fd)
    data = bytes(3 * MIB + 17) + b"x" * 1000
    data += bytes(5 * MIB + 1 - len(data))
    for n in cluster:
        seconds_until(lambda n=n: exists(n.at(name)), 5, name)
        assert not first_difference(get(n.at(name)), data)


# ---- ways to read ----

def test_mapped_reads(cluster, cdir):
    """A mapping of a file that lies elsewhere: pages in any order, by a program that maps, closes, then reads too."""
    name, data = f"{cdir}/f", pattern(1, 20 * MIB + 123)
    put_seen(cluster, name, data)
    for n in list(cluster)[1:]:
        with open(n.at(name), "rb") as f:
            m = mmap.mmap(f.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)
        for at in (len(data) - 1, 11 * MIB, 0, 5 * MIB + 4095):
            assert m[at] == data[at]
        assert not first_difference(m[:], data)
        m.close()


def test_direct_io_reads(cluster, cdir):
    """O_DIRECT in whole blocks, the last one short."""
    name, data = f"{cdir}/f", pattern(1, 3 * MIB + 1000)
    put_seen(cluster, name, data)
    fd = os.open(cluster[1].at(name), os.O_RDONLY | os.O_DIRECT)
    buffer = mmap.mmap(-1, MIB)
    try:
        for at in (2 * MIB, 0, MIB, 3 * MIB):
            n = os.preadv(fd, [buffer], at)
            assert n == min(MIB, len(data) - at) and buffer[:n] == data[at:at + n]
    finally:
        os.close(fd)
        buffer.close()


def test_programs_of_users(cluster, cdir):
    """cp, cmp, dd, sha256sum and an executable, on a node without a copy."""
    a, b, c = cluster
    data = pattern(1, 9 * MIB + 1)
    put_seen(cluster, f"{cdir}/f", data)
    shutil.copy2("/bin/true", a.at(cdir, "true"))
    seconds_until(lambda: exists(c.at(cdir, "true")), 5, "true")
    subprocess.run([c.at(cdir, "true")], check=True, timeout=env.scaled(20))
    subprocess.run(["cp", b.at(cdir, "f"), b.at(cdir, "g")], check=True, timeout=env.scaled(20))
    seconds_until(lambda: exists(c.at(cdir, "g")), 5, "g")
    subprocess.run(["cmp", c.at(cdir, "g"), a.at(cdir, "f")], check=True, timeout=env.scaled(20))
    out = subprocess.run(["dd", f"if={c.at(cdir, 'f')}", "bs=1000003", "skip=3", "status=none"], check=True,
                         capture_output=True, timeout=env.scaled(20)).stdout
    assert out == data[3 * 1000003:]


def test_fio_verify_across_nodes(cluster, cdir):
    """Written by fio on one node, verified by fio on another."""
    env.require_tool("fio")
    job = ["fio", "--name=f", "--filesize=48m", "--bs=64k", "--verify=crc32c", "--ioengine=psync", "--end_fsync=0",
           "--output-format=terse", "--verify_fatal=1"]
    for n, more in ((cluster[0], ["--rw=write", "--do_verify=0"]), (cluster[1], ["--rw=read"]),
                    (cluster[2], ["--rw=randread", "--norandommap=0"])):
        if n is not cluster[0]:
            seconds_until(lambda n=n: exists(n.at(cdir, "f")), 5, "f")
        done = subprocess.run([*job, f"--filename={n.at(cdir, 'f')}", *more], capture_output=True, text=True,
                              cwd="/tmp", timeout=env.scaled(50))
        assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-1000:]


def test_many_small_files(cluster, cdir):
    """1,000 blocks of 4 KiB of one node, read on the others by four threads at once."""
    count = 1000
    for i in range(count):
        put(cluster[0].at(cdir, f"b{i}"), pattern(i, 4096))
    for n in list(cluster)[1:]:
        wait_for(lambda n=n: len(os.listdir(n.at(cdir))) == count, env.scaled(5), f"all names on {n.name}")

        def read(t, n=n):
            for i in range(t, count, 4):
                assert get(n.at(cdir, f"b{i}")) == pattern(i, 4096), f"b{i} on {n.name}"

        took = seconds_of(in_threads, 4, read)
        print(f"{count} remote files of 4 KiB on {n.name}: {took / count * 1e6:.0f} us each")


def test_a_session_reads_and_looks_up_what_lies_elsewhere(cluster, cdir):
    """LOOKUP knows size and chain of remote names, READ fetches them: 64 blocks in one call, and a miss."""
    a, b, _ = cluster
    if not b.passthrough_live:
        pytest.skip("buffers need passthrough")
    files = {f"b{i}": pattern(i, 65536) for i in range(64)}
    for name, data in files.items():
        put(a.at(cdir, name), data)
    seconds_until(lambda: exists(b.at(cdir, "b63")), 5, "b63")
    s = fp.Session(b.path, fresh_name(), 8 * MIB)
    try:
        folder = s.open_dir(b.at(cdir))
        states, prefix = s.lookup(folder, [*files, "none"])
        print("states", {st[0] for st in states[:64]}, "ready prefix", prefix)
        assert all(st[0] != fp.MISS and st[2] == 65536 for st in states[:64]) and states[64][0] == fp.MISS
        got = s.read(folder, [*files, "none"], 65536)
        assert [data for status, data in got[:64] if status == 0] == list(files.values())
        assert got[64][0] in (errno.ENOENT, -errno.ENOENT)
        states, prefix = s.lookup(folder, list(files))
        assert prefix == 64 and all(st[0] == fp.READY for st in states)
    finally:
        s.close()


# ---- once ----

def test_readers_of_one_file_share_one_fetch(cluster, cdir):
    """Sixteen processes open and read it at the same moment: all bytes right, and they came over the network once."""
    name, size = f"{cdir}/f", 32 * MIB
    data = pattern(1, size)
    put_seen(cluster, name, data)
    b = cluster[1]
    before = b.rx_bytes()
    clients = [Client() for _ in range(16)]
    try:
        for i, c in enumerate(clients):
            c.start_exec("""
import hashlib
fd = os.open(path, os.O_RDONLY)
parts = {}
for at in [(first + k) % n for k in range(n)]:
    parts[at] = os.pread(fd, 1 << 20, at << 20)
os.close(fd)
result = hashlib.sha256(b"".join(parts[at] for at in range(n))).hexdigest()
""", path=b.at(name), n=size // MIB, first=i * 2)
        sums = {c.finish(env.scaled(40)) for c in clients}
    finally:
        for c in clients:
            c.destroy()
    assert sums == {hashlib.sha256(data).hexdigest()}
    fetched = b.rx_bytes() - before
    print(f"fetched {fetched / size:.3f} times the size")
    assert size <= fetched <= 1.1 * size
    remove(cluster, name)


def test_a_second_read_fetches_nothing(cluster, cdir):
    """What was read is here, for the next reader and for the next open."""
    name, data = f"{cdir}/f", pattern(1, 5 * MIB)
    put_seen(cluster, name, data)
    b = cluster[1]
    get(b.at(name))
    before = b.rx_bytes()
    assert get(b.at(name)) == data and b.rx_bytes() == before


def test_all_nodes_read_at_once(cluster, cdir):
    """Each of three files lies on one node and is read on the other two at the same time."""
    names = [f"{cdir}/f{i}" for i in range(3)]
    contents = [pattern(i, 24 * MIB + i) for i in range(3)]
    for i in range(3):
        put_seen(cluster, names[i], contents[i], i)

    def read(k):
        n, i = cluster[k // 3], k % 3
        assert not first_difference(get(n.at(names[i])), contents[i])

    took = seconds_of(in_threads, 9, read)
    print(f"nine reads of 24 MiB, six of them remote: {took * 1000:.0f} ms")
    remove(cluster, *names)


def test_prefetch_pulls_ahead(cluster, cdir):
    """mooncakectl prefetch and posix_fadvise(WILLNEED): the bytes are here without a read."""
    a, b, c = cluster
    name, data = f"{cdir}/f", pattern(1, 8 * MIB)
    put_seen(cluster, name, data)
    check_ctl("prefetch", b.at(name))
    seconds_until(lambda: xattr(b.at(name), "tier") == "dram", 5, "prefetched by mooncakectl")
    fd = os.open(c.at(name), os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_WILLNEED)
        seconds_until(lambda: xattr(c.at(name), "tier") == "dram", 5, "prefetched by posix_fadvise")
    finally:
        os.close(fd)
    before = b.rx_bytes()
    assert get(b.at(name)) == data and get(c.at(name)) == data and b.rx_bytes() == before


def stops_coming(node, seconds):
    """Nothing more is read from peers, soon: what was asked for already may still come. Returns how much came since the start."""
    seen = [node.rx_bytes(), time.monotonic()]

    def is_still():
        if node.rx_bytes() != seen[0]:
            seen[:] = node.rx_bytes(), time.monotonic()
        time.sleep(0.1)
        return time.monotonic() - seen[1] > 2
    seconds_until(is_still, seconds, "nothing more comes")
    return seen[0]


def test_prefetch_says_how_much_came(new_cluster, relay):
    """mooncakectl prefetch returns when all of it is here; interrupted, it says what came, and the rest stops coming."""
    c = new_cluster(2, dram="320M")
    c[0].behind(relay)
    c.start()
    size = 64 * MIB
    for name in ("f", "g"):
        put_seen(c, name, pattern(1, size))
    assert ctl_json("prefetch", c[1].at("f")) == {"files": 1, "bytes": size, "failed": 0, "interrupted": False}
    assert xattr(c[1].at("f"), "tier") == "dram"
    relay.set(rate=4 * MIB)
    before = c[1].rx_bytes()
    p = subprocess.Popen([env.CTL, "prefetch", "--json", c[1].at("g")], stdout=subprocess.PIPE)
    seconds_until(lambda: c[1].rx_bytes() > before, 10, "it comes")
    time.sleep(1)
    p.send_signal(signal.SIGINT)
    took, (said, _) = timed(p.communicate)
    said = json.loads(said)
    print(f"interrupted: {said}, {took:.2f} s")
    assert said["interrupted"] and said["files"] == 0 and 0 < said["bytes"] < size and took < env.scaled(2)
    assert stops_coming(c[1], 20) < before + size
    relay.set(rate=0)
    assert get(c[1].at("g")) == pattern(1, size)


def fp_lookup(node, names):
    """What a session of its own says of names in the root."""
    s = fp.Session(node.path, fresh_name(), MIB)
    try:
        return s.lookup(s.open_dir(node.path), names)
    finally:
        s.close()


def test_a_prefetch_of_a_session_is_cancelled(new_cluster, relay):
    """Its completion comes soon, each item says how much came, and what nobody wants stops coming."""
    c = new_cluster(2, dram="320M")
    c[0].behind(relay)
    c.start()
    if not c[1].passthrough_live:
        pytest.skip("buffers need passthrough")
    size = 24 * MIB
    for name in ("f", "g"):
        put_seen(c, name, pattern(1, size))
    relay.set(rate=8 * MIB)
    s = fp.Session(c[1].path, fresh_name(), MIB)
    try:
        folder = s.open_dir(c[1].path)
        at = s.items([s.named(folder, name, 0, 0, mode=0) for name in ("f", "g", "none")])
        ticket = s.submit(op=fp.PREFETCH, flags=fp.ASYNC, n_items=3, items=at)["ticket"]
        seconds_until(lambda: c[1].rx_bytes() > 4 * MIB, 10, "it comes")
        states, _ = fp_lookup(c[1], ["f", "none"])
        assert states[0][0] == fp.IN_FLIGHT and states[0][2] == size and states[1][0] == fp.MISS
        s.cancel(ticket)
        took, completions = timed(s.collect)
        print(f"{took * 1000:.1f} ms: {completions}")
        assert took < env.scaled(1) and completions[0][0] == ticket
        f, g, none = s.outcome(at, 3)
        print([(i["status"], i["bytes"]) for i in (f, g, none)])
        assert f["status"] == g["status"] == -errno.ECANCELED and none["status"] == -errno.ENOENT
        assert 0 < f["bytes"] + g["bytes"] < 2 * size and none["bytes"] == 0
        assert stops_coming(c[1], 15) < 2 * size
        relay.set(rate=0)
        at = s.items([s.named(folder, name, 0, 0, mode=0) for name in ("f", "g")])
        s.submit(op=fp.PREFETCH, n_items=2, items=at)
        assert [(i["status"], i["bytes"]) for i in s.outcome(at, 2)] == [(0, size)] * 2
    finally:
        s.close()
    assert get(c[1].at("f")) == pattern(1, size)


# ---- room ----

@pytest.mark.limit(90)
def test_a_reader_with_little_memory(new_cluster):
    """160 MiB read through a node with 64 MiB, twice: every byte is right, the owner keeps its copies, and what is
    read last stays longest."""
    c = new_cluster(2, dram="256M")
    a, small = c[0], c.add("small", dram="64M")
    c.start()
    for i in range(40):
        put(a.at(f"f{i}"), pattern(i, 4 * MIB))
    for _ in range(2):
        for i in range(40):
            wait_for(lambda: exists(small.at(f"f{i}")), env.scaled(5), f"f{i}")
            assert not first_difference(get(small.at(f"f{i}")), pattern(i, 4 * MIB))
    assert all(xattr(a.at(f"f{i}"), "tier") == "dram" for i in range(40))
    assert small.tier()["used_bytes"] <= 64 * MIB
    held = [i for i in range(40) if xattr(small.at(f"f{i}"), "tier") == "dram"]
    print("held:", held)
    assert 8 <= len(held) <= 16 and held[-1] == 39


def test_a_file_larger_than_the_reader_s_memory(new_cluster):
    """It is read right, or the reader is told that there is no room: in bounded time, and all else still works."""
    c = new_cluster(1, dram="256M")
    small = c.add("small", dram="32M", space_wait=1)
    c.start()
    data = pattern(1, 96 * MIB)
    put(c[0].at("large"), data)
    put(c[0].at("f"), b"x" * 10000)
    wait_for(lambda: exists(small.at("large")), env.scaled(5), "large")
    took, got = timed(get, small.at("large"))
    print(f"{took:.1f} s: {got if isinstance(got, OSError) else len(got)}")
    assert got == data or isinstance(got, OSError) and got.errno in (errno.ENOSPC, errno.EFBIG, errno.EIO)
    assert took < env.scaled(20) and get(small.at("f")) == b"x" * 10000


@pytest.mark.limit(90)
def test_the_end_of_a_large_file_does_not_wait_for_its_middle(new_cluster):
    """Over a line of 16 MiB/s: the last bytes of 64 MiB, and some in between, are there long before the whole is."""
    relay = Relay(HOST)
    try:
        c = new_cluster(2, dram="160M")
        c[0].behind(relay)
        c.start()
        data = pattern(1, 64 * MIB)
        put_seen(c, "f", data)
        relay.set(rate=16 * MIB)
        with open(c[1].at("f"), "rb", buffering=0) as f:
            began = time.monotonic()
            for at in (64 * MIB - 4096, 40 * MIB, 0):
                took, got = timed(os.pread, f.fileno(), 4096, at)
                print(f"4 KiB at {at // MIB} MiB: {took:.2f} s")
                assert got == data[at:at + 4096] and took < env.scaled(1.5)
            assert not first_difference(os.pread(f.fileno(), 64 * MIB, 0), data)
            print(f"the whole: {time.monotonic() - began:.2f} s")
    finally:
        relay.destroy()


READ_SUM = """
import hashlib
with open(path, "rb", buffering=0) as f:
    digest = hashlib.sha256()
    while piece := f.read(1 << 20):
        digest.update(piece)
result = digest.hexdigest()
"""


@pytest.mark.limit(120)
@pytest.mark.parametrize("folder", ["", "kv"], ids=["files", "kv"])
def test_readers_on_three_nodes_cost_the_holder_one_copy(new_cluster, new_client, relay, folder):
    """Who is still fetching passes on what it has: over the holder's slow line the bytes go once."""
    c = new_cluster(4, dram="256M")
    c[0].behind(relay)
    c.start()
    name, size = os.path.join(folder, "f"), 96 * MIB
    data = pattern(1, size)
    os.makedirs(c[0].at(folder), exist_ok=True)
    put_seen(c, name, data)
    relay.set(rate=32 * MIB)
    before, began = relay.counts()["from"], time.monotonic()
    clients = [new_client() for _ in range(3)]
    for n, client in zip(c.nodes[1:], clients):
        client.start_exec(READ_SUM, path=n.at(name))
    assert {client.finish(env.scaled(60)) for client in clients} == {hashlib.sha256(data).hexdigest()}
    sent = relay.counts()["from"] - before
    print(f"{sent / size:.3f} times the size over the holder's line, {time.monotonic() - began:.1f} s")
    assert sent <= 1.1 * size
    assert all(len(xattr(n.at(name), "holders").split(",")) == 4 for n in c)


def test_who_passes_on_what_it_gets_dies(new_cluster, new_client, relay):
    """Its readers go on with another holder, and every byte is right."""
    c = new_cluster(3, dram="256M")
    c[0].behind(relay)
    c.start().expect_errors("peer|directory|fetch|remote")
    data = pattern(1, 64 * MIB)
    put_seen(c, "f", data)
    relay.set(rate=16 * MIB)
    first, second = new_client(), new_client()
    first.start_exec(READ_SUM, path=c[1].at("f"))
    seconds_until(lambda: "b" in xattr(c[0].at("f"), "holders").split(","), 5, "b is on the list")
    second.start_exec(READ_SUM, path=c[2].at("f"))
    seconds_until(lambda: c[2].rx_bytes() > 8 * MIB, 10, "c gets something")
    assert c[2].peer("b")["rx_bytes"] > 0
    c[1].kill9()
    assert second.finish(env.scaled(40)) == hashlib.sha256(data).hexdigest()


# ---- a trace over three nodes ----

def replay(m, trace, *options):
    return ctl_json("replay", trace, m.path, "--progress", "off", *options, timeout=500)


def spread(cluster, folder, name, trace_requests, *options):
    """A third of the requests on each node at once, then all of them on each: hits to the block, every byte right."""
    parts = [write_trace(folder / f"{i}.jsonl", trace_requests[i::3]) for i in range(3)]
    whole = write_trace(folder / "whole.jsonl", trace_requests)
    reports = [None] * 3

    def one(i):
        reports[i] = replay(cluster[i], parts[i], "--dir", name, *options)

    for n in cluster:
        os.makedirs(n.at("kv", name), exist_ok=True)
    in_threads(3, one)
    references, hits = unbounded(trace_requests)
    print("hits of each third:", [r["hits"] for r in reports], "of", references, "unbounded", hits)
    assert all(r["corrupt"] == r["read_failures"] == r["write_failures"] == 0 for r in reports)
    # Two nodes may miss one block at the same moment, and both compute it.
    assert sum(r["hits"] for r in reports) <= hits
    for n in cluster:
        wait_for(lambda n=n: len(os.listdir(n.at("kv", name))) == references - hits, env.scaled(5), "all blocks")
        r = replay(n, whole, "--dir", name, *options)
        assert (r["hits"], r["misses"]) == (references, 0), f"node {n.name}"
        assert r["corrupt"] == r["read_failures"] == r["write_failures"] == 0


def test_a_small_trace_spread_over_three_nodes(cluster, tmp_path):
    """300 requests: what one node computed is a hit on the others, every byte of every hit right."""
    _, requests = small_trace(tmp_path / "t.jsonl")
    spread(cluster, tmp_path, "small", requests, "--block-bytes", "16K")


@pytest.mark.limit(300)
def test_the_start_of_the_synthetic_trace_spread_over_three_nodes(cluster, tmp_path):
    """Its first 100 requests; with MCFS_LONG=1 1,500, which is 300 MB on each node."""
    requests = read_trace(real_trace("synthetic"))[:1500 if env.LONG else 100]
    spread(cluster, tmp_path, "synthetic", requests, "--block-bytes", "16K")


# ---- while it changes ----

def test_fetching_what_is_overwritten(cluster, cdir):
    """Ten rounds: readers on two nodes are in the middle of a fetch when the owner writes a new version. Each gets one
    version whole, and who opens after the close gets the new one."""
    a, name, size = cluster[0], f"{cdir}/f", 16 * MIB
    versions = [bytes([i]) * size for i in range(3)]
    put_seen(cluster, name, versions[0])
    clients = [Client(), Client()]
    try:
        for i in range(1, 11):
            for c, n in zip(clients, list(cluster)[1:]):
                c.start_exec("""
result = []
fd = os.open(path, os.O_RDONLY)
for at in range(0, 16 << 20, 1 << 20):
    try:
        data = os.pread(fd, 1 << 20, at)
    except OSError as e:
        result.append(e.errno)
        break
    result.append((len(data), data[0] if data else None, data == data[:1] * len(data)))
os.close(fd)
""", path=n.at(name))
            time.sleep(0.002 * i)
            put(a.at(name), versions[i % 3])
            for c in clients:
                got = c.finish(env.scaled(20))
                parts = [g for g in got if isinstance(g, tuple)]
                assert len(set(parts)) <= 1 and all(p[0] == MIB and p[2] for p in parts), f"round {i}: {set(got)}"
                assert len(got) == len(parts) == 16 or got[-1] in (errno.ESTALE, errno.EIO), f"round {i}: {got[-1]}"
            for n in cluster:
                assert get(n.at(name)) == versions[i % 3], f"round {i}, node {n.name}"
    finally:
        for c in clients:
            c.destroy()


def test_the_owner_evicts_while_a_reader_is_slow(new_cluster):
    """The only holder needs its memory for other files while another node is in the middle of a file: the bytes are
    right or an error comes, never other bytes."""
    relay = Relay(HOST)
    try:
        c = new_cluster(1, dram="64M")
        a, reader = c[0].behind(relay), c.add("reader", dram="128M")
        c.start()
        data = pattern(1, 24 * MIB)
        put_seen(c, "f", data)
        relay.set(rate=8 * MIB)
        with open(reader.at("f"), "rb", buffering=0) as f:
            assert os.pread(f.fileno(), 4096, 0) == data[:4096]
            for i in range(24):
                put(a.at(f"other{i}"), pattern(100 + i, 4 * MIB))
            took, got = timed(os.pread, f.fileno(), 24 * MIB, 0)
        print(f"{took:.1f} s: {got if isinstance(got, OSError) else len(got)}")
        if isinstance(got, OSError):
            assert got.errno in (errno.ESTALE, errno.EIO)
        else:
            assert not first_difference(got, data)
        assert took < env.scaled(15)
    finally:
        relay.destroy()


def test_torture_on_three_nodes_of_their_own_files(cluster, cdir):
    """Three seconds of every change and every way to read at once on each node, in a directory of its own."""
    for n in cluster:
        os.mkdir(n.at(cdir, n.name))
    in_threads(3, lambda i: check_prog("torture_mount", cluster[i].at(cdir, cluster[i].name), 3, i + 1, timeout=50))
