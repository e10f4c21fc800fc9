# SPDX-License-Identifier: Apache-2.0
"""Network namespaces: a pair with one veth between, and a hub that all nodes hang on.

Only the network is another one in them: nsenter keeps the mounts where they are, so one process sees the files of all
nodes. What runs in a namespace is ended with it.
"""
import json
import os
import signal
import subprocess
import time


class Missing(Exception):
    """Something that a row needs is not on this machine."""


def run(*args, **kwargs):
    done = subprocess.run([str(a) for a in args], capture_output=True, text=True, **kwargs)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, args))}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


class Namespace:
    """One node's network. addresses: of its devices "pair" and "lan"."""

    def __init__(self, name):
        self.name, self.addresses = name, {}
        run("ip", "netns", "add", name)
        self.ip("link", "set", "lo", "up")

    def prefix(self):
        return ["nsenter", f"--net=/run/netns/{self.name}"]

    def run(self, *args, **kwargs):
        return run(*self.prefix(), *args, **kwargs)

    def ip(self, *args):
        return run("ip", "-n", self.name, *args)

    def up(self, device, address=None):
        if address:
            self.ip("address", "add", f"{address}/24", "dev", device)
            self.addresses[device] = address
        self.ip("link", "set", device, "up")

    def shape(self, device, *qdisc):
        """One queueing discipline for what leaves by the device; none: as it came."""
        subprocess.run([*self.prefix(), "tc", "qdisc", "del", "dev", device, "root"], capture_output=True, check=False)
        if qdisc:
            try:
                self.run("tc", "qdisc", "add", "dev", device, "root", *qdisc)
            except RuntimeError as e:
                raise Missing(f"this kernel cannot shape: {e}") from e

    def sent_bytes(self, device):
        return json.loads(self.ip("-j", "-s", "link", "show", "dev", device))[0]["stats64"]["tx"]["bytes"]

    def pids(self):
        return [int(p) for p in run("ip", "netns", "pids", self.name).split()]

    def delete(self):
        """Whoever is still in it is killed first."""
        for _ in range(100):
            pids = self.pids()
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            if not pids:
                break
            time.sleep(0.02)
        run("ip", "netns", "delete", self.name)


class Net:
    """The namespaces of four nodes, a to d, and of the hub. a and b also have the pair."""

    def __init__(self, prefix):
        self.all = []
        try:
            self.nodes = [self._add(prefix + n) for n in "abcd"]
            self._connect_pair(*self.nodes[:2])
            self._connect_hub(self._add(prefix + "h"))
        except BaseException:
            self.delete()
            raise

    def _add(self, name):
        ns = Namespace(name)
        self.all.append(ns)
        return ns

    @staticmethod
    def _connect_pair(a, b):
        a.ip("link", "add", "pair", "type", "veth", "peer", "name", "pair", "netns", b.name)
        a.up("pair", "10.97.1.1")
        b.up("pair", "10.97.1.2")

    def _connect_hub(self, hub):
        hub.ip("link", "add", "name", "bridge0", "type", "bridge")
        hub.up("bridge0")
        for k, node in enumerate(self.nodes):
            node.ip("link", "add", "lan", "type", "veth", "peer", "name", f"port{k}", "netns", hub.name)
            hub.ip("link", "set", f"port{k}", "master", "bridge0")
            hub.up(f"port{k}")
            node.up("lan", f"10.97.2.{k + 1}")

    def delete(self):
        for ns in self.all:
            try:
                ns.delete()
            except RuntimeError as e:
                print(f"bench: {e}", flush=True)
        self.all = []
