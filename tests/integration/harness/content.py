# SPDX-License-Identifier: Apache-2.0
"""Contents of test files and the small operations that nearly every test does."""
import os
import random
import time


def pattern(seed, n):
    """n bytes that depend on seed; two seeds share no 16-byte run."""
    return random.Random(seed).randbytes(n)


def put(path, data):
    """Writes a file the plain way and closes it."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        write_all(fd, data)
    finally:
        os.close(fd)


def put_by_rename(path, data):
    """Writes a temporary name and renames it over path."""
    tmp = f"{path}.tmp.{os.getpid()}"
    put(tmp, data)
    os.rename(tmp, path)


def write_all(fd, data):
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view):]


def get(path):
    with open(path, "rb", buffering=0) as f:
        return f.read()


def peek(path):
    """The content of path as this process sees it now, None where there is no such name."""
    try:
        return get(path)
    except FileNotFoundError:
        return None


def n_intact(files):
    """How many of path -> bytes are there; none may have other bytes."""
    n = 0
    for path, data in files.items():
        got = peek(path)
        assert got is None or got == data, f"{path}: wrong bytes"
        n += got is not None
    return n


def flip(path, at):
    """Flips a bit of the byte at that offset, as a bad medium does."""
    with open(path, "r+b") as f:
        f.seek(at)
        byte = f.read(1)[0]
        f.seek(at)
        f.write(bytes([byte ^ 0x10]))


def make_dir(mount, path):
    full = os.path.join(mount.path, path)
    os.makedirs(full)
    return full


def put_blocks(folder, n, size, start=0):
    """Files b<i>, start <= i < start + n, of size bytes i % 251."""
    for i in range(start, start + n):
        put(os.path.join(folder, f"b{i}"), bytes([i % 251]) * size)


def exists(path):
    return os.path.lexists(path)


def xattr(path, name):
    """An attribute user.mooncake.NAME as text."""
    return os.getxattr(path, "user.mooncake." + name).decode().rstrip("\0\n")


def set_xattr(path, name, value):
    os.setxattr(path, "user.mooncake." + name, str(value).encode())


def version(path):
    """The version of an object; only equality and order mean anything."""
    return int(xattr(path, "version"), 0)


def wait_for(condition, seconds, what):
    """Waits until condition() is true; for what the daemon does in the background only."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.01)


def _crc32c_table():
    table = []
    for n in range(256):
        for _ in range(8):
            n = (n >> 1) ^ (0x82F63B78 if n & 1 else 0)
        table.append(n)
    return table


_TABLE = _crc32c_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF
