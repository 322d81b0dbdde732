// Starts the ranks of a job as threads, or joins the job that a launcher started, and runs a
// function on each rank; the first failure ends all of them.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/job.h"

#include "base/error.h"
#include "cli/flags.h"
#include "exec/cpu/gloo.h"
#include "exec/launch/local_ranks.h"
#include "exec/launch/world.h"

namespace dovetail::cli {
namespace {

// On a link of 2 Gbit/s between ranks of one machine an all-reduce keeps a core busy for 12 to 17 % of its
// time, at 4 Gbit/s for 55 to 90 %.
constexpr BytesPerSecond kFastestPace{250e6};

exec::cpu::TransportKind transport_of(const std::string& word) {
  if (word == "ring") return exec::cpu::TransportKind::Ring;
  if (word != "gloo") {
    throw InputError("--collectives: expected ring or gloo, found \"" + word + "\"");
  }
  if (!exec::cpu::has_gloo()) throw InputError("--collectives gloo: this build has no Gloo");
  return exec::cpu::TransportKind::Gloo;
}

bool is_on_loopback(const exec::launch::Session& session) {
  return session.data_address().starts_with("127.");
}

}  // namespace

std::optional<BytesPerSecond> pace_of(const JobOptions& options) {
  if (options.rate.empty()) return std::nullopt;
  const BytesPerSecond rate = link_rate_of_flag("--rate", options.rate);
  if (!options.network_namespace.empty()) {
    throw InputError("--rate and --netns: a link is paced by the ranks or shaped, not both");
  }
  if (options.collectives == "gloo") {
    throw InputError("--rate paces the ring; --collectives gloo stays on what the machine has");
  }
  return rate;
}

void refuse_pace_with_cuda(const JobOptions& options) {
  if (!options.rate.empty()) throw InputError("--rate belongs to --backend cpu: it paces the ring");
}

std::string link_of(const exec::launch::Session& session, const JobOptions& options) {
  if (!options.network_namespace.empty()) {
    return "namespaces " + options.network_namespace + "N";
  }
  if (session.size() == 1) return "none";
  const bool on_loopback = is_on_loopback(session);
  const std::optional<BytesPerSecond> rate = pace_of(options);
  const std::string network = "the network at " + session.data_address();
  if (!rate) return on_loopback ? "loopback" : network;
  return (on_loopback ? "" : network + ", ") + "paced by the ranks themselves at " +
         bit_rate_text(*rate) + " (not a shaped link)";
}

std::string link_objection(const exec::launch::Session& session, const JobOptions& options) {
  if (session.size() == 1 || !is_on_loopback(session)) return "";
  const std::optional<BytesPerSecond> rate = pace_of(options);
  if (rate && *rate <= kFastestPace) return "";
  if (rate) {
    return "the ranks pace themselves at " + bit_rate_text(*rate) +
           " over loopback, where beyond " + bit_rate_text(kFastestPace) +
           " communication is processor work";
  }
  return "the ranks talk over loopback, where communication is processor work";
}

void run_job(const JobOptions& options,
             const std::function<void(exec::launch::Session&, exec::cpu::TransportKind)>& body) {
  const exec::cpu::TransportKind transport = transport_of(options.collectives);
  if (options.ranks && !options.store.empty()) {
    throw InputError("--store has no effect beside --ranks, which starts all ranks here");
  }
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
  const exec::launch::Environment environment = exec::launch::process_environment();
  const exec::launch::World world = exec::launch::world_from(environment);
  if (world.launcher.empty()) {
    throw InputError("how many ranks? start under mpirun, or name local ranks with --ranks N");
  }
  const auto session =
      exec::launch::connect(world, {.store = options.store,
                                    .network_namespace = options.network_namespace,
                                    .silence = exec::launch::heartbeat_timeout(environment),
                                    .cores = options.cores});
  exec::launch::tell_others_of_errors(*session, [&] { body(*session, transport); });
}

}  // namespace dovetail::cli
