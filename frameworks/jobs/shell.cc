// Splits a script into words as a shell does, and sorts them into variables and flags.
//
// SPDX-License-Identifier: Apache-2.0
#include "frameworks/jobs/shell.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <iterator>
#include <optional>

#include "base/error.h"

namespace dovetail::frameworks {
namespace {

// Variables within variables can make much of a few lines.
constexpr std::size_t kLongestWord = 1 << 16, kMostFlags = 1 << 16;
constexpr int kDeepestWord = 16;

// Words behind which a command, or a variable that is set, begins.
constexpr std::array<std::string_view, 7> kBeforeCommands = {
    "export", "local", "declare", "readonly", "then", "else", "do"};

bool is_name_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_name_part(char c) {
  return is_name_start(c) || std::isdigit(static_cast<unsigned char>(c)) != 0;
}
bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

using Variables = std::map<std::string, std::string>;

// $((A * B)): whole numbers, variables, + - * / % and parentheses.
class Arithmetic {
 public:
  Arithmetic(std::string_view text, const Variables& variables)
      : text_(text), variables_(variables) {}

  std::optional<std::int64_t> value() {
    const std::int64_t result = sum(0);
    if (next() != '\0') is_wrong_ = true;
    if (is_wrong_) return std::nullopt;
    return result;
  }

 private:
  char next() {
    while (at_ < text_.size() &&
           (is_space(text_[at_]) || text_[at_] == '$' || text_[at_] == '{' || text_[at_] == '}')) {
      ++at_;
    }
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  std::int64_t wrong() {
    is_wrong_ = true;
    return 0;
  }

  std::int64_t sum(int depth) {
    std::int64_t left = product(depth);
    for (char c = next(); c == '+' || c == '-'; c = next()) {
      ++at_;
      const std::int64_t right = product(depth);
      if (__builtin_add_overflow(left, c == '+' ? right : -right, &left)) return wrong();
    }
    return left;
  }

  std::int64_t product(int depth) {
    std::int64_t left = atom(depth);
    for (char c = next(); c == '*' || c == '/' || c == '%'; c = next()) {
      ++at_;
      const std::int64_t right = atom(depth);
      if (c == '*') {
        if (__builtin_mul_overflow(left, right, &left)) return wrong();
      } else if (right <= 0) {
        return wrong();
      } else {
        left = c == '/' ? left / right : left % right;
      }
    }
    return left;
  }

  std::int64_t atom(int depth) {
    if (next() == '(' && depth < kDeepestWord) {
      ++at_;
      const std::int64_t inner = sum(depth + 1);
      if (next() != ')') return wrong();
      ++at_;
      return inner;
    }
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_name_part(text_[at_])) ++at_;
    std::string_view word = text_.substr(begin, at_ - begin);
    const auto known = variables_.find(std::string(word));
    if (known != variables_.end()) word = known->second;
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    const bool is_number =
        !word.empty() && error == std::errc() && end == word.data() + word.size();
    return is_number && number >= 0 ? number : wrong();
  }

  std::string_view text_;
  const Variables& variables_;
  std::size_t at_ = 0;
  bool is_wrong_ = false;
};

// Where the bracket that opens at `open` closes; the end of the text where it does not.
std::size_t closing(std::string_view text, std::size_t open) {
  const char opens = text[open];
  const char closes = opens == '(' ? ')' : '}';
  int depth = 0;
  for (std::size_t at = open; at < text.size(); ++at) {
    if (text[at] == opens) ++depth;
    if (text[at] == closes && --depth == 0) return at;
  }
  return text.size();
}

// A condition in the words between `if` and `then`. Nothing where it asks what cannot be known: a command, a file, a variable
// that the script does not set.
class Condition {
 public:
  explicit Condition(const std::vector<std::string>& words) : words_(words) {}

  std::optional<bool> value() {
    std::optional<bool> any = all();
    while (at_ < words_.size() && words_[at_] == "||") {
      ++at_;
      const std::optional<bool> more = all();
      if (any == true || more == true) {
        any = true;
      } else if (!any || !more) {
        any = std::nullopt;
      }
    }
    return at_ == words_.size() ? any : std::nullopt;
  }

 private:
  std::optional<bool> all() {
    std::optional<bool> every = one();
    while (at_ < words_.size() && words_[at_] == "&&") {
      ++at_;
      const std::optional<bool> more = one();
      if (every == false || more == false) {
        every = false;
      } else if (!every || !more) {
        every = std::nullopt;
      }
    }
    return every;
  }

