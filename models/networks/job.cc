// What a job must be: degrees that divide what they divide.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/job.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.h"

namespace dovetail::jobs {
namespace {

constexpr std::int64_t kMostRanks = std::int64_t{1} << 20;
constexpr std::int64_t kMostSequence = std::int64_t{1} << 22;
constexpr std::int64_t kMostTokens = std::int64_t{1} << 24;  // of a micro-batch
constexpr std::int64_t kMostSamples = std::int64_t{1} << 32;
constexpr std::int64_t kMostMicroBatches = 1 << 16;
constexpr std::int64_t kMostCounted = 4096;   // of layers: no model has more
constexpr std::int64_t kMostStateBytes = 64;  // beside a parameter

class Checker {
 public:
  Checker(Job& job, const std::string& where) : job_(job), where_(where) {}

  void run() {
    const Layout& l = job_.layout;
    const Model& m = job_.model;
    if (m.patches) job_.batch.sequence = m.sequence;
    require_sizes();
    if (job_.batch.global == 0) job_.batch.global = job_.batch.micro * l.replicas() * l.pp;
    divides("tp", l.tp, "heads", m.attention.heads);
    if (!m.attention.latent && l.tp > m.attention.key_value_heads) {
      divides("key_value_heads", m.attention.key_value_heads, "tp", l.tp);
    }
    divides("cp", l.cp, "seq", job_.batch.sequence);
    if (l.tp > 1 && l.sp) divides("tp x cp", l.tp * l.cp, "seq", job_.batch.sequence);
    divides("mbs x dp x dp_shard", job_.batch.micro * l.replicas(), "gbs", job_.batch.global);
    require_within("micro-batches, gbs / (mbs x dp x dp_shard),", job_.micro_batches(), 1,
                   kMostMicroBatches);
    if (l.ep > 1 || l.etp > 1) experts();
    if (job_.lora > 0 && job_.lora_on == LoraTargets::AllLinear && m.experts) {
      fail("lora_on=all-linear: adapters of experts are not modelled; use lora_on=attention");
    }
    stages();
    if (l.dp_shard > 1 && job_.zero == Zero::Nothing) job_.zero = Zero::Parameters;
    if (job_.lora > 0 && job_.zero == Zero::Parameters &&
        (l.ep > 1 || (m.experts && l.etp != l.tp)))
      fail("lora: frozen experts that are divided over ep x etp are not sharded; use zero=1");
    if (job_.precision.products == schedule::Operands::Tf32 &&
        job_.precision.compute != schedule::DType::F32) {
      fail("products=tf32: expected dtype=f32, found dtype=" +
           std::string(to_string(job_.precision.compute)));
    }
    if (job_.precision.autocast != Autocast::No) autocast();
    if (writes_scores(job_)) job_.flash = false;
    if (m.patches && l.tp > 1)
      fail("tp: tensor parallelism of a model of pictures is not modelled");
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw InputError(where_ + ": " + what); }

  // Products of what is allowed here stay far below 2^63.
  void require_sizes() const {
    const Layout& l = job_.layout;
    const Batch& b = job_.batch;
    struct Degree {
      const char* key;
      std::int64_t value;
    };
    std::int64_t world = 1;
    for (const auto& [key, value] : {Degree{"dp", l.dp}, Degree{"dp_shard", l.dp_shard},
                                     Degree{"cp", l.cp}, Degree{"tp", l.tp}, Degree{"pp", l.pp}}) {
      require_within(key, value, 1, kMostRanks);
      world *= value;
      require_within("a world", world, 1, kMostRanks);
    }
    for (const auto& [key, value] :
         {Degree{"ep", l.ep}, Degree{"etp", l.etp}, Degree{"vp", l.vp}}) {
      require_within(key, value, 1, kMostRanks);
    }
    require_within("seq", b.sequence, 1, kMostSequence);
    require_within("mbs", b.micro, 1, kMostTokens / b.sequence);
    require_within("gbs", b.global, 0, kMostSamples);
    require_within("lora", job_.lora, 0, job_.model.width);
    require_within("prefetch", job_.prefetch, 0, kMostCounted);
    require_within("recompute_layers", job_.recompute_layers, 0, kMostCounted);
    require_within("master", job_.precision.master_bytes, 0, kMostStateBytes);
    require_within("states", job_.precision.state_bytes, 0, kMostStateBytes);
  }

  void require_within(const std::string& what, std::int64_t value, std::int64_t low,
                      std::int64_t high) const {
    if (value >= low && value <= high) return;
    fail("expected " + what + " from " + std::to_string(low) + " to " + std::to_string(high) +
         ", found " + std::to_string(value));
  }

  void divides(const std::string& what, std::int64_t degree, const std::string& of,
               std::int64_t whole) const {
    if (whole % degree == 0) return;
    fail(what + "=" + std::to_string(degree) + " does not divide " + of + "=" +
         std::to_string(whole));
  }

