# SPDX-License-Identifier: Apache-2.0
"""Rule 3: a writer that dies by a signal never publishes; one that ends otherwise does."""
import os
import signal
import subprocess

import pytest

from harness.content import exists, get, pattern, put, version, wait_for
from harness.progs import prog, run_prog

pytestmark = pytest.mark.mooncake

CREATE = os.O_RDWR | os.O_CREAT
SIZE = 300000

KILLED = {
    "sigkill": signal.SIGKILL, "sigterm": signal.SIGTERM, "sigsegv": signal.SIGSEGV,
    "sigabrt": signal.SIGABRT, "sigquit": signal.SIGQUIT, "sigint": signal.SIGINT,
    "threads-sigkill": signal.SIGKILL, "threads-sigsegv": signal.SIGSEGV,
    "leader-gone-sigkill": signal.SIGKILL, "writer-thread-sigterm": signal.SIGTERM,
    "exec-sigkill": signal.SIGKILL,
}
FINISHED = ["exit", "threads-exit", "leader-gone-exit", "exec-cloexec", "exec-inherit",
            "threads-exec-cloexec"]


@pytest.mark.parametrize("how", KILLED)
def test_rule03_killed_writer_never_publishes(d, how):
    """A new file of a writer that dies by a signal never appears, and its name is free at once."""
    path = os.path.join(d, "f")
    assert run_prog("writer", path, SIZE, how).returncode == -KILLED[how]
    assert not exists(path)
    assert os.listdir(d) == []
    os.close(os.open(path, CREATE | os.O_EXCL))


