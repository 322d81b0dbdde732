// Lines are a name and the integers behind it; gradients are matched with the list turned round.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/parameters.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"

namespace dovetail::imports {
namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 38;

std::string plain(std::string_view word) {
  constexpr std::string_view kAround = "\"'[]{}(),:";
  const std::size_t first = word.find_first_not_of(kAround);
  if (first == std::string_view::npos) return "";
  return std::string(word.substr(first, word.find_last_not_of(kAround) - first + 1));
}

// The product of all integers in the text; 0: there are none, or too many elements.
std::int64_t product_of(std::string_view text) {
  std::int64_t product = 0;
  for (std::size_t at = text.find_first_of("0123456789"); at < text.size();
       at = text.find_first_of("0123456789", at)) {
    // "float32" is a type, no size.
    if (at > 0 && std::isalpha(static_cast<unsigned char>(text[at - 1])) != 0) {
      at = text.find_first_not_of("0123456789", at);
      continue;
    }
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), number);
    if (error != std::errc{} || number <= 0) return 0;
    product = product == 0 ? 1 : product;
    if (number > kMostElements / product) return 0;
    product *= number;
    at = static_cast<std::size_t>(end - text.data());
  }
  // A scalar's shape is "()".
  return product == 0 && text.find("()") != std::string_view::npos ? 1 : product;
}

// The list from its end on, for gradients in ready order.
class Names {
 public:
  Names(models::Profile& profile, std::span<const std::size_t> ends, const ParameterList& list)
      : profile_(profile), ends_(ends), list_(list) {}

  std::string by_buckets() {
    require(list_.parameters.size() == profile_.gradients.size(),
            std::to_string(list_.parameters.size()) + " parameters, but the trace has " +
                std::to_string(profile_.gradients.size()) +
                " gradients, and without their sizes (record_shapes=True) only the same number of "
                "them can be named");
    std::size_t next = 0;
    for (std::size_t b = 0; b < ends_.size(); ++b) {
      std::int64_t recorded = 0;
      std::int64_t listed = 0;
      for (; next < ends_[b]; ++next) {
        recorded += profile_.gradients[next].numel;
        listed += reversed(next).elements;
      }
      require(recorded == listed,
              "bucket " + std::to_string(b) + " of the trace has " + std::to_string(recorded) +
                  " elements, the parameters that stand there in the reverse order of definition " +
                  std::to_string(listed) + "; record with record_shapes=True");
    }
    for (std::size_t g = 0; g < profile_.gradients.size(); ++g) {
      profile_.gradients[g].numel = reversed(g).elements;
      name(g, list_.parameters.size() - 1 - g);
    }
    return "gradients have names and sizes of " + list_.file +
           ", in the reverse order of definition, which fills each recorded bucket exactly";
  }

  std::string by_size() {
    const std::size_t count = profile_.gradients.size();
    std::map<std::int64_t, std::vector<std::size_t>> places;  // of each size, last defined first
    for (std::size_t p = list_.parameters.size(); p-- > 0;) {
      places[list_.parameters[p].elements].push_back(p);
    }
    bool in_order = count == list_.parameters.size();
    std::map<std::int64_t, std::size_t> used;
    std::size_t certain = 0;
    for (std::size_t g = 0; g < count; ++g) {
      const std::int64_t size = profile_.gradients[g].numel;
      const auto found = places.find(size);
      const std::size_t next = used[size]++;
      require(found != places.end() && next < found->second.size(),
              "no parameter of " + std::to_string(size) + " elements is left for gradient " +
                  std::to_string(g) + " of the trace's " + std::to_string(count));
      in_order = in_order && reversed(g).elements == size;
      certain += found->second.size() == 1 ? 1 : 0;
      name(g, found->second[next]);
    }
    if (in_order) {
      for (std::size_t g = 0; g < count; ++g) name(g, list_.parameters.size() - 1 - g);
      return "gradients have names of " + list_.file +
             ": their sizes are those of the reverse order of definition, one by one";
    }
    return "gradients have names of " + list_.file + " by size: " + std::to_string(certain) +
           " of " + std::to_string(count) +
           " have a size of their own; the others became ready in another order than the reverse "
           "of the "
           "definition, or some of the list have no gradient, and may be exchanged with others of "
           "their size";
  }

 private:
  [[nodiscard]] const Parameter& reversed(std::size_t g) const {
    return list_.parameters[list_.parameters.size() - 1 - g];
  }
  void require(bool holds, const std::string& what) const {
    if (!holds) throw InputError(list_.file + ": " + what);
  }
  void name(std::size_t g, std::size_t parameter) {
    profile_.gradients[g].name = list_.parameters[parameter].name;
    profile_.gradients[g].definition = static_cast<std::int64_t>(parameter);
  }

  models::Profile& profile_;
  std::span<const std::size_t> ends_;
  const ParameterList& list_;
};

}  // namespace

ParameterList read_parameters(const std::string& file, std::string_view text) {
  ParameterList list{.file = file, .parameters = {}};
  std::set<std::string> names;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    const std::size_t begin = line.find_first_not_of(" \t\r[],");
    if (begin == std::string_view::npos || line[begin] == '#') continue;
    line.remove_prefix(begin);
    const std::size_t split = std::min(line.find_first_of(" \t:,="), line.size());
    Parameter parameter{.name = plain(line.substr(0, split)),
                        .elements = product_of(line.substr(split))};
    const std::string where = file + ": line " + std::to_string(number) + ": ";
    if (parameter.name.empty() || parameter.elements == 0) {
      throw InputError(where +
                       "expected a parameter's name and its elements or shape, as in "
                       "\"fc.weight (1000, 2048)\"");
    }
    if (!names.insert(parameter.name).second) {
      throw InputError(where + parameter.name + " stands twice");
    }
    list.parameters.push_back(std::move(parameter));
  }
  if (list.parameters.empty()) throw InputError(file + ": no parameter in it");
  return list;
}

std::string name_gradients(models::Profile& profile, std::span<const std::size_t> ends,
                           GradientSizes sizes, const ParameterList& list) {
  Names names(profile, ends, list);
  return sizes == GradientSizes::Known ? names.by_size() : names.by_buckets();
}

}  // namespace dovetail::imports
