// Reads logs of nccl-tests as text, line by line: header lines say what the columns are, and rows
// are recognised behind whatever a launcher put before them. What a run means is decided in
// nccl_tests_run.cc.
//
// SPDX-License-Identifier: Apache-2.0
#include "imports/nccl_tests.h"

#include "base/error.h"
#include "imports/text.h"

#include <algorithm>
#include <array>
#include <set>
#include <span>
#include <utility>

namespace dovetail::imports {
namespace {

using Words = std::vector<std::string_view>;

constexpr std::array<std::string_view, 18> kTypes = {
    "int8",    "uint8", "char",   "int32",    "int",    "uint32", "int64",    "uint64",   "half",
    "float16", "float", "double", "bfloat16", "f8e4m3", "f8e5m2", "fp8_e4m3", "fp8_e5m2", "bf16"};

// The programs of nccl-tests 2.19.6 (its src/).
constexpr std::array<std::string_view, 11> kPrograms = {
    "all_gather_perf",     "all_reduce_perf", "alltoall_perf",  "alltoallv_perf",
    "broadcast_perf",      "gather_perf",     "hypercube_perf", "reduce_perf",
    "reduce_scatter_perf", "scatter_perf",    "sendrecv_perf"};

// What the header line says of the columns.
struct Columns {
  std::size_t lead = 5;  // size, count, type, redop, root
  bool has_redop = true;
  bool has_root = true;
  std::size_t body = 4;      // time, algbw, busbw, #wrong, for each of both kinds of buffers
  bool counts_wrong = true;  // older programs print the largest error there
};

std::optional<Columns> columns_of(const Words& words) {
  const auto begin = std::ranges::find_if(
      words, [](std::string_view word) { return word == "size" || word == "#size"; });
  const auto has = [&](std::string_view word) {
    return std::find(begin, words.end(), word) != words.end();
  };
  if (begin == words.end() || !has("count") || !has("algbw")) return std::nullopt;
  const auto first_time = std::find_if(begin, words.end(), [](std::string_view word) {
    return word == "time" || word == "cputime";
  });
  if (first_time == words.end()) return std::nullopt;
  Columns columns;
  columns.lead = static_cast<std::size_t>(first_time - begin);
  columns.has_redop = has("redop");
  columns.has_root = has("root");
  columns.body = has("i_min") ? 8 : 4;
  columns.counts_wrong = has("#wrong");
  return columns;
}

std::size_t offset_in(std::string_view line, std::string_view word) {
  return static_cast<std::size_t>(word.data() - line.data());
}

// One "time algbw busbw #wrong" of a row; absent where it has no usable time.
std::optional<NcclTestsRow::Times> times_of(std::span<const std::string_view> words,
                                            const Columns& columns) {
  const std::optional<double> us = number_of(words[0]);
  const std::optional<double> algbw = number_of(words[1]);
  const std::optional<double> busbw = number_of(words[2]);
  if (!us || !algbw || !busbw || *us <= 0) return std::nullopt;
  NcclTestsRow::Times times{.us = *us, .algbw = *algbw, .busbw = *busbw};
  const std::optional<double> wrong = number_of(words[3]);  // "N/A": not checked
  times.is_wrong = columns.counts_wrong && wrong && *wrong != 0;
  return times;
}

// Where the words of a row begin, behind whatever a launcher put before them.
std::optional<std::size_t> row_start(const Words& words) {
  for (std::size_t i = 0; i + 5 < words.size(); ++i) {
    const auto is_type = std::ranges::find(kTypes, words[i + 2]) != kTypes.end();
    if (is_type && integer_of(words[i]) && integer_of(words[i + 1])) return i;
  }
  return std::nullopt;
}

class TextReader {
 public:
  TextReader(std::string name, CollectiveLog& log) : name_(std::move(name)), log_(log) {}

