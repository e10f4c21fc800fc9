# SPDX-License-Identifier: Apache-2.0
"""Rules 4, 5 and 6: overwriting makes a new version; whoever has the old one open keeps it."""
import errno
import mmap
import os
import subprocess
import threading
import time

import pytest

from harness import env
from harness.content import exists, get, pattern, put, put_by_rename, version, wait_for
from harness.progs import check_prog, prog

MIB = env.MIB
OLD = pattern("old", 300000)
mooncake = pytest.mark.mooncake


@pytest.fixture
def f(d):
    """Path of a published file that holds OLD."""
    path = os.path.join(d, "f")
    put(path, OLD)
    return path


# ---- rule 4: opening a published name for write ----

@mooncake
def test_rule04_read_write_open_changes_a_copy(f, client_a):
    """r+ and one byte changed: nobody sees it until close, then everybody does."""
    fd = client_a.os.open(f, os.O_RDWR)
    client_a.os.pwrite(fd, b"!", 1000)
    assert get(f) == OLD
    assert client_a.os.pread(fd, 10, 996) == OLD[996:1000] + b"!" + OLD[1001:1006]
    client_a.os.close(fd)
    assert get(f) == OLD[:1000] + b"!" + OLD[1001:]


@mooncake
def test_rule04_append(f, client_a):
    """O_APPEND appends to a copy of the object."""
    fd = client_a.os.open(f, os.O_WRONLY | os.O_APPEND)
    client_a.os.write(fd, b"tail")
    client_a.os.write(fd, b"tail2")
    assert get(f) == OLD
    client_a.os.close(fd)
    assert get(f) == OLD + b"tailtail2"


@mooncake
def test_rule04_truncating_open(f, client_a):
    """O_TRUNC starts from nothing; the old object stays visible until close."""
    fd = client_a.os.open(f, os.O_WRONLY | os.O_TRUNC)
    assert client_a.fstat(fd).st_size == 0
    assert get(f) == OLD
    client_a.os.write(fd, b"new")
    client_a.os.close(fd)
    assert get(f) == b"new"


def test_rule04_truncating_open_without_a_write_empties(f, client_a):
    """`: > f` over a published file leaves an empty file."""
    client_a.os.close(client_a.os.open(f, os.O_WRONLY | os.O_TRUNC))
    assert get(f) == b""


def test_rule04_truncating_open_while_the_previous_one_goes_away(f):
    """O_TRUNC while a mapping, the last of the previous open, is removed: nobody sees the file empty."""
    out = check_prog("reopentrunc", f, 5000, timeout=50)
    assert int(out.split()[0]) > 100


@pytest.mark.parametrize("size", [0, 1, 1000, 4096, len(OLD) - 1, len(OLD), len(OLD) + 1, MIB])
def test_rule04_truncate_by_path(f, client_a, size):
    """truncate(2) by path makes a version of that size, zeros behind the old bytes, and no ESTALE."""
    client_a.os.truncate(f, size)
    assert os.stat(f).st_size == size
    assert get(f) == (OLD + bytes(MIB))[:size]


def test_rule04_truncate_by_path_many_times(f):
    """A hundred truncates by path in a row, by one process: never ESTALE."""
    for i in range(100):
        os.truncate(f, 1000 + i)
        assert os.stat(f).st_size == 1000 + i


@mooncake
def test_rule04_read_write_open_without_change_makes_no_version(f, client_a):
    """O_RDWR, read, close: version, mtime and content stay (NIXL opens that way to read)."""
    before = version(f), os.stat(f).st_mtime_ns
    fd = client_a.os.open(f, os.O_RDWR)
    assert client_a.os.pread(fd, len(OLD) + 1, 0) == OLD
    client_a.os.close(fd)
    fd = client_a.os.open(f, os.O_RDWR | os.O_CREAT, 0o644)
    client_a.os.close(fd)
    assert (version(f), os.stat(f).st_mtime_ns) == before


