# SPDX-License-Identifier: Apache-2.0
"""One mooncakefs daemon and its mount, from start to stop.

States: new -> up (start) -> down (stop, kill9), and up again (start, remount). The state directory
outlives all of them until destroy. A daemon that ends while it is up, an error line in its log that
no test declared with expect_errors, and any sanitizer report are problems, which the fixtures turn
into failures.
"""
import ctypes
import glob
import json
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time

from . import env, watchdog

START_SECONDS = 30
STOP_SECONDS = 20
_MNT_FORCE, _MNT_DETACH = 1, 2
_REPORT = re.compile(r"ERROR: \w+Sanitizer|runtime error: |WARNING: ThreadSanitizer")
_ERROR_LINE = re.compile(r"^\S+ \S+ error: ", re.M)

live = []


class StartError(Exception):
    """The daemon did not start. .code is its exit status, .text what it said and logged."""

    def __init__(self, code, text):
        super().__init__(f"exit status {code}: {text}")
        self.code = code
        self.text = text


_libc = ctypes.CDLL(None, use_errno=True)


def _umount2(path, flags):
    return _libc.umount2(os.fsencode(path), flags) == 0


def _abort_connection(number, scratch):
    """Cuts a FUSE connection (fuse.rst, "Aborting a filesystem connection"): all its requests fail.

    Needed where a daemon cannot even die: one of its threads waits in the kernel for a directory
    whose lock is held by a client that waits for the daemon.
    """
    control = "/sys/fs/fuse/connections"
    if not os.path.exists(f"{control}/{number}"):
        control = scratch
        os.makedirs(control, exist_ok=True)
        _libc.mount(b"fusectl", os.fsencode(control), b"fusectl", 0, None)
    try:
        with open(f"{control}/{number}/abort", "w") as f:
            f.write("1")
    except OSError:
        pass  # it is gone already
    if control == scratch:
        _umount2(control, _MNT_DETACH)


def mounts_below(path):
    """(mount point, file system type) of all mounts at or below path, innermost first."""
    found = []
    with open("/proc/self/mountinfo", errors="surrogateescape") as f:
        for line in f:
            left, right = line.split(" - ", 1)
            where = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), left.split()[4])
            if where == path or where.startswith(path + "/"):
                found.append((where, right.split()[0]))
    return found[::-1]


def umount(path):
    """Unmounts; who is about to let go of it - a killed child, a start's own look at it - has a moment. Returns '' or
    what umount(8) said."""
    deadline = time.monotonic() + env.scaled(5)
    while True:
        done = subprocess.run(["umount", path], capture_output=True, text=True, timeout=env.scaled(STOP_SECONDS))
        if done.returncode == 0:
            return ""
        if "busy" not in done.stderr or time.monotonic() > deadline:
            return done.stderr.strip() or f"exit {done.returncode}"
        time.sleep(0.05)


