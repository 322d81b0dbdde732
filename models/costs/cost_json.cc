// Reads and writes the sections that cluster files and cost files share: kernels, rates, copies,
// passes over memory, hosts and contention.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/costs/cost_json.h"

#include "base/error.h"
#include "base/json.h"

#include <cmath>
#include <utility>
#include <variant>

namespace dovetail::models {

using nlohmann::ordered_json;
using schedule::DType;

namespace {

constexpr std::int64_t kMostExtent = std::int64_t{1} << 40;
constexpr double kMostElements = 0x1p47;  // of one kernel, which moves at most 2^50 bytes
constexpr std::array<std::string_view, 2> kHostKinds = {"inline", "async"};

}  // namespace

void optional_keys(JsonObject& object, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) object.ignore(key);
}

Duration positive_us(JsonObject& object, std::string_view key) {
  return from_us(object.number(key, kLeastUs, kMostUs));
}

Duration us_or(JsonObject& object, std::string_view key, Duration fallback) {
  object.ignore(key);
  return object.has(key) ? from_us(object.number(key, 0, kMostUs)) : fallback;
}

std::optional<Duration> optional_us(JsonObject& object, std::string_view key) {
  object.ignore(key);
  if (!object.has(key)) return std::nullopt;
  return positive_us(object, key);
}

std::optional<double> optional_number(JsonObject& object, std::string_view key) {
  object.ignore(key);
  if (!object.has(key)) return std::nullopt;
  return object.number(key);
}

namespace {

schedule::GemmWork read_gemm(JsonObject object) {
  schedule::GemmWork work;
  work.m = object.integer("m", 1, kMostExtent);
  work.n = object.integer("n", 1, kMostExtent);
  work.k = object.integer("k", 1, kMostExtent);
  object.ignore("count");
  work.count = object.integer_or("count", 1, 1, kMostExtent);
  object.ignore("operands");
  if (object.has("operands")) work.operands = object.one_of<schedule::Operands>("operands");
  const auto m = static_cast<double>(work.m);
  const auto n = static_cast<double>(work.n);
  const auto k = static_cast<double>(work.k);
  const double elements = static_cast<double>(work.count) * (m * k + k * n + m * n);
  if (elements > kMostElements) object.value().fail("expected matrices of at most 2^47 elements");
  object.done();
  return work;
}

schedule::MemoryWork read_memory(JsonObject object) {
  schedule::MemoryWork work;
  work.bytes = Bytes(object.integer("bytes", 1, kMostBytes));
  object.ignore("flop");
  work.flop = Flop(object.number_or("flop", 0, 0));
  object.done();
  return work;
}

schedule::Kernel read_kernel(JsonObject& object, const std::string& expected) {
  if (object.has("gemm")) return read_gemm(object.object("gemm"));
  if (!object.has("memory")) object.value().fail("expected " + expected);
  return read_memory(object.object("memory"));
}

schedule::KernelsWork read_several(const JsonArray& array) {
  if (array.size() == 0) array.value().fail("expected at least one kernel, found none");
  schedule::KernelsWork several;
  for (const JsonValue item : array) {
    JsonObject kernel = item.object();
    several.kernels.push_back(read_kernel(kernel, R"("gemm" or "memory", found neither)"));
    kernel.done();
  }
  return several;
}

// Of the types that are there.
template <class Type>
void read_rates(JsonObject& rates, std::span<const Type> types,
                std::map<Type, FlopPerSecond>& found) {
  for (const Type type : types) {
    const std::string_view name = to_string(type);
    rates.ignore(name);
    if (rates.has(name)) found[type] = FlopPerSecond(rates.number(name, kLeastRate, kMostRate));
  }
}

}  // namespace

