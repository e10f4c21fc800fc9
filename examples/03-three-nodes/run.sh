#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Three nodes on this machine: a directory server and three mounts. A file written on the first is read on the
# others, which keep it when the first is gone. Everything is taken away at the end.
#
# usage: sudo examples/03-three-nodes/run.sh
#
#   DIR=FOLDER   where the mounts, states and logs go (a new folder below /var/tmp)
#   PORT=N       of the directory server (7479)
#   KEEP=1       leave it all running and say how to look around

set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=${MCFS_BUILD:-$here/../../build}/bin
PATH=$bin:$PATH
own_dir=
[ -n "${DIR:-}" ] || own_dir=$(mktemp -d /var/tmp/mooncakefs-three.XXXXXX)
DIR=${DIR:-$own_dir}
PORT=${PORT:-7479}
KEEP=${KEEP:-}

fail() {
	echo "three-nodes: $*" >&2
	exit 1
}

server=$(command -v valkey-server || command -v redis-server) || fail "needs valkey-server or redis-server"
command -v mooncakefs >/dev/null || fail "needs mooncakefs: run 'make' first"
[ "$(id -u)" -eq 0 ] || fail "run it as root (sudo)"
mkdir -p "$DIR"

server_pid=
end() {
	for n in a b c; do
		if mountpoint -q "$DIR/$n"; then
			mooncakectl stop --free "$DIR/$n" >/dev/null || true
		fi
	done
	[ -z "$server_pid" ] || kill "$server_pid" 2>/dev/null || true
	wait
	[ -z "$own_dir" ] || rm -rf "$own_dir"
}
[ -n "$KEEP" ] || trap end EXIT

echo "+ $server on 127.0.0.1:$PORT"
"$server" --bind 127.0.0.1 --port "$PORT" --save '' --appendonly no --dir "$DIR" >"$DIR/directory.log" 2>&1 &
server_pid=$!
for _ in $(seq 100); do
	(exec 3<>"/dev/tcp/127.0.0.1/$PORT") 2>/dev/null && break
	sleep 0.05
done

for n in a b c; do
	mkdir -p "$DIR/$n"
	echo "+ mooncakefs node=$n at $DIR/$n"
	mooncakefs -o "node=$n,dram=128M,state=$DIR/state-$n,log=$DIR/$n.log,listen=127.0.0.1:0,directory=redis://127.0.0.1:$PORT" \
		"$DIR/$n"
done
for _ in $(seq 100); do
	[ "$(mooncakectl nodes --json "$DIR/a" | grep -c '"name"')" -eq 3 ] && break
	sleep 0.1
done

echo
mooncakectl nodes "$DIR/a"
echo
mkdir -p "$DIR/a/kv/model"
head -c 8388608 /dev/urandom >"$DIR/a/kv/model/block"
sum=$(md5sum <"$DIR/a/kv/model/block")
echo "written on a; seen on b: $(mooncakectl lookup "$DIR/b/kv/model/block" | tail -n 1)"
[ "$(md5sum <"$DIR/b/kv/model/block")" = "$sum" ] || fail "b read something else"
echo "read on b; seen on b: $(mooncakectl lookup "$DIR/b/kv/model/block" | tail -n 1)"
mooncakectl stop --free "$DIR/a" >/dev/null
[ "$(md5sum <"$DIR/c/kv/model/block")" = "$sum" ] || fail "c read something else"
echo "a is gone; c has read the block from b"
echo
mooncakectl peers "$DIR/c"
if [ -n "$KEEP" ]; then
	echo
	echo "still running below $DIR; to end it: umount $DIR/b $DIR/c; kill $server_pid"
fi
