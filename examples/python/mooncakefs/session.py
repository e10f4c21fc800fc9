# SPDX-License-Identifier: Apache-2.0
"""A session of one mount: what is submitted, and what comes back."""
import errno
import os
import select
import threading
import time

from . import abi
from .abi import DaemonGone
from .batch import Batch, Ticket
from .directory import Directory, open_file
from .memory import Areas, Buffer

_RECOVER_SECONDS = 10
_RETRY_SECONDS = 0.05
_SLICE_SECONDS = 1  # of a wait, after which things are looked at again
_READ_AT_ONCE = 64 * abi.COMPLETION.size

_MAY_PASS = (errno.ENOENT, errno.ENOTDIR, errno.ENOTCONN)


class Session:
    """A session of the mount at `mount`. Several threads may use one; it does not survive os.fork.

    reconnect  True: a call that finds the daemon gone reconnects (waiting up to 10 s for a new one) and
               is repeated, once; see the method of that name.

    OSError: FileNotFoundError when mount is none of mooncakefs with sessions, EPROTO when its daemon
    speaks another version, PermissionError.

    max_items, max_buffers, max_tickets, max_segments, max_buffer_bytes: limits that the daemon has told.
    Larger batches are submitted in parts.
    """

    def __init__(self, mount, *, reconnect=False):
        self.mount = os.path.realpath(mount)
        self._auto = reconnect
        self.lock = threading.Condition(threading.RLock())  # guards what follows
        self.generation = 1
        self.fd = self._open()
        self._buffers = {}
        self._areas = Areas(self)
        self._directories = {}
        self._running = {}  # number of our own -> Ticket
        self._next_number = 1
        self._has_reader = False
        self._loops = []

    def _open(self):
        fd = open_file(os.path.join(self.mount, ".mooncake", "session"), os.O_RDWR | os.O_NONBLOCK)
        try:
            hello = bytearray(abi.HELLO.pack(abi.VERSION, 0, 0, 0, 0, 0, 0, 0))
            abi.ioctl(fd, abi.IOC_HELLO, hello)
        except OSError:
            os.close(fd)
            raise
        (_, _, self.max_items, self.max_buffers, self.max_tickets, self.max_segments, self.max_buffer_bytes,
         self.incarnation) = abi.HELLO.unpack(hello)
        return fd

    def close(self):
        """Ends it: buffers, directories and tickets are void; arrays and views of buffers stay valid."""
        with self.lock:
            if self.fd < 0:
                return
            self._unwatch()
            os.close(self.fd)
            self.fd = -1
            for d in self._directories.values():
                d.close()
            self._abandon(OSError(errno.EBADF, "the session is closed"))
            for b in self._buffers.values():
                b.release()
            self._areas.release()
            self._buffers.clear()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def __del__(self):
        if getattr(self, "fd", -1) >= 0:
            os.close(self.fd)

    def fileno(self):
        """For select and poll: readable when a ticket makes progress; then call collect."""
        return self.fd

    # ---- memory, names, batches ----

    def buffer(self, size):
        """`size` bytes of memory shared with the daemon: a Buffer.

        OSError: ENOSPC the mount's limit (max_buffer_bytes), EMFILE too many buffers.
        """
        made = self._recovering(lambda: Buffer(self, size))
        with self.lock:
            self._buffers[id(made)] = made
        return made

    def forget(self, buffer):
        """Buffer.free."""
        with self.lock:
            if id(buffer) not in self._buffers:
                return
            try:
                buffer.unregister()
            except DaemonGone:
                pass  # it is not registered any more
            del self._buffers[id(buffer)]
            buffer.release()

    def region_of(self, array):
        """The Region in which a numpy array or CPU tensor lies, or None: it is in no buffer of ours."""
        with self.lock:
            buffers = list(self._buffers.values())
        return next(filter(None, (b.region_of(array) for b in buffers)), None)

    def directory(self, path):
        """A Directory: path, or path below the mount when relative, such as "kv/llama".

        Opened once per path. FileNotFoundError, NotADirectoryError, EXDEV on another mount.
        """
        path = os.path.normpath(os.path.join(self.mount, path))
        return self._recovering(lambda: self._directory(path))

    def _directory(self, path):
        with self.lock:
            found = self._directories.get(path)
            if found is None:
                found = self._directories[path] = Directory(self, path)
            elif not found.is_current():
                try:
                    found.renew()
                except OSError:
                    self._directories.pop(path).close()
                    raise
            return found

    def batch(self, op, **options):
        """A Batch: op is "read", "write" or "prefetch"; options: group, suffix, deadline."""
        return Batch(self, op, **options)

    @staticmethod
    def file_handle(file):
        """The handle of an open file (or its descriptor) of the mount, for Batch.add without a name."""
        return abi.handle_of(file if isinstance(file, int) else file.fileno())[0]

    # ---- synchronous ----

    def run(self, job):
        """Does a Batch or lookup and waits. Returns its outcome."""
        job.begin()
        end = None if job.deadline is None else time.monotonic() + job.deadline

        def go():
            job.begin()
            while job.done < job.n:
                self._part(job, end)
            return job.outcome()
        return self._recovering(go)

    def _part(self, job, end):
        with self.lock:
            areas, area, n = self._begin_part(job)
        try:
            submit = self._submission(job, area, n, end, 0, 0)
            abi.ioctl(self.fd, abi.IOC_SUBMIT, submit)
            job.read(area, n, abi.SUBMIT.unpack(submit)[-2], None)
            job.done += n
        finally:
            with self.lock:
                areas.drop(area)

    def _begin_part(self, job):
        n = min(self.max_items, job.n - job.done)
        if job.flags & abi.GROUP and n < job.n:
            raise OSError(errno.E2BIG, f"a group of {job.n}, and max_items is {self.max_items}")
        return self._areas, self._areas.take(job.size(n)), n

    @staticmethod
    def _submission(job, area, n, end, flags, number):
        left = 0
        if end is not None:
            left = int((end - time.monotonic()) * 1e6)
            if left <= 0:
                raise TimeoutError(errno.ETIMEDOUT, "the deadline has passed")
        f = job.write(area, n)
        return bytearray(abi.SUBMIT.pack(
            job.op, job.flags | flags, area.buffer.number, n, area.offset, left, number,
            f.get("directory", 0), f.get("names", 0), f.get("names_bytes", 0), f.get("name_kind", 0),
            f.get("name_bytes", 0), f["suffix"], f["suffix_bytes"], 0, 0, 0))

    # ---- asynchronous ----

    def submit(self, job):
        """Begins a Batch or lookup. Returns a Ticket. OSError(EAGAIN): too many wait to be collected."""
        job.begin()
        end = None if job.deadline is None else time.monotonic() + job.deadline

        def go():
            job.begin()
            ticket = Ticket(self, job)
            ticket.deadline_at = end
            with self.lock:
                self._go(ticket)
            return ticket
        return self._recovering(go)

    def _go(self, ticket):
        """Submits what is next. With the lock held."""
        job = ticket.job
        if job.done == job.n:
            self._end(ticket, None)
            return
        areas, area, n = self._begin_part(job)
        number = self._next_number
        self._next_number += 1
        try:
            submit = self._submission(job, area, n, ticket.deadline_at, abi.ASYNC, number)
            abi.ioctl(self.fd, abi.IOC_SUBMIT, submit)
        except BaseException:
            areas.drop(area)
            raise
        ticket.area, ticket.areas, ticket.part = area, areas, n
        ticket.number = abi.SUBMIT.unpack(submit)[-1]
        self._running[number] = ticket

    def _end(self, ticket, error):
        ticket.end(error)
        self.lock.notify_all()

    def _complete(self, number, status, ready):
        """With the lock held."""
        ticket = self._running.pop(number, None)
        if ticket is None:
            return
        job, area = ticket.job, ticket.area
        error = None
        # What came too late says so item by item; a name has no status.
        if status and (status != -errno.ETIMEDOUT or job.op == abi.LOOKUP):
            error = OSError(-status, os.strerror(-status))
        job.read(area, ticket.part, ready, error)
        job.done += ticket.part
        ticket.areas.drop(area)
        if error is None and ticket.is_cancelled and job.done < job.n:
            error = OSError(errno.ECANCELED, os.strerror(errno.ECANCELED))
        if error is None:
            try:
                if job.done < job.n:
                    self._go(ticket)
                    return
            except OSError as e:
                error = e
        self._end(ticket, error)

    def _abandon(self, error):
        """The daemon is gone, or the session closed: every running ticket ends. With the lock held."""
        running, self._running = self._running, {}
        for ticket in running.values():
            ticket.end(error)
        self.lock.notify_all()

    def collect(self, timeout=0):
        """Takes completions, waiting up to timeout seconds for the first. One thread at a time reads."""
        with self.lock:
            if self._has_reader or self.fd < 0:
                return
            self._has_reader = True
            fd = self.fd
        try:
            self._read(fd, timeout)
        finally:
            with self.lock:
                self._has_reader = False
                self.lock.notify_all()

    def _read(self, fd, timeout):
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        if not poll.poll(timeout * 1000):
            return
        try:
            packed = os.read(fd, _READ_AT_ONCE)
        except BlockingIOError:
            return
        except OSError as e:
            if e.errno not in abi.GONE:
                raise
            with self.lock:
                self._abandon(abi.translate(e))
            return
        with self.lock:
            for _, number, status, _, ready, _ in abi.COMPLETION.iter_unpack(packed):
                self._complete(number, status, ready)

    def wait_for(self, ticket, timeout=None):
        """Ticket.wait."""
        end = None if timeout is None else time.monotonic() + timeout
        while not ticket.has_ended:
            left = _SLICE_SECONDS if end is None else min(end - time.monotonic(), _SLICE_SECONDS)
            if left <= 0:
                raise TimeoutError(errno.ETIMEDOUT, "the ticket has not ended")
            with self.lock:
                if ticket.has_ended:
                    return
                if self._has_reader:
                    self.lock.wait(left)
                    continue
            self.collect(left)

    def cancel(self, ticket):
        """Ticket.cancel."""
        with self.lock:
            ticket.is_cancelled = True
            if ticket.has_ended or not ticket.number:
                return
            try:
                abi.ioctl(self.fd, abi.IOC_CANCEL, bytearray(abi.CANCEL.pack(ticket.number)))
            except FileNotFoundError:
                pass  # its completion is there already
            except DaemonGone as e:
                self._abandon(e)

    # ---- asyncio ----

    def watch(self, loop):
        """Collects whenever the loop sees a completion. In the loop's thread."""
        with self.lock:
            if loop in self._loops:
                return
            self._loops = [x for x in self._loops if not x.is_closed()] + [loop]
        loop.add_reader(self.fd, self.collect)

    def _unwatch(self):
        loops, self._loops = self._loops, []
        for loop in loops:
            if not loop.is_closed():
                try:
                    loop.call_soon_threadsafe(loop.remove_reader, self.fd)
                except RuntimeError:
                    pass  # it was closed just now

    # ---- a daemon that was restarted ----

    def _recovering(self, go):
        generation = self.generation
        try:
            return go()
        except DaemonGone:
            if not self._auto:
                raise
        self._replace(generation, _RECOVER_SECONDS)
        return go()

    def reconnect(self, timeout=_RECOVER_SECONDS):
        """Opens the session anew after its daemon was restarted, trying for `timeout` seconds.

        Directories are opened again when next used. Buffers get a new mapping with the content of the
        old one: Regions go on, but arrays and views made before stay with the old memory, which the new
        daemon does not see; make them anew. Tickets end with DaemonGone. No other call may be running.
        Does nothing when the session is alive. TimeoutError: no daemon came.
        """
        try:
            abi.ioctl(self.fd, abi.IOC_CANCEL, bytearray(abi.CANCEL.pack(0)))
        except DaemonGone:
            self._replace(self.generation, timeout)
        except OSError:
            pass  # there is no ticket 0, says a daemon that is there

    def _replace(self, generation, timeout):
        end = time.monotonic() + timeout
        with self.lock:
            while self.generation == generation:
                try:
                    self._reopen()
                except OSError as e:
                    if e.errno not in _MAY_PASS:
                        raise
                    if time.monotonic() >= end:
                        raise TimeoutError(errno.ETIMEDOUT, "no daemon", self.mount) from e
                    time.sleep(_RETRY_SECONDS)

    def _reopen(self):
        fd, dead = self._open(), self.fd
        self._abandon(DaemonGone(errno.ENOTCONN, "the daemon of the mount is gone"))
        self.fd = fd
        try:
            for b in self._buffers.values():
                b.revive()
        except BaseException:
            self.fd = dead
            os.close(fd)
            raise
        # A loop watches the descriptor's number, but the new file behind it only when told again.
        for loop in self._loops:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._watch_again, loop)
        os.dup2(fd, dead, inheritable=False)
        os.close(fd)
        self.fd = dead
        self._areas.release()
        self._areas = Areas(self)
        self.generation += 1

    def _watch_again(self, loop):
        if self.fd >= 0:
            loop.remove_reader(self.fd)
            loop.add_reader(self.fd, self.collect)