Roofline read_roofline(JsonObject object) {
  Roofline roofline;
  JsonObject gemm = object.object("gemm");
  JsonObject rates = gemm.object("flop_per_s");
  read_rates<DType>(rates, kAllOf<DType>, roofline.gemm_peak);
  read_rates<schedule::Operands>(rates, schedule::kNarrow, roofline.narrow_peak);
  rates.done();
  roofline.efficiency = gemm.number("efficiency", 1e-6, 1);
  if (gemm.has("table")) {
    const std::vector<std::string> devices = gemm_devices();
    const std::vector<std::string_view> words(devices.begin(), devices.end());
    const std::string_view device = words[gemm.word("table", words)];
    roofline.products = gemm_tables(device);
    roofline.attention = attention_table(device);
  }
  gemm.done();
  roofline.memory = BytesPerSecond(object.number("memory_bytes_per_s", kLeastRate, kMostRate));
  roofline.kernel_overhead = us_or(object, "kernel_overhead_us", Duration{});
  object.ignore("memory_bytes");
  if (object.has("memory_bytes")) {
    roofline.capacity = Bytes(object.integer("memory_bytes", 1, kMostBytes));
  }
  object.done();
  return roofline;
}

KernelWork read_work(JsonObject& object) {
  if (object.has("kernels")) return read_several(object.array("kernels"));
  return std::visit([](const auto& work) { return KernelWork(work); },
                    read_kernel(object, R"("gemm", "memory" or "kernels", found none of them)"));
}

std::vector<MeasuredKernel> read_kernels(const JsonArray& array) {
  std::vector<MeasuredKernel> kernels;
  for (const JsonValue item : array) {
    JsonObject object = item.object();
    MeasuredKernel kernel;
    if (object.has("op")) kernel.op = object.string("op");
    kernel.dtype = object.one_of<DType>("dtype");
    kernel.work = read_work(object);
    kernel.time = positive_us(object, "us");
    kernel.p10 = optional_us(object, "p10_us");
    kernel.p90 = optional_us(object, "p90_us");
    object.done();
    for (const MeasuredKernel& other : kernels) {
      if (other.op == kernel.op && other.dtype == kernel.dtype && other.work == kernel.work) {
        item.fail("expected each kernel once, found the same dtype and work a second time");
      }
    }
    kernels.push_back(kernel);
  }
  return kernels;
}

UnitKernel read_unit_kernel(JsonObject object) {
  UnitKernel unit;
  object.ignore("dtype");
  if (object.has("dtype")) unit.dtype = object.one_of<DType>("dtype");
  unit.gemm = read_gemm(object.object("gemm"));
  unit.time = positive_us(object, "us");
  object.done();
  return unit;
}

CopyModel read_copy(JsonObject object) {
  CopyModel copy;
  copy.fixed = us_or(object, "fixed_us", Duration{});
  if (object.has("bytes_per_s")) {
    copy.ns_per_byte = 1e9 / object.number("bytes_per_s", kLeastRate, kMostRate);
  } else if (object.has("ns_per_byte")) {
    copy.ns_per_byte = object.number("ns_per_byte", 0, kMostUs);
  } else {
    object.value().fail("expected \"bytes_per_s\" or \"ns_per_byte\", found neither");
  }
  object.done();
  return copy;
}

std::map<PassKind, PassModel> read_passes(JsonObject object) {
  std::map<PassKind, PassModel> passes;
  for (const PassKind kind : kAllOf<PassKind>) {
    const std::string_view word = to_string(kind);
    object.ignore(word);
    if (!object.has(word)) continue;
    JsonObject pass = object.object(word);
    passes[kind] = {.fixed = us_or(pass, "fixed_us", Duration{}),
                    .ns_per_byte = pass.number("ns_per_byte", 0, kMostUs)};
    pass.done();
  }
  object.done();
  return passes;
}

HostModel read_host(JsonObject object, HostModel host) {
  object.ignore("kind");
  if (object.has("kind")) {
    const auto kind =
        object.word("kind", kHostKinds) == 0 ? HostModel::Kind::Inline : HostModel::Kind::Async;
    if (kind != host.kind) host = HostModel{.kind = kind};
  }
  host.run_op = us_or(object, "run_op_us", host.run_op);
  host.collective = us_or(object, "collective_us", host.collective);
  host.event = us_or(object, "event_us", host.event);
  host.copy = us_or(object, "copy_us", host.copy);
  host.launch_latency = us_or(object, "launch_latency_us", host.launch_latency);
  host.launch_gap = us_or(object, "launch_gap_us", host.launch_gap);
  object.done();
  return host;
}

