# SPDX-License-Identifier: Apache-2.0
"""Rules 9 and 10: what any program may expect of a file system, and names by the thousand."""
import ctypes
import errno
import fcntl
import mmap
import os
import random
import signal
import stat
import subprocess
import tempfile
import termios
import threading
import time

import pytest

from harness import env
from harness.content import exists, get, pattern, put, wait_for
from harness.progs import check_prog, prog

MIB = env.MIB
CREATE = os.O_RDWR | os.O_CREAT
_libc = ctypes.CDLL(None, use_errno=True)


def fallocate(fd, mode, offset, length):
    """fallocate(2) itself: Python's posix_fallocate would emulate it."""
    if _libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@pytest.fixture
def fd(d):
    """A new file of this process, open for reading and writing."""
    value = os.open(os.path.join(d, "f"), CREATE, 0o644)
    yield value
    try:
        os.close(value)
    except OSError:
        pass


# ---- zero length, names ----

def test_rule09_zero_length_objects(d, client_a):
    """An empty file: size 0, reads nothing, is listed, can be linked to, filled and emptied."""
    path = os.path.join(d, "f")
    client_a.put(path, b"")
    assert get(path) == b"" and os.listdir(d) == ["f"]
    r = os.open(path, os.O_RDONLY)
    assert os.pread(r, 10, 0) == b"" and os.fstat(r).st_size == 0
    with pytest.raises(ValueError):
        mmap.mmap(r, 0, mmap.MAP_PRIVATE, mmap.PROT_READ)
    os.close(r)
    put(path, b"x")
    put(path, b"")
    assert get(path) == b""


def test_rule09_names_of_any_bytes(d, client_a):
    """Names of 1 to 255 bytes with every byte but `/` and NUL: created, listed, opened, renamed, removed."""
    odd = bytes(b for b in range(1, 256) if b != ord("/"))
    names = [b"a", b"f" * 255, odd[:128], odd[128:], b"\xff" * 255, b" ", b"\n", b"...", b"-rf", b"*",
             "ü日本".encode(), b"a@1@0@ff.data", b"back\\slash", b"p%cnt", b"\x01\x02"]
    folder = os.fsencode(d)
    for i, name in enumerate(names):
        client_a.put(os.path.join(folder, name), b"%d" % i)
    assert sorted(os.listdir(folder)) == sorted(names)
    for i, name in enumerate(names):
        assert get(os.path.join(folder, name)) == b"%d" % i
        other = name[:-1] + (b"Z" if name[-1:] != b"Z" else b"Y")
        if other not in names:
            os.rename(os.path.join(folder, name), os.path.join(folder, other))
            assert get(os.path.join(folder, other)) == b"%d" % i
            os.unlink(os.path.join(folder, other))
        else:
            os.unlink(os.path.join(folder, name))
    assert os.listdir(folder) == []


def test_rule09_name_of_256_bytes_is_too_long(d):
    """256 bytes are ENAMETOOLONG for every call that takes a name."""
    long, ok = os.path.join(d, "x" * 256), os.path.join(d, "ok")
    put(ok, b"")
    for call in (lambda: os.open(long, CREATE), lambda: os.stat(long), lambda: os.mkdir(long),
                 lambda: os.rename(ok, long), lambda: os.symlink("t", long), lambda: os.unlink(long)):
        with pytest.raises(OSError) as e:
            call()
        assert e.value.errno == errno.ENAMETOOLONG
    assert os.listdir(d) == ["ok"]


def test_rule09_deep_directories(d):
    """Forty levels of directories, with a file at the bottom."""
    path = os.path.join(d, *["level"] * 40)
    os.makedirs(path)
    put(os.path.join(path, "f"), b"deep")
    assert get(os.path.join(path, "f")) == b"deep"
    assert os.stat(d).st_nlink in (1, 3)  # 1: not counted, as find(1) knows from other file systems


# ---- directories and symlinks ----

