# SPDX-License-Identifier: Apache-2.0
"""Nodes that share a directory server, all on this host.

    with Cluster() as (a, b, c): put(a.at("f"), b"x")

Node     a Mount that is a member: its options say who it is and where the directory is
Cluster  a server and n nodes, from start to stop; what a test does to one of them, heal() undoes

MCFS_CLUSTER_HOST  the loopback address of nodes and server, [::1] for example (default 127.0.0.1)
"""
import os
import re
import shutil
import signal
import threading
import time

from . import env
from .content import peek, put, wait_for, xattr
from .mount import Mount
from .redis import RedisServer, free_port

HOST = os.environ.get("MCFS_CLUSTER_HOST") or "127.0.0.1"
FORM_SECONDS = 15


def seconds_until(condition, seconds, what):
    """How long it takes until condition() is true: at most seconds, for this machine and build."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < env.scaled(seconds), f"not within {env.scaled(seconds):g} s: {what}"
        time.sleep(0.0005)
    return time.monotonic() - began


def in_threads(n, work):
    """Runs work(0) to work(n - 1) at once; the first failure is raised."""
    failures = []

    def run(i):
        try:
            work(i)
        except BaseException as e:  # raised below, whatever it is
            failures.append(e)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failures:
        raise failures[0]


def seconds_of(call, *args):
    """How long a call takes that must succeed."""
    began = time.monotonic()
    call(*args)
    return time.monotonic() - began


def try_peek(path):
    try:
        return peek(path)
    except OSError:
        return None


def timed(call, *args):
    """(seconds, result) of a call; an OSError is a result."""
    began = time.monotonic()
    try:
        result = call(*args)
    except OSError as e:
        result = e
    return time.monotonic() - began, result


def holders(path):
    """Names of the nodes that hold an object, as the mount of this path says."""
    return set(re.split(r"[\s,]+", xattr(path, "holders"))) - {""}


def write_key(path, digits=None, mode=0o600):
    """A key file. Returns its path."""
    with open(path, "w") as f:
        f.write((os.urandom(32).hex() if digits is None else digits) + "\n")
    os.chmod(path, mode)
    return path


class Node(Mount):
    def __init__(self, name, **more):
        super().__init__(node=name, **more)
        self.name = name
        self.is_paused = False

    def at(self, *parts):
        """The full path of a name of the shared tree."""
        return os.path.join(self.path, *parts)

    # ---- what it says ----

    def cluster(self):
        status = self.status()
        assert "cluster" in status, "status.json tells nothing of a cluster"
        return status["cluster"]

    @property
    def address(self):
        """Where its peer endpoint listens."""
        return self.cluster()["address"]

    def node_names(self):
        """Names of the nodes whose leases hold, as it knows them."""
        return sorted(n["name"] for n in self.cluster()["nodes"])

    def peer(self, name):
        """What it says of a peer; None when it knows none of that name."""
        return next((p for p in self.cluster()["peers"] if p["name"] == name), None)

    def rx_bytes(self):
        """Bytes that it has read from peers since its start."""
        return sum(p.get("rx_bytes", 0) for p in self.cluster()["peers"])

    def sockets(self):
        """How many sockets its daemon has open."""
        n = 0
        for fd in os.listdir(f"/proc/{self.pid}/fd"):
            try:
                n += os.readlink(f"/proc/{self.pid}/fd/{fd}").startswith("socket:")
            except FileNotFoundError:
                pass
        return n

    # ---- what happens to it ----

    def pause(self):
        """SIGSTOP: connections and lease stay for a while, answers do not come."""
        self.signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self):
        if self.is_paused and self.is_up:
            self.signal(signal.SIGCONT)
        self.is_paused = False

    def kill9(self):
        super().kill9()
        self.is_paused = False

    def same_port(self):
        """From the next start on it listens where it listens now."""
        self.options["listen"] = self.address
        return self

    def behind(self, relay):
        """From the next start on others reach it through a relay."""
        host = relay.address.rsplit(":", 1)[0]
        self.options.update(listen=f"{host}:{free_port(host)}", advertise=relay.address)
        relay.to(self.options["listen"])
        return self

    def forget_all(self):
        """Of a daemon that is gone: its bytes, its catalog and its node id are gone too."""
        self.umount_lazy()
        self.lose_dram()
        shutil.rmtree(self.state)

    def destroy(self):
        self.resume()
        return super().destroy()


class Cluster:
    def __init__(self, n=3, host=HOST, server=None, names="abcdefghijklmnopqrstuvwxyz", **options):
        """options are those of every node. server: a RedisServer that others use as well."""
        self.host = host
        self.server = server or RedisServer(host)
        self.owns_server = server is None
        self.options = options
        self.names = names
        self.nodes = []
        self.n_healed = 0
        for _ in range(n):
            self.add()

    def add(self, name=None, **options):
        """One more node, not started."""
        name = name or self.names[len(self.nodes)]
        self.nodes.append(self._make_node(name, **{**self.options, **options}))
        return self.nodes[-1]

    def _make_node(self, name, **options):
        return Node(name, **{"listen": f"{self.host}:0", "transport": "tcp", **options})

    def __iter__(self):
        return iter(self.nodes)

    def __getitem__(self, i):
        return self.nodes[i]

    def __enter__(self):
        return self.start()

    def __exit__(self, *exc):
        problems = self.destroy()
        assert exc[0] or not problems, "\n".join(problems)

    # ---- life ----

    def start(self):
        """Server and nodes, all at once; returns when every node knows every other."""
        if not self.server.is_up:
            self.server.start()
        for node in self.nodes:
            if node.options.get("directory") is None:
                node.options["directory"] = self.server.url
        in_threads(len(self.nodes), lambda k: self.nodes[k].is_up or self.nodes[k].start())
        self.wait_formed()
        return self

    def is_formed(self):
        """Every node knows every other, as it lives now."""
        said = [node.cluster() for node in self.nodes if node.is_up and not node.is_paused]
        ids = {c["node"] for c in said}
        return all(c["directory"]["up"] and ids <= {n["node"] for n in c["nodes"]} for c in said)

    def wait_formed(self, seconds=FORM_SECONDS):
        wait_for(self.is_formed, env.scaled(seconds), "every node knows every other")

    def heal(self):
        """Everything that was stopped, killed or paused works again."""
        self.server.resume()
        if not self.server.is_up:
            self.server.start()
        for node in self.nodes:
            node.resume()
            if not node.is_up:
                node.remount()
        self.wait_formed()
        self._wait_reachable()

    def _wait_reachable(self):
        """Every node reads from every other: none takes one for dead any more."""
        self.n_healed += 1
        for node in self.nodes:
            name = f"healed.{self.n_healed}.{node.name}"
            put(node.at(name), name.encode())
            for other in self.nodes:
                seconds_until(lambda o=other: try_peek(o.at(name)) == name.encode(), FORM_SECONDS,
                              f"node {other.name} reads from {node.name}")
            os.unlink(node.at(name))

    @property
    def is_whole(self):
        return self.server.is_up and all(node.is_up for node in self.nodes)

    def destroy(self):
        """Ends everything. Returns the problems."""
        self.server.resume()
        problems = []
        for node in self.nodes:
            problems += [f"node {node.name}: {p}" for p in node.destroy()]
        if self.owns_server:
            self.server.destroy()
        return problems

    def check(self):
        """Problems of all nodes since the last check."""
        problems = []
        for node in self.nodes:
            node.check()
            problems += [f"node {node.name}: {p}" for p in node.problems]
            node.problems = []
        return problems

    # ---- what is true on every node ----

    def expect_errors(self, pattern):
        for node in self.nodes:
            node.expect_errors(pattern)

    def wait_everywhere(self, path, data, seconds=5):
        """Waits until path reads as data (None: there is none) on every node that is up."""
        for node in self.nodes:
            if node.is_up and not node.is_paused:
                seconds_until(lambda n=node: peek(n.at(path)) == data, seconds, f"{path} on node {node.name}")

    def make_dir(self, path):
        """A directory and its parents, made on the first node and known on all. Returns path."""
        os.makedirs(self.nodes[0].at(path))
        for node in self.nodes:
            seconds_until(lambda n=node: os.path.isdir(n.at(path)), 5, f"{path} on node {node.name}")
        return path
