// Tables as text that fits a terminal, as JSON, as CSV and as Markdown.
//
// The text of a table that is too wide first breaks titles that are longer than what stands below
// them, which costs nothing; then it leaves out the columns that can be spared; then it cuts its
// texts, the widest first; and only then columns from the right, but the first.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/table.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "base/decimal.h"
#include "base/error.h"
#include "base/json.h"

namespace dovetail {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kGap = 2;            // blanks between columns
constexpr std::size_t kShortestText = 14;  // of a column of texts that is cut

// "PyTorch DDP: bucket_cap.."
std::string cut(const std::string& text, std::size_t width) {
  if (text.size() <= width) return text;
  return text.substr(0, width - 2) + "..";
}

// "tp=4,pp=1,dp_..,mbs=2": rows of one table often begin alike.
std::string cut_inside(const std::string& text, std::size_t width) {
  if (text.size() <= width || width < 8) return cut(text, width);
  const std::size_t tail = width / 3;
  return text.substr(0, width - 2 - tail) + ".." + text.substr(text.size() - tail);
}

// "fsdp:bl..backward=2,res..": its beginning, then the option with the letter at `where`, which
// is seen.
std::string cut_before(const std::string& text, std::size_t width, std::size_t where) {
  const std::size_t head = width / 4;
  const std::size_t room = width - head - 2;
  const std::size_t least = where + 3 - std::min(where + 3, room);
  const std::size_t option = where == 0 ? 0 : text.find_last_of(":,", where - 1) + 1;
  const std::size_t begin = std::max(least, option);  // 0: none is before it
  if (begin <= head + 2) return cut(text, width);
  return text.substr(0, head) + ".." + cut(text.substr(begin), room);
}

// The names of rows, cut: those that differ are cut where they do, rather than look alike.
std::vector<std::string> cut_apart(const std::vector<std::string>& names, std::size_t width) {
  constexpr int kRounds = 8;  // each goes on to where those differ that are alike still
  std::vector<std::string> cuts;
  for (const std::string& name : names) cuts.push_back(cut_inside(name, width));
  for (int round = 0; round < kRounds && width >= kShortestText; ++round) {
    std::map<std::string, std::set<std::string>> alike;
    for (std::size_t i = 0; i < names.size(); ++i) alike[cuts[i]].insert(names[i]);
    for (std::size_t i = 0; i < names.size(); ++i) {
      const std::set<std::string>& group = alike[cuts[i]];
      if (group.size() < 2) continue;
      // Of sorted texts the first and the last have the least in common.
      const auto differ = std::ranges::mismatch(*group.begin(), *group.rbegin()).in1;
      const auto where = static_cast<std::size_t>(differ - group.begin()->begin());
      cuts[i] = cut_before(names[i], width, std::min(where, names[i].size()));
    }
  }
  return cuts;
}

std::size_t longest_word(const std::string& text) {
  std::size_t longest = 0;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    longest = std::max(longest, end - begin);
    begin = end + 1;
  }
  return longest;
}

// A title in lines of this width.
std::vector<std::string> broken(const std::string& title, std::size_t width) {
  std::vector<std::string> lines;
  std::size_t begin = 0;
  while (begin <= title.size()) {
    const std::size_t end = std::min(title.find(' ', begin), title.size());
    const std::string word = title.substr(begin, end - begin);
    if (!lines.empty() && lines.back().size() + 1 + word.size() <= width) {
      lines.back() += " " + word;
    } else {
      lines.push_back(cut(word, std::max<std::size_t>(width, 3)));
    }
    begin = end + 1;
  }
  return lines;
}

// The columns that people read, with their cells as they read them.
struct Texts {
  struct Line {
    std::string title;
    bool is_text = false;
    int spare = 0;
    std::vector<std::string> cells;
    std::size_t width = 0;  // of the widest cell
  };
  std::vector<Line> columns;
  bool has_titles = false;

  explicit Texts(const Table& table) {
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
      const Column& column = table.columns[i];
      if (!column.title) continue;
      Line& line = columns.emplace_back();
      line.title = *column.title;
      line.is_text = columns.size() == 1 || column.align == Align::Left;
      line.spare = column.spare;
      for (const Table::Row& row : table.rows) line.cells.push_back(row.cells[i].text(column));
      for (const std::string& cell : line.cells) line.width = std::max(line.width, cell.size());
      has_titles = has_titles || !line.title.empty();
    }
    if (!has_titles) std::erase_if(columns, [](const Line& line) { return line.width == 0; });
  }
};

// Which columns are shown, and how wide.
struct Layout {
  std::vector<std::size_t> shown;
  std::vector<std::size_t> width;  // of every column

  [[nodiscard]] std::size_t total() const {
    std::size_t sum = shown.empty() ? 0 : kGap * (shown.size() - 1);
    for (const std::size_t i : shown) sum += width[i];
    return sum;
  }
};

