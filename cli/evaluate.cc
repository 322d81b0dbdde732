// A line is read strictly as a Question, and its Outcome is written in one line. A line with a mistake is read again as a whole, so that the mistake is told of the line as it stands.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/evaluate.h"
#include "cli/answer.h"

#include <array>
#include <cmath>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "answers/inputs.h"
#include "answers/weigher.h"
#include "base/attempt.h"
#include "base/error.h"
#include "base/interruption.h"
#include "base/json.h"
#include "base/json_reader.h"
#include "base/parallel.h"
#include "cli/document.h"
#include "cli/export_job.h"
#include "cli/fault.h"
#include "cli/plain_groups.h"
#include "cli/signals.h"
#include "frameworks/framework.h"
#include "schedule/plan_json.h"

namespace dovetail::cli {
namespace {

using nlohmann::ordered_json;
using std::string_literals::operator""s;

// What is wanted of a line.
enum class Wanted { Step, Gradients, Plan };
constexpr auto words_of(Wanted) { return words("step", "gradients", "plan"); }

// An object on one line, written member by member: making a tree of values first takes as long as a prediction.
class Members {
 public:
  // `json`: how the value is written.
  Members& add(std::string_view key, std::string_view json) {
    ((((text_ += text_.empty() ? "{\"" : ",\"") += key) += "\":") += json);
    return *this;
  }
  // Gives the text away.
  [[nodiscard]] std::string end() { return std::move(text_ += '}'); }

 private:
  std::string text_;
};

constexpr const char* kNull = "null";

std::string json_of(double number) {
  if (!std::isfinite(number)) return kNull;
  std::array<char, 64> digits{};
  return {digits.data(),
          nlohmann::detail::to_chars(digits.data(), digits.data() + digits.size(), number)};
}
std::string json_of(Duration time) { return json_of(to_us(time)); }
std::string json_of(Bytes bytes) { return std::to_string(bytes.count()); }
std::string json_of(bool is_so) { return is_so ? "true" : "false"; }
std::string json_of(const std::string& text) { return ordered_json(text).dump(); }
template <class T>
std::string json_of(const std::optional<T>& value) {
  return value ? json_of(*value) : kNull;
}

std::string json_of(const predict::StepRange& range) {
  return Members()
      .add("p5_us", json_of(range.p5))
      .add("p50_us", json_of(range.p50))
      .add("p95_us", json_of(range.p95))
      .end();
}

std::string host_bound_json(const std::vector<predict::HostPhase>& phases) {
  std::string list;
  for (const predict::HostPhase& one : phases) {
    list +=
        (list.empty() ? "" : ",") + Members()
                                        .add("phase", json_of(std::string(to_string(one.phase))))
                                        .add("share", json_of(one.share))
                                        .add("host_us", json_of(one.host))
                                        .add("device_us", json_of(one.device))
                                        .end();
  }
  return "[" + list + "]";
}

std::string memory_json(const schedule::Room& room) {
  const Bytes held = room.held.total();
  return Members()
      .add("held_bytes", json_of(held))
      .add("low_bytes", json_of(room.low))
      .add("high_bytes", json_of(room.high))
      .add("device_bytes", json_of(room.capacity))
      .add("fits", json_of(!room.capacity || held <= *room.capacity))
      .add("room", json_of(std::string(to_string(room.fits()))))
      .end();
}

// By what it is for; null where only the sum is known.
std::string exposed_json(const answers::Exposed& exposed) {
  if (!exposed.by_purpose) return kNull;
  Members by;
  for (const predict::For purpose : kAllOf<predict::For>) {
    const Duration time = (*exposed.by_purpose)[static_cast<std::size_t>(purpose)];
    by.add(std::string(to_string(purpose)) + "_us", json_of(time));
  }
  return by.end();
}

// What a line is called by who asks: text or a number.
std::string id_of(const JsonValue& value) {
  return value.is_string() ? ordered_json(value.string()).dump() : std::to_string(value.integer());
}

// `names` keeps what the groups look at.
schedule::NamedGroups groups_in(const JsonArray& array, std::deque<std::string>& names) {
  schedule::NamedGroups groups;
  for (const JsonValue group : array) {
    std::vector<std::string_view>& members = groups.emplace_back();
    for (const JsonValue name : group.array()) members.push_back(names.emplace_back(name.string()));
    if (members.empty()) group.fail("expected at least one gradient");
  }
  return groups;
}

// A line, read.
struct Line {
  // It looks at the line.
  static Line of(std::string_view text) {
    if (std::optional<PlainGroups> plain = plain_groups_in(text)) {
      // What is wrong is told of the whole line.
      if (auto line = attempt([&] { return Line(plain->rest); })) {
        line.value->asked.groups = std::move(plain->groups);
        return *std::move(line.value);
      }
    }
    return Line(text);
  }

