// Lays out tables in aligned columns that fit the terminal, sentences that wrap, and bars of text.
//
// A table that is too wide first breaks titles that are longer than what stands below them, which costs nothing; then it
// leaves out the columns that were named for that; then it cuts its texts, the widest first; and only then columns from
// the right.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/text.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "base/count.h"
#include "base/error.h"
#include "cli/command_text.h"
#include "cli/environment.h"

namespace dovetail::cli {
namespace {

constexpr std::size_t kGap = 2;            // blanks between columns
constexpr std::size_t kShortestText = 14;  // of a column of texts that is cut

std::string coloured(const std::string& line, Tone tone) {
  if (tone == Tone::Plain || !wants_colour()) return line;
  return (tone == Tone::Good ? "\x1b[1;32m" : "\x1b[33m") + line + "\x1b[0m";
}

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

// At its last word that fits.
std::string cut_at_a_word(const std::string& text, std::size_t width) {
  if (text.size() <= width) return text;
  const std::size_t blank = text.rfind(' ', width - 4);
  if (blank == std::string::npos || blank < width / 2) return cut(text, width);
  return text.substr(0, blank) + " ...";
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

}  // namespace

// Which columns are shown, and how wide.
struct TextTable::Layout {
  std::vector<std::size_t> shown;
  std::vector<std::size_t> width;  // of every column
  bool fits = false;

  [[nodiscard]] std::size_t total() const {
    std::size_t sum = shown.empty() ? 0 : kGap * (shown.size() - 1);
    for (const std::size_t i : shown) sum += width[i];
    return sum;
  }
};

TextTable::TextTable(std::vector<std::string> header) {
  for (std::string& title : header) columns_.push_back({.title = std::move(title)});
  columns_.front().is_text = true;
}

TextTable& TextTable::texts(const std::vector<std::string_view>& titles) {
  for (Column& column : columns_) {
    if (std::ranges::find(titles, column.title) != titles.end()) column.is_text = true;
  }
  return *this;
}

TextTable& TextTable::spares(const std::vector<std::string_view>& titles) {
  for (const std::string_view title : titles) {
    const auto column = std::ranges::find(columns_, title, &Column::title);
    if (column != columns_.end()) {
      spared_.push_back(static_cast<std::size_t>(column - columns_.begin()));
    }
  }
  return *this;
}

void TextTable::add(std::vector<std::string> cells, Tone tone) {
  DOVETAIL_CHECK(cells.size() == columns_.size()) << cells.size() << " cells";
  rows_.push_back({std::move(cells), tone});
}

std::size_t TextTable::cell_width(std::size_t column) const {
  std::size_t width = 0;
  for (const Row& row : rows_) width = std::max(width, row.cells[column].size());
  return width;
}

TextTable::Layout TextTable::layout(std::size_t room) const {
  Layout layout;
  layout.shown.resize(columns_.size());
  std::iota(layout.shown.begin(), layout.shown.end(), std::size_t{0});
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    layout.width.push_back(std::max(columns_[i].title.size(), cell_width(i)));
  }
  const auto fits = [&] { return layout.total() <= room; };
  if (fits()) return layout;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    layout.width[i] = std::max(longest_word(columns_[i].title), cell_width(i));
  }
  for (const std::size_t spared : spared_) {
    if (!fits()) std::erase(layout.shown, spared);
  }
  while (!fits()) {
    std::size_t* widest = nullptr;
    for (const std::size_t i : layout.shown) {
      if (columns_[i].is_text && (widest == nullptr || layout.width[i] > *widest)) {
        widest = &layout.width[i];
      }
    }
    if (widest == nullptr || *widest <= kShortestText) break;
    --*widest;
  }
  while (!fits() && layout.shown.size() > 1) layout.shown.pop_back();
  widen_titles(layout, room);
  return layout;
}

// What room is left makes the titles that are broken most less tall.
void TextTable::widen_titles(Layout& layout, std::size_t room) const {
  const auto lines = [&](std::size_t i, std::size_t width) {
    return broken(columns_[i].title, width).size();
  };
  while (layout.total() < room) {
    const auto tallest = std::ranges::max_element(
        layout.shown, {}, [&](std::size_t i) { return lines(i, layout.width[i]); });
    std::size_t& width = layout.width[*tallest];
    const std::size_t before = lines(*tallest, width);
    std::size_t wider = width;
    while (wider < columns_[*tallest].title.size() && lines(*tallest, wider) == before) ++wider;
    if (before < 2 || layout.total() + (wider - width) > room) return;
    width = wider;
  }
}