  void line(std::string_view text, std::size_t number) {
    const Words words = words_of(text);
    if (words.empty()) return;
    if (contains(text, "nThread") && contains(text, "nGpus")) return begin_run(number);
    if (contains(text, "# nccl-tests version") || contains(text, "rccl-tests: Version")) {
      return version(text);
    }
    if (contains(text, "Blocking Enabled")) run().is_blocking = true;
    if (contains(text, "Rank") && contains(text, " device ")) return device(text, number);
    if (const std::optional<Columns> columns = columns_of(words)) {
      return header(*columns, words, number);
    }
    if (const std::optional<std::size_t> start = row_start(words)) {
      return row(text, {words.begin() + static_cast<std::ptrdiff_t>(*start), words.end()}, number);
    }
    program(words);
  }

  std::vector<NcclTestsRun> finish() {
    end_run();
    return std::move(runs_);
  }

 private:
  static bool contains(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
  }

  // The run that lines belong to: a log without its first lines begins with one, too.
  NcclTestsRun& run() {
    if (!open_) {
      run_ = {.place = "line 1", .program = std::exchange(program_, "")};
      open_ = true;
    }
    return run_;
  }

  [[nodiscard]] bool has_rows() const { return open_ && !run_.rows.empty(); }

  void begin_run(std::size_t number) {
    end_run();
    run_ = {.place = "line " + std::to_string(number), .program = std::exchange(program_, "")};
    open_ = true;
  }

  void end_run() {
    if (!open_) return;
    open_ = false;
    if (!ranks_.empty()) {
      const auto groups = static_cast<std::int64_t>(std::max<std::size_t>(groups_.size(), 1));
      const auto all = static_cast<std::int64_t>(ranks_.size());
      run_.groups = groups;
      run_.ranks = std::max<std::int64_t>(all / groups, 1);
      run_.nodes = std::max<std::int64_t>(static_cast<std::int64_t>(hosts_.size()), 1);
    }
    ranks_.clear();
    groups_.clear();
    hosts_.clear();
    columns_ = {};
    if (!run_.rows.empty() || !run_.remarks.empty()) runs_.push_back(std::move(run_));
    run_ = {};
  }

  void version(std::string_view text) {
    const std::string_view number = word_after(text, "ersion");
    const bool amd = contains(text, "rccl-tests");
    log_.tool = std::string(amd ? "rccl-tests " : "nccl-tests ") + printable(number);
    const std::string_view library = "nccl-library=";
    if (const std::size_t at = text.find(library); at != std::string_view::npos) {
      const std::string_view digits = text.substr(at + library.size());
      if (const auto code = integer_of(words_of(digits).empty() ? "" : words_of(digits).front())) {
        log_.nccl = nccl_version(*code);
      }
    }
  }

  // "#  Rank  3 Group  0 Pid  37300 on   g100n126 device  3 [0000:65:00] AMD Instinct MI300X"
  void device(std::string_view text, std::size_t number) {
    const std::optional<std::int64_t> rank = integer_after(text, "Rank");
    const std::string_view name = text.substr(std::min(text.size(), text.find(']') + 1));
    if (!rank || text.find(']') == std::string_view::npos) return;
    if (has_rows()) begin_run(number);  // the next one, whose first lines are missing
    NcclTestsRun& current = run();
    if (!ranks_.insert(*rank).second) {
      throw InputError(name_ + ": line " + std::to_string(number) + ": rank " +
                       std::to_string(*rank) +
                       " stands twice in one run: nccl-tests was built without MPI=1, so each "
                       "process ran alone; build it with MPI=1");
    }
    if (const auto group = integer_after(text, "Group")) groups_.insert(*group);
    hosts_.emplace(word_after(text, " on "));
    const std::string gpu = printable(trimmed(name));
    if (current.gpu.empty()) current.gpu = gpu;
    if (!gpu.empty() && gpu != current.gpu && !mixed_) {
      mixed_ = true;
      log_.left_out.push_back(name_ + ": the ranks have different GPUs: " + current.gpu + " and " +
                              gpu);
    }
  }

