# SPDX-License-Identifier: Apache-2.0
"""Sessions of clients that are killed, scribble over their memory or send rubbish: the daemon takes no harm."""
import ctypes
import errno
import fcntl
import mmap
import os
import random
import struct
import threading
import time

import pytest

from harness import env, session as fp
from harness.content import pattern, put, wait_for
from harness.session_lab import big_read, books, fails, fork, fresh_name, kill, open_version, wait_for_books

pytestmark = pytest.mark.mooncake
MIB = env.MIB


# ---- kill ----

def test_kill_in_a_waiting_read(live):
    pid = fork(lambda: fp.Session(live.path).collect())
    time.sleep(0.3)
    kill(pid)


def test_kill_in_a_large_submission(live, d):
    path = os.path.join(d, "f")
    put(path, bytes(4 * MIB))

    def work():
        s = fp.Session(live.path, fresh_name(), 12 * MIB)
        s.submit(**big_read(s, path))

    pid = fork(work)
    time.sleep(0.7)
    kill(pid)
    os.unlink(path)


def test_kill_with_work_queued(own_live):
    """A session that goes while dozens of large submissions are queued: the daemon is idle soon after."""
    live = own_live
    path = os.path.join(live.path, "f")
    put(path, bytes(4 * MIB))
    before = books(live)

    def work():
        s = fp.Session(live.path, fresh_name(), 12 * MIB)
        request = big_read(s, path)
        request["flags"] = fp.ASYNC
        try:
            for _ in range(40):
                s.submit(**request)
        except OSError as e:
            assert e.errno == errno.EAGAIN

    pid = fork(work)
    time.sleep(1)
    kill(pid)
    wait_for_books(live, before)


def busy_client(mount, d, name, seed):
    """Does everything a client can do, for ever."""
    rng = random.Random(seed)
    s = fp.Session(mount, name, 2 * MIB)
    directory = s.open_dir(d)
    files = [open_version(os.path.join(d, "base")) for _ in range(8)]
    extra = [s.register(s.buffer.handle, 0, 4096) for _ in range(20)]
    assert extra and files
    os.set_blocking(s.fd, False)
    while True:
        s.used = 0
        n = rng.randrange(1, 40)
        op = rng.choice((fp.READ, fp.WRITE))
        items = [s.named(directory, b"base" if op == fp.READ else b"k%d-%d" % (seed % 8, k),
                         1 << 20, 1 << rng.randrange(19), mode=0) for k in range(n)]
        try:
            s.submit(op=op, n_items=n, items=s.items(items), flags=rng.choice((0, fp.ASYNC)))
            s.collect()
        except BlockingIOError:
            pass


@pytest.mark.limit(240)
@pytest.mark.options(dram="256M")
def test_kill_clients_again_and_again(own_live):
    """Whatever clients were doing when they died, nothing of theirs stays in the daemon."""
    m = own_live
    d = os.path.join(m.path, "d")
    os.mkdir(d)
    put(os.path.join(d, "base"), pattern("base", MIB))
    rng = random.Random(1)
    before = None

    def remove_files():
        """The books once only "base" is there and the last client is forgotten."""
        wait_for(lambda: not os.listdir(m.control("buffers")), env.scaled(5), "buffers are gone")
        for name in os.listdir(d):
            if name != "base":
                os.unlink(os.path.join(d, name))
        wait_for(lambda: not m.tier()["zombie_bytes"], env.scaled(10), "zombies are gone")
        return books(m)

    for round_no in range(205 if env.LONG else 55):
        if round_no == 5:
            before = remove_files()
        pid = fork(lambda: busy_client(m.path, d, fresh_name(), round_no))
        time.sleep(rng.random() * 0.08 + 0.02)
        kill(pid)
    remove_files()
    wait_for_books(m, before)


# ---- hostile clients ----

def test_a_registered_buffer_does_not_shrink(s, d):
    fails(errno.EBUSY, os.ftruncate, s.buffer.fd, 4096)
    fails(errno.EBUSY, os.truncate, s.buffer.path, 0)
    os.ftruncate(s.buffer.fd, s.buffer.size + 4096)
    fails(errno.EBUSY, os.ftruncate, s.buffer.fd, s.buffer.size)
    s.unregister(s.number)
    os.ftruncate(s.buffer.fd, 4096)
    assert os.fstat(s.buffer.fd).st_size == 4096


def test_a_buffer_is_made_longer_by_ftruncate_alone(s):
    """What is not accounted for cannot be had: not by write(2), not by fallocate(2)."""
    size = s.buffer.size
    fails(errno.EFBIG, os.pwrite, s.buffer.fd, b"x", size)
    fails(errno.EFBIG, os.pwrite, s.buffer.fd, b"x", 1 << 40)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.fallocate(s.buffer.fd, 0, ctypes.c_long(0), ctypes.c_long(size * 2)) == -1
    assert ctypes.get_errno() == errno.EOPNOTSUPP
    assert os.fstat(s.buffer.fd).st_size == size
    fails(errno.EFBIG, os.ftruncate, s.buffer.fd, s.limits["max_buffer_bytes"] + 4096)


def test_a_buffer_has_to_be_open_for_reading_and_writing(s, live):
    for flags in (os.O_RDONLY, os.O_WRONLY):
        fd = os.open(s.buffer.path, flags)
        fails(errno.EACCES, s.register, fp.handle_of(fd)[0])
        os.close(fd)


