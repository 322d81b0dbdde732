// Prints tables that fit the terminal, sentences that wrap, and bars of text.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/text.h"

#include <algorithm>
#include <cmath>

#include "base/count.h"
#include "base/error.h"
#include "cli/command_text.h"
#include "cli/environment.h"

namespace dovetail::cli {
namespace {

std::string coloured(const std::string& line, Tone tone) {
  if (tone == Tone::Plain || !wants_colour()) return line;
  return (tone == Tone::Good ? "\x1b[1;32m" : "\x1b[33m") + line + "\x1b[0m";
}

// "PyTorch DDP: bucket_cap.."
std::string cut(const std::string& text, std::size_t width) {
  if (text.size() <= width) return text;
  return text.substr(0, width - 2) + "..";
}

// At its last word that fits.
std::string cut_at_a_word(const std::string& text, std::size_t width) {
  if (text.size() <= width) return text;
  const std::size_t blank = text.rfind(' ', width - 4);
  if (blank == std::string::npos || blank < width / 2) return cut(text, width);
  return text.substr(0, blank) + " ...";
}

}  // namespace

void print_table(std::ostream& out, const Table& table) {
  const std::size_t room = text_width();
  const TableText text = text_of(table, room);
  for (const TextLine& line : text.lines) out << coloured(line.text, line.tone) << '\n';
  std::string missing;
  for (const std::string& title : text.missing) {
    if (!title.empty()) missing += (missing.empty() ? "" : ", ") + title;
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