  explicit Line(std::string_view text) {
    const JsonFile file("line", text);
    JsonObject root = file.root();
    if (root.has("id")) id = id_of(root.at("id"));
    asked.workload = root.string_or("workload", "");
    asked.job = root.string_or("job", "");
    asked.cluster = root.string_or("cluster", "");
    if (root.has("world")) asked.world = root.integer("world", 1, INT32_MAX);
    const std::string layout = root.string_or("layout", "");
    const std::string what_if = root.string_or("what_if", "");
    asked.force = root.has("force") && root.at("force").boolean();
    asked.whole = root.has("whole") && root.at("whole").boolean();
    const std::string target = root.string_or("framework", "torch");
    asked.policy = root.string_or("policy", "");
    if (root.has("groups")) asked.groups = groups_in(root.array("groups"), names);
    notes = root.has("notes") && root.at("notes").boolean();
    if (root.has("want")) wanted = root.one_of<Wanted>("want");
    root.done();
    asked.require_subject("line");
    if (!layout.empty()) asked.layout = predict::parse_layout(layout);
    if (!what_if.empty()) asked.what_if = models::parse_what_if(what_if);
    asked.target = &frameworks::parse_framework("framework", target, frameworks::has_rows);
  }

  // What is asked about the subject on its machine, in one text.
  [[nodiscard]] std::string asks() const {
    std::string text = asked.policy + '\n' + std::string(asked.target->id) + '\n' +
                       std::string(to_string(wanted)) + (notes ? "n" : "") +
                       (asked.whole ? "w" : "");
    if (!asked.groups) return text;
    for (const std::vector<std::string_view>& group : *asked.groups) {
      text += '\n';
      for (const std::string_view name : group) {
        text += name;
        text += '\t';
      }
    }
    return text;
  }

