# SPDX-License-Identifier: Apache-2.0
"""Names of a directory, and what is known of them."""
import itertools
import os
from typing import NamedTuple

from . import abi


class Hashes:
    """Packed binary names: `data` holds one hash of `size` bytes (1 to 64) after another.

    The file of a hash is named by its lower-case hexadecimal digits and `suffix`, such as ".bin".
    Indexing gives one hash, for Batch.add.
    """

    def __init__(self, data, size, suffix=""):
        if not 1 <= size <= abi.HASH_MAX or len(data) % size:
            raise ValueError(f"{len(data)} bytes are no hashes of {size} bytes")
        self.data, self.size = memoryview(data).cast("B"), size
        self.suffix = os.fsencode(suffix)
        if len(self.suffix) > abi.SUFFIX_MAX:
            raise ValueError("a suffix has at most 64 bytes")

    def __len__(self):
        return len(self.data) // self.size

    def __getitem__(self, i):
        if not 0 <= i < len(self):
            raise IndexError(i)
        return bytes(self.data[i * self.size:(i + 1) * self.size])

    def part(self, first, end):
        """(the names as the ABI has them, kind, bytes of each, suffix)"""
        return self.data[first * self.size:end * self.size], abi.BINARY, self.size, self.suffix


class Strings:
    """Names as text, for the same use."""

    def __init__(self, names):
        self.names = names

    def __len__(self):
        return len(self.names)

    def part(self, first, end):
        names = self.names[first:end]
        try:
            packed, holds_nul = "\0".join(names).encode("utf-8", "surrogateescape"), "\0" in "".join(names)
        except TypeError:
            names = [os.fsencode(n) for n in names]
            packed, holds_nul = b"\0".join(names), b"\0" in b"".join(names)
        if holds_nul:
            raise ValueError("a file name cannot hold a NUL")
        packed += b"\0"
        return packed, abi.TEXT, 0, b""


class State(NamedTuple):
    """What is known of one name."""
    kind: int  # abi.MISS, READY, IN_FLIGHT or REMOTE
    tier: str  # "none", "dram", "ssd", "remote"
    eta: float  # seconds until its first byte can be read
    size: int  # bytes; when READY


class Lookup:
    """Outcome of Directory.lookup.

    ready   how many names from the first are READY without a gap
    len()   how many names were asked for; indexing and iterating give a State each
    """

    def __init__(self, n, ready, packed):
        self.ready, self._n, self._packed = ready, n, packed

    def __len__(self):
        return self._n

    def __getitem__(self, i):
        if i < 0:
            i += self._n
        if not 0 <= i < self._n:
            raise IndexError(i)
        return self._state(abi.STATE.unpack_from(self._packed, i * abi.STATE.size))

    def __iter__(self):
        return map(self._state, abi.STATE.iter_unpack(self._packed))

    @staticmethod
    def _state(fields):
        kind, tier, _, eta_us, size = fields
        return State(kind, abi.TIERS[tier], eta_us / 1e6, size)

    def kinds(self):
        """abi.MISS, READY, IN_FLIGHT or REMOTE of each name, as bytes."""
        return bytes(itertools.islice(self._packed, 0, None, abi.STATE.size))


class LookupJob:
    """A lookup as Session.run and Ticket do it, part by part."""
    op = abi.LOOKUP
    flags = 0

    def __init__(self, directory, names, deadline):
        self.directory, self.deadline = directory, deadline
        self.names = names if isinstance(names, Hashes) else Strings(names)
        self.n = len(self.names)
        self.begin()

    def begin(self):
        self.done = self.ready = 0
        self.has_gap = False
        self.packed = bytearray()

    def size(self, n):
        """Bytes of descriptors that n names take at most."""
        self._part = self.names.part(self.done, self.done + n)
        return n * abi.STATE.size + len(self._part[0]) + len(self._part[3])

    def write(self, area, n):
        """Puts the next n names into the area. Returns fields of the submission."""
        names, kind, name_bytes, suffix = self._part
        memory, at = area.memory, n * abi.STATE.size
        memory[:at] = bytes(at)
        memory[at:at + len(suffix)] = suffix
        names_at = at + len(suffix)
        memory[names_at:names_at + len(names)] = names
        return {"n_items": n, "directory": self.directory.handle, "names": area.offset + names_at,
                "names_bytes": len(names), "name_kind": kind, "name_bytes": name_bytes,
                "suffix": area.offset + at if suffix else 0, "suffix_bytes": len(suffix)}

    def read(self, area, n, ready, error):
        self.packed += area.memory[:n * abi.STATE.size]
        if not error and not self.has_gap:
            self.ready += ready
            self.has_gap = ready < n

    def outcome(self):
        return Lookup(self.n, self.ready, self.packed)
