# SPDX-License-Identifier: Apache-2.0
"""What tests of sessions share: client processes that live and die, and what the daemon keeps of them."""
import errno
import itertools
import os
import signal
import struct
import time

import pytest

from . import env, session as fp

_serial = itertools.count()


def fresh_name():
    """A name for a buffer."""
    return f"b{os.getpid()}-{next(_serial)}"


def open_version(path):
    """(descriptor, handle) of a published file. Right after close(2) its writer may still find the draft."""
    deadline = time.monotonic() + env.scaled(5)
    while True:
        fd = os.open(path, os.O_RDONLY)
        try:
            return fd, fp.handle_of(fd)[0]
        except OSError as e:
            os.close(fd)
            assert e.errno == errno.EBUSY and time.monotonic() < deadline


def fails(error, call, *args, **more):
    with pytest.raises(OSError) as caught:
        call(*args, **more)
    assert caught.value.errno == error, os.strerror(caught.value.errno)


def fork(work):
    """Runs work() in a child, which then sleeps until it is killed. Returns its pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
        time.sleep(600)
    finally:
        os._exit(1)


def child_says(work, seconds=30):
    """The number 0 to 254 that work() returns in a child process; 255 if it fails."""
    pid = os.fork()
    if not pid:
        status = 255
        try:
            status = work() or 0
        finally:
            os._exit(status)
    deadline = time.monotonic() + env.scaled(seconds)
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            pytest.fail("the child hangs")
        time.sleep(0.005)


def kill(pid, within=1.0):
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert time.monotonic() - began < env.scaled(within)


def links(folder):
    for name in os.listdir(folder):
        try:
            yield os.readlink(os.path.join(folder, name))
        except FileNotFoundError:
            pass


def books(m):
    """What clients could leave behind in the daemon; frames that are kept for the next are nobody's."""
    tier = m.tier()
    frames = os.path.join(m.state, "dram") + "/"
    with open(f"/proc/{m.pid}/maps") as f:
        n_maps = sum(frames in line for line in f)
    return {"fds": sum(not x.startswith(frames) for x in links(f"/proc/{m.pid}/fd")), "maps": n_maps,
            "buffers": len(os.listdir(m.control("buffers"))), "open": tier["open_frames"],
            "zombies": tier["zombie_bytes"], "used": tier["used_bytes"] - tier["free_list_bytes"]}


def wait_for_books(m, before):
    deadline = time.monotonic() + env.scaled(10)
    while books(m) != before:
        assert time.monotonic() < deadline, f"{books(m)} instead of {before}"
        time.sleep(0.05)


def as_user(uid, work):
    """work() as another user in a child; see child_says."""
    def run():
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        return work()
    return child_says(run)


def big_read(s, path):
    """The items of a READ that would move 256 GiB: 65,536 times 4 MiB to one place."""
    base = 8 * env.MIB
    one = struct.pack(fp.ITEM_FORMAT, *({"object": open_version(path)[1], "base": base, "segment_count": 1,
                                         "segment_bytes": 4 * env.MIB}.get(f, 0) for f in fp.ITEM_FIELDS))
    s.buffer.mem[:65536 * fp.ITEM_BYTES] = one * 65536
    return dict(op=fp.READ, n_items=65536, items=0, deadline_us=600_000_000)