  void experts() const {
    const Layout& l = job_.layout;
    if (!job_.model.experts) fail("ep: " + job_.model.name + " has no experts");
    divides("ep", l.ep, "experts", job_.model.experts->count);
    divides("ep x etp", l.ep * l.etp, "dp x dp_shard x cp x tp", l.stage_ranks());
    if (l.dp > 1 && l.dp_shard > 1) {  // then each replica has all experts
      divides("ep x etp", l.ep * l.etp, "dp_shard x cp x tp", l.stage_ranks() / l.dp);
    }
  }

  void autocast() const {
    const Precision& p = job_.precision;
    const auto expect = [&](const char* key, std::string_view word, std::string_view found) {
      if (word != found)
        fail("autocast=" + std::string(to_string(p.autocast)) + ": expected " + key + "=" +
             std::string(word) + ", found " + key + "=" + std::string(found));
    };
    expect("dtype", "f32", to_string(p.compute));
    if (p.products == schedule::Operands::Tf32)
      fail("products=tf32: products of autocast are not of f32");
    expect("master", "0", std::to_string(p.master_bytes));
  }

  void given_layers() const {
    const std::vector<std::int64_t>& layers = job_.layout.layers;
    const std::int64_t stages = job_.layout.pp * job_.layout.vp;
    std::int64_t sum = 0;
    for (const std::int64_t count : layers) {
      require_within("layers of a stage", count, 0, job_.model.layers);
      sum += count;
    }
    if (std::ssize(layers) != stages || sum != job_.model.layers) {
      fail("layers: expected " + std::to_string(stages) + " numbers that add up to " +
           std::to_string(job_.model.layers) + ", found " + std::to_string(layers.size()) +
           " that add up to " + std::to_string(sum));
    }
    const auto inner = std::span(layers).subspan(1, layers.size() - 2);
    if (std::ranges::find(inner, 0) != inner.end())
      fail("layers: only the first and the last stage can be without a layer");
  }

  void stages() {
    Layout& l = job_.layout;
    if (l.pp == 1 && l.vp > 1) fail("vp: chunks need a pipeline, pp= of at least 2");
    if (l.pp == 1 && !l.layers.empty()) fail("layers: needs a pipeline, pp= of at least 2");
    if (l.pp == 1 && l.order != schedule::PipelineKind::OneFOneB) {
      fail("schedule=" + std::string(to_string(l.order)) +
           ": needs a pipeline, pp= of at least 2, found pp=1");
    }
    if (l.pp == 1) return;
    if (l.vp > 1 && l.order == schedule::PipelineKind::Sequential)
      fail("schedule=sequential: expected vp=1, found vp=" + std::to_string(l.vp) +
           ": chunks are interleaved (schedule=interleaved, zero-bubble or zbv)");
    if (l.vp > 1 && !splits_backward(l.order)) l.order = schedule::PipelineKind::Interleaved;
    const bool is_v = l.order == schedule::PipelineKind::Zbv;
    if (is_v && l.vp != 2)
      fail("schedule=zbv needs vp=2: each stage has one chunk there, one back");
    if (is_v && job_.model.tied && job_.lora == 0) {
      fail(
          "schedule=zbv: tied weights lie on its first and its last chunk, which share a stage: "
          "not modelled");
    }
    const bool is_interleaved = l.order == schedule::PipelineKind::Interleaved;
    if (is_interleaved && l.vp == 1) fail("schedule=interleaved needs vp= of at least 2");
    if (!l.layers.empty()) {
      given_layers();
    } else if (l.pp * l.vp > job_.model.layers) {
      fail("pp x vp=" + std::to_string(l.pp * l.vp) + " stages for " +
           std::to_string(job_.model.layers) + " layers");
    }
    if (l.vp > 1 && !is_v && job_.micro_batches() % l.pp != 0) {
      fail(
          "pp=" + std::to_string(l.pp) + " does not divide gbs / (mbs x dp x dp_shard)=" +
          std::to_string(job_.micro_batches()) + ": Megatron-LM refuses it" +
          (job_.as == RunBy::Megatron
               ? ""
               : "; PyTorch and torchtitan run it in rounds of their own, which are not modelled"));
    }
  }

