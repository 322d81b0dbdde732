#!/usr/bin/env bash
# Formats every source file; with --check only says which ones are not formatted, exit 1 if any.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
cd "$(dirname "$0")/../.."

mode=(-i)
[[ ${1:-} == --check ]] && mode=(--dry-run -Werror)
find . \( -path './build*' -o -path ./.git \) -prune -o \
  \( -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
  sort -z | xargs -0 -r -n 16 -P "$(nproc)" clang-format "${mode[@]}"
