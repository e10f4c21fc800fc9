# SPDX-License-Identifier: Apache-2.0
"""Budgets: what is evicted and what never is, and what a writer gets when nothing may go."""
import errno
import mmap
import os
import subprocess
import time

import pytest

from harness import env
from harness.content import exists, get, pattern, peek, put, set_xattr, wait_for, xattr

pytestmark = [pytest.mark.mooncake, pytest.mark.options(dram="64M", space_wait=1)]
MIB = env.MIB


# Objects that one thread touches within 2 ms of each other are blocks of one request, which go last
# block first (fs/tier/policy.h). Where the order matters, objects are written further apart than that.
APART = 0.003


def fill(m, first, n, size=MIB, folder=""):
    """Writes objects f<first> ... of size bytes, contents by number, each a request of its own."""
    for i in range(first, first + n):
        put(os.path.join(m.path, folder, f"f{i:04}"), pattern(i, size))
        time.sleep(APART)


def present(m, folder=""):
    return sorted(int(n[1:]) for n in os.listdir(os.path.join(m.path, folder)) if n[0] == "f")


def in_use(m):
    """Bytes that no new object could have: used, less frames that wait to be used again."""
    tier = m.tier()
    return tier["used_bytes"] - tier["free_list_bytes"]


# ---- eviction ----

def test_eviction_takes_the_oldest(mount):
    """200 MiB through a budget of 64: the newest objects are left, without a gap; the budget is kept."""
    for i in range(0, 200, 10):
        fill(mount, i, 10)
        assert mount.tier()["used_bytes"] <= 64 * MIB
    left = present(mount)
    assert left == list(range(200 - len(left), 200))
    assert 32 <= len(left) <= 64
    assert mount.counter("evictions") == 200 - len(left)
    assert mount.counter("evicted_bytes") == (200 - len(left)) * MIB


def test_evicted_names_are_gone_for_every_call(mount):
    """An evicted object is ENOENT for stat, access, open and unlink, and not listed, however it was cached."""
    fill(mount, 0, 20)
    paths = [os.path.join(mount.path, f"f{i:04}") for i in range(20)]
    for path in paths:
        os.stat(path)
    fill(mount, 100, 100)
    gone = [p for p in paths if p not in {os.path.join(mount.path, f"f{i:04}") for i in present(mount)}]
    assert len(gone) == 20
    for path in gone:
        assert not os.access(path, os.F_OK)
        for call in (lambda: os.stat(path), lambda: os.open(path, os.O_RDONLY), lambda: os.unlink(path)):
            with pytest.raises(FileNotFoundError):
                call()


def test_access_and_open_agree_under_pressure(mount, client_a):
    """While another process evicts, what access says right after a failed open is never `there`, and what
    opens is whole."""
    fill(mount, 0, 40)
    client_a.start_exec("""
for i in range(300):
    with open(os.path.join(d, "g%d" % i), "wb") as f:
        f.write(bytes([i % 256]) * (1 << 20))
""", d=mount.path)
    gone = set()
    while not client_a.done():
        for i in range(40):
            path = os.path.join(mount.path, f"f{i:04}")
            data = peek(path)
            assert data is None or (i not in gone and data == pattern(i, MIB))
            if data is None:
                gone.add(i)
                assert not os.access(path, os.F_OK)
    client_a.finish()
    assert 1 <= len(os.listdir(mount.path)) <= 64


def test_reading_keeps_an_object(mount):
    """Eviction is by last use, not by age: an old object that is read again and again stays."""
    fill(mount, 0, 2)
    for i in range(10, 200):
        fill(mount, i, 1)
        assert get(os.path.join(mount.path, "f0000")) == pattern(0, MIB)
    assert 0 in present(mount) and 1 not in present(mount)


