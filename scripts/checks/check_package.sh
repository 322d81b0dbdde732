#!/usr/bin/env bash
# Packs the tool as a Debian package, looks at it with lintian where that is installed, installs it into a fresh
# Debian 12 (scripts/checks/fresh_root.sh), and runs the first example of docs/tour.md from there. Then installs the library for C++
# programs into a folder, and builds and runs the example of docs/cpp.md against it.
#
#   sudo scripts/checks/check_package.sh                 a package for any x86-64: builds the preset `package`
#   sudo scripts/checks/check_package.sh --build DIR     packs what DIR holds already (scripts/test.sh: build). It is
#                                                 compiled for this machine's processor and runs only on such
#   scripts/checks/check_package.sh --inside DEB         the part in the fresh system; scripts/checks/fresh_root.sh starts it
#
# Without root (or a sudo that asks for nothing), mmdebstrap or namespaces the package is made, looked at and
# unpacked into a folder, and the example is run
# from that folder; a line that begins with "skipped:" says so. Exit codes: 0 all done, 1 something failed.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
cd "$(dirname "$0")/../.."

# The first command of docs/tour.md that prints what it shows, without the folder of the build.
example() { sed -n 's/^\$ build\/\(dovetail explore .*\)$/\1/p' docs/tour.md | head -n 1; }
shown() { awk '/^\$ build\/dovetail explore / { found = 1; next } found && /^```/ { exit } found' docs/tour.md; }

# run_example TOOL: what it prints must be what docs/tour.md shows.
run_example() {
  local words
  words=$(example)
  diff <(COLUMNS=100 eval "${words/#dovetail/"$1"}") <(shown) || { echo "check_package: not as in docs/tour.md: $words"; return 1; }
  echo "check_package: as in docs/tour.md: $words"
}

# Builds docs/examples/cpp as somebody else's project against what FOLDER installs into a folder that is then moved: it must
# print what docs/cpp.md shows.
check_library() {
  local place
  grep -q '^DOVETAIL_LIBRARY:BOOL=ON' "$1/CMakeCache.txt" || { echo "skipped: $1 was configured without DOVETAIL_LIBRARY"; return; }
  place=$(mktemp -d)
  for component in Unspecified dev; do
    cmake --install "$1" --component "$component" --prefix "$place/first" >"$place/install.log" || { cat "$place/install.log"; return 1; }
  done
  mv "$place/first" "$place/prefix"
  cmake -S docs/examples/cpp -B "$place/example" -D CMAKE_PREFIX_PATH="$place/prefix" --log-level=NOTICE
  cmake --build "$place/example" >/dev/null
  diff <(env -u DOVETAIL_DATA "$place/example/thresholds") \
    <(awk '/^\$ .*thresholds$/ { found = 1; next } found && /^```/ { exit } found' docs/cpp.md) ||
    { echo "check_package: the C++ example prints something else than docs/cpp.md"; return 1; }
  grep -q '^thresholds: DOVETAIL_DATA: /nowhere: expected a folder' <(DOVETAIL_DATA=/nowhere "$place/example/thresholds" 2>&1) ||
    { echo "check_package: the C++ example does not catch the library's InputError"; return 1; }
  rm -rf "$place"
  echo "check_package: the C++ example builds against the installed library and prints what docs/cpp.md shows"
}

inside() {
  export DEBIAN_FRONTEND=noninteractive
  apt-get -q update >/dev/null
  apt-get -q install -y --no-install-recommends "$1" >/dev/null
  dovetail --version
  [[ -s /usr/share/man/man1/dovetail.1.gz || -e /etc/dpkg/dpkg.cfg.d/docker ]]
  [[ $(dovetail show clusters | wc -l) -gt 10 ]]
  run_example dovetail
  apt-get -q remove -y dovetail >/dev/null
  [[ ! -e /usr/bin/dovetail && ! -e /usr/share/dovetail ]]
  echo "check_package: installed, run and removed in a fresh Debian 12"
}

if [[ ${1:-} == --inside ]]; then
  inside "$2"
  exit 0
fi

folder=build-package
if [[ ${1:-} == --build ]]; then
  folder=$2
else
  cmake --preset package --log-level=NOTICE
  cmake --build "$folder" -j "$(nproc)" --target dovetail dovetail_library
fi
check_library "$folder"
rm -f "$folder"/dovetail_*.deb
(cd "$folder" && cpack -G DEB >cpack.log 2>&1) || { cat "$folder/cpack.log"; exit 1; }
deb=$(realpath "$folder"/dovetail_*.deb)
dpkg-deb --info "$deb" | sed -n 's/^ \(Package\|Version\|Depends\|Installed-Size\): /check_package: \1: /p'

if command -v lintian >/dev/null; then
  lintian --fail-on error,warning "$deb" || exit 1
  echo "check_package: lintian has no error and no warning"
else
  echo "skipped: lintian is not installed"
fi

as_root=()
((EUID == 0)) || as_root=(sudo -n)
code=3
if "${as_root[@]}" true 2>/dev/null; then
  code=0
  "${as_root[@]}" scripts/checks/fresh_root.sh --user root --copy "$deb" -- \
    scripts/checks/check_package.sh --inside "/root/$(basename "$deb")" || code=$?
fi
((code == 0)) && exit 0
((code == 3)) || exit 1
echo "skipped: no fresh system here (see above); the package is unpacked into a folder instead"
unpacked=$(mktemp -d)
trap 'rm -rf "$unpacked"' EXIT
dpkg-deb --extract "$deb" "$unpacked"
env -u DOVETAIL_DATA "$unpacked/usr/bin/dovetail" --version
run_example "$unpacked/usr/bin/dovetail"
