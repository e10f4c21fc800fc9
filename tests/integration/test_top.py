# SPDX-License-Identifier: Apache-2.0
"""mooncakectl top: in terminals of several sizes, in a pipe, and what ends it."""
import codecs
import errno
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import threading
import time

import pytest

from harness import env
from harness.content import pattern, put, wait_for
from harness.ctl import ctl

pytestmark = [pytest.mark.mooncake, pytest.mark.one_mode, pytest.mark.no_asan]
_CONTROL = re.compile(r"\033\[(\??)([\d;]*)([A-Za-z])")
_CUT_CONTROL = re.compile(r"\033(\[\??[\d;]*)?\Z")


class Screen:
    """What a terminal shows that knows the sequences top sends, and no others.

    A character beyond the last column or row is an overflow: a real terminal would wrap or scroll.
    """

    def __init__(self, columns, rows):
        self.overflows = []
        self.alternate = False
        self.cursor_shown = True
        self.resize(columns, rows)

    def resize(self, columns, rows):
        self.columns, self.rows = columns, rows
        self.cells = [[" "] * columns for _ in range(rows)]
        self.row = self.column = 0

    def feed(self, text):
        at = 0
        while at < len(text):
            match = _CONTROL.match(text, at)
            if match:
                self._control(*match.groups())
                at = match.end()
                continue
            assert text[at] != "\033", repr(text[at:at + 20])
            self._character(text[at])
            at += 1

    def _control(self, private, arguments, final):
        if private:
            assert (arguments, final) in {("1049", "h"), ("1049", "l"), ("25", "h"), ("25", "l")}
            if arguments == "1049":
                self.alternate = final == "h"
            else:
                self.cursor_shown = final == "h"
        elif final == "H":
            row, column = (int(n) for n in (arguments or "1;1").split(";"))
            self.row, self.column = row - 1, column - 1
        elif final == "K":
            self.cells[self.row][self.column:] = [" "] * (self.columns - self.column)
        elif final == "J":
            self.cells[self.row][self.column:] = [" "] * (self.columns - self.column)
            for k in range(0 if arguments == "2" else self.row + 1, self.rows):
                self.cells[k] = [" "] * self.columns
        else:
            assert final == "m", (arguments, final)

    def _character(self, c):
        if self.column >= self.columns or self.row >= self.rows or c in "\r\n\t":
            self.overflows.append((self.row, self.column, c))
            return
        self.cells[self.row][self.column] = c
        self.column += 1

    @property
    def lines(self):
        return ["".join(cells).rstrip() for cells in self.cells]

    @property
    def text(self):
        return "\n".join(self.lines)


