# SPDX-License-Identifier: Apache-2.0
"""mooncakectl, run as a user runs it."""
import json
import subprocess

from . import env


def ctl(*args, timeout=60):
    """Runs mooncakectl. Returns the CompletedProcess, output as text."""
    return subprocess.run([env.CTL, *map(str, args)], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=env.scaled(timeout))


def check_ctl(*args, timeout=60):
    done = ctl(*args, timeout=timeout)
    assert done.returncode == 0, f"mooncakectl {args}: exit {done.returncode}: {done.stderr}"
    return done.stdout


def ctl_json(*args, timeout=60):
    """The document that `mooncakectl ... --json` prints."""
    return json.loads(check_ctl(*args, "--json", timeout=timeout))
