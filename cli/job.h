// A job: the ranks of `run` and `calibrate`, however they were started.
//
// --ranks N starts N ranks as threads of this process; under mpirun, srun or torchrun each process
// is one rank. With a namespace prefix rank r's data travels inside network namespace PREFIXr
// (scripts/campaigns/testbed.sh).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/units.h"
#include "exec/cpu/job.h"
#include "exec/launch/affinity.h"
#include "exec/launch/session.h"

namespace dovetail::cli {

struct JobOptions {
  std::optional<std::int32_t> ranks;  // absent: a launcher started this process
  std::string network_namespace;      // prefix; empty: none
  std::string collectives = "ring";   // or "gloo"
  std::string rate;                   // at which the ranks pace their ring, e.g. 1gbit; empty: not
  std::string store;  // HOST:PORT where rank 0 listens; empty: see exec/launch/world.h
  exec::launch::Cores cores = exec::launch::Cores::OneEach;
};

// --rate, for the ring. Throws InputError when it is no rate, or stands beside --netns (a link is
// shaped or paced, not both) or Gloo, whose sockets are its own.
std::optional<BytesPerSecond> pace_of(const JobOptions& options);

// Throws InputError when there is a --rate. REQUIRES: the backend is cuda.
void refuse_pace_with_cuda(const JobOptions& options);

// What the ranks' data travels over, for reports: "namespaces dovetailN", "loopback", "the network
// at ADDRESS", or with --rate "paced by the ranks themselves at 1gbit (not a shaped link)".
// REQUIRES: called from a thread of the rank.
std::string link_of(const exec::launch::Session& session, const JobOptions& options);

// Why figures measured over this link must not be used to judge overlap; "" if they may.
std::string link_objection(const exec::launch::Session& session, const JobOptions& options);

// Runs body(session, transport) on every rank of this process. Throws InputError when neither
// --ranks nor a launcher says how many ranks there are, DeviceError when the job fails.
void run_job(const JobOptions& options,
             const std::function<void(exec::launch::Session&, exec::cpu::TransportKind)>& body);

}  // namespace dovetail::cli
