#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tests/bench/run.sh [GROUP]: runs one group of benchmarks, or all of them.
#
# GROUP, or BENCH in the environment; empty is all. MCFS_BUILD is the build tree.
# Everything is mounted below a folder of its own and goes away with it, however
# the run ends. Needs root, as mounting a tmpfs does.
#
# A missed bar is no failure. Exit status: 0 all ran, 1 something could not run
# or saw wrong bytes, 2 usage.

set -u -o pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=${MCFS_BUILD:-build}
all_groups=(single)
group=${1:-${BENCH:-}}

budget=3G
tmpfs_options=huge=within_size,noswap,nr_inodes=0,size=$budget,mode=0700
limit_s=120 # no mode takes half of it: what does is stuck

tmp=
daemon_pid=

say() {
	printf 'bench: %s\n' "$*" >&2
}

# ---- mounts -----------------------------------------------------------------

is_mounted() {
	awk -v dir="$1" '$2 == dir { found = 1 } END { exit !found }' /proc/self/mounts
}

# start_daemon MODE: mounts $tmp/mnt, sets daemon_pid
start_daemon() {
	local state=$tmp/state-$1 options

	mkdir -p "$state" "$tmp/mnt"
	options=dram=$budget,state=$state,log=$tmp/log
	[ "$1" = passthrough ] || options+=,passthrough=off
	# In the foreground, because its process id is needed.
	"$build/bin/mooncakefs" -f -o "$options" "$tmp/mnt" >"$tmp/output" 2>&1 &
	daemon_pid=$!
	for ((i = 0; i < 200; i++)); do
		if ! kill -0 "$daemon_pid" 2>/dev/null; then
			break
		fi
		if is_mounted "$tmp/mnt" && timeout 5 stat "$tmp/mnt" >/dev/null 2>&1; then
			return 0
		fi
		sleep 0.05
	done
	say "mooncakefs -o $options did not mount:"
	tail -n 20 "$tmp/output" "$tmp/log" >&2 2>/dev/null
	return 1
}

# Waits for a clean end, which a daemon that hangs does not come to.
stop_daemon() {
	[ -n "$daemon_pid" ] || return 0
	if is_mounted "$tmp/mnt"; then
		umount "$tmp/mnt" 2>/dev/null || umount -l "$tmp/mnt" 2>/dev/null
	fi
	for ((i = 0; i < 200; i++)); do
		kill -0 "$daemon_pid" 2>/dev/null || break
		[ "$i" -ne 100 ] || kill -TERM "$daemon_pid" 2>/dev/null
		sleep 0.05
	done
	if kill -0 "$daemon_pid" 2>/dev/null; then
		say "mooncakefs does not end: killed"
		kill -KILL "$daemon_pid" 2>/dev/null
	fi
	wait "$daemon_pid" 2>/dev/null
	daemon_pid=
}

# shellcheck disable=SC2317 # the trap calls it
cleanup() {
	[ -n "$tmp" ] || return 0
	stop_daemon
	# What is left, the deepest first: the raw tmpfs, a dram tier that outlived its daemon.
	awk -v dir="$tmp/" 'index($2, dir) == 1 { print $2 }' /proc/self/mounts | sort -r |
		while read -r dir; do
			umount "$dir" 2>/dev/null || umount -l "$dir"
		done
	rm -rf --one-file-system "$tmp"
	tmp=
}

# ---- groups -----------------------------------------------------------------

# join_rows FILE...: one JSON array of the rows of several, which have one a line
join_rows() {
	awk 'BEGIN { print "[" }
		/^ *\{/ { sub(/,$/, ""); if (row != "") print row ","; row = $0 }
		END { if (row != "") print row; print "]" }' "$@"
}

# run_single_mode MODE [OPTION]: its rows land in $tmp/MODE.json
run_single_mode() {
	local rc

	start_daemon "$1" || return 1
	timeout --foreground -k 5 "$limit_s" "$build/tests/bench/bench_single" --ours "$tmp/mnt" \
		--raw "$tmp/raw" --pid "$daemon_pid" --mode "$1" --json "$tmp/$1.json" "${@:2}"
	rc=$?
	if [ "$rc" -ne 0 ]; then
		say "single, $1: exit status $rc; the daemon's last words:"
		tail -n 20 "$tmp/output" "$tmp/log" >&2 2>/dev/null
	fi
	stop_daemon
	return $((rc != 0))
}

run_single() {
	local rc=0

	mkdir -p "$tmp/raw" "$build/bench" || return 1
	mount -t tmpfs -o "$tmpfs_options" bench-raw "$tmp/raw" || return 1
	echo '[]' | tee "$tmp/passthrough.json" >"$tmp/direct_io.json"
	run_single_mode passthrough || rc=1
	run_single_mode direct_io --no-head || rc=1
	join_rows "$tmp/passthrough.json" "$tmp/direct_io.json" >"$build/bench/single.json" || rc=1
	return "$rc"
}

# ---- main -------------------------------------------------------------------

if [ $# -gt 1 ]; then
	say "usage: $0 [GROUP]; groups: ${all_groups[*]}"
	exit 2
fi
chosen=()
for g in "${all_groups[@]}"; do
	if [ -z "$group" ] || [ "$group" = "$g" ]; then
		chosen+=("$g")
	fi
done
if [ ${#chosen[@]} -eq 0 ]; then
	say "no group '$group'; groups: ${all_groups[*]}"
	exit 2
fi
for program in bin/mooncakefs "${chosen[@]/#/tests/bench/bench_}"; do
	if [ ! -x "$build/$program" ]; then
		say "$build/$program is not there: run 'make -C ${here%/tests/bench} bench'"
		exit 1
	fi
done
if [ "$(id -u)" -ne 0 ]; then
	say "mounting a tmpfs needs root"
	exit 1
fi

trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
tmp=$(mktemp -d "${TMPDIR:-/tmp}/mcfs-bench.XXXXXX") || exit 1

status=0
for g in "${chosen[@]}"; do
	case $g in
	single) run_single || status=1 ;;
	esac
done
exit "$status"
