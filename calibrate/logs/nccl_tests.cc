// Reads logs of nccl-tests as text, line by line: header lines say what the columns are, and rows
// are recognised behind whatever a launcher put before them. What a run means is decided in
// nccl_tests_run.cc.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/logs/nccl_tests.h"

#include "base/error.h"
#include "calibrate/logs/log_lines.h"
#include "recordings/limits.h"
#include "recordings/text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
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

// What a row of numbers itself says of its columns, where the log lost its header line: numbers stand in
// groups of four behind size, count, type, redop and, in newer programs, the root.
Columns guessed_columns(const Words& words) {
  Columns columns;
  columns.has_redop = words.size() > 3 && !number_of(words[3]);
  const std::size_t first = columns.has_redop ? 4 : 3;
  columns.has_root = (words.size() - std::min(first, words.size())) % 4 == 1;
  columns.lead = first + (columns.has_root ? 1 : 0);
  return columns;
}

std::size_t offset_in(std::string_view line, std::string_view word) {
  return static_cast<std::size_t>(word.data() - line.data());
}

// Half of the last digit of a printed number: 0.005 of "91.10", 50 of "1.2e+03".
double half_digit(std::string_view word) {
  const std::size_t exponent = std::min(word.find_first_of("eE"), word.size());
  const std::size_t point = word.substr(0, exponent).find('.');
  double half = 0.5;
  for (std::size_t i = point; i < exponent && i + 1 < exponent; ++i) half /= 10;
  if (exponent < word.size()) {
    std::string_view power = word.substr(exponent + 1);
    if (power.starts_with('+')) power.remove_prefix(1);
    half *= std::pow(10, std::clamp<std::int64_t>(integer_of(power).value_or(0), -30, 30));
  }
  return half;
}

// One "time algbw busbw #wrong" of a row; absent where it has no usable time.
std::optional<NcclTestsRow::Times> times_of(std::span<const std::string_view> words,
                                            const Columns& columns) {
  const std::optional<double> us = number_of(words[0]);
  const std::optional<double> algbw = number_of(words[1]);
  const std::optional<double> busbw = number_of(words[2]);
  if (!us || !algbw || !busbw || *us <= 0) return std::nullopt;
  NcclTestsRow::Times times{.us = *us,
                            .algbw = *algbw,
                            .busbw = *busbw,
                            .us_error = half_digit(words[0]),
                            .algbw_error = half_digit(words[1]),
                            .busbw_error = half_digit(words[2])};
  // "N/A": not checked. Below 1 it is an error of the values, which is no count of wrong ones.
  const std::optional<double> wrong = number_of(words[3]);
  times.is_checked = wrong.has_value();
  times.is_wrong = columns.counts_wrong && wrong && *wrong >= 1;
  return times;
}

// Where the words of a row begin, behind whatever a launcher put before them.
std::optional<std::size_t> row_start(const Words& words) {
  for (std::size_t i = 0; i + 3 < words.size(); ++i) {
    const auto is_type = std::ranges::find(kTypes, words[i + 2]) != kTypes.end();
    if (is_type && integer_of(words[i]) && integer_of(words[i + 1])) return i;
  }
  return std::nullopt;
}

// "91.10", "2e-07", "N/A", "nan": what may stand in a column of times.
bool is_figure(std::string_view word) {
  constexpr std::array<std::string_view, 7> kOther = {"N/A",  "nan", "-nan", "inf",
                                                      "-inf", "NaN", "NA"};
  return number_of(word) || std::ranges::find(kOther, word) != kOther.end();
}

// Where a line of the program itself begins behind what a launcher put there: at its '#', or where that was
// stripped at the words it begins with. npos: it is none that is known.
std::size_t known_beginning(std::string_view line) {
  constexpr std::array<std::string_view, 9> kWords = {
      "nThread ", "Rank ", "Using devices", "nccl-tests version", "Collective test",
      "size ",    "(B) ",  "Out of bounds", "Avg bus bandwidth"};
  for (const std::string_view word : kWords) {
    std::size_t at = line.find(word);
    if (word == "Rank " && at != std::string_view::npos &&
        !integer_of(word_after(line.substr(at), word))) {
      continue;
    }
    if (at == std::string_view::npos) continue;
    while (at > 0 && (line[at - 1] == ' ' || line[at - 1] == '\t')) --at;
    return at > 0 && line[at - 1] == '#' ? at - 1 : at;
  }
  return std::string_view::npos;
}

// A row of a table in Markdown, or of comma-separated values, as one of blanks. `storage` holds it.
std::string_view without_frame(std::string_view line, std::string& storage) {
  constexpr std::ptrdiff_t kFewest = 6;
  const bool is_framed = std::ranges::count(line, '|') >= kFewest;
  const bool is_separated = std::ranges::count(line, ',') >= kFewest && words_of(line).size() < 4;
  if (!is_framed && !is_separated) return line;
  storage = line;
  std::ranges::replace(storage, is_framed ? '|' : ',', ' ');
  return storage;
}

