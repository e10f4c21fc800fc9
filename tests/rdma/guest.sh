#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# guest.sh - in the VM of run.sh: all tests that want an RDMA device, and their count
#
# usage: tests/rdma/guest.sh BUILD
#
# Environment: MCFS_LONG, MCFS_RDMA_ONLY, see run.sh.

set -uo pipefail

build=$1
only=${MCFS_RDMA_ONLY:-*}
n_passed=0 n_failed=0 n_skipped=0

# end_of NAME PASSED FAILED SKIPPED SECONDS LOG
end_of() {
	n_passed=$((n_passed + $2)) n_failed=$((n_failed + $3)) n_skipped=$((n_skipped + $4))
	printf '%-24s %s passed, %s failed, %s skipped (%s s)\n' "$1:" "$2" "$3" "$4" "$5"
	grep -a '^figure: \|^\[SKIP\]\|^SKIPPED' "$6"
	[ "$3" -eq 0 ] || tail -n 200 "$6"
}

# Criterion programs, one after the other: a machine that emulates another has no time to spare.
run_program() {
	local name start=$SECONDS log summary
	name=$(basename -- "$1")
	log=/run/$name.log
	timeout 900 "$1" -j1 --verbose=1 >"$log" 2>&1
	summary=$(grep -a 'Tested:.*Failing:' "$log" | tail -n 1)
	end_of "$name" "$(sed -E 's/.*Passing: *([0-9]+).*/\1/' <<<"${summary:-Passing: 0}")" \
		"$(sed -E 's/.*Failing: *([0-9]+).*/\1/' <<<"${summary:-Failing: 1}")" \
		"$(grep -ac '^\[SKIP\]' "$log")" "$((SECONDS - start))" "$log"
}

# count LOG WORD: of pytest's last line.
count() {
	local n
	n=$(tail -n 1 -- "$1" | sed -nE "s/(.*[^0-9])?([0-9]+) $2.*/\2/p")
	echo "${n:-0}"
}

run_nodes() {
	local start=$SECONDS log=/run/nodes.log status bad
	MCFS_BUILD=$build MCFS_TMP=/run/tmp PYTHONPYCACHEPREFIX=/run/pycache MCFS_TIME_SCALE=${MCFS_TIME_SCALE:-4} \
		/usr/bin/python3 -m pytest -q -rs --color=no -p no:cacheprovider \
		tests/rdma >"$log" 2>&1
	status=$?
	bad=$(($(count "$log" failed) + $(count "$log" error)))
	[ "$status" -eq 0 ] || [ "$bad" -gt 0 ] || bad=1
	end_of nodes "$(count "$log" passed)" "$bad" "$(count "$log" skipped)" "$((SECONDS - start))" "$log"
}

for program in "$build"/tests/rdma/test_*; do
	# shellcheck disable=SC2053 # a pattern
	[[ ! -x $program || ${program##*/} != $only ]] || run_program "$program"
done
# shellcheck disable=SC2053
[[ nodes != $only ]] || run_nodes
echo "$n_passed passed, $n_failed failed, $n_skipped skipped"
[ "$n_failed" -eq 0 ] && [ "$n_passed" -gt 0 ]
