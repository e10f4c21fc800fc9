# SPDX-License-Identifier: Apache-2.0
"""Where things are and what this machine can do.

MCFS_BUILD        build directory (default: build in the repository)
MCFS_PASSTHROUGH  auto (default) or off: the option the daemon is started with
MCFS_TEST_DIR     a directory of any file system: no daemon is started, tests that need one skip
MCFS_LONG         1: also the long tests
MCFS_TIME_SCALE   factor on every time limit (sanitizer builds, slow machines)
MCFS_KEEP         1: keep the temporary directories
MCFS_TMP          where they are made (default /var/tmp: a disk, not a tmpfs)
"""
import os
import shutil

import pytest

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
REPO = os.path.dirname(os.path.dirname(HERE))
SHARED = os.path.join(os.path.dirname(REPO), "shared")
BUILD = os.path.abspath(os.path.join(REPO, os.environ.get("MCFS_BUILD") or "build"))
PASSTHROUGH = os.environ.get("MCFS_PASSTHROUGH") or "auto"
PLAIN_DIR = os.environ.get("MCFS_TEST_DIR")
LONG = os.environ.get("MCFS_LONG") == "1"
KEEP = os.environ.get("MCFS_KEEP") == "1"
SCALE = float(os.environ.get("MCFS_TIME_SCALE") or 1)
TMP = os.environ.get("MCFS_TMP") or "/var/tmp"

DAEMON = os.path.join(BUILD, "bin", "mooncakefs")
CTL = os.path.join(BUILD, "bin", "mooncakectl")
MOUNT_HELPER = os.path.join(REPO, "mount-helpers", "mount.mooncakefs")

KIB = 1024
MIB = 1 << 20


def scaled(seconds):
    """A time limit, in seconds, for this machine and build."""
    return seconds * SCALE


def require_daemon():
    """Skips the test when the daemon cannot run here."""
    if PLAIN_DIR:
        pytest.skip("needs the daemon (MCFS_TEST_DIR is set)")
    if os.geteuid() != 0:
        pytest.skip("needs root")
    if not os.path.exists("/dev/fuse"):
        pytest.skip("needs /dev/fuse")
    if not os.path.exists(DAEMON):
        pytest.skip(f"not built: {DAEMON}")


def require_tool(*names):
    """Skips the test when one of these programs is not installed."""
    for name in names:
        if shutil.which(name) is None:
            pytest.skip(f"needs {name}")


def require_long():
    if not LONG:
        pytest.skip("long (set MCFS_LONG=1)")


def require_file(path):
    if not os.path.exists(path):
        pytest.skip(f"needs {path}")
