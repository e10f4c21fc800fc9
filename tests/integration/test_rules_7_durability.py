# SPDX-License-Identifier: Apache-2.0
"""Rules 7 and 8: errors at close, promises of fsync; metadata changes that make no version."""
import errno
import os
import signal
import stat
import subprocess
import time

import pytest

from harness import env
from harness.content import exists, get, pattern, peek, put, set_xattr, version, wait_for, xattr
from harness.progs import run_prog

pytestmark = pytest.mark.mooncake
MIB = env.MIB
CREATE = os.O_RDWR | os.O_CREAT


# ---- rule 7: close tells ----

@pytest.mark.options(dram="32M", space_wait=1)
def test_rule07_enospc_is_told_and_nothing_half_is_published(mount, client_a):
    """A file larger than the budget: write or close says ENOSPC, the name never appears, the mount works on."""
    path = os.path.join(mount.path, "big")
    told = client_a.exec("""
fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
result = []
try:
    for _ in range(64):
        os.write(fd, bytes([1]) * (1 << 20))
except OSError as e:
    result.append(("write", e.errno))
try:
    os.close(fd)
except OSError as e:
    result.append(("close", e.errno))
""", path=path)
    assert told and {e for _, e in told} == {errno.ENOSPC}
    assert not exists(path)
    put(path, pattern(1, MIB))
    assert get(path) == pattern(1, MIB)


@pytest.mark.options(dram="32M", space_wait=1)
def test_rule07_close_after_a_failed_write_does_not_publish_the_torn_file(mount, client_a):
    """A program that ignores ENOSPC of write(2) and closes: close fails, the old version stays."""
    path = os.path.join(mount.path, "f")
    put(path, b"old")
    set_xattr(path, "pin", "1")  # what is old must not be evicted for what does not fit
    with pytest.raises(OSError) as e:
        client_a.exec("""
fd = os.open(path, os.O_WRONLY | os.O_TRUNC)
failed = 0
while failed < 2:
    try:
        os.write(fd, bytes([1]) * (1 << 20))
    except OSError:
        failed += 1
os.close(fd)
""", path=path)
    assert e.value.errno == errno.ENOSPC
    assert get(path) == b"old"


@pytest.mark.options(dram="32M", space_wait=1)
def test_rule07_copy_tools_notice(mount):
    """cp and dd of a file that does not fit exit non-zero and leave no file."""
    for command in (["cp", "/dev/stdin", "big"], ["dd", "of=big", "bs=1M", "status=none"]):
        p = subprocess.run(command, cwd=mount.path, input=b"\1" * (64 * MIB), capture_output=True)
        assert p.returncode != 0
        assert b"No space left" in p.stderr
        assert os.listdir(mount.path) == []


# ---- rule 7: fsync ----

def _killed_after_fsync(client, path, flags=CREATE):
    """The client writes a MiB, fsyncs, writes on and is killed. Returns what was promised."""
    data = pattern("promise", MIB)
    fd = client.os.open(path, flags, 0o644)
    client.os.write(fd, data)
    client.os.fsync(fd)
    client.os.write(fd, b"not synced")
    client.kill(signal.SIGKILL)
    return data


def test_rule07_fsynced_draft_of_a_killed_writer_is_published(fs, d, client_a):
    """A writer killed after fsync: the file is published as of the last fsync, without what followed."""
    path = os.path.join(d, "f")
    kept = fs.counter("promises_kept")
    data = _killed_after_fsync(client_a, path)
    wait_for(lambda: exists(path), 2, "the promise is kept")
    assert get(path) == data
    assert fs.counter("promises_kept") == kept + 1


def test_rule07_fsynced_overwrite_of_a_killed_writer_is_published(d, client_a):
    """The same for the overwrite of a published name."""
    path = os.path.join(d, "f")
    put(path, b"old")
    data = _killed_after_fsync(client_a, path, os.O_RDWR | os.O_TRUNC)
    wait_for(lambda: get(path) != b"old", 2, "the promise is kept")
    assert get(path) == data