class Top:
    """top in a pseudo-terminal."""

    def __init__(self, *args, columns=80, rows=24, prefix=()):
        self.master, slave = pty.openpty()
        self.screen = Screen(columns, rows)
        self.set_size(columns, rows, slave)
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.raw = self.cut = ""
        self.decode = codecs.getincrementaldecoder("utf-8")().decode
        self.child = subprocess.Popen([*prefix, env.CTL, "top", *map(str, args)], stdin=slave, stdout=slave,
                                      stderr=slave, start_new_session=True, preexec_fn=self._take_terminal)

    def _take_terminal(self):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def set_size(self, columns, rows, fd=None):
        fcntl.ioctl(self.master if fd is None else fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, seconds):
        """Takes in what the program writes until it has been quiet for so long."""
        while select.select([self.master], [], [], seconds)[0]:
            try:
                data = os.read(self.master, 65536)
            except OSError as e:
                assert e.errno == errno.EIO
                return
            text = self.cut + self.decode(data)
            # A terminal hands on what has come so far, wherever that ends.
            cut = _CUT_CONTROL.search(text)
            self.cut = cut.group() if cut else ""
            text = text[:len(text) - len(self.cut)]
            self.raw += text
            # After the screen is put back, messages end with line feeds.
            if self.child.poll() is None or "\033[?1049l" not in self.raw:
                self.screen.feed(text)

    def wait_for(self, text, seconds=10):
        deadline = time.monotonic() + env.scaled(seconds)
        while text not in self.screen.text:
            assert time.monotonic() < deadline, f"no {text!r} in\n{self.screen.text}"
            self.read(0.05)
        return self.screen.text

    def resize(self, columns, rows):
        self.read(0.05)
        self.screen.resize(columns, rows)
        self.set_size(columns, rows)

    def end(self, seconds=5):
        """Waits for its end. Returns the exit status."""
        deadline = time.monotonic() + env.scaled(seconds)
        while self.child.poll() is None:
            assert time.monotonic() < deadline, "it goes on"
            self.drain()
        self.drain()
        return self.child.returncode

    def drain(self):
        while select.select([self.master], [], [], 0.05)[0]:
            try:
                self.raw += os.read(self.master, 65536).decode()
            except OSError:
                return

    def check_restored(self):
        """The main screen, the cursor and the modes of the terminal are back."""
        assert self.raw.rindex("\033[?1049l") > self.raw.rindex("\033[?1049h")
        assert self.raw.rindex("\033[?25h") > self.raw.rindex("\033[?25l")
        assert termios.tcgetattr(self.slave) == self.before

    def destroy(self):
        if self.child.poll() is None:
            os.killpg(self.child.pid, signal.SIGKILL)
            self.child.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def top():
    made = []

    def make(*args, **kwargs):
        made.append(Top(*args, **kwargs))
        return made[-1]

    yield make
    for t in made:
        t.destroy()


@pytest.fixture
def load(request):
    """load(folder): a thread that writes and reads there until the test ends."""
    stopping = threading.Event()
    threads = []

    def work(folder):
        n = 0
        while not stopping.is_set():
            path = os.path.join(folder, f"load{n % 50}")
            put(path, pattern(n, 50000))
            with open(path, "rb") as f:
                f.read()
            n += 1

    def start(folder):
        threads.append(threading.Thread(target=work, args=(folder,)))
        threads[-1].start()

    yield start
    stopping.set()
    for t in threads:
        t.join()


# ---- on a terminal ----

@pytest.mark.parametrize("columns, rows", [(32, 24), (40, 30), (80, 24), (80, 60), (132, 43), (200, 50)])
def test_it_fits_the_terminal(fs, d, top, load, columns, rows):
    """At every size the view stays inside, with rates, tiers, requests and whole numbers."""
    load(d)
    t = top("-d", "0.2", fs.path, columns=columns, rows=rows)
    t.wait_for("write ")
    t.wait_for("REQUEST")
    for _ in range(5):
        t.read(0.1)
        assert not t.screen.overflows, t.screen.text
    text = t.wait_for("publishes")
    assert re.search(r"^dram +\[[#.]+\] +\d+ %", text, re.M), text
    assert re.search(r"\d \wB/s", text) and re.search(r"requests [\d,.]+/s", text), text
    assert re.search(r"^(write|create|lookup|flush) +[\d,.]+ +\d+\.\d+ (us|ms)", text, re.M), text
    for line in t.screen.lines:
        assert not re.search(r"\d\.\.\.|\.\.\.\d", line), line
    os.write(t.master, b"q")
    assert t.end() == 0
    t.check_restored()


def test_wide_terminals_show_more(fs, d, top, load):
    """At 200 columns operations and counters stand side by side; at 40 columns are left out, not cut."""
    load(d)
    wide = top("-d", "0.2", fs.path, columns=200, rows=40)
    wide.wait_for("REQUEST")
    header = next(line for line in wide.screen.lines if line.startswith("REQUEST"))
    assert "P99" in header and "MEAN" in header and "COUNTER" in header
    narrow = top("-d", "0.2", fs.path, columns=40, rows=60)
    narrow.wait_for("COUNTER")
    header = next(line for line in narrow.screen.lines if line.startswith("REQUEST"))
    assert "P50" in header and "MEAN" not in header
    header = next(line for line in narrow.screen.lines if line.startswith("TIER"))
    assert header.split()[:3] == ["TIER", "USAGE", "USED"]