  void header(const Columns& columns, const Words& words, std::size_t number) {
    if (has_rows()) begin_run(number);
    columns_ = columns;
    if (std::ranges::find(words, "cputime") != words.end()) run().is_cpu_time = true;
  }

  void row(std::string_view line, const Words& words, std::size_t number) {
    NcclTestsRun& current = run();
    NcclTestsRow row{.place = "line " + std::to_string(number)};
    row.bytes = *integer_of(words[0]);
    row.dtype = words[2];
    const std::size_t lead = columns_.lead;
    if (words.size() < lead + 4) return remark(number, "it is cut off");
    if (columns_.has_redop) row.redop = words[3];
    if (columns_.has_root) row.root = integer_of(words[lead - 1]).value_or(-1);
    const std::span<const std::string_view> rest = std::span(words).subspan(lead);
    const std::size_t gap =
        offset_in(line, rest[0]) - offset_in(line, words[lead - 1]) - words[lead - 1].size();
    constexpr std::size_t kBlankBody = 30;  // out-of-place columns that were left blank
    if (rest.size() >= 2 * columns_.body) {
      row.out_of_place = times_of(rest, columns_);
      row.in_place = times_of(rest.subspan(columns_.body), columns_);
    } else if (gap >= kBlankBody) {
      row.in_place = times_of(rest, columns_);
    } else {
      row.out_of_place = times_of(rest, columns_);
      remark(number, "its in-place columns are cut off");
    }
    if (!row.in_place && !row.out_of_place) return remark(number, "it has no usable time");
    current.rows.push_back(std::move(row));
  }

  void remark(std::size_t number, const std::string& what) {
    run().remarks.push_back("line " + std::to_string(number) + ": " + what);
  }

  // "# Collective test starting: all_reduce_perf", or the command that a shell has echoed.
  void program(const Words& words) {
    for (const std::string_view word : words) {
      std::string_view base = word.substr(word.find_last_of("/\\=\"'") + 1);
      if (const std::string_view end = "_mpi"; base.ends_with(end)) base.remove_suffix(end.size());
      if (std::ranges::find(kPrograms, base) != kPrograms.end()) program_ = base;
    }
  }

  std::string name_;
  CollectiveLog& log_;
  std::vector<NcclTestsRun> runs_;
  NcclTestsRun run_;
  bool open_ = false;
  bool mixed_ = false;
  std::string program_;  // named last, for the run that begins next
  Columns columns_;
  std::set<std::int64_t> ranks_, groups_;
  std::set<std::string, std::less<>> hosts_;
};

}  // namespace

std::string nccl_version(std::int64_t code) {
  if (code <= 0) return "";
  const bool is_new = code >= 10000;  // 2.9 and later: 20900; before: 2806
  const std::int64_t major = is_new ? code / 10000 : code / 1000;
  const std::int64_t minor = is_new ? code / 100 % 100 : code / 100 % 10;
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(code % 100);
}

CollectiveLog read_nccl_tests(const std::string& name, std::string_view text,
                              const NcclTestsOptions& options) {
  CollectiveLog log;
  log.tool = "nccl-tests";
  std::vector<NcclTestsRun> runs;
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && text[first] == '{') {
    runs.push_back(read_nccl_tests_json(name, text, log));
  } else {
    TextReader reader(name, log);
    for_each_line(text,
                  [&](std::string_view line, std::size_t number) { reader.line(line, number); });
    runs = reader.finish();
  }
  for (const NcclTestsRun& run : runs) add_run(name, run, options, log);
  if (log.samples.empty()) {
    std::string why;
    for (const std::string& reason : log.left_out) why += "; " + reason;
    throw InputError(name +
                     ": no usable row of nccl-tests (expected lines such as \"8388608 "
                     "2097152 float sum -1 91.10 92.08 161.14 0 94.94 88.36 154.63 0\")" +
                     why);
  }
  return log;
}

}  // namespace dovetail::imports
