#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# deps.sh - make the machine able to build and test mooncakefs
#
# usage: scripts/deps.sh [--dev] [--rdma-vm] [--libfuse-only] [PREFIX]
#
#   --dev           also the tools of `make lint`, `make format` and `make fuzz`
#   --rdma-vm       only what `make check-rdma` needs for its VM
#   --libfuse-only  ask apt for nothing, only see to libfuse
#   PREFIX          where a private libfuse goes (default build/deps/fuse3)
#
# MCFS_LIBFUSE=system in the environment: no private libfuse, whatever the
# distribution has will do.
#
# Debian 12 and 13, Ubuntu 24.04. Asks apt only for what is absent, says
# nothing when everything is there. Where the distribution's libfuse is older
# than 3.17 (no passthrough), builds the newer source package of the same
# distribution, from the mirror apt is already set up with, into PREFIX.
#
# Fails (status 1) naming the packages and what to do: not root, no apt, no
# network. A libfuse that cannot be built is no failure as long as the
# distribution's own can be used: a line says that the build is then degraded.

set -euo pipefail

readonly FUSE_WANTED=3.17
readonly FUSE_LEAST=3.14

readonly packages=(
	build-essential pkgconf dpkg-dev meson ninja-build
	librocksdb-dev libjansson-dev libisal-dev libxxhash-dev liburing-dev
	libmicrohttpd-dev libhiredis-dev libssl-dev libibverbs-dev librdmacm-dev
	libcriterion-dev python3 python3-pytest python3-pytest-xdist python3-yaml
	python3-prometheus-client python3-numpy
	fuse3 util-linux fio rsync attr acl redis-server iproute2 iperf3
)
readonly rdma_vm_packages=(qemu-system-x86 busybox-static kmod xz-utils util-linux iproute2 ibverbs-providers perftest
	python3-pytest redis-server)
readonly dev_packages=(clang clang-tidy clang-format cppcheck shellcheck)

say() { printf 'deps: %s\n' "$*"; }
warn() { printf 'deps: %s\n' "$*" >&2; }
die() {
	warn "$@"
	exit 1
}

usage() {
	sed -n '4,11s/^# \{0,1\}//p' "$0"
	exit "$1"
}

dev=no
libfuse_only=no
rdma_vm=no
prefix=
while [ $# -gt 0 ]; do
	case $1 in
	--dev) dev=yes ;;
	--rdma-vm) rdma_vm=yes ;;
	--libfuse-only) libfuse_only=yes ;;
	-h | --help) usage 0 ;;
	-*) usage 2 >&2 ;;
	*) prefix=$1 ;;
	esac
	shift
done