  Job& job_;
  const std::string& where_;
};

}  // namespace

std::string to_string(const Assumed& assumed) {
  return assumed.option + (assumed.value.empty() ? "" : " " + assumed.value) + ": " +
         assumed.counted;
}

std::vector<std::int64_t> layers_of_stages(const Job& job) {
  if (!job.layout.layers.empty()) return job.layout.layers;
  const std::int64_t stages = job.layout.pp * job.layout.vp;
  std::vector<std::int64_t> layers(static_cast<std::size_t>(stages));
  for (std::int64_t layer = 0; layer < job.model.layers; ++layer) {
    ++layers[static_cast<std::size_t>(layer * stages / job.model.layers)];
  }
  return layers;
}

std::int64_t stage_of_layer(const Job& job, std::int64_t layer) {
  std::int64_t stage = 0;
  for (const std::int64_t layers : layers_of_stages(job)) {
    if (layer < layers) break;
    layer -= layers;
    ++stage;
  }
  return stage;
}

bool is_recomputed(const Job& job, std::int64_t layer) {
  if (job.recompute != Recompute::Full) return false;
  if (job.recompute_layers == 0) return true;
  for (const std::int64_t layers : layers_of_stages(job)) {
    if (layer < layers) break;
    layer -= layers;
  }
  return layer < job.recompute_layers;
}

bool recomputes(const Job& job, RecomputedModule module) {
  return job.recompute == Recompute::Selective &&
         (job.recompute_modules >> static_cast<unsigned>(module) & 1U) != 0;
}

bool recomputes_modules(const Job& job) {
  return job.recompute == Recompute::Selective && job.recompute_modules != 0;
}

bool has_copies(const Job& job) {
  const Layout& l = job.layout;
  if (l.replicas() * l.cp > 1 || job.wrap == Wrap::Always) return true;
  return job.model.experts && l.stage_ranks() > l.ep * l.etp && (l.ep > 1 || l.etp != l.tp);
}

double shards_of(const Job& job, bool of_experts) {
  const Layout& l = job.layout;
  const auto ranks = static_cast<double>((l.dp_shard > 1 ? l.dp_shard : l.dp) * l.cp);
  if (!of_experts) return ranks;
  return std::max(1.0, ranks * static_cast<double>(l.tp) / static_cast<double>(l.ep * l.etp));
}

bool casts_gathered(const Job& job) {
  return job.zero == Zero::Parameters && has_copies(job) && job.precision.master_bytes > 0 &&
         job.as != RunBy::Deepspeed;
}

bool adds_to_sums(const Job& job) {
  return job.as == RunBy::Megatron && (job.zero < Zero::Gradients || !has_copies(job));
}

bool has_ring(const Job& job) {
  return job.layout.cp > 1 && job.exchange == ContextExchange::Ring && job.flash &&
         !writes_scores(job) && job.model.attention.window == 0;
}

bool writes_scores(const Job& job) {
  return job.kernels == Kernels::Transformers && job.model.attention.sinks;
}

void complete(Job& job, const std::string& where) { Checker(job, where).run(); }

Job in_effect(Job job) {
  const Job plain{.model = job.model};
  Layout& l = job.layout;
  if (l.replicas() * l.cp > 1) job.wrap = plain.wrap;
  const bool is_alone = !has_copies(job);
  if (is_alone) job.zero = Zero::Nothing;
  const bool is_whole = job.zero == Zero::Nothing;
  const bool is_divided = job.zero == Zero::Parameters;
  if (l.tp == 1) {
    l.sp = plain.layout.sp;
    job.async_tp = false;
  }
  if (l.cp == 1) job.exchange = plain.exchange;
  if (l.pp == 1) l.order = plain.layout.order;
  if (!l.layers.empty()) {
    const std::vector<std::int64_t> given = std::exchange(l.layers, {});
    if (given != layers_of_stages(job)) l.layers = given;
  }
  if (!job.model.experts) {
    job.expert_imbalance = plain.expert_imbalance;
    job.dispatch = plain.dispatch;
  }
  if (l.ep == 1) job.dispatch = plain.dispatch;
  if (job.precision.products != schedule::Operands::Fp8 || job.as != RunBy::Megatron)
    job.precision.scaling = plain.precision.scaling;
  if (!job.flash) job.attention = plain.attention;
  if (job.lora == 0) job.lora_on = plain.lora_on;
  // Of dp and dp_shard the one that is not 1 is the group of all replicas.
  if (is_divided ? l.dp_shard == 1 : l.dp == 1) std::swap(l.dp, l.dp_shard);
  if (job.recompute != Recompute::Full ||
      job.recompute_layers >= std::ranges::max(layers_of_stages(job))) {
    job.recompute_layers = 0;
  }
  if (job.recompute != Recompute::Selective) job.recompute_modules = 0;
  if (job.zero < Zero::Gradients || l.pp > 1 || job.micro_batches() == 1)
    job.sync_each = plain.sync_each;
  if (!is_divided) {
    job.reshard = plain.reshard;
    job.prefetch = plain.prefetch;
  }
  if (is_divided || is_alone) job.overlap_gradients = plain.overlap_gradients;
  if (is_divided || is_whole) job.overlap_parameters = plain.overlap_parameters;
  const bool is_bucketed = !is_divided || job.as == RunBy::Deepspeed;
  if (!is_bucketed || is_alone || (is_whole && !job.overlap_gradients)) {
    job.bucket_bytes = std::nullopt;
  }
  return job;
}

}  // namespace dovetail::jobs
