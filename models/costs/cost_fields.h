// The fields of what cluster files and cost files share: kernels, rates, copies, passes over
// memory, hosts and contention (base/fields.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/fields.h"
#include "models/costs/costs.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dovetail::models {

inline constexpr std::int64_t kMostRanks = std::int64_t{1} << 24;
inline constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;
inline constexpr double kMostUs = kLongestTime.count() / 1e3;
inline constexpr double kMostFactor = 1e6;
inline constexpr std::int64_t kMostExtent = std::int64_t{1} << 40;
inline constexpr double kMostElements = 0x1p47;  // of one kernel, which moves at most 2^50 bytes
inline constexpr std::int64_t kMostCtas = 1024;

inline constexpr auto kTime = as_us(0, kMostUs);
// Not below one nanosecond: a time of 0 is a missing measurement.
inline constexpr auto kMeasuredTime = as_us(0.001, kMostUs);
inline constexpr auto kRate = as_number(1, 1e21);  // bytes or FLOP per second; beyond any machine
inline constexpr auto kNsPerByte = as_number(0, kMostUs);
inline constexpr auto kSlowdown = as_number(1, kMostFactor);

// ---------------------------------------------------------------------------------- kernels

inline constexpr auto kGemmFields = fields<schedule::GemmWork>(
    required("m", &schedule::GemmWork::m, as_integer(1, kMostExtent)),
    required("n", &schedule::GemmWork::n, as_integer(1, kMostExtent)),
    required("k", &schedule::GemmWork::k, as_integer(1, kMostExtent)),
    defaulted("count", &schedule::GemmWork::count, as_integer(1, kMostExtent), "absent: 1"),
    optional("operands", &schedule::GemmWork::operands, as_word(),
             "what is multiplied; absent: the op's type"),
    optional("separate", &schedule::GemmWork::separate, as_bool(),
             "each product is a kernel of its own; absent: one kernel for all"),
    check([](const JsonObject& object, const schedule::GemmWork& work, auto&) {
      const auto m = static_cast<double>(work.m);
      const auto n = static_cast<double>(work.n);
      const auto k = static_cast<double>(work.k);
      if (static_cast<double>(work.count) * (m * k + k * n + m * n) > kMostElements) {
        object.value().fail("expected matrices of at most 2^47 elements");
      }
    }));

inline constexpr auto kAttentionWorkFields = fields<schedule::Attention>(
    required("tokens", &schedule::Attention::tokens, as_integer(1, kMostExtent),
             "that a query attends to, in the mean"),
    required("head_dim", &schedule::Attention::head_dim, as_integer(1, kMostExtent),
             "of queries and values, their mean"),
    defaulted("backward", &schedule::Attention::backward, as_bool()),
    defaulted("causal", &schedule::Attention::causal, as_bool(),
              "a query attends to what is before it; absent: true"),
    optional("kernel", &schedule::Attention::kernel, as_word(), "whose; absent: cudnn"));

inline constexpr auto kMemoryFields = fields<schedule::MemoryWork>(
    required("bytes", &schedule::MemoryWork::bytes, as_integer(1, kMostBytes)),
    defaulted("flop", &schedule::MemoryWork::flop, as_number(0)),
    optional("attention", &schedule::MemoryWork::attention, as_object(kAttentionWorkFields),
             "of a fused attention kernel, which keeps no scores"),
    optional("access", &schedule::MemoryWork::access, as_word(), "how it goes over its bytes"),
    optional("columns", &schedule::MemoryWork::columns, as_integer(0, kMostExtent),
             "of a row; absent: it does not matter"));

inline constexpr auto kGemmChoice =
    with<schedule::GemmWork>(required("gemm", kSelf, as_object(kGemmFields)));
inline constexpr auto kMemoryChoice =
    with<schedule::MemoryWork>(required("memory", kSelf, as_object(kMemoryFields)));
inline constexpr auto kKernelsChoice = with<schedule::KernelsWork>(required(
    "kernels", &schedule::KernelsWork::kernels,
    as_list(
        as_object(fields<schedule::Kernel>(alternatives(
            kSelf, R"(expected "gemm" or "memory", found neither)", kGemmChoice, kMemoryChoice))),
        1, "kernel"),
    "one after another, as one op"));
inline constexpr std::string_view kNoKernel =
    R"(expected "gemm", "memory" or "kernels", found none of them)";

inline constexpr auto kMeasuredKernelFields = fields<MeasuredKernel>(
    optional("op", &MeasuredKernel::op, as_text(), "only the op of this name"),
    required("dtype", &MeasuredKernel::dtype, as_word(), "element type"),
    alternatives(&MeasuredKernel::work, kNoKernel, kKernelsChoice, kGemmChoice, kMemoryChoice),
    required("us", &MeasuredKernel::time, kMeasuredTime, "median"),
    optional("p10_us", &MeasuredKernel::p10, kMeasuredTime),
    optional("p90_us", &MeasuredKernel::p90, kMeasuredTime));