def test_rule09_directory_errors(d):
    """mkdir, rmdir, unlink and rename give the errors that POSIX says."""
    sub, f = os.path.join(d, "sub"), os.path.join(d, "f")
    os.mkdir(sub)
    put(f, b"x")
    put(os.path.join(sub, "in"), b"x")
    cases = [
        (errno.EEXIST, lambda: os.mkdir(sub)),
        (errno.EEXIST, lambda: os.mkdir(f)),
        (errno.ENOTEMPTY, lambda: os.rmdir(sub)),
        (errno.ENOTDIR, lambda: os.rmdir(f)),
        (errno.EISDIR, lambda: os.unlink(sub)),
        (errno.ENOENT, lambda: os.unlink(os.path.join(d, "none"))),
        (errno.ENOENT, lambda: os.rename(os.path.join(d, "none"), f)),
        (errno.EISDIR, lambda: os.rename(f, sub)),
        (errno.ENOTDIR, lambda: os.rename(sub, f)),
        (errno.EINVAL, lambda: os.rename(sub, os.path.join(sub, "in2"))),
        (errno.ENOTDIR, lambda: os.stat(os.path.join(f, "x"))),
        (errno.EISDIR, lambda: os.open(sub, os.O_RDWR)),
        (errno.ENOENT, lambda: os.open(os.path.join(d, "none", "f"), CREATE)),
    ]
    for expected, call in cases:
        with pytest.raises(OSError) as e:
            call()
        assert errno.errorcode[e.value.errno] == errno.errorcode[expected]
    assert get(f) == b"x" and os.listdir(sub) == ["in"]


def test_rule09_rename_of_directories(d):
    """A directory moves with all it holds, also over an empty one, never over a full one."""
    for name in ("from/sub", "empty", "full"):
        os.makedirs(os.path.join(d, name))
    put(os.path.join(d, "from/sub/f"), b"x")
    put(os.path.join(d, "full/g"), b"y")
    with pytest.raises(OSError) as e:
        os.rename(os.path.join(d, "from"), os.path.join(d, "full"))
    assert e.value.errno in (errno.ENOTEMPTY, errno.EEXIST)
    os.rename(os.path.join(d, "from"), os.path.join(d, "empty"))
    assert sorted(os.listdir(d)) == ["empty", "full"]
    assert get(os.path.join(d, "empty/sub/f")) == b"x"


def test_rule09_rename_flags(d):
    """renameat2: NOREPLACE refuses an existing target; EXCHANGE swaps, or is a clean EINVAL."""
    a, b = os.path.join(d, "a"), os.path.join(d, "b")
    put(a, b"a")
    put(b, b"b")

    def renameat2(flags):
        rc = _libc.renameat2(-100, os.fsencode(a), -100, os.fsencode(b), flags)
        return 0 if rc == 0 else ctypes.get_errno()

    assert renameat2(1) == errno.EEXIST
    assert (get(a), get(b)) == (b"a", b"b")
    rc = renameat2(2)
    assert rc in (0, errno.EINVAL)
    assert (get(a), get(b)) == ((b"b", b"a") if rc == 0 else (b"a", b"b"))


def test_rule09_directory_times_and_links(d):
    """Creating and removing names moves a directory's mtime."""
    sub = os.path.join(d, "sub")
    os.mkdir(sub)
    for change in (lambda: put(os.path.join(sub, "f"), b""), lambda: os.unlink(os.path.join(sub, "f")),
                   lambda: os.mkdir(os.path.join(sub, "s"))):
        before = os.stat(sub).st_mtime_ns
        time.sleep(0.015)
        change()
        assert os.stat(sub).st_mtime_ns > before


def test_rule09_symlinks(d):
    """Symlinks: read back exactly, followed, dangling, 4095 bytes long, renamed over (ln -sfn), removed."""
    link, target = os.path.join(d, "link"), os.path.join(d, "target")
    put(target, b"data")
    os.symlink("target", link)
    assert os.readlink(link) == "target" and get(link) == b"data"
    assert stat.S_ISLNK(os.lstat(link).st_mode) and os.lstat(link).st_size == 6
    os.symlink("none", os.path.join(d, "dangling"))
    with pytest.raises(FileNotFoundError):
        get(os.path.join(d, "dangling"))
    os.symlink("t" * 4095, os.path.join(d, "long"))
    assert os.readlink(os.path.join(d, "long")) == "t" * 4095
    os.mkdir(os.path.join(d, "v1"))
    os.mkdir(os.path.join(d, "v2"))
    for v in ("v1", "v2", "v1"):
        subprocess.run(["ln", "-sfn", v, os.path.join(d, "current")], check=True)
        assert os.readlink(os.path.join(d, "current")) == v
    os.unlink(link)
    assert get(target) == b"data"


