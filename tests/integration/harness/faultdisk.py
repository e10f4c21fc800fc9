# SPDX-License-Identifier: Apache-2.0
"""File systems on disks that lose power and fail when told to (tests/stress/fault_disk_mount.c)."""
import contextlib
import os
import shutil
import subprocess
import tempfile

import pytest

from . import crash, env
from .content import wait_for

_MKFS = ("mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0", "-J", "size=4", "-E",
         "lazy_itable_init=0,lazy_journal_init=0")


def _run(*argv, timeout=30):
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=env.scaled(timeout))
    assert done.returncode == 0, f"{' '.join(map(str, argv))}: {done.stdout}{done.stderr}"


def _umount(path):
    """Waits for who is about to let go of it; takes it away from who does not."""
    if not os.path.ismount(path):
        return
    try:
        wait_for(lambda: subprocess.run(["umount", path], capture_output=True).returncode == 0,
                 env.scaled(10), f"umount {path}")
    except AssertionError:
        _run("umount", "-l", path)
        raise


def _memory_dir():
    """Images are read back at once, so they need no disk where there is memory."""
    with contextlib.suppress(OSError):
        st = os.statvfs("/dev/shm")
        if st.f_bavail * st.f_frsize > 2 << 30:
            return "/dev/shm"
    return env.TMP


def sync(path):
    """syncfs(2) of the file system of path."""
    _run("sync", "-f", path)


class FaultDisks:
    """with FaultDisks(2, 160) as disks: two disks of 160 MiB, with an ext4 each at disks.paths[k]."""

    def __init__(self, n, mib, options="commit=1"):
        env.require_tool("mkfs.ext4", "losetup", "mount", "sync")
        if not os.path.exists("/dev/loop-control"):
            pytest.skip("needs loop devices")
        self.program = crash.stress_program("fault_disk_mount")
        self.base = tempfile.mkdtemp(prefix="mcfs-disks-", dir=env.TMP)
        self.images = tempfile.mkdtemp(prefix="mcfs-images-", dir=_memory_dir())
        self.device = os.path.join(self.base, "device")
        self.paths = [os.path.join(self.base, f"disk{k}") for k in range(n)]
        self.n_cuts = 0
        self.options = options
        for path in (self.device, *self.paths):
            os.mkdir(path)
        self.proc = subprocess.Popen([self.program, self.device, str(n), str(mib)], stdin=subprocess.DEVNULL,
                                     start_new_session=True)

    def __enter__(self):
        try:
            wait_for(lambda: os.path.ismount(self.device) or self.proc.poll() is not None, env.scaled(10), "the disks")
            for k, path in enumerate(self.paths):
                _run(*_MKFS, self.image(k))
                self.mount(k)
        except BaseException:
            self.destroy()
            raise
        return self

    def __exit__(self, *exc):
        self.destroy()

    def image(self, k):
        return os.path.join(self.device, f"disk{k}")

    def mount(self, k):
        _run("mount", "-o", f"loop,{self.options}", self.image(k), self.paths[k])

    def mend(self, k):
        """The disk works, and its file system is mounted anew, whatever became of it."""
        self.fail(k, "none")
        _umount(self.paths[k])
        wait_for(lambda: not subprocess.run(["losetup", "-j", self.image(k)], capture_output=True).stdout,
                 env.scaled(10), "the old mount is gone")
        self.mount(k)

    def command(self, text):
        fd = os.open(os.path.join(self.device, "control"), os.O_WRONLY)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)

    def fail(self, k, what):
        """what: none, reads, writes or all."""
        self.command(f"fail {k} {what}")

    def cut(self, keep, seed):
        """What a power failure would leave now; for survivors()."""
        self.n_cuts += 1
        path = os.path.join(self.images, f"cut{self.n_cuts}")
        self.command(f"cut {path} {keep} {seed}")
        return path

    @contextlib.contextmanager
    def survivors(self, cut):
        """The file systems of a cut, mounted; their folders, in the order of the disks."""
        folders = [f"{self.base}/{os.path.basename(cut)}.{k}" for k in range(len(self.paths))]
        try:
            for k, folder in enumerate(folders):
                os.mkdir(folder)
                _run("mount", "-o", "loop", f"{cut}.{k}", folder)
            yield folders
        finally:
            for k, folder in enumerate(folders):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{cut}.{k}")
                _umount(folder)

    def destroy(self):
        try:
            with contextlib.ExitStack() as all_of_them:
                all_of_them.callback(self.proc.wait, timeout=env.scaled(10))
                for path in (self.device, *self.paths):
                    all_of_them.callback(_umount, path)
                for k in range(len(self.paths)):
                    with contextlib.suppress(OSError):
                        self.fail(k, "none")
        finally:
            if self.proc.poll() is None:
                self.proc.kill()
                self.proc.wait()
                subprocess.run(["umount", "-l", self.device], capture_output=True)
            shutil.rmtree(self.images, ignore_errors=True)
            shutil.rmtree(self.base, ignore_errors=True)
