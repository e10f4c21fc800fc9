# SPDX-License-Identifier: Apache-2.0
"""Memory shared with the daemon."""
import errno
import mmap
import os
import secrets

from . import abi

PAGE = 4096


class Mapping:
    """A buffer file, mapped and registered. It has no name any more once it is made."""

    def __init__(self, session, size):
        self.size = -(-size // PAGE) * PAGE
        path = os.path.join(session.mount, ".mooncake", "buffers", secrets.token_hex(16))
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as e:
            if e.errno == errno.EOPNOTSUPP:
                raise OSError(e.errno, "shared memory needs passthrough (see status.json)", session.mount) from None
            raise abi.translate(e) from None
        try:
            try:
                os.ftruncate(fd, self.size)
            except OSError as e:
                raise abi.translate(e) from None
            finally:
                os.unlink(path)
            self.map = mmap.mmap(fd, self.size, mmap.MAP_SHARED)
            self.number = self._register(session, fd)
        finally:
            os.close(fd)

    @staticmethod
    def _register(session, fd):
        answer = bytearray(abi.REGISTER.pack(abi.handle_of(fd)[0], 0, 0, 0, 0))
        abi.ioctl(session.fd, abi.IOC_REGISTER, answer)
        return abi.REGISTER.unpack(answer)[4]

    def unregister(self, session):
        abi.ioctl(session.fd, abi.IOC_UNREGISTER, bytearray(abi.UNREGISTER.pack(self.number, 0)))

    def release(self):
        """Unmaps, unless views are alive: then their end does."""
        try:
            self.map.close()
        except BufferError:
            pass


class Buffer:
    """`size` bytes (whole pages of 4096) of zeroed memory shared with the daemon.

    Made by Session.buffer; meant to be large and cut into Regions by slicing: buffer[first:end].
    """

    def __init__(self, session, size):
        if size <= 0:
            raise ValueError("the size of a buffer must be positive")
        self.session = session
        self._mapping = Mapping(session, size)

    @property
    def memory(self):
        """A writable memoryview of all of it, for anything that takes the buffer protocol."""
        return memoryview(self._mapping.map)

    def revive(self):
        """After a restart of the daemon: a new mapping with the content of the old one."""
        old = self._mapping
        self._mapping = Mapping(self.session, old.size)
        self._mapping.map[:] = old.map
        old.release()

    def unregister(self):
        self._mapping.unregister(self.session)

    def release(self):
        self._mapping.release()

    @property
    def number(self):
        return self._mapping.number

    def __len__(self):
        return self._mapping.size

    def __getitem__(self, part):
        """buffer[first:end], a Region; the step must be 1."""
        first, end, step = part.indices(len(self))
        if step != 1 or end < first:
            raise ValueError("a region is a range of bytes in ascending order")
        return Region(self, first, end - first)

    def free(self):
        """Gives it back. OSError(EBUSY): a ticket still uses it, and it lives on.

        Arrays and views made from it stay valid, but are shared with nobody any more; as long as one of
        them lives, the mount is busy.
        """
        self.session.forget(self)

    def region_of(self, array):
        """The Region in which a numpy array or CPU torch tensor lies, or None if not in this buffer.

        The array must be contiguous. A memoryview cut from buffer.memory is found if numpy is there.
        """
        if hasattr(array, "data_ptr"):
            import torch
            if array.device.type != "cpu" or not array.is_contiguous():
                return None
            base = torch.frombuffer(self.memory, dtype=torch.uint8).data_ptr()
            offset, size = array.data_ptr() - base, array.numel() * array.element_size()
        elif hasattr(array, "__array_interface__"):
            import numpy
            if not array.flags.c_contiguous:
                return None
            base = numpy.frombuffer(self.memory, numpy.uint8).__array_interface__["data"][0]
            offset, size = array.__array_interface__["data"][0] - base, array.nbytes
        elif isinstance(array, memoryview) and array.obj is self._mapping.map and array.c_contiguous:
            # Where in the buffer it begins, only numpy tells.
            try:
                import numpy
            except ImportError:
                return None
            return self.region_of(numpy.frombuffer(array, numpy.uint8))
        else:
            return None
        if offset < 0 or offset + size > len(self):
            return None
        return Region(self, offset, size)


class Region:
    """`size` bytes of a Buffer from `offset` on."""

    __slots__ = ("buffer", "offset", "size")

    def __init__(self, buffer, offset, size):
        self.buffer, self.offset, self.size = buffer, offset, size

    def __len__(self):
        return self.size

    def __getitem__(self, part):
        first, end, step = part.indices(self.size)
        if step != 1 or end < first:
            raise ValueError("a region is a range of bytes in ascending order")
        return Region(self.buffer, self.offset + first, end - first)

    @property
    def memory(self):
        """Writable memoryview of the bytes, without a copy."""
        return self.buffer.memory[self.offset:self.offset + self.size]

    def numpy(self, dtype="uint8", shape=(-1,)):
        """numpy array over the bytes, without a copy. shape may hold one -1."""
        import numpy
        return numpy.frombuffer(self.memory, dtype).reshape(shape)

    def torch(self, dtype=None, shape=(-1,)):
        """CPU torch tensor over the bytes, without a copy; dtype defaults to torch.uint8."""
        import torch
        return torch.frombuffer(self.memory, dtype=dtype or torch.uint8).reshape(shape)


class Areas:
    """Room for descriptors: slots cut from buffers of our own, larger ones made for the purpose.

    Not thread safe: the session's lock is held.
    """
    SLOT = 64 << 10
    CHUNK = 1 << 20
    LARGE_KEPT = 4

    def __init__(self, session):
        self._session = session
        self._slots = []
        self._large = []
        self._buffers = []

    def _buffer(self, size):
        self._buffers.append(Buffer(self._session, size))
        return self._buffers[-1]

    def take(self, size):
        """A Region of at least size bytes."""
        if size <= self.SLOT:
            if not self._slots:
                chunk = self._buffer(self.CHUNK)
                self._slots = [chunk[i:i + self.SLOT] for i in range(0, self.CHUNK, self.SLOT)]
            return self._slots.pop()
        for i, region in enumerate(self._large):
            if region.size >= size:
                return self._large.pop(i)
        # Rounded up, so that the next one that is a little larger finds room, too.
        return self._buffer(1 << (size - 1).bit_length())[:]

    def drop(self, region):
        if region.size == self.SLOT:
            self._slots.append(region)
        elif len(self._large) < self.LARGE_KEPT:
            self._large.append(region)
        else:
            self._buffers.remove(region.buffer)
            region.buffer.unregister()
            region.buffer.release()

    def release(self):
        """The session ends, or its daemon is gone."""
        for b in self._buffers:
            b.release()
