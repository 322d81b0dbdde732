#!/usr/bin/env bash
# Makes d3.min.js and LICENSE anew from the npm registry, in the versions of package-lock.json. Needs Node.js;
# a build of dovetail does not.
#
#   answers/page/d3/bundle.sh            writes both files
#   answers/page/d3/bundle.sh --check    exit 1 where they differ from what the registry gives
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
cd "$(dirname "$0")"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp d3.js package.json package-lock.json "$folder"
(
  cd "$folder"
  npm ci --no-audit --no-fund --silent
  # esbuild's program is a package of its own, so that no install script has to run.
  node_modules/@esbuild/*/bin/esbuild d3.js --bundle --minify --format=iife --global-name=d3 \
    --charset=ascii --legal-comments=none --log-level=error --outfile=bundle.js
  {
    echo "/* D3 (https://d3js.org), parts: see answers/page/d3/README.md. Licences, of all parts:"
    for licence in node_modules/{d3-*,internmap}/LICENSE; do
      printf '\n%s\n' "$(dirname "${licence#node_modules/}")"
      cat "$licence"
    done
    echo "*/"
  } >LICENSE
  # Equal texts once: most parts have the same author and year.
  python3 - <<'PY'
import re
text = open("LICENSE").read()
head, *parts = re.split(r"\n\n(?=(?:d3-[a-z-]+|internmap)\n)", text.replace("*/\n", "").rstrip())
by_text = {}
for part in parts:
    name, _, body = part.partition("\n")
    by_text.setdefault(body.strip(), []).append(name)
body = "\n\n".join(", ".join(names) + ":\n" + licence for licence, names in by_text.items())
open("LICENSE", "w").write(body + "\n")
licence = body.replace("*/", "* /")
bundle = open("bundle.js").read()
open("d3.min.js", "w").write("/* Parts of D3, https://d3js.org. Licences:\n\n" + licence + "\n*/\n" + bundle)
PY
)
if [[ ${1:-} == --check ]]; then
  cmp "$folder/d3.min.js" d3.min.js && cmp "$folder/LICENSE" LICENSE
else
  cp "$folder/d3.min.js" "$folder/LICENSE" .
  wc -c d3.min.js
fi
