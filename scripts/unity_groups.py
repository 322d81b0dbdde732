#!/usr/bin/env python3
"""Writes files that each compile several source files as one.

  scripts/unity_groups.py LARGEST LIST

Each line of LIST is FOLDER;a.cc;b.cc;... with whole paths: writes FOLDER/group0.cc ..., and prints for each line the paths
of its groups, a;b. All in one go, since they include the same headers.

Half of what a build from nothing compiles are templates and inline functions of the standard headers, once
for each file that uses them; in a group they are read and compiled once. So the files that use one of the dearest
headers stand in as few groups as may be.

Two files go together where neither has a private name that the other has too, that a header of the
other declares, or that the other calls without saying whose it is. Names in namespaces side by side are in
nobody's way. What is private to a file is in its anonymous namespaces and its using-declarations; this
reads them by their layout, which clang-format fixes.
Most of these names are in nobody's way, since a group may call them otherwise: it reads the headers of a
file first, and then the file with `#define name name_of_3`. That must not meet a member of the same name,
so a name that stands beside a dot, an arrow or colons anywhere in the file is never called otherwise.

Used by cmake/faster.cmake; scripts/tidy.py groups in the same way, without other names.

SPDX-License-Identifier: Apache-2.0
"""

import functools
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAMESPACE = re.compile(r"^namespace ([\w:]+) \{", re.MULTILINE)
ANONYMOUS = re.compile(r"^namespace \{\n(.*?)^\}  // namespace\n", re.MULTILINE | re.DOTALL)
# What a file declares at the start of a line: types, aliases, constants, functions.
DECLARATIONS = [
    re.compile(r"^(?:class|struct|enum class|enum|union|concept) (\w+)", re.MULTILINE),
    re.compile(r"^using (\w+) =", re.MULTILINE),
    re.compile(r"^(?:static |inline |thread_local )*(?:constexpr|const) [^()={;]*?(\w+)(?:\[\w*\])*"
               r"(?: =|\{|;)", re.MULTILINE),
    re.compile(r"^(?!using|return|namespace|//|#|\}| )[^(\n;={]*?[ &*](\w+)\(", re.MULTILINE),
]
USING = re.compile(r"^using ((?:\w*::)*(\w+));", re.MULTILINE)
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
CALL = re.compile(r"(?<![\w.:>])(\w+)\(")
FUNCTION_BODY = re.compile(r"^(?:  .*|)\n", re.MULTILINE)
INCLUDE_LINE = re.compile(r"^#include .*$", re.MULTILINE)
DIRECTIVE = re.compile(r"^ *# *(?!include\b)", re.MULTILINE)
COMMENT = re.compile(r"//.*$", re.MULTILINE)
QUALIFIED = re.compile(r"(?:\.|->|::)\s*~?(\w+)|(\w+)(?=::)")
# GoogleTest makes text of the first name.
FIXTURE = re.compile(r"^(?:TEST|TEST_[FP]|TYPED_TEST\w*|INSTANTIATE_\w+)\(([^)]*)\)?", re.MULTILINE)
WORD = re.compile(r"\w+")
RAW_STRING = re.compile(r'R"(\w*)\(.*?\)\1"', re.DOTALL)
# Seconds for each group that they are in, whatever is used of them.
DEAR = re.compile(r"^#include <(nlohmann/json\.hpp|CLI/CLI\.hpp|Eigen/\w+)>", re.MULTILINE)


def private_names(path, text):
    """Name -> what it stands for, of what other files of a group must not declare differently."""
    names = {name: target.removeprefix("dovetail::") for target, name in USING.findall(text)}
    for body in ANONYMOUS.findall(text):
        for pattern in DECLARATIONS:
            names.update((name, path) for name in pattern.findall(FUNCTION_BODY.sub("", body)))
    return names


@functools.lru_cache(maxsize=None)
def public_names(path):
    """What one file declares at namespace level, as (the namespace it opens first, name)."""
    text = path.read_text(encoding="utf-8")
    return frozenset((namespace_of(text), name) for pattern in DECLARATIONS
                     for name in pattern.findall(FUNCTION_BODY.sub("", text)))


@functools.lru_cache(maxsize=None)
def includes_of(path):
    """The headers of this project that a file includes itself."""
    names = INCLUDE.findall(path.read_text(encoding="utf-8"))
    found = (next((folder / name for folder in (ROOT, path.parent) if (folder / name).is_file()), None) for name in names)
    return [header for header in found if header]


def headers_of(path):
    """The headers of this project that a file includes, itself or through others."""
    found, left = set(), [path]
    while left:
        for header in includes_of(left.pop()):
            if header not in found:
                found.add(header)
                left.append(header)
    return frozenset(found)


def namespace_of(text):
    found = NAMESPACE.search(text)
    return found.group(1) if found else ""


def other_names(text, names, headers):
    """Which of these private names a group may call otherwise: not one that a header of the file knows too."""
    if DIRECTIVE.search(text):  # a header that is read under a condition, or a macro: nothing is moved
        return frozenset()
    code = COMMENT.sub("", text)
    fixed = {word for found in QUALIFIED.findall(code) for word in found}
    for arguments in FIXTURE.findall(code):
        fixed.update(WORD.findall(arguments))
    for header in headers:
        fixed.update(name for _, name in public_names(header))
    return frozenset(names - fixed)


