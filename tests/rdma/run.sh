#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh - the tests that want an RDMA device, in a small VM that has a software one (called by `make check-rdma`)
#
# usage: tests/rdma/run.sh [COMMAND...]
#
#   COMMAND               runs as root in the VM instead of the tests
#   MCFS_BUILD            build tree (default build); its tests/rdma/test_* are tests, tests/rdma/test_*.py with its
#                         daemon the others
#   MCFS_LONG             1: also the long tests
#   MCFS_RDMA_ONLY        a pattern of names: those programs alone (test_rdma_device), or "nodes" for the daemons
#   MCFS_RDMA_VM          folder of kernel and initramfs (default build/deps/rdma-vm), made at the first run
#   MCFS_RDMA_VM_ACCEL    kvm or tcg (default: kvm where it boots, else tcg, which is slow)
#   MCFS_RDMA_VM_MEMORY   MiB (default 2048, with MCFS_LONG 4096)
#   MCFS_RDMA_VM_TIMEOUT  seconds for all of it after the boot (default 600, with MCFS_LONG 3600)
#
# What else begins with MCFS_, PYTEST_ or is of a sanitizer (ASAN_OPTIONS, ...) is the same in the VM.
#
# QEMU boots a kernel that has rdma_rxe, of the backports of this distribution, else its own. In the VM the machine's files are where they are, and
# writes to them go to memory; device rxe0 is on a dummy interface with the addresses 10.99.0.1 and 10.99.0.2.
# Needs root, apt (for the kernel, which is unpacked and not installed) and the packages of `scripts/deps.sh --rdma-vm`.
#
# Prints what the tests print, and last "N passed, N failed, N skipped". Status 0, 1 when a test failed, 77 with a line
# "SKIP: reason" when the VM does not start.

set -uo pipefail

cd -- "$(dirname -- "$0")/../.." || exit 2
build=$(realpath -m -- "${MCFS_BUILD:-build}")
vm=$(realpath -m -- "${MCFS_RDMA_VM:-build/deps/rdma-vm}")
is_long=${MCFS_LONG:-0}
memory=${MCFS_RDMA_VM_MEMORY:-$((is_long ? 4096 : 2048))}
limit=${MCFS_RDMA_VM_TIMEOUT:-$((is_long ? 3600 : 600))}
# crc32_generic: rdma_rxe asks for it by the name of what it does.
readonly modules=(crc32_generic virtio_pci 9p 9pnet_virtio overlay fuse dummy rdma_rxe rdma_ucm)

export PATH=$PATH:/usr/sbin:/sbin

skip() {
	echo "SKIP: $*"
	exit 77
}

# ---- once: a kernel and an initramfs -----------------------------------------

# kernel_package APT-OPTION...: prints the package that linux-image-ARCH stands for at present.
kernel_package() {
	apt-cache "$@" depends "linux-image-$(dpkg --print-architecture)" 2>/dev/null |
		sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1
}

# download_kernel APT-OPTION...: the package into the present folder.
download_kernel() {
	local package
	package=$(kernel_package "$@")
	[ -n "$package" ] && apt-get -q "$@" -o APT::Sandbox::User=root download "$package"
}

# That of the backports, which has FUSE passthrough, by a view of apt's own on the mirror that this machine uses.
download_newer_kernel() {
	local uri options
	# shellcheck disable=SC2016 # it is apt's variable
	uri=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -v -- -security | head -n 1)
	[ -n "$uri" ] || return 1
	mkdir -p lists/partial
	# shellcheck disable=SC1091 # of the machine
	printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s-backports main\n' "$uri" \
		"$(. /etc/os-release && echo "$VERSION_CODENAME")" >backports.list
	options=(-o "Dir::Etc::sourcelist=$PWD/backports.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$PWD/lists"
		-o APT::Sandbox::User=root)
	apt-get -q "${options[@]}" update && download_kernel "${options[@]}"
}