def test_stat_and_lookup_do_not_keep_an_object(mount):
    """stat, access and readdir are no use: an object that is only looked at goes in its turn."""
    fill(mount, 0, 2)
    for i in range(10, 100):
        fill(mount, i, 1)
        if exists(os.path.join(mount.path, "f0000")):
            os.stat(os.path.join(mount.path, "f0000"))
            os.listdir(mount.path)
    assert 0 not in present(mount)


@pytest.mark.parametrize("attribute, value", [("class", "pinned"), ("pin", "1")])
def test_pinned_objects_stay(mount, attribute, value):
    """Objects of a pinned directory and pinned single objects survive five times the budget."""
    os.mkdir(os.path.join(mount.path, "dir"))
    set_xattr(os.path.join(mount.path, "dir"), attribute, value)
    fill(mount, 0, 10, folder="dir")
    fill(mount, 0, 5)
    for i in range(5):
        set_xattr(os.path.join(mount.path, f"f{i:04}"), attribute, value)
    fill(mount, 100, 320)
    assert present(mount, "dir") == list(range(10))
    assert present(mount)[:5] == list(range(5))
    for i in range(10):
        assert get(os.path.join(mount.path, "dir", f"f{i:04}")) == pattern(i, MIB)
        assert xattr(os.path.join(mount.path, "dir", f"f{i:04}"), "tier") == "dram"


def test_unpinned_objects_go(mount):
    """An object whose pin is taken back is evicted in its turn."""
    fill(mount, 0, 1)
    path = os.path.join(mount.path, "f0000")
    set_xattr(path, "pin", "1")
    fill(mount, 100, 100)
    assert exists(path)
    set_xattr(path, "pin", "0")
    fill(mount, 300, 200)
    assert not exists(path)


def test_keep_objects_are_never_lost(mount):
    """Objects of weights/ larger than DRAM in all: each is readable and whole, from DRAM or from SSD."""
    os.mkdir(os.path.join(mount.path, "weights"))
    fill(mount, 0, 120, folder="weights")
    fill(mount, 0, 100)
    assert present(mount, "weights") == list(range(120))
    for i in range(120):
        assert get(os.path.join(mount.path, "weights", f"f{i:04}")) == pattern(i, MIB)
    assert mount.tier()["used_bytes"] <= 64 * MIB
    tiers = {xattr(os.path.join(mount.path, "weights", f"f{i:04}"), "tier") for i in range(120)}
    assert tiers <= {"dram", "ssd"} and "ssd" in tiers


@pytest.mark.options(dram="64M", max_objects=100)
def test_number_of_objects_is_bounded(mount):
    """max_objects: the oldest names go when there are more, whatever their size; empty ones count too."""
    for i in range(400):
        put(os.path.join(mount.path, f"f{i:04}"), b"" if i % 3 == 0 else b"x" * 10)
        time.sleep(APART)
        assert mount.status()["objects"]["count"] <= 100
    left = present(mount)
    assert 50 <= len(left) <= 100
    assert left == list(range(400 - len(left), 400))
    assert mount.status()["objects"] == {**mount.status()["objects"], "count": len(left), "max": 100}


# ---- open objects ----

def test_open_handles_and_mappings_survive_eviction(mount):
    """An evicted object is readable to its last byte by whoever has it open or mapped."""
    fill(mount, 0, 6)
    held = []
    for i in range(6):
        fd = os.open(os.path.join(mount.path, f"f{i:04}"), os.O_RDONLY)
        held.append((fd, mmap.mmap(fd, MIB, mmap.MAP_SHARED, mmap.PROT_READ) if i % 2 else None))
    fill(mount, 100, 300)
    for i, (fd, m) in enumerate(held):
        assert os.pread(fd, MIB + 1, 0) == pattern(i, MIB)
        assert m is None or m[:] == pattern(i, MIB)
        if m:
            m.close()
        os.close(fd)


