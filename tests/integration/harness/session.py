# SPDX-License-Identifier: Apache-2.0
"""A small client of the fast path: the ioctls of mooncakefs.h, with nothing checked on this side.

It depends on the standard library alone, so that a test can send its text to a client process.
"""
import ctypes
import fcntl
import mmap
import os
import struct

LOOKUP, READ, WRITE, PREFETCH = 1, 2, 3, 4
ASYNC, GROUP = 1, 2
MISS, READY, IN_FLIGHT = 0, 1, 2
FILE, DIR, BUFFER = 1, 2, 3


def _ioc(direction, number, size):
    return direction << 30 | size << 16 | 0xC4 << 8 | number


HANDLE, HELLO = _ioc(2, 1, 24), _ioc(3, 2, 64)
REGISTER, UNREGISTER = _ioc(3, 3, 128), _ioc(1, 4, 8)
SUBMIT, CANCEL = _ioc(3, 5, 112), _ioc(1, 6, 8)

SUBMIT_FORMAT = "<IIIIQQQQQIHHQII16xIIQ"
SUBMIT_FIELDS = ("op flags buffer n_items items deadline_us user_data directory names names_bytes "
                 "name_kind name_bytes suffix suffix_bytes reserved n_ok ready_prefix ticket").split()
ITEM_FORMAT = "<QQHHIQQQIIIIiBxxxQQQ"
ITEM_FIELDS = ("object name name_bytes name_kind mode file_offset base stride buffer segment_bytes "
               "segment_count reserved status tier bytes size version").split()
ITEM_BYTES = struct.calcsize(ITEM_FORMAT)
STATE_FORMAT, STATE_BYTES = "<BBHIQ", 16
COMPLETION_FORMAT, COMPLETION_BYTES = "<QQiIII", 32
assert struct.calcsize(SUBMIT_FORMAT) == 112 and ITEM_BYTES == 96


def handle_of(fd):
    """(handle, size, kind) of an open file, directory or buffer."""
    arg = bytearray(24)
    fcntl.ioctl(fd, HANDLE, arg, True)
    return struct.unpack("<QQIxxxx", arg)


class SharedBuffer:
    """A buffer file: created, sized, mapped; its handle."""

    def __init__(self, mount, name, size, mode=0o600):
        self.path = os.path.join(mount, ".mooncake", "buffers", name)
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        os.ftruncate(self.fd, size)
        self.size = size
        self.mem = mmap.mmap(self.fd, size)
        self.handle = handle_of(self.fd)[0]

    def close(self):
        self.mem.close()
        os.close(self.fd)


class Session:
    """A session with one registered buffer; requests are laid out in it one after another."""

    def __init__(self, mount, name=None, size=1 << 20, flags=os.O_RDWR, hello=True):
        self.fd = os.open(os.path.join(mount, ".mooncake", "session"), flags | os.O_CLOEXEC)
        self.dirs = []
        self.buffer = None
        self.used = 0
        if hello:
            self.limits = self.hello()
        if name:
            self.buffer = SharedBuffer(mount, name, size)
            self.number = self.register(self.buffer.handle)

    def close(self):
        os.close(self.fd)
        for fd in self.dirs:
            os.close(fd)
        if self.buffer:
            self.buffer.close()

    # ---- ioctls ----

    def hello(self, version=1):
        arg = bytearray(struct.pack("<I60x", version))
        fcntl.ioctl(self.fd, HELLO, arg, True)
        return dict(zip(("abi_version", "features", "max_items", "max_buffers", "max_tickets",
                         "max_segments", "max_buffer_bytes", "incarnation"),
                        struct.unpack("<IIIIIIQQ24x", arg)))

    def register(self, handle, offset=0, length=0):
        arg = bytearray(struct.pack("<QQQII96x", handle, offset, length, 0, 0))
        fcntl.ioctl(self.fd, REGISTER, arg, True)
        return struct.unpack_from("<I", arg, 28)[0]

    def unregister(self, number):
        fcntl.ioctl(self.fd, UNREGISTER, struct.pack("<II", number, 0))

    def submit(self, **fields):
        """Returns the submission's fields afterwards."""
        values = dict.fromkeys(SUBMIT_FIELDS, 0)
        values["buffer"] = self.number
        values.update(fields)
        arg = bytearray(struct.pack(SUBMIT_FORMAT, *(values[f] for f in SUBMIT_FIELDS)))
        fcntl.ioctl(self.fd, SUBMIT, arg, True)
        return dict(zip(SUBMIT_FIELDS, struct.unpack(SUBMIT_FORMAT, arg)))

    def cancel(self, ticket):
        fcntl.ioctl(self.fd, CANCEL, struct.pack("<Q", ticket))

    def collect(self, n=64):
        """read(2): a list of (ticket, user_data, status, n_ok, ready_prefix)."""
        data = os.read(self.fd, n * COMPLETION_BYTES)
        return [c[:5] for c in struct.iter_unpack(COMPLETION_FORMAT, data)]

    # ---- requests ----

    def open_dir(self, path):
        self.dirs.append(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        return handle_of(self.dirs[-1])[0]

    def put(self, data):
        """Offset of data in the buffer."""
        at = (self.used + 63) & ~63
        self.used = at + len(data)
        self.buffer.mem[at:self.used] = data
        return at

    def items(self, items):
        """Lays an array of items (dicts of fields) out; returns its offset."""
        return self.put(b"".join(struct.pack(ITEM_FORMAT, *(i.get(f, 0) for f in ITEM_FIELDS))
                                 for i in items))

    def outcome(self, at, n):
        data = self.buffer.mem[at:at + n * ITEM_BYTES]
        return [dict(zip(ITEM_FIELDS, row)) for row in struct.iter_unpack(ITEM_FORMAT, data)]

    def named(self, directory, name, base, length, **more):
        raw = os.fsencode(name)
        return {"object": directory, "name": self.put(raw), "name_bytes": len(raw), "base": base if length else 0,
                "segment_bytes": length, "segment_count": 1 if length else 0, "mode": 0o644, **more}

    def write(self, directory, files, flags=0):
        """Publishes {name: data}. Returns the items."""
        self.used = 0
        items = [self.named(directory, name, self.put(data), len(data)) for name, data in files.items()]
        at = self.items(items)
        self.submit(op=WRITE, flags=flags, n_items=len(items), items=at)
        return self.outcome(at, len(items))

    def read(self, directory, names, length):
        """Reads up to length bytes of each name. Returns [(status, bytes)]."""
        self.used = 0
        items = [self.named(directory, name, self.put(bytes(length)), length, mode=0) for name in names]
        at = self.items(items)
        self.submit(op=READ, n_items=len(items), items=at)
        return [(i["status"], self.buffer.mem[i["base"]:i["base"] + i["bytes"]])
                for i in self.outcome(at, len(items))]

    def lookup(self, directory, names):
        """Returns ([(state, tier, size)], longest ready prefix)."""
        self.used = 0
        text = b"".join(os.fsencode(n) + b"\0" for n in names)
        at = self.put(bytes(STATE_BYTES * len(names)))
        done = self.submit(op=LOOKUP, n_items=len(names), items=at, directory=directory,
                           names=self.put(text), names_bytes=len(text))
        rows = struct.iter_unpack(STATE_FORMAT, self.buffer.mem[at:at + STATE_BYTES * len(names)])
        return [(r[0], r[1], r[4]) for r in rows], done["ready_prefix"]


def unshare_mounts():
    """This process gets a mount namespace of its own."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x00020000):
        raise OSError(ctypes.get_errno(), "unshare")
