# SPDX-License-Identifier: Apache-2.0
"""Directories by path, and objects in place."""
import errno
import mmap
import os

from . import abi
from .lookup import LookupJob


def open_file(path, flags):
    try:
        return os.open(path, flags | os.O_CLOEXEC)
    except OSError as e:
        raise abi.translate(e) from None


class Directory:
    """A directory of the mount whose names calls use. Made by Session.directory."""

    def __init__(self, session, path):
        self.session, self.path = session, path
        self.fd = -1
        self._generation = 0
        self._handle = 0
        self.renew()

    def renew(self):
        fd = open_file(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._handle = abi.handle_of(fd)[0]
        except OSError as e:
            os.close(fd)
            if e.errno == errno.ENOTTY:
                raise OSError(errno.EXDEV, "not a directory of this mount", self.path) from None
            raise
        self.close()
        self.fd, self._generation = fd, self.session.generation

    @property
    def handle(self):
        if self._generation != self.session.generation:
            self.renew()
        return self._handle

    def is_current(self):
        """Whether the path still leads to it."""
        try:
            here, there = os.fstat(self.fd), os.stat(self.path)
        except OSError:
            return False
        return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)

    def close(self):
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def lookup(self, names, *, deadline=None):
        """Looks up names (a sequence of str or bytes, or Hashes) with one system call.

        Returns a Lookup. Nothing is promised by it: an object may be gone when it is read.
        """
        return self.session.run(LookupJob(self, names, deadline))

    async def lookup_async(self, names, *, deadline=None):
        """The same for asyncio."""
        return await self.session.submit(LookupJob(self, names, deadline))

    def read(self, names, memory):
        """Reads objects, names[i] to memory[i] (see Batch.add). Returns an Outcome."""
        return self._run("read", names, memory)

    def write(self, names, memory, *, group=False):
        """Writes objects, names[i] from memory[i]; each is published whole. Returns an Outcome."""
        return self._run("write", names, memory, group=group)

    def prefetch(self, names):
        """Asks for objects to be brought to DRAM. Returns an Outcome."""
        return self._run("prefetch", names, [None] * len(names))

    def _run(self, op, names, memory, **options):
        if len(names) != len(memory):
            raise ValueError(f"{len(names)} names and {len(memory)} pieces of memory")
        batch = self.session.batch(op, **options)
        try:
            for name, m in zip(names, memory):
                batch.add(self, name, m)
            return batch.run()
        finally:
            batch.clear()


def map_object(path):
    """An object's bytes in place, without a copy: a read-only memoryview. No session is needed.

    It stays this version of the file for as long as it is referenced.
    """
    fd = open_file(path, os.O_RDONLY)
    try:
        if not os.fstat(fd).st_size:
            return memoryview(b"")
        return memoryview(mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ))
    finally:
        os.close(fd)
