# SPDX-License-Identifier: Apache-2.0
"""DRAM and SSD as one cache: spilling, promotion, verification, and what an end saves."""
import errno
import os
import random
import signal
import subprocess
import threading
import time

import pytest

from harness import env
from harness.content import exists, get, pattern, peek, put, set_xattr, wait_for, xattr

pytestmark = pytest.mark.mooncake
MIB = env.MIB


@pytest.fixture
def tiers(new_mount):
    """A function that mounts with a DRAM and an SSD budget: tiers("32M", "128M", **options)."""
    def start(dram, ssd, **options):
        m = new_mount(dram=dram, **options)
        m.options["ssd"] = f"{m.base}/disk:{ssd}"
        return m.start()
    return start


def name(m, i, folder=""):
    return os.path.join(m.path, folder, f"f{i:04}")


def fill(m, first, n, size=MIB, folder=""):
    """Objects of one thread within 2 ms would be one request, evicted from its end (fs/tier/policy.h)."""
    for i in range(first, first + n):
        put(name(m, i, folder), pattern(i, size))
        time.sleep(0.003)


def present(m, folder=""):
    return sorted(int(n[1:]) for n in os.listdir(os.path.join(m.path, folder)) if n[0] == "f")


def is_idle(m):
    with open(m.control("metrics")) as f:
        text = f.read()
    return "mooncakefs_writeback_queue_objects 0\n" in text


def frames(m):
    """Paths of the frame files on the disk, by size."""
    found = {}
    for folder, _, files in os.walk(os.path.join(m.base, "disk")):
        for f in files:
            if len(f) != 16:
                continue  # not a frame
            path = os.path.join(folder, f)
            found[os.path.getsize(path)] = path
    return found


# ---- capacity ----

@pytest.mark.limit(120)
def test_a_replay_larger_than_dram_loses_nothing(tiers):
    """Chains of blocks, used again with growing distance: every block that was written once is found again,
    whole, and nothing is evicted from a disk that has room."""
    m = tiers("32M", "512M")
    chance = random.Random(7)
    written, misses = {}, 0
    for _ in range(500):
        chain = chance.choice((chance.randrange(40), chance.randrange(40, 150)))
        for block in range(chance.randrange(1, 5)):
            path, key = os.path.join(m.path, f"b{chain}.{block}"), chain * 10 + block
            data = peek(path)
            if key in written:
                assert data == written[key], f"block {key}: {'missing' if data is None else 'wrong'}"
            else:
                assert data is None
                misses += 1
                written[key] = pattern(key, 256 << 10)
                put(path, written[key])
    assert misses == len(written) and misses * 256 << 10 > 48 * MIB
    assert m.counter("evictions") > 0
    assert m.counter("evicted_names") == 0
    assert m.tier("dram")["used_bytes"] <= 32 * MIB
    assert m.tier("ssd")["used_bytes"] <= misses * (256 << 10)


@pytest.mark.limit(120)
def test_twice_the_capacity_leaves_the_newest(tiers):
    """192 MiB through DRAM of 32 and SSD of 64: the oldest are gone, the newest are whole, without a gap, both
    budgets are kept, and access, stat and open agree on each."""
    m = tiers("32M", "64M")
    for i in range(0, 192, 8):
        fill(m, i, 8)
        assert m.tier("dram")["used_bytes"] <= 32 * MIB
        assert m.tier("ssd")["used_bytes"] <= 64 * MIB
    wait_for(lambda: m.counter("evicted_names") == 192 - len(present(m)), env.scaled(5), "a count for each lost name")
    left = present(m)
    assert 72 <= len(left) <= 96
    assert left[-32:] == list(range(160, 192))
    # From here on more may go: a read takes a block back into memory, and pushes another out for it.
    for i in range(192):
        data = peek(name(m, i))
        assert os.access(name(m, i), os.F_OK) == (data is not None) == exists(name(m, i))
        assert data is None or data == pattern(i, MIB)
    assert m.counter("ssd_evictions") > 0


