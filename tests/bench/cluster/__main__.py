# SPDX-License-Identifier: Apache-2.0
"""python3 -m cluster --build DIR --top DIR --json FILE --net PREFIX [--only JOB,...]

Makes the networks, starts nodes on them, does the jobs, and takes all away again, however it ends. --top is a folder
of ours for mounts, states and logs; --net: what the names of namespaces begin with. Exit status: 0 all ran (a missed bar is no failure), 1 something could not run.
"""
import argparse
import shutil
import signal
import subprocess
import sys

from . import jobs
from .net import Missing, Net
from .nodes import Cluster
from .report import Report

MIB, GIB = 1 << 20, 1 << 30
N_NAMES = 200000
TOOLS = "ip", "tc", "nsenter"


def available_bytes():
    with open("/proc/meminfo", encoding="ascii") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")) * 1024


class Bench:
    def __init__(self, args):
        self.build, self.top, self.only = args.build, args.top, args.only
        self.report, self.net, self.status, self.started = Report(), None, 0, []
        # Frames of all daemons of a job get half of what is there, no more than the largest job needs.
        self.left = available_bytes() // 2
        self.dram_bytes = 0

    def start(self, *args):
        self.started.append(subprocess.Popen([str(a) for a in args], stdout=subprocess.DEVNULL))
        return self.started[-1]

    def budget(self, n_nodes, wanted):
        self.dram_bytes = min(wanted, self.left // n_nodes) // MIB * MIB
        return self.dram_bytes

    def job(self, name, fn, *args, **kwargs):
        """One that cannot run leaves the others their turn."""
        if self.only and not any(name.startswith(o) for o in self.only):
            return
        try:
            fn(self, *args, **kwargs)
        except Missing as e:
            self.report.skip(name, e)
        except (OSError, RuntimeError, subprocess.SubprocessError) as e:
            self.report.skip(name, f"failed: {e}")
            self.status = 1

    def end(self):
        for child in self.started:
            if child.poll() is None:
                child.kill()
            child.wait()
        if self.net:
            self.net.delete()


def on_the_pair(bench):
    with Cluster(bench, "pair", 2, bench.budget(2, 5 * GIB // 2)) as cluster:
        objects = jobs.Objects(bench, cluster)
        common = {"cluster": cluster, "objects": objects}
        for mode, least, least_batch in (jobs.RATE, 0.90, 0.75), ("unshaped", None, None):
            bench.job("read_64m", jobs.throughput, mode=mode, job="read_64m", count=4, n_bytes=64 * MIB, rounds=6,
                      bar=least, **common)
            bench.job("read_1g", jobs.throughput, mode=mode, job="read_1g", count=1, n_bytes=GIB, rounds=4, bar=least,
                      **common)
            bench.job("batch_1000x2m", jobs.throughput, mode=mode, job="batch_1000x2m", phase="prefetch",
                      count=jobs.BATCH, n_bytes=jobs.BATCH_BYTES, rounds=2, bar=least_batch, **common)
        bench.job("open_read_64k", jobs.small, objects, "unshaped", 2)
        bench.job("open_read_64k", jobs.small, objects, "1 ms RTT", 2)
        bench.job("lookup_1000", jobs.lookup, cluster, objects, 0.5)


def on_the_hub(bench):
    with Cluster(bench, "lan", 4, bench.budget(4, 5 * GIB // 4)) as cluster:
        bench.job("fan_out_3", jobs.fan_out, cluster, jobs.Objects(bench, cluster), 1.1)


def names(bench):
    with Cluster(bench, "lan", 3, bench.budget(3, 2 * GIB)) as cluster:
        bench.job("directory", jobs.directory, cluster, N_NAMES, 320)


def run_all(bench):
    for part, wanted in (on_the_pair, ("read", "batch", "open", "lookup")), (on_the_hub, ("fan",)), (names, ("direc",)):
        if not bench.only or any(o.startswith(wanted) for o in bench.only):
            part(bench)


def main():
    parser = argparse.ArgumentParser(prog="cluster")
    for option in "--build", "--top", "--json", "--net":
        parser.add_argument(option, required=True)
    parser.add_argument("--only", type=lambda text: text.split(","), help="beginnings of the names of jobs")
    args = parser.parse_args()
    for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
        signal.signal(number, lambda n, _: sys.exit(128 + n))
    bench = Bench(args)
    missing = [t for t in TOOLS if not shutil.which(t)]
    try:
        if missing:
            bench.report.skip("cluster", f"{', '.join(missing)} is not installed")
        else:
            bench.net = Net(args.net)
            run_all(bench)
    except Missing as e:
        bench.report.skip("cluster", e)
    finally:
        for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
            signal.signal(number, signal.SIG_IGN)
        bench.end()
    bench.report.write(args.json)
    return bench.status


sys.exit(main())
