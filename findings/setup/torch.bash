# Sourced by the findings about PyTorch, which have made the folder $work: installs it there, and runs two ranks of a program.
#
#   install torch==2.15.0 numpy==2.4.6    pip's, in a virtual environment
#   two_ranks program.py                  what both print; a rank that fails ends the script
#   expect <<'SEEN'                       the lines that $work/seen must hold
#
# DOVETAIL_FINDINGS=DIR keeps the installation in DIR for the next script.
#
# SPDX-License-Identifier: Apache-2.0

install() {
  venv=${DOVETAIL_FINDINGS:-$work}/torch
  if [[ ! -e $venv/done || $(<"$venv/done") != "$*" ]]; then
    python3 -m venv --clear "$venv"
    "$venv/bin/pip" install --quiet "$@"
    echo "$*" >"$venv/done"
  fi
}

two_ranks() {
  local ranks=() meeting
  meeting=$(mktemp -u "$work/meeting-XXXXXX")
  for rank in 0 1; do
    RANK=$rank MEETING=file://$meeting OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo \
      timeout 120 "$venv/bin/python" -W ignore "$@" 2>"$work/rank$rank.err" &
    ranks+=($!)
  done
  for rank in 0 1; do
    wait "${ranks[rank]}" || { cat "$work/rank$rank.err" >&2; exit 1; }
  done
}

# The lines that were seen, or the difference.
expect() {
  diff <(cat) "$work/seen" && echo "$(basename "$0"): as described" || {
    echo "$(basename "$0"): PyTorch does otherwise now" >&2
    exit 1
  }
}