def test_buffer_unlinked_punched_and_remapped_during_work(new_session, d):
    """The client plays with its buffer while submissions run: errors at most, no harm to the daemon."""
    s = new_session(8 * MIB)
    directory = s.open_dir(d)
    put(os.path.join(d, "f"), pattern("f", MIB))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_size_t
    is_over = threading.Event()

    def play():
        os.unlink(s.buffer.path)
        while not is_over.is_set():
            s.buffer.mem.madvise(mmap.MADV_REMOVE, 4 * MIB, 4 * MIB)
            fails(errno.EBUSY, os.ftruncate, s.buffer.fd, 0)
            libc.fallocate(s.buffer.fd, 3, ctypes.c_long(0), ctypes.c_long(8 * MIB))
            mapped = libc.mmap(None, ctypes.c_size_t(8 * MIB), 3, 1, s.buffer.fd, ctypes.c_long(0))
            libc.munmap(ctypes.c_void_p(mapped + 4096), ctypes.c_size_t(8 * MIB - 4096))
            libc.munmap(ctypes.c_void_p(mapped), ctypes.c_size_t(4096))

    thread = threading.Thread(target=play)
    thread.start()
    try:
        for _ in range(100):
            s.used = 0
            at = s.items([s.named(directory, b"f", 4 * MIB + k * MIB, MIB, mode=0) for k in range(4)] +
                         [s.named(directory, b"g%d" % k, 4 * MIB + k * MIB, MIB, mode=0) for k in range(4)])
            assert s.submit(op=fp.READ, n_items=4, items=at)["n_ok"] == 4
            assert s.submit(op=fp.WRITE, n_items=4, items=at + 4 * fp.ITEM_BYTES)["n_ok"] == 4
    finally:
        is_over.set()
        thread.join()
    assert s.read(directory, ["f"], MIB) == [(0, pattern("f", MIB))]


def test_descriptors_rewritten_while_they_are_decoded(new_session, live, d):
    """A thread scribbles over the item array all the time: the daemon works with what it copied."""
    s, good = new_session(), new_session()
    directory = s.open_dir(d)
    put(os.path.join(d, "f"), pattern("f", 4096))
    at = s.items([s.named(directory, b"f", 65536, 4096, mode=0) for _ in range(256)])
    right = bytes(s.buffer.mem[at:at + 256 * fp.ITEM_BYTES])
    is_over = threading.Event()

    def scribble():
        rng = random.Random(3)
        while not is_over.is_set():
            where = at + rng.randrange(len(right) - 8)
            s.buffer.mem[where:where + 8] = rng.randbytes(8)
            if rng.random() < 0.01:
                s.buffer.mem[at:at + len(right)] = right

    thread = threading.Thread(target=scribble)
    thread.start()
    try:
        for k in range(300):
            s.submit(op=(fp.READ, fp.PREFETCH)[k % 2], n_items=256, items=at)
    finally:
        is_over.set()
        thread.join()
    assert good.read(good.open_dir(d), ["f"], 4096) == [(0, pattern("f", 4096))]


def test_rubbish(s, live):
    """Random submissions and random bytes as items: answered, every one."""
    rng = random.Random(5)
    answers = set()
    for _ in range(2000):
        s.buffer.mem[:4096] = rng.randbytes(4096)
        arg = bytearray(rng.randbytes(112))
        if rng.random() < 0.8:
            struct.pack_into("<IIII", arg, 0, rng.randrange(6), rng.choice((0, 0, 1, 2)), s.number,
                             rng.randrange(1, 40))
            struct.pack_into("<QQ", arg, 16, rng.randrange(64) * 8, 1000)
            if rng.random() < 0.9:
                arg[40:112] = bytes(72)
        try:
            fcntl.ioctl(s.fd, fp.SUBMIT, arg, True)
            answers.add(0)
        except OSError as e:
            answers.add(e.errno)
    assert 0 in answers and answers <= {0, errno.EINVAL, errno.EFAULT, errno.ENOENT, errno.EMFILE, errno.EPERM,
                                        errno.EAGAIN, errno.ENOTDIR, errno.ETIMEDOUT}
    assert live.status()["pid"] == live.pid


def test_another_sessions_buffer_is_out_of_reach(new_session, d):
    """Numbers are a session's own; a handle of a closed buffer is nobody's."""
    a, b = new_session(), new_session()
    fails(errno.ENOENT, a.submit, op=fp.READ, n_items=1, items=0, buffer=2)
    gone = fp.SharedBuffer(os.path.dirname(os.path.dirname(os.path.dirname(a.buffer.path))), fresh_name(), 4096)
    gone.close()
    fails(errno.ENOENT, a.register, gone.handle)
    fails(errno.ENOENT, a.register, b.open_dir(d))
    fails(errno.ENOENT, a.register, 1)


def test_a_handle_closed_while_it_is_read(new_session, live, d):
    """close(2) of the descriptor races with submissions that name it: either it is found or not."""
    s = new_session()
    path = os.path.join(d, "f")
    put(path, bytes(4096))
    is_over = threading.Event()

    def submit():
        while not is_over.is_set():
            try:
                s.submit(op=fp.READ, n_items=64, items=0)
            except OSError as e:
                assert e.errno == errno.ENOENT

    thread = threading.Thread(target=submit)
    thread.start()
    try:
        for k in range(500):
            fd, handle = open_version(path)
            one = struct.pack(fp.ITEM_FORMAT, *({"object": handle, "base": 65536, "segment_count": 1,
                                                 "segment_bytes": 4096}.get(f, 0) for f in fp.ITEM_FIELDS))
            s.buffer.mem[:64 * fp.ITEM_BYTES] = one * 64
            if k % 2:
                put(path, bytes(4096))  # the descriptor is the last that holds it
            os.close(fd)
    finally:
        is_over.set()
        thread.join()
    assert live.status()["pid"] == live.pid