// "a.log:" of grep; other prefixes are tags, whose numbers change within a run.
bool names_file(std::string_view prefix) {
  const std::size_t point = prefix.find_last_of('.');
  return prefix.ends_with(':') && point != std::string_view::npos &&
         std::isalpha(static_cast<unsigned char>(prefix[point + 1])) != 0 &&
         prefix.find_first_of(" []()<>") == std::string_view::npos;
}

// A row whose numbers may come in pieces: nccl-tests writes each kind of buffers on its own, and what other
// threads write meanwhile stands in between.
struct OpenRow {
  std::size_t line = 0;
  std::string origin{};
  std::vector<std::string> words{};  // without what is none of the row's
  std::size_t blanks = 0;            // between the lead and the first time
  bool is_split = false;
};

class TextReader {
 public:
  TextReader(std::string name, CollectiveLog& log) : name_(std::move(name)), log_(log) {}

  // First for all lines: what launchers put before them, and which hosts there are.
  void learn(std::string_view raw) {
    std::string storage, unframed;
    std::string_view text = without_frame(plain(raw, storage), unframed);
    if (const std::optional<NcclLine> line = nccl_line(text, known_hosts_)) {
      if (known_hosts_.size() < kMostHosts && !line->host.empty()) known_hosts_.emplace(line->host);
      tags_.learn(text.substr(0, line->begin));
      text = text.substr(0, line->begin);
    }
    const std::size_t begin = known_beginning(text);
    if (begin != std::string_view::npos) return tags_.learn(text.substr(0, begin));
    const Words words = words_of(text);
    if (const std::optional<std::size_t> start = row_start(words)) {
      tags_.learn(text.substr(0, offset_in(text, words[*start])));
    }
  }

  void line(std::string_view raw, std::size_t number) {
    std::string storage, unframed;
    std::string_view text = without_frame(plain(raw, storage), unframed);
    if (const std::optional<NcclLine> other = nccl_line(text, known_hosts_)) {
      text = text.substr(0, other->begin);
    }
    const Words words = words_of(text);
    if (words.empty()) return;
    if (contains(text, "nThread") && contains(text, "nGpus")) return begin_run(number);
    if (contains(text, "# nccl-tests version") || contains(text, "rccl-tests: Version")) {
      return version(text);
    }
    if (const auto version = library_version(text); version && log_.nccl.empty()) {
      log_.nccl = printable(version->version.substr(0, version->version.find('+')));
      log_.library = version->library;
    }
    if (contains(text, "Blocking Enabled")) run().is_blocking = true;
    if (contains(text, "Out of bounds values") && contains(text, "FAILED") && open_) {
      run_.verdict = printable(trimmed(text.substr(text.find("Out of bounds values"))));
    }
    if (contains(text, "Rank") && contains(text, " device ")) return device(text, number);
    if (const std::optional<Columns> columns = columns_of(words)) {
      return header(*columns, words);
    }
    if (const std::optional<std::size_t> start = row_start(words)) {
      const std::size_t at = offset_in(text, words[*start]);
      return begin_row(trimmed(text.substr(0, at)), text.substr(at), number);
    }
    if (!continue_row(text)) program(words);
  }

  std::vector<NcclTestsRun> finish() {
    end_run();
    return std::move(runs_);
  }

