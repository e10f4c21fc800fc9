# SPDX-License-Identifier: Apache-2.0
"""Namespaces and cgroups around a test: what a container runtime does, without one.

Space      namespaces kept by a process that waits; run() runs commands in them
Container  a root of its own with shared volumes, as runc sets them up, and one program in it
MemGroup   a memory cgroup with a limit, of version 1 or 2, whichever this machine has
"""
import os
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

from . import env
from .content import wait_for


def share(base):
    """Makes base a mount of its own whose mounts propagate, as /var/lib of a systemd machine do."""
    subprocess.run(["mount", "--bind", base, base], check=True)
    subprocess.run(["mount", "--make-shared", base], check=True)


# A copy of somebody else's mount would keep his daemon alive.
_DROP_OTHERS = """
while read -r _ at type _; do
	case $type:$at in
	fuse.mooncakefs:$KEEP/*) ;;
	fuse.mooncakefs:*) umount -l "$at" || : ;;
	esac
done </proc/mounts
"""


class Space:
    """with Space(m.base, "--mount", "--propagation=slave") as s: ... The options are those of unshare(1)."""

    def __init__(self, base, *options, prepare=":"):
        env.require_tool("unshare", "nsenter")
        self.kinds = [o for o in options if o in ("--mount", "--pid", "--user")]
        fork = ["--fork", "--kill-child"] if "--pid" in options else []
        script = (_DROP_OTHERS if "--mount" in options else "") + prepare + "\necho ready; exec cat"
        self.proc = subprocess.Popen(["unshare", *options, *fork, "--", "sh", "-ec", script], cwd="/",
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                     env={**os.environ, "KEEP": base})
        ready = self.proc.stdout.readline()
        assert ready == b"ready\n", self.proc.communicate()[1].decode()
        self.pid = self._waiting_pid(bool(fork))

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.proc.kill()
        self.proc.communicate()

    def run(self, *argv, uid=None, timeout=30):
        """Runs argv inside. Returns the CompletedProcess, output as text."""
        ids = ["--setuid", str(uid), "--setgid", str(uid)] if uid is not None else []
        return subprocess.run(["nsenter", "-t", str(self.pid), *self.kinds, *ids, "--", *map(str, argv)], cwd="/",
                              capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=env.scaled(timeout))

    def check(self, *argv, **kwargs):
        done = self.run(*argv, **kwargs)
        assert done.returncode == 0, f"{argv}: exit {done.returncode}: {done.stderr}"
        return done.stdout

    def sh(self, script, **kwargs):
        return self.check("sh", "-ec", script, **kwargs)

    def _waiting_pid(self, is_forked):
        if not is_forked:
            return self.proc.pid
        with open(f"/proc/{self.proc.pid}/task/{self.proc.pid}/children") as f:
            return int(f.read().split()[0])


_ENTER = r"""
set -eu
root=$1 base=$2
shift 2
# Mounts below the volumes propagate to the host and back; the root's own do not.
for m in / "$(findmnt -n -o TARGET -T "$root")"; do mount --make-private "$m"; done
mount --bind / "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind "$base" "$root$base"
cd "$root"
pivot_root . "./$root"
# Else the host's mounts would go with those of the old root.
mount --make-rslave "./$root"
umount -l "./$root"
exec "$@"
"""


class Container:
    """argv as process 1 of a container whose volume is base (a shared mount), at the same path."""

    def __init__(self, base, *argv, host_pid=False, output=subprocess.DEVNULL):
        env.require_tool("unshare", "pivot_root", "findmnt")
        self.root = tempfile.mkdtemp(prefix="mcfs-ct-", dir=env.TMP)
        pid = [] if host_pid else ["--pid"]
        self.proc = subprocess.Popen(
            ["unshare", "--mount", "--ipc", "--uts", "--propagation=unchanged", *pid, "--fork", "--kill-child", "--",
             "sh", "-ec", _ENTER, "sh", self.root, base, *argv],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd="/")

    @property
    def pid(self):
        """Of the program, as the host counts."""
        with open(f"/proc/{self.proc.pid}/task/{self.proc.pid}/children") as f:
            return int(f.read().split()[0])

    def stop(self, sig=signal.SIGTERM, seconds=20):
        """Sends sig to the program and waits for its end. Returns its exit status."""
        try:
            os.kill(self.pid, sig)
        except (OSError, IndexError):
            pass  # it has ended
        return self.proc.wait(timeout=env.scaled(seconds))

    def destroy(self):
        if self.proc.poll() is None:
            self.stop(signal.SIGKILL)
        shutil.rmtree(self.root, ignore_errors=True)


class MemGroup:
    """with MemGroup(bytes) as g: g.run(argv). Skips the test where no memory cgroup can be made."""

    _V1, _V2 = "/sys/fs/cgroup/memory", "/sys/fs/cgroup"

    def __init__(self, limit_bytes):
        if os.path.exists(self._V1 + "/memory.limit_in_bytes"):
            self.path, self.limit_file, self.peak_file = self._V1, "memory.limit_in_bytes", "memory.max_usage_in_bytes"
        elif os.path.exists(self._V2 + "/cgroup.controllers"):
            self.path, self.limit_file, self.peak_file = self._V2, "memory.max", "memory.peak"
        else:
            pytest.skip("needs a memory cgroup")
        self.path += f"/mcfs-test-{os.getpid()}-{time.monotonic_ns()}"
        try:
            os.mkdir(self.path)
            self._write(self.limit_file, limit_bytes)
        except OSError as e:
            if os.path.isdir(self.path):
                os.rmdir(self.path)
            pytest.skip(f"needs a memory cgroup ({e})")

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        wait_for(self._remove, env.scaled(10), f"{self.path} is empty")

    def join(self):
        """For a child, between fork and exec."""
        self._write("cgroup.procs", os.getpid())

    def run(self, *argv, timeout=60):
        return subprocess.run([*map(str, argv)], preexec_fn=self.join, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=env.scaled(timeout))

    def peak_bytes(self):
        with open(os.path.join(self.path, self.peak_file)) as f:
            return int(f.read())

    def _write(self, name, value):
        with open(os.path.join(self.path, name), "w") as f:
            f.write(str(value))

    def _remove(self):
        try:
            os.rmdir(self.path)
        except OSError:
            return False
        return True