@pytest.mark.mooncake
def test_rule09_hard_links_and_device_nodes_are_refused(d):
    """link and mknod of a device are refused with an errno, and leave nothing behind."""
    put(os.path.join(d, "f"), b"x")
    for call in (lambda: os.link(os.path.join(d, "f"), os.path.join(d, "g")),
                 lambda: os.mknod(os.path.join(d, "c"), stat.S_IFCHR | 0o600, os.makedev(1, 3))):
        with pytest.raises(OSError) as e:
            call()
        assert e.value.errno in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
    assert os.listdir(d) == ["f"]


# ---- flock ----

@pytest.mark.parametrize("held, wanted, granted", [("EX", "EX", False), ("EX", "SH", False),
                                                   ("SH", "EX", False), ("SH", "SH", True)])
def test_rule09_flock_conflicts_between_processes(d, client_a, client_b, held, wanted, granted):
    """LOCK_EX excludes all, LOCK_SH excludes LOCK_EX; LOCK_NB says so at once."""
    path = os.path.join(d, "x.lock")
    put(path, b"")
    for client, how in ((client_a, held), (client_b, wanted)):
        f = client.os.open(path, os.O_RDWR)
        client.exec(f"op = fcntl.LOCK_{how} | fcntl.LOCK_NB; f = {f}")
    client_a.exec("fcntl.flock(f, op)")
    if granted:
        client_b.exec("fcntl.flock(f, op)")
    else:
        with pytest.raises(BlockingIOError):
            client_b.exec("fcntl.flock(f, op)")
        client_a.exec("fcntl.flock(f, fcntl.LOCK_UN)")
        client_b.exec("fcntl.flock(f, op)")


def test_rule09_flock_waits_until_unlocked(d, client_a, client_b):
    """A blocking flock returns when the holder unlocks, and not before."""
    path = os.path.join(d, "x.lock")
    put(path, b"")
    fa, fb = client_a.os.open(path, os.O_RDWR), client_b.os.open(path, os.O_RDWR)
    client_a.exec("fcntl.flock(fd, fcntl.LOCK_EX)", fd=fa)
    client_b.start_exec("fcntl.flock(fd, fcntl.LOCK_EX)", fd=fb)
    assert not client_b.done(0.15)
    client_a.exec("fcntl.flock(fd, fcntl.LOCK_UN)", fd=fa)
    client_b.finish(2)


@pytest.mark.parametrize("end", ["close", "kill"])
def test_rule09_flock_is_released_with_its_holder(d, client_a, client_b, end):
    """A waiter gets the lock when the holder closes its last descriptor or is killed."""
    path = os.path.join(d, "x.lock")
    put(path, b"")
    fa, fb = client_a.os.open(path, os.O_RDWR), client_b.os.open(path, os.O_RDWR)
    client_a.exec("fcntl.flock(fd, fcntl.LOCK_EX); dup = os.dup(fd); os.close(dup)", fd=fa)
    client_b.start_exec("fcntl.flock(fd, fcntl.LOCK_EX)", fd=fb)
    assert not client_b.done(0.1), "closing a duplicate must not unlock"
    if end == "close":
        client_a.os.close(fa)
    else:
        client_a.kill(signal.SIGKILL)
    client_b.finish(2)


