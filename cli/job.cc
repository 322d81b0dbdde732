// Starting or joining a job.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/job.h"

#include "base/error.h"
#include "exec/cpu/gloo.h"
#include "exec/launch/local_ranks.h"
#include "exec/launch/world.h"

namespace dovetail::cli {
namespace {

exec::cpu::TransportKind transport_of(const std::string& word) {
  if (word == "ring") return exec::cpu::TransportKind::Ring;
  if (word != "gloo") {
    throw InputError("--collectives: expected ring or gloo, found \"" + word + "\"");
  }
  if (!exec::cpu::has_gloo()) throw InputError("--collectives gloo: this build has no Gloo");
  return exec::cpu::TransportKind::Gloo;
}

}  // namespace

std::string link_of(const exec::launch::Session& session, const JobOptions& options) {
  if (!options.network_namespace.empty()) {
    return "namespaces " + options.network_namespace + "N";
  }
  if (!link_objection(session).empty()) return "loopback";
  return session.size() == 1 ? "none" : "the network at " + session.data_address();
}

std::string link_objection(const exec::launch::Session& session) {
  if (session.size() == 1 || !session.data_address().starts_with("127.")) return "";
  return "the ranks talk over loopback, where communication is processor work";
}

void run_job(const JobOptions& options,
             const std::function<void(exec::launch::Session&, exec::cpu::TransportKind)>& body) {
  const exec::cpu::TransportKind transport = transport_of(options.collectives);
  if (options.ranks) {
    if (*options.ranks < 1 || *options.ranks > 64) {
      throw InputError("--ranks: expected a number from 1 to 64, found " +
                       std::to_string(*options.ranks));
    }
    exec::launch::run_local_ranks(
        {.ranks = *options.ranks,
         .network_namespace = options.network_namespace,
         .cores = options.cores},
        [&](exec::launch::Session& session) { body(session, transport); });
    return;
  }
  const exec::launch::World world = exec::launch::world_from(exec::launch::process_environment());
  if (world.launcher.empty()) {
    throw InputError("how many ranks? start under mpirun, or name local ranks with --ranks N");
  }
  const auto session = exec::launch::connect(world, {.store = options.store,
                                                     .network_namespace = options.network_namespace,
                                                     .cores = options.cores});
  exec::launch::tell_others_of_errors(*session, [&] { body(*session, transport); });
}

}  // namespace dovetail::cli