inline constexpr auto kMeasuredKernels =
    as_list(as_object(kMeasuredKernelFields), [](const JsonValue& item,
                                                 const std::vector<MeasuredKernel>& before,
                                                 const MeasuredKernel& kernel, auto&) {
      for (const MeasuredKernel& other : before) {
        if (other.op == kernel.op && KernelTable::is_alike(other, kernel)) {
          item.fail("expected each kernel once, found the same dtype and work a second time");
        }
      }
    });

inline constexpr auto kUnitKernelFields =
    fields<UnitKernel>(defaulted("dtype", &UnitKernel::dtype, as_word(), "element type"),
                       required("gemm", &UnitKernel::gemm, as_object(kGemmFields)),
                       required("us", &UnitKernel::time, kMeasuredTime));

// ------------------------------------------------------------------------------------ rates

// "table": the GPU whose measured products and attention kernels are taken.
struct MeasuredTablesPart {
  constexpr void keys(const auto& visitor) const { visitor("table"); }
  void read(JsonObject& object, Roofline& roofline, auto& /*context*/) const {
    const std::optional<JsonValue> table = object.find("table");
    if (!table) return;
    const std::vector<std::string> devices = gemm_devices();
    const std::vector<std::string_view> words(devices.begin(), devices.end());
    const std::string_view device = words[table->word(words)];
    take_tables(roofline, device);
  }
  void write(JsonMembers& members, const Roofline& roofline, const auto& /*context*/) const {
    if (roofline.products.empty()) return;
    members.emplace_back("table", roofline.products.begin()->second->device());
  }
  template <class Owner>
  void schema(ObjectSchema& whole) const {
    whole.add("table", {{"enum", gemm_devices()}},
              "GPU whose measured products of bf16, f16, fp8 and fp4 are used (models/rates/gemm)");
  }
};

inline constexpr auto kRooflineFields = fields<Roofline>(
    required(
        "gemm", kSelf,
        as_object(fields<Roofline>(
            required(
                "flop_per_s", kSelf,
                as_object(fields<Roofline>(
                    by_word<schedule::DType>(&Roofline::gemm_peak, kRate),
                    by_word<schedule::Operands>(&Roofline::narrow_peak, kRate, schedule::kNarrow))),
                "peak FLOP/s by element type, and of products of narrower operands; absent "
                "tf32: as f32"),
            required("efficiency", &Roofline::efficiency, as_number(1e-6, 1),
                     "share of the peak that matrix products reach"),
            MeasuredTablesPart{},
            defaulted("table_factor", &Roofline::table_factor, as_number(0.1, 10),
                      "how many times as long as in that table products of bf16 and f16 take")))),
    optional("products_stretch", &Roofline::products_stretch, as_number(0.1, 10),
             "how many times as long as by these rates products and attention take where they run "
             "on and on: of a card that lowers its clock; absent: 1"),
    required("memory_bytes_per_s", &Roofline::memory, kRate, "nominal memory rate"),
    defaulted("kernel_overhead_us", &Roofline::kernel_overhead, kTime, "added to every kernel"),
    optional("memory_bytes", &Roofline::capacity, as_integer(1, kMostBytes),
             "that one device has; absent: unknown"));

// "ns_per_byte", or its inverse "bytes_per_s", which is not written.
struct CopyRatePart {
  constexpr void keys(const auto& /*visitor*/) const {}
  void read(JsonObject& object, CopyModel& copy, auto& context) const {
    BytesPerSecond rate;
    if (object.has("bytes_per_s")) {
      kRate.read(object.at("bytes_per_s"), rate, context);
      copy.ns_per_byte = 1e9 / rate.count();
    } else if (object.has("ns_per_byte")) {
      kNsPerByte.read(object.at("ns_per_byte"), copy.ns_per_byte, context);
    } else {
      object.value().fail("expected \"bytes_per_s\" or \"ns_per_byte\", found neither");
    }
  }
  void write(JsonMembers& members, const CopyModel& copy, const auto& /*context*/) const {
    members.emplace_back("ns_per_byte", finite(copy.ns_per_byte));
  }
  template <class Owner>
  void schema(ObjectSchema& whole) const {
    whole.add("bytes_per_s", kRate.schema<double>(), "");
    whole.add("ns_per_byte", kNsPerByte.schema<double>(), "");
    for (const char* const key : {"bytes_per_s", "ns_per_byte"}) {
      ordered_json keys = ordered_json::object();
      keys["required"] = std::vector<std::string>{key};
      whole.one_of.push_back(std::move(keys));
    }
  }
};
inline constexpr auto kCopyFields =
    fields<CopyModel>(CopyRatePart{}, defaulted("fixed_us", &CopyModel::fixed, kTime));

inline constexpr auto kPassesFields = fields<std::map<PassKind, PassModel>>(by_word<PassKind>(
    kSelf, as_object(fields<PassModel>(required("ns_per_byte", &PassModel::ns_per_byte, kNsPerByte),
                                       defaulted("fixed_us", &PassModel::fixed, kTime)))));

// What prices ops, in both kinds of file.
inline constexpr std::string_view kComputeWords = "peak rates, for work that was not measured";
inline constexpr std::string_view kKernelsWords = "measured; they win over `compute`";
inline constexpr std::string_view kUnitKernelWords =
    "the product that stands in for timed work in a real run";