def test_rule09_flock_wait_is_interrupted_by_a_signal(d, client_a, client_b):
    """A signal ends a blocking flock with EINTR within a moment, and the lock is not taken later."""
    path = os.path.join(d, "x.lock")
    put(path, b"")
    fa, fb = client_a.os.open(path, os.O_RDWR), client_b.os.open(path, os.O_RDWR)
    client_a.exec("fcntl.flock(fd, fcntl.LOCK_EX)", fd=fa)
    client_b.start_exec("""
class Alarm(Exception): pass
def on_alarm(*_): raise Alarm
signal.signal(signal.SIGALRM, on_alarm)
signal.setitimer(signal.ITIMER_REAL, 0.1)
began = time.monotonic()
try:
    fcntl.flock(fd, fcntl.LOCK_EX)
    result = "granted"
except Alarm:
    result = time.monotonic() - began
""", fd=fb)
    took = client_b.finish(5)
    assert isinstance(took, float) and took < 1
    client_a.exec("fcntl.flock(fd, fcntl.LOCK_UN)")
    client_a.exec("fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)")


def test_rule09_flock_tool(d):
    """flock(1) serialises two shells on one lock file."""
    env.require_tool("flock")
    script = "flock x.lock sh -c 'echo in >> log; sleep 0.1; echo out >> log'"
    shells = [subprocess.Popen(["sh", "-c", script], cwd=d) for _ in range(3)]
    assert [p.wait() for p in shells] == [0, 0, 0]
    assert get(os.path.join(d, "log")) == b"in\nout\n" * 3


# ---- statvfs, readdir ----

@pytest.mark.mooncake
def test_rule09_statvfs_moves(fs, d):
    """Writing moves the free space by that much, unlinking gives it back; the total is the budget."""
    def free():
        s = os.statvfs(d)
        return s.f_bavail * s.f_frsize

    s = os.statvfs(d)
    assert s.f_blocks * s.f_frsize == fs.tier()["budget_bytes"] == 256 * MIB
    assert s.f_namemax == 255
    before = free()
    put(os.path.join(d, "f"), pattern(1, 32 * MIB))
    assert abs(before - free() - 32 * MIB) < MIB
    os.unlink(os.path.join(d, "f"))
    wait_for(lambda: abs(before - free()) < MIB, 3, "the space is free again")


def test_rule09_d_type(d):
    """readdir fills d_type of files, directories and symlinks."""
    os.mkdir(os.path.join(d, "dir"))
    put(os.path.join(d, "file"), b"")
    os.symlink("file", os.path.join(d, "link"))
    listed = sorted(check_prog("dirseek", "list", d).splitlines())
    assert listed == sorted(["d .", "d ..", "d dir", "f file", "l link"])


@pytest.mark.parametrize("n", [10, 3000])
def test_rule09_seek_cookies_are_stable(d, n):
    """telldir positions stay right while others create and unlink, in the same and in a fresh stream."""
    check_prog("dirseek", "check", d, n)


def test_rule09_inode_numbers_of_readdir_and_stat_agree(d):
    """d_ino is st_ino, for the entries and for `.` and `..`."""
    for i in range(20):
        put(os.path.join(d, f"f{i}"), b"")
    os.mkdir(os.path.join(d, "sub"))
    with os.scandir(d) as entries:
        for e in entries:
            assert e.inode() == os.lstat(e.path).st_ino
    assert os.stat(os.path.join(d, "sub", "..")).st_ino == os.stat(d).st_ino


# ---- writing in odd ways ----

def test_rule09_copy_file_range(d):
    """copy_file_range from an object to a new file copies exactly, offsets included."""
    data = pattern(1, 3 * MIB + 100)
    put(os.path.join(d, "from"), data)
    a = os.open(os.path.join(d, "from"), os.O_RDONLY)
    b = os.open(os.path.join(d, "to"), os.O_WRONLY | os.O_CREAT)
    done = 0
    while True:
        n = os.copy_file_range(a, b, 1 << 30)
        if n == 0:
            break
        done += n
    assert done == len(data)
    assert os.copy_file_range(a, b, 1000, 5, 10) == 1000
    os.close(a)
    os.close(b)
    assert get(os.path.join(d, "to")) == data[:10] + data[5:1005] + data[1010:]


def test_rule09_sendfile(d):
    """sendfile from an object to a file and to a pipe."""
    data = pattern(1, 200000)
    put(os.path.join(d, "from"), data)
    a = os.open(os.path.join(d, "from"), os.O_RDONLY)
    b = os.open(os.path.join(d, "to"), os.O_WRONLY | os.O_CREAT)
    done = 0
    while done < len(data):
        done += os.sendfile(b, a, done, len(data))
    os.close(b)
    assert get(os.path.join(d, "to")) == data
    r, w = os.pipe()
    assert os.sendfile(w, a, 100, 4000) == 4000
    assert os.read(r, 5000) == data[100:4100]
    for f in (a, r, w):
        os.close(f)


