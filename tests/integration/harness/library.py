# SPDX-License-Identifier: Apache-2.0
"""libmooncakefs.so as a program sees it, through ctypes.

    with Library(mount.path) as lib:
        buffer = lib.buffer(1 << 20)
        lib.write(lib.dir("kv/x"), [("name", buffer.at(0), 4096)])
"""
import ctypes
import os

import pytest

from . import env

RECONNECT = 1
GROUP = 2
MISS, READY = 0, 1

_P, _U8, _U16, _U32, _U64, _I32, _LONG = (ctypes.c_void_p, ctypes.c_uint8, ctypes.c_uint16, ctypes.c_uint32,
                                          ctypes.c_uint64, ctypes.c_int32, ctypes.c_long)


class Request(ctypes.Structure):
    _fields_ = [("dir", _P), ("name", _P), ("name_bytes", _U32), ("name_kind", _U32), ("file", _U64),
                ("file_offset", _U64), ("memory", _P), ("stride", _U64), ("segment_bytes", _U32),
                ("segment_count", _U32), ("mode", _U32), ("status", _I32), ("bytes", _U64), ("size", _U64),
                ("version", _U64), ("tier", _U8), ("reserved", _U8 * 7)]


class Call(ctypes.Structure):
    _fields_ = [("deadline_us", _U64), ("suffix", ctypes.c_char_p), ("user", _P), ("flags", _U32),
                ("reserved", _U32)]


class Names(ctypes.Structure):
    _fields_ = [("strings", _P), ("hashes", ctypes.c_char_p), ("hash_bytes", _U32), ("reserved", _U32),
                ("n", ctypes.c_size_t)]


class State(ctypes.Structure):
    _fields_ = [("state", _U8), ("tier", _U8), ("reserved", _U16), ("eta_us", _U32), ("size", _U64)]


class Map(ctypes.Structure):
    _fields_ = [("data", _P), ("bytes", ctypes.c_size_t)]


class Failed(OSError):
    pass


def load():
    path = os.path.join(env.BUILD, "lib", "libmooncakefs.so")
    if not os.path.exists(path):
        pytest.skip(f"not built: {path}")
    if "asan" in os.path.basename(env.BUILD):
        pytest.skip("a python without AddressSanitizer cannot load a library with it")
    so = ctypes.CDLL(path)
    so.mcfs_strerror.restype = ctypes.c_char_p
    so.mcfs_buffer_memory.restype = _P
    so.mcfs_session_next_done.restype = _P
    so.mcfs_ticket_user.restype = _P
    for name in ("read_batch", "write_batch", "prefetch_batch", "lookup_prefix", "ticket_wait"):
        getattr(so, "mcfs_" + name).restype = _LONG
    return so


class Memory:
    def __init__(self, lib, handle, size):
        self.handle, self.size = handle, size
        self.address = lib.so.mcfs_buffer_memory(handle)

    def at(self, offset):
        return self.address + offset

    def get(self, offset, size):
        return ctypes.string_at(self.address + offset, size)

    def put(self, offset, data):
        ctypes.memmove(self.address + offset, bytes(data), len(data))


class Library:
    def __init__(self, mount, flags=0):
        self.so = load()
        self.session = _P()
        self.check(self.so.mcfs_session_open(os.fsencode(mount), flags, ctypes.byref(self.session)))

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.so.mcfs_session_close(self.session)

    def check(self, rc):
        if rc < 0:
            raise Failed(-rc, self.so.mcfs_strerror(ctypes.c_int(rc)).decode())
        return rc

    def buffer(self, size):
        handle = _P()
        self.check(self.so.mcfs_buffer_alloc(self.session, ctypes.c_size_t(size), ctypes.byref(handle)))
        return Memory(self, handle, size)

    def dir(self, path):
        handle = _P()
        self.check(self.so.mcfs_dir_open(self.session, os.fsencode(path), ctypes.byref(handle)))
        return handle

    @staticmethod
    def requests(d, items):
        """items: (name, address, bytes) or dicts of fields beside these. Keep what it returns."""
        out = (Request * len(items))()
        out.keep = []
        for r, item in zip(out, items):
            name, address, size, *more = item
            packed = ctypes.create_string_buffer(os.fsencode(name))
            out.keep.append(packed)
            r.dir, r.name, r.memory, r.segment_bytes = d, ctypes.addressof(packed), address, size
            for key, value in (more[0] if more else {}).items():
                setattr(r, key, value)
        return out

    def batch(self, op, d, items, **call):
        """(count with status 0, requests). Failed when the call as a whole failed."""
        r = items if isinstance(items, ctypes.Array) else self.requests(d, items)
        n = getattr(self.so, f"mcfs_{op}_batch")(self.session, r, ctypes.c_size_t(len(r)),
                                                 ctypes.byref(Call(**call)))
        return self.check(n), r

    def read(self, d, items, **call):
        return self.batch("read", d, items, **call)

    def write(self, d, items, **call):
        return self.batch("write", d, items, **call)

    def start(self, op, r, **call):
        ticket = _P()
        r.call = Call(**call)
        self.check(getattr(self.so, f"mcfs_{op}_batch_async")(
            self.session, r, ctypes.c_size_t(len(r)), ctypes.byref(r.call), ctypes.byref(ticket)))
        return ticket

    def wait(self, ticket, ms=-1):
        return self.so.mcfs_ticket_wait(ticket, ms)

    def lookup(self, d, names, **call):
        """(ready prefix, states)"""
        packed = [ctypes.create_string_buffer(os.fsencode(n)) for n in names]
        pointers = (_P * len(names))(*[ctypes.addressof(p) for p in packed])
        states = (State * len(names))()
        n = Names(strings=ctypes.addressof(pointers), n=len(names))
        ready = self.so.mcfs_lookup_prefix(self.session, d, ctypes.byref(n), ctypes.byref(Call(**call)), states)
        return self.check(ready), states
