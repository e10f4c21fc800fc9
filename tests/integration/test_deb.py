# SPDX-License-Identifier: Apache-2.0
"""The Debian package: what is in it, and a life of it from dpkg -i to purge, in a box."""
import glob
import os
import re
import subprocess

import pytest

from harness import env
from harness.box import Box

pytestmark = [pytest.mark.mooncake, pytest.mark.one_mode, pytest.mark.no_asan]


@pytest.fixture(scope="module")
def package():
    env.require_daemon()
    env.require_tool("dpkg-deb", "dpkg")
    found = glob.glob(os.path.join(env.BUILD, "deb", "mooncakefs_*.deb"))
    if not found:
        pytest.skip(f"no package in {env.BUILD}/deb (make deb)")
    return found[0]


@pytest.fixture(scope="module")
def box(package):
    """A box with the package installed."""
    with Box() as box:
        box.before = box.changed_files()
        box.copy_in(package, "/tmp/package.deb")
        box.check("dpkg", "--no-triggers", "-i", "/tmp/package.deb")
        yield box


def _deb(*args):
    return subprocess.run(["dpkg-deb", *args], capture_output=True, text=True, check=True).stdout


def _listing(package):
    """Path -> mode and owner of what is in the package."""
    lines = [line.split(None, 5) for line in _deb("-c", package).splitlines()]
    return {line[5].lstrip("."): (line[0], line[1]) for line in lines if line[0][0] != "l"}


# ---- contents ----

def test_contents(package):
    """Programs, helper, unit, completion, man pages, documents; all of root's, nothing writable by others."""
    files = _listing(package)
    for path in ("/usr/bin/mooncakefs", "/usr/bin/mooncakectl", "/usr/sbin/mount.mooncakefs"):
        assert files[path][0] == "-rwxr-xr-x", path
    for path in ("/usr/lib/systemd/system/mooncakefs@.service", "/usr/share/man/man1/mooncakectl.1.gz",
                 "/usr/share/man/man8/mooncakefs.8.gz", "/usr/share/man/man8/mount.mooncakefs.8.gz",
                 "/usr/share/bash-completion/completions/mooncakefs", "/usr/share/doc/mooncakefs/copyright",
                 "/usr/share/bash-completion/completions/mooncakectl", "/usr/share/doc/mooncakefs/changelog.gz",
                 "/usr/share/doc/mooncakefs/changelog.Debian.gz", "/usr/share/doc/mooncakefs/docs/containers.md"):
        assert files[path][0] == "-rw-r--r--", path
    assert {owner for _, owner in files.values()} == {"root/root"}
    assert not [p for p, (mode, _) in files.items() if mode[5] == "w" or mode[8] == "w" or "s" in mode]


def test_control(package):
    """Version, architecture, and computed dependencies without a libfuse that is inside."""
    control = dict(line.split(": ", 1) for line in _deb("-f", package).splitlines() if line[:1] != " ")
    with open(os.path.join(env.REPO, "VERSION")) as f:
        assert control["Version"] == f.read().strip() + "-1"
    assert control["Architecture"] == subprocess.check_output(["dpkg", "--print-architecture"], text=True).strip()
    depends = [d.split()[0] for d in control["Depends"].split(", ")]
    assert {"libc6", "libjansson4", "mount"} <= set(depends)
    assert any(d.startswith("librocksdb") for d in depends)
    has_private = any(p.startswith("/usr/lib/mooncakefs/libfuse3.so") for p in _listing(package))
    assert any(d.startswith("libfuse3") for d in depends) != has_private


def test_checksums(package, tmp_path):
    """md5sums covers every file, and is right."""
    subprocess.run(["dpkg-deb", "-R", package, tmp_path], check=True)
    subprocess.run(["md5sum", "--quiet", "-c", "DEBIAN/md5sums"], cwd=tmp_path, check=True)
    sums = {line.split(None, 1)[1] for line in (tmp_path / "DEBIAN/md5sums").read_text().splitlines()}
    assert sums == {str(p.relative_to(tmp_path)) for p in tmp_path.glob("usr/**/*") if p.is_file() and not p.is_symlink()}


def test_library(box):
    """Programs find the library where the package puts it, and its header."""
    box.check("python3", "-c", "import ctypes; ctypes.CDLL('libmooncakefs.so.1')")
    box.check("test", "-f", "/usr/include/mooncakefs.h")


