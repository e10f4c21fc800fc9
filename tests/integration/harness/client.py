# SPDX-License-Identifier: Apache-2.0
"""A client process under the test's control: one operation at a time, in the order the test says.

Visibility rules are about who asks. The test process and each Client are different thread groups,
so a test can interleave their system calls exactly, without sleeping:

    a = new_client()
    fd = a.os.open(path, os.O_WRONLY | os.O_CREAT)   # runs in the client; errors are raised here
    a.start("os.write", fd, data)                    # does not wait
    a.done(0.2), a.finish()                          # has it returned? its result
    a.kill(signal.SIGKILL)
"""
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import time

from . import env

_AGENT = r"""
import ctypes, errno, fcntl, mmap, os, pickle, signal, struct, sys, termios, threading, time
inp, out = os.dup(0), os.dup(1)
null = os.open("/dev/null", os.O_RDWR)
os.dup2(null, 0); os.dup2(2, 1); os.close(null)
names = dict(globals())
def read_exactly(n):
    data = bytearray()
    while len(data) < n:
        more = os.read(inp, min(n - len(data), 1 << 20))
        if not more:
            os._exit(0)
        data += more
    return data
def call(kind, what, args):
    if kind == "exec":
        names.update(args)
        exec(what, names)
        return names.pop("result", None)
    f = names[what.split(".")[0]]
    for part in what.split(".")[1:]:
        f = getattr(f, part)
    value = f(*args)
    return tuple(value) if isinstance(value, os.stat_result) else value
while True:
    request = pickle.loads(read_exactly(struct.unpack("=Q", read_exactly(8))[0]))
    try:
        answer = ("ok", call(*request))
    except OSError as e:
        answer = ("errno", (e.errno, os.strerror(e.errno) + " [in client]", e.filename))
    except BaseException as e:
        answer = ("error", "%s: %s" % (type(e).__name__, e))
    data = pickle.dumps(answer)
    data = struct.pack("=Q", len(data)) + data
    while data:
        data = data[os.write(out, data):]
"""

live = set()


class ClientDied(Exception):
    """The client process ended while the test waited for its answer."""


class _Os:
    def __init__(self, client):
        self._client = client

    def __getattr__(self, name):
        return lambda *args: self._client.call("os." + name, *args)


class Client:
    def __init__(self, preexec=None):
        self.proc = subprocess.Popen([sys.executable, "-I", "-S", "-c", _AGENT],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/",
                                     preexec_fn=preexec, bufsize=0)
        self.pid = self.proc.pid
        self.os = _Os(self)
        live.add(self)

    def start(self, what, *args):
        self._send(("call", what, args))

    def call(self, what, *args):
        self.start(what, *args)
        return self.finish()

    def exec(self, source, **names):
        """Runs statements in the client; what they assign to `result` is returned."""
        self._send(("exec", source, names))
        return self.finish()

    def start_exec(self, source, **names):
        self._send(("exec", source, names))

    def stat(self, path):
        return os.stat_result(self.call("os.stat", path))

    def fstat(self, fd):
        return os.stat_result(self.call("os.fstat", fd))

    def put(self, path, data):
        self.exec("""
fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
try:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view):]
finally:
    os.close(fd)
""", path=path, data=data)

    def get(self, path):
        return self.exec("""
with open(path, "rb", buffering=0) as f:
    result = f.read()
""", path=path)

    def peek(self, path):
        try:
            return self.get(path)
        except FileNotFoundError:
            return None

    def done(self, seconds=0.0):
        """Whether the operation that was started has returned, waiting for it at most so long."""
        return bool(select.select([self.proc.stdout], [], [], seconds)[0])

    def finish(self, seconds=None):
        if seconds is not None and not self.done(seconds):
            raise TimeoutError(f"client {self.pid} has not answered within {seconds} s")
        kind, value = pickle.loads(self._read(struct.unpack("=Q", self._read(8))[0]))
        if kind == "errno":
            raise OSError(*value)
        if kind == "error":
            raise RuntimeError(value)
        return value

    def kill(self, sig=signal.SIGKILL, within=None):
        """Sends sig and waits until the process is gone. Returns the seconds that took."""
        began = time.monotonic()
        os.kill(self.pid, sig)
        try:
            self.proc.wait(timeout=env.scaled(within or 10))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"client still there {within or 10} s after signal {sig}") from None
        self._close()
        return time.monotonic() - began

    def exit(self):
        """Lets the process end by itself, open files and all."""
        self._close()
        self.proc.wait(timeout=env.scaled(10))

    def destroy(self):
        if self.proc.poll() is None:
            self.proc.kill()
            try:
                self.proc.wait(timeout=2)
            except subprocess.TimeoutExpired:
                pass  # waits in the kernel; the mount's end frees it
        self._close()

    def _send(self, request):
        data = pickle.dumps(request)
        try:
            self.proc.stdin.write(struct.pack("=Q", len(data)))
            view = memoryview(data)
            while view:
                view = view[self.proc.stdin.write(view):]
        except BrokenPipeError:
            raise ClientDied(f"client {self.pid}: {self.proc.wait()}") from None

    def _read(self, n):
        data = bytearray()
        while len(data) < n:
            more = os.read(self.proc.stdout.fileno(), min(n - len(data), 1 << 20))
            if not more:
                raise ClientDied(f"client {self.pid}: {self.proc.wait()}")
            data += more
        return data

    def _close(self):
        live.discard(self)
        for pipe in (self.proc.stdin, self.proc.stdout):
            try:
                pipe.close()
            except OSError:
                pass
