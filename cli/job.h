// A job: the ranks of `run` and `calibrate`, however they were started.
//
// --ranks N starts N ranks as threads of this process; under mpirun, srun or torchrun each process
// is one rank. With a namespace prefix rank r's data travels inside network namespace PREFIXr
// (scripts/testbed.sh).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "exec/cpu/job.h"
#include "exec/launch/affinity.h"
#include "exec/launch/session.h"

namespace dovetail::cli {

struct JobOptions {
  std::optional<std::int32_t> ranks;  // absent: a launcher started this process
  std::string network_namespace;      // prefix; empty: none
  std::string collectives = "ring";   // or "gloo"
  std::string store;  // HOST:PORT where rank 0 listens; empty: see exec/launch/world.h
  exec::launch::Cores cores = exec::launch::Cores::OneEach;
};

// What the ranks' data travels over, for reports: "namespaces dovetailN", "loopback", or "the
// network at ADDRESS".
// REQUIRES: called from a thread of the rank.
std::string link_of(const exec::launch::Session& session, const JobOptions& options);

// Why figures measured over this link must not be used to judge overlap; "" if they may.
std::string link_objection(const exec::launch::Session& session);

// Runs body(session, transport) on every rank of this process. Throws InputError when neither
// --ranks nor a launcher says how many ranks there are, DeviceError when the job fails.
void run_job(const JobOptions& options,
             const std::function<void(exec::launch::Session&, exec::cpu::TransportKind)>& body);

}  // namespace dovetail::cli
