#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A tour: mounts mooncakefs, replays a trace of a real chat service's KV-cache blocks on it, shows what
# came of it, and says what to try next. The mount stays.
#
#   MOUNT=DIR    where to mount (/mnt/mooncake); a mooncakefs that is there already is used
#   STATE=DIR    where the daemon keeps its state (its own default)
#   TRACE=FILE   what to replay (conversation_2000.jsonl beside this script)
#   BLOCK=SIZE   size of a block (64K, or less where the DRAM budget is small)
#   THREADS=N    threads of the replay (2)

set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=${MCFS_BUILD:-$here/../build}/bin
MOUNT=${MOUNT:-/mnt/mooncake}
STATE=${STATE:-}
TRACE=${TRACE:-$here/conversation_2000.jsonl}
BLOCK=${BLOCK:-}
THREADS=${THREADS:-2}

# Distinct blocks of the default trace, and the share of the budget they may take.
blocks=38788
percent=80

fail() {
	echo "demo: $*" >&2
	exit 1
}

# $(program NAME): from the build tree, else from PATH (an installed copy of this script).
program() {
	if [ -x "$bin/$1" ]; then
		realpath "$bin/$1"
	else
		command -v "$1" || fail "$1 not found in $bin nor in PATH: run 'make' first"
	fi
}

explain_failed_mount() {
	if [ ! -e /dev/fuse ]; then
		fail "$MOUNT: not mounted: there is no /dev/fuse" \
			"(load the module 'fuse'; in a container: --device /dev/fuse --cap-add SYS_ADMIN)"
	fi
	if [ "$(id -u)" -ne 0 ]; then
		fail "$MOUNT: not mounted: see above; it works best as root (sudo)"
	fi
	fail "$MOUNT: not mounted: the daemon's reason is above"
}

mount_it() {
	if [ -e "$MOUNT/.mooncake/status.json" ]; then
		echo "A mooncakefs is mounted at $MOUNT already; using it."
		return
	fi
	mkdir -p "$MOUNT" || fail "$MOUNT: cannot create it: run as root (sudo), or set MOUNT=DIR"
	if mountpoint -q "$MOUNT"; then
		fail "$MOUNT: something else is mounted there: unmount it, or set MOUNT=DIR"
	fi
	echo "Mounting mooncakefs at $MOUNT"
	local options=()
	if [ -n "$STATE" ]; then
		options=(-o "state=$STATE")
	fi
	"$mooncakefs" "${options[@]}" "$MOUNT" || explain_failed_mount
}

# The largest of 64K, 32K and 16K with which the blocks fit the DRAM budget.
choose_block() {
	local budget size
	budget=$("$mooncakectl" status --json --mount "$MOUNT" |
		awk -F'[:,]' '/"budget_bytes"/ { printf "%.0f", $2; exit }')
	for size in 64 32; do
		if [ "$((blocks * size * 1024))" -le "$((${budget:-0} * percent / 100))" ]; then
			echo "${size}K"
			return
		fi
	done
	echo 16K
}

mooncakefs=$(program mooncakefs)
mooncakectl=$(program mooncakectl)
[ -r "$TRACE" ] || fail "$TRACE: cannot read it"
mount_it
[ -n "$BLOCK" ] || BLOCK=$(choose_block)

trace_name=$(basename "$TRACE")
dir=demo-${trace_name%.*}-$BLOCK
replay=("$mooncakectl" replay "$TRACE" "$MOUNT" --block-bytes "$BLOCK" --threads "$THREADS" --dir "$dir")

echo "Replaying $trace_name in blocks of $BLOCK"
echo
"${replay[@]}"

block=$(find "$MOUNT/kv/$dir" -type f -print -quit)
cat <<END

The blocks are plain files. Next, try:
  ls $MOUNT/kv/$dir | head
  $mooncakectl status $MOUNT
  $mooncakectl stat $block
  python3 -c "print(open('$block', 'rb').read(24))"
  ${replay[*]}    # again: all hits

'umount $MOUNT' ends it and frees its memory.
END