def test_a_resize_redraws_at_once(fs, top):
    """The view takes the new size without waiting for the next round."""
    t = top("-d", "30", fs.path, columns=80, rows=24)
    t.wait_for("dram")
    for columns, rows in ((40, 30), (200, 50), (33, 5), (120, 2), (80, 24)):
        t.resize(columns, rows)
        wait_for(lambda: (t.read(0.05), t.screen.lines[0])[1] != "", 3, f"drawn at {columns}")
        t.read(0.1)
        assert not t.screen.overflows
    t.wait_for("dram")
    os.write(t.master, b"q")
    assert t.end() == 0
    t.check_restored()


def test_a_terminal_too_narrow_is_told(fs, top):
    """Below 32 columns it says so instead of showing something wrong, and goes on when there is room."""
    t = top("-d", "0.2", fs.path, columns=20, rows=10)
    t.wait_for("too narrow")
    assert not t.screen.overflows
    t.resize(60, 20)
    t.wait_for("dram")


@pytest.mark.parametrize("how", ["q", "Q", "ctrl-c", "SIGTERM", "SIGHUP", "SIGQUIT"])
def test_the_terminal_is_put_back(fs, top, how):
    """q, Ctrl-C and signals end it at once with the terminal as it was."""
    t = top("-d", "60", fs.path)
    t.wait_for("dram")
    began = time.monotonic()
    if how == "ctrl-c":
        os.write(t.master, b"\x03")
    elif how.startswith("SIG"):
        t.child.send_signal(getattr(signal, how))
    else:
        os.write(t.master, b"xyz" + how.encode())
    assert t.end() == 0
    assert time.monotonic() - began < env.scaled(2)
    t.check_restored()


def test_a_pause_gives_the_terminal_back(fs, top):
    """Ctrl-Z puts the terminal back and stops; going on takes it again."""
    t = top("-d", "0.2", fs.path, prefix=("sh", "-c", 'trap "" TSTP; "$@"; exit $?', "sh"))
    t.wait_for("dram")
    os.write(t.master, b"\x1a")
    wait_for(lambda: (t.drain(), "\033[?1049l" in t.raw)[1], 5, "the screen is put back")
    assert termios.tcgetattr(t.slave) == t.before
    before = len(t.raw)
    os.killpg(t.child.pid, signal.SIGCONT)
    wait_for(lambda: (t.drain(), "\033[?1049h" in t.raw[before:] and "dram" in t.raw[before:])[1], 5, "it goes on")
    os.write(t.master, b"q")
    assert t.end() == 0
    t.check_restored()


def test_so_many_rounds_and_no_more(fs, top):
    """-n ends it by itself, the terminal put back."""
    t = top("-d", "0.2", "-n", "3", fs.path)
    assert t.end() == 0
    t.check_restored()


def test_a_mount_that_vanishes_ends_it(mount, top):
    """umount under top: the terminal is put back, a message names the mount, exit status 1."""
    t = top("-d", "0.3", mount.path)
    t.wait_for("dram")
    mount.stop()
    assert t.end() == 1
    t.check_restored()
    message = t.raw[t.raw.rindex("\033[?1049l"):]
    assert mount.path in message and "gone" in message


def test_a_daemon_that_is_killed_ends_it(mount, top):
    """The same for a crash."""
    t = top("-d", "0.3", mount.path)
    t.wait_for("dram")
    mount.kill9()
    assert t.end() == 1
    t.check_restored()
    assert "gone" in t.raw[t.raw.rindex("\033[?1049l"):]


@pytest.mark.limit(60)
def test_a_daemon_that_does_not_answer_is_told(mount, top):
    """While the daemon is stopped the view says for how long, and q still works; then it goes on."""
    t = top("-d", "0.3", mount.path)
    t.wait_for("dram")
    mount.signal(signal.SIGSTOP)
    try:
        t.wait_for("NO ANSWER for", 10)
        other = top("-d", "0.3", mount.path)
        time.sleep(0.5)
        os.write(t.master, b"q")
        assert t.end() == 0
        t.check_restored()
    finally:
        mount.signal(signal.SIGCONT)
    other.wait_for("dram")
    assert "NO ANSWER" not in other.screen.text