@mooncake
def test_rule04_each_overwrite_has_a_higher_version(f):
    """Versions of a name rise, whichever way it is overwritten."""
    seen = [version(f)]
    put(f, b"1")
    seen.append(version(f))
    put_by_rename(f, b"2")
    seen.append(version(f))
    with open(f, "r+b") as g:
        g.write(b"3")
    seen.append(version(f))
    os.truncate(f, 0)
    seen.append(version(f))
    assert seen == sorted(set(seen))


@mooncake
def test_rule04_two_processes_share_a_copy_on_write_draft(f, client_a, client_b):
    """Two r+ writers share one draft, see each other's bytes, and publish at the last close."""
    fa, fb = client_a.os.open(f, os.O_RDWR), client_b.os.open(f, os.O_RDWR)
    client_a.os.pwrite(fa, b"A" * 4096, 0)
    client_b.os.pwrite(fb, b"B" * 4096, 8192)
    assert client_a.os.pread(fa, 4096, 8192) == b"B" * 4096
    assert client_b.os.pread(fb, 4096, 0) == b"A" * 4096
    client_a.os.close(fa)
    assert get(f) == OLD
    client_b.os.close(fb)
    assert get(f) == b"A" * 4096 + OLD[4096:8192] + b"B" * 4096 + OLD[12288:]


@mooncake
def test_rule04_truncating_writers_do_not_share(f, client_a, client_b):
    """Two O_TRUNC writers of a published name hold a draft each; the last close wins whole."""
    flags = os.O_WRONLY | os.O_TRUNC
    fa, fb = client_a.os.open(f, flags), client_b.os.open(f, flags)
    client_a.os.write(fa, b"A" * 50000)
    client_b.os.write(fb, b"B" * 100)
    client_b.os.close(fb)
    assert get(f) == b"B" * 100
    client_a.os.close(fa)
    assert get(f) == b"A" * 50000


@mooncake
def test_rule04_mapped_stores_of_a_writer_do_not_reach_the_published_object(f, client_a):
    """A shared writable mapping of a reopened file stores into the draft, never into the old version."""
    reader = os.open(f, os.O_RDONLY)
    old_map = mmap.mmap(reader, len(OLD), mmap.MAP_SHARED, mmap.PROT_READ)
    client_a.exec("""
fd = os.open(path, os.O_RDWR)
m = mmap.mmap(fd, size)
m[0:5000] = b"m" * 5000
m.flush()
""", path=f, size=len(OLD))
    assert get(f) == OLD and old_map[:] == OLD
    client_a.exec("m.close(); os.close(fd)")
    assert get(f) == b"m" * 5000 + OLD[5000:]
    assert old_map[:] == OLD
    old_map.close()
    os.close(reader)


@mooncake
def test_rule04_reopening_to_write_through_proc_self_fd(f):
    """O_RDWR through /proc/self/fd has no path to retry: ESTALE, as documented; O_RDONLY works."""
    fd = os.open(f, os.O_RDONLY)
    with pytest.raises(OSError) as e:
        os.open(f"/proc/self/fd/{fd}", os.O_RDWR)
    assert e.value.errno == errno.ESTALE
    again = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
    assert os.pread(again, len(OLD) + 1, 0) == OLD
    os.close(again)
    os.close(fd)


