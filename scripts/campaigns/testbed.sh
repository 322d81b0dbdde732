#!/usr/bin/env bash
# A real link with a known rate between two ranks of one machine: two network namespaces, dovetail0
# and dovetail1 (10.77.0.1 and 10.77.0.2), joined by a veth pair that a token bucket slows down.
#
#   sudo scripts/campaigns/testbed.sh up [RATE]     RATE as tc takes it: 1gbit (default), 500mbit, ...
#   sudo scripts/campaigns/testbed.sh rate RATE     another rate for a link that is up, under what runs over it
#   sudo scripts/campaigns/testbed.sh status        what is there; exit code 1 when it is not up
#   sudo scripts/campaigns/testbed.sh down          removes all of it
#   dovetail run --ranks 2 --netns dovetail ...
#
# Why not loopback: there an all-reduce costs 90 to 99 % of a core, so there is nothing to overlap.
# On a link that is slower than the processor, communication is waiting, as on a network card.
#
# Each setting below was measured to matter:
#   one super-packet (GSO 64 KiB) fits into the bucket with all its headers; else tbf cuts it up in
#     software and wakes up per packet, which costs a core
#   packets are received on the core of their rank (RPS); else two cores reorder them
#   reno: bbr paces by itself; windows of at most 4 MB under a limit of 16 MB: nothing is dropped
# A burst up to the bucket's size passes at memory speed after a pause: a lone small message is
# faster than RATE says.
#
# Exit codes: 0 done, 1 not up (status, rate), 2 wrong use, 3 the machine cannot do it.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

readonly prefix=dovetail   # namespaces
readonly device=dvt        # interfaces
readonly network=10.77.0
readonly mtu=9000
readonly gso_bytes=65536
readonly segment_bytes=$((mtu - 52))  # without IP, TCP and timestamps
readonly segments=$(((gso_bytes + segment_bytes - 1) / segment_bytes))
readonly burst_bytes=$((gso_bytes + 66 * segments + 400))
readonly limit_bytes=16000000
readonly window_bytes=4194304

fail() {
  echo "testbed.sh: $2" >&2
  exit "$1"
}

usage() {
  sed -n '2,9s/^# \{0,1\}//p' "$0"
}

require_tools() {
  local tool  # root first: the others' PATH lacks tc and sysctl
  [ "$(id -u)" = 0 ] || fail 3 "needs root, to make network namespaces"
  for tool in ip tc sysctl; do
    command -v "$tool" > /dev/null || fail 3 "$tool is missing (packages iproute2 and procps)"
  done
}

exists() {
  ip netns list | grep -qw "^$1"
}

remove() {
  local end
  for end in 0 1; do
    # The interfaces go with their namespace.
    if exists "$prefix$end"; then ip netns delete "$prefix$end"; fi
  done
}

add_namespaces() {
  local end
  for end in 0 1; do
    ip netns add "$prefix$end" ||
      fail 3 "cannot make a network namespace; a container needs CAP_SYS_ADMIN and CAP_NET_ADMIN"
  done
  ip link add "${device}0" netns "${prefix}0" mtu "$mtu" gso_max_size "$gso_bytes" \
      numtxqueues 1 numrxqueues 1 type veth \
    peer name "${device}1" netns "${prefix}1" mtu "$mtu" gso_max_size "$gso_bytes" \
      numtxqueues 1 numrxqueues 1 ||
    fail 3 "cannot make a veth pair; is the kernel module veth there?"
}

# $1 is 0 or 1, $2 the rate.
shape_end() {
  tc -n "$prefix$1" qdisc replace dev "$device$1" root \
    tbf rate "$2" burst "$burst_bytes" limit "$limit_bytes" ||
    fail 2 "tc refuses the rate $2 (or the kernel has no tbf)"
}

# Everything about one end: $1 is 0 or 1, $2 the rate.
set_up_end() {
  local end=$1 rate=$2 namespace=$prefix$1 interface=$device$1 mask
  ip -n "$namespace" link set lo up
  ip -n "$namespace" address add "$network.$((end + 1))/24" dev "$interface"
  ip -n "$namespace" link set "$interface" gso_max_size "$gso_bytes" up
  shape_end "$end" "$rate"
  mask=$(printf '%x' $((1 << (end % $(nproc)))))
  ip netns exec "$namespace" sh -c \
    "echo $mask > /sys/class/net/$interface/queues/rx-0/rps_cpus"
  ip netns exec "$namespace" sysctl -qw \
    net.ipv4.tcp_congestion_control=reno \
    net.ipv4.tcp_slow_start_after_idle=0 \
    net.ipv4.tcp_no_metrics_save=1 \
    net.ipv4.tcp_rmem="4096 131072 $window_bytes" \
    net.ipv4.tcp_wmem="4096 131072 $window_bytes" \
    net.ipv6.conf.all.disable_ipv6=1
}

require_rate() {
  [[ $1 =~ ^[0-9]+(\.[0-9]+)?[kKmMgG]?bit$ ]] ||
    fail 2 "RATE $1: expected a number with kbit, mbit or gbit"
}

up() {
  local rate=$1 end
  require_rate "$rate"
  remove
  trap 'remove' EXIT  # nothing half done stays behind
  add_namespaces
  for end in 0 1; do set_up_end "$end" "$rate"; done
  trap - EXIT
  echo "up: ${prefix}0 ($network.1) and ${prefix}1 ($network.2), $rate each way"
}

status() {
  if ! exists "${prefix}0" || ! exists "${prefix}1"; then
    echo "down"
    return 1
  fi
  local end
  for end in 0 1; do
    echo "$prefix$end: $(ip -n "$prefix$end" -brief address show dev "$device$end" | tr -s ' ')"
    tc -n "$prefix$end" -s qdisc show dev "$device$end" | sed 's/^/  /'
  done
}

main() {
  case "${1:-}" in
    up)
      [ "$#" -le 2 ] || fail 2 "up takes one RATE; more than two ranks on one link were never tried"
      require_tools
      up "${2:-1gbit}"
      ;;
    rate)
      require_rate "${2:-}"
      require_tools
      status > /dev/null || fail 1 "no link is up"
      shape_end 0 "$2"
      shape_end 1 "$2"
      ;;
    status)
      require_tools
      status
      ;;
    down)
      require_tools
      remove
      echo "down"
      ;;
    -h | --help)
      usage
      ;;
    *)
      usage >&2
      exit 2
      ;;
  esac
}

main "$@"
