# Sourced by the findings about PyTorch, which have made the folder $work: installs it there, and runs ranks of a program.
#
#   install torch==2.15.0 numpy==2.4.6    pip's, in a virtual environment
#   ranks 4 program.py                    what all print (two_ranks: of two); a rank that fails ends the script
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

ranks() {
  local count=$1 ranks=() meeting rank
  shift
  meeting=$(mktemp -u "$work/meeting-XXXXXX")
  for ((rank = 0; rank < count; ++rank)); do
    RANK=$rank MEETING=file://$meeting OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo \
      timeout 120 "$venv/bin/python" -W ignore "$@" 2>"$work/rank$rank.err" &
    ranks+=($!)
  done
  for ((rank = 0; rank < count; ++rank)); do
    wait "${ranks[rank]}" || { cat "$work/rank$rank.err" >&2; exit 1; }
  done
}
two_ranks() { ranks 2 "$@"; }

# The lines that were seen, or the difference.
expect() {
  diff <(cat) "$work/seen" && echo "$(basename "$0"): as described" || {
    echo "$(basename "$0"): PyTorch does otherwise now" >&2
    exit 1
  }
}
