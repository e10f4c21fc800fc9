# SPDX-License-Identifier: Apache-2.0
"""Helper processes that end with the test process, however that ends."""
import ctypes
import signal

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def tie():
    """For a child, between fork and exec: SIGKILL when the thread that forked it is gone."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
