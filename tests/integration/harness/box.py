# SPDX-License-Identifier: Apache-2.0
"""A throw-away copy of this machine: its root under an overlay, in namespaces of its own.

What is done in a box (packages installed, services started, files written) is gone with it, and
nothing outside sees it. Changes lie in a tmpfs; changed_files() lists them.

    with Box() as box:
        box.check("dpkg", "-i", "/root/package.deb")

The folder box.share is /share in the box and outlives it until destroy.

Box(systemd=True) boots the machine's systemd as process 1 of the box, in cgroups of its own.
"""
import os
import shutil
import subprocess
import tempfile
import time

import pytest

from . import env

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "fuse")
_CGROUPS = "/sys/fs/cgroup"

# Builds the new root below $1, moves into it and becomes the box's process 1.
_ENTER = r"""
set -eu
layers=$1/layers
root=$layers/root
mount -t tmpfs -o size=1g none "$layers"
mkdir "$layers/up" "$layers/work" "$root"
mount -t overlay -o "lowerdir=/,upperdir=$layers/up,workdir=$layers/work" none "$root"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sys "$root/sys"
mount -t tmpfs -o mode=755 none "$root/dev"
for d in %(devices)s; do
	: >"$root/dev/$d"
	mount --bind "/dev/$d" "$root/dev/$d"
done
ln -s /proc/self/fd "$root/dev/fd"
mkdir "$root/dev/shm" "$root/dev/pts"
for d in run tmp var/tmp; do mount -t tmpfs -o mode=1777 none "$root/$d"; done
rm -rf "$root/var/lib/mooncakefs" "$root/etc/mooncakefs" "$root/mnt/mooncake"
mkdir -p "$root/share" "$root/mnt/mooncake"
mount --bind "$1/share" "$root/share"
mkdir "$root/run/changes"
mount --bind "$layers/up" "$root/run/changes"
%(cgroups)s
cd "$root"
mkdir -p .old
pivot_root . .old
umount -l .old
rmdir .old
: >/run/box-ready
%(init)s
"""
_PLAIN_INIT = "exec bash -c 'trap : TERM; while :; do sleep 1000 & wait $!; done'"
_SYSTEMD_INIT = """
rm -f /etc/fstab /etc/systemd/system/*.wants/* /etc/resolv.conf
: >/etc/machine-id
for unit in systemd-timesyncd systemd-pstore systemd-udevd systemd-tmpfiles-setup e2scrub_reap; do
	ln -sfn /dev/null /etc/systemd/system/$unit.service
done
exec env -i container=mcfs-box PATH="$PATH" "$INIT" --log-target=journal systemd.unit=multi-user.target
"""


def _hierarchies():
    """The cgroup hierarchies of this machine: (folder, mount type, options)."""
    found = []
    with open("/proc/self/mountinfo", errors="surrogateescape") as f:
        for line in f:
            left, right = line.rstrip().split(" - ", 1)
            where, (kind, _, options) = left.split()[4], right.split(None, 2)
            names = [o for o in options.split(",") if o not in ("rw", "ro", "xattr")]
            if kind == "cgroup2":
                found.append((where, kind, ""))
            elif kind == "cgroup" and "cpuset" not in names:  # which takes nobody in without settings
                found.append((where, kind, ",".join((["none"] if names[0].startswith("name=") else []) + names)))
    return found


def require_systemd():
    """Skips the test where there is no systemd that could be booted; returns its path."""
    for path in ("/lib/systemd/systemd", "/usr/lib/systemd/systemd"):
        if os.path.exists(path):
            break
    else:
        pytest.skip("needs systemd")
    if not _hierarchies():
        pytest.skip("needs a cgroup file system")
    return path