guest_init() {
	cat <<'END'
#!/bin/busybox sh
b=/bin/busybox
$b mkdir -p /proc /sys /dev /lower /upper /root
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
$b mount -t devtmpfs dev /dev
while read -r m; do $b insmod "/modules/$m" || echo "insmod $m failed"; done </modules/order
$b mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=512000 machine /lower
$b mount -t tmpfs -o size=60% tmpfs /upper
$b mkdir /upper/files /upper/work
$b mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work overlay /root
for d in proc sys dev; do $b mount --move /$d /root/$d; done
$b mount -t tmpfs tmpfs /root/run
$b mkdir -p /root/run/mcfs /root/dev/shm
$b mount -t tmpfs -o size=60% tmpfs /root/dev/shm
$b mkdir -p /root/run/tmp
$b mount -t tmpfs tmpfs /root/run/tmp
$b mount -t 9p -o trans=virtio,version=9p2000.L,rw,msize=512000 exchange /root/run/mcfs
exec $b switch_root /root /bin/bash /run/mcfs/main
END
}

# modules_of TREE VERSION INITRD: in the order in which they want to be loaded, without what only debuggers read.
modules_of() {
	local m path name
	mkdir -p "$3/modules"
	depmod -b "$1" "$2" || return 1
	for m in "${modules[@]}"; do
		modprobe -d "$1" -S "$2" --show-depends "$m" 2>/dev/null || echo "builtin $m"
	done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r path; do
		name=$(basename -- "${path%.xz}")
		case $path in
		*.xz) xz -dc "$path" >"$3/modules/$name" ;;
		*) cp "$path" "$3/modules/$name" ;;
		esac
		objcopy --strip-debug --remove-section=.BTF "$3/modules/$name"
		echo "$name" >>"$3/modules/order"
	done
	grep -q '^rdma_rxe' "$3/modules/order"
}