def test_rule09_fallocate(d, fd):
    """fallocate grows with zeros, KEEP_SIZE keeps; punch and zero range give zeros; or clean EOPNOTSUPP."""
    path = os.path.join(d, "f")
    os.write(fd, b"x" * 10000)
    expected = bytearray(b"x" * 10000)
    keep, punch, zero = 1, 2, 16
    for mode, offset, length in ((0, 5000, 15000), (keep, 0, 1 << 20), (punch | keep, 1000, 3000),
                                 (zero, 6000, 1000), (zero | keep, 8000, 100)):
        try:
            fallocate(fd, mode, offset, length)
        except OSError as e:
            assert e.errno == errno.EOPNOTSUPP
            continue
        if mode == 0:
            expected += bytes(20000 - len(expected))
        elif mode != keep:
            expected[offset:offset + length] = bytes(length)
    assert os.pread(fd, 1 << 21, 0) == bytes(expected)
    assert os.fstat(fd).st_size == len(expected)
    os.close(fd)
    assert get(path) == bytes(expected)


def test_rule09_random_pwrites_read_back(d, fd):
    """Two hundred pwrites at random places, with reads and truncates between: as a byte array has it."""
    rng = random.Random(5)
    model = bytearray()
    for i in range(200):
        off, n = rng.randrange(300000), rng.randrange(1, 20000)
        data = rng.randbytes(n)
        if off > len(model):
            model += bytes(off - len(model))
        model[off:off + n] = data
        assert os.pwrite(fd, data, off) == n
        if i % 17 == 0:
            size = rng.randrange(320000)
            os.ftruncate(fd, size)
            model = model[:size] + bytes(max(0, size - len(model)))
        if i % 5 == 0:
            off = rng.randrange(300000)
            assert os.pread(fd, 50000, off) == model[off:off + 50000]
    assert os.fstat(fd).st_size == len(model)
    os.close(fd)
    assert get(os.path.join(d, "f")) == model


@pytest.mark.parametrize("size", [4096, 65536, MIB, MIB + 4096, 2 * MIB, 2 * MIB - 5])
def test_rule09_gaps_are_zeros_after_recycling(d, size):
    """No byte of an earlier object is ever readable: gaps of new files in recycled frames are zeros."""
    for i in range(12):
        put(os.path.join(d, f"old{i}"), b"\xff" * size)
    for i in range(12):
        os.unlink(os.path.join(d, f"old{i}"))
    for i in range(12):
        path = os.path.join(d, f"new{i}")
        f = os.open(path, CREATE, 0o644)
        at = size * i // 13
        os.pwrite(f, b"A", at)
        if i % 3 == 0:
            os.ftruncate(f, size)
        else:
            os.pwrite(f, b"Z", size - 1)
        expected = bytearray(size)
        expected[at] = ord("A")
        if i % 3:
            expected[size - 1] = ord("Z")
        assert os.pread(f, size + 100, 0) == bytes(expected)
        os.close(f)
        assert get(path) == bytes(expected)
        with open(path, "rb") as g, mmap.mmap(g.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ) as m:
            assert m[:] == bytes(expected)


def test_rule09_shrunk_and_grown_file_has_zeros(d, fd):
    """Bytes cut off by ftruncate do not come back when the file grows again."""
    os.write(fd, b"\xff" * 100000)
    os.ftruncate(fd, 10)
    os.ftruncate(fd, 50000)
    assert os.pread(fd, 100000, 0) == b"\xff" * 10 + bytes(49990)
    os.pwrite(fd, b"e", 99999)
    assert os.pread(fd, 200000, 0) == b"\xff" * 10 + bytes(99989) + b"e"
    os.close(fd)
    assert get(os.path.join(d, "f")) == b"\xff" * 10 + bytes(99989) + b"e"