// What room is left makes the titles that are broken most less tall.
void widen_titles(const Texts& texts, Layout& layout, std::size_t room) {
  const auto lines = [&](std::size_t i, std::size_t width) {
    return broken(texts.columns[i].title, width).size();
  };
  while (layout.total() < room) {
    const auto tallest = std::ranges::max_element(
        layout.shown, {}, [&](std::size_t i) { return lines(i, layout.width[i]); });
    std::size_t& width = layout.width[*tallest];
    const std::size_t before = lines(*tallest, width);
    std::size_t wider = width;
    while (wider < texts.columns[*tallest].title.size() && lines(*tallest, wider) == before)
      ++wider;
    if (before < 2 || layout.total() + (wider - width) > room) return;
    width = wider;
  }
}

// The columns that can be spared, by number, the first to go first.
std::vector<std::size_t> spared(const Texts& texts) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < texts.columns.size(); ++i) {
    if (texts.columns[i].spare > 0) order.push_back(i);
  }
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return texts.columns[i].spare; });
  return order;
}

Layout layout_of(const Texts& texts, std::size_t room) {
  Layout layout;
  layout.shown.resize(texts.columns.size());
  std::iota(layout.shown.begin(), layout.shown.end(), std::size_t{0});
  for (const Texts::Line& column : texts.columns) {
    layout.width.push_back(std::max(column.title.size(), column.width));
  }
  const auto fits = [&] { return layout.total() <= room; };
  if (fits()) return layout;
  for (std::size_t i = 0; i < texts.columns.size(); ++i) {
    layout.width[i] = std::max(longest_word(texts.columns[i].title), texts.columns[i].width);
  }
  for (const std::size_t column : spared(texts)) {
    if (!fits()) std::erase(layout.shown, column);
  }
  while (!fits()) {
    std::size_t* widest = nullptr;
    for (const std::size_t i : layout.shown) {
      if (texts.columns[i].is_text && (widest == nullptr || layout.width[i] > *widest)) {
        widest = &layout.width[i];
      }
    }
    if (widest == nullptr || *widest <= kShortestText) break;
    --*widest;
  }
  while (!fits() && layout.shown.size() > 1) layout.shown.pop_back();
  widen_titles(texts, layout, room);
  return layout;
}

// Of the text of each shown column.
template <class CellOf>
std::string line_of(const Texts& texts, const Layout& layout, const CellOf& cell_of) {
  std::string line;
  for (const std::size_t i : layout.shown) {
    const std::string text = cut(cell_of(i), layout.width[i]);
    const std::string blanks(layout.width[i] - text.size(), ' ');
    if (i != layout.shown.front()) line += std::string(kGap, ' ');
    line += texts.columns[i].is_text ? text + blanks : blanks + text;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

std::vector<TextLine> title_lines(const Texts& texts, const Layout& layout) {
  std::vector<std::vector<std::string>> titles(texts.columns.size());
  std::size_t height = 1;
  for (const std::size_t i : layout.shown) {
    titles[i] = broken(texts.columns[i].title, layout.width[i]);
    height = std::max(height, titles[i].size());
  }
  std::vector<TextLine> lines;
  for (std::size_t level = 0; level < height; ++level) {
    const auto cell_of = [&](std::size_t i) {
      const std::size_t above = height - titles[i].size();
      return level < above ? std::string() : titles[i][level - above];
    };
    lines.push_back({line_of(texts, layout, cell_of), Tone::Plain});
  }
  return lines;
}

std::string number_text(double value, const Column& column) {
  const char* const plus = column.digits.sign == Sign::Always ? "+" : "";
  switch (column.unit) {
    case Unit::Percent:
      return fixed(value, column.digits.count, plus) + " %";
    case Unit::Share:
      return fixed(100 * value, column.digits.count, plus) + " %";
    case Unit::Times:
      return "x" + fixed(value, column.digits.count);
    case Unit::Own:
    case Unit::Milliseconds:
    case Unit::Microseconds:
    case Unit::Gib:
      break;
  }
  return fixed(value, column.digits.count, plus);
}

std::string time_text(Duration time, const Column& column) {
  if (column.unit == Unit::Milliseconds) return number_text(to_us(time) / 1e3, column);
  return column.unit == Unit::Microseconds ? number_text(to_us(time), column) : to_string(time);
}

std::string bytes_text(Bytes bytes, const Column& column) {
  if (column.unit != Unit::Gib) return to_string(bytes);
  return number_text(static_cast<double>(bytes.count()) / static_cast<double>(gib(1).count()),
                     column);
}

ordered_json cell_json(const Cell& cell) {
  return std::visit(
      [](const auto& value) -> ordered_json {
        using Value = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, std::monostate>) {
          return nullptr;
        } else if constexpr (std::is_same_v<Value, Duration>) {
          return to_us(value);
        } else if constexpr (std::is_same_v<Value, Bytes>) {
          return value.count();
        } else {
          return value;
        }
      },
      cell.value());
}

// Objects in which nothing is known are null.
void forget_the_unknown(ordered_json& object) {
  for (auto& member : object) {
    if (!member.is_object()) continue;
    forget_the_unknown(member);
    if (std::ranges::all_of(member, [](const auto& value) { return value.is_null(); }))
      member = nullptr;
  }
}

// As RFC 4180 has it.
std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"') result += '"';
    result += c;
  }
  return result + "\"";
}

