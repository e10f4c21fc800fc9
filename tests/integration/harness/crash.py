# SPDX-License-Identifier: Apache-2.0
"""A mount that dies under load, and what must be there afterwards (tests/stress/crash_mount.c).

MCFS_SEED    first seed of the crash tests (default 1)
MCFS_ROUNDS  how often each kind of crash happens (default 50 kills, 20 power failures)

A test runs a series of rounds from one seed: options and choices follow from it, and a failure says
how to run that series again.
"""
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import time

import pytest

from . import env
from .content import wait_for
from .ctl import ctl
from .mount import umount

FIRST_SEED = int(os.environ.get("MCFS_SEED") or 1)
FRAME_KERNEL_BYTES = 1152
DIRECTORIES = ("c", "weights", "b")


def rounds(default):
    return int(os.environ.get("MCFS_ROUNDS") or default)


def series(n_rounds, each):
    """(seed, rounds) of the series that n_rounds rounds are cut into."""
    n = -(-n_rounds // each)
    return [(FIRST_SEED + i, min(each, n_rounds - i * each)) for i in range(n)]


def stress_program(name):
    """Path of a program of tests/stress that needs the build's libraries."""
    path = os.path.join(env.BUILD, "tests", "stress", name)
    if not os.path.exists(path):
        pytest.skip(f"not built: {path} (make stress-build)")
    return path


def check_run(*argv):
    done = subprocess.run(argv, capture_output=True, text=True, timeout=env.scaled(30))
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr}"


def end(m):
    """Ends a mount whose state directory is not its own, and takes its DRAM away. Returns the problems."""
    problems = m.destroy()
    for where in m.dram_mounts():
        why = umount(where)
        assert not why, why
    return problems


@contextlib.contextmanager
def replayable(test, seed, n_rounds):
    """A failure inside tells how to run the series again."""
    try:
        yield random.Random(seed)
    except (AssertionError, OSError, subprocess.SubprocessError) as e:
        raise AssertionError(f"{e}\nagain: make soak SOAK={test} SEED={seed} ROUNDS={n_rounds}") from e


class Load:
    """Processes that change and read a mount, and the ledger of what they did."""

    def __init__(self, folder, path, evicts=False):
        self.program = stress_program("crash_mount")
        self.path = path
        self.ledger = os.path.join(folder, "ledger")
        self.evicts = ["evicts"] if evicts else []
        self.proc = None

    def start(self, seed, seconds):
        """Returns when it runs."""
        argv = [self.program, "load", self.path, self.ledger, str(seed), str(seconds), *self.evicts]
        self.proc = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                     start_new_session=True)
        assert self.proc.stdout.readline() == "running\n", self.finish()
        return self

    def finish(self):
        """Waits for its end. Returns what it printed; it must not have found a difference."""
        try:
            said = self.proc.communicate(timeout=env.scaled(30))[0]
        except subprocess.TimeoutExpired:
            raise AssertionError(f"processes in {self.path} hang") from None
        finally:
            self.kill()
        assert self.proc.returncode == 0, f"load: exit {self.proc.returncode}: {said}"
        return said

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.proc.pid, signal.SIGKILL)
        self.proc.wait()

    def pause(self):
        os.killpg(self.proc.pid, signal.SIGSTOP)

    def go_on(self):
        os.killpg(self.proc.pid, signal.SIGCONT)

    def copy_ledger(self, name):
        copy = f"{self.ledger}.{name}"
        shutil.copyfile(self.ledger, copy)
        return copy

    def _run(self, *argv):
        done = subprocess.run([self.program, *argv], capture_output=True, text=True, timeout=env.scaled(30))
        assert done.returncode == 0, f"{argv[0]}: exit {done.returncode}: {done.stdout[-3000:]}{done.stderr}"
        return done.stdout.strip()

    def check(self):
        """After a kill and a start: everything is there. It is the beginning of the next round."""
        said = self._run("check", self.path, self.ledger, *self.evicts)
        self._run("settle", self.path, self.ledger)
        return said

    def check_power(self, path, ledger, before):
        """After a power failure: what was synced is there, at path."""
        return self._run("power", path, ledger, before)


# ---- accounts ----

def frame_files(*folders):
    """Bytes that each frame file below folders takes."""
    found = []
    for top in folders:
        for folder, _, files in os.walk(top):
            for name in files:
                if len(name) == 16:
                    with contextlib.suppress(FileNotFoundError):
                        found.append(os.stat(os.path.join(folder, name)).st_blocks * 512)
    return found


def used(m, tier):
    t = m.tier(tier)
    return t["used_bytes"] - t["free_list_bytes"]


def n_files(m):
    n = 0
    for folder in DIRECTORIES:
        with contextlib.suppress(FileNotFoundError):
            n += len(os.listdir(os.path.join(m.path, folder)))
    return n


def accounts_differ(m, ssd_folders):
    """What status.json says against what lies there; '' when they agree."""
    dram = sum(n + FRAME_KERNEL_BYTES for n in frame_files(m.dram_mounts()[0]))
    ssd = sum(frame_files(*ssd_folders))
    status = m.status()
    tiers = {t["name"]: t for t in status["tiers"]}
    said = [(tiers["dram"]["used_bytes"], dram, "bytes in dram"),
            (tiers["ssd"]["used_bytes"], ssd, "bytes on ssd"),
            (status["objects"]["count"], n_files(m), "objects"),
            (tiers["dram"]["zombie_bytes"], 0, "zombie bytes"), (status["drafts"]["open"], 0, "drafts")]
    return "; ".join(f"{what}: status says {a}, there are {b}" for a, b, what in said if a != b)


def wait_for_accounts(m, ssd_folders):
    """Orphans are swept in the background, and queues run dry; then all figures agree."""
    deadline = time.monotonic() + env.scaled(10)
    while (differ := accounts_differ(m, ssd_folders)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not differ, differ


def remove_all(m):
    """Every file; both tiers must then be empty."""
    for folder in DIRECTORIES:
        for name in os.listdir(os.path.join(m.path, folder)):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(m.path, folder, name))
    wait_for(lambda: used(m, "dram") == used(m, "ssd") == 0, env.scaled(10),
             "all bytes come back when all files are removed")


# ---- fsck ----

def fsck(state, *args):
    """(exit status, kinds found that the next start does not clear up by itself, the document)."""
    done = ctl("fsck", "--json", *args, state)
    assert done.stdout, f"fsck: exit {done.returncode}: {done.stderr}"
    found = json.loads(done.stdout)
    serious = {f["kind"]: f["count"] for f in found["findings"] if not f["leftover"]}
    return done.returncode, serious, found


def fsck_after_crash(state, *args):
    """Only leftovers are found."""
    code, serious, found = fsck(state, *args)
    assert code in (0, 1) and not serious and found["complete"], f"fsck after the crash: {found}"


def fsck_after_stop(state):
    """Nothing is found, with every frame read."""
    code, _, found = fsck(state, "--data")
    assert code == 0 and found["clean"] and not found["findings"], f"fsck after the stop: {found}"