# ---- a life ----

def test_installed_programs_run(box):
    """The daemon says its version, linked with the libfuse of the package alone."""
    with open(os.path.join(env.REPO, "VERSION")) as f:
        assert f.read().strip() in box.check("mooncakefs", "--version")
    libraries = box.check("ldd", "/usr/bin/mooncakefs")
    assert "not found" not in libraries
    fuse = re.search(r"libfuse3\S+ => (\S+)", libraries).group(1)
    if "/usr/lib/mooncakefs/libfuse3.so.4" in box.check("dpkg", "-L", "mooncakefs"):
        assert os.path.normpath(fuse).startswith("/usr/lib/mooncakefs/")
    assert "mooncakectl" in box.check("mooncakectl", "--help")


def test_mount_write_read_umount(box):
    """mount -t mooncakefs finds the helper, the helper the daemon; a file goes in and comes out; umount ends it."""
    box.sh("""
        mount -t mooncakefs none /mnt/mooncake -o dram=64M,log=/tmp/log
        head -c 3000000 /dev/urandom >/tmp/f
        cp /tmp/f /mnt/mooncake/f
        cmp /tmp/f /mnt/mooncake/f
        mooncakectl status >/tmp/status
        umount /mnt/mooncake""")
    assert "mooncakefs" in box.check("cat", "/tmp/status")
    box.sh("""
        for i in $(seq 100); do ! grep -q mooncakefs /proc/mounts || sleep 0.05; done
        ! grep mooncakefs /proc/mounts""")


def test_upgrade_over_a_running_daemon(box):
    """Installing over a mount that is in use leaves it answering, says so, and loses nothing."""
    box.sh("mount -t mooncakefs none /mnt/mooncake -o dram=64M,log=/tmp/log; echo kept >/mnt/mooncake/kept")
    said = box.check("dpkg", "--no-triggers", "-i", "/tmp/package.deb")
    assert "until they are restarted" in said
    assert box.check("cat", "/mnt/mooncake/kept") == "kept\n"
    box.sh("mooncakectl stop; mount -t mooncakefs none /mnt/mooncake -o dram=64M,log=/tmp/log")
    assert box.check("cat", "/mnt/mooncake/kept") == "kept\n"
    box.sh("mooncakectl stop")


def test_purge_leaves_data_alone(box):
    """Purge names the state directory, the memory and the administrator's files, and leaves only these."""
    box.sh("""
        echo dram=64M >/etc/mooncakefs/mnt-mooncake.conf
        mount -t mooncakefs none /mnt/mooncake -o dram=64M,log=/tmp/log
        echo kept >/mnt/mooncake/kept
        mooncakectl stop""")
    said = box.check("dpkg", "--no-triggers", "--purge", "mooncakefs")
    assert "/var/lib/mooncakefs is left as it is" in said
    assert "/var/lib/mooncakefs/dram still holds objects in memory" in said
    assert "/etc/mooncakefs is left as it is" in said
    box.sh("umount /var/lib/mooncakefs/dram")
    left = [p for p in box.changed_files() if p not in box.before]
    theirs = ("/var/lib/mooncakefs/", "/etc/mooncakefs/mnt-mooncake.conf", "/var/lib/dpkg/", "/var/log/dpkg.log")
    assert [p for p in left if not p.startswith(theirs)] == []
    assert [p for p in left if p.startswith("/var/lib/mooncakefs/")] != []
    box.sh("! test -e /usr/lib/mooncakefs; ! test -e /usr/share/doc/mooncakefs; ! dpkg -s mooncakefs")


def test_purge_of_an_unused_package_leaves_nothing(box):
    """Installed and purged without a mount: not a file, and nothing to say."""
    box.run("umount", "/var/lib/mooncakefs/dram")
    box.run("dpkg", "--no-triggers", "--purge", "mooncakefs")
    box.sh("rm -rf /var/lib/mooncakefs /etc/mooncakefs")
    before = box.changed_files()
    box.check("dpkg", "--no-triggers", "-i", "/tmp/package.deb")
    said = box.check("dpkg", "--no-triggers", "--purge", "mooncakefs")
    assert "left as it is" not in said and "memory" not in said
    assert [p for p in box.changed_files() if p not in before and not p.startswith("/var/lib/dpkg/")] == []
    box.sh("! test -e /etc/mooncakefs")