@mooncake
def test_rule04_open_create_of_existing_name_with_excl(f):
    """O_CREAT | O_EXCL on a published name is EEXIST and leaves it alone."""
    before = version(f)
    with pytest.raises(FileExistsError):
        os.open(f, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    assert version(f) == before


@mooncake
@pytest.mark.parametrize("how, writers, rounds", [("trunc", 3, 300), ("mixed", 4, 200)])
def test_rule04_contended_overwrites(d, how, writers, rounds):
    """Processes overwrite one name in place at once, under readers: no ESTALE, no mixture, no short read."""
    out = check_prog("storm", os.path.join(d, "f"), how, writers, 2, rounds, 65536, timeout=50)
    assert int(out.split()[1]) == writers * rounds


@mooncake
def test_rule04_contended_read_write_opens(d, new_client):
    """Four processes reopen one name with O_RDWR while it is replaced all the time: no ESTALE."""
    path = os.path.join(d, "f")
    put(path, b"0" * 20000)
    clients = [new_client() for _ in range(4)]
    for i, c in enumerate(clients):
        c.start_exec("""
for n in range(150):
    fd = os.open(path, os.O_RDWR)
    os.pwrite(fd, b"%d" % who, 1000 * who)
    os.close(fd)
""", path=path, who=i)
    while not all(c.done() for c in clients):
        put_by_rename(path, b"r" * 20000)
    for c in clients:
        c.finish()
    assert len(get(path)) == 20000


@mooncake
def test_rule04_copy_is_made_at_the_first_change_only(fs, d, client_a):
    """An O_RDWR open of a big object costs no bytes until something is written."""
    path = os.path.join(d, "big")
    put(path, pattern(1, 32 * MIB))
    used = fs.tier()["used_bytes"]
    fds = [client_a.os.open(path, os.O_RDWR) for _ in range(4)]
    assert fs.tier()["used_bytes"] - used < MIB
    for fd in fds:
        client_a.os.close(fd)
    os.unlink(path)


# ---- rule 5: a replaced version ----

@mooncake
def test_rule05_replaced_version_stays_readable_by_its_handle(f):
    """An open handle keeps the version it opened through overwrites of every kind."""
    fd = os.open(f, os.O_RDONLY)
    for replace in (lambda: put(f, b"1" * 1000), lambda: put_by_rename(f, b"2"),
                    lambda: os.truncate(f, 5), lambda: os.unlink(f), lambda: put(f, b"3")):
        replace()
        assert os.pread(fd, len(OLD) + 1, 0) == OLD
        assert os.fstat(fd).st_size == len(OLD)
    os.close(fd)


@mooncake
@pytest.mark.parametrize("how", ["private", "populate", "shared"])
def test_rule05_replaced_version_stays_readable_by_its_mapping(f, how):
    """A mapping whose descriptor is closed keeps its version through overwrite, unlink and reuse."""
    p = subprocess.Popen([prog("mapread"), "-w", f, how], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert p.stderr.readline() == b"mapped\n"
    put(f, b"\xff" * len(OLD))
    os.unlink(f)
    for i in range(20):
        put(f + str(i), b"\xff" * len(OLD))
    out, _ = p.communicate(b"\n")
    assert p.returncode == 0 and out == OLD


@mooncake
def test_rule05_path_handle_of_a_replaced_version(f):
    """O_PATH of a replaced version: opens the old bytes at once, ESTALE (never ENOENT) after the grace time."""
    handle = os.open(f, os.O_PATH)
    by_handle = f"/proc/self/fd/{handle}"
    put_by_rename(f, b"new")
    fd = os.open(by_handle, os.O_RDONLY)
    assert os.pread(fd, len(OLD) + 1, 0) == OLD
    os.close(fd)
    time.sleep(2.6)
    with pytest.raises(OSError) as e:
        os.close(os.open(by_handle, os.O_RDONLY))
    assert e.value.errno == errno.ESTALE
    os.close(handle)
    assert get(f) == b"new"


@mooncake
@pytest.mark.parametrize("size, rounds", [(4096, 500), (262144, 200), (1 << 20, 60)])
def test_rule05_rename_over_storm(d, size, rounds):
    """3 writers rename over one name under 4 readers: no ENOENT, ESTALE, mixture, short read or return."""
    out = check_prog("storm", os.path.join(d, "f"), "rename", 3, 4, rounds, size, timeout=50)
    ok, writes, reads = out.split()
    assert ok == "ok" and int(writes) == 3 * rounds and int(reads) > 100


def test_rule05_overwrite_is_seen_by_the_next_open(f, client_a):
    """After a writer's close or rename has returned, every later open anywhere gets the new version."""
    for i in range(200):
        data = b"%06d" % i
        (client_a.put if i % 2 else put_by_rename)(f, data)
        assert get(f) == client_a.get(f) == data
        assert os.stat(f).st_size == 6


# ---- rule 6: reads ----

@pytest.mark.parametrize("size", [1, 4095, 4096, 4097, 131072, MIB, MIB + 1, 5 * MIB + 12345])
def test_rule06_reads_are_never_short(d, client_a, size):
    """One read(2) gets all there is; pread across the end gets what is left; at the end nothing."""
    path, data = os.path.join(d, "f"), pattern(size, size)
    client_a.put(path, data)
    fd = os.open(path, os.O_RDONLY)
    try:
        assert os.read(fd, size + 4096) == data
        assert os.read(fd, 1) == b""
        assert os.pread(fd, size, size // 3) == data[size // 3:]
        assert os.pread(fd, 100, size) == b""
        assert os.pread(fd, 100, size + 100) == b""
        parts = [bytearray(size // 2), bytearray(1), bytearray(size)]
        assert os.preadv(fd, parts, 0) == size
        assert b"".join(parts)[:size] == data
    finally:
        os.close(fd)


def test_rule06_reads_of_a_draft_are_never_short(d):
    """The same for the writer's own reads of what it has not closed yet."""
    path, data = os.path.join(d, "f"), pattern(1, 3 * MIB + 77)
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        assert os.write(fd, data) == len(data)
        assert os.pread(fd, len(data) + 100, 0) == data
        assert os.pread(fd, 100, len(data) - 50) == data[-50:]
        assert os.pread(fd, 100, len(data)) == b""
    finally:
        os.close(fd)


def test_rule06_open_object_survives_unlink(f, client_a):
    """An open object is readable to its last byte after its name is gone."""
    fd = os.open(f, os.O_RDONLY)
    client_a.os.unlink(f)
    assert not exists(f)
    assert os.pread(fd, len(OLD) + 1, 0) == OLD
    assert os.fstat(fd).st_size == len(OLD)
    os.close(fd)


def test_rule06_parallel_readers_of_one_handle(d):
    """Threads that pread different parts of one handle each get their part."""
    path, data = os.path.join(d, "f"), pattern(5, 8 * MIB)
    put(path, data)
    fd = os.open(path, os.O_RDONLY)
    wrong = []

    def read(k):
        for i in range(64):
            off = (i * 131 + k * 17) % 127 * 65536
            if os.pread(fd, 65536, off) != data[off:off + 65536]:
                wrong.append(off)

    threads = [threading.Thread(target=read, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    os.close(fd)
    assert wrong == []


def test_rule06_lost_object_is_enoent(mount):
    """An object whose frame is gone: open is ENOENT, and then access, stat and readdir say so too."""
    mount.expect_errors("lost|missing|frame")
    for name in ("gone", "kept"):
        put(os.path.join(mount.path, name), pattern(name, MIB))
    frames = mount.dram_mounts()
    assert frames, "no tmpfs below the state directory"
    assert _unlink_one_frame(frames[0], pattern("gone", MIB)), "no frame holds the object's bytes"
    path = os.path.join(mount.path, "gone")
    with pytest.raises(FileNotFoundError):
        os.open(path, os.O_RDONLY)
    wait_for(lambda: not os.access(path, os.F_OK), 1, "access says ENOENT")
    assert not exists(path)
    assert os.listdir(mount.path) == ["kept"]
    assert get(os.path.join(mount.path, "kept")) == pattern("kept", MIB)
    assert mount.counter("lost") == 1


def _unlink_one_frame(root, content):
    """Removes the frame file below root that holds content. Returns its path, or None."""
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.getsize(path) == len(content) and get(path) == content:
                os.unlink(path)
                return path
    return None
