# SPDX-License-Identifier: Apache-2.0
"""Objects to read, write or prefetch with one system call, and what came of them."""
import asyncio
import errno
import os
from typing import NamedTuple

from . import abi
from .memory import Region

_BOUNCE_CHUNK = 1 << 20
_OPS = {"read": abi.READ, "write": abi.WRITE, "prefetch": abi.PREFETCH}


class Item(NamedTuple):
    """Outcome of one object."""
    status: int  # 0 or a negative errno
    tier: str  # where the bytes came from
    bytes: int  # moved
    size: int  # of the object
    version: int


class Outcome:
    """Outcome of a Batch, item by item in the order of add.

    n_ok     how many have status 0
    len(), indexing and iterating give Items; statuses() all statuses as a list
    """

    def __init__(self, names, packed):
        self._names, self._items = names, packed
        self.n_ok = sum(not i[0] for i in packed)

    def __len__(self):
        return len(self._items)

    def __getitem__(self, i):
        status, tier, moved, size, version = self._items[i]
        return Item(status, abi.TIERS[tier], moved, size, version)

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def statuses(self):
        return [i[0] for i in self._items]

    def prefix(self):
        """How many from the first have status 0 without a gap."""
        return next((i for i, item in enumerate(self._items) if item[0]), len(self))

    def check(self):
        """Raises OSError of the first item that failed; else returns self."""
        i = self.prefix()
        if i < len(self):
            status = -self._items[i][0]
            raise OSError(status, os.strerror(status), os.fsdecode(self._names[i]))
        return self