def test_rule07_only_the_last_fsync_counts(d, client_a):
    """Of several fsyncs the last one is what a killed writer leaves, overwritten ranges included."""
    path = os.path.join(d, "f")
    fd = client_a.os.open(path, CREATE, 0o644)
    for i in range(5):
        client_a.os.pwrite(fd, b"%d" % i * 1000, i * 500)
        client_a.os.fsync(fd)
    client_a.os.pwrite(fd, b"x" * 3000, 0)
    client_a.kill(signal.SIGKILL)
    wait_for(lambda: exists(path), 2, "the promise is kept")
    assert get(path) == b"".join(b"%d" % i * 500 for i in range(5)) + b"4" * 500


def test_rule07_fdatasync_is_a_promise_too(d, client_a):
    """fdatasync binds as fsync does."""
    path = os.path.join(d, "f")
    fd = client_a.os.open(path, CREATE, 0o644)
    client_a.os.write(fd, b"data")
    client_a.os.fdatasync(fd)
    client_a.kill(signal.SIGKILL)
    wait_for(lambda: exists(path), 2, "the promise is kept")
    assert get(path) == b"data"


def test_rule07_fsynced_then_unlinked_draft_promises_nothing(d, client_a):
    """A draft that was fsynced and then unlinked by its writer does not come back."""
    path = os.path.join(d, "f")
    fd = client_a.os.open(path, CREATE, 0o644)
    client_a.os.write(fd, b"data")
    client_a.os.fsync(fd)
    client_a.os.unlink(path)
    client_a.kill(signal.SIGKILL)
    time.sleep(0.2)
    assert not exists(path)


def test_rule07_fsync_with_half_written_helper(d):
    """progs/writer -s: fsync after one half, SIGKILL after the other: the first half is there."""
    path = os.path.join(d, "f")
    assert run_prog("writer", "-s", path, 200000, "sigkill").returncode == -signal.SIGKILL
    wait_for(lambda: exists(path), 2, "the promise is kept")
    assert get(path) == b"w" * 100000


def test_rule07_fsync_of_a_published_object_and_of_a_directory(d):
    """fsync works on read-only handles of objects and on directories."""
    path = os.path.join(d, "f")
    put(path, b"data")
    for what in (path, d):
        fd = os.open(what, os.O_RDONLY)
        os.fsync(fd)
        os.fdatasync(fd)
        os.close(fd)


def test_rule07_objects_survive_a_killed_daemon(mount, client_a):
    """kill -9 of the daemon: fsynced, keep and plain objects are there after the next start, whole."""
    keep = os.path.join(mount.path, "weights")
    os.makedirs(keep)
    put(os.path.join(keep, "w"), pattern("keep", 2 * MIB))
    client_a.exec("""
with open(path, "wb") as f:
    f.write(data); f.flush(); os.fsync(f.fileno())
""", path=os.path.join(mount.path, "synced"), data=pattern("synced", MIB))
    put(os.path.join(mount.path, "plain"), pattern("plain", 100000))
    ino = os.stat(os.path.join(mount.path, "plain")).st_ino
    mount.kill9()
    client_a.exit()
    mount.remount()
    assert get(os.path.join(keep, "w")) == pattern("keep", 2 * MIB)
    assert get(os.path.join(mount.path, "synced")) == pattern("synced", MIB)
    assert get(os.path.join(mount.path, "plain")) == pattern("plain", 100000)
    assert os.stat(os.path.join(mount.path, "plain")).st_ino == ino


def test_rule07_promise_outlives_the_daemon(mount, client_a):
    """kill -9 of the daemon with drafts open: the fsynced one is published as of its fsync, others vanish."""
    synced, plain = (os.path.join(mount.path, n) for n in ("synced", "plain"))
    for path in (synced, plain):
        fd = client_a.os.open(path, CREATE, 0o644)
        client_a.os.write(fd, b"1" * 50000)
        if path == synced:
            client_a.os.fsync(fd)
        client_a.os.write(fd, b"2" * 50000)
    mount.kill9()
    client_a.kill(signal.SIGKILL)
    mount.remount()
    assert os.listdir(mount.path) == ["synced"]
    assert get(synced) == b"1" * 50000