  std::optional<bool> one() {
    bool is_not = false;
    std::vector<std::string> test;
    for (; at_ < words_.size() && words_[at_] != "&&" && words_[at_] != "||"; ++at_) {
      const std::string& word = words_[at_];
      const bool is_bracket = word == "[" || word == "[[" || word == "]" || word == "]]";
      if (word == "!") is_not = !is_not;
      if (!is_bracket && word != "!" && (word != "test" || !test.empty())) test.push_back(word);
    }
    const std::optional<bool> holds = holds_of(test);
    return holds ? std::optional(*holds != is_not) : std::nullopt;
  }

  // A variable that neither the script nor who starts it sets: "${NAME}". What nobody says of $1 is not known.
  static bool is_unset(std::string_view word) {
    if (!word.starts_with('$')) return false;
    word.remove_prefix(1);
    if (word.starts_with('{') && word.ends_with('}')) word = word.substr(1, word.size() - 2);
    return !word.empty() && is_name_start(word.front()) && std::ranges::all_of(word, is_name_part);
  }

  static std::optional<bool> holds_of(std::vector<std::string> test) {
    const bool asks = !test.empty() && (test[0] == "-z" || test[0] == "-n");
    if (asks && test.size() == 1) test.emplace_back();
    if (asks && is_unset(test[1])) test[1].clear();
    for (const std::string& word : test) {
      if (word.find('$') != std::string::npos) return std::nullopt;
    }
    if (test.size() == 2 && test[0] == "-z") return test[1].empty();
    if (test.size() == 2 && test[0] == "-n") return !test[1].empty();
    if (test.size() != 3) return std::nullopt;
    if (test[1] == "=" || test[1] == "==") return is_like(test[0], test[2]);
    if (test[1] == "!=") return !is_like(test[0], test[2]);
    const std::optional<std::int64_t> left = whole_of(test[0]), right = whole_of(test[2]);
    if (!left || !right) return std::nullopt;
    if (test[1] == "-eq") return *left == *right;
    if (test[1] == "-ne") return *left != *right;
    if (test[1] == "-lt" || test[1] == "<") return *left < *right;
    if (test[1] == "-le") return *left <= *right;
    if (test[1] == "-gt" || test[1] == ">") return *left > *right;
    if (test[1] == "-ge") return *left >= *right;
    return std::nullopt;
  }

  static std::optional<std::int64_t> whole_of(std::string_view text) {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (text.empty() || error != std::errc() || end != text.data() + text.size())
      return std::nullopt;
    return number;
  }

 public:
  // Patterns of a star at either end: "*7B", "llama*", "*".
  static bool is_like(std::string_view text, std::string_view pattern) {
    const bool any_start = pattern.starts_with('*');
    if (any_start) pattern.remove_prefix(1);
    const bool any_end = pattern.ends_with('*');
    if (any_end) pattern.remove_suffix(1);
    if (any_start && any_end) return text.find(pattern) != std::string_view::npos;
    if (any_start) return pattern.empty() || text.ends_with(pattern);
    return any_end ? text.starts_with(pattern) : text == pattern;
  }

 private:
  const std::vector<std::string>& words_;
  std::size_t at_ = 0;
};

// The one argument of Megatron's of several words that matter.
constexpr std::string_view kManyValues = "--recompute-modules";

class ScriptReader {
 public:
  ScriptReader(const std::string& file, std::string_view text, const Started& started)
      : file_(file), text_(text), words_(started.words) {
    script_.variables = started.environment;
    number_words();
  }

