# SPDX-License-Identifier: Apache-2.0
"""A disk fails under load: its frames are lost, nothing else, and the node says which disk and why."""
import errno
import os
import random
import signal
import subprocess
import threading
import time

import pytest

from harness import crash, env
from harness.content import get, pattern, put, wait_for
from harness.faultdisk import FaultDisks, sync

pytestmark = [pytest.mark.mooncake, pytest.mark.one_mode]
KIB, MIB = env.KIB, env.MIB
N_WRITERS, PER_WRITER, SIZE = 4, 28, 512 * KIB
DISK_MIB = 192


# ---- load ----

class Writers:
    """Threads that write and read files of their own, whose bytes say which version of which file they are."""

    def __init__(self, path):
        self.path = path
        self.over = threading.Event()
        self.acked = {}  # file -> the version whose close returned
        self.tried = {}  # file -> the last version begun
        self.errors, self.wrong, self.slowest = set(), [], 0.0
        self.threads = [threading.Thread(target=self._guard, args=(self._write, w)) for w in range(N_WRITERS)]

    def name(self, i):
        return os.path.join(self.path, "weights" if i % 7 == 0 else "c", f"f{i}")

    @staticmethod
    def data(i, version):
        seed = i << 32 | version
        return seed.to_bytes(8, "little") + pattern(seed, SIZE - i * 8)

    def look(self, i):
        """The version that is there, or an errno. Bytes that nobody wrote are noted."""
        try:
            found = get(self.name(i))
        except OSError as e:
            return None, e.errno
        seed = int.from_bytes(found[:8], "little")
        version = seed & 0xFFFFFFFF
        if seed >> 32 != i or version > self.tried.get(i, 0) or found != self.data(i, version):
            self.wrong.append(f"f{i}: {len(found)} bytes, seed {seed:#x}")
        return version, 0

    def _write(self, w):
        chance = random.Random(w)
        while not self.over.is_set():
            i = w * PER_WRITER + chance.randrange(PER_WRITER)
            began = time.monotonic()
            if chance.random() < 0.5:
                self.errors.add(self.look(i)[1])
            else:
                self._put(i)
            self.slowest = max(self.slowest, time.monotonic() - began)

    def _put(self, i):
        version = self.tried[i] = self.tried.get(i, 0) + 1
        try:
            put(self.name(i), self.data(i, version))
            self.acked[i] = version
        except OSError as e:
            self.errors.add(e.errno)

    def _guard(self, run, n):
        try:
            run(n)
        except Exception as e:  # a thread's failure is the test's
            self.wrong.append(repr(e))

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *exc):
        self.over.set()
        for thread in self.threads:
            thread.join()
        assert not self.wrong, self.wrong[:5]
        assert self.slowest < env.scaled(20)

    def check(self, may_be_lost):
        """Returns the files that are lost; all others show what was written last, or tried since."""
        lost = []
        for i, version in self.acked.items():
            found, error = self.look(i)
            if error in (errno.ENOENT, errno.EIO):
                lost.append(i)
            else:
                assert version <= found <= self.tried[i], f"f{i}: version {found}, acknowledged {version}"
        assert not self.wrong, self.wrong[:5]
        assert not [i for i in lost if not may_be_lost(i)], lost
        return lost


# ---- mounts and faults ----

def _start(new_mount, disks, budgets):
    """A mount with an SSD on each of the budgets' disks: the first may fail, a second is a plain folder."""
    m = new_mount(dram="32M", space_wait=3)
    folders = [os.path.join(disks.paths[0], "ssd"), os.path.join(m.base, "good")][:len(budgets)]
    m.options["ssd"] = ",ssd=".join(f"{folder}:{budget}" for folder, budget in zip(folders, budgets))
    m.expect_errors("ssd|frame|copy|publish|sync|catalog_errors")
    m.start()
    for folder in ("weights", "c"):
        os.mkdir(os.path.join(m.path, folder))
    return m, folders


def _disk(m, k):
    return m.status()["disks"][k]


def _goes_on(m, keep=True):
    """New files of each class are written and read."""
    for i in range(12):
        path = os.path.join(m.path, "weights" if keep and i % 3 == 0 else "c", f"new{i}")
        put(path, pattern(i, MIB))
        assert get(path) == pattern(i, MIB)


def _read_only(disks):
    # Files are open for writing: what a file system does by itself after an error, it does at once.
    subprocess.run(["mount", "-o", "remount,abort", disks.paths[0]], capture_output=True)
    subprocess.run(["mount", "-o", "remount,ro", disks.paths[0]], capture_output=True)


def _unplug(disks):
    subprocess.run(["umount", "-l", disks.paths[0]], check=True)


FAULTS = {
    "turns read-only": (_read_only, ("read-only", "Read-only", "error", "Input/output")),
    "is unplugged": (_unplug, ("gone", "not there", "unmounted", "another", "directory")),
    "fails": (lambda disks: disks.fail(0, "all"), ("error", "Read-only")),
    "fails all writes": (lambda disks: disks.fail(0, "writes"), ("error", "Read-only")),
}