def test_bytes_of_unlinked_open_objects_are_accounted(mount):
    """Unlinked but open: the bytes stay in used_bytes until the last close, and come back then."""
    base = in_use(mount)
    fill(mount, 0, 20)
    held = [os.open(os.path.join(mount.path, f"f{i:04}"), os.O_RDONLY) for i in range(20)]
    for i in range(20):
        os.unlink(os.path.join(mount.path, f"f{i:04}"))
    assert in_use(mount) >= base + 20 * MIB
    for fd in held:
        os.close(fd)
    wait_for(lambda: in_use(mount) == base, 3, "the bytes come back")


def test_bytes_of_unlinked_mapped_objects_are_accounted(mount):
    """The same for mappings whose descriptors are closed: the daemon does not see them, the budget must."""
    fill(mount, 0, 10)
    maps = []
    for i in range(10):
        with open(os.path.join(mount.path, f"f{i:04}"), "rb") as f:
            maps.append(mmap.mmap(f.fileno(), MIB, mmap.MAP_SHARED, mmap.PROT_READ))
        os.unlink(os.path.join(mount.path, f"f{i:04}"))
    for i in range(30):
        put(os.path.join(mount.path, f"g{i}"), b"\xff" * MIB)
    for i, m in enumerate(maps):
        assert m[:] == pattern(i, MIB)
    assert in_use(mount) >= 40 * MIB
    for m in maps:
        m.close()
    for i in range(30):
        os.unlink(os.path.join(mount.path, f"g{i}"))
    wait_for(lambda: in_use(mount) == 0, 5, "the bytes come back")


def test_bytes_of_an_unlinked_draft_are_accounted(mount, client_a):
    """A scratch file (unlinked, open for writing) is charged while it is open."""
    fd = client_a.os.open(os.path.join(mount.path, "f"), os.O_RDWR | os.O_CREAT)
    client_a.os.unlink(os.path.join(mount.path, "f"))
    for i in range(16):
        client_a.os.pwrite(fd, b"x" * MIB, i * MIB)
    assert in_use(mount) >= 16 * MIB
    client_a.os.close(fd)
    wait_for(lambda: in_use(mount) == 0, 3, "the bytes come back")