  Script read() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (text_.substr(at_, 2) == "<<" && text_.substr(at_, 3) != "<<<") {
        skip_document();
      } else if (skips_redirection()) {
        continue;
      } else if (text_.substr(at_, 2) == ";;" && !branches_.empty() && branches_.back().is_case) {
        at_ += 2;
        read_pattern();
      } else if (c == '\n' || c == ';' || c == '&' || c == '|') {
        end_of_command();
      } else if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == '\\' && text_.substr(at_, 2) == "\\\n") {
        at_ += 2;
      } else if (is_space(c) || c == '(' || c == ')') {
        ++at_;
      } else {
        take(word());
      }
    }
    finish_command();
    script_.flags = flags_of_training();
    return std::move(script_);
  }

  std::vector<std::string> words() {
    std::vector<std::string> words;
    while (true) {
      skip_blanks();
      if (at_ >= text_.size() || text_.substr(at_).starts_with("--")) return words;
      const std::size_t before = at_;
      words.push_back(word());
      if (at_ == before) ++at_;
    }
  }

 private:
  // Flags as they come; the last one may still get its value.
  struct Flags {
    std::vector<OptionText> all = {};
    bool takes_value = false;
  };
  struct Command {
    Flags flags = {};
    std::vector<std::string> words = {};
    bool is_program = false, trains = false;  // a file of Python; one that says so
  };

  // "&&" and "||" behind a test that is known: whether the next command runs.
  void end_of_command() {
    const char c = text_[at_];
    const bool is_joined = text_.substr(at_, 2) == "&&" || text_.substr(at_, 2) == "||";
    at_ += is_joined ? 2 : 1;
    finish_command();
    if (!is_joined) {
      holds_ = std::nullopt;
      is_passed_over_ = false;
    } else {
      if (!is_passed_over_ && !was_test_) holds_ = holds_ ? std::optional(true) : std::nullopt;
      is_passed_over_ = holds_ == (c == '|');
    }
    was_test_ = false;
  }
  void finish_command() {
    if (!command_.words.empty()) script_.commands.push_back(std::move(command_.words));
    if (command_.is_program) commands_.push_back(std::move(command_));
    command_ = {};
    loose_.takes_value = false;
    is_start_ = true;
  }

  static bool is_equal(const OptionText& a, const OptionText& b) {
    return a.name == b.name && a.value == b.value;
  }

  // Those of what trains, of the first of several; where nothing in it says so those of its programs, else all that stand in it.
  std::vector<OptionText> flags_of_training() {
    const bool any_trains = std::ranges::any_of(commands_, &Command::trains);
    const auto starts = [any_trains](const Command& command) {
      return command.trains == any_trains &&
             std::ranges::find(command.flags.all, "--num-layers", &OptionText::name) !=
                 command.flags.all.end();
    };
    std::vector<std::vector<OptionText>> trainings;
    for (const Command& command : commands_) {
      if (!starts(command)) continue;
      if (!std::ranges::any_of(trainings, [&](const auto& other) {
            return std::ranges::equal(other, command.flags.all, is_equal);
          }))
        trainings.push_back(command.flags.all);
    }
    if (!trainings.empty()) {
      script_.trainings = trainings.size();
      return std::move(trainings.front());
    }
    std::vector<OptionText> flags;
    for (Command& command : commands_) {
      if (command.trains != any_trains) continue;
      std::ranges::move(command.flags.all, std::back_inserter(flags));
    }
    if (!commands_.empty()) return flags;
    // What a variable holds stands where it is set and where it is used.
    for (std::size_t i = 0; i < loose_.all.size(); ++i) {
      const auto is_same = [&](const OptionText& other) { return is_equal(other, loose_.all[i]); };
      const auto behind = loose_.all.begin() + static_cast<std::ptrdiff_t>(i) + 1;
      if (std::none_of(behind, loose_.all.end(), is_same)) flags.push_back(loose_.all[i]);
    }
    return flags;
  }

  // "<<EOF": what stands between the end of this line and the line EOF.
  void skip_document() {
    at_ += 2;
    if (at_ < text_.size() && text_[at_] == '-') ++at_;
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
    const std::string end = word();
    while (at_ < text_.size()) {
      at_ = std::min(text_.find('\n', at_), text_.size());
      if (at_ == text_.size()) return;
      std::string_view line = text_.substr(at_ + 1);
      line = line.substr(0, std::min(line.find('\n'), line.size()));
      while (!line.empty() && is_space(line.front())) line.remove_prefix(1);
      while (!line.empty() && is_space(line.back())) line.remove_suffix(1);
      ++at_;
      if (line == end) {
        at_ = std::min(text_.find('\n', at_), text_.size());
        return;
      }
    }
  }

  // "2>&1", "> log", "&>> log", "<<< word", "> >(tee log)" where a word could begin.
  bool skips_redirection() {
    std::size_t at = at_;
    while (at < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at])) != 0) ++at;
    if (at == at_ && text_.substr(at, 2) == "&>") ++at;
    if (at == text_.size() || (text_[at] != '>' && text_[at] != '<')) return false;
    while (at < text_.size() && (text_[at] == '>' || text_[at] == '<')) ++at;
    if (at < text_.size() && (text_[at] == '&' || text_[at] == '|')) ++at;
    while (at < text_.size() && (text_[at] == ' ' || text_[at] == '\t')) ++at;
    if (text_.substr(at).starts_with(">(") || text_.substr(at).starts_with("<(")) ++at;
    at_ = at;
    if (at_ < text_.size() && text_[at_] == '(') {
      at_ = std::min(closing(text_, at_) + 1, text_.size());
    } else {
      static_cast<void>(word());
    }
    return true;
  }

  // "(A B)" behind NAME=, one blank between its words.
  std::string array() {
    std::string all;
    ++at_;
    while (at_ < text_.size() && text_[at_] != ')') {
      if (text_[at_] == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (is_space(text_[at_]) || (text_[at_] == '\\' && text_.substr(at_, 2) == "\\\n")) {
        at_ += text_[at_] == '\\' ? 2 : 1;
      } else {
        const std::size_t before = at_;
        all += (all.empty() ? "" : " ") + word();
        if (at_ == before) ++at_;
      }
      if (all.size() > kLongestWord) break;
    }
    at_ = std::min(at_ + 1, text_.size());
    return all;
  }

  // "[ A = B ]", "[[ ... ]]" or "test ..." that begins a command.
  bool takes_test(const std::string& word) {
    if (word != "[" && word != "[[" && word != "test") return false;
    const std::string end = word == "test" ? "" : word == "[" ? "]" : "]]";
    std::vector<std::string> words;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      const bool ends = c == '\n' || c == ';' || (end.empty() && (c == '&' || c == '|'));
      if (ends) break;
      if (c == '&' || c == '|') {
        words.emplace_back(2, c);
        at_ += text_.substr(at_, 2) == std::string(2, c) ? 2 : 1;
      } else if (is_space(c) || c == '(' || c == ')') {
        ++at_;
      } else {
        words.push_back(this->word());
        if (words.back() == end) break;
      }
    }
    if (!is_passed_over_) holds_ = Condition(words).value();
    was_test_ = true;
    is_start_ = false;
    return true;
  }

  // A condition or a case that is open.
  struct Branch {
    bool is_case = false;
    std::string value = {};      // of a case
    bool is_read = true;         // the branch that it is in
    bool was_taken = false;      // one for certain
    bool is_around_read = true;  // what it stands in
  };
  [[nodiscard]] bool is_read() const { return branches_.empty() || branches_.back().is_read; }

  // $1, $2, ... as they are after `shift`.
  void number_words() {
    for (std::size_t i = 0; i < words_.size(); ++i)
      script_.variables[std::to_string(i + 1)] = words_[i];
    script_.variables.erase(std::to_string(words_.size() + 1));
  }

  void skip_blanks() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }

  // The words up to `then`, with && and || among them.
  std::vector<std::string> condition() {
    std::vector<std::string> words;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '&' || c == '|') {
        words.emplace_back(2, c);
        at_ += text_.substr(at_, 2) == std::string(2, c) ? 2 : 1;
      } else if (is_space(c) || c == ';' || c == '(' || c == ')') {
        ++at_;
      } else if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (std::string next = word(); next == "then") {
        break;
      } else {
        words.push_back(std::move(next));
      }
    }
    return words;
  }

  void enter(Branch& branch, std::optional<bool> holds) {
    branch.is_read = branch.is_around_read && !branch.was_taken && holds != false;
    if (branch.is_read && holds == true) branch.was_taken = true;
    is_start_ = true;
  }

  // Words of the language that say which branches count; whether this is one.
  bool takes_keyword(const std::string& word) {
    if (word == "if") {
      branches_.push_back({.is_around_read = is_read()});
      enter(branches_.back(), Condition(condition()).value());
    } else if (word == "case") {
      Branch branch{.is_case = true, .is_around_read = is_read()};
      skip_blanks();
      branch.value = this->word();
      skip_blanks();
      static_cast<void>(this->word());  // in
      branches_.push_back(std::move(branch));
      read_pattern();
    } else {
      return !branches_.empty() && goes_on(word);
    }
    return true;
  }
  // Whether the word is one of the branch that is open.
  bool goes_on(const std::string& word) {
    Branch& branch = branches_.back();
    if (word == (branch.is_case ? "esac" : "fi")) {
      branches_.pop_back();
      is_start_ = true;
      return true;
    }
    if (branch.is_case || (word != "elif" && word != "else")) return false;
    const std::vector<std::string> words =
        word == "elif" ? condition() : std::vector<std::string>();
    enter(branch, Condition(words).value());
    return true;
  }

  // "A|B)" of the case that is open, or its esac.
  void read_pattern() {
    Branch& branch = branches_.back();
    std::optional<bool> holds = false;
    const bool is_known = branch.value.find('$') == std::string::npos;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == ')') {
        ++at_;
        break;
      }
      if (is_space(c) || c == '(' || c == '|' || c == ';' || c == '&') {
        ++at_;
        continue;
      }
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
        continue;
      }
      const std::string pattern = word();
      if (pattern == "esac") {
        branches_.pop_back();
        is_start_ = true;
        return;
      }
      if (!is_known) holds = std::nullopt;
      if (is_known && Condition::is_like(branch.value, pattern)) holds = true;
    }
    enter(branch, holds);
  }

  // Up to blank, bracket or end of command, without its quotes.
  std::string word() {
    std::string word;
    char quote = '\0';
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      const bool ends = is_space(c) || std::string_view("();&|").find(c) != std::string_view::npos;
      if ((quote == '\0' && ends) || word.size() > kLongestWord) break;
      if (c == quote) {
        quote = '\0';
      } else if (quote == '\0' && (c == '"' || c == '\'')) {
        quote = c;
      } else if (c == '\\' && quote != '\'') {
        if (++at_ == text_.size()) break;
        if (text_[at_] != '\n') word += text_[at_];
      } else if (c == '$' && quote != '\'') {
        word += expansion();
        --at_;
      } else {
        word += c;
      }
    }
    return word;
  }

  // Of what begins with $ at at_; leaves at_ behind it.
  std::string expansion() {
    const std::size_t begin = at_++;
    const std::string_view rest = text_.substr(at_);
    std::size_t end = at_;
    if (rest.starts_with("((") || rest.starts_with('(') || rest.starts_with('{')) {
      end = std::min(closing(text_, at_) + 1, text_.size());
    } else if (rest.starts_with('@') || rest.starts_with('*') ||
               (!rest.empty() && std::isdigit(static_cast<unsigned char>(rest.front())) != 0)) {
      ++end;  // ${10} has brackets
    } else {
      while (end < text_.size() && is_name_part(text_[end])) ++end;
    }
    at_ = end;
    const std::string_view whole = text_.substr(begin, end - begin);
    return expanded(whole).value_or(std::string(whole));
  }

  // `whole`: "$NAME", "${NAME:-other}", "$((1 + 2))"; nothing where it is anything else.
  std::optional<std::string> expanded(std::string_view whole) {
    if (whole.starts_with("$((") && whole.ends_with("))")) {
      const auto number = Arithmetic(whole.substr(3, whole.size() - 5), script_.variables).value();
      if (!number) return std::nullopt;
      return std::to_string(*number);
    }
    std::string_view inner = whole.substr(1);
    if (inner.starts_with('{') && inner.ends_with('}')) inner = inner.substr(1, inner.size() - 2);
    if (inner == "@" || inner == "*") return all_words(1);
    if (inner.starts_with("@:") || inner.starts_with("*:")) return all_words(first_of(inner));
    std::size_t end = 0;
    while (end < inner.size() && is_name_part(inner[end])) ++end;
    const std::string name(inner.substr(0, end));
    std::string_view rest = inner.substr(end);
    const auto known = script_.variables.find(name);
    if (rest == "[@]" || rest == "[*]")
      return known == script_.variables.end() ? "" : known->second;
    if (known != script_.variables.end() && rest.empty()) return known->second;
    const bool is_set = known != script_.variables.end() && !known->second.empty();
    if (is_set && (rest.empty() || rest.starts_with(":-") || rest.starts_with('-'))) {
      return known->second;
    }
    if (rest.starts_with(':')) rest.remove_prefix(1);
    const bool has_other = rest.starts_with('-') || rest.starts_with('=');
    if (name.empty() || !has_other || depth_ > kDeepestWord) return std::nullopt;
    return ScriptReader(*this, rest.substr(1)).word();
  }

  // "@:2" is from the second on; "@:0" has the script's name, which is none of its flags.
  static std::size_t first_of(std::string_view slice) {
    std::size_t first = 0;
    static_cast<void>(std::from_chars(slice.data() + 2, slice.data() + slice.size(), first));
    return std::max<std::size_t>(1, first);
  }
  [[nodiscard]] std::string all_words(std::size_t first) const {
    std::string all;
    for (std::size_t i = first - 1; i < words_.size(); ++i)
      all += (all.empty() ? "" : " ") + words_[i];
    return all;
  }

  // Of a default value, which is a word of its own.
  ScriptReader(const ScriptReader& around, std::string_view text)
      : file_(around.file_), text_(text), depth_(around.depth_ + 1), words_(around.words_) {
    script_.variables = around.script_.variables;
  }

  void take(const std::string& word) {
    if (is_start_ && takes_keyword(word)) return;
    if (is_start_ && std::ranges::find(kBeforeCommands, word) != kBeforeCommands.end()) return;
    if (!is_read()) {
      is_start_ = false;
      return;
    }
    if (is_start_ && takes_test(word)) return;
    if (is_start_ && word == "shift" && !words_.empty()) {
      words_.erase(words_.begin());
      return number_words();
    }
    if (is_start_ && takes_assignment(word)) return;
    is_start_ = false;
    if (is_passed_over_) return;
    collect(word, command_.flags);
    collect(word, loose_);
    for (std::string_view rest = word; !rest.empty();) {
      const std::size_t blank = std::min(rest.find_first_of(" \t\n"), rest.size());
      const std::string_view one = rest.substr(0, blank);
      rest.remove_prefix(std::min(blank + 1, rest.size()));
      if (!one.empty() && command_.words.size() < kMostFlags) command_.words.emplace_back(one);
      if (!one.ends_with(".py")) continue;
      command_.is_program = true;
      const std::string_view name = one.substr(one.rfind('/') + 1);
      command_.trains |= name.find("train") != std::string_view::npos;
    }
  }

  bool takes_assignment(const std::string& word) {
    std::size_t name = 0;
    while (name < word.size() && is_name_part(word[name])) ++name;
    const std::string_view rest = std::string_view(word).substr(name);
    const bool adds = rest.starts_with("+=");
    if (name == 0 || !is_name_start(word[0]) || (!adds && !rest.starts_with('='))) return false;
    std::string value(rest.substr(adds ? 2 : 1));
    const bool is_array = value.empty() && at_ < text_.size() && text_[at_] == '(';
    if (is_array) value = array();
    if (is_passed_over_) return true;
    collect(value, loose_);
    loose_.takes_value = false;
    std::string& variable = script_.variables[word.substr(0, name)];
    const std::string_view between = is_array && adds && !variable.empty() ? " " : "";
    variable = adds ? variable + std::string(between) + value : value;
    if (variable.size() > kLongestWord) variable.resize(kLongestWord);
    return true;
  }

  // Quotes within quotes, which eval takes off.
  static std::string_view without_quotes(std::string_view value) {
    const bool is_quoted = value.size() > 1 && value.front() == value.back() &&
                           (value.front() == '\'' || value.front() == '"');
    return is_quoted ? value.substr(1, value.size() - 2) : value;
  }

  // Flags and their values in a word, which may hold several where it was quoted.
  void collect(std::string_view words, Flags& into) {
    while (!words.empty()) {
      std::size_t end = 0;
      while (end < words.size() && !is_space(words[end])) ++end;
      const std::string_view one = words.substr(0, end);
      words.remove_prefix(std::min(end + 1, words.size()));
      if (one.size() > 2 && one.starts_with("--") && is_name_start(one[2])) {
        if (into.all.size() == kMostFlags) {
          throw InputError(file_ + ": more than " + std::to_string(kMostFlags) + " flags");
        }
        const std::size_t equals = std::min(one.find('='), one.size());
        into.all.push_back({.name = std::string(one.substr(0, equals))});
        if (equals < one.size()) into.all.back().value = one.substr(equals + 1);
        into.takes_value = equals == one.size();
      } else if (!one.empty() && into.takes_value && !into.all.back().value.empty()) {
        into.all.back().value += " " + std::string(without_quotes(one));
      } else if (!one.empty() && into.takes_value) {
        into.all.back().value = without_quotes(one);
        into.takes_value = into.all.back().name == kManyValues;
      }
    }
  }

  const std::string& file_;
  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
  bool is_start_ = true;
  std::optional<bool> holds_ = std::nullopt;  // what the test before && or || gave
  bool was_test_ = false, is_passed_over_ = false;
  Flags loose_;  // of all words, and of all values of variables
  Command command_;
  std::vector<Command> commands_;
  std::vector<std::string> words_;
  std::vector<Branch> branches_;
  Script script_;
};

}  // namespace

Script read_script(const std::string& file, std::string_view text, const Started& started) {
  return ScriptReader(file, text, started).read();
}

std::vector<std::string> words_of(const std::string& file, std::string_view text) {
  return ScriptReader(file, text, {}).words();
}

}  // namespace dovetail::frameworks
