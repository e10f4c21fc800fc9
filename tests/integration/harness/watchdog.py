# SPDX-License-Identifier: Apache-2.0
"""Time limits: a test that hangs fails, and never stalls the run.

SIGALRM interrupts a test that computes, sleeps or waits for a process. A thread of the test process
that waits inside the file system cannot be interrupted by a handler: some seconds later a second
thread kills the clients, cuts the FUSE connections and kills the daemons, which frees it.
"""
import signal
import threading

import pytest

from . import client, env

GRACE = 5
rescue_mounts = lambda: None  # set by harness.mount


class Limit:
    """with Limit(seconds, name): ..."""

    def __init__(self, seconds, name):
        self.seconds = env.scaled(seconds)
        self.name = name
        self.timer = None

    def __enter__(self):
        signal.signal(signal.SIGALRM, self._on_alarm)
        signal.setitimer(signal.ITIMER_REAL, self.seconds)
        self.timer = threading.Timer(self.seconds + env.scaled(GRACE), rescue)
        self.timer.daemon = True
        self.timer.start()
        return self

    def __exit__(self, *exc):
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.timer.cancel()
        return False

    def _on_alarm(self, _signo, _frame):
        for c in list(client.live):
            c.proc.kill()
        pytest.fail(f"time limit: {self.name} took longer than {self.seconds:g} s")


def rescue():
    """Frees whoever waits in a mount, by force."""
    for c in list(client.live):
        c.proc.kill()
    rescue_mounts()