namespace {

constexpr std::int64_t kMostCtas = 1024;

Multiprocessors read_multiprocessors(JsonObject object) {
  const auto ctas_or = [&object](std::string_view key, std::int64_t otherwise) {
    object.ignore(key);
    return object.integer_or(key, otherwise, 0, kMostCtas);
  };
  const auto rate_if = [&object](std::string_view key) -> std::optional<BytesPerSecond> {
    object.ignore(key);
    if (!object.has(key)) return std::nullopt;
    return BytesPerSecond(object.number(key, kLeastRate, kMostRate));
  };
  Multiprocessors gpu;
  gpu.count = object.integer("count", 1, kMostCtas);
  gpu.ctas = object.integer("ctas", 0, kMostCtas);
  gpu.all_reduce_ctas = ctas_or("all_reduce_ctas", gpu.ctas);
  gpu.network_ctas = ctas_or("network_ctas", gpu.ctas);
  gpu.memory = rate_if("memory_bytes_per_s");
  gpu.cta_rate = rate_if("cta_bytes_per_s");
  gpu.all_reduce_cta_rate = rate_if("all_reduce_cta_bytes_per_s");
  object.done();
  return gpu;
}

ordered_json multiprocessors_json(const Multiprocessors& gpu) {
  ordered_json object = {{"count", gpu.count},
                         {"ctas", gpu.ctas},
                         {"all_reduce_ctas", gpu.all_reduce_ctas},
                         {"network_ctas", gpu.network_ctas}};
  const auto put_rate = [&object](const char* key, const std::optional<BytesPerSecond>& rate) {
    if (rate) object[key] = rate->count();
  };
  put_rate("memory_bytes_per_s", gpu.memory);
  put_rate("cta_bytes_per_s", gpu.cta_rate);
  put_rate("all_reduce_cta_bytes_per_s", gpu.all_reduce_cta_rate);
  return object;
}

}  // namespace

Contention read_contention(JsonObject object) {
  Contention contention;
  optional_keys(object, {"compute_slowdown", "collective_slowdown"});
  const auto optional_slowdown = [&object](std::string_view key) -> std::optional<double> {
    object.ignore(key);
    if (!object.has(key)) return std::nullopt;
    return object.number(key, 1, 1e6);
  };
  contention.compute_slowdown = object.number_or("compute_slowdown", 1, 1, 1e6);
  contention.collective_slowdown = object.number_or("collective_slowdown", 1, 1, 1e6);
  contention.collective_cpu = us_or(object, "collective_cpu_us", Duration{});
  contention.gemm_slowdown = optional_slowdown("gemm_slowdown");
  contention.memory_slowdown = optional_slowdown("memory_slowdown");
  contention.collective_gemm_slowdown = optional_slowdown("collective_gemm_slowdown");
  contention.collective_memory_slowdown = optional_slowdown("collective_memory_slowdown");
  object.ignore("multiprocessors");
  if (object.has("multiprocessors")) {
    if (contention != Contention{}) {
      object.value().fail(
          "multiprocessors: expected no slow-downs beside it, which are measured ones");
    }
    contention.multiprocessors = read_multiprocessors(object.object("multiprocessors"));
  }
  contention.start_delay = us_or(object, "start_delay_us", Duration{});
  object.done();
  return contention;
}

double finite(double value) {
  DOVETAIL_CHECK(std::isfinite(value)) << value;
  return value;
}

void put(ordered_json& object, const char* key, const std::optional<Duration>& time) {
  if (time) object[key] = to_us(*time);
}

void put(ordered_json& object, const char* key, const std::optional<double>& number) {
  if (number) object[key] = finite(*number);
}

void put(ordered_json& object, const char* key, const std::string& text) {
  if (!text.empty()) object[key] = text;
}

