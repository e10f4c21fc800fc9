# SPDX-License-Identifier: Apache-2.0
"""mooncakectl bench: every row is there, figures fit together, and nothing is left on the mount."""
import os
import signal
import subprocess
import time

import pytest

from harness import env
from harness.ctl import check_ctl, ctl, ctl_json

pytestmark = [pytest.mark.mooncake, pytest.mark.one_mode, pytest.mark.no_asan]


@pytest.fixture
def live(mount):
    """A mount with sessions."""
    if not mount.passthrough_live:
        pytest.skip("sessions need passthrough")
    return mount


def test_all_rows_with_figures(live):
    r = ctl_json("bench", live.path, "--seconds", "1", "--size", "16K", "--batch", "32")
    assert [row["op"] for row in r["rows"]] == ["read", "write", "lookup, present", "lookup, missing"]
    for row in r["rows"]:
        assert row["calls"] > 0 and row["items"] == 32 * row["calls"]
        assert 0 < row["call_us"]["p50"] <= row["call_us"]["p99"] <= row["call_us"]["max"]
        assert row["item_us"]["p50"] == pytest.approx(row["call_us"]["p50"] / 32)
    for row in r["rows"][:2]:
        assert row["gb_per_s"] > 0 and row["memcpy_gb_per_s"] > 0
        assert row["of_memcpy"] == pytest.approx(row["memcpy_us"]["p50"] / row["call_us"]["p50"])
        assert 0 < row["own_cpu_s_per_gb"] + row["daemon_cpu_s_per_gb"] < 100
    assert os.listdir(live.path) == []


def test_segments_threads_and_one_op(live):
    r = ctl_json("bench", live.path, "--op", "read", "--size", "256K", "--segments", "16", "--batch", "4",
                 "--threads", "3", "--seconds", "1")
    assert [row["op"] for row in r["rows"]] == ["read"]
    assert (r["threads"], r["segments"]) == (3, 16)
    assert r["rows"][0]["calls"] % 3 == 0


def test_table_is_readable(live):
    out = check_ctl("bench", live.path, "--op", "lookup", "--batch", "100", "--seconds", "1")
    lines = out.splitlines()
    assert lines[1].split()[:3] == ["OP", "CALL", "P50"]
    assert lines[2].startswith("lookup, present") and lines[3].startswith("lookup, missing")


@pytest.mark.parametrize("arguments", [["--op", "sing"], ["--size", "0"], ["--batch", "0"], ["--threads", "x"],
                                       ["--size", "10", "--segments", "3"]], ids=" ".join)
def test_bad_options_are_usage_errors(live, arguments):
    done = ctl("bench", live.path, *arguments)
    assert done.returncode == 2 and arguments[0].lstrip("-") in done.stderr


def test_what_does_not_fit_is_said(live):
    """A batch beyond what the mount gives to buffers: an error that names it, and nothing is left."""
    done = ctl("bench", live.path, "--op", "read", "--size", "64M", "--batch", "64")
    assert done.returncode == 1
    assert "memory shared with the daemon" in done.stderr
    assert os.listdir(live.path) == []


def test_no_mount(tmp_path):
    assert ctl("bench", tmp_path).returncode == 1


def test_interrupt_cleans_up(live):
    """SIGINT ends the row; what was measured is printed, the directory removed."""
    child = subprocess.Popen([env.CTL, "bench", live.path, "--op", "write", "--seconds", "60"],
                             stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + env.scaled(10)
    while not os.listdir(live.path) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1.5)
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=env.scaled(20))
    assert child.returncode == 1 and "write" in out
    assert os.listdir(live.path) == []
