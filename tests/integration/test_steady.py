# SPDX-License-Identifier: Apache-2.0
"""A mount that works for a long time takes no more of anything at the end than early on.

MCFS_MINUTES  how long (default: some seconds, which only shows that the load runs)
"""
import itertools
import os
import resource
import signal
import subprocess
import sys
import threading
import time

import pytest

from harness import env
from harness.content import get, pattern, put
from harness.ctl import check_ctl
from harness.progs import check_prog
from harness.session_lab import links

pytestmark = [pytest.mark.mooncake, pytest.mark.one_mode, pytest.mark.no_asan]
MIB = env.MIB
SECONDS = 60 * float(os.environ.get("MCFS_MINUTES") or 0.1)
IS_LONG = SECONDS >= 180
SLABS = ("fuse_inode", "fuse_request", "shmem_inode_cache")

KILLED_WRITER = """
import os, sys
with open(sys.argv[1], "wb") as f:
    f.write(bytes(1 << 20))
    f.flush()
    print("writing", flush=True)
    sys.stdin.read()
"""

# Samples of which one looks at the slab: it costs all their cached names.
SLAB_EVERY = 6


def slab_bytes():
    """Kernel memory in objects of the caches that only mounts and their frames use; of the whole machine. First the
    kernel gives back what it may: names that are gone keep their inodes until it needs the memory."""
    with open("/proc/sys/vm/drop_caches", "w") as f:
        f.write("2")
    total = 0
    with open("/proc/slabinfo") as f:
        for line in f:
            name, *rest = line.split()
            if name in SLABS:
                total += int(rest[0]) * int(rest[2])  # active objects * size
    return total


def sample(m, with_slab):
    """What the daemon has. Frames are kept open for their next use: as many as its tables hold, a share of the limit."""
    with open(f"/proc/{m.pid}/status") as f:
        status = dict(line.split(":", 1) for line in f)
    targets = list(links(f"/proc/{m.pid}/fd"))
    n_frames = sum(t.startswith(os.path.join(m.state, "dram") + "/") for t in targets)
    assert n_frames <= resource.prlimit(m.pid, resource.RLIMIT_NOFILE)[0] // 2
    # RssShmem is the clients' buffers while they are registered.
    return {"anonymous": int(status["RssAnon"].split()[0]) * 1024, "threads": int(status["Threads"]),
            "fds": len(targets) - n_frames, "frame_fds": n_frames, "slab": slab_bytes() if with_slab else 0}


class Work:
    """Threads that do their part again and again until the time is over; the first failure ends all."""

    def __init__(self, seconds):
        self.deadline = time.monotonic() + seconds
        self.failures = []
        self.rounds = {}
        self.threads = []

    def left(self):
        return self.deadline - time.monotonic()

    def add(self, part, *args):
        def loop():
            try:
                for n in itertools.count():
                    if self.left() <= 0 or self.failures:
                        break
                    part(n, *args)
                    self.rounds[part.__name__] = n + 1
            except BaseException as e:  # told by the test, whatever it is
                self.failures.append(f"{part.__name__}: {e!r}")
        self.threads.append(threading.Thread(target=loop))
        self.threads[-1].start()

    def join(self):
        for t in self.threads:
            t.join()


def churn(n, folder):
    """Small and large objects, new names for ever; old ones fall out of both tiers."""
    for k in range(40):
        put(os.path.join(folder, f"s{n}-{k}"), pattern(k, 4096))
    put(os.path.join(folder, f"l{n}"), pattern(n, 12 * MIB))
    assert get(os.path.join(folder, f"s{n}-39")) == pattern(39, 4096)
    if n >= 20:
        for name in [f"l{n - 20}"] + [f"s{n - 20}-{k}" for k in range(0, 40, 2)]:
            try:
                os.unlink(os.path.join(folder, name))
            except FileNotFoundError:
                pass  # evicted


def batches(n, m):
    """Sessions that come and go: each row of the bench opens one, with its buffers."""
    check_ctl("bench", "--op", ("read", "write", "lookup")[n % 3], "--seconds", "1", "--threads", "2",
              "--mount", m.path)


def killed_writers(n, folder):
    """A client that dies half-way, every second or so."""
    p = subprocess.Popen([sys.executable, "-c", KILLED_WRITER, os.path.join(folder, f"killed{n % 8}")],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    p.stdout.readline()
    p.send_signal(signal.SIGKILL)
    p.communicate()
    time.sleep(1)


def torture(n, m, work):
    folder = os.path.join(m.path, "torture", str(n))
    os.mkdir(folder)
    check_prog("torture_mount", folder, max(2, min(60, int(work.left()))), n + 1, timeout=180)
    for name in os.listdir(folder):
        os.unlink(os.path.join(folder, name))
    os.rmdir(folder)


def observers(_, m):
    """What a dashboard does."""
    get(m.control("metrics"))
    m.status()
    os.listdir(os.path.join(m.path, "churn"))
    time.sleep(0.5)


def flat(samples, key, slack_share, slack, of=max):
    """The highest (or lowest) of the last third against that of the second: caches have filled before that."""
    third = len(samples) // 3
    early = of(s[key] for s in samples[third:2 * third])
    late = of(s[key] for s in samples[2 * third:])
    print(f"{key}: first {samples[0][key]}, second third {of.__name__} {early}, last third {late}")
    return "" if late <= early * (1 + slack_share) + slack else f"{key} grew from {early} to {late}"


@pytest.mark.limit(120 + 2 * SECONDS)
def test_steady_under_load(new_mount):
    """Changes of every kind, churn through both tiers, sessions, killed clients and dashboards at once: memory,
    descriptors, threads and kernel memory are those of the time when its caches were full."""
    m = new_mount(dram="256M", writeback="always", max_objects=20000)
    m.options["ssd"] = os.path.join(m.base, "disk") + ":512M"
    m.start()
    for name in ("torture", "churn", "killed"):
        os.mkdir(os.path.join(m.path, name))
    work = Work(SECONDS)
    work.add(churn, os.path.join(m.path, "churn"))
    work.add(torture, m, work)
    work.add(killed_writers, os.path.join(m.path, "killed"))
    work.add(observers, m)
    if m.passthrough_live:
        work.add(batches, m)
    samples = []
    while work.left() > 0 and not work.failures:
        samples.append(sample(m, len(samples) % SLAB_EVERY == 0))
        time.sleep(min(5, max(0.1, SECONDS / 60)))
    work.join()
    assert not work.failures, work.failures
    print("rounds:", work.rounds)
    assert len(work.rounds) == len(work.threads), f"not every part ran: {work.rounds}"
    # Threads are made for requests that come at once: one that is lost is there when few come, too.
    problems = [flat(samples, "anonymous", 0.05, 8 * MIB), flat(samples, "fds", 0, 64),
                flat(samples, "threads", 0, 4, of=min), flat(samples, "slab", 0.1, 8 * MIB)]
    print("frames kept open:", max(s["frame_fds"] for s in samples))
    if IS_LONG:
        assert not any(problems), problems