def test_rule09_tail_page_of_a_mapping_is_zero(d):
    """The tail page of an object of odd size is zero behind the end, in every mapping."""
    path = os.path.join(d, "f")
    put(path, b"\xff" * 8192)
    os.unlink(path)
    put(path, b"\xee" * 5000)
    for how in ("private", "shared"):
        p = subprocess.run([prog("mapread"), "-p", path, how], capture_output=True, timeout=30)
        assert p.returncode == 0 and p.stdout == b"\xee" * 5000 + bytes(3192)


@pytest.mark.parametrize("n", [4096, 262144, 4 * MIB])
def test_rule09_direct_io_of_whole_blocks(d, n):
    """O_DIRECT writes and reads of whole blocks, the last read at the end included."""
    path, data = os.path.join(d, "f"), pattern(n, n)
    buf = mmap.mmap(-1, n + 4096)
    buf[:n] = data
    f = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_DIRECT, 0o644)
    assert os.write(f, memoryview(buf)[:n]) == n
    os.close(f)
    buf[:] = bytes(n + 4096)
    f = os.open(path, os.O_RDONLY | os.O_DIRECT)
    assert os.readv(f, [buf]) == n
    assert buf[:n] == data and buf[n:] == bytes(4096)
    assert os.preadv(f, [memoryview(buf)[:4096]], n - 4096) == 4096
    assert buf[:4096] == data[-4096:]
    os.close(f)


def test_rule09_direct_io_read_of_an_odd_sized_object(d):
    """An O_DIRECT read of whole blocks over the end of an odd-sized object gets what there is."""
    path, data = os.path.join(d, "f"), pattern(1, 10001)
    put(path, data)
    buf = mmap.mmap(-1, 16384)
    f = os.open(path, os.O_RDONLY | os.O_DIRECT)
    assert os.preadv(f, [buf], 0) == 10001 and buf[:10001] == data
    assert os.preadv(f, [buf], 8192) == 10001 - 8192
    os.close(f)


def test_rule09_append_writes_of_threads_do_not_overlap(d, fd):
    """O_APPEND writes of several threads through one handle: every record there once, whole."""
    os.close(fd)
    path = os.path.join(d, "f")
    f = os.open(path, os.O_WRONLY | os.O_APPEND)

    def work(k):
        for i in range(100):
            os.write(f, b"%d:%04d;" % (k, i))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    os.close(f)
    records = get(path).split(b";")
    assert sorted(records[:-1]) == sorted(b"%d:%04d" % (k, i) for k in range(4) for i in range(100))


def test_rule09_shared_mapping_of_a_draft(d, fd):
    """MAP_SHARED stores on a file being written: seen by read after msync, in the file after close."""
    path = os.path.join(d, "f")
    os.ftruncate(fd, 300000)
    m = mmap.mmap(fd, 300000)
    m[1000:2000] = b"m" * 1000
    m[299999:] = b"e"
    m.flush()
    expected = bytes(1000) + b"m" * 1000 + bytes(297999) + b"e"
    assert os.pread(fd, 400000, 0) == expected
    os.pwrite(fd, b"w" * 10, 0)
    m[2000:2010] = b"2" * 10
    m.close()
    os.close(fd)
    assert get(path) == b"w" * 10 + bytes(990) + b"m" * 1000 + b"2" * 10 + bytes(297989) + b"e"


@pytest.mark.parametrize("how", ["private", "populate", "shared"])
@pytest.mark.parametrize("size", [1, 4096, 300001, 4 * MIB])
def test_rule09_mappings_of_objects(d, how, size):
    """MAP_PRIVATE, MAP_PRIVATE|MAP_POPULATE and MAP_SHARED read mappings, descriptor closed first."""
    path, data = os.path.join(d, "f"), pattern(size, size)
    put(path, data)
    p = subprocess.run([prog("mapread"), path, how], capture_output=True, timeout=30)
    assert p.returncode == 0 and p.stdout == data