@functools.lru_cache(maxsize=None)
def dear_includes(path):
    """Which of the dearest headers a file includes itself."""
    return frozenset(DEAR.findall(path.read_text(encoding="utf-8")))


@functools.lru_cache(maxsize=None)
def words_of(path):
    return frozenset(WORD.findall(path.read_text(encoding="utf-8")))


class File:
    """What matters of one source file: names -> what they stand for, and what is in its way."""

    def __init__(self, path, may_rename=False):
        self.path = path
        absolute = (pathlib.Path.cwd() / path).resolve()
        self.absolute = absolute
        self.text = absolute.read_text(encoding="utf-8")
        text = RAW_STRING.sub('""', self.text)
        self.namespaces = frozenset(f"{name}::" for name in NAMESPACE.findall(text)) or {""}
        self.names = private_names(absolute, text)
        self.headers = headers_of(absolute)
        self.dear = frozenset().union(*map(dear_includes, [absolute, *self.headers]))
        own = {name for name, meaning in self.names.items() if meaning == absolute}
        self.free = other_names(text, own, self.headers) if may_rename else frozenset()
        self.calls = set(CALL.findall(text)) - self.names.keys()
        for name in self.free:
            del self.names[name]
        parts = namespace_of(text).split("::")
        around = ["::".join(parts[:count]) for count in range(1, len(parts) + 1)]
        # A header that declares one of these would mean something else behind this file.
        self.hides = {(namespace, name) for namespace in around
                      for name, meaning in self.names.items() if meaning == absolute}

    def meets(self, other):
        """Whether a private name of one is in the way of the other: in the same namespace, or in one around it."""
        if not any(a.startswith(b) or b.startswith(a) for a in self.namespaces for b in other.namespaces):
            return False
        return (any(self.names[name] != other.names[name] for name in self.names.keys() & other.names.keys())
                or not self.names.keys().isdisjoint(other.calls) or not other.names.keys().isdisjoint(self.calls))


class Group:
    """Files that can be compiled as one."""

    def __init__(self):
        self.files, self.paths = [], []
        self.hides, self.public, self.headers, self.dear = set(), set(), set(), set()

    def takes(self, file):
        if any(file.meets(other) for other in self.files):
            return False
        fresh = file.headers - self.headers
        return (not any(self.hides & public_names(header) for header in fresh)
                and not file.hides & self.public)

    def add(self, file):
        self.files.append(file)
        self.paths.append(file.path)
        self.hides |= file.hides
        for header in file.headers - self.headers:
            self.public |= public_names(header)
        self.headers |= file.headers
        self.dear |= file.dear


def group_files(files, largest):
    """Groups: each file goes into the smallest of those that take it and know its dear headers."""
    groups = [Group() for _ in range(-(-len(files) // largest))]
    for file in sorted(files, key=lambda file: -len(file.dear)):
        open_to_it = [group for group in groups if len(group.paths) < largest and group.takes(file)]
        if not open_to_it:
            open_to_it = [Group()]
            groups += open_to_it
        min(open_to_it, key=lambda group: (len(file.dear - group.dear), len(group.paths))).add(file)
    return [group for group in groups if group.paths]


def make_groups(paths, largest):
    """Lists of paths that can be compiled as one as they are."""
    return [group.paths for group in group_files([File(path) for path in paths], largest)]


def headers_first(file):
    """The #include lines of a file, for a reader in another folder."""
    for line in INCLUDE_LINE.findall(file.text):
        found = INCLUDE.match(line)
        beside = file.absolute.parent / found[1] if found else None
        yield f'#include "{beside}"\n' if beside and beside.is_file() and not (ROOT / found[1]).is_file() else f"{line}\n"


def text_of(group):
    """The file that compiles a group. A private name is called otherwise where another file knows the same word."""
    parts = []
    for index, file in enumerate(group.files):
        others = [other for other in group.files if other is not file]
        headers = frozenset().union(*(other.headers for other in others)) - file.headers
        known = frozenset().union(*map(words_of, [*headers, *(other.absolute for other in others)]))
        names = sorted(file.free & known)
        if names:
            parts += headers_first(file)
        parts += [f"#define {name} {name}_of_{index}\n" for name in names]
        parts.append(f'#include "{file.absolute}"\n')
        parts += [f"#undef {name}\n" for name in names]
    return "".join(parts)


def write_groups(folder, paths, largest):
    """Writes the files that compile these paths, and returns theirs."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for index, group in enumerate(group_files([File(path, may_rename=True) for path in paths], largest)):
        path, text = folder / f"group{index}.cc", text_of(group)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
        written.append(str(path))
    return written


def main():
    largest, lines = int(sys.argv[1]), pathlib.Path(sys.argv[2]).read_text(encoding="utf-8").splitlines()
    for line in lines:
        folder, *paths = line.split(";")
        print(";".join(write_groups(pathlib.Path(folder), paths, largest)))


if __name__ == "__main__":
    main()
