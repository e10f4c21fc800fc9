#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# deb.sh - make a Debian package of an installed tree; `make deb` calls it
#
# usage: scripts/deb.sh ROOT VERSION OUT [LIBFUSE-VERSION]
#
#   ROOT             what `make install PREFIX=/usr DESTDIR=ROOT` left; is changed
#   VERSION          of mooncakefs; the package is VERSION-1
#   OUT              folder of the package
#   LIBFUSE-VERSION  of the private libfuse, if ROOT has one
#
# DEBFULLNAME and DEBEMAIL name the maintainer, SOURCE_DATE_EPOCH the time; the
# same tree then gives the same bytes. Needs dpkg-dev and binutils. Prints the
# path of the package; fails (status 1) with the message of the tool that did.

set -euo pipefail
umask 022
export LC_ALL=C

if [ $# -lt 3 ]; then
	sed -n '4,12s/^# \{0,1\}//p' "$0" >&2
	exit 2
fi
root=$(realpath -- "$1")
version=$2
out=$(realpath -m -- "$3")
libfuse=${4:-}

here=$(cd -- "$(dirname -- "$0")/deb" && pwd)
doc=$root/usr/share/doc/mooncakefs
private=$root/usr/lib/mooncakefs
arch=$(dpkg --print-architecture)
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(stat -c %Y -- "$here/../../VERSION")}
maintainer="${DEBFULLNAME:-mooncakefs packagers} <${DEBEMAIL:-packagers@mooncakefs.invalid}>"

# Debian's names, gzip without time stamps, and no second copy of a licence.
tidy_documents() {
	rm -f "$doc/LICENSE"
	mv "$doc/CHANGELOG.md" "$doc/changelog"
	{
		printf 'mooncakefs (%s-1) unstable; urgency=medium\n\n' "$version"
		printf '  * Version %s; see changelog.gz.\n\n' "$version"
		printf ' -- %s  %s\n' "$maintainer" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")"
	} >"$doc/changelog.Debian"
	gzip -9nf "$doc/changelog" "$doc/changelog.Debian"
	find "$root/usr/share/man" -type f ! -name '*.gz' -exec gzip -9nf {} +
	cp "$here/copyright" "$doc/copyright"
	[ -z "$libfuse" ] || sed "s/@LIBFUSE@/$libfuse/" "$here/copyright.libfuse" >>"$doc/copyright"
	install -D -m 0644 "$here/lintian-overrides" "$root/usr/share/lintian/overrides/mooncakefs"
}

# Where pkg-config looks when it builds for another architecture, too.
move_pc_files() {
	local at
	at=$root/usr/lib/$(dpkg-architecture -q DEB_HOST_MULTIARCH)
	[ ! -d "$root/usr/lib/pkgconfig" ] || { mkdir -p "$at" && mv "$root/usr/lib/pkgconfig" "$at/"; }
}

elf_files() {
	find "$root/usr/bin" "$private" -type f 2>/dev/null || true
	find "$root/usr/lib" -maxdepth 1 -type f -name 'lib*.so.*'
}

strip_files() {
	local f
	find "$root/usr/lib" -name 'lib*.so.*' -type f -exec chmod 0644 {} +
	find "$root/usr/lib" -name '*.a' -exec strip --strip-debug --remove-section=.comment {} +
	while IFS= read -r f; do
		strip --strip-unneeded --remove-section=.comment --remove-section=.note "$f"
	done < <(elf_files)
}

# Prints "DEPENDENCY, ..." for the libraries that the programs and the private
# libfuse are linked with; the latter is nobody's package.
library_depends() {
	local work f files=()
	work=$(mktemp -d)
	# shellcheck disable=SC2064 # the name is wanted as it is now
	trap "rm -rf '$work'" RETURN
	mkdir "$work/debian"
	printf 'Source: mooncakefs\n\nPackage: mooncakefs\nArchitecture: any\n' >"$work/debian/control"
	while IFS= read -r f; do
		files+=("$f")
		[[ $f != "$private"/* ]] || basename -- "$f" | sed 's/\.so\./ /' >>"$work/debian/shlibs.local"
	done < <(elf_files)
	(cd "$work" && dpkg-shlibdeps -O ${libfuse:+-l"$private"} "${files[@]}") |
		sed -n 's/^shlibs:Depends=//p'
}

write_control() {
	local depends
	depends=$(library_depends)
	[ -n "$depends" ] || { echo "deb.sh: dpkg-shlibdeps found no libraries" >&2; return 1; }
	cat >"$root/DEBIAN/control" <<-END
		Package: mooncakefs
		Version: $version-1
		Architecture: $arch
		Maintainer: $maintainer
		Installed-Size: $(du -sk --apparent-size --exclude=DEBIAN -- "$root" | cut -f1)
		Depends: $depends, mount
		Suggests: bash-completion, systemd
		Section: admin
		Priority: optional
		Description: LLM KV-cache blocks and model weights as files in memory
		 mooncakefs mounts a cache of immutable files, kept in huge pages and served by
		 the kernel through FUSE passthrough at the speed of memory. A file appears
		 whole when its writer closes it, does not change under a reader, and is evicted
		 when room is needed. The cache outlives the daemon.
		 .
		 With the daemon come mooncakectl, the helper of mount(8), a systemd unit, and
		 the library libmooncakefs with its header.
	END
	if [ -e "$root/usr/lib/libmooncakefs.so.1" ]; then
		echo 'activate-noawait ldconfig' >"$root/DEBIAN/triggers"
		echo "libmooncakefs 1 mooncakefs (>= $version)" >"$root/DEBIAN/shlibs"
	fi
	for f in postinst prerm postrm; do
		install -m 0755 "$here/$f" "$root/DEBIAN/$f"
	done
	(cd "$root" && find usr -type f -printf '%P\0' | sort -z | sed -z 's,^,usr/,' |
		xargs -0 md5sum) >"$root/DEBIAN/md5sums"
}

tidy_documents
strip_files
move_pc_files
# dpkg-shlibdeps takes a folder with DEBIAN in it for the root of $ORIGIN.
install -d "$root/etc/mooncakefs" "$root/DEBIAN"
write_control
find "$root" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
package=$out/mooncakefs_$version-1_$arch.deb
mkdir -p "$out"
dpkg-deb --root-owner-group -Zxz --build "$root" "$package" >/dev/null
printf '%s\n' "$package"
