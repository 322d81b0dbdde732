// Opens the CUDA module and turns the words of the flags into options of its backends; a word that
// means nothing is refused here, before any rank starts.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/cuda_job.h"

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <sstream>

#include "base/error.h"
#include "cli/flags.h"
#include "exec/cpu/job.h"
#include "exec/cuda/loader.h"
#include "exec/launch/affinity.h"
#include "traces/trace.h"

namespace dovetail::cli {
namespace {

// One of two words: whether it is the second.
enum class Word { First, Second };
struct FlagWords {
  const char* option;
  const char* first;
  const char* second;
};
Word word_of(const std::string& given, const FlagWords& words) {
  if (given == words.first) return Word::First;
  if (given == words.second) return Word::Second;
  throw InputError(std::string(words.option) + ": expected " + words.first + " or " + words.second +
                   ", found \"" + given + "\"");
}

std::optional<std::int32_t> device_of(const std::string& word) {
  if (word == "auto") return std::nullopt;
  std::int32_t number = -1;
  const char* const end = word.data() + word.size();
  const auto [rest, error] = std::from_chars(word.data(), end, number);
  if (error == std::errc() && rest == end && number >= 0) return number;
  throw InputError("--device: expected auto or a number, found \"" + word + "\"");
}

// The first option that was given and belongs to the cuda backend; "" if none was.
std::string cuda_word(const BackendChoice& choice) {
  const BackendChoice plain;
  if (choice.device != plain.device) return "--device";
  if (choice.stand_in != plain.stand_in) return "--stand-in";
  if (choice.f32_math != plain.f32_math) return "--f32-math";
  if (choice.issue != plain.issue) return "--graph (--issue graph)";
  if (choice.scales != plain.scales) return "--scales";
  if (choice.trace_detail != plain.trace_detail) return "--trace-detail";
  if (choice.cluster_size != plain.cluster_size) return "--cluster-size";
  if (choice.buffers != plain.buffers) return "--buffers";
  if (choice.deadline != plain.deadline) return "--deadline";
  return {};
}

}  // namespace

std::optional<CudaJob> open_cuda(const BackendChoice& choice) {
  const Word backend = word_of(choice.backend, {"--backend", "cpu", "cuda"});
  if (backend == Word::First) {
    if (const std::string word = cuda_word(choice); !word.empty()) {
      throw InputError(word + " belongs to --backend cuda");
    }
    return std::nullopt;
  }
  CudaJob job;
  job.device = device_of(choice.device);
  if (!choice.stand_in.empty() && choice.stand_in != "send-to-self") {
    throw InputError("--stand-in: expected send-to-self, found \"" + choice.stand_in + "\"");
  }
  using exec::cuda::F32Math;
  using exec::cuda::Issue;
  using exec::cuda::Scales;
  using exec::cuda::StandIn;
  using exec::cuda::TraceDetail;
  job.options.stand_in = choice.stand_in.empty() ? StandIn::None : StandIn::SendToSelf;
  const Word math = word_of(choice.f32_math, {"--f32-math", "full", "tf32"});
  job.options.f32_math = math == Word::Second ? F32Math::TF32 : F32Math::Full;
  const Word issue = word_of(choice.issue, {"--issue", "eager", "graph"});
  job.options.issue = issue == Word::Second ? Issue::Graph : Issue::Eager;
  const Word scales = word_of(choice.scales, {"--scales", "kernel", "collective"});
  job.options.scales = scales == Word::Second ? Scales::Collectives : Scales::Kernels;
  const Word buffers = word_of(choice.buffers, {"--buffers", "plain", "nccl"});
  job.options.buffers =
      buffers == Word::Second ? exec::cuda::Buffers::Registered : exec::cuda::Buffers::Plain;
  const Word detail = word_of(choice.trace_detail, {"--trace-detail", "commands", "full"});
  job.options.trace_detail = detail == Word::Second ? TraceDetail::Full : TraceDetail::Commands;
  if (detail == Word::Second && issue == Word::Second) {
    throw InputError(
        "--trace-detail full needs --issue eager: a graph launches all kernels at once");
  }
  job.options.cluster_size = choice.cluster_size;
  job.options.deadline = time_of_flag("--deadline", choice.deadline);
  // Several communicators in one graph: NCCL orders their launches as the program did, on every rank
  // alike (NCCL 2.26 and later). Read when NCCL starts.
  static_cast<void>(setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0));
  job.module = &exec::cuda::load_module(exec::cuda::module_place(choice.cuda_module));
  job.facts = job.module->facts();
  exec::cuda::require_device(job.facts);
  return job;
}

exec::cuda::BackendOptions options_for(const CudaJob& job, exec::launch::Session& session) {
  exec::cuda::BackendOptions options = job.options;
  options.device = job.device.value_or(session.world().local_rank);
  const auto devices = static_cast<std::int32_t>(job.facts.devices.size());
  if (options.device >= devices) {
    std::ostringstream message;
    message << "rank " << session.rank() << " needs GPU " << options.device
            << ", but this process sees " << devices
            << " (--device 0, where each rank is given a GPU of its own)";
    throw DeviceError(message.str());
  }
  options.exchange = exec::cpu::exchange_of(session);
  options.peer_failure = [&session] { return session.failure().message(); };
  options.on_failure = [&session](const std::string& message) { session.abort(message); };
  return options;
}

std::string link_of(const CudaJob& job) {
  const bool stands_in = job.options.stand_in == exec::cuda::StandIn::SendToSelf;
  return stands_in ? "none: each collective is a send of the rank to itself" : "NCCL";
}

std::vector<std::string> objections_to(const CudaJob& job, std::int32_t device) {
  std::vector<std::string> objections;
  const std::string& name = job.facts.devices.at(static_cast<std::size_t>(device)).name;
  if (name == "EMULATED") objections.emplace_back("the device is emulated: its times mean nothing");
  if (job.options.stand_in == exec::cuda::StandIn::SendToSelf) {
    objections.emplace_back("collectives are one rank's sends to itself: no link was measured");
  }
  if (exec::launch::allowed_cores().size() == 1) {
    objections.emplace_back(
        "this rank may use one core only, which the threads of NCCL share with it (mpirun "
        "--bind-to "
        "none, srun --cpu-bind=none)");
  }
  return objections;
}

std::map<std::string, std::string> notes_of(const CudaJob& job, std::int32_t device) {
  std::map<std::string, std::string> notes;
  const exec::cuda::DeviceFacts& facts = job.facts.devices.at(static_cast<std::size_t>(device));
  notes["device"] = facts.name + ", sm " + std::to_string(facts.major) +
                    std::to_string(facts.minor) + ", " + std::to_string(facts.multiprocessors) +
                    " SMs";
  notes["CUDA"] = job.facts.toolkit + ", driver for " + job.facts.driver;
  notes["NCCL"] = job.facts.nccl;
  const exec::cuda::DeviceState state = job.module->state(device);
  std::ostringstream clocks;
  clocks << "SM " << state.sm_mhz << " MHz, memory " << state.memory_mhz << " MHz, "
         << state.power_watt << " W";
  if (state.sm_mhz > 0) {
    notes["clocks after the run"] = clocks.str();
    notes[traces::kSmClockNote] = std::to_string(state.sm_mhz);
  }
  return notes;
}

}  // namespace dovetail::cli
