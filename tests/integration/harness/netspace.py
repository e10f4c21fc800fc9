# SPDX-License-Identifier: Apache-2.0
"""A network of the test's own: a namespace per node, joined by a bridge in one more.

Nothing of the host's network is touched. A node in namespace i has 10.77.0.<i>/24 and fd77::<i>/64 on eth0; its
cable ends in the hub's port p<i>. The mount namespace stays the host's (nsenter, not `ip netns exec`), so that mounts
are seen.

NetSpace    the namespaces, and what can be done to their cables
NetCluster  a Cluster whose nodes and server live in them; it has a key, because no address is a loopback one
"""
import json
import os
import re
import subprocess
import sys

import pytest

from . import env
from .cluster import Cluster, Node, write_key
from .redis import RedisServer

NOWHERE = "02:00:00:00:00:ee"  # the bridge floods what goes there; nobody takes it


def _run(*argv):
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          timeout=env.scaled(20))
    return done.returncode, (done.stderr or done.stdout).strip()


def _check(*argv):
    code, said = _run(*argv)
    assert code == 0, f"{' '.join(map(str, argv))}: exit {code}: {said}"


def _namespaces():
    return sorted(os.listdir("/run/netns")) if os.path.isdir("/run/netns") else []


def _remove(name):
    for pid in subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split():
        try:
            os.kill(int(pid), 9)
        except OSError:
            pass
    _run("ip", "netns", "del", name)


def _sweep():
    """Removes what test runs left behind that were killed."""
    for name in _namespaces():
        owner = re.fullmatch(r"mcfs-(\d+)-\d+-\w+", name)
        if owner and not os.path.exists(f"/proc/{owner[1]}"):
            _remove(name)