void TextTable::print(std::ostream& out) const {
  const std::size_t room = text_width();
  const Layout layout = this->layout(room);
  const auto line_of = [&](const auto& cell_of) {
    std::string line;
    for (const std::size_t i : layout.shown) {
      const std::string text =
          i == 0 ? cut_inside(cell_of(i), layout.width[i]) : cut(cell_of(i), layout.width[i]);
      const std::string blanks(layout.width[i] - text.size(), ' ');
      if (!line.empty() || i != layout.shown.front()) line += std::string(kGap, ' ');
      line += columns_[i].is_text ? text + blanks : blanks + text;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    return line;
  };
  std::vector<std::vector<std::string>> titles(columns_.size());
  std::size_t height = 1;
  for (const std::size_t i : layout.shown) {
    titles[i] = broken(columns_[i].title, layout.width[i]);
    height = std::max(height, titles[i].size());
  }
  for (std::size_t level = 0; level < height; ++level) {
    out << line_of([&](std::size_t i) {
      const std::size_t above = height - titles[i].size();
      return level < above ? std::string() : titles[i][level - above];
    }) << '\n';
  }
  for (const Row& row : rows_) {
    out << coloured(line_of([&](std::size_t i) { return row.cells[i]; }), row.tone) << '\n';
  }
  std::string missing;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    if (std::ranges::find(layout.shown, i) != layout.shown.end()) continue;
    missing += (missing.empty() ? "" : ", ") + columns_[i].title;
  }
  if (!missing.empty()) {
    print_text(out, "(wider than " + std::to_string(room) + " columns shows " + missing + ")");
  }
}

void print_text(std::ostream& out, const std::string& text, std::size_t indent, Tone tone) {
  const std::size_t lead = std::min(text.find_first_not_of(' '), text.size());
  out << std::string(lead, ' ')
      << coloured(wrapped(text.substr(lead), std::max(indent, lead), text_width()), tone) << '\n';
}

void print_line(std::ostream& out, const std::string& text, Tone tone) {
  out << coloured(text, tone) << '\n';
}

void print_notes(std::ostream& out, const std::vector<std::string>& notes) {
  for (const std::string& note : notes) print_text(out, "  note: " + note, 8);
}

void print_notes(std::ostream& out, const std::vector<std::string>& notes, const Detail& detail) {
  if (detail.notes) return print_notes(out, notes);
  constexpr std::size_t kShown = 4;
  const std::size_t width = text_width();
  bool is_cut = false;
  const std::size_t shown = notes.size() <= kShown + 1 ? notes.size() : kShown;
  for (std::size_t i = 0; i < shown; ++i) {
    const std::string line = "  note: " + notes[i];
    is_cut = is_cut || line.size() > width;
    out << cut_at_a_word(line, width) << '\n';
  }
  if (shown < notes.size()) {
    out << "  " << counted(notes.size() - shown, "more note") << ": --notes\n";
  } else if (is_cut) {
    out << "  in full: --notes\n";
  }
}

void print_more_rows(std::ostream& out, std::size_t more) {
  if (more > 0) out << counted(more, "more row") << ": --all\n";
}

void print_bars(std::ostream& out, const std::vector<Bar>& bars, double origin) {
  constexpr std::size_t kLongest = 50;
  double longest = 0;
  std::size_t label_width = 0;
  std::size_t note_width = 0;
  for (const Bar& bar : bars) {
    longest = std::max(longest, bar.value - origin);
    label_width = std::max(label_width, bar.label.size());
    note_width = std::max(note_width, fixed(bar.value, 2).size() + bar.note.size());
  }
  constexpr std::size_t kBlanks = 5;
  const std::size_t beside = label_width + note_width + kBlanks;
  const std::size_t room = text_width();
  const std::size_t whole =
      std::clamp<std::size_t>(room > beside ? room - beside : 1, 10, kLongest);
  for (const Bar& bar : bars) {
    const double share = longest > 0 ? (bar.value - origin) / longest : 0;
    const auto length =
        static_cast<std::size_t>(std::lround(std::max(0.0, share) * static_cast<double>(whole)));
    out << std::string(label_width - bar.label.size(), ' ') << bar.label << "  "
        << std::string(length, '#') << ' ' << fixed(bar.value, 2) << "  " << bar.note << '\n';
  }
}

int decimals_of(double least) {
  if (least <= 0) return 3;
  return std::clamp(3 - static_cast<int>(std::floor(std::log10(least))), 0, 4);
}

std::string gib_text(Bytes bytes) {
  return fixed(static_cast<double>(bytes.count()) / static_cast<double>(gib(1).count()), 1);
}

}  // namespace dovetail::cli
