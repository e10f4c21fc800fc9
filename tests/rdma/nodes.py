# SPDX-License-Identifier: Apache-2.0
"""Nodes on an RDMA device: what they say of it, and files that are read while something happens to them."""
import os
import subprocess
import time

from harness import env
from harness.cluster import Cluster, Node, try_peek, seconds_until, timed
from harness.cluster_lab import GONE
from harness.content import exists, pattern, put

MIB = env.MIB
HOSTS = (os.environ.get("MCFS_TEST_HOST", ""), "10.99.0.2")


class RdmaNode(Node):
    def pulled(self):
        """Bytes that it has read out of peers' memory since its start."""
        return sum(p["pulled_bytes"] for p in self.cluster()["peers"])

    def served(self):
        """Bytes that its threads have sent to peers."""
        return self.counter("served_bytes")

    def registrations(self):
        return self.tier()["registered"]["registrations"]


class RdmaCluster(Cluster):
    """Nodes in turn on the addresses of the device."""

    def __init__(self, n, **options):
        self.n_waits = 0
        super().__init__(n, host=HOSTS[0], **options)

    def _make_node(self, name, **options):
        host = HOSTS[len(self.nodes) % len(HOSTS)]
        return RdmaNode(name, **{"listen": f"{host}:0", "transport": "auto", **options})

    def wait_pulls(self):
        """The second node reads the first one's memory: after what went wrong it may leave it alone for a while."""
        a, b = self.nodes[:2]

        def is_pulled():
            self.n_waits += 1
            name, before = f"pulls.{self.n_waits}", b.pulled()
            put_seen(name, bytes(256 * env.KIB), a, b)
            try_peek(b.at(name))
            os.unlink(a.at(name))
            return b.pulled() > before

        seconds_until(is_pulled, 20, "RDMA works (again)")


class Device:
    """A software device. Linux keeps one that is removed until those who have it open end."""

    def __init__(self, name):
        self.name = name
        self.removal = None
        with open(f"/sys/class/infiniband/{name}/parent") as f:
            self.netdev = f.read().strip()

    def remove(self):
        self.removal = subprocess.Popen(["rdma", "link", "delete", self.name])

    def come_back(self):
        """After the daemons' end."""
        assert self.removal.wait(env.scaled(10)) == 0
        self.removal = None
        subprocess.run(["rdma", "link", "add", self.name, "type", "rxe", "netdev", self.netdev], check=True)


def large(seed, n_mib):
    """So many MiB, no two alike, of any seed; made faster than pattern()."""
    rest = pattern(seed, MIB - 8)
    return b"".join((seed << 32 | k).to_bytes(8, "little") + rest for k in range(n_mib))


def put_seen(name, data, at, *on):
    """Writes name on one node and waits until the others see it."""
    put(at.at(name), data)
    for n in on:
        seconds_until(lambda n=n: exists(n.at(name)), 5, f"{name} on {n.name}")


class HalfRead:
    """A file that was opened on a node, and the first MiB read: the rest is on its way.

        with HalfRead(node, name, data) as half: something happens; half.finish(...)
    """

    def __init__(self, node, name, data):
        self.data = data
        self.fd = os.open(node.at(name), os.O_RDONLY)

    def __enter__(self):
        assert os.pread(self.fd, MIB, 0) == self.data[:MIB]
        return self

    def __exit__(self, *exc):
        os.close(self.fd)

    def finish(self, seconds):
        """Reads all of it, each MiB within so many seconds: its bytes or an error. How many are right, of all."""
        n, n_right, longest, began = 0, 0, 0, time.monotonic()
        for at in range(0, len(self.data), MIB):
            took, got = timed(os.pread, self.fd, MIB, at)
            longest = max(longest, took)
            assert took < env.scaled(seconds)
            if isinstance(got, OSError):
                assert got.errno in GONE, got
            else:
                assert got == self.data[at:at + MIB], f"wrong bytes at {at}"
                n_right += 1
            n += 1
        print(f"{n_right} of {n} MiB are right, {time.monotonic() - began:.2f} s, longest wait {longest:.2f} s")
        return n_right, n