std::string csv_cell(const Cell& cell) {
  const ordered_json value = cell_json(cell);
  if (value.is_null()) return {};
  return quoted(value.is_string() ? value.get<std::string>() : value.dump());
}

std::string markdown_cell(const std::string& text) {
  std::string result;
  for (const char c : text) result += c == '|' ? std::string("\\|") : std::string(1, c);
  return " " + result + " |";
}

}  // namespace

Cell::Cell(double value) {
  if (std::isfinite(value)) value_ = value;
}

Cell Cell::shown_as(std::string text) const {
  Cell cell = *this;
  cell.text_ = std::move(text);
  return cell;
}

std::string Cell::text(const Column& column) const {
  if (text_) return *text_;
  return std::visit(
      [&](const auto& value) -> std::string {
        using Given = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<Given, std::monostate>) {
          return column.nothing;
        } else if constexpr (std::is_same_v<Given, bool>) {
          return value ? "yes" : "no";
        } else if constexpr (std::is_same_v<Given, std::int64_t>) {
          return column.unit == Unit::Own ? std::to_string(value)
                                          : number_text(static_cast<double>(value), column);
        } else if constexpr (std::is_same_v<Given, double>) {
          return number_text(value, column);
        } else if constexpr (std::is_same_v<Given, Duration>) {
          return time_text(value, column);
        } else if constexpr (std::is_same_v<Given, Bytes>) {
          return bytes_text(value, column);
        } else if constexpr (std::is_same_v<Given, std::vector<std::string>>) {
          std::string list;
          for (const std::string& one : value) list += (list.empty() ? "" : ", ") + one;
          return list;
        } else {
          return value;
        }
      },
      value_);
}

TableText text_of(const Table& table, std::size_t room) {
  const Texts texts(table);
  const Layout layout = layout_of(texts, room);
  TableText result;
  if (texts.has_titles) result.lines = title_lines(texts, layout);
  std::vector<std::string> names;
  if (!layout.shown.empty()) {
    const std::size_t first = layout.shown.front();
    names = cut_apart(texts.columns[first].cells, layout.width[first]);
  }
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    const auto cell_of = [&](std::size_t i) {
      return i == layout.shown.front() ? names[row] : texts.columns[i].cells[row];
    };
    result.lines.push_back({line_of(texts, layout, cell_of), table.rows[row].tone});
  }
  for (std::size_t i = 0; i < texts.columns.size(); ++i) {
    if (std::ranges::find(layout.shown, i) == layout.shown.end())
      result.missing.push_back(texts.columns[i].title);
  }
  return result;
}

void print_whole(std::ostream& out, const Table& table, std::size_t indent) {
  for (const TextLine& line : text_of(table, std::string::npos).lines) {
    out << std::string(line.text.empty() ? 0 : indent, ' ') << line.text << '\n';
  }
}

ordered_json row_json(const Table& table, std::size_t row) {
  DOVETAIL_CHECK(table.rows[row].cells.size() == table.columns.size()) << "row " << row;
  ordered_json object = ordered_json::object();
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    const std::string& key = table.columns[i].key;
    if (key.empty()) continue;
    ordered_json* place = &object;
    std::size_t begin = 0;
    for (std::size_t dot = key.find('.'); dot != std::string::npos; dot = key.find('.', begin)) {
      place = &(*place)[key.substr(begin, dot - begin)];
      begin = dot + 1;
    }
    (*place)[key.substr(begin)] = cell_json(table.rows[row].cells[i]);
  }
  forget_the_unknown(object);
  return object;
}

ordered_json rows_json(const Table& table) {
  ordered_json rows = ordered_json::array();
  for (std::size_t row = 0; row < table.rows.size(); ++row) rows.push_back(row_json(table, row));
  return rows;
}

std::string csv_of(const Table& table) {
  std::string text;
  const auto add_line = [&](const auto& cell_of) {
    bool is_first = true;
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
      if (table.columns[i].key.empty()) continue;
      text += (is_first ? "" : ",") + cell_of(i);
      is_first = false;
    }
    text += "\n";
  };
  add_line([&](std::size_t i) { return quoted(table.columns[i].key); });
  for (const Table::Row& row : table.rows) {
    add_line([&](std::size_t i) { return csv_cell(row.cells[i]); });
  }
  return text;
}

std::string markdown_of(const Table& table) {
  const Texts texts(table);
  std::string text = "|";
  for (const Texts::Line& column : texts.columns) text += markdown_cell(column.title);
  text += "\n|";
  for (const Texts::Line& column : texts.columns) text += column.is_text ? " --- |" : " ---: |";
  text += "\n";
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    text += "|";
    for (const Texts::Line& column : texts.columns) text += markdown_cell(column.cells[row]);
    text += "\n";
  }
  return text;
}

}  // namespace dovetail
