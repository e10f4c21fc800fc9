#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh - run what `make check` has built, and count
#
# usage: tests/run.sh [PYTEST-ARGUMENT...]
#
#   MCFS_CHECK_STAGES   what to run, in this order (default: all but unit, which asan runs too, and
#                       integration-directio)
#                       unit stress fuzz integration integration-directio asan tsan rdma
#                       integration is with passthrough, where this machine has it; asan runs each
#                       integration test once, with passthrough=off where that makes a difference;
#                       rdma is a minute of tests/rdma/run.sh
#   MCFS_BUILD          build tree (default build)
#   MCFS_BUILD_ASAN     the same, built with SANITIZE=address,undefined
#   MCFS_BUILD_TSAN     the same, built with SANITIZE=thread
#   MCFS_TEST_JOBS      unit programs or integration tests that run at once (default 3)
#   MCFS_BUILD_LATER    a command that builds the trees of asan and tsan; runs from the start, is waited for there
#   PYTHON              a python3 with pytest (default: the first of PATH's and /usr/bin's)
#   MCFS_STAGE_TIMEOUT  seconds one pytest run may take (default 900)
#
# Prints a line per stage, the skipped tests with their reasons, and as the very
# last line "N passed, N failed, N skipped". Fails (status 1) when a test
# failed, a program is missing or nothing ran; 2 on a stage it does not know.

set -uo pipefail

top=$(cd -- "$(dirname -- "$0")/.." && pwd)
cd -- "$top" || exit 2

build=$(realpath -m -- "${MCFS_BUILD:-build}")
build_asan=$(realpath -m -- "${MCFS_BUILD_ASAN:-$build-asan}")
build_tsan=$(realpath -m -- "${MCFS_BUILD_TSAN:-$build-tsan}")
stages=${MCFS_CHECK_STAGES:-stress fuzz integration asan tsan rdma}
stage_timeout=${MCFS_STAGE_TIMEOUT:-900}
pytest_args=("$@")

for stage in $stages; do
	case $stage in
	unit | stress | fuzz | integration | integration-directio | asan | tsan | rdma) ;;
	*)
		echo "run.sh: unknown stage '$stage' in MCFS_CHECK_STAGES" >&2
		exit 2
		;;
	esac
done

# A python3 of the user's own in front of the distribution's has no pytest, most times.
python=${PYTHON:-}
if [ -z "$python" ]; then
	python=python3
	"$python" -c 'import pytest' 2>/dev/null || python=/usr/bin/python3
fi

# Tests wait more than they work.
test_jobs=${MCFS_TEST_JOBS:-3}
pytest_jobs=()
if "$python" -c 'import xdist' 2>/dev/null; then
	pytest_jobs=(-n "$test_jobs" --dist load)
fi

# Jobs of an outer make are none of the tests' business; of variables, the later build must know.
case " ${MAKEFLAGS:-}" in
*" -- "*) make_variables="-- ${MAKEFLAGS#*-- }" ;;
*) make_variables= ;;
esac
unset MAKEFLAGS MFLAGS MAKELEVEL
logs=$build/check
rm -rf "$logs"
mkdir -p "$logs" || exit 2

# Sanitizers reserve fixed address ranges, which wide address randomisation
# sometimes hits.
fixed_addresses=()
if setarch "$(uname -m)" -R true 2>/dev/null; then
	fixed_addresses=(setarch "$(uname -m)" -R)
fi

# ---- counting ---------------------------------------------------------------

passed=0 failed=0 skipped=0
stage_passed=0 stage_failed=0 stage_skipped=0
skips=()
failures=()

stage_begin() {
	stage=$1
	stage_passed=0 stage_failed=0 stage_skipped=0
	stage_start=$SECONDS
}

stage_end() {
	printf '%-22s %s passed, %s failed, %s skipped (%s s)\n' "$stage:" "$stage_passed" \
		"$stage_failed" "$stage_skipped" "$((SECONDS - stage_start))"
	passed=$((passed + stage_passed))
	failed=$((failed + stage_failed))
	skipped=$((skipped + stage_skipped))
}

pass() { stage_passed=$((stage_passed + ${1:-1})); }