 private:
  static constexpr std::size_t kMostHosts = 4096;

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
    run_ = {.place = "line " + std::to_string(number),
            .program = std::exchange(program_, ""),
            .has_head = true};
    open_ = true;
  }

  void end_run() {
    end_row();
    if (!open_) return;
    open_ = false;
    if (!ranks_.empty()) {
      // The highest rank, as lines may be lost; then hosts may be, too.
      const std::int64_t all = std::min(*ranks_.rbegin() + 1, kMostRanks);
      run_.groups = static_cast<std::int64_t>(std::max<std::size_t>(groups_.size(), 1));
      run_.ranks = std::max<std::int64_t>(all / run_.groups, 1);
      if (all == static_cast<std::int64_t>(ranks_.size())) {
        run_.nodes = std::max<std::int64_t>(static_cast<std::int64_t>(hosts_.size()), 1);
      }
    }
    ranks_.clear();
    groups_.clear();
    hosts_.clear();
    columns_.reset();
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

  // "#  Rank  3 Group  0 Pid  37300 on   g100n126 device  3 [0000:65:00] AMD Instinct MI300X", behind any tag:
  // brackets may stand before it, so the name is what follows the bracket behind "device".
  void device(std::string_view text, std::size_t number) {
    const std::size_t at = std::min(text.find("Rank "), text.find("Rank\t"));
    if (at == std::string_view::npos) return;
    text.remove_prefix(at);
    const std::optional<std::int64_t> rank = integer_after(text, "Rank");
    const std::string_view place = text.substr(std::min(text.size(), text.find(" device ")));
    const std::size_t bracket = place.find(']');
    if (!rank || *rank < 0 || *rank >= kMostRanks || bracket == std::string_view::npos) return;
    end_row();
    if (has_rows() || !open_) begin_run(number);  // the next one, whose first lines are missing
    NcclTestsRun& current = run();
    current.has_head = true;
    if (!ranks_.insert(*rank).second) {
      throw InputError(name_ + ": line " + std::to_string(number) + ": rank " +
                       std::to_string(*rank) +
                       " stands twice in one run: nccl-tests was built without MPI=1, so each "
                       "process ran alone; build it with MPI=1");
    }
    if (const auto group = integer_after(text, "Group")) groups_.insert(*group);
    hosts_.emplace(word_after(text, " on "));
    const std::string gpu = printable(trimmed(place.substr(bracket + 1)));
    if (current.gpu.empty()) current.gpu = gpu;
    if (!gpu.empty() && gpu != current.gpu && !mixed_) {
      mixed_ = true;
      log_.left_out.push_back(name_ + ": the ranks have different GPUs: " + current.gpu + " and " +
                              gpu);
    }
  }

  void header(const Columns& columns, const Words& words) {
    end_row();
    if (has_rows()) end_run();
    columns_ = columns;
    if (std::ranges::find(words, "cputime") != words.end()) run().is_cpu_time = true;
  }

  // Takes from the text what may belong to a row. A word that something is glued to ends it: its number
  // counts where one is due.
  void take(std::string_view text, OpenRow& row) const {
    const std::string clean = tags_.without(text);
    for (const std::string_view word : words_of(clean)) {
      const std::size_t have = row.words.size();
      if (have < 3 || is_figure(word) ||
          (have == 3 && std::isalpha(static_cast<unsigned char>(word.front())) != 0)) {
        row.words.emplace_back(word);
        continue;
      }
      std::size_t end = word.size();
      while (end > 0 && !number_of(word.substr(0, end))) --end;
      const bool is_due = have == 4 || (have + 1 - columns_.value_or(Columns{}).lead) % 4 == 0;
      if (end > 0 && is_due) row.words.emplace_back(word.substr(0, end));
      return;
    }
  }

  void begin_row(std::string_view prefix, std::string_view text, std::size_t number) {
    end_row();
    OpenRow row{.line = number};
    if (names_file(prefix)) row.origin = prefix;
    take(text, row);
    const Words words(row.words.begin(), row.words.end());
    if (row_start(words) != std::size_t{0}) return;
    const std::size_t lead = columns_for(words).lead;
    const Words all = words_of(text);
    if (words.size() > lead && all.size() > lead) {
      const std::string_view last = all[lead - 1];
      row.blanks = offset_in(text, all[lead]) - offset_in(text, last) - last.size();
    }
    row_ = std::move(row);
  }

  // Whether the line was a piece of the open row: groups of four numbers and nothing else.
  bool continue_row(std::string_view text) {
    if (!row_ || row_->words.size() >= lead_and_body()) return false;
    OpenRow piece{.words = {"", "", "", ""}};
    take(text, piece);
    const std::size_t figures = piece.words.size() - 4;
    const bool fits = figures > 0 && figures % 4 == 0 &&
                      std::all_of(piece.words.begin() + 4, piece.words.end(), is_figure);
    if (!fits) return false;
    row_->words.insert(row_->words.end(), piece.words.begin() + 4, piece.words.end());
    row_->is_split = true;
    return true;
  }

  [[nodiscard]] std::size_t lead_and_body() const {
    const Columns columns = columns_for(Words(row_->words.begin(), row_->words.end()));
    return columns.lead + 2 * columns.body;
  }

  // The header's, if the row has as many numbers as it says; else what the row itself shows.
  [[nodiscard]] Columns columns_for(const Words& words) const {
    const Columns said = columns_.value_or(Columns{});
    const Columns guessed = guessed_columns(words);
    const bool holds = words.size() >= said.lead && (words.size() - said.lead) % 4 == 0;
    if ((columns_ && holds) || (words.size() > 4 && words[4] == "-1" && said.has_root)) return said;
    return words.size() >= guessed.lead && (words.size() - guessed.lead) % 4 == 0 ? guessed : said;
  }

  void end_row() {
    if (!row_) return;
    const OpenRow open = *std::exchange(row_, std::nullopt);
    const Words words(open.words.begin(), open.words.end());
    const Columns columns = columns_for(words);
    const std::size_t lead = columns.lead;
    if (words.size() < lead + 4) return remark(open.line, "it is cut off");
    NcclTestsRow row{.line = open.line, .origin = open.origin};
    row.bytes = *integer_of(words[0]);
    row.dtype = words[2];
    if (columns.has_redop) row.redop = words[3];
    if (columns.has_root) row.root = integer_of(words[lead - 1]).value_or(-1);
    const std::span<const std::string_view> rest = std::span(words).subspan(lead);
    constexpr std::size_t kBlankBody = 30;  // out-of-place columns that were left blank
    if (rest.size() >= 2 * columns.body) {
      row.out_of_place = times_of(rest, columns);
      row.in_place = times_of(rest.subspan(columns.body), columns);
    } else if (!open.is_split && open.blanks >= kBlankBody) {
      row.in_place = times_of(rest, columns);
    } else {
      row.out_of_place = times_of(rest, columns);
      remark(open.line, "its in-place columns are cut off");
    }
    if (!row.in_place && !row.out_of_place) return remark(open.line, "it has no usable time");
    run().rows.push_back(std::move(row));
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
  LauncherTags tags_;
  std::set<std::string, std::less<>> known_hosts_;
  std::vector<NcclTestsRun> runs_;
  NcclTestsRun run_;
  std::optional<OpenRow> row_;
  bool open_ = false;
  bool mixed_ = false;
  std::string program_;  // named last, for the run that begins next
  std::optional<Columns> columns_;
  std::set<std::int64_t> ranks_, groups_;
  std::set<std::string, std::less<>> hosts_;
};

// Texts that hold the same measurements in a form that is not read, by words that only they have.
struct OtherForm {
  std::string_view mark;
  const char* what;
};
constexpr std::array kOtherForms = {
    OtherForm{"\"nccl-tests structured output\"",
              "the JSON of a fork of nccl-tests (\"nccl-tests structured output\", sizes as keys)"},
    OtherForm{"\"busBw\"", "the JSON of rccl-tests (-Z json)"},
    OtherForm{"algBw,busBw", "the table of rccl-tests (-Z csv)"},
};

[[noreturn]] void refuse(const Source& file, const CollectiveLog& log) {
  for (const OtherForm& form : kOtherForms) {
    if (file.text.find(form.mark) == std::string_view::npos) continue;
    throw InputError(
        file.name + ": " + form.what +
        ", which is not read; what NVIDIA's nccl-tests and rccl-tests print is, and the "
        "JSON of NVIDIA's (-J FILE)");
  }
  std::string why;
  for (const std::string& reason : log.left_out) why += (why.empty() ? ": " : "; ") + reason;
  if (why.empty()) {
    why =
        " (expected lines such as \"8388608 2097152 float sum -1 91.10 92.08 161.14 0 94.94 88.36 "
        "154.63 0\")";
  }
  throw InputError(file.name + ": no usable row of nccl-tests" + why);
}

std::vector<NcclTestsRun> runs_of(const Source& file, CollectiveLog& log) {
  std::string storage;
  const std::string_view text = file.text;
  const std::size_t first = text.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  if (first != std::string_view::npos && text[first] == '{' &&
      text.find("\"results\"") != std::string_view::npos) {
    return {read_nccl_tests_json(file.name, text, log)};
  }
  TextReader reader(file.name, log);
  for_each_line(text, [&](std::string_view line, std::size_t) { reader.learn(line); });
  for_each_line(text,
                [&](std::string_view line, std::size_t number) { reader.line(line, number); });
  return reader.finish();
}

}  // namespace

std::string nccl_version(std::int64_t code) {
  if (code <= 0) return "";
  const bool is_new = code >= 10000;  // 2.9 and later: 20900; before: 2806
  const std::int64_t major = is_new ? code / 10000 : code / 1000;
  const std::int64_t minor = is_new ? code / 100 % 100 : code / 100 % 10;
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(code % 100);
}

CollectiveLog read_nccl_tests(std::span<const Source> files, const NcclTestsOptions& options) {
  CollectiveLog all;
  std::vector<NcclTestsPart> parts;
  for (const Source& file : files) {
    CollectiveLog log;
    log.tool = "nccl-tests";
    const std::size_t before = parts.size();
    for (const NcclTestsRun& run : runs_of(file, log)) {
      for (NcclTestsPart& part : parts_of(file.name, run, options, log)) {
        parts.push_back(std::move(part));
      }
    }
    if (parts.size() == before) refuse(file, log);
    append(all, std::move(log));
  }
  add_parts(std::move(parts), options, all);
  if (all.samples.empty()) refuse(files.empty() ? Source{"no file", ""} : files.front(), all);
  return all;
}

}  // namespace dovetail::imports