class Batch:
    """A list of objects, made by Session.batch. May be run any number of times, by one thread at a time.

    op        "read", "write" or "prefetch"
    group     write: all objects become visible together, or none
    suffix    behind each binary name
    deadline  seconds after which items that are not done say -ETIMEDOUT; None: 60 s
    """

    def __init__(self, session, op, *, group=False, suffix="", deadline=None):
        self.session, self.op, self.deadline = session, _OPS[op], deadline
        if group and op != "write":
            raise ValueError("only writes come in groups")
        self.flags = abi.GROUP if group else 0
        self._suffix = os.fsencode(suffix)
        if len(self._suffix) > abi.SUFFIX_MAX:
            raise ValueError("a suffix has at most 64 bytes")
        self._items = []  # (directory or None, handle, name, kind, fields after the mode, mode)
        self._bounce = []  # (region, what the program gave) where memory lies in no buffer
        self._chunks, self._chunk, self._used = [], 0, 0  # buffers for that; the next room in them
        self._packed = self._packed_for = None  # the part packed last, and where it fits
        self.begin()

    def __len__(self):
        return len(self._items)

    def add(self, directory, name, memory=None, *, file_offset=0, segment_bytes=None, segments=1,
            stride=None, mode=0o644, binary=False):
        """Adds one object.

        directory      a Directory, with name; or the handle of an open file (Session.file_handle)
        name           str or bytes; with binary=True a hash of 1 to 64 bytes; None with a file handle
        memory         a Region; or a contiguous numpy array or CPU tensor; or any other object with the
                       buffer protocol. What lies in a Buffer of the session is used in place; all else
                       is copied on the way. None for prefetch.
        file_offset    read: first byte of the object, in bytes
        segments, segment_bytes, stride
                       the bytes lie in `segments` pieces of `segment_bytes`, the first at the start of
                       memory, each `stride` bytes after the one before. Default: one piece, all of it.
        mode           write: permission bits of the new file

        ValueError for a shape that does not fit into memory. Returns self.
        """
        if segments < 1:
            raise ValueError("there is one segment at least")
        region = self._region(memory)
        size = region.size if region else 0
        if segment_bytes is None:
            if stride is not None and segments > 1:
                raise ValueError("segments with a stride need segment_bytes")
            segment_bytes = size // segments
        stride = segment_bytes if stride is None else stride
        if region and (segments - 1) * stride + segment_bytes > size:
            raise ValueError(f"{segments} segments of {segment_bytes} bytes, {stride} apart, "
                             f"do not fit into {size} bytes")
        packed_name = b"" if name is None else name if binary else os.fsencode(name)
        if (name is None) == hasattr(directory, "handle") or (name is not None and not packed_name):
            raise ValueError("a name belongs to a directory, and a file handle has none")
        if len(packed_name) > (abi.HASH_MAX if binary else abi.NAME_MAX) or (not binary and b"\0" in packed_name):
            raise ValueError(f"not a name: {name!r}")
        self._packed_for = None
        self._items.append((directory, bytes(packed_name), int(binary), mode if self.op == abi.WRITE else 0,
                            file_offset, region, stride, segment_bytes, segments))
        return self

    def clear(self):
        """Makes it empty, and frees memory that it had to copy through."""
        self.reset()
        chunks, self._chunks = self._chunks, []
        for chunk in chunks:
            self.session.forget(chunk)

    def reset(self):
        """Makes it empty; memory that it had to copy through serves what is added next."""
        self._items.clear()
        self._bounce.clear()
        self._chunk = self._used = 0
        self._packed_for = None

    def scratch(self, size):
        """A Region of size bytes of the batch's own memory, good until it is cleared or reset."""
        return self._bounce_region(size)

    def run(self):
        """Does it and waits. Returns an Outcome; raises OSError when a submission as a whole failed."""
        return self.session.run(self)

    def submit(self):
        """Begins it. Returns a Ticket. Memory and batch are in use until that has ended."""
        return self.session.submit(self)

    async def run_async(self):
        """The same as run, for asyncio: the event loop goes on meanwhile."""
        return await self.submit()

    # ---- memory ----

    def _region(self, memory):
        if self.op == abi.PREFETCH:
            if memory is not None:
                raise ValueError("a prefetch has no memory")
            return None
        if isinstance(memory, Region):
            return memory
        region = self.session.region_of(memory)
        if region:
            return region
        view = _bytes_of(memory)
        if self.op == abi.READ and view.readonly:
            raise ValueError("cannot read into memory that is read-only")
        region = self._bounce_region(len(view))
        self._bounce.append((region, view))
        return region

    def _bounce_region(self, size):
        """Room in a buffer of our own."""
        while self._chunk < len(self._chunks):
            chunk = self._chunks[self._chunk]
            if self._used + size <= len(chunk):
                first, self._used = self._used, self._used + -(-size // 64) * 64
                return chunk[first:first + size]
            self._chunk, self._used = self._chunk + 1, 0
        self._chunks.append(self.session.buffer(max(_BOUNCE_CHUNK, size)))
        return self._bounce_region(size)

    # ---- as Session.run and Ticket see it ----

    def begin(self):
        self.done = 0
        self._outcomes = []

    @property
    def n(self):
        return len(self._items)

    def size(self, n):
        names = sum(len(i[1]) for i in self._items[self.done:self.done + n])
        return n * abi.ITEM.size + len(self._suffix) + names

    def write(self, area, n):
        if not self.done and self.op == abi.WRITE:
            for region, view in self._bounce:
                region.memory[:] = view
        # Run again, it is mostly the same in the same place.
        key = (self.session.generation, area.buffer.number, area.offset, self.done, n)
        if key != self._packed_for:
            self._packed, self._packed_for = self._pack(area, n), key
        area.memory[:len(self._packed)] = self._packed
        at = area.offset + n * abi.ITEM.size
        return {"n_items": n, "suffix": at if self._suffix else 0, "suffix_bytes": len(self._suffix)}

    def _pack(self, area, n):
        """The next n items as the ABI has them, then the suffix and the names."""
        end = area.offset + n * abi.ITEM.size + len(self._suffix)
        pack, packed, tail = abi.ITEM.pack, [], [self._suffix]
        for directory, name, kind, mode, file_offset, region, stride, segment_bytes, segments in (
                self._items[self.done:self.done + n]):
            packed.append(pack(
                directory.handle if name else directory, end if name else 0, len(name), kind, mode,
                file_offset, region.offset if region else 0, stride, region.buffer.number if region else 0,
                segment_bytes if region else 0, segments if region else 0, 0, -errno.ECANCELED, 0, 0, 0, 0))
            tail.append(name)
            end += len(name)
        return b"".join(packed + tail)

    def read(self, area, n, ready, error):
        self._outcomes += abi.ITEM_OUTCOME.iter_unpack(area.memory[:n * abi.ITEM.size])

    def outcome(self):
        if self.op == abi.READ:
            for region, view in self._bounce:
                view[:] = region.memory
        return Outcome([i[1] for i in self._items], self._outcomes)


def _bytes_of(memory):
    """A flat view of bytes, of anything with the buffer protocol, also of tensors."""
    if hasattr(memory, "data_ptr"):  # a torch tensor, which has no buffer protocol itself
        import torch
        memory = memory.detach().reshape(-1).view(torch.uint8).numpy()
    view = memoryview(memory)
    if not view.c_contiguous:
        raise ValueError("memory must be contiguous")
    return view.cast("B") if view.nbytes else memoryview(bytearray())


class Ticket:
    """A batch or lookup under way. Await it, or wait(), or done() and result().

    Dropping it does not end it: the daemon goes on.
    """

    def __init__(self, session, job):
        self.session, self.job = session, job
        self.number = 0
        self.is_cancelled = False
        self.area = self.part = None
        self._error = self._outcome = None
        self._ended = False
        self._futures = []  # (loop, future)

    def done(self):
        """Whether it has ended. Reads completions that are there."""
        if not self._ended:
            self.session.collect(0)
        return self._ended

    def wait(self, timeout=None):
        """Waits for its end, at most timeout seconds: then TimeoutError. Returns the outcome."""
        self.session.wait_for(self, timeout)
        return self.result()

    def result(self):
        """The outcome; raises what the call without a ticket would have raised."""
        if not self._ended:
            raise asyncio.InvalidStateError("the ticket has not ended")
        if self._error:
            raise self._error
        if self._outcome is None:
            self._outcome = self.job.outcome()
        return self._outcome

    def cancel(self):
        """Asks for an early end: what was not begun says -ECANCELED. It ends soon, not at once."""
        self.session.cancel(self)

    def __await__(self):
        loop = asyncio.get_running_loop()
        self.session.watch(loop)
        try:
            yield from self._watched(loop)
        except asyncio.CancelledError:
            # Its memory is in use until it has ended, which is soon.
            self.cancel()
            yield from self._watched(loop)
            raise
        return self.result()

    def _watched(self, loop):
        """A future of its end."""
        future = loop.create_future()
        with self.session.lock:
            if self._ended:
                future.set_result(None)
            else:
                self._futures.append((loop, future))
        return future

    def end(self, error=None):
        """With the session's lock held."""
        self._error, self._ended = error, True
        for loop, future in self._futures:
            loop.call_soon_threadsafe(lambda f=future: f.done() or f.set_result(None))
        self._futures.clear()

    @property
    def has_ended(self):
        return self._ended
