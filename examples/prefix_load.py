#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""prefix_load: loads the blocks of a prefix that are there with one call.

prefix_load.py /mnt/mooncake kv/llama 65536 <names      (one name per line, in the order of the chain)
pip install ./examples/python
"""
import sys

import mooncakefs


def main(mount, directory, block_bytes):
    names, size = sys.stdin.read().split(), int(block_bytes)
    with mooncakefs.Session(mount, reconnect=True) as session:
        blocks = session.directory(directory)
        buffer = session.buffer(max(len(names), 1) * size)  # torch.frombuffer(buffer.memory, ...) shares it
        ready = blocks.lookup(names).ready
        batch = session.batch("read")
        for i, name in enumerate(names[:ready]):
            batch.add(blocks, name, buffer[i * size:(i + 1) * size])
        loaded = batch.run().n_ok
    print(f"{ready} of {len(names)} blocks ready, {loaded} loaded")


if __name__ == "__main__":
    main(*sys.argv[1:])
