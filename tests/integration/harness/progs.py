# SPDX-License-Identifier: Apache-2.0
"""The C helper programs: found where make built them, else compiled for this session."""
import os
import shutil
import subprocess
import tempfile

import pytest

from . import env

_SOURCES = {
    "torture_mount": os.path.join(env.REPO, "tests", "stress", "torture_mount.c"),
}
_BUILT = (
    os.path.join(env.BUILD, "tests", "progs"),
    os.path.join(env.BUILD, "tests", "stress"),
)
_compiled = {}
_scratch = None


def prog(name):
    """Path of helper program NAME."""
    if name not in _compiled:
        _compiled[name] = _find(name)
    return _compiled[name]


def cleanup():
    if _scratch:
        shutil.rmtree(_scratch, ignore_errors=True)


def _find(name):
    source = _SOURCES.get(name, os.path.join(env.HERE, "progs", name + ".c"))
    for folder in _BUILT:
        path = os.path.join(folder, name)
        if os.path.exists(path) and os.path.getmtime(path) >= os.path.getmtime(source):
            return path
    return _compile(name, source)


def _compile(name, source):
    global _scratch
    cc = os.environ.get("CC") or "cc"
    if shutil.which(cc) is None:
        pytest.skip(f"needs {name} (make it) or a C compiler")
    if _scratch is None:
        _scratch = tempfile.mkdtemp(prefix="mcfs-progs-")
    out = os.path.join(_scratch, name)
    cmd = [cc, "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Wshadow",
           "-Wmissing-prototypes", "-pthread", source, "-o", out]
    done = subprocess.run(cmd, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.fail(f"{' '.join(cmd)}\n{done.stderr}", pytrace=False)
    return out


def run_prog(name, *args, timeout=60, input=None):
    """Runs a helper program to its end. Returns the CompletedProcess, output as text."""
    argv = [prog(name), *map(str, args)]
    return subprocess.run(argv, capture_output=True, text=True, errors="surrogateescape",
                          timeout=env.scaled(timeout), input=input)


def check_prog(name, *args, timeout=60):
    """As run_prog; fails the test when the program does not exit with 0. Returns its stdout."""
    done = run_prog(name, *args, timeout=timeout)
    if done.returncode != 0:
        pytest.fail(f"{name} {' '.join(map(str, args))}: exit {done.returncode}\n"
                    f"{done.stdout[-2000:]}{done.stderr[-2000:]}", pytrace=False)
    return done.stdout
