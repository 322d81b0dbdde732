// How the GPUs of this machine are connected: who can reach whose memory, and how fast.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/selftest.h"

#include <cstddef>
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

// From each GPU to the next, with peer access where there is any.
Outcome rate_outcome(int devices) {
  constexpr std::size_t kBytes = std::size_t{256} << 20;
  std::ostringstream words;
  for (int from = 0; from < devices; ++from) {
    const int to = (from + 1) % devices;
    check(cudaSetDevice(to), "cudaSetDevice");
    const DeviceBuffer target(Bytes(static_cast<std::int64_t>(kBytes)));
    check(cudaSetDevice(from), "cudaSetDevice");
    if (can_access(from, to)) {
      const cudaError_t enabled = cudaDeviceEnablePeerAccess(to, 0);
      if (enabled != cudaErrorPeerAccessAlreadyEnabled)
        check(enabled, "cudaDeviceEnablePeerAccess");
      static_cast<void>(cudaGetLastError());  // "already enabled" stays there otherwise
    }
    const DeviceBuffer source(Bytes(static_cast<std::int64_t>(kBytes)));
    const Stream stream = make_stream(StreamPriority::Normal);
    const double ms = best_milliseconds(stream.get(), [&] {
      check(cudaMemcpyPeerAsync(target.data(), to, source.data(), from, kBytes, stream.get()),
            "cudaMemcpyPeerAsync");
    });
    const double rate = static_cast<double>(kBytes) / (ms * 1e6);
    if (!(rate > 0)) return selftest::fail("no time passed");
    words << (from == 0 ? "" : ", ") << from << " to " << to << ": "
          << static_cast<std::int64_t>(rate) << " GB/s";
  }
  return selftest::pass(words.str());
}

}  // namespace

std::vector<Row> link_rows(int devices) {
  if (devices < 2) {
    return {row_of({"cuda", "links"},
                   [] { return selftest::skipped("one GPU has no peer to be connected to"); })};
  }
  return {row_of({"cuda", "peer access"}, [&] { return matrix_outcome(devices); }),
          row_of({"cuda", "links"}, [&] { return rate_outcome(devices); })};
}

}  // namespace dovetail::exec::cuda