prepare() {
	local work=$vm/work version
	rm -rf "$work"
	mkdir -p "$work/tree" "$work/initrd/bin" || return 1
	(cd "$work" && { download_newer_kernel || download_kernel; }) ||
		{ echo "apt knows no kernel (apt-get update?)"; return 1; }
	dpkg -x "$work"/*.deb "$work/tree" || return 1
	version=$(basename -- "$work"/tree/lib/modules/*)
	modules_of "$work/tree" "$version" "$work/initrd" || { echo "kernel $version has no rdma_rxe"; return 1; }
	cp /bin/busybox "$work/initrd/bin/busybox" || return 1
	guest_init >"$work/initrd/init"
	chmod 755 "$work/initrd/init"
	(cd "$work/initrd" && find . | busybox cpio -o -H newc) >"$vm/initrd" 2>/dev/null || return 1
	cp "$work/tree/boot/vmlinuz-$version" "$vm/vmlinuz" || return 1
	rm -rf "$work"
	recipe >"$vm/made-by"
}

# What kernel and initramfs depend on in this file.
recipe() {
	{
		echo "${modules[@]}"
		declare -f kernel_package download_kernel download_newer_kernel guest_init modules_of prepare
	} | cksum
}

# ---- in the VM ---------------------------------------------------------------

guest_main() {
	cat <<'END'
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
finish() {
	echo "$1" >/run/mcfs/status
	sync
	echo 1 >/proc/sys/kernel/sysrq
	echo o >/proc/sysrq-trigger
	sleep 60
}
exec >>/run/mcfs/output 2>&1 </dev/null
. /run/mcfs/job
ip link set lo up
{ ip link add rdma0 type dummy && ip link set rdma0 mtu 9000 up && ip addr add 10.99.0.1/24 dev rdma0 &&
	ip addr add 10.99.0.2/24 dev rdma0 && rdma link add rxe0 type rxe netdev rdma0; } ||
	{ echo "no device rxe0"; finish 125; }
[ -c /dev/fuse ] || { echo "no /dev/fuse"; finish 125; }
: >/run/mcfs/up
ulimit -n 65536
export TMPDIR=/run/tmp MCFS_RDMA_DEVICE=rxe0 MCFS_TEST_HOST=10.99.0.1 MCFS_TEST_TRANSPORT=rdma
cd "$folder"
"${command[@]}"
finish $?
END
}

# ---- this run ----------------------------------------------------------------

qemu=
stop() {
	[ -z "$qemu" ] || kill -KILL "$qemu" 2>/dev/null
	while [ -n "$qemu" ] && kill -0 "$qemu" 2>/dev/null; do sleep 0.1; done
	qemu=
}

# boot kvm|tcg SECONDS: true once the device is there.
boot() {
	local cpu=host khz tsc=() end
	if [ "$1" = tcg ]; then
		# Few features: what it does not have is not emulated. Its clock is the machine's, which need not be measured.
		cpu=qemu64
		khz=$(awk '/^cpu MHz/ { printf "%d", $4 * 1000; exit }' /proc/cpuinfo)
		tsc=("tsc_early_khz=$khz" tsc=reliable)
	fi
	rm -f "$exchange"/{up,status}
	: >"$exchange/output"
	setpriv --pdeathsig KILL qemu-system-x86_64 -M pc,usb=off -accel "$1" -cpu "$cpu" -smp 2 -m "$memory" \
		-nodefaults -no-user-config -display none -no-reboot -serial "file:$exchange/console" \
		-kernel "$vm/vmlinuz" -initrd "$vm/initrd" \
		-append "console=ttyS0 quiet panic=-1 mitigations=off audit=0 apparmor=0 ${tsc[*]}" \
		-fsdev local,id=m,path=/,security_model=none,readonly=on,multidevs=remap \
		-device virtio-9p-pci,fsdev=m,mount_tag=machine \
		-fsdev local,id=x,path="$exchange",security_model=none \
		-device virtio-9p-pci,fsdev=x,mount_tag=exchange \
		-device virtio-rng-pci >"$exchange/qemu" 2>&1 </dev/null &
	qemu=$!
	disown "$qemu" # how it ends is not the shell's to tell
	end=$((SECONDS + $2))
	while [ $SECONDS -lt $end ] && kill -0 "$qemu" 2>/dev/null; do
		[ ! -e "$exchange/up" ] || return 0
		sleep 0.2
	done
	stop
	return 1
}

boot_any() {
	local accel=${MCFS_RDMA_VM_ACCEL:-}
	# That KVM did not boot it is remembered: some run none but guests of their own kind.
	if [ "$accel" != tcg ] && [ -w /dev/kvm ] && { [ -n "$accel" ] || [ ! -e "$vm/no-kvm" ]; }; then
		boot kvm 30 && return 0
		: >"$vm/no-kvm"
	fi
	[ "$accel" = kvm ] || boot tcg 150 || boot tcg 150
}

[ "$(id -u)" -eq 0 ] || skip "needs root"
[ "$(uname -m)" = x86_64 ] || skip "the VM is an x86-64 one"
log=$(scripts/deps.sh --rdma-vm 2>&1) || skip "packages: $(tail -n 1 <<<"$log")"
mkdir -p "$vm"
exec 9>"$vm/lock"
flock 9
if [ "$(cat -- "$vm/made-by" 2>/dev/null)" != "$(recipe)" ]; then
	prepare >"$vm/log" 2>&1 || skip "no kernel: $(tail -n 1 -- "$vm/log")"
fi
flock -u 9

if [ $# -eq 0 ]; then
	compgen -G "$build/tests/rdma/test_*" >/dev/null || skip "$build has no tests for a device (built without RDMA?)"
	set -- tests/rdma/guest.sh "$build"
fi
exchange=$(mktemp -d "${TMPDIR:-/tmp}/mcfs-rdma.XXXXXX") || exit 2
trap 'stop; rm -rf "$exchange"' EXIT
trap 'exit 130' INT TERM HUP
guest_main >"$exchange/main"
{
	printf 'folder=%q\ncommand=(' "$PWD"
	printf '%q ' "$@"
	printf ')\n'
	export -p | grep -E '^declare -x (MCFS|PYTEST)_|^declare -x [A-Z]+SAN_OPTIONS='
} >"$exchange/job"

boot_any || skip "the VM did not boot: $(tail -qn 4 "$exchange"/{qemu,console,output} | tr -d '\r' | tr '\n' ';')"
tail -n +1 -f --pid="$qemu" "$exchange/output" &
tail=$!
end=$((SECONDS + limit))
while kill -0 "$qemu" 2>/dev/null && [ $SECONDS -lt $end ]; do
	[ ! -e "$exchange/status" ] || break
	sleep 0.5
done
status=$(cat "$exchange/status" 2>/dev/null)
sleep 1
stop
wait "$tail"
if [ -z "$status" ]; then
	tail -qn 30 "$exchange"/{qemu,console} | tr -d '\r'
	echo "run.sh: the VM ended, or time was up, before the tests did"
	exit 1
fi
exit "$status"