top=$(cd -- "$(dirname -- "$0")/.." && pwd)
[ -n "$prefix" ] || prefix=$top/build/deps/fuse3
case $prefix in
/*) ;;
*) prefix=$PWD/$prefix ;;
esac

os_id=unknown
os_like=
os_codename=
if [ -r /etc/os-release ]; then
	# In a subshell each, so that its many variables do not leak in here.
	# shellcheck source=/dev/null
	os_id=$(. /etc/os-release && printf '%s' "${ID:-unknown}")
	# shellcheck source=/dev/null
	os_like=$(. /etc/os-release && printf '%s' "${ID_LIKE:-}")
	# shellcheck source=/dev/null
	os_codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
fi

# ---- packages --------------------------------------------------------------

# Prints the packages among the arguments that are not fully installed.
absent() {
	local known p
	known=$(dpkg-query -W -f='${Package} ${db:Status-Status}\n' "$@" 2>/dev/null || true)
	for p; do
		case $'\n'$known$'\n' in
		*$'\n'"$p installed"$'\n'*) ;;
		*) printf '%s\n' "$p" ;;
		esac
	done
}

# libclang_rt carries the fuzzer and sanitizer runtimes; on Debian 12 it is a
# package per clang version, pulled in by nothing but a recommendation.
clang_runtime_absent() {
	local lib
	command -v clang >/dev/null || return 1
	lib=$(clang -print-runtime-dir 2>/dev/null) || return 1
	! compgen -G "$lib/libclang_rt.fuzzer*.a" >/dev/null
}

as_root() {
	[ "$(id -u)" -eq 0 ] && return 0
	warn "these packages are missing: $*"
	die "installing needs root: run 'sudo make deps', or 'sudo apt-get install $*'"
}

apt_install() {
	local log
	as_root "$@"
	log=$(mktemp)
	# shellcheck disable=SC2064 # the name is wanted as it is now
	trap "rm -f '$log'" RETURN
	say "installing $*"
	export DEBIAN_FRONTEND=noninteractive
	if [ "$apt_updated" = no ]; then
		if ! apt-get -q -o DPkg::Lock::Timeout=300 update >"$log" 2>&1; then
			tail -n 5 "$log" >&2
			warn "apt-get update failed (network, proxy or mirror?), trying with the lists at hand"
		fi
		apt_updated=yes
	fi
	if ! apt-get -qy -o DPkg::Lock::Timeout=300 install --no-install-recommends "$@" \
		>"$log" 2>&1 </dev/null; then
		tail -n 15 "$log" >&2
		die "apt-get could not install: $*" \
			"- see the lines above; check the network and /etc/apt, then run 'make deps' again"
	fi
}

apt_updated=no

install_packages() {
	local missing version list=("${packages[@]}")
	[ "$dev" = no ] || list+=("${dev_packages[@]}")
	[ "$rdma_vm" = no ] || list=("${rdma_vm_packages[@]}")
	if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
		die "no apt on this system ($os_id): install the equivalents of: ${list[*]}"
	fi
	mapfile -t missing < <(absent "${list[@]}")
	[ ${#missing[@]} -eq 0 ] || apt_install "${missing[@]}"
	if [ "$dev" = yes ] && clang_runtime_absent; then
		version=$(clang -dumpversion)
		apt_install "libclang-rt-${version%%.*}-dev"
	fi
}

# ---- libfuse ---------------------------------------------------------------

system_has() { pkg-config --atleast-version="$1" fuse3 2>/dev/null; }

private_has() {
	[ -e "$prefix/lib/libfuse3.so" ] &&
		PKG_CONFIG_LIBDIR=$prefix/lib/pkgconfig pkg-config --atleast-version="$1" fuse3 2>/dev/null
}

# Newest suites last: an older one builds with older tools.
suites() {
	case " $os_id $os_like " in
	*" ubuntu "*) printf '%s\n' questing resolute devel ;;
	*" debian "*) printf '%s\n' trixie forky sid ;;
	esac
}

keyring() {
	local k
	case " $os_id $os_like " in
	*" ubuntu "*) k=/usr/share/keyrings/ubuntu-archive-keyring.gpg ;;
	*) k=/usr/share/keyrings/debian-archive-keyring.gpg ;;
	esac
	[ ! -r "$k" ] || printf '%s' "$k"
}

# The distribution's own archive, as apt knows it: third-party rows carry other
# code names, security rows come later.
mirror() {
	# shellcheck disable=SC2016 # these are apt's to expand
	apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT)' \
		'Created-By: Packages' 2>/dev/null |
		awk -v want="$os_codename" '
			$3 == "main" && (want == "" || $2 == want) { print $1; found = 1; exit }
			$3 == "main" && other == "" { other = $1 }
			END { if (!found && other != "") print other }'
}

# private_apt DIR ARGS...: apt-get with every list and cache under DIR, so that
# neither the machine's configuration nor its lists change.
private_apt() {
	local dir=$1
	shift
	apt-get -q -o Dir::Etc::SourceList="$dir/sources.list" -o Dir::Etc::SourceParts=/dev/null \
		-o Dir::State::Lists="$dir/lists" -o Dir::Cache="$dir/cache" \
		-o APT::Sandbox::User= -o Acquire::Languages=none "$@"
}

# fetch DIR: leaves an unpacked fuse3 source >= FUSE_WANTED in DIR/src.
fetch() {
	local dir=$1 uri suite key version upstream
	uri=$(mirror)
	if [ -z "$uri" ]; then
		warn "apt has no archive set up to take the fuse3 source from (run apt-get update?)"
		return 1
	fi
	key=$(keyring)
	mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial"
	for suite in $(suites); do
		printf 'deb-src %s%s %s main\n' "${key:+[signed-by=$key] }" "$uri" "$suite" \
			>"$dir/sources.list"
		private_apt "$dir" update || continue
		version=$(private_apt "$dir" source --print-uris fuse3 |
			sed -n "s/^'[^']*' fuse3_\([^ ]*\)\.dsc .*/\1/p")
		upstream=${version#*:}
		upstream=${upstream%-*}
		dpkg --compare-versions "${upstream:-0}" ge "$FUSE_WANTED" || continue
		(cd "$dir" && private_apt "$dir" source --download-only fuse3) || continue
		(cd "$dir" && dpkg-source -x ./*.dsc src) && return 0
		rm -rf "$dir/src" "$dir"/fuse3_*
	done
	return 1
}

# build SRC STAGE: into a staging prefix first, so that PREFIX is whole or absent.
# meson writes PREFIX into the library (where to look for fusermount3) only.
build() {
	(
		cd "$1"
		meson setup b --prefix="$prefix" --libdir=lib --buildtype=release \
			-Dexamples=false -Dtests=false -Duseroot=false -Dinitscriptdir= \
			-Dudevrulesdir="$prefix/udev"
		DESTDIR=$2 ninja -C b install
	)
}

use_system_libfuse() {
	system_has "$FUSE_LEAST" || apt_install libfuse3-dev
	system_has "$FUSE_LEAST" ||
		die "no libfuse >= $FUSE_LEAST: install libfuse3-dev (or libfuse >= $FUSE_WANTED by hand)"
	system_has "$FUSE_WANTED" ||
		warn "using libfuse $(pkg-config --modversion fuse3) of the distribution:" \
			"degraded, no passthrough, all reads go through direct_io"
}

build_private_libfuse() {
	local work log
	work=$(mktemp -d "${TMPDIR:-/tmp}/mooncakefs-deps.XXXXXX")
	log=$work/log
	# shellcheck disable=SC2064 # the name is wanted as it is now
	trap "rm -rf '$work'" EXIT
	say "building libfuse >= $FUSE_WANTED into $prefix"
	if fetch "$work" >"$log" 2>&1 && build "$work/src" "$work/stage" >>"$log" 2>&1; then
		rm -rf "$prefix"
		mv "$work/stage$prefix" "$prefix"
		say "libfuse $(PKG_CONFIG_LIBDIR=$prefix/lib/pkgconfig pkg-config --modversion fuse3) built"
		return 0
	fi
	tail -n 15 "$log" >&2
	warn "libfuse >= $FUSE_WANTED could not be built (see above: network, mirror or keyring?)"
	return 1
}

libfuse() {
	local lock
	if [ "${MCFS_LIBFUSE:-}" = system ]; then
		use_system_libfuse
		return
	fi
	system_has "$FUSE_WANTED" && return 0
	private_has "$FUSE_WANTED" && return 0

	mkdir -p "$(dirname -- "$prefix")"
	exec {lock}>"$(dirname -- "$prefix")/.lock"
	flock "$lock"
	# Another make may have built it while this one waited.
	private_has "$FUSE_WANTED" || build_private_libfuse || use_system_libfuse
}

[ "$libfuse_only" = yes ] || install_packages
[ "$rdma_vm" = yes ] || libfuse
