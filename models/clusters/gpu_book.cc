// Reads a GPU's own book and lays it over the shipped tables.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/clusters/gpu_book.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/attempt.h"
#include "base/error.h"
#include "base/fields.h"
#include "base/statistics.h"
#include "models/costs/cost_fields.h"

namespace dovetail::models {
namespace {

constexpr double kMostExtentOfBook = 1e9;
constexpr auto kExtentOfBook = as_number(1, kMostExtentOfBook);
constexpr auto kTeraflops = as_number(1e-3, 1e6);

// TFLOP/s of a rate.
struct TeraflopsValue {
  void read(const JsonValue& value, FlopPerSecond& into, auto& context) const {
    double rate = 0;
    kTeraflops.read(value, rate, context);
    into = FlopPerSecond(rate * 1e12);
  }
  ordered_json write(const FlopPerSecond& rate, const auto& /*context*/) const {
    return finite(rate.count() / 1e12);
  }
  template <class T>
  [[nodiscard]] ordered_json schema() const {
    return kTeraflops.schema<double>();
  }
};
constexpr TeraflopsValue kRateOfBook{};

constexpr auto kMemoryRow = fields<GpuBook::MemoryRow>(
    required("access", &GpuBook::MemoryRow::access, as_word(), "kind of memory-bound kernel"),
    optional("dtype", &GpuBook::MemoryRow::dtype, as_word()),
    optional("columns", &GpuBook::MemoryRow::columns, as_integer(0, std::int64_t{1} << 40),
             "of a row"),
    required(
        "fixed_us", [](auto& row) -> auto& { return row.rate.fixed; }, kTime),
    required(
        "share", [](auto& row) -> auto& { return row.rate.share; }, as_number(1e-4, 100),
        "of memory_bytes_per_s"));

constexpr auto kAttentionRow = fields<GpuBook::AttentionRow>(
    required("head_dim", &GpuBook::AttentionRow::head_dim, kExtentOfBook),
    required("tokens", &GpuBook::AttentionRow::tokens, kExtentOfBook, "of a causal sequence"),
    required(
        "tflop_per_s", [](auto& row) -> auto& { return row.forward.rate; }, kRateOfBook),
    defaulted(
        "fixed_us", [](auto& row) -> auto& { return row.forward.fixed; }, kTime),
    optional("backward_tflop_per_s", &GpuBook::AttentionRow::backward_rate, kRateOfBook),
    optional("backward_fixed_us", &GpuBook::AttentionRow::backward_fixed, kTime));

constexpr auto kGemmRow =
    fields<MeasuredGemm>(required(
                             "m", [](auto& row) -> auto& { return row.extents[0]; }, kExtentOfBook),
                         required(
                             "n", [](auto& row) -> auto& { return row.extents[1]; }, kExtentOfBook),
                         required(
                             "k", [](auto& row) -> auto& { return row.extents[2]; }, kExtentOfBook),
                         required("us", &MeasuredGemm::us, as_number(1e-3, 1e9)));

constexpr auto kProductRow = fields<GpuBook::ProductRow>(
    required("type", &GpuBook::ProductRow::type, as_word()),
    required("of", &GpuBook::ProductRow::of, as_text(), "gflop, or odd or even and the side"),
    required("axis", &GpuBook::ProductRow::axis, as_number(1e-6, kMostExtentOfBook)),
    required("tflop_per_s", &GpuBook::ProductRow::rate, kRateOfBook));

// Keys of it that are absent are those of any host.
constexpr auto kHostOfBook = [](GpuBook& book) -> HostModel& {
  if (!book.host) book.host = default_host(BackendKind::Cuda);
  return *book.host;
};

constexpr auto kBookFields = as_object(fields<GpuBook>(
    document("dovetail.gpu/1", "gpu"), required("name", &GpuBook::name, as_name()),
    required("device", &GpuBook::device, as_name(), "whose shipped tables stand behind it"),
    optional("origin", &GpuBook::origin, as_text()), optional("date", &GpuBook::date, as_text()),
    optional("notes", &GpuBook::notes, as_keyed(as_text())),
    optional("memory_bytes_per_s", &GpuBook::memory, kRate, "nominal"),
    optional("memory_bytes", &GpuBook::capacity, as_integer(1, kMostBytes)),
    optional("products", &GpuBook::products, as_list(as_object(kGemmRow)),
             "of bf16; their median against the shipped table is a factor of all products"),
    optional("other_products", &GpuBook::other_products, as_list(as_object(kProductRow))),
    optional("passes", &GpuBook::passes, as_list(as_object(kMemoryRow)),
             "memory-bound kernels: fixed + bytes / (share x rate)"),
    optional("attention", &GpuBook::attention, as_list(as_object(kAttentionRow)),
             "fused kernels: fixed + FLOP / rate"),
    optional("host", kHostOfBook, as_object(kHostFields), kHostWords)));

}  // namespace

bool is_gpu_book(const std::string& path) {
  const auto says = attempt([&] {
    const JsonFile file(path);
    JsonObject root = file.root();
    return root.has("schema") && root.at("schema").is_string() &&
           root.at("schema").string() == "dovetail.gpu/1";
  });
  return says.value.value_or(false);
}

GpuBook load_gpu_book(const std::string& path) {
  const JsonFile file(path);
  GpuBook book = read_as<GpuBook>(kBookFields, file.root());
  const std::vector<std::string> devices = gemm_devices();
  if (std::ranges::find(devices, book.device) == devices.end()) {
    std::string list;
    for (const std::string& device : devices) list += (list.empty() ? "" : ", ") + device;
    throw InputError(path + ": /device: expected one of " + list + ", found \"" + book.device +
                     "\"");
  }
  return book;
}

ordered_json gpu_book_schema() {
  return schema_of<GpuBook>(
      kBookFields, "dovetail.gpu/1: one GPU's own book",
      "What kernels take on one GPU, measured on it by `python -m dovetail.torch measure`; read by "
      "--gpu.");
}

std::optional<double> table_factor_of(const GpuBook& book) {
  const GemmTable* const table = gemm_table(book.device);
  if (table == nullptr || book.products.empty()) return std::nullopt;
  std::vector<double> factors;
  for (const MeasuredGemm& row : book.products) {
    const auto extent = [&](std::size_t i) { return static_cast<std::int64_t>(row.extents[i]); };
    factors.push_back(row.us /
                      to_us(table->time({.m = extent(0), .n = extent(1), .k = extent(2)})));
  }
  return median(factors);
}

void take(const GpuBook& book, Cluster& cluster) {
  if (cluster.backend != BackendKind::Cuda || !cluster.compute) {
    throw InputError("--gpu " + book.name + ": expected a machine with GPUs, found " +
                     cluster.name);
  }
  Roofline& compute = *cluster.compute;
  take_tables(compute, book.device);
  auto attention =
      std::make_shared<AttentionTable>(compute.attention ? *compute.attention : AttentionTable());
  // A curve of which it has a row is its own as a whole.
  for (const GpuBook::AttentionRow& row : book.attention) attention->forget(row.head_dim);
  for (const GpuBook::AttentionRow& row : book.attention) {
    std::optional<AttentionTable::Line> backward;
    if (row.backward_rate) backward = {*row.backward_rate, row.backward_fixed};
    attention->add(row.head_dim, row.tokens, row.forward, backward);
  }
  auto passes = std::make_shared<MemoryRates>(*compute.passes);
  for (const GpuBook::MemoryRow& row : book.passes) passes->forget(row.access, row.dtype);
  for (const GpuBook::MemoryRow& row : book.passes)
    passes->add(row.access, row.dtype, row.columns, row.rate);
  auto others = std::make_shared<ProductRates>(compute.others ? *compute.others : ProductRates());
  for (const GpuBook::ProductRow& row : book.other_products) others->forget(row.type, row.of);
  for (const GpuBook::ProductRow& row : book.other_products)
    others->add(row.type, row.of, row.axis, row.rate);
  compute.attention = std::move(attention);
  compute.passes = std::move(passes);
  compute.others = std::move(others);
  if (const auto factor = table_factor_of(book)) compute.table_factor = *factor;
  if (book.memory) compute.memory = *book.memory;
  if (book.capacity) compute.capacity = book.capacity;
  if (book.host) cluster.host = *book.host;
  cluster.notes["gpu"] =
      book.name + " by its own book" + (book.date.empty() ? "" : ", measured on " + book.date);
}

}  // namespace dovetail::models