inline constexpr std::string_view kCopyWords = "packing a bucket: fixed plus per byte";
inline constexpr std::string_view kPassesWords = "passes over memory: fixed plus per byte";

// ------------------------------------------------------------------------------------- host

// Keys that are absent keep what was there where the kind is the same, else 0.
struct HostKindValue {
  void read(const JsonValue& value, HostModel& into, auto& /*context*/) const {
    const auto kind = value.one_of<HostModel::Kind>();
    if (kind != into.kind) into = HostModel{.kind = kind};
  }
  ordered_json write(const HostModel& host, const auto& /*context*/) const {
    return to_string(host.kind);
  }
  template <class T>
  [[nodiscard]] ordered_json schema() const {
    return as_word().schema<HostModel::Kind>();
  }
};
inline constexpr auto kHostFields = fields<HostModel>(
    defaulted("kind", kSelf, HostKindValue{},
              "does the host wait for each command (inline) or only enqueue it (async)"),
    defaulted("run_op_us", &HostModel::run_op, kTime),
    optional("backward_op_us", &HostModel::backward_op, kTime, "absent: as run_op_us"),
    optional("update_op_us", &HostModel::update_op, kTime,
             "of one parameter; absent: as run_op_us"),
    defaulted("collective_us", &HostModel::collective, kTime),
    defaulted("event_us", &HostModel::event, kTime), defaulted("copy_us", &HostModel::copy, kTime),
    defaulted("launch_latency_us", &HostModel::launch_latency, kTime),
    defaulted("launch_gap_us", &HostModel::launch_gap, kTime));
inline constexpr std::string_view kHostWords =
    "what one command costs the host; absent keys: the default of the backend";

// ------------------------------------------------------------------------------- contention

inline constexpr auto kCtas = as_integer(0, kMostCtas);
inline constexpr auto kMultiprocessorsFields = fields<Multiprocessors>(
    required("count", &Multiprocessors::count, as_integer(1, kMostCtas),
             "multiprocessors of the GPU"),
    required("ctas", &Multiprocessors::ctas, kCtas, "thread blocks of a collective within a node"),
    check([](const JsonObject&, Multiprocessors& gpu, auto&) {
      gpu.all_reduce_ctas = gpu.network_ctas = gpu.ctas;
    }),
    defaulted("all_reduce_ctas", &Multiprocessors::all_reduce_ctas, kCtas,
              "of an all-reduce there; absent: ctas"),
    defaulted("network_ctas", &Multiprocessors::network_ctas, kCtas,
              "of one over several nodes; absent: ctas"),
    optional("memory_bytes_per_s", &Multiprocessors::memory, kRate,
             "of the GPU; absent: compute.memory_bytes_per_s"),
    optional("cta_bytes_per_s", &Multiprocessors::cta_rate, kRate,
             "bus bandwidth of one thread block; absent: from the topology"),
    optional("all_reduce_cta_bytes_per_s", &Multiprocessors::all_reduce_cta_rate, kRate,
             "of one of an all-reduce"));

inline constexpr auto kContentionFields = fields<Contention>(
    written_where(
        [](const Contention& contention) { return !contention.multiprocessors; },
        fields<Contention>(
            defaulted("compute_slowdown", &Contention::compute_slowdown, kSlowdown,
                      "of compute beside a collective, a factor"),
            defaulted("collective_slowdown", &Contention::collective_slowdown, kSlowdown,
                      "of a collective beside compute, a factor"),
            defaulted("collective_cpu_us", &Contention::collective_cpu, kTime,
                      "processor time of one collective"),
            optional("gemm_slowdown", &Contention::gemm_slowdown, kSlowdown,
                     "of matrix products beside a collective, a factor; absent: compute_slowdown"),
            optional("memory_slowdown", &Contention::memory_slowdown, kSlowdown,
                     "of memory-bound kernels beside a collective, a factor; absent: "
                     "compute_slowdown"),
            optional("collective_gemm_slowdown", &Contention::collective_gemm_slowdown, kSlowdown,
                     "of a collective beside matrix products, a factor; absent: "
                     "collective_slowdown"),
            optional("collective_memory_slowdown", &Contention::collective_memory_slowdown,
                     kSlowdown,
                     "of a collective beside memory-bound kernels, a factor; absent: "
                     "collective_slowdown"))),
    check([](const JsonObject& object, const Contention& contention, auto&) {
      if (object.find("multiprocessors") && contention != Contention{}) {
        object.value().fail(
            "multiprocessors: expected no slow-downs beside it, which are measured ones");
      }
    }),
    optional("multiprocessors", &Contention::multiprocessors, as_object(kMultiprocessorsFields),
             "what collectives hold of a GPU, where no slow-down was measured; without slow-downs "
             "beside it"),
    optional("start_delay_us", &Contention::start_delay, kTime,
             "that a collective waits at most which begins beside a matrix product, for its thread "
             "blocks; also beside multiprocessors; absent: 0"));

}  // namespace dovetail::models