# fail NAME COUNT [LOG]
fail() {
	stage_failed=$((stage_failed + $2))
	failures+=("$stage: $1")
	if [ -n "${3:-}" ]; then
		echo "---- $stage: $1"
		tail -n 200 -- "$3"
		echo "----"
	fi
}

# skip NAME REASON
skip() {
	stage_skipped=$((stage_skipped + 1))
	skips+=("$stage: $1: $2")
}

# why STATUS: what an exit status of timeout(1) or the shell means.
why() {
	case $1 in
	124) echo "timed out" ;;
	*) if [ "$1" -gt 128 ]; then echo "killed by signal $(($1 - 128))"; else echo "exit status $1"; fi ;;
	esac
}

# ---- the later build --------------------------------------------------------

# Niced, so that tests get the processor when they want it.
later=
if [ -n "${MCFS_BUILD_LATER:-}" ]; then
	# shellcheck disable=SC2086 # words of a command
	MAKEFLAGS=$make_variables nice -n 19 $MCFS_BUILD_LATER >"$logs/build.log" 2>&1 </dev/null &
	later=$!
	trap '[ -z "$later" ] || kill "$later"' EXIT
fi
unset MCFS_BUILD_LATER

# wait_for_trees: fails, once for each stage, when they could not be built.
later_status=0
wait_for_trees() {
	if [ -n "$later" ]; then
		wait "$later"
		later_status=$?
		later=
	fi
	[ "$later_status" -eq 0 ] || fail "not built: $(why "$later_status")" 1 "$logs/build.log"
	return "$later_status"
}

# ---- stages -----------------------------------------------------------------