def test_rule09_private_mapping_stores_stay_private(d):
    """Stores to a MAP_PRIVATE mapping of an object do not reach it."""
    path = os.path.join(d, "f")
    put(path, b"a" * 8192)
    with open(path, "rb") as f:
        m = mmap.mmap(f.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    m[:100] = b"b" * 100
    assert get(path) == b"a" * 8192
    m.close()


def test_rule09_unlinked_but_open_file_is_a_scratch_file(d, fd, client_a):
    """Unlinked while open for writing: pwrite, pread, ftruncate, mmap go on; nothing appears at close."""
    path = os.path.join(d, "f")
    os.write(fd, b"before")
    os.unlink(path)
    assert os.listdir(d) == [] and not exists(path)
    os.pwrite(fd, b"after" * 10000, 6)
    assert os.pread(fd, 100000, 0) == b"before" + b"after" * 10000
    os.ftruncate(fd, 8192)
    m = mmap.mmap(fd, 8192)
    m[0:6] = b"mapped"
    m.close()
    assert os.pread(fd, 11, 0) == b"mappedafter"
    client_a.put(path, b"somebody else's")
    os.close(fd)
    assert get(path) == b"somebody else's"


def test_rule09_temporary_file_without_a_name(d):
    """tempfile.TemporaryFile (O_TMPFILE, or unlink at once) works and leaves nothing."""
    with tempfile.TemporaryFile(dir=d) as f:
        f.write(pattern(1, 100000))
        f.seek(0)
        assert f.read() == pattern(1, 100000)
        assert os.listdir(d) == []
    assert os.listdir(d) == []


# ---- ioctls ----

@pytest.mark.parametrize("what", ["object", "draft", "directory"])
def test_rule09_unknown_ioctls_are_enotty_at_once(d, what):
    """TCGETS, which comes with every Python open, and other unknown ioctls answer ENOTTY at once."""
    path = os.path.join(d, "f")
    put(path, b"x")
    f = os.open({"object": path, "draft": path + "2", "directory": d}[what],
                CREATE if what == "draft" else os.O_RDONLY)
    began = time.monotonic()
    for request in (termios.TCGETS, 0x1234, 0xC0105500):
        with pytest.raises(OSError) as e:
            fcntl.ioctl(f, request, bytes(64))
        assert e.value.errno == errno.ENOTTY
    assert time.monotonic() - began < 0.2
    os.close(f)


# ---- rule 10 ----

def test_rule10_unlink_is_seen_by_every_process(d, client_a, client_b):
    """Processes that have looked at, opened or cached a name get ENOENT after another one's unlink."""
    path = os.path.join(d, "f")
    for i in range(50):
        put(path, b"%d" % i)
        assert client_a.get(path) == client_b.get(path) == b"%d" % i
        client_a.os.unlink(path)
        for client in (client_a, client_b):
            with pytest.raises(FileNotFoundError):
                client.os.stat(path)
            with pytest.raises(FileNotFoundError):
                client.os.open(path, os.O_RDONLY)


@pytest.mark.parametrize("n", [1500, pytest.param(100000, marks=pytest.mark.limit(300))])
def test_rule10_many_names(d, n):
    """Thousands of names: listed exactly once each, removed while being listed, the directory then empty."""
    if n > 10000:
        env.require_long()
    names = {f"{i:064x}.bin" for i in range(n)}
    for name in names:
        os.close(os.open(os.path.join(d, name), os.O_WRONLY | os.O_CREAT))
    listed = os.listdir(d)
    assert len(listed) == n and set(listed) == names
    with os.scandir(d) as entries:
        for e in entries:
            os.unlink(e.path)
    assert os.listdir(d) == []
    os.rmdir(d)


def test_rule10_listing_sees_what_was_there_all_along(d):
    """A listing under way while others create, unlink and rename shows each untouched name exactly once."""
    stay = {f"stay{i:05d}" for i in range(1500)}
    for name in stay:
        os.close(os.open(os.path.join(d, name), os.O_WRONLY | os.O_CREAT))
    churn = subprocess.Popen(["sh", "-c", "i=0; while :; do i=$((i+1)); : > c$i; mv c$i m$i; "
                              "rm -f m$((i-20)); done"], cwd=d)
    try:
        for _ in range(20):
            listed = os.listdir(d)
            assert len(listed) == len(set(listed))
            assert {n for n in listed if n.startswith("stay")} == stay
    finally:
        churn.kill()
        churn.wait()
