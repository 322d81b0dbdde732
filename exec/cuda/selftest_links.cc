// How the GPUs of this machine are connected: who can reach whose memory, and how fast.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/selftest.h"

#include <cstddef>
#include <iomanip>
#include <sstream>
#include <string>

namespace dovetail::exec::cuda {
namespace {

using selftest::Outcome;
using selftest::Row;
using selftest::row_of;

bool can_access(int from, int to) {
  int can = 0;
  check(cudaDeviceCanAccessPeer(&can, from, to), "cudaDeviceCanAccessPeer");
  return can != 0;
}

// Row i: one sign per device j. "=" itself, "1" reachable with native atomics (NVLink, as a rule),
// "p" reachable without (PCIe), "." only through the host.
Outcome matrix_outcome(int devices) {
  std::ostringstream words;
  for (int from = 0; from < devices; ++from) {
    words << (from == 0 ? "" : " | ");
    for (int to = 0; to < devices; ++to) {
      if (from == to) {
        words << '=';
        continue;
      }
      int atomics = 0;
      if (!can_access(from, to)) {
        words << '.';
        continue;
      }
      check(cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, from, to),
            "cudaDeviceGetP2PAttribute");
      words << (atomics != 0 ? '1' : 'p');
    }
  }
  return selftest::pass(words.str() + "  (1 native atomics, p without, . only through the host)");
}

// GB/s of copies from one GPU into another's memory, with peer access where there is any.
double rate_of(int from, int to) {
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  check(cudaSetDevice(to), "cudaSetDevice");
  const DeviceBuffer target(Bytes(static_cast<std::int64_t>(kBytes)));
  check(cudaSetDevice(from), "cudaSetDevice");
  if (can_access(from, to)) {
    const cudaError_t enabled = cudaDeviceEnablePeerAccess(to, 0);
    if (enabled != cudaErrorPeerAccessAlreadyEnabled) check(enabled, "cudaDeviceEnablePeerAccess");
    static_cast<void>(cudaGetLastError());  // "already enabled" stays there otherwise
  }
  const DeviceBuffer source(Bytes(static_cast<std::int64_t>(kBytes)));
  const Stream stream = make_stream(StreamPriority::Normal);
  const double ms = best_milliseconds(stream.get(), [&] {
    check(cudaMemcpyPeerAsync(target.data(), to, source.data(), from, kBytes, stream.get()),
          "cudaMemcpyPeerAsync");
  });
  return static_cast<double>(kBytes) / (ms * 1e6);
}

// One line of the table: to each GPU in turn.
Outcome rates_outcome(int from, int devices) {
  std::ostringstream words;
  bool moved = true;
  for (int to = 0; to < devices; ++to) {
    words << (to == 0 ? "" : " ");
    if (to == from) {
      words << "   =";
      continue;
    }
    const double rate = rate_of(from, to);
    moved = moved && rate > 0;
    words << std::setw(4) << static_cast<std::int64_t>(rate);
  }
  words << " GB/s to each";
  return moved ? selftest::pass(words.str()) : selftest::fail(words.str() + ": no time passed");
}

}  // namespace

std::vector<Row> link_rows(int devices) {
  if (devices < 2) {
    return {row_of({"cuda", "links"},
                   [] { return selftest::skipped("one GPU has no peer to be connected to"); })};
  }
  std::vector<Row> rows = {
      row_of({"cuda", "peer access"}, [&] { return matrix_outcome(devices); })};
  for (int from = 0; from < devices; ++from) {
    rows.push_back(row_of({"cuda", "links from GPU " + std::to_string(from)},
                          [&] { return rates_outcome(from, devices); }));
  }
  return rows;
}

}  // namespace dovetail::exec::cuda
