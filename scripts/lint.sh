#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# lint.sh - what a compiler does not say (called by `make lint`)
#
# usage: scripts/lint.sh [CHECK...]
#
#   CHECK          headers includes spdx shell cppcheck tidy (default: all), or format
#   CC             compiler for the header check
#   INC_BASE       the folder through which meta/ and transport/ see fs/base
#   LINT_CPPFLAGS FUSE3_CFLAGS   as the Makefile has them
#
# A check whose tool is absent is skipped with a line that says so ('make
# deps-dev' installs them). Fails (status 1) when a check found something.

# shellcheck disable=SC2317 # the checks are called by a name put together

set -uo pipefail

cd -- "$(dirname -- "$0")/.." || exit 2

cc=${CC:-gcc}
inc_base=${INC_BASE:-build/inc-base}
cppflags=()
# The value comes out of a Makefile and is quoted for a shell.
eval "cppflags=(${LINT_CPPFLAGS:--std=gnu11 -D_GNU_SOURCE})"
read -ra fuse3_cflags <<<"${FUSE3_CFLAGS:-}"

status=0
complain() {
	printf 'lint: %s\n' "$*" >&2
	status=1
}

have() {
	command -v "$1" >/dev/null && return 0
	echo "lint: $1 is not installed, skipped (make deps-dev)" >&2
	return 1
}

existing() {
	local d
	for d; do [ -d "$d" ] && printf '%s\n' "$d"; done
}

mapfile -t code < <(existing include fs lib meta transport tests examples)
mapfile -t headers < <(find "${code[@]}" -name '*.h' | sort)
mapfile -t sources < <(find "${code[@]}" -name '*.c' | sort)

# The include folders of a file: the same as on its compile line.
flags_of() {
	case $1 in
	include/*) flags=(-Iinclude) ;;
	fs/base/*) flags=(-Iinclude "-I$inc_base") ;;
	fs/*) flags=(-Iinclude -Ifs "${fuse3_cflags[@]}") ;;
	meta/*) flags=(-Iinclude -Imeta "-I$inc_base") ;;
	transport/*) flags=(-Iinclude -Itransport "-I$inc_base") ;;
	tests/*) flags=(-I. -Iinclude -Ifs -Imeta -Itransport -Itests "${fuse3_cflags[@]}") ;;
	lib/*) flags=(-Iinclude -Ilib) ;;
	*) flags=(-Iinclude) ;;
	esac
}

# Every header compiles alone: it includes what it uses.
check_headers() {
	local h
	for h in "${headers[@]}"; do
		flags_of "$h"
		"$cc" "${cppflags[@]}" "${flags[@]}" -Wall -fsyntax-only -x c \
			-include "$h" /dev/null || complain "$h does not compile alone"
	done
}

# found WHAT GREP-ARGUMENT...: complains about every line grep finds.
found() {
	local what=$1 lines
	shift
	if lines=$(grep -nE "$@" 2>/dev/null); then
		printf '%s\n' "$lines" >&2
		complain "$what"
	fi
}

# What the compile line cannot forbid: paths that climb, and foreign worlds in
# the wrong folder.
check_includes() {
	local h
	found "an include must not climb out of its folder" -r --include='*.[ch]' \
		'^[[:space:]]*#[[:space:]]*include[[:space:]]*"[^"]*\.\./' "${code[@]}"
	mapfile -t h < <(existing include fs transport)
	[ ${#h[@]} -eq 0 ] || found "RocksDB belongs to the catalog alone" -r \
		--include='*.[ch]' '^#[[:space:]]*include[[:space:]]*<rocksdb/' "${h[@]}"
	mapfile -t h < <(find "${code[@]}" -name '*.[ch]' ! -path meta/redis.c)
	[ ${#h[@]} -eq 0 ] || found "hiredis belongs to meta/redis.c alone" \
		'^#[[:space:]]*include[[:space:]]*<hiredis' "${h[@]}"
	mapfile -t h < <(find "${code[@]}" -name '*.[ch]' ! -path 'transport/rdma/*' ! -path 'tests/*')
	[ ${#h[@]} -eq 0 ] || found "verbs and rdma_cm belong to transport/rdma alone" \
		'^#[[:space:]]*include[[:space:]]*<(infiniband|rdma)/' "${h[@]}"
	mapfile -t h < <(existing include meta transport fs/base fs/cli)
	[ ${#h[@]} -eq 0 ] || found "FUSE belongs to fs/ alone" -r --include='*.[ch]' \
		'^#[[:space:]]*include[[:space:]]*<fuse' "${h[@]}"
}

check_spdx() {
	local f
	while IFS= read -r f; do
		head -n 3 -- "$f" | grep -q 'SPDX-License-Identifier: Apache-2.0' ||
			complain "$f has no SPDX line at its top"
	done < <(find Makefile "${code[@]}" scripts mount-helpers .ci -type f \
		\( -name '*.[ch]' -o -name '*.sh' -o -name '*.py' -o -name '*.mk' -o -name Makefile \
		-o -path '.ci/*' -o -path 'mount-helpers/*' \) | sort)
}

check_shell() {
	local scripts
	have shellcheck || return 0
	mapfile -t scripts < <(grep -rlE '^#!/bin/(ba)?sh' scripts tests examples mount-helpers .ci \
		--exclude-dir=__pycache__ 2>/dev/null | sort)
	[ ${#scripts[@]} -eq 0 ] || shellcheck -e SC1091 "${scripts[@]}" || complain "shellcheck"
}

# memleak is off because it does not know the cleanup attribute.
check_cppcheck() {
	have cppcheck || return 0
	[ ${#sources[@]} -gt 0 ] || return 0
	local dirs
	mapfile -t dirs < <(existing fs lib meta transport)
	cppcheck --quiet --std=c11 --language=c --enable=warning,performance,portability \
		--inline-suppr --error-exitcode=1 -j "$(nproc)" -Iinclude -Ifs -Imeta -Itransport \
		-D_GNU_SOURCE -DMCFS_VERSION='"0"' --suppress=missingIncludeSystem \
		--suppress=unknownMacro --suppress=memleak "${dirs[@]}" || complain "cppcheck"
}

check_tidy() {
	local s
	have clang-tidy || return 0
	for s in "${sources[@]}"; do
		case $s in tests/* | examples/*) continue ;; esac
		flags_of "$s"
		clang-tidy --quiet "$s" -- "${cppflags[@]}" "${flags[@]}" 2>/dev/null ||
			complain "clang-tidy: $s"
	done
}

check_format() {
	have clang-format || return 0
	[ $((${#sources[@]} + ${#headers[@]})) -gt 0 ] || return 0
	clang-format --dry-run -Werror "${sources[@]}" "${headers[@]}" || complain "clang-format"
}

checks=("$@")
[ ${#checks[@]} -gt 0 ] || checks=(headers includes spdx shell cppcheck tidy)
for check in "${checks[@]}"; do
	if ! declare -F "check_$check" >/dev/null; then
		echo "lint: unknown check '$check'" >&2
		exit 2
	fi
	"check_$check"
done
[ $status -ne 0 ] || echo "lint: clean"
exit $status