class Box:
    def __init__(self, systemd=False):
        env.require_tool("unshare", "nsenter", "pivot_root")
        self.init = require_systemd() if systemd else None
        self.proc = None
        self.base = tempfile.mkdtemp(prefix="mcfs-box-", dir=env.TMP)
        self.share = os.path.join(self.base, "share")
        for folder in (self.share, self.base + "/layers"):
            os.mkdir(folder)
        self.groups = []

    def __enter__(self):
        try:
            self._build()
        except BaseException:
            self.destroy()
            raise
        return self

    def __exit__(self, *exc):
        self.destroy()

    # ---- what is done in it ----

    def run(self, *argv, timeout=60, **kwargs):
        """Runs argv in the box. Returns the CompletedProcess, output as text."""
        enter = ["nsenter", "-t", str(self.pid), "-m", "-p", "-i", "-u"]
        if self.init:
            enter.append("-C")
        clean = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"]
        return subprocess.run([*enter, "--", *clean, *map(str, argv)], capture_output=True, text=True, cwd="/",
                              stdin=subprocess.DEVNULL, timeout=env.scaled(timeout), **kwargs)

    def check(self, *argv, timeout=60):
        """The same; it must succeed. Returns what it printed."""
        done = self.run(*argv, timeout=timeout)
        assert done.returncode == 0, f"{argv}: exit {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def sh(self, script, timeout=60):
        return self.check("sh", "-ec", script, timeout=timeout)

    def copy_in(self, source, path):
        """Puts a file into the box."""
        with open(source, "rb") as f:
            data = f.read()
        done = subprocess.run(["nsenter", "-t", str(self.pid), "-m", "--", "tee", path], input=data,
                              stdout=subprocess.DEVNULL, cwd="/")
        assert done.returncode == 0, path

    def changed_files(self):
        """Paths of all that was created or changed on the box's root, directories left out."""
        up = f"/proc/{self.pid}/root/run/changes"
        found = []
        for folder, _, names in os.walk(up):
            found += [os.path.join(folder, n)[len(up):] for n in names]
        return sorted(found)

    # ---- life ----

    def _build(self):
        if self.init:
            self._make_groups()
        script = _ENTER % {"devices": " ".join(d for d in _DEVICES if os.path.exists("/dev/" + d)),
                           "cgroups": self._cgroup_mounts(),
                           "init": _SYSTEMD_INIT if self.init else _PLAIN_INIT}
        more = ["--cgroup", "--net"] if self.init else []
        argv = ["unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", *more, "--",
                "sh", "-ec", script, "sh", self.base]
        self.log = open(self.base + "/log", "w+b")
        self.proc = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                     preexec_fn=self._join_groups,
                                     env={**os.environ, "INIT": self.init or ""})
        self._wait_ready()

    def _wait_ready(self):
        deadline = time.monotonic() + env.scaled(20)
        while time.monotonic() < deadline:
            assert self.proc.poll() is None, "the box ended: " + self.said()
            self.pid = self._inner_pid()
            if self.pid and os.path.exists(f"/proc/{self.pid}/root/run/box-ready"):
                return
            time.sleep(0.02)
        raise AssertionError("the box is not up: " + self.said())

    def _inner_pid(self):
        try:
            with open(f"/proc/{self.proc.pid}/task/{self.proc.pid}/children") as f:
                children = f.read().split()
        except OSError:
            return None
        return int(children[0]) if children else None

    def said(self):
        with open(self.base + "/log", "rb") as f:
            return f.read().decode(errors="replace")[-2000:]

    def destroy(self):
        if self.proc:
            self.proc.kill()  # --kill-child takes process 1 with it, and that one all others
            self.proc.wait()
            self.log.close()
        for group in self.groups:
            self._remove_group(group)
        shutil.rmtree(self.base, ignore_errors=True)

    # ---- cgroups ----

    def _make_groups(self):
        for where, _, _ in _hierarchies():
            group = os.path.join(where, os.path.basename(self.base))
            os.mkdir(group)
            self.groups.append(group)

    def _join_groups(self):
        for group in self.groups:
            with open(group + "/cgroup.procs", "w") as f:
                f.write(str(os.getpid()))

    def _cgroup_mounts(self):
        if not self.init:
            return ""
        lines = []
        if not any(where == _CGROUPS for where, _, _ in _hierarchies()):
            lines.append(f'mount -t tmpfs -o mode=755 none "$root{_CGROUPS}"')
        for where, kind, options in _hierarchies():
            lines.append(f'mkdir -p "$root{where}"')
            lines.append(f'mount -t {kind} {"-o " + options if options else ""} none "$root{where}"')
        return "\n".join(lines)

    @staticmethod
    def _remove_group(group):
        deadline = time.monotonic() + env.scaled(5)
        while os.path.isdir(group):
            for folder, _, _ in os.walk(group, topdown=False):
                try:
                    os.rmdir(folder)
                except OSError:
                    pass  # processes are still ending
            assert time.monotonic() < deadline, f"{group} is not empty"
            time.sleep(0.02)