@pytest.mark.limit(180)
def test_an_open_handle_reads_to_its_end_under_pressure(tiers):
    """Files opened early, one that is in DRAM and one that is on the SSD, are read piece by piece while others
    write several times the capacity."""
    m = tiers("32M", "64M")
    fill(m, 0, 48)
    held = {i: os.open(name(m, i), os.O_RDONLY) for i in (0, 47)}
    seconds = 60 if env.LONG else 4
    began, at, k = time.monotonic(), 0, 100
    while time.monotonic() - began < seconds or k < 260:
        fill(m, k, 4)
        k += 4
        for i, fd in held.items():
            assert os.pread(fd, 4096, at % MIB) == pattern(i, MIB)[at % MIB:at % MIB + 4096]
        at += 4096
    for i, fd in held.items():
        assert os.pread(fd, MIB + 1, 0) == pattern(i, MIB)
        os.close(fd)


@pytest.mark.limit(120)
def test_a_stat_loop_does_not_hold_eviction_back(tiers):
    """Names that are looked at all the time, and not opened, leave in their turn."""
    m = tiers("32M", "64M")
    fill(m, 0, 4)
    over = threading.Event()

    def look():
        while not over.is_set():
            for i in range(4):
                if exists(name(m, i)):
                    os.access(name(m, i), os.R_OK)
            os.listdir(m.path)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        fill(m, 10, 160)
    finally:
        over.set()
        thread.join()
    assert not any(exists(name(m, i)) for i in range(4))
    assert get(name(m, 169)) == pattern(169, MIB)


@pytest.mark.limit(180)
def test_no_put_fails_while_space_is_free(tiers):
    """4 KB and 12 MB files come and go at nine tenths of DRAM: every put succeeds, what is left is whole."""
    m = tiers("64M", "1G")
    chance = random.Random(3)
    fill(m, 1000, 57)
    alive = {}
    for i in range(150):
        size = 4096 if chance.random() < 0.7 else 12 * MIB
        put(name(m, i), pattern(i, size))
        alive[i] = size
        if len(alive) > 20:
            gone = chance.choice(list(alive))
            os.unlink(name(m, gone))
            del alive[gone]
    for i, size in alive.items():
        assert get(name(m, i)) == pattern(i, size)
    assert m.counter("space_failures") == 0
    assert m.counter("evicted_names") == 0


# ---- a slow disk ----