@pytest.mark.limit(120)
@pytest.mark.parametrize("fault", FAULTS)
def test_one_of_two_disks(new_mount, fault):
    """Under load one disk fails: puts and reads go on, no wrong byte is read, only frames of that disk are lost;
    status names it and the reason; with the disk mended the next start is clean."""
    happens, words = FAULTS[fault]
    with FaultDisks(1, DISK_MIB, "errors=remount-ro") as disks:
        m, folders = _start(new_mount, disks, ("128M", "128M"))
        try:
            with Writers(m.path) as writers:
                wait_for(lambda: _disk(m, 0)["objects"] > 10, env.scaled(20), "frames on the first disk")
                happens(disks)
                wait_for(lambda: _disk(m, 0)["state"] == "failed", env.scaled(10), "the disk is taken for failed")
                time.sleep(0.5)
            disk = _disk(m, 0)
            assert disk["path"] == folders[0]
            assert any(word in disk["reason"] for word in words), disk["reason"]
            assert _disk(m, 1)["state"] == "ok"
            assert m.tier("ssd")["failed_disks"] == 1
            assert writers.errors <= {0, errno.ENOENT, errno.EIO}
            writers.check(may_be_lost=lambda i: True)
            _goes_on(m)
            m.signal(signal.SIGTERM)
            m.wait_end()
            disks.mend(0)
            m.remount()
            assert _disk(m, 0)["state"] == "ok", _disk(m, 0)
            writers.check(may_be_lost=lambda i: True)
            _goes_on(m)
            m.signal(signal.SIGTERM)
            m.wait_end()
            serious = crash.fsck(m.state, "--data")[1]
            assert not serious, serious
        finally:
            crash.end(m)


@pytest.mark.limit(120)
def test_the_only_disk(new_mount):
    """No disk is left: what is in DRAM is served and new files of class cache are written; an fsync says EIO."""
    with FaultDisks(1, DISK_MIB, "errors=remount-ro") as disks:
        m, _ = _start(new_mount, disks, ("128M",))
        try:
            with Writers(m.path) as writers:
                wait_for(lambda: _disk(m, 0)["objects"] > 10, env.scaled(20), "frames on the disk")
                disks.fail(0, "all")
                wait_for(lambda: _disk(m, 0)["state"] == "failed", env.scaled(10), "the disk is taken for failed")
                time.sleep(0.5)
            assert writers.errors <= {0, errno.ENOENT, errno.EIO, errno.ENOSPC}
            _goes_on(m, keep=False)
            with pytest.raises(OSError) as e, open(os.path.join(m.path, "c", "x"), "wb") as f:
                f.write(b"x")
                f.flush()
                os.fsync(f.fileno())
            assert e.value.errno == errno.EIO
        finally:
            crash.end(m)


@pytest.mark.limit(120)
def test_a_disk_that_others_fill_up(new_mount):
    """The file system is full below the budget: the budget shrinks, the other disk takes what comes, and it grows
    back when there is room."""
    with FaultDisks(1, DISK_MIB) as disks:
        m, _ = _start(new_mount, disks, ("128M", "128M"))
        try:
            with Writers(m.path) as writers:
                wait_for(lambda: _disk(m, 0)["objects"] > 10, env.scaled(20), "frames on the first disk")
                filler = os.path.join(disks.paths[0], "filler")
                subprocess.run(["dd", "if=/dev/zero", f"of={filler}", "bs=1M"], capture_output=True)
                wait_for(lambda: _disk(m, 0)["budget_bytes"] < 100 * MIB, env.scaled(20), "the budget shrinks")
                time.sleep(0.5)
            disk = _disk(m, 0)
            assert disk["state"] == "ok" and disk["wanted_bytes"] == 128 * MIB
            assert writers.errors <= {0, errno.ENOENT}
            # The copy that met the full disk makes room once before it goes to the other one.
            lost = writers.check(may_be_lost=lambda i: i % 7)
            assert len(lost) <= m.counter("evicted_names") <= 8
            os.unlink(filler)
            wait_for(lambda: _disk(m, 0)["budget_bytes"] == 128 * MIB, env.scaled(15), "the budget grows back")
            _goes_on(m)
        finally:
            crash.end(m)


@pytest.mark.limit(120)
def test_frames_that_cannot_be_read(new_mount):
    """Reads of the medium fail: each object that was there alone is a miss or EIO, none shows other bytes, and
    eight of them fail the disk."""
    with FaultDisks(1, DISK_MIB) as disks:
        m, folders = _start(new_mount, disks, ("128M", "128M"))
        try:
            with Writers(m.path) as writers:
                wait_for(lambda: _disk(m, 0)["objects"] > 30, env.scaled(20), "frames on the first disk")
            m.kill9()
            sync(disks.paths[0])
            for where in m.dram_mounts():
                crash.check_run("umount", "-l", where)
            disks.mend(0)  # nothing of it is in the page cache now
            m.remount()
            disks.fail(0, "reads")
            lost = writers.check(may_be_lost=lambda i: True)
            assert len(lost) >= 8
            assert _disk(m, 0)["errors"] >= 8 and _disk(m, 0)["state"] == "failed"
            assert _disk(m, 1)["state"] == "ok"
            _goes_on(m)
        finally:
            crash.end(m)


@pytest.mark.limit(60)
def test_fsck_knows_the_frames_of_each_disk(new_mount):
    """Files of class keep on two disks, DRAM gone: fsck finds nothing, by the list of disks and by --ssd, and
    its repair removes nothing."""
    m = new_mount(dram="32M")
    folders = [os.path.join(m.base, f"disk{k}") for k in range(2)]
    m.options["ssd"] = ",ssd=".join(f"{folder}:64M" for folder in folders)
    m.start()
    os.mkdir(os.path.join(m.path, "weights"))
    for i in range(20):
        put(os.path.join(m.path, "weights", f"f{i}"), pattern(i, 100 * KIB))
    assert all(_disk(m, k)["objects"] for k in range(2))
    m.stop()
    crash.fsck_after_stop(m.state)
    for args in ((), ("--repair",)):
        code, serious, found = crash.fsck(m.state, "--data", "--ssd", folders[0], "--ssd", folders[1], *args)
        assert code == 0 and not found["findings"] and found["checked_bytes"] == 2000 * KIB
    m.start()
    for i in range(20):
        assert get(os.path.join(m.path, "weights", f"f{i}")) == pattern(i, 100 * KIB)