def test_rule07_durable_objects_survive_the_loss_of_dram(mount, client_a):
    """DRAM gone as after a reboot: fsynced and keep objects come back from SSD, cache objects are ENOENT."""
    for name in ("synced", "keep", "plain"):
        os.mkdir(os.path.join(mount.path, name))
    set_xattr(os.path.join(mount.path, "keep"), "class", "keep")
    for name in ("synced", "keep", "plain"):
        path = os.path.join(mount.path, name, "f")
        client_a.exec("""
with open(path, "wb") as f:
    f.write(data); f.flush()
    if sync: os.fsync(f.fileno())
""", path=path, data=pattern(name, MIB + 5), sync=name == "synced")
    mount.kill9()
    client_a.exit()
    while mount.dram_mounts():
        subprocess.run(["umount", "-l", mount.dram_mounts()[0]], check=True)
    mount.expect_errors("lost|missing|frame")
    mount.remount()
    assert get(os.path.join(mount.path, "synced", "f")) == pattern("synced", MIB + 5)
    assert get(os.path.join(mount.path, "keep", "f")) == pattern("keep", MIB + 5)
    assert peek(os.path.join(mount.path, "plain", "f")) is None


def test_rule07_names_survive_a_killed_daemon(mount):
    """Directories, symlinks, renames and unlinks that were fsynced (of the directory) are there again."""
    root = mount.path
    os.makedirs(os.path.join(root, "a/b/c"))
    put(os.path.join(root, "a/old"), b"x")
    put(os.path.join(root, "a/gone"), b"x")
    os.rename(os.path.join(root, "a/old"), os.path.join(root, "a/b/new"))
    os.unlink(os.path.join(root, "a/gone"))
    os.symlink("b/new", os.path.join(root, "a/link"))
    os.chmod(os.path.join(root, "a/b"), 0o2750)
    for folder in ("a", "a/b"):
        fd = os.open(os.path.join(root, folder), os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
    mount.kill9()
    mount.remount()
    assert sorted(os.listdir(os.path.join(root, "a"))) == ["b", "link"]
    assert sorted(os.listdir(os.path.join(root, "a/b"))) == ["c", "new"]
    assert get(os.path.join(root, "a/link")) == b"x"
    assert stat.S_IMODE(os.stat(os.path.join(root, "a/b")).st_mode) == 0o2750


def test_rule07_keep_objects_survive_a_clean_unmount(mount):
    """umount frees DRAM: the objects of weights/ are there at the next mount all the same."""
    os.mkdir(os.path.join(mount.path, "weights"))
    path = os.path.join(mount.path, "weights", "w")
    put(path, pattern("w", 3 * MIB))
    assert xattr(path, "class") == "keep"
    mount.stop()
    assert mount.dram_mounts() == []
    mount.remount()
    assert get(path) == pattern("w", 3 * MIB)


# ---- rule 8: metadata is no version ----

def _through_a_writable_handle(path):
    """What touch(1) and others do: open for writing, change metadata by descriptor, close."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK, 0o666)
    os.utime(fd, ns=(10**18 + 3, 10**18 + 4))
    os.fchmod(fd, 0o640)
    os.fchown(fd, 12, 34)
    os.close(fd)


CHANGES = {
    "chmod": lambda p: os.chmod(p, 0o600),
    "chown": lambda p: os.chown(p, 12, 34),
    "utimens": lambda p: os.utime(p, ns=(10**18 + 1, 10**18 + 2)),
    "touch": lambda p: subprocess.run(["touch", p], check=True),
    "touch -c -m": lambda p: subprocess.run(["touch", "-c", "-m", p], check=True),
    "futimens, fchmod, fchown": lambda p: _through_a_writable_handle(p),
    "setxattr": lambda p: set_xattr(p, "hint", "soon"),
    "rename": lambda p: (os.rename(p, p + "2"), os.rename(p + "2", p)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_rule08_metadata_change_makes_no_version(d, change):
    """chmod, chown, utimens, touch, setxattr and rename leave version, bytes and open handles alone."""
    path, data = os.path.join(d, "f"), pattern(1, 100000)
    put(path, data)
    before = version(path), os.stat(path).st_ino
    fd = os.open(path, os.O_RDONLY)
    CHANGES[change](path)
    assert (version(path), os.stat(path).st_ino) == before
    assert os.pread(fd, len(data) + 1, 0) == data
    os.close(fd)
    assert get(path) == data


def test_rule08_metadata_changes_are_visible_and_kept(mount):
    """Mode, owner and times read back exactly, through stat and fstat, and after a daemon restart."""
    path = os.path.join(mount.path, "f")
    put(path, b"data")
    fd = os.open(path, os.O_RDONLY)
    os.chmod(path, 0o4751)
    os.chown(path, 12, 34)
    os.chmod(path, 0o4751)
    os.utime(path, ns=(10**18 + 123456789, 10**18 + 987654321))

    def look(st):
        return stat.S_IMODE(st.st_mode), st.st_uid, st.st_gid, st.st_atime_ns, st.st_mtime_ns

    expected = (0o4751, 12, 34, 10**18 + 123456789, 10**18 + 987654321)
    assert look(os.stat(path)) == look(os.fstat(fd)) == expected
    os.close(fd)
    mount.kill9()
    mount.remount()
    assert look(os.stat(path)) == expected


def test_rule08_changes_through_a_writable_handle_hold(d):
    """Times, mode and owner set by descriptor on a handle opened for writing, nothing written: they hold."""
    path = os.path.join(d, "f")
    put(path, b"data")
    _through_a_writable_handle(path)
    st = os.stat(path)
    assert (st.st_mtime_ns, st.st_atime_ns) == (10**18 + 4, 10**18 + 3)
    assert (stat.S_IMODE(st.st_mode), st.st_uid, st.st_gid) == (0o640, 12, 34)
    assert get(path) == b"data"


def test_rule08_chmod_moves_ctime_only(d):
    """chmod sets ctime and leaves mtime."""
    path = os.path.join(d, "f")
    put(path, b"data")
    before = os.stat(path)
    time.sleep(0.02)
    os.chmod(path, 0o600)
    after = os.stat(path)
    assert after.st_mtime_ns == before.st_mtime_ns
    assert after.st_ctime_ns > before.st_ctime_ns


def test_rule08_new_version_keeps_mode_and_owner(d):
    """Overwriting in place, by O_TRUNC or r+, keeps mode and owner of the name."""
    path = os.path.join(d, "f")
    put(path, b"1")
    os.chown(path, 12, 34)
    os.chmod(path, 0o640)
    put(path, b"2")
    with open(path, "r+b") as f:
        f.write(b"3")
    st = os.stat(path)
    assert (stat.S_IMODE(st.st_mode), st.st_uid, st.st_gid) == (0o640, 12, 34)


def _nobody():
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)


@pytest.mark.options(allow_other=True)
def test_rule08_permissions_are_the_kernels(mount, new_client):
    """With allow_other another user may do what mode and owner say, and nothing else."""
    secret, public, shared = (os.path.join(mount.path, n) for n in ("secret", "public", "shared"))
    for path, mode in ((secret, 0o600), (public, 0o644)):
        put(path, b"data")
        os.chmod(path, mode)
    os.mkdir(shared)
    os.chmod(shared, 0o1777)
    nobody = new_client(preexec=_nobody)
    assert nobody.get(public) == b"data"
    for call in (lambda: nobody.get(secret), lambda: nobody.put(public, b"x"),
                 lambda: nobody.os.unlink(public), lambda: nobody.os.chmod(public, 0o666),
                 lambda: nobody.put(os.path.join(mount.path, "new"), b"x")):
        with pytest.raises(PermissionError):
            call()
    nobody.put(os.path.join(shared, "mine"), b"mine")
    st = os.stat(os.path.join(shared, "mine"))
    assert (st.st_uid, st.st_gid) == (65534, 65534)


def test_rule08_without_allow_other_others_are_kept_out(fs, d, new_client):
    """Without allow_other another user cannot even stat."""
    nobody = new_client(preexec=_nobody)
    with pytest.raises(PermissionError):
        nobody.os.stat(d)
