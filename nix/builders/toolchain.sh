# Unpack pinned Debian packages and relocate CPython and its C libraries into $out.
#
# Run by the static busybox, before there is any other program. In the environment: busybox and
# patchelf (store paths), debs, multiarch, loader, version, and python: an interpreter that runs
# here, or nothing when the one being made does.
set -eu

export busybox=$busybox/bin/busybox
export root=$out/.root
patchelf=$patchelf/bin/patchelf

# Debian splits and merges /usr from one release to the next; both layouts are looked at.
$busybox mkdir -p "$root" "$out/bin" "$out/lib"
# shellcheck disable=SC2086
echo $debs | $busybox xargs -n 4 -P 8 $busybox sh -c \
    'for deb; do $busybox dpkg-deb -x "$deb" "$root" || exit 255; done' sh
for libraries in "$root/lib/$multiarch" "$root/usr/lib/$multiarch"; do
    [ -d "$libraries" ] || continue
    $busybox find "$libraries" -maxdepth 1 -name '*.so*' -exec $busybox mv {} "$out/lib/" +
done
$busybox mv "$root/usr/lib/python$version" "$out/lib/"
$busybox mv "$root/usr/bin/python$version" "$out/bin/"
$busybox ln -s "python$version" "$out/bin/python3"

# DT_RPATH rather than DT_RUNPATH: it wins over an image's LD_LIBRARY_PATH, and the loader searches
# the program's for every library that does not say otherwise (toolchain.py sees to those that do).
$busybox chmod -R u+w "$out/bin" "$out/lib"
"$patchelf" --set-interpreter "$out/lib/$loader" --force-rpath --set-rpath "$out/lib" \
    "$out/bin/python$version"

"${python:-$out}/bin/python3" -s -S -B "$builders/toolchain.py"
$busybox rm -r "$root"