  answers::Question asked;
  std::string id;                 // as JSON; "": none
  std::deque<std::string> names;  // of groups that are not plain
  bool notes = false;
  Wanted wanted = Wanted::Step;
};

ordered_json gradients_json(const std::vector<answers::GradientFacts>& gradients) {
  ordered_json rows = ordered_json::array();
  for (const answers::GradientFacts& gradient : gradients) {
    rows.push_back({{"name", gradient.name},
                    {"bytes", gradient.bytes.count()},
                    {"elements", gradient.elements},
                    {"ready_us", to_us(gradient.ready)},
                    {"kind", gradient.kind}});
  }
  return {{"gradients", std::move(rows)}};
}

// All that an outcome says: the same keys of every workload, and of every job those of its figures besides. `command`: that
// makes the framework's file of a job as it is; "": none.
Members outcome_json(const answers::Outcome& found, const std::string& command) {
  const std::optional<Duration> bound = found.bound ? found.bound->time : std::nullopt;
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? kNull : json_of(text);
  };
  Members all;
  all.add("origin", json_of("simulated"s));
  if (found.job) all.add("job", json_of(found.job->job));
  all.add("policy", text_or_null(found.policy))
      .add("step_us", json_of(found.step))
      .add("now_us", json_of(found.now))
      .add("interval", found.range ? json_of(*found.range) : kNull)
      .add("host_bound", host_bound_json(found.host_bound))
      .add("exposed_us", json_of(found.exposed.total))
      .add("communication_us", json_of(found.communication))
      .add("compute_us", json_of(found.compute))
      .add("micro_steps", std::to_string(found.micro_steps))
      .add("buckets", found.buckets ? std::to_string(*found.buckets) : kNull)
      .add("lower_bound_us", json_of(bound))
      .add("gap_percent", json_of(found.gap()))
      .add("left_us", json_of(found.left()))
      .add("memory", memory_json(found.memory))
      .add("as_run", json_of(found.told.is_changed))
      .add("in_words", text_or_null(found.told.words))
      .add("paste", command.empty() ? json_of(found.told.paste()) : json_of(command));
  if (found.job) {
    all.add("exposed", exposed_json(found.exposed))
        .add("bubble_us", json_of(found.job->bubble))
        .add("tokens_per_s_per_gpu", json_of(found.job->figures.tokens_per_s_per_gpu))
        .add("mfu", json_of(found.job->figures.mfu))
        .add("idle_ranks", std::to_string(found.job->idle_ranks));
  }
  return all;
}

std::string one_line(const ordered_json& answer) {
  return answer.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string answer_at(answers::Site& site, const Line& line) {
  if (line.wanted == Wanted::Gradients) return gradients_json(site.gradients()).dump();
  if (line.wanted == Wanted::Plan) {
    return ordered_json{{"plan", with_tool(schedule::plan_to_json(site.plan(line.asked).plan))}}
        .dump();
  }
  const answers::Outcome found = site.weigh(line.asked);
  std::string command;
  if (site.job() && !line.asked.names_schedule()) {
    command = export_job_command(*site.job(), found.job->job, line.asked.cluster);
  }
  Members answer = outcome_json(found, command);
  if (found.job && site.job()) answer.add("assumed", assumed_json(site.job()->assumed).dump());
  if (line.notes) answer.add("notes", ordered_json(site.notes(found)).dump());
  return answer.end();
}

// The answer to a line, which may be read already.
std::string answer_line(answers::Weigher& weigher, std::string_view line,
                        std::optional<Line> read) {
  std::string id;
  std::string text;
  try {
    if (!read) read = Line::of(line);
    id = read->id;
    weigher.at_site(read->asked, [&](answers::Site& site) {
      text = site.remembered(read->asks(), [&] { return answer_at(site, *read); });
    });
  } catch (const InputError& error) {
    text = one_line({{"error", error.what()}});
  } catch (const std::exception& error) {  // a CheckError, or no memory
    text = one_line({{"error", std::string(error.what()) + "; " + kFault + " this line"},
                     {"internal", true},
                     {"line", line}});
  }
  return id.empty() ? text : "{\"id\":" + id + "," + text.substr(1);
}

}  // namespace

Evaluator::Evaluator(std::string data_dir)
    : weigher_(std::make_unique<answers::Weigher>(std::move(data_dir))) {}
Evaluator::~Evaluator() = default;

std::string Evaluator::answer(std::string_view line) {
  return answer_line(*weigher_, line, std::nullopt);
}

void Evaluator::answer_all(const std::vector<std::string>& lines,
                           const std::function<void(const std::string& answer)>& use) {
  std::map<std::string, std::size_t> known;  // index into `sites` of each key
  std::vector<std::vector<std::size_t>> sites;
  std::vector<std::optional<Line>> read(lines.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::string key;
    try {
      read[i] = Line::of(lines[i]);
      key = answers::site_key(read[i]->asked);
    } catch (const std::exception&) {  // which is its answer
      read[i].reset();
    }
    const auto [site, is_new] = known.try_emplace(key, sites.size());
    if (is_new) sites.emplace_back();
    sites[site->second].push_back(i);
  }
  std::mutex using_them;
  std::vector<std::optional<std::string>> answered(lines.size());
  std::size_t used = 0;
  parallel_for(sites.size(), [&](std::size_t site) {
    for (const std::size_t i : sites[site]) {
      throw_if_interrupted();
      std::string text = answer_line(*weigher_, lines[i], std::move(read[i]));
      const std::scoped_lock lock(using_them);
      answered[i] = std::move(text);
      while (used < answered.size() && answered[used]) use(*answered[used++]);
    }
  });
}

void evaluate(const EvaluateOptions& options, std::istream& in, std::ostream& out) {
  constexpr std::size_t kMostAtOnce = 256;
  Evaluator evaluator(options.data_dir);
  std::optional<AsksBeforeEnding> keep_what_is_answered;
  std::vector<std::string> lines;
  while (in) {
    if (in.rdbuf()->in_avail() <= 0) {
      out.flush();
      keep_what_is_answered.reset();  // nothing is lost where a signal ends the wait for a line
    }
    // Those that are there already are answered side by side.
    lines.clear();
    for (std::string line; lines.size() < kMostAtOnce && std::getline(in, line);) {
      if (!keep_what_is_answered) keep_what_is_answered.emplace(Asks::Anywhere);
      if (line.find_first_not_of(" \t\r") != std::string::npos) lines.push_back(std::move(line));
      if (in.rdbuf()->in_avail() <= 0) break;
    }
    evaluator.answer_all(lines, [&](const std::string& answer) { out << answer << std::endl; });
    if (AsksBeforeEnding::is_asked()) throw Interrupted();
  }
}

}  // namespace dovetail::cli