@pytest.mark.limit(180)
def test_sixteen_writers_and_a_slow_disk(tiers):
    """16 writers into 64 MiB of DRAM with write-back held to 24 MiB/s: each put ends within the wait, with
    success or ENOSPC; objects of class keep that were acknowledged are whole, whatever happened; so is every
    other object that eviction had no reason to take."""
    m = tiers("64M", "1G", writeback_rate="24M", space_wait=4)
    os.mkdir(os.path.join(m.path, "weights"))
    done, slowest, errors = [], [0.0], []

    def write(w):
        for k in range(8):
            i, folder = w * 100 + k, "weights" if k % 4 == 0 else ""
            began = time.monotonic()
            try:
                put(name(m, i, folder), pattern(i, MIB))
                done.append((i, folder))
            except OSError as e:
                errors.append(e.errno)
            slowest[0] = max(slowest[0], time.monotonic() - began)

    threads = [threading.Thread(target=write, args=(w,)) for w in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert set(errors) <= {errno.ENOSPC}
    assert slowest[0] < env.scaled(30)
    assert len(done) >= 64
    for i, folder in done:
        assert peek(name(m, i, folder)) == pattern(i, MIB), (i, folder)
    m.kill9()
    m.lose_dram()
    m.remount()
    for i, folder in done:
        if folder:
            assert get(name(m, i, folder)) == pattern(i, MIB)


def test_a_full_ssd_tells_and_loses_nothing(tiers):
    """keep objects fill the SSD: the close that finds no room is ENOSPC, so is an fsync; all before are whole."""
    m = tiers("64M", "8M", space_wait=1)
    os.mkdir(os.path.join(m.path, "weights"))
    n = 0
    with pytest.raises(OSError) as e:
        for n in range(20):
            put(name(m, n, "weights"), pattern(n, MIB))
    assert e.value.errno == errno.ENOSPC
    assert 6 <= n <= 8
    put(name(m, 50), pattern(50, MIB))
    fd = os.open(name(m, 50), os.O_RDONLY)
    with pytest.raises(OSError) as e:
        os.fsync(fd)
    os.close(fd)
    assert e.value.errno == errno.ENOSPC
    assert present(m, "weights") == list(range(n))
    for i in range(n):
        assert get(name(m, i, "weights")) == pattern(i, MIB)
    assert get(name(m, 50)) == pattern(50, MIB)


# ---- modes ----

def test_writeback_second_copies_what_is_read_again(tiers):
    """writeback=second: what was read is on the SSD and survives eviction; what was not is dropped."""
    m = tiers("32M", "256M", writeback="second")
    fill(m, 0, 8)
    for i in range(4):
        assert get(name(m, i)) == pattern(i, MIB)
    wait_for(lambda: m.counter("writeback_objects") == 4, 10, "four copies")
    fill(m, 10, 64)
    assert present(m)[:4] == [0, 1, 2, 3]
    assert not any(exists(name(m, i)) for i in range(4, 8))
    assert m.counter("writeback_objects") == 4
    for i in range(4):
        assert get(name(m, i)) == pattern(i, MIB)


def test_writeback_always_survives_a_reboot(tiers):
    """writeback=always: what was closed a moment ago is there after kill -9 and the loss of DRAM."""
    m = tiers("64M", "256M", writeback="always")
    fill(m, 0, 24)
    wait_for(lambda: is_idle(m), 20, "the queue is empty")
    m.kill9()
    m.lose_dram()
    m.remount()
    assert present(m) == list(range(24))
    for i in range(24):
        assert get(name(m, i)) == pattern(i, MIB)
    assert m.counter("verifications") == 24
    assert m.counter("corrupt") == 0


def test_without_the_option_nothing_spills(mount):
    """Without ssd= eviction drops names, as a cache in memory does."""
    fill(mount, 0, 300)
    assert not exists(name(mount, 0))
    assert mount.counter("writeback_objects") == 0
    assert mount.tier("ssd")["used_bytes"] == 0


# ---- promotion ----

def test_the_second_read_brings_an_object_back(tiers):
    """An object that spilled is read from the SSD; read twice, it is in DRAM again and stays whole."""
    m = tiers("32M", "256M")
    fill(m, 0, 64)
    assert xattr(name(m, 0), "tier") == "ssd"
    assert get(name(m, 0)) == pattern(0, MIB)
    assert xattr(name(m, 0), "tier") == "ssd"
    fd = os.open(name(m, 0), os.O_RDONLY)
    # There may be no room at first: what was spilled last is still being copied. Then a later use brings it.
    wait_for(lambda: get(name(m, 0)) and xattr(name(m, 0), "tier") == "dram", 10, "promotion")
    assert os.pread(fd, MIB, 0) == pattern(0, MIB)
    assert get(name(m, 0)) == pattern(0, MIB)
    os.close(fd)
    assert get(name(m, 0)) == pattern(0, MIB)
    assert m.counter("promotions") == 1
    fill(m, 100, 64)
    assert get(name(m, 0)) == pattern(0, MIB)


# ---- damage ----

def _damage(paths, sizes):
    with open(paths[sizes[0]], "r+b") as f:
        f.seek(100000)
        byte = f.read(1)
        f.seek(100000)
        f.write(bytes([byte[0] ^ 16]))
    os.truncate(paths[sizes[1]], 5000)
    os.unlink(paths[sizes[2]])
    # Two of equal size change places.
    os.rename(paths[sizes[3]], paths[sizes[3]] + ".x")
    with open(paths[sizes[3]], "wb") as f:
        f.write(pattern(999, sizes[3]))


@pytest.mark.parametrize("alive", [False, True])
def test_damaged_frames_are_misses(tiers, alive):
    """A bit flipped, a frame cut, deleted, or another in its place, behind the back of a daemon that is away or
    alive: the name is ENOENT from then on, a counter tells, and other objects are untouched."""
    m = tiers("64M", "256M", writeback="always")
    m.expect_errors("frame")
    sizes = [MIB + k * 4096 for k in range(6)]
    for i, size in enumerate(sizes):
        put(name(m, i), pattern(i, size))
    wait_for(lambda: is_idle(m), 20, "the queue is empty")
    m.signal(signal.SIGTERM)
    m.wait_end()
    m.lose_dram()
    if alive:
        m.remount()
        for i in (0, 1, 5):
            assert get(name(m, i)) == pattern(i, sizes[i])
    _damage(frames(m), sizes)
    if not alive:
        m.remount()
    for i in range(4):
        assert peek(name(m, i)) is None, i
        assert not os.access(name(m, i), os.F_OK)
    for i in (4, 5):
        assert get(name(m, i)) == pattern(i, sizes[i])
    assert m.counter("corrupt") == 3
    assert present(m) == [4, 5]


def test_a_damaged_copy_costs_nothing_while_the_object_is_in_dram(tiers):
    """The SSD copy of an object that DRAM serves is damaged: reads are right; once DRAM is needed the damage is
    found and a good copy made first."""
    m = tiers("32M", "256M", writeback="always")
    m.expect_errors("frame")
    put(name(m, 0), pattern(0, MIB))
    wait_for(lambda: is_idle(m), 20, "the queue is empty")
    m.signal(signal.SIGTERM)
    m.wait_end()
    with open(frames(m)[MIB], "r+b") as f:
        f.write(b"\xff" * 64)
    m.remount()
    assert get(name(m, 0)) == pattern(0, MIB)
    time.sleep(0.01)
    fill(m, 10, 80)
    assert xattr(name(m, 0), "tier") == "ssd"
    assert get(name(m, 0)) == pattern(0, MIB)
    assert m.counter("corrupt") == 1


# ---- the end ----

def test_sigterm_finishes_what_is_queued(tiers):
    """Objects that wait for their copy at SIGTERM are copied before the daemon ends, with progress in the log."""
    m = tiers("128M", "256M", writeback="always", writeback_rate="2M")
    fill(m, 0, 64)
    assert m.counter("writeback_objects") < 60
    m.signal(signal.SIGTERM)
    m.wait_end()
    assert "write-back: 0 of " in m.log_tail(40)
    assert "write-back: done, " in m.log_tail(40)
    m.lose_dram()
    m.remount()
    for i in range(64):
        assert get(name(m, i)) == pattern(i, MIB)


@pytest.mark.parametrize("how", ["stop --free", "umount"])
def test_an_end_that_frees_dram_saves_it_first(tiers, how):
    """mooncakectl stop --free and umount copy what is in DRAM alone to the SSD; the next start has it all."""
    m = tiers("128M", "256M")
    fill(m, 0, 48)
    os.mkdir(os.path.join(m.path, "pins"))
    set_xattr(os.path.join(m.path, "pins"), "class", "pinned")
    fill(m, 0, 4, folder="pins")
    if how == "umount":
        m.stop()
    else:
        subprocess.run([env.CTL, "stop", "--free", m.path], check=True, capture_output=True)
        m.wait_end()
    assert m.dram_mounts() == []
    m.remount()
    for i in range(48):
        assert get(name(m, i)) == pattern(i, MIB)
    for i in range(4):
        assert get(name(m, i, "pins")) == pattern(i, MIB)


def test_sigterm_leaves_cache_objects_in_dram(tiers):
    """writeback=evict: a plain stop writes nothing more; the next start finds everything in DRAM."""
    m = tiers("128M", "256M")
    fill(m, 0, 32)
    m.signal(signal.SIGTERM)
    m.wait_end()
    assert frames(m) == {}
    m.remount()
    for i in range(32):
        assert get(name(m, i)) == pattern(i, MIB)
        assert xattr(name(m, i), "tier") == "dram"
