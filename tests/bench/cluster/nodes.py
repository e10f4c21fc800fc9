# SPDX-License-Identifier: Apache-2.0
"""What runs on the nodes: the directory's server, daemons, iperf3; and how much CPU time they have used."""
import json
import os
import secrets
import shutil
import subprocess
import time

from .net import Missing, run

START_S = 15


def wait_until(condition, what, limit_s=START_S):
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"{what}: not within {limit_s} s")
        time.sleep(0.02)


def cpu_s(pid):
    """User and system time of a process, all its threads; see clock_getcpuclockid(3)."""
    return time.clock_gettime(((~pid) << 3) | 2)


class Process:
    def __init__(self, namespace, args, log):
        with open(log, "ab") as out:
            self.child = subprocess.Popen([*namespace.prefix(), *map(str, args)], stdin=subprocess.DEVNULL, stdout=out,
                                          stderr=out, start_new_session=True)
        self.pid = self.child.pid  # nsenter becomes the program

    def is_running(self):
        return self.child.poll() is None

    def end(self):
        if self.is_running():
            self.child.terminate()
            try:
                self.child.wait(20)
            except subprocess.TimeoutExpired:
                self.child.kill()
        self.child.wait()


class Server(Process):
    """Valkey or Redis, in memory only; asked over a unix socket, which every network reaches."""

    def __init__(self, namespace, address, top):
        program = shutil.which("valkey-server") or shutil.which("redis-server")
        self.cli = shutil.which("valkey-cli") or shutil.which("redis-cli")
        if not program or not self.cli:
            raise Missing("valkey-server or redis-server, with its client, is not installed")
        self.address, self.socket = address, f"{top}/directory.sock"
        super().__init__(namespace, [program, "--bind", address, "--port", 6379, "--protected-mode", "no", "--save", "",
                                     "--appendonly", "no", "--dir", top, "--unixsocket", self.socket],
                         f"{top}/directory.log")
        wait_until(lambda: os.path.exists(self.socket), "the directory's server")

    def ask(self, *args):
        return run(self.cli, "-s", self.socket, *args)

    def used_bytes(self):
        return int(next(line for line in self.ask("INFO", "memory").splitlines()
                        if line.startswith("used_memory:")).split(":")[1])

    def n_names(self):
        """Fields of all buckets of names."""
        return int(self.ask("EVAL", "local n = 0 for _, k in ipairs(redis.call('KEYS', '*:d:*')) do "
                            "n = n + redis.call('HLEN', k) end return n", "0"))


class Daemon(Process):
    """One node: its mount is .mnt."""

    def __init__(self, build, namespace, device, name, server, dram_bytes, top):
        self.mnt, self.log = f"{top}/{name}", f"{top}/{name}.log"
        os.makedirs(self.mnt, exist_ok=True)
        key = f"{top}/key"
        if not os.path.exists(key):
            with open(os.open(key, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as out:
                out.write(secrets.token_hex(32) + "\n")
        options = [f"node={name}", f"dram={dram_bytes}", f"state={top}/state-{name}", f"log={self.log}",
                   f"listen={namespace.addresses[device]}:7400", f"key={key}",
                   f"directory=redis://{server.address}:6379"]
        super().__init__(namespace, [f"{build}/bin/mooncakefs", "-f", "-o", ",".join(options), self.mnt],
                         f"{top}/{name}.out")
        try:
            wait_until(lambda: not self.is_running() or os.path.exists(f"{self.mnt}/.mooncake/status.json"), name)
            if not self.is_running():
                raise RuntimeError("it ended")
        except RuntimeError as e:
            raise RuntimeError(f"mooncakefs of node {name}: {e}: {self.last_words()}") from e

    def last_words(self):
        text = ""
        for path in self.log, self.log[:-3] + "out":
            if os.path.exists(path):
                with open(path, encoding="utf-8", errors="replace") as lines:
                    text += "".join(lines.readlines()[-10:])
        return text

    def end(self):
        """Its frames go as well: an umount is a clean end, after SIGTERM they would stay."""
        if os.path.ismount(self.mnt):
            subprocess.run(["umount", self.mnt], capture_output=True, check=False)
        try:
            self.child.wait(20)
        except subprocess.TimeoutExpired:
            subprocess.run(["umount", "-l", self.mnt], capture_output=True, check=False)
        super().end()


class Cluster:
    """The server and daemons on the first namespaces, by one kind of device. A context."""

    def __init__(self, bench, device, n_nodes, dram_bytes):
        self.processes, self.nodes = [], []
        namespaces = bench.net.nodes[:n_nodes]
        top = f"{bench.top}/{device}-{n_nodes}"
        os.makedirs(top)
        try:
            self.server = self._add(Server(namespaces[0], namespaces[0].addresses[device], top))
            for k, namespace in enumerate(namespaces):
                self.nodes.append(self._add(Daemon(bench.build, namespace, device, "abcd"[k], self.server, dram_bytes,
                                                   top)))
            wait_until(lambda: all(self._sees_all(n) for n in self.nodes), "a cluster of all nodes")
        except BaseException:
            self.end()
            raise

    def _add(self, process):
        self.processes.append(process)
        return process

    def _sees_all(self, node):
        with open(f"{node.mnt}/.mooncake/status.json", encoding="utf-8") as status:
            nodes = json.load(status).get("cluster", {}).get("nodes", [])
        return len(nodes) >= len(self.nodes)

    def cpu_s(self):
        return sum(cpu_s(n.pid) for n in self.nodes)

    def end(self):
        for process in reversed(self.processes):
            process.end()
        self.processes = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


class Iperf:
    """An iperf3 server on one namespace, asked from another. A context."""

    def __init__(self, sender, receiver, device, top):
        if not shutil.which("iperf3"):
            raise Missing("iperf3 is not installed")
        self.sender, self.address = sender, receiver.addresses[device]
        self.server = Process(receiver, ["iperf3", "-s", "-B", self.address], f"{top}/iperf3.log")
        time.sleep(0.3)

    def measure(self, n_bytes, n_streams):
        """Bytes per second as received, and CPU seconds per byte of both ends."""
        out = json.loads(self.sender.run("iperf3", "-J", "-c", self.address, "-n", n_bytes, "-P", n_streams,
                                         timeout=120))["end"]
        got, used = out["sum_received"], out["cpu_utilization_percent"]
        cpu = (used["host_total"] + used["remote_total"]) / 100 * got["seconds"]
        return got["bytes"] / got["seconds"], cpu / got["bytes"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.end()
