#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# fuzz.sh - let libFuzzer loose on the parsers (called by `make fuzz`)
#
# usage: scripts/fuzz.sh
#
#   MCFS_BUILD_FUZZ  the tree `make fuzz-build` has built (default build-fuzz)
#   FUZZ             one target, as in tests/fuzz/fuzz_FUZZ.c (default: each)
#   FUZZ_TIME        seconds per target (default 60)
#
# New inputs go to a corpus in the build tree, never to tests/fuzz/corpus: what
# is worth keeping is copied there by hand. Fails (status 1) when a target
# crashed, leaving the input in the build tree and naming it; 2 on a target
# that does not exist.

set -uo pipefail

cd -- "$(dirname -- "$0")/.." || exit 2
tree=${MCFS_BUILD_FUZZ:-build-fuzz}
seconds=${FUZZ_TIME:-60}

shopt -s nullglob
if [ -n "${FUZZ:-}" ]; then
	programs=("$tree/tests/fuzz-engine/fuzz_${FUZZ#fuzz_}")
else
	programs=()
	for source in tests/fuzz/fuzz_*.c; do
		programs+=("$tree/tests/fuzz-engine/$(basename -- "$source" .c)")
	done
fi
if [ ${#programs[@]} -eq 0 ]; then
	echo "fuzz: no targets in tests/fuzz" >&2
	exit 2
fi

status=0
for program in "${programs[@]}"; do
	name=$(basename -- "$program")
	if [ ! -x "$program" ]; then
		echo "fuzz: $program does not exist" >&2
		exit 2
	fi
	found=$tree/fuzz/$name
	mkdir -p "$found/corpus"
	seeds=()
	for dir in "tests/fuzz/corpus/${name#fuzz_}" "tests/fuzz/corpus/$name"; do
		[ -d "$dir" ] && seeds+=("$dir")
	done
	dictionary=tests/fuzz/${name#fuzz_}.dict
	options=(-max_total_time="$seconds" -artifact_prefix="$found/" -timeout=10)
	[ -e "$dictionary" ] && options+=(-dict="$dictionary")
	echo "fuzz: $name for $seconds s"
	if ! UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
		"$program" "${options[@]}" "$found/corpus" "${seeds[@]}" >"$found/log" 2>&1; then
		tail -n 40 -- "$found/log" >&2
		echo "fuzz: $name failed, the input is in $found" >&2
		status=1
	fi
done
exit $status
