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
all_groups=(single fastpath ssd meta cluster)
long_groups=(meta10m) # only when asked for
group=${1:-${BENCH:-}}

budget=3G
tmpfs_options=huge=within_size,noswap,nr_inodes=0,size=$budget,mode=0700
start_limit_s=10
limit_s=120 # no mode takes half of it: what does is stuck

tmp=
daemon_pid=
cluster_pid=

say() {
	printf 'bench: %s\n' "$*" >&2
}

# ---- mounts -----------------------------------------------------------------

is_mounted() {
	awk -v dir="$1" '$2 == dir { found = 1 } END { exit !found }' /proc/self/mounts
}

# start_daemon OPTIONS: mounts $tmp/mnt, sets daemon_pid
start_daemon() {
	local options=$1,log=$tmp/log

	mkdir -p "$tmp/mnt"
	# In the foreground, because its process id is needed.
	"$build/bin/mooncakefs" -f -o "$options" "$tmp/mnt" >"$tmp/output" 2>&1 &
	daemon_pid=$!
	for ((i = 0; i < 20 * start_limit_s; i++)); do
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

# Ends the daemon by a signal, TERM or KILL; what is in DRAM stays for the next one.
signal_daemon() {
	{ # nobody needs to hear "Killed"
		kill "-$1" "$daemon_pid"
		for ((i = 0; i < 1200; i++)); do
			kill -0 "$daemon_pid" || break
			sleep 0.05
		done
		wait "$daemon_pid"
	} 2>/dev/null
	daemon_pid=
	# A killed one leaves a dead mount.
	for ((i = 0; i < 100; i++)); do
		is_mounted "$tmp/mnt" || return 0
		umount -l "$tmp/mnt" 2>/dev/null
		sleep 0.05
	done
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

# What a killed cluster/ has left: its networks, with whoever is in them.
# shellcheck disable=SC2317 # the trap calls it
delete_networks() {
	local ns

	command -v ip >/dev/null || return 0
	for ns in $(ip netns list | awk -v all="^mcb$$[a-z]\$" '$1 ~ all { print $1 }'); do
		ip netns pids "$ns" | xargs -r kill -KILL
		ip netns delete "$ns"
	done
}

# shellcheck disable=SC2317 # the trap calls it
cleanup() {
	[ -n "$tmp" ] || return 0
	if [ -n "$cluster_pid" ]; then # it ends its nodes itself
		kill -TERM "$cluster_pid" 2>/dev/null
		wait "$cluster_pid"
	fi
	delete_networks
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

# run_program GROUP MODE RAW [OPTION...]: against the running daemon; its rows land in $tmp/MODE.json
run_program() {
	local rc

	timeout --foreground -k 5 "$limit_s" "$build/tests/bench/bench_$1" --ours "$tmp/mnt" \
		--raw "$3" --pid "$daemon_pid" --mode "$2" --json "$tmp/$2.json" "${@:4}"
	rc=$?
	if [ "$rc" -ne 0 ]; then
		say "$1, $2: exit status $rc; the daemon's last words:"
		tail -n 20 "$tmp/output" "$tmp/log" >&2 2>/dev/null
	fi
	return $((rc != 0))
}

# run_mode GROUP MODE [OPTION...]: objects in DRAM against a raw tmpfs
run_mode() {
	local rc options=dram=$budget,state=$tmp/state-$2

	[ "$2" = passthrough ] || options+=,passthrough=off
	start_daemon "$options" || return 1
	run_program "$1" "$2" "$tmp/raw" "${@:3}"
	rc=$?
	stop_daemon
	return "$rc"
}

# run_group GROUP MODE...
run_group() {
	local group=$1 rc=0 head=() files=()

	mkdir -p "$tmp/raw" "$build/bench" || return 1
	mountpoint -q "$tmp/raw" || mount -t tmpfs -o "$tmpfs_options" bench-raw "$tmp/raw" || return 1
	for mode in "${@:2}"; do
		echo '[]' >"$tmp/$mode.json"
		run_mode "$group" "$mode" "${head[@]}" || rc=1
		head=(--no-head)
		files+=("$tmp/$mode.json")
	done
	join_rows "${files[@]}" >"$build/bench/$group.json" || rc=1
	return "$rc"
}

# Objects on a disk against raw files beside them. $tmp is on that disk: TMPDIR chooses it.
run_ssd() {
	local rc options=dram=512M,ssd=$tmp/ssd:4G,state=$tmp/state-ssd,writeback=always,space_wait=1

	if [ "$(stat -f -c %T "$tmp")" = tmpfs ]; then
		say "ssd: $tmp is no disk: set TMPDIR to a folder of one"
		return 1
	fi
	mkdir -p "$tmp/ssd" "$tmp/raw-disk" "$build/bench" || return 1
	start_daemon "$options" || return 1
	run_program ssd passthrough "$tmp/raw-disk" --disk "$tmp/ssd"
	rc=$?
	stop_daemon
	mv "$tmp/passthrough.json" "$build/bench/ssd.json" || rc=1
	rm -rf "$tmp/ssd" "$tmp/raw-disk"
	return "$rc"
}

# run_phase NAME MODE [OPTION...]: one phase of a directory with many objects; its rows are added
run_phase() {
	local json=$tmp/rows-${#meta_rows[@]}.json rc

	timeout --foreground -k 5 "$meta_limit_s" "$build/tests/bench/bench_meta" "$1" --dir "$tmp/mnt/many" \
		--count "$meta_count" --bytes "$meta_bytes" --mode "$2" --pid "$daemon_pid" --json "$json" "${@:3}"
	rc=$?
	if [ "$rc" -ne 0 ]; then
		say "meta, $1 after $2: exit status $rc; the daemon's last words:"
		tail -n 20 "$tmp/output" "$tmp/log" >&2 2>/dev/null
		return 1
	fi
	meta_rows+=("$json")
}

# start_and_read MODE OPTIONS [OPTION...]: how long until the first object can be read
start_and_read() {
	local since=$EPOCHREALTIME reader

	run_phase first-read "$1" --since "${since/,/.}" "${@:3}" &
	reader=$!
	# The rows of a background job are not known here.
	meta_rows+=("$tmp/rows-${#meta_rows[@]}.json")
	if ! start_daemon "$2"; then
		kill "$reader" 2>/dev/null
		wait "$reader"
		return 1
	fi
	wait "$reader"
}

# What a start finds, and what it keeps in memory.
look_around() {
	run_phase stat "$1" && run_phase list "$1" && run_phase figures "$1" --catalog "$tmp/state-meta/catalog"
}

# MCFS_BENCH_OBJECTS: how many, a million if not set
run_meta() {
	local options=dram=7G,state=$tmp/state-meta rc=0

	meta_rows=() meta_count=${MCFS_BENCH_OBJECTS:-1000000} meta_bytes=16 meta_limit_s=600
	mkdir -p "$tmp/state-meta" "$tmp/raw" "$build/bench" || return 1
	mountpoint -q "$tmp/raw" || mount -t tmpfs -o "$tmpfs_options" bench-raw "$tmp/raw" || return 1
	{
		start_daemon "$options" &&
			run_phase create created --plain $((meta_count / 10)) --raw "$tmp/raw/many" --head &&
			run_phase list created &&
			run_phase figures created --catalog "$tmp/state-meta/catalog" &&
			signal_daemon TERM && start_and_read TERM "$options" && look_around TERM &&
			signal_daemon KILL && start_and_read KILL "$options" && look_around KILL
	} || rc=1
	stop_daemon
	join_rows "${meta_rows[@]}" >"$build/bench/meta.json" || rc=1
	return "$rc"
}

# Ten million names of empty objects, made without a mount: the catalog and the tables in memory.
run_meta10m() {
	local options=dram=1G,max_objects=11000000,state=$tmp/state-meta rc=0

	meta_rows=() meta_count=${MCFS_BENCH_OBJECTS:-10000000} meta_bytes=0 meta_limit_s=1800 start_limit_s=120
	mkdir -p "$build/bench" || return 1
	say "making $meta_count names"
	time "$build/tests/bench/make_state" "$tmp/state-meta" "$meta_count" ssd 0 || return 1
	{
		start_and_read made "$options" --head && look_around made &&
			signal_daemon TERM && start_and_read TERM "$options"
	} || rc=1
	stop_daemon
	join_rows "${meta_rows[@]}" >"$build/bench/meta10m.json" || rc=1
	return "$rc"
}

# Several nodes, each with a network of its own, which cluster/ takes away again. What it could not is done here.
# MCFS_BENCH_JOBS: beginnings of the names of jobs, with commas; all if not set.
run_cluster() {
	mkdir -p "$build/bench" "$tmp/cluster" || return 1
	if ! command -v python3 >/dev/null; then
		say "cluster: skipped: python3 is not installed"
		return 0
	fi
	PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$here python3 -m cluster --build "$build" --top "$tmp/cluster" \
		--net "mcb$$" \
		--json "$build/bench/cluster.json" ${MCFS_BENCH_JOBS:+--only "$MCFS_BENCH_JOBS"} &
	cluster_pid=$!
	wait "$cluster_pid"
	local rc=$?
	cluster_pid=
	return "$rc"
}

# ---- main -------------------------------------------------------------------

if [ $# -gt 1 ]; then
	say "usage: $0 [GROUP]; groups: ${all_groups[*]} ${long_groups[*]}"
	exit 2
fi
chosen=()
for g in "${all_groups[@]}" "${long_groups[@]}"; do
	if [ "$group" = "$g" ]; then
		chosen+=("$g")
	fi
done
[ -n "$group" ] || chosen=("${all_groups[@]}")
if [ ${#chosen[@]} -eq 0 ]; then
	say "no group '$group'; groups: ${all_groups[*]} ${long_groups[*]}"
	exit 2
fi
programs=("${chosen[@]/#/tests/bench/bench_}")
for program in bin/mooncakefs "${programs[@]/%meta10m/meta}"; do
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
	single) run_group single passthrough direct_io || status=1 ;;
	fastpath) run_group fastpath passthrough || status=1 ;; # its buffers need passthrough
	ssd) run_ssd || status=1 ;;
	meta) run_meta || status=1 ;;
	cluster) run_cluster || status=1 ;;
	meta10m) run_meta10m || status=1 ;;
	esac
done
exit "$status"
