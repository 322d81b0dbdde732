// Runs the ranks of a job as threads of this process, each with a session of its own; the first
// exception is rethrown when all have ended.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/launch/local_ranks.h"

#include "base/error.h"
#include "exec/launch/netns.h"

#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace dovetail::exec::launch {

void run_local_ranks(const LocalRanksOptions& options,
                     const std::function<void(Session& session)>& body) {
  DOVETAIL_CHECK(options.ranks > 0) << options.ranks;
  std::vector<Links> links = local_links(options.ranks);
  std::mutex mutex;
  std::exception_ptr first;
  const auto run_rank = [&](std::int32_t rank) {
    const World world{
        .rank = Rank{rank}, .size = options.ranks, .local_rank = rank, .launcher = {}, .job = {}};
    Session session(world, std::move(links[static_cast<std::size_t>(rank)]), Session::Kind::Thread,
                    {.network_namespace = options.network_namespace, .graces = options.graces});
    try {
      if (options.cores == Cores::OneEach) pin_to_core_of(rank);
      if (!options.network_namespace.empty()) {
        enter_network_namespace(options.network_namespace + std::to_string(rank));
      }
      body(session);
    } catch (const std::exception& error) {
      {
        // Kept before the others are told, so that theirs come later.
        const std::lock_guard lock(mutex);
        if (first == nullptr) first = std::current_exception();
      }
      session.abort(error.what());
    }
  };
  {
    std::vector<std::jthread> threads;
    threads.reserve(links.size());
    for (std::int32_t rank = 0; rank < options.ranks; ++rank) threads.emplace_back(run_rank, rank);
  }
  if (first != nullptr) std::rethrow_exception(first);
}

}  // namespace dovetail::exec::launch