@pytest.mark.parametrize("how", KILLED)
def test_rule03_killed_overwriter_leaves_the_old_version(d, how):
    """The object that a killed writer was overwriting in place stays as it was."""
    path, data = os.path.join(d, "f"), pattern(1, SIZE)
    put(path, data)
    before = version(path)
    assert run_prog("writer", "-o", path, SIZE // 2, how).returncode == -KILLED[how]
    assert get(path) == data
    assert version(path) == before


@pytest.mark.parametrize("how", ["sigkill", "sigterm", "threads-sigkill"])
def test_rule03_killed_truncating_writer_leaves_the_old_version(d, how):
    """The same for a writer that opened the name with O_TRUNC."""
    path, data = os.path.join(d, "f"), pattern(1, SIZE)
    put(path, data)
    assert run_prog("writer", path, SIZE // 2, how).returncode == -KILLED[how]
    assert get(path) == data


@pytest.mark.parametrize("how", FINISHED)
def test_rule03_writer_that_ends_by_itself_publishes(d, how):
    """Ending without close(2), by exit or exec, with and without threads, publishes the whole file."""
    path = os.path.join(d, "f")
    assert run_prog("writer", path, SIZE, how).returncode == 0
    assert get(path) == b"w" * SIZE


@pytest.mark.parametrize("how", FINISHED)
def test_rule03_overwriter_that_ends_by_itself_publishes(d, how):
    """The same when it was writing over a published object."""
    path, data = os.path.join(d, "f"), pattern(1, SIZE)
    put(path, data)
    assert run_prog("writer", "-o", path, SIZE // 2, how).returncode == 0
    assert get(path) == b"w" * (SIZE // 2) + data[SIZE // 2:]


def test_rule03_killed_by_another_process(d, client_a):
    """A writer that is killed from outside while it sleeps publishes nothing."""
    for signo in (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP):
        path = os.path.join(d, f"f{signo}")
        p = subprocess.Popen(["sh", "-c", f"exec > {path}; echo half; exec sleep 60"])
        wait_for(lambda: os.path.basename(os.readlink(f"/proc/{p.pid}/exe")) == "sleep", 5, "sleep runs")
        p.send_signal(signo)
        assert p.wait() == -signo
        assert not exists(path)


def test_rule03_killed_pipeline_stage(d):
    """`cat > f` killed while its input is still open leaves no file."""
    path = os.path.join(d, "f")
    with open(os.path.devnull) as null:
        p = subprocess.Popen(["sh", "-c", f"exec cat > {path}"], stdin=subprocess.PIPE, stderr=null)
    p.stdin.write(b"x" * 100000)
    p.stdin.flush()
    p.kill()
    p.wait()
    assert not exists(path)


def test_rule03_drafts_of_a_killed_writer_vanish(fs, d, client_a):
    """All drafts of a killed process are gone from the daemon, and their bytes are given back."""
    before = fs.status()["drafts"]["open"]
    used = fs.tier()["used_bytes"] - fs.tier()["free_list_bytes"]
    for i in range(20):
        fd = client_a.os.open(os.path.join(d, f"f{i}"), CREATE, 0o644)
        client_a.os.write(fd, b"x" * (1 << 20))
    assert fs.status()["drafts"]["open"] == before + 20
    client_a.kill(signal.SIGKILL)
    wait_for(lambda: fs.status()["drafts"]["open"] == before, 2, "drafts are gone")
    wait_for(lambda: fs.tier()["used_bytes"] - fs.tier()["free_list_bytes"] <= used, 3,
             "their bytes are free")


def test_rule03_poisoned_drafts_are_counted(fs, d):
    """The counter drafts_poisoned moves by one for a killed writer, publishes does not move."""
    before = fs.status()["counters"]
    run_prog("writer", os.path.join(d, "f"), 1000, "sigkill")
    after = fs.status()["counters"]
    assert after["drafts_poisoned"] == before["drafts_poisoned"] + 1
    assert after["publishes"] == before["publishes"]


def test_rule03_survivor_of_a_killed_opener_does_not_publish(d):
    """The opener is killed; its forked child writes on and exits normally: nothing is published."""
    path = os.path.join(d, "f")
    p = subprocess.Popen([prog("forkdraft"), path, "parent-killed"], stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert p.wait() == -signal.SIGKILL
    p.stdout.read()  # until the child is gone as well
    for _ in range(20):
        assert not exists(path)


def test_rule03_survivor_of_a_killed_writing_child_does_not_publish(d):
    """A forked child that wrote to the file is killed; the opener's close does not publish the mixture."""
    path = os.path.join(d, "f")
    p = subprocess.Popen([prog("forkdraft"), path, "child-killed-writing"], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=True)
    assert p.stdout.readline() == "child-gone\n"
    assert not exists(path)
    p.stdin.write("\n")
    p.stdin.close()
    p.wait()
    assert not exists(path)


def test_rule03_survivor_keeps_the_old_object_of_the_name(d, client_a):
    """A poisoned draft of a published name: the old object stays, and the name can be written anew."""
    path = os.path.join(d, "f")
    put(path, b"old")
    p = subprocess.Popen([prog("forkdraft"), path, "parent-killed"], stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    p.wait()
    p.stdout.read()
    assert get(path) == b"old"
    client_a.put(path, b"anew")
    assert get(path) == b"anew"


def test_rule03_clean_handle_of_a_killed_process_poisons_nothing(d, client_a, client_b):
    """A killed process that held the shared draft open without writing does not take the writer's work."""
    path = os.path.join(d, "f")
    put(path, b"0" * 8192)
    fa = client_a.os.open(path, os.O_RDWR)
    client_b.os.open(path, os.O_RDONLY)
    client_a.os.pwrite(fa, b"1" * 4096, 0)
    client_b.kill(signal.SIGKILL)
    client_a.os.close(fa)
    assert get(path) == b"1" * 4096 + b"0" * 4096


def test_rule03_killed_after_close_stays_published(d, client_a):
    """What was closed before the kill is published: the kill concerns open drafts only."""
    path = os.path.join(d, "f")
    client_a.put(path, b"done")
    client_a.os.open(os.path.join(d, "g"), CREATE, 0o644)
    client_a.kill(signal.SIGKILL)
    assert os.listdir(d) == ["f"]
    assert get(path) == b"done"


def test_rule03_killed_after_publish_keeps_the_published_part(d, client_a):
    """A dup was closed (published), more was written, then the kill: the published version stays."""
    path = os.path.join(d, "f")
    fd = client_a.os.open(path, CREATE, 0o644)
    client_a.os.write(fd, b"published" * 1000)
    client_a.os.close(client_a.os.dup(fd))
    assert get(path) == b"published" * 1000
    client_a.os.write(fd, b" and not")
    client_a.kill(signal.SIGKILL)
    assert get(path) == b"published" * 1000


def test_rule03_exec_does_not_block_the_daemon(fs, d):
    """Fifty programs started with close-on-exec drafts open, from threads: none hangs, all publish."""
    for i in range(25):
        for how in ("exec-cloexec", "threads-exec-cloexec"):
            path = os.path.join(d, f"{how}{i}")
            assert run_prog("writer", path, 10000, how, timeout=10).returncode == 0
            assert get(path) == b"w" * 10000


def test_rule03_oom_style_group_kill(d):
    """A whole process group killed at once (job killed by a scheduler) leaves none of its files."""
    p = subprocess.Popen(["sh", "-c", "for i in 1 2 3 4 5 6; do (echo half; exec sleep 60) > $i & done; "
                          "echo started; wait"],
                         cwd=d, stdout=subprocess.PIPE, start_new_session=True)
    assert p.stdout.readline() == b"started\n"
    wait_for(lambda: _writers_sleep(p.pid), 5, "all writers sleep")
    os.killpg(p.pid, signal.SIGKILL)
    p.wait()
    p.stdout.read()
    assert os.listdir(d) == []


def _writers_sleep(parent):
    with open(f"/proc/{parent}/task/{parent}/children") as f:
        children = f.read().split()
    names = []
    for pid in children:
        with open(f"/proc/{pid}/comm") as f:
            names.append(f.read().strip())
    return names == ["sleep"] * 6