class NetSpace:
    _n_made = 0

    def __init__(self, n):
        """n namespaces, 1 to n."""
        env.require_tool("ip", "tc", "nsenter")
        _sweep()
        NetSpace._n_made += 1
        self.stem = f"mcfs-{os.getpid()}-{NetSpace._n_made}-"
        self.n = n
        try:
            self._build()
        except AssertionError as e:
            self.destroy()
            pytest.skip(f"needs network namespaces, veth and a bridge ({e})")
        except BaseException:
            self.destroy()
            raise

    def _build(self):
        _check("ip", "netns", "add", self.stem + "hub")
        self._hub("ip", "link", "add", "br0", "type", "bridge")
        self._hub("ip", "link", "set", "br0", "up")
        for i in range(1, self.n + 1):
            _check("ip", "netns", "add", self._name(i))
            self._hub("ip", "link", "add", "name", f"p{i}", "type", "veth", "peer", "name", "eth0",
                      "netns", self._name(i))
            self._hub("ip", "link", "set", f"p{i}", "master", "br0", "up")
            self.inside(i, "ip", "link", "set", "lo", "up")
            self.inside(i, "ip", "link", "set", "eth0", "up")
            self.inside(i, "ip", "address", "add", self.ipv4(i) + "/24", "dev", "eth0")
            self.inside(i, "ip", "address", "add", self.ipv6(i) + "/64", "dev", "eth0", "nodad")

    def _name(self, i):
        return f"{self.stem}{i}"

    @staticmethod
    def ipv4(i):
        return f"10.77.0.{i}"

    @staticmethod
    def ipv6(i):
        return f"fd77::{i}"

    def prefix(self, i):
        """What to put before a program's arguments to have it run in namespace i."""
        return ["nsenter", f"--net=/run/netns/{self._name(i)}", "--"]

    def inside(self, i, *argv):
        _check(*self.prefix(i), *argv)

    def _hub(self, *argv):
        _check("nsenter", f"--net=/run/netns/{self.stem}hub", "--", *argv)

    def destroy(self):
        for name in _namespaces():
            if name.startswith(self.stem):
                _remove(name)

    # ---- faults ----

    def _to(self, i, k, mac):
        for ip in (self.ipv4(k), self.ipv6(k)):
            how = ["replace", ip, "lladdr", mac, "nud", "permanent"] if mac else ["del", ip]
            _run(*self.prefix(i), "ip", "neigh", *how, "dev", "eth0")

    def cut_one_way(self, i, k):
        """What i sends to k is lost; what k sends to i arrives."""
        self._to(i, k, NOWHERE)

    def cut(self, i, k):
        """Nothing passes between i and k; no one is told."""
        self.cut_one_way(i, k)
        self.cut_one_way(k, i)

    def join(self, i, k):
        """Ends a cut."""
        self._to(i, k, None)
        self._to(k, i, None)

    def unplug(self, i):
        """Nothing passes between i and anybody."""
        self._hub("ip", "link", "set", f"p{i}", "nomaster")

    def plug(self, i):
        self._hub("ip", "link", "set", f"p{i}", "master", "br0")

    def shape(self, i, rate):
        """What i sends and gets passes at rate, as tc(8) writes it: 1gbit."""
        limit = ["rate", rate, "burst", "512kb", "latency", "50ms"]
        self.inside(i, "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", *limit)
        self._hub("tc", "qdisc", "replace", "dev", f"p{i}", "root", "tbf", *limit)

    def netem(self, i, *how):
        """What i sends: netem("delay", "20ms", "reorder", "25%"). Skips the test where the kernel has no netem."""
        code, said = _run(*self.prefix(i), "tc", "qdisc", "replace", "dev", "eth0", "root", "netem", *how)
        if code != 0:
            pytest.skip(f"needs the kernel's netem ({said.splitlines()[0] if said else code})")

    def lose(self, i, share):
        """That share of the packets which i sends and gets is lost, by chance: a classifier that asks for a random
        number, where the kernel has no netem."""
        # ld #random; jge #share, pass; ret #TC_ACT_SHOT; pass: ret #TC_ACT_UNSPEC
        drop = f"4,32 0 0 4294963256,53 1 0 {int(share * (1 << 32))},6 0 0 2,6 0 0 4294967295"
        _run(*self.prefix(i), "tc", "qdisc", "add", "dev", "eth0", "clsact")
        for way in ("ingress", "egress"):
            code, said = _run(*self.prefix(i), "tc", "filter", "add", "dev", "eth0", way, "bpf", "bytecode", drop,
                              "direct-action")
            if code != 0:
                pytest.skip(f"needs the classifier bpf ({said.splitlines()[0] if said else code})")

    def calm(self, i):
        """Ends shape, netem and lose."""
        for kind in ("root", "clsact"):
            _run(*self.prefix(i), "tc", "qdisc", "del", "dev", "eth0", kind)
        _run("nsenter", f"--net=/run/netns/{self.stem}hub", "--", "tc", "qdisc", "del", "dev", f"p{i}", "root")

    def loss_seen(self, i, k, n=200):
        """The share of n small datagrams from i to k that did not arrive."""
        listen = ("import socket, sys; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
                  "s.bind((sys.argv[1], 9))\n"
                  "s.settimeout(1); n = 0; print('ready', flush=True)\n"
                  "try:\n while s.recv(64): n += 1\nexcept OSError: print(n)")
        send = ("import socket, sys, time; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
                "for _ in range(int(sys.argv[2])): s.sendto(b'x', (sys.argv[1], 9)); time.sleep(0.0005)")
        taker = subprocess.Popen([*self.prefix(k), sys.executable, "-c", listen, self.ipv4(k)], stdout=subprocess.PIPE,
                                 text=True)
        taker.stdout.readline()
        self.inside(i, sys.executable, "-c", send, self.ipv4(k), n)
        return 1 - int(taker.communicate()[0]) / n

    def bytes_sent(self, i):
        """By namespace i over its cable."""
        show = ["ip", "-j", "-s", "link", "show", "eth0"]
        out = subprocess.run([*self.prefix(i), *show], capture_output=True, text=True, check=True).stdout
        return json.loads(out)[0]["stats64"]["tx"]["bytes"]


class NetCluster(Cluster):
    def __init__(self, n=3, ipv6=False, **options):
        """Nodes in namespaces 1 to n, the server in n + 1."""
        self.net = NetSpace(n + 1)
        self.ipv6 = ipv6
        host = f"[{self.net.ipv6(n + 1)}]" if ipv6 else self.net.ipv4(n + 1)
        try:
            server = RedisServer(host, prefix=self.net.prefix(n + 1))
            self.key = write_key(os.path.join(server.base, "key"))
            super().__init__(n, host=host, server=server, **options)
        except BaseException:
            self.net.destroy()
            raise
        self.owns_server = True

    def _make_node(self, name, **options):
        i = len(self.nodes) + 1
        host = f"[{self.net.ipv6(i)}]" if self.ipv6 else self.net.ipv4(i)
        return Node(name, prefix=self.net.prefix(i),
                    **{"listen": f"{host}:0", "transport": "tcp", "key": self.key, **options})

    def destroy(self):
        try:
            return super().destroy()
        finally:
            self.net.destroy()