def test_everything_comes_back(mount):
    """Writing and unlinking all kinds of sizes leaves nothing charged, and no object counted."""
    for round_no in range(3):
        for size in (0, 1, 4095, 4096, 4097, 100000, MIB, 5 * MIB + 3):
            path = os.path.join(mount.path, f"s{size}")
            put(path, pattern(round_no, size))
            with open(path, "r+b") as f:
                f.write(b"x")
            os.truncate(path, size // 2)
            os.unlink(path)
    wait_for(lambda: in_use(mount) == 0, 3, "the bytes come back")
    assert mount.status()["objects"]["count"] == 0


# ---- nothing may go ----

def _pin_all(m, mib):
    os.mkdir(os.path.join(m.path, "pinned"))
    set_xattr(os.path.join(m.path, "pinned"), "class", "pinned")
    fill(m, 0, mib, folder="pinned")


def test_enospc_in_bounded_time_when_all_is_pinned(mount, client_a):
    """A budget full of pinned objects: a writer gets ENOSPC after space_wait, and readers are not disturbed."""
    _pin_all(mount, 50)
    began = time.monotonic()
    client_a.start_exec("""
result = None
try:
    with open(path, "wb", buffering=0) as f:
        for _ in range(64):
            f.write(b"x" * (1 << 20))
except OSError as e:
    result = e.errno
""", path=os.path.join(mount.path, "big"))
    while not client_a.done():
        assert get(os.path.join(mount.path, "pinned", "f0007")) == pattern(7, MIB)
    assert client_a.finish() == errno.ENOSPC
    assert time.monotonic() - began < env.scaled(10)
    assert not exists(os.path.join(mount.path, "big"))
    assert mount.counter("space_failures") > 0
    assert present(mount, "pinned") == list(range(50))


def test_enospc_when_all_is_open(mount, client_a):
    """Objects that are open are not evicted: a budget full of them gives ENOSPC, and their bytes stay right."""
    fill(mount, 0, 50)
    held = [os.open(os.path.join(mount.path, f"f{i:04}"), os.O_RDONLY) for i in present(mount)]
    numbers = present(mount)
    with pytest.raises(OSError) as e:
        client_a.put(os.path.join(mount.path, "big"), b"x" * (64 * MIB))
    assert e.value.errno == errno.ENOSPC
    for i, fd in zip(numbers, held):
        assert os.pread(fd, MIB, 0) == pattern(i, MIB)
        os.close(fd)


@pytest.mark.options(dram="64M", space_wait=20)
def test_waiting_writer_goes_on_when_space_comes(mount, client_a):
    """A writer that waits for space finishes as soon as somebody unlinks a pinned object."""
    _pin_all(mount, 58)
    client_a.start("os.statvfs", mount.path)
    client_a.finish()
    client_a.start_exec("""
with open(path, "wb", buffering=0) as f:
    for _ in range(16):
        f.write(b"x" * (1 << 20))
result = time.monotonic()
""", path=os.path.join(mount.path, "f"))
    assert not client_a.done(0.7), "the writer should be waiting"
    for i in range(20):
        os.unlink(os.path.join(mount.path, "pinned", f"f{i:04}"))
    client_a.finish(env.scaled(5))
    assert os.path.getsize(os.path.join(mount.path, "f")) == 16 * MIB


def test_pinned_is_bounded_by_the_budget(mount, client_a):
    """Pinning more than the budget holds ends in ENOSPC, with what was pinned before unharmed."""
    os.mkdir(os.path.join(mount.path, "pinned"))
    set_xattr(os.path.join(mount.path, "pinned"), "class", "pinned")
    n = 0
    with pytest.raises(OSError) as e:
        for n in range(100):
            client_a.put(os.path.join(mount.path, "pinned", f"f{n:04}"), pattern(n, MIB))
    assert e.value.errno == errno.ENOSPC
    assert 40 <= n <= 64
    assert present(mount, "pinned") == list(range(n))
    assert get(os.path.join(mount.path, "pinned", "f0000")) == pattern(0, MIB)


# ---- statvfs ----

def test_statvfs_and_status_agree(mount):
    """f_blocks is the budget; free plus used is the budget; evictable bytes count as used."""
    fill(mount, 0, 30)
    s = os.statvfs(mount.path)
    assert s.f_blocks * s.f_frsize == mount.tier()["budget_bytes"] == 64 * MIB
    assert abs((s.f_blocks - s.f_bfree) * s.f_frsize - in_use(mount)) < MIB
    assert s.f_files >= 30 and s.f_ffree <= s.f_files - 30
    assert subprocess.run(["stat", "-f", mount.path], capture_output=True).returncode == 0


def test_st_blocks_is_what_the_object_takes(mount):
    """st_blocks of an object is its size in 512-byte blocks, rounded up."""
    for size in (0, 1, 4096, 100000, 3 * MIB):
        path = os.path.join(mount.path, f"s{size}")
        put(path, b"x" * size)
        blocks = os.stat(path).st_blocks
        assert (size + 511) // 512 <= blocks <= (size + 4095) // 4096 * 8


# ---- time to live ----

def test_ttl_removes_objects(mount):
    """ttl_s: an object goes when its time is over, not before; others stay."""
    put(os.path.join(mount.path, "stays"), b"x")
    put(os.path.join(mount.path, "goes"), b"x")
    set_xattr(os.path.join(mount.path, "goes"), "ttl_s", 1)
    assert get(os.path.join(mount.path, "goes")) == b"x"
    wait_for(lambda: not exists(os.path.join(mount.path, "goes")), 5, "its time is over")
    assert get(os.path.join(mount.path, "stays")) == b"x"
    assert mount.counter("expired") == 1
