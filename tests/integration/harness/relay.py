# SPDX-License-Identifier: Apache-2.0
"""A TCP relay in front of a node or a server, which delays, throttles, stalls, cuts or spoils what passes.

The node advertises the relay's address. It runs as a process of its own, because a test that waits for a page of a
mapping holds the interpreter's lock.

    relay = Relay()                     # listens; relay.address is to be advertised
    relay.to("127.0.0.1:4711")          # whereto
    relay.set(rate=16 << 20)            # bytes per second of each direction of a connection
"""
import json
import os
import random
import select
import socket
import subprocess
import sys
import threading
import time

CHUNK = 128 << 10


class Relay:
    """Settings, for connections there are and new ones:
    delay    seconds that each byte takes, each way
    rate     bytes per second, of all that comes from the node together; 0: no limit
    stalled  nothing passes, either way; connections stay and new ones are taken
    muted    nothing comes from the node, which still hears; connections that are closed meanwhile lose it
    refused  connections are closed, new ones too
    spoil    one bit in so many bytes from the node is flipped, after the first 64 KiB of a connection; 0: none
    """

    def __init__(self, host="127.0.0.1"):
        from . import lifeline
        self.proc = subprocess.Popen([sys.executable, "-I", "-S", os.path.abspath(__file__), host.strip("[]")],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, cwd="/",
                                     preexec_fn=lifeline.tie)
        self.address = f"{host}:{json.loads(self.proc.stdout.readline())}"

    def to(self, address):
        self.set(target=address)

    def set(self, **settings):
        return self._ask(settings)

    def counts(self):
        """{"connections": accepted so far, "open": now, "to": bytes to the node, "from": bytes from it}"""
        return self._ask({})

    def first_bytes(self):
        """What the last connection sent to the node first, at most 64 KiB."""
        return bytes.fromhex(self._ask({"want_first": True})["first"])

    def destroy(self):
        self.proc.kill()
        self.proc.communicate()

    def _ask(self, settings):
        self.proc.stdin.write(json.dumps(settings) + "\n")
        return json.loads(self.proc.stdout.readline())


# ---- the process ----

class _State:
    def __init__(self):
        self.target = None
        self.delay = self.rate = self.spoil = 0
        self.stalled = self.muted = self.refused = False
        self.connections = self.open = 0
        self.bytes = {"to": 0, "from": 0}
        self.first = b""
        self.socks = set()
        self.lock = threading.Lock()
        self.free_at = 0.0  # when the throttled line is free again


def _depth(state):
    """Chunks that are read ahead: a throttled line stores little, one with a delay what is on its way."""
    return 512 if state.delay else 4


def _holds(state, way):
    return state.stalled or (state.muted and way == "from")


def _pass(state, source, sink, way):
    """One direction of a connection: reads ahead by the delay, then lets the bytes go in order."""
    chance, waiting, n, is_open = random.Random(1), [], 0, True
    try:
        while is_open or waiting:
            wait = 0.05 if not waiting else max(0, min(0.05, waiting[0][0] - time.monotonic()))
            can_read = is_open and len(waiting) < _depth(state) and not _holds(state, way)
            if can_read and select.select([source], [], [], wait)[0]:
                data = source.recv(CHUNK)
                is_open = bool(data)
                if data:
                    waiting.append((time.monotonic() + state.delay, data))
            elif not can_read:
                time.sleep(max(wait, 0.001))
            while waiting and waiting[0][0] <= time.monotonic() and not _holds(state, way):
                data = waiting.pop(0)[1]
                if way == "from":
                    data = _spoiled(state, chance, data, n)
                    _throttle(state, len(data))
                elif n < 65536:
                    state.first += data
                n += len(data)
                sink.sendall(data)
                with state.lock:
                    state.bytes[way] += len(data)
        sink.shutdown(socket.SHUT_WR)
    except (OSError, ValueError):
        _shut(source)
        _shut(sink)


def _shut(s):
    try:
        s.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it has ended


def _spoiled(state, chance, data, n):
    if not state.spoil or n < 65536 or chance.random() > len(data) / state.spoil:
        return data
    data = bytearray(data)
    data[chance.randrange(len(data))] ^= 0x10
    return bytes(data)


def _throttle(state, n):
    if not state.rate:
        return
    with state.lock:
        state.free_at = max(state.free_at, time.monotonic()) + n / state.rate
        until = state.free_at
    time.sleep(max(0, until - time.monotonic()))


def _serve(state, near):
    far = None
    try:
        if state.refused or not state.target:
            return
        host, port = state.target.rsplit(":", 1)
        far = socket.create_connection((host.strip("[]"), int(port)), timeout=10)
        far.settimeout(None)
        for s in (near, far):
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with state.lock:
            state.open += 1
            state.first = b""
            state.socks |= {near, far}
        back = threading.Thread(target=_pass, args=(state, far, near, "from"), daemon=True)
        back.start()
        _pass(state, near, far, "to")
        back.join()
        with state.lock:
            state.open -= 1
            state.socks -= {near, far}
    except OSError:
        pass
    finally:
        for s in (near, far):
            if s:
                s.close()


def _accept(state, listener):
    while True:
        near, _ = listener.accept()
        state.connections += 1
        threading.Thread(target=_serve, args=(state, near), daemon=True).start()


def _main(host):
    state = _State()
    listener = socket.create_server((host, 0), backlog=256,
                                    family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    print(listener.getsockname()[1], flush=True)
    threading.Thread(target=_accept, args=(state, listener), daemon=True).start()
    for line in sys.stdin:
        settings = json.loads(line)
        want_first = settings.pop("want_first", False)
        for name, value in settings.items():
            setattr(state, name, value)
        if state.refused:
            with state.lock:
                for s in state.socks:
                    _shut(s)
        answer = {"connections": state.connections, "open": state.open, **state.bytes}
        if want_first:
            answer["first"] = state.first.hex()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _main(sys.argv[1])
