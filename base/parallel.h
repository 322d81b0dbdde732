// Independent work on all processors.
//
//   std::vector<Row> rows(variants.size());
//   parallel_for(rows.size(), [&](std::size_t i) { rows[i] = price(variants[i]); });
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace dovetail {

// Calls work(i) once for each i below `count`, begun in rising order, on up to as many threads as there are processors.
// An exception keeps further calls from beginning, and the first one is thrown again once all threads have ended.
inline void parallel_for(std::size_t count, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next = 0;
  std::exception_ptr failed;
  std::mutex failing;
  const auto run = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        const std::scoped_lock lock(failing);
        if (failed == nullptr) failed = std::current_exception();
        next = count;
      }
    }
  };
  const std::size_t processors = std::max(1U, std::thread::hardware_concurrency());
  {
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < std::min(processors, count); ++i) others.emplace_back(run);
    run();
  }
  if (failed != nullptr) std::rethrow_exception(failed);
}

}  // namespace dovetail
