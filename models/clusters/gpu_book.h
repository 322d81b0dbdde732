// One GPU's own book: what its kernels take, as somebody measured them on it, in place of the shipped tables of its kind.
//
//   GpuBook book = load_gpu_book("mine.json");      // as `python -m dovetail.torch measure` writes it
//   take(book, cluster);                            // the cluster's ops cost what the book says, and the shipped tables the rest
//
// Schema dovetail.gpu/1. Every section may be absent: then the tables of `device` hold.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "models/clusters/cluster.h"
#include "models/rates/attention_table.h"
#include "models/rates/gemm_table.h"
#include "models/rates/memory_rates.h"
#include "models/rates/product_rates.h"

namespace dovetail::models {

struct GpuBook {
  struct MemoryRow {
    schedule::Access access = schedule::Access::Any;
    std::optional<schedule::DType> dtype = std::nullopt;  // absent: all that have no row
    std::int64_t columns = 0;
    MemoryRate rate = {};
  };
  struct AttentionRow {
    double head_dim = 0, tokens = 0;  // of causal passes
    AttentionTable::Line forward = {};
    std::optional<FlopPerSecond> backward_rate = std::nullopt;
    Duration backward_fixed{};
  };
  struct ProductRow {
    ProductType type = ProductType::Half;
    std::string of;  // "gflop", "odd n", ...: product_rates.h
    double axis = 0;
    FlopPerSecond rate{};
  };

  std::string name;    // "NVIDIA H100 80GB HBM3"
  std::string device;  // whose shipped tables stand behind it: "h100"
  std::string origin = {}, date = {};
  std::map<std::string, std::string> notes = {};        // versions, clock, power
  std::optional<BytesPerSecond> memory = std::nullopt;  // the nominal rate of which shares are
  std::optional<Bytes> capacity = std::nullopt;
  std::vector<MeasuredGemm> products =
      {};  // of bf16; their median over the shipped table's is a factor of all
  std::vector<ProductRow> other_products = {};
  std::vector<MemoryRow> passes = {};
  std::vector<AttentionRow> attention = {};
  std::optional<HostModel> host = std::nullopt;
};

// Whether the file says of itself that it is such a book. Does not throw.
bool is_gpu_book(const std::string& path);
// Throws InputError with file, JSON path and what was expected.
GpuBook load_gpu_book(const std::string& path);
nlohmann::ordered_json gpu_book_schema();

// Products / the table's, in the median; nothing without any.
std::optional<double> table_factor_of(const GpuBook& book);

// Throws InputError where the cluster is no machine of GPUs with tables.
void take(const GpuBook& book, Cluster& cluster);

}  // namespace dovetail::models