ordered_json written(const Roofline& roofline) {
  ordered_json rates = ordered_json::object();
  for (const auto& [dtype, rate] : roofline.gemm_peak) {
    rates[std::string(to_string(dtype))] = finite(rate.count());
  }
  for (const auto& [operands, rate] : roofline.narrow_peak) {
    rates[std::string(to_string(operands))] = finite(rate.count());
  }
  ordered_json gemm = {{"flop_per_s", rates}, {"efficiency", finite(roofline.efficiency)}};
  if (!roofline.products.empty()) gemm["table"] = roofline.products.begin()->second->device();
  ordered_json object = {{"gemm", std::move(gemm)},
                         {"memory_bytes_per_s", finite(roofline.memory.count())},
                         {"kernel_overhead_us", to_us(roofline.kernel_overhead)}};
  if (roofline.capacity) object["memory_bytes"] = roofline.capacity->count();
  return object;
}

ordered_json written(const schedule::GemmWork& work) {
  ordered_json object = {{"m", work.m}, {"n", work.n}, {"k", work.k}, {"count", work.count}};
  if (work.operands != schedule::Operands::Own) object["operands"] = to_string(work.operands);
  return object;
}

namespace {

void put_work(ordered_json& object, const schedule::GemmWork& work) {
  object["gemm"] = written(work);
}

void put_work(ordered_json& object, const schedule::MemoryWork& work) {
  object["memory"] = {{"bytes", work.bytes.count()}, {"flop", finite(work.flop.count())}};
}

void put_work(ordered_json& object, const schedule::KernelsWork& several) {
  ordered_json::array_t kernels;
  for (const schedule::Kernel& kernel : several.kernels) {
    std::visit([&one = kernels.emplace_back()](const auto& work) { put_work(one, work); }, kernel);
  }
  object["kernels"] = std::move(kernels);
}

}  // namespace

void put_work(ordered_json& object, const KernelWork& work) {
  std::visit([&object](const auto& of_kind) { put_work(object, of_kind); }, work);
}

ordered_json written(const MeasuredKernel& kernel) {
  ordered_json object;
  if (!kernel.op.empty()) object["op"] = kernel.op;
  object["dtype"] = to_string(kernel.dtype);
  put_work(object, kernel.work);
  object["us"] = to_us(kernel.time);
  put(object, "p10_us", kernel.p10);
  put(object, "p90_us", kernel.p90);
  return object;
}

ordered_json written(const UnitKernel& unit) {
  return {{"dtype", to_string(unit.dtype)}, {"gemm", written(unit.gemm)}, {"us", to_us(unit.time)}};
}

ordered_json written(const CopyModel& copy) {
  return {{"ns_per_byte", finite(copy.ns_per_byte)}, {"fixed_us", to_us(copy.fixed)}};
}

ordered_json written(const std::map<PassKind, PassModel>& passes) {
  ordered_json object = ordered_json::object();
  for (const auto& [kind, pass] : passes) {
    object[std::string(to_string(kind))] = {{"ns_per_byte", finite(pass.ns_per_byte)},
                                            {"fixed_us", to_us(pass.fixed)}};
  }
  return object;
}

ordered_json written(const HostModel& host) {
  return {{"kind", kHostKinds.at(host.kind == HostModel::Kind::Inline ? 0 : 1)},
          {"run_op_us", to_us(host.run_op)},
          {"collective_us", to_us(host.collective)},
          {"event_us", to_us(host.event)},
          {"copy_us", to_us(host.copy)},
          {"launch_latency_us", to_us(host.launch_latency)},
          {"launch_gap_us", to_us(host.launch_gap)}};
}

ordered_json written(const Contention& contention) {
  ordered_json object;
  if (contention.multiprocessors) {
    object["multiprocessors"] = multiprocessors_json(*contention.multiprocessors);
  } else {
    object["compute_slowdown"] = finite(contention.compute_slowdown);
    object["collective_slowdown"] = finite(contention.collective_slowdown);
    object["collective_cpu_us"] = to_us(contention.collective_cpu);
    put(object, "gemm_slowdown", contention.gemm_slowdown);
    put(object, "memory_slowdown", contention.memory_slowdown);
    put(object, "collective_gemm_slowdown", contention.collective_gemm_slowdown);
    put(object, "collective_memory_slowdown", contention.collective_memory_slowdown);
  }
  if (contention.start_delay > Duration{}) object["start_delay_us"] = to_us(contention.start_delay);
  return object;
}

}  // namespace dovetail::models
