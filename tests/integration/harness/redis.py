# SPDX-License-Identifier: Apache-2.0
"""A directory server: a real Valkey or Redis of the test's own, on a free port.

States: new -> up (start) -> paused (pause) -> up (resume), up -> down (stop, kill9) -> up (start). It keeps nothing on
disk unless stop(save=True) says so: a start after anything else finds it empty. The test talks to it over a unix
socket, whatever network it lives in; nodes over TCP.
"""
import os
import shutil
import signal
import socket
import subprocess
import tempfile

import pytest

from . import env, lifeline
from .content import wait_for

PROGRAMS = ("valkey-server", "redis-server")
START_SECONDS = 10


class ReplyError(Exception):
    """The server answered with an error."""


def require_program():
    """Path of a server; skips the test when there is none."""
    for name in PROGRAMS:
        path = shutil.which(name)
        if path:
            return path
    pytest.skip("needs " + " or ".join(PROGRAMS))


def free_port(host):
    """A TCP port that nobody has now."""
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as s:
        s.bind((host, 0))
        return s.getsockname()[1]


class RedisServer:
    def __init__(self, host="127.0.0.1", prefix=(), password=None, port=None, **config):
        """host to bind; an IPv6 one in brackets. prefix goes before the program, as nsenter(1) does. config are
        directives of its configuration: maxmemory="1mb"."""
        self.program = require_program()
        self.host = host
        self.prefix = list(prefix)
        self.password = password
        self.port = port
        self.config = config
        self.base = tempfile.mkdtemp(prefix="mcfs-redis-", dir=env.TMP)
        self.socket = os.path.join(self.base, "socket")
        self.proc = None

    @property
    def url(self):
        secret = f":{self.password}@" if self.password else ""
        return f"redis://{secret}{self.host}:{self.port}"

    @property
    def is_up(self):
        return self.proc is not None and self.proc.poll() is None

    # ---- life ----

    def start(self):
        for attempt in range(5):
            # Another one may take a free port before the server does.
            port = self.port or (free_port(self.host) if not self.prefix else 6379)
            if self._start_on(port):
                self.port = port
                return self
            assert not self.port and attempt < 4, f"{self.program}: {self.said()}"

    def _start_on(self, port):
        argv = [*self.prefix, self.program, "--bind", self.host.strip("[]"), "--port", port, "--dir", self.base,
                "--unixsocket", self.socket, "--save", "", "--appendonly", "no", "--protected-mode", "no",
                "--daemonize", "no"]
        if self.password:
            argv += ["--requirepass", self.password]
        for name, value in self.config.items():
            argv += ["--" + name.replace("_", "-"), value]
        with open(os.path.join(self.base, "log"), "wb") as log:
            self.proc = subprocess.Popen([str(a) for a in argv], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                         cwd="/", preexec_fn=lifeline.tie)
        wait_for(lambda: not self.is_up or self._answers(), env.scaled(START_SECONDS), "the directory server answers")
        return self.is_up

    def _answers(self):
        try:
            return self.command("PING") == "PONG"
        except (OSError, ReplyError):
            return False

    def stop(self, save=False):
        """Ends it the regular way; save: its content is there again at the next start."""
        try:
            self.command("SHUTDOWN", "SAVE" if save else "NOSAVE")
        except (OSError, ReplyError):
            pass
        self._reap()

    def kill9(self):
        if self.is_up:
            self.proc.kill()
        self._reap()

    def restart_empty(self):
        """Killed and started again on its port, with nothing in it."""
        self.kill9()
        return self.start()

    def pause(self):
        """SIGSTOP: connections stay, answers do not come."""
        self.proc.send_signal(signal.SIGSTOP)

    def resume(self):
        if self.is_up:
            self.proc.send_signal(signal.SIGCONT)

    def destroy(self):
        self.kill9()
        if not env.KEEP:
            shutil.rmtree(self.base, ignore_errors=True)

    def said(self):
        with open(os.path.join(self.base, "log"), errors="replace") as f:
            return f.read()[-2000:]

    def _reap(self):
        if self.proc:
            self.proc.wait(timeout=env.scaled(START_SECONDS))

    # ---- what is in it ----

    def command(self, *args, timeout=5):
        """One command; the reply as str, int, list or None. ReplyError when the server says no."""
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(env.scaled(timeout))
            s.connect(self.socket)
            with s.makefile("rwb") as f:
                if self.password:
                    self._ask(f, "AUTH", self.password)
                return self._ask(f, *args)

    def set_config(self, name, value):
        self.command("CONFIG", "SET", name, value)

    def _ask(self, f, *args):
        parts = [a if isinstance(a, bytes) else str(a).encode() for a in args]
        f.write(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts))
        f.flush()
        return self._reply(f)

    def _reply(self, f):
        line = f.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionResetError("the server closed")
        kind, rest = line[:1], line[1:-2].decode(errors="surrogateescape")
        if kind == b"-":
            raise ReplyError(rest)
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == "-1" else f.read(int(rest) + 2)[:-2].decode(errors="surrogateescape")
        if kind == b"*":
            return None if rest == "-1" else [self._reply(f) for _ in range(int(rest))]
        return rest