class Mount:
    def __init__(self, base=None, prefix=(), **options):
        """options are those of -o; a value of None leaves an option out, True has no value. prefix goes before the
        daemon's arguments: a program that changes something and becomes it, as nsenter(1)."""
        self.prefix = list(prefix)
        self.base = base or tempfile.mkdtemp(prefix="mcfs-", dir=env.TMP)
        os.chmod(self.base, 0o755)
        self.path = os.path.join(self.base, "mnt")
        self.state = os.path.join(self.base, "state")
        self.log = os.path.join(self.base, "log")
        self.stderr = os.path.join(self.base, "stderr")
        os.makedirs(self.path, exist_ok=True)
        self.options = {"dram": "256M", "state": self.state, "passthrough": env.PASSTHROUGH,
                        "log": self.log, **options}
        self.pid = None
        self.pidfd = -1
        self.connection = None
        self.expected = []
        self.problems = []
        self.said = ""  # at its last start, on standard error and in the log
        self._seen = {}
        self._reports = set(self._report_files())
        live.append(self)

    # ---- life ----

    def option_text(self, **more):
        merged = {**self.options, **more}
        return ",".join(k if v is True else f"{k}={v}" for k, v in merged.items() if v is not None)

    def launch(self, argv, seconds=START_SECONDS):
        """Runs argv, which is to start a daemon. Returns its exit status and what it said."""
        with open(self.stderr, "ab") as out:
            began = out.tell(), self._size(self.log)
            child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                     env=self._environment())
            try:
                code = child.wait(timeout=env.scaled(seconds))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
                code = -signal.SIGKILL
        said = self._text(self.stderr, began[0]) + self._text(self.log, began[1])
        return code, said

    def start(self, **more):
        """Mounts; StartError if the daemon refuses. More options hold for this start alone."""
        code, said = self.launch([*self.prefix, env.DAEMON, "-o", self.option_text(**more), self.path])
        if code != 0:
            self._seen[self.stderr] = self._size(self.stderr)
            self._seen[self.log] = self._size(self.log)
            raise StartError(code, said)
        self.said = said
        self._attach()
        return self

    def refuse(self, **more):
        """Starts the daemon, which must refuse. Returns (exit status, what it said)."""
        try:
            self.start(**more)
        except StartError as e:
            return e.code, e.text
        raise AssertionError("the daemon started: " + self.option_text(**more))

    def _attach(self):
        self.pid = self.status()["pid"]
        self.pidfd = os.pidfd_open(self.pid)
        self.connection = os.minor(os.stat(self.path).st_dev)

    def attach(self):
        """Takes charge of a daemon that somebody else started on this mount point."""
        self._attach()
        return self

    def stop(self):
        """Unmounts, the way an administrator does, and waits for the daemon's end."""
        if self.pidfd < 0:
            return
        self._note_death()
        why = umount(self.path)
        if why and self.pidfd >= 0:
            self.problems.append("umount: " + why)
            self.force_end()
        self.wait_end()

    def wait_end(self, seconds=STOP_SECONDS):
        """Waits until the daemon process is gone; ends it by force, and says so, when it is not."""
        if self.pidfd < 0:
            return
        if not select.select([self.pidfd], [], [], env.scaled(seconds))[0]:
            self.problems.append(f"daemon {self.pid} has not ended within {seconds} s")
            self.force_end()
            select.select([self.pidfd], [], [], 10)
        self._detach()

    def signal(self, signo):
        signal.pidfd_send_signal(self.pidfd, signo)

    def terminate(self):
        """SIGTERM, waited for: the DRAM stays for the next start."""
        self.signal(signal.SIGTERM)
        self.wait_end()

    def kill9(self):
        """Kills the daemon; the mount point stays behind, dead."""
        self.signal(signal.SIGKILL)
        self.wait_end(5)

    def umount_lazy(self):
        _umount2(self.path, _MNT_DETACH)

    def remount(self, **more):
        """Up again on the same state, whatever became of the daemon."""
        if self.pidfd >= 0:
            self.stop()
        while any(where == self.path for where, _ in mounts_below(self.path)):
            self.umount_lazy()
        return self.start(**more)

    def force_end(self):
        """Frees whoever waits in this mount: from the watchdog's thread too, so no locks, no waiting."""
        _umount2(self.path, _MNT_FORCE | _MNT_DETACH)
        if self.pidfd >= 0:
            try:
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
            except OSError:
                pass
        if self.connection is not None:
            _abort_connection(self.connection, os.path.join(self.base, "fusectl"))

    def destroy(self):
        """Ends everything and removes the temporary directory. Returns the problems."""
        if self in live:
            live.remove(self)
        try:
            self.stop()
        except (OSError, subprocess.SubprocessError) as e:
            self.problems.append(f"stop: {e}")
            self.force_end()
            self.wait_end()
        self._kill_strays()
        self.check()
        for where, kind in mounts_below(self.base):
            if kind.startswith("fuse"):
                _umount2(where, _MNT_FORCE)
            _umount2(where, _MNT_DETACH)
        if not env.KEEP:
            shutil.rmtree(self.base, ignore_errors=True)
        problems, self.problems = self.problems, []
        return problems

    # ---- what it says ----

    @property
    def is_up(self):
        return self.pidfd >= 0

    def control(self, name):
        return os.path.join(self.path, ".mooncake", name)

    def status(self):
        with open(self.control("status.json"), "rb") as f:
            return json.load(f)

    def counter(self, name):
        return self.status()["counters"][name]

    def tier(self, name="dram"):
        return next(t for t in self.status()["tiers"] if t["name"] == name)

    @property
    def passthrough_live(self):
        return bool(self.status()["passthrough"]["live"])

    def dram_mounts(self):
        """Mount points of tmpfs below the state directory: where the DRAM frames are."""
        return [where for where, kind in mounts_below(self.state) if kind == "tmpfs"]

    def lose_dram(self):
        """Takes the tmpfs of a daemon that is gone away, as a reboot does."""
        for where in self.dram_mounts():
            subprocess.run(["umount", "-l", where], check=True)

    def expect_errors(self, pattern):
        """Error lines of the log that match are this test's intention."""
        self.expected.append(re.compile(pattern))

    def check(self):
        """Adds what the daemon reported since the last check to problems."""
        self._note_death()
        for line in self._new_text(self.log).splitlines():
            if _ERROR_LINE.match(line) and not any(e.search(line) for e in self.expected):
                self.problems.append("log: " + line)
            elif _REPORT.search(line):
                self.problems.append("log: " + line)
        for line in self._new_text(self.stderr).splitlines():
            if _REPORT.search(line):
                self.problems.append("stderr: " + line)
        for path in sorted(set(self._report_files()) - self._reports):
            self._reports.add(path)
            self.problems.append(f"sanitizer report {path}:\n" + self._text(path, 0)[:4000])

    def log_tail(self, n=20):
        return "".join(self._text(self.log, 0).splitlines(True)[-n:])

    # ---- inside ----

    def _note_death(self):
        if self.pidfd >= 0 and select.select([self.pidfd], [], [], 0)[0]:
            self.problems.append(f"daemon {self.pid} died; the end of its log:\n{self.log_tail()}")
            self._detach()

    def _detach(self):
        os.close(self.pidfd)
        self.pidfd = -1

    def daemons(self):
        """Process ids of all daemons with a path below base in their arguments."""
        found = []
        for cmdline in glob.glob("/proc/[0-9]*/cmdline"):
            try:
                with open(cmdline, "rb") as f:
                    argv = f.read().split(b"\0")
            except OSError:
                continue
            if argv[0] == os.fsencode(env.DAEMON) and os.fsencode(self.base) in b"\0".join(argv):
                found.append(int(cmdline.split("/")[2]))
        return found

    def _kill_strays(self):
        """Kills daemons of this state directory or mount point that no one is attached to."""
        for pid in self.daemons():
            self.problems.append(f"stray daemon {pid}")
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass

    def _environment(self):
        """Sanitizer reports go to files: a daemon's stderr is nobody's."""
        out = dict(os.environ)
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS"):
            given = out.get(name, "")
            if "log_path=" not in given:
                out[name] = (given + ":" if given else "") + f"log_path={self.base}/report"
        out["ASAN_OPTIONS"] += ":handle_sigbus=1"
        return out

    def _report_files(self):
        found = set(glob.glob(self.base + "/report.*"))
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS"):
            given = re.search(r"log_path=([^:]+)", os.environ.get(name, ""))
            if given:
                found |= set(glob.glob(given.group(1) + ".*"))
        return found

    @staticmethod
    def _size(path):
        return os.path.getsize(path) if os.path.exists(path) else 0

    @staticmethod
    def _text(path, start):
        if not os.path.exists(path):
            return ""
        with open(path, "rb") as f:
            f.seek(start)
            return f.read().decode(errors="replace")

    def _new_text(self, path):
        start = self._seen.get(path, 0)
        text = self._text(path, start)
        self._seen[path] = start + len(text.encode(errors="replace"))
        return text


class PlainDir:
    """Stands for a mount when MCFS_TEST_DIR names a directory of some other file system."""

    def __init__(self):
        self.base = tempfile.mkdtemp(prefix="mcfs-", dir=env.PLAIN_DIR)
        self.path = os.path.join(self.base, "mnt")
        os.mkdir(self.path)
        self.is_up = True
        self.problems = []
        self.passthrough_live = False

    def expect_errors(self, pattern):
        pass

    def check(self):
        pass

    def destroy(self):
        shutil.rmtree(self.base, ignore_errors=True)
        return []


def _rescue():
    for mount in list(live):
        mount.force_end()


watchdog.rescue_mounts = _rescue