# ---- elsewhere ----

def test_plain_output_in_a_pipe(fs, d, load):
    """Not a terminal: one text per round, without control characters."""
    load(d)
    done = ctl("top", "-d", "0.2", "-n", "3", fs.path)
    assert done.returncode == 0 and not done.stderr
    assert "\033" not in done.stdout
    assert len(re.findall(r"^dram ", done.stdout, re.M)) == 3
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_json_is_one_object_per_round(fs, d, load):
    """--json: a line per round, with rates that agree with what was done."""
    load(d)
    done = ctl("top", "--json", "-d", "0.5", "-n", "2", fs.path)
    rounds = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0 and len(rounds) == 2
    for r in rounds:
        assert r["mount"] == fs.path and r["pid"] == fs.pid and r["restarted"] is False
        assert 0.3 < r["seconds"] < 5
        assert r["counters"]["publishes"] > 1
        assert r["write_gbps"] == pytest.approx(r["counters"]["publishes"] * 50000 / 1e9, rel=0.3)
        assert {t["name"] for t in r["tiers"]} == {"dram", "ssd"}
        flush = r["ops"]["flush"]
        assert 0 < flush["p50_us"] <= flush["p99_us"] < 10e6 and flush["per_s"] > 0
        assert r["requests_per_s"] > flush["per_s"]
        assert r["lookup_hit_share"] is None or 0 <= r["lookup_hit_share"] <= 1
    assert rounds[1]["time"] > rounds[0]["time"] and rounds[1]["uptime_s"] > rounds[0]["uptime_s"]


def test_json_survives_a_restart(mount):
    """A daemon that was restarted in between is told, and its counters are no difference."""
    with subprocess.Popen([env.CTL, "top", "--json", "-d", "5", mount.path], stdout=subprocess.PIPE,
                          text=True) as child:
        try:
            json.loads(child.stdout.readline())
            put(os.path.join(mount.path, "f"), b"x")
            mount.remount()
            second = json.loads(child.stdout.readline())
        finally:
            child.kill()
    assert second["restarted"] is True and second["counters"] == {} and second["pid"] == mount.pid


def test_the_mount_is_found_like_that_of_status(fs, d):
    """By a path inside, by --mount, by the environment."""
    put(os.path.join(d, "f"), b"x")
    for args in ((os.path.join(d, "f"),), ("--mount", fs.path)):
        assert json.loads(ctl("top", "--json", "-n", "1", "-d", "0.1", *args).stdout)["mount"] == fs.path
    done = subprocess.run([env.CTL, "top", "--json", "-n", "1", "-d", "0.1"], capture_output=True, timeout=20,
                          env={**os.environ, "MOONCAKE_MOUNT": fs.path})
    assert json.loads(done.stdout)["mount"] == fs.path


def test_wrong_usage(fs, tmp_path):
    """Wrong numbers are exit 2 and named, no mount is exit 1, a full disk is exit 1."""
    for args in (("-d", "0"), ("-d", "-1"), ("-d", "soon"), ("-d", "nan"), ("-d", "3601"), ("-n", "0"),
                 ("-n", "1.5"), ("-n", "x"), ("a", "b"), ("--nonsense",)):
        done = ctl("top", *args)
        assert done.returncode == 2 and done.stderr and not done.stdout, args
    done = ctl("top", tmp_path)
    assert done.returncode == 1 and str(tmp_path) in done.stderr
    with open("/dev/full", "w") as full:
        done = subprocess.run([env.CTL, "top", "-d", "0.1", fs.path], stdout=full, stderr=subprocess.PIPE,
                              text=True, timeout=20)
    assert done.returncode == 1 and "standard output" in done.stderr


def test_a_reader_that_leaves_ends_it(fs):
    """top | head: it ends with its reader."""
    with subprocess.Popen([env.CTL, "top", "-d", "0.1", fs.path], stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        child.stdout.close()
        assert child.wait(timeout=env.scaled(10)) == -signal.SIGPIPE