# Criterion programs wait for disks and clocks much of their time.
start_unit_program() {
	local program=$1 log=$2 ended
	while [ ${#running[@]} -ge "$test_jobs" ]; do
		wait -n -p ended "${running[@]}"
		unset "running[$ended]"
	done
	{
		"${wrap[@]}" timeout -k 5 300 "$program" --verbose=1 >"$log" 2>&1 </dev/null
		echo $? >"$log.status"
	} &
	running[$!]=$!
}

# Criterion's runner loses a record of its own now and then: memory that its library asked for, and nobody's of ours.
is_loss_of_criterion() {
	grep -aq 'ERROR: LeakSanitizer' "$1" && ! grep -aE '^ +#1 ' "$1" | grep -qv 'libcriterion\.so'
}

# Its last line tells the counts, "[SKIP]" lines the rest.
count_unit_program() {
	local name=$1 log=$2 status=1 summary good bad line
	if [ ! -e "$log.status" ]; then
		fail "$name: not built" 1
		return
	fi
	read -r status <"$log.status"
	summary=$(grep -a 'Tested:.*Passing:.*Failing:.*Crashing:' "$log" | tail -n 1)
	if [ -z "$summary" ]; then
		fail "$name: no summary, $(why "$status")" 1 "$log"
		return
	fi
	good=$(sed -E 's/.*Passing: *([0-9]+).*/\1/' <<<"$summary")
	# Failing counts the crashed ones too.
	bad=$(sed -E 's/.*Failing: *([0-9]+).*/\1/' <<<"$summary")
	while IFS= read -r line; do
		skip "${line%%: *}" "${line#*: }"
	done < <(sed -n 's/^\[SKIP\] *//p' "$log")
	pass "$good"
	if [ "$bad" -gt 0 ]; then
		fail "$name" "$bad" "$log"
	elif [ "$status" -ne 0 ] && ! is_loss_of_criterion "$log"; then
		fail "$name: $(why "$status")" 1 "$log"
	fi
}

run_unit() {
	local source name running=()
	for source in tests/unit/test_*.c; do
		name=$(basename -- "$source" .c)
		[ ! -x "$1/tests/unit/$name" ] || start_unit_program "$1/tests/unit/$name" "$logs/$stage-$name.log"
	done
	[ ${#running[@]} -eq 0 ] || wait "${running[@]}"
	for source in tests/unit/test_*.c; do
		name=$(basename -- "$source" .c)
		count_unit_program "$name" "$logs/$stage-$name.log"
	done
}

# run_plain NAME COMMAND...: status 0 passes, 77 skips with the last line as the reason.
run_plain() {
	local name=$1 log=$logs/$stage-$1.log status
	shift
	"${wrap[@]}" timeout -k 5 300 "$@" >"$log" 2>&1 </dev/null
	status=$?
	case $status in
	0) pass ;;
	77) skip "$name" "$(tail -n 1 -- "$log")" ;;
	*) fail "$name: $(why $status)" 1 "$log" ;;
	esac
}

# Those called *_mount want the folder of a mount: integration tests run them.
run_stress() {
	local source program
	for source in tests/stress/*.c; do
		[[ -e $source && $source != *_mount.c ]] || continue
		program=$1/${source%.c}
		if [ -x "$program" ]; then
			run_plain "$(basename -- "$program")" "$program"
		else
			fail "$(basename -- "$program"): not built" 1
		fi
	done
}

# Each parser once over its corpus, without a fuzzing engine.
run_fuzz() {
	local source name program corpus
	for source in tests/fuzz/fuzz_*.c; do
		[ -e "$source" ] || continue
		name=$(basename -- "$source" .c)
		program=$1/tests/fuzz/$name
		corpus=tests/fuzz/corpus/${name#fuzz_}
		[ -d "$corpus" ] || corpus=tests/fuzz/corpus/$name
		if [ ! -x "$program" ]; then
			fail "$name: not built" 1
		elif [ ! -d "$corpus" ]; then
			skip "$name" "no corpus in tests/fuzz/corpus"
		else
			# shellcheck disable=SC2016 # for the inner shell
			run_plain "$name" sh -c 'find "$2" -type f -print0 | sort -z | xargs -0 -r -n 1000 "$1"' \
				sh "$program" "$corpus"
		fi
	done
}

# Prints "PASSED FAILED SKIPPED", then a line per skipped and per failed test.
junit_report() {
	"$python" - "$1" <<'PY'
import sys
import xml.etree.ElementTree as et

counts = {"passed": 0, "failed": 0, "skipped": 0}
lines = []
for case in et.parse(sys.argv[1]).iter("testcase"):
    name = "::".join(filter(None, [case.get("classname"), case.get("name")]))
    outcome, reason = "passed", ""
    for child in case:
        if child.tag in ("failure", "error"):
            outcome = "failed"
        elif child.tag == "skipped" and outcome == "passed":
            outcome, reason = "skipped", child.get("message") or "no reason given"
    counts[outcome] += 1
    if outcome != "passed":
        lines.append("%s\t%s\t%s" % (outcome, name, " ".join(reason.split())))
print(counts["passed"], counts["failed"], counts["skipped"])
for line in lines:
    print(line)
PY
}

# run_pytest BUILD REPORT [NAME=VALUE...]
run_pytest() {
	local tree=$1 xml=$logs/$2.xml log=$logs/$2.log status report counts
	local outcome name reason n_failed
	shift 2
	if ! compgen -G 'tests/integration/test_*.py' >/dev/null; then
		return
	fi
	"${wrap[@]}" env MCFS_BUILD="$tree" PYTHONPYCACHEPREFIX="$logs/pycache" "$@" \
		timeout -s INT -k 30 "$stage_timeout" \
		"$python" -m pytest tests/integration -q -rs --color=no -p no:cacheprovider \
		"${pytest_jobs[@]}" --junitxml="$xml" "${pytest_args[@]}" </dev/null 2>&1 | tee "$log"
	status=${PIPESTATUS[0]}
	if ! report=$(junit_report "$xml" 2>/dev/null); then
		fail "pytest left no report, $(why "$status")" 1
		return
	fi
	read -r counts n_failed _ <<<"$report"
	pass "$counts"
	while IFS=$'\t' read -r outcome name reason; do
		case $outcome in
		failed) fail "$name" 1 ;;
		skipped) skip "$name" "$reason" ;;
		esac
	done < <(tail -n +2 <<<"$report")
	if [ "$status" -ne 0 ] && [ "$n_failed" -eq 0 ]; then
		fail "pytest: $(why "$status")" 1
	fi
}

# Reports of daemons, whose standard error and exit status nobody sees.
run_asan_reports() {
	local report
	for report in "$logs"/asan-report.*; do
		[ -e "$report" ] && fail "$(basename -- "$report")" 1 "$report"
	done
}

# Of the VM's tests those that say whether bytes come by RDMA, and what happens when the device goes. Alone: who emulates
# a machine has no time to spare.
vm_tests="bytes_come or device_goes"

run_vm() {
	local status counts line log=$logs/rdma.log
	MCFS_BUILD="$build" MCFS_RDMA_ONLY="${MCFS_RDMA_ONLY:-nodes}" PYTEST_ADDOPTS="-k '$vm_tests'" \
		tests/rdma/run.sh >"$log" 2>&1 </dev/null
	status=$?
	if [ "$status" -eq 77 ]; then
		skip "the VM" "$(sed -n 's/^SKIP: *//p' "$log" | tail -n 1)"
		return
	fi
	while IFS= read -r line; do
		skip "the VM" "${line#SKIPPED }"
	done < <(grep -a '^SKIPPED ' "$log")
	counts=$(grep -aE '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log" | tail -n 1)
	if [ -z "$counts" ]; then
		fail "no summary, $(why "$status")" 1 "$log"
		return
	fi
	pass "$(sed -E 's/^([0-9]+) passed.*/\1/' <<<"$counts")"
	if [ "$status" -ne 0 ]; then
		fail "in the VM: $counts" "$(sed -E 's/.*, ([0-9]+) failed.*/\1/' <<<"$counts")" "$log"
	fi
}

run_stage() {
	local wrap=()
	stage_begin "$1"
	case $1 in
	unit) run_unit "$build" ;;
	stress) run_stress "$build" ;;
	fuzz) run_fuzz "$build" ;;
	integration) run_pytest "$build" "$1" ;;
	integration-directio) run_pytest "$build" "$1" MCFS_PASSTHROUGH=off ;;
	asan)
		wait_for_trees || { stage_end; return; }
		local asan=abort_on_error=1:detect_leaks=1
		local ubsan=halt_on_error=1:print_stacktrace=1
		local lsan=print_suppressions=0
		[ ! -e tests/lsan.supp ] || lsan+=:suppressions=$top/tests/lsan.supp
		wrap=("${fixed_addresses[@]}" env ASAN_OPTIONS="$asan" UBSAN_OPTIONS="$ubsan"
			LSAN_OPTIONS="$lsan")
		run_unit "$build_asan"
		run_fuzz "$build_asan"
		# A client's mapping faults where the daemon is killed; only a daemon's fault is a finding.
		local variables=(ASAN_OPTIONS="$asan:handle_sigbus=0:log_path=$logs/asan-report"
			UBSAN_OPTIONS="$ubsan:log_path=$logs/asan-report"
			MCFS_TIME_SCALE="${MCFS_TIME_SCALE:-3}")
		run_pytest "$build_asan" "$1-directio" MCFS_PASSTHROUGH=off "${variables[@]}"
		run_pytest "$build_asan" "$1-one_mode" PYTEST_ADDOPTS="-m one_mode" "${variables[@]}"
		run_asan_reports
		;;
	tsan)
		wait_for_trees || { stage_end; return; }
		local tsan=halt_on_error=0:second_deadlock_stack=1
		[ ! -e tests/tsan.supp ] || tsan+=:suppressions=$top/tests/tsan.supp
		wrap=("${fixed_addresses[@]}" env TSAN_OPTIONS="$tsan")
		run_stress "$build_tsan"
		;;
	rdma) run_vm ;;
	esac
	stage_end
}

for s in $stages; do
	run_stage "$s"
done

if [ ${#skips[@]} -gt 0 ]; then
	echo
	echo "skipped:"
	printf '  %s\n' "${skips[@]}"
fi
if [ ${#failures[@]} -gt 0 ]; then
	echo
	echo "failed:"
	printf '  %s\n' "${failures[@]}"
fi
echo
[ $((passed + failed + skipped)) -gt 0 ] || echo "run.sh: nothing ran" >&2
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
