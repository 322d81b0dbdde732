// SyntheticOps::check_values: collects every comparison of a step (reduced gradients, updated
// parameters, what ops saw) and makes them in one launch, since a launch per tensor would take
// longer than the step.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "exec/ops/synthetic_ops.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <variant>

namespace dovetail::exec {
namespace {

// Of one result of this type, as a part of it.
double rounding_of(Element element) {
  if (element == Element::BF16) return 0x1p-8;
  if (element == Element::F16) return 0x1p-11;
  return 0x1p-24;
}

}  // namespace

CheckResult SyntheticOps::check_values(DeviceStream stream) {
  CheckResult result;
  if (checks_ == Checks::None) return result;
  tables_ = values::ExpectedTables(
      [this](TensorId id) { return element_of(plan_.program.tensor(id).dtype); });
  subjects_.clear();
  // What an op read comes first: when that is wrong, so is what was made of it.
  for (const Look& look : looks_) {
    if (!look.what.squares.empty()) continue;
    if (look.what.is_of_previous_step && !follows_previous_) continue;
    ask(kept(look),
        {.tensor = look.what.tensor,
         .first = look.first,
         .reader = look.what.op,
         .summed_in = look.what.summed_in},
        look.what.expected, look.what.is_of_previous_step ? step_ - 1 : step_);
  }
  for (const values::Remains& end : expected_.at_end) {
    if (!memory_.layout().has(end.tensor)) continue;
    ask(memory_.tensor(end.tensor), {.tensor = end.tensor, .summed_in = end.summed_in},
        end.expected, step_);
  }
  count_wrong(found(tables_, stream), result);
  for (const Look& look : looks_) {
    if (!look.what.squares.empty()) count_wrong_norms(look, result, stream);
  }
  return result;
}

std::string SyntheticOps::reading_of(std::optional<OpId> reader) const {
  if (!reader) return "";
  const schedule::Op& op = plan_.program.op(*reader);
  const bool is_optimizer = op.phase == schedule::Phase::Optimizer;
  return " as " + (is_optimizer ? std::string("the optimizer") : op.name) + " read it";
}

// One comparison per piece of the content.
void SyntheticOps::ask(const Array& data, const Subject& subject, const values::Content& content,
                       std::int32_t step) {
  const std::size_t before = tables_.comparisons().size();
  std::optional<Element> summed_in;
  if (subject.summed_in) summed_in = element_of(*subject.summed_in);
  const std::size_t count = tables_.compare(data, subject.first, content, step, summed_in);
  for (std::size_t i = 0; i < count; ++i) {
    const auto* start = static_cast<const char*>(tables_.comparisons()[before + i].data);
    const std::int64_t begin = start - static_cast<const char*>(data.data);
    Subject& piece = subjects_.emplace_back(subject);
    piece.first += begin / size_of(data.element);
    piece.data = {.data = static_cast<char*>(data.data) + begin,
                  .count = tables_.comparisons()[before + i].count,
                  .element = data.element};
  }
}

std::vector<values::Found> SyntheticOps::found(const values::ExpectedTables& tables,
                                               DeviceStream stream) const {
  std::vector<values::Found> answers(tables.comparisons().size());
  if (answers.empty()) return answers;
  Device& device = memory_.device();
  const Block comparisons = upload(device, tables.comparisons());
  const Block sums = upload(device, tables.sums());
  const Block salts = upload(device, tables.salts());
  const Block found = upload(device, answers);
  std::int64_t largest = 0;
  for (const values::Comparison& one : tables.comparisons()) largest = std::max(largest, one.count);
  device.compare_known({.comparisons = comparisons.as<values::Comparison>(),
                        .sums = sums.as<double>(),
                        .salts = salts.as<values::Salted>(),
                        .found = found.as<values::Found>(),
                        .count = static_cast<std::int32_t>(answers.size()),
                        .largest = largest},
                       stream);
  // Every peer has finished this step, so only our own kernel can be waited for.
  device.wait(stream);
  device.read(found.at(), answers.data(), found.size());
  return answers;
}

void SyntheticOps::count_wrong(const std::vector<values::Found>& answers,
                               CheckResult& result) const {
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const values::Comparison& what = tables_.comparisons()[i];
    result.checked += what.count;
    result.wrong += static_cast<std::int64_t>(answers[i].wrong);
    if (answers[i].wrong == 0 || !result.first_wrong.empty()) continue;
    const auto first = static_cast<std::int64_t>(answers[i].first);
    std::ostringstream message;
    message << "rank " << rank_ << " step " << step_ << ' '
            << plan_.program.tensor(subjects_[i].tensor).name << '[' << subjects_[i].first + first
            << ']' << reading_of(subjects_[i].reader) << ": expected " << tables_.at(i, first)
            << ", found " << number_at(subjects_[i].data, first);
    result.first_wrong = message.str();
  }
}

// Sums of many squares round: a part in ten thousand is allowed, and what the types of the number
// (stored and summed over ranks) and of the gradients (written, summed and scaled) round.
void SyntheticOps::count_wrong_norms(const Look& look, CheckResult& result,
                                     DeviceStream stream) const {
  const auto type_of = [this](TensorId id) { return element_of(plan_.program.tensor(id).dtype); };
  values::ExpectedTables tables(type_of);
  double rounding = 0;
  for (const values::Content& content : look.what.squares) {
    static_cast<void>(tables.add_squares(content, step_));
    for (const values::Piece& piece : content) {
      for (const values::Term& term : piece.terms) {
        rounding = std::max(rounding, rounding_of(type_of(term.tensor)));
      }
    }
  }
  const double allowed = 1e-4 + 4 * rounding_of(type_of(look.what.tensor)) + 8 * rounding;
  double expected = 0;
  for (const values::Found& part : found(tables, stream)) expected += part.squares;
  const double value = number_at(kept(look), 0);
  ++result.checked;
  if (std::abs(value - expected) <= allowed * expected) return;
  ++result.wrong;
  if (!result.first_wrong.empty()) return;
  std::ostringstream message;
  message << "rank " << rank_ << " step " << step_ << ' '
          << plan_.program.tensor(look.what.tensor).name << " as "
          << plan_.program.op(look.what.op).name << " read it: expected " << expected << ", found "
          << value;
  result.first_wrong = message.str();
}

double SyntheticOps::number_at(const Array& data, std::int64_t index) const {
  // The device knows how to read every type; a copy as f64 is all the host needs.
  Device& device = memory_.device();
  const Block out = device.allocate(Bytes(8), "one number");
  const Array one = {.data = static_cast<char*>(data.data) + index * size_of(data.element),
                     .count = 1,
                     .element = data.element};
  const Array number = {.data = out.at(), .count = 1, .element = Element::F64};
  device.copy_scaled(one, number, 1.0, nullptr);
  device.wait(nullptr);
  double value = 0;
  device.read(out.at(), &value, Bytes(8));
  return value;
}

}  // namespace dovetail::exec
