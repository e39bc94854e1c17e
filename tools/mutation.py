"""Finds random one-line mutants of C++ and writes them into the source (tools/mutants_table.py).

All are compiled at once: `a < b` becomes `(::het::Mutant(17) ? (a <= b) : (a < b))`, and HET_MUTANT=17 in the
environment chooses one. HET_MUTANTS_REACHED names a file for the numbers of those that are reached.
"""

import hashlib
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Compiled into every mutated file. What is reached is noted at once: a crash keeps it.
HEADER = """#pragma once
#include <fcntl.h>
#include <unistd.h>
#include <atomic>
#include <cstdio>
#include <cstdlib>
namespace het {
inline const int active_mutant = std::getenv("HET_MUTANT") ? std::atoi(std::getenv("HET_MUTANT")) : -1;
inline const char* const mutants_reached = std::getenv("HET_MUTANTS_REACHED");
inline std::atomic<bool> mutant_is_noted[1 << 16];
__attribute__((noinline, cold)) inline void NoteMutant(int number) {
  if (mutant_is_noted[number].exchange(true)) return;
  char line[16];
  const int file = open(mutants_reached, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || write(file, line, std::snprintf(line, sizeof(line), "%d\\n", number)) < 0) std::abort();
  close(file);
}
inline bool Mutant(int number) {
  if (mutants_reached && !mutant_is_noted[number].load(std::memory_order_relaxed)) NoteMutant(number);
  return number == active_mutant;
}
}  // namespace het
"""

SWAPS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&"}
SWAPS |= {"+": "-", "-": "+"}
REMOVED = "(nothing)"


@dataclass(frozen=True)
class Mutant:
    """Bytes `start` to `end` of a file are replaced; `original` is what stands there, of bool if `truth`."""

    id: str
    file: str
    line: int
    lines: int
    start: int
    end: int
    original: str
    replacement: str
    truth: bool = False

    def __str__(self) -> str:
        before, after = (" ".join(text.split())[:50] for text in (self.original, self.replacement))
        return f"{self.file}:{self.line}  {before}  ->  {after}"


def rewrite(text: bytes, mutants: list[tuple[int, Mutant]], start: int = 0, end: int | None = None) -> bytes:
    """Those bytes of the text, with the numbered mutants inside of them; one may lie in another."""
    end = len(text) if end is None else end
    inner = sorted(
        (m for m in mutants if start <= m[1].start and m[1].end <= end), key=lambda m: (m[1].start, -m[1].end)
    )
    parts = []
    while inner:
        (number, outer), *rest = inner
        parts.append(text[start : outer.start])
        changed = rewrite(text, [m for m in rest if m[1].end <= outer.end], outer.start, outer.end)
        if outer.replacement == REMOVED:
            parts.append(b"if (!::het::Mutant(%d)) %b" % (number, changed))
        else:
            otherwise = b"static_cast<bool>(%b)" if outer.truth else b"(%b)"
            line = outer.replacement.encode().replace(b"\n", b" ")  # every line keeps its number
            words = (number, line, otherwise % changed)
            parts.append(b"(::het::Mutant(%d) ? (%b) : %b)" % words)
        start = outer.end
        inner = [m for m in rest if m[1].start >= start]
    return b"".join(parts) + text[start:end]


class Finder:
    """Finds what may be mutated in one translation unit of libclang, in files of `root`."""

    SKIPPED = ("STATIC_ASSERT", "PARM_DECL", "CXX_UNARY_EXPR", "ENUM_DECL", "TYPE_ALIAS_DECL", "TYPEDEF_DECL")
    FUNCTIONS = ("FUNCTION_DECL", "FUNCTION_TEMPLATE", "CXX_METHOD", "CONSTRUCTOR", "DESTRUCTOR")

    def __init__(self, unit: Any, root: Path, wanted: Callable[[str], bool]):
        self._root, self._wanted = root, wanted
        self._text: dict[str, bytes] = {}
        self._macros: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self._of: dict[tuple[str, ...], Mutant] = {}
        self._seen: Counter[tuple[str, ...]] = Counter()
        top = [node for node in unit.cursor.get_children() if self._file(node)]
        for node in top:
            if node.kind.name == "MACRO_INSTANTIATION":
                self._macros[self._file(node)].append((node.extent.start.offset, node.extent.end.offset))
        for node in top:
            self._declaration(node)

    def mutants(self) -> list[Mutant]:
        return list(self._of.values())

    def _file(self, node: Any) -> str:
        """The node's file, by its name in the tree; '' if it is none of the wanted."""
        file = node.location.file
        if file is None or not file.name.startswith(f"{self._root}/"):
            return ""
        name = file.name[len(str(self._root)) + 1 :]
        return name if self._wanted(name) else ""

    def _source(self, node: Any) -> bytes:
        name = self._file(node)
        if name not in self._text:
            self._text[name] = (self._root / name).read_bytes()
        return self._text[name]

    def _bytes(self, node: Any) -> bytes:
        return self._source(node)[node.extent.start.offset : node.extent.end.offset]

    def _declaration(self, node: Any) -> None:
        """Goes into functions; what constant expressions may need is left alone."""
        if node.kind.is_preprocessing() or node.kind.name in self.SKIPPED:
            return
        children = list(node.get_children())
        if node.kind.name not in self.FUNCTIONS:
            if node.kind.name != "VAR_DECL":
                for child in children:
                    self._declaration(child)
        elif children and children[-1].kind.name == "COMPOUND_STMT":
            head = self._source(node)[node.extent.start.offset : children[-1].extent.start.offset]
            if not re.search(rb"\bconstexpr\b", head):
                for child in children:
                    if self._file(child):
                        self._code(child)

    def _code(self, node: Any) -> None:
        kind, text, children = node.kind.name, self._bytes(node), list(node.get_children())
        if kind in self.SKIPPED or (kind == "VAR_DECL" and re.search(rb"\bconstexpr\b", text)):
            return
        self._mutate(node, kind, text, children)
        if kind == "CASE_STMT" or (kind == "IF_STMT" and re.match(rb"if\s+constexpr\b", text)):
            children = children[1:]
        for child in children:
            if self._file(child):
                self._code(child)

    def _mutate(self, node: Any, kind: str, text: bytes, children: list[Any]) -> None:
        start, end = node.extent.start.offset, node.extent.end.offset
        if kind == "BINARY_OPERATOR" and len(children) == 2:
            left, right = children[0].extent.end.offset, children[1].extent.start.offset
            between = self._source(node)[left:right].decode()
            if swap := SWAPS.get(between.strip()):
                swapped = between.replace(between.strip(), swap).encode()
                self._add(node, start, end, text[: left - start] + swapped + text[right - start :])
        elif kind == "INTEGER_LITERAL" and re.fullmatch(rb"[\d']+[uUlL]*", text):
            self._add(node, start, end, text + b" + 1")
        elif kind == "CXX_BOOL_LITERAL_EXPR" and text in (b"true", b"false"):
            self._add(node, start, end, b"false" if text == b"true" else b"true")
        elif kind == "UNARY_OPERATOR" and text.startswith(b"!"):
            self._add(node, start, end, b"static_cast<bool>(%b)" % text[1:])
        elif kind in ("IF_STMT", "WHILE_STMT") and children:
            before = text[: children[0].extent.start.offset - start]
            if re.fullmatch(rb"(if|while)\s*\(", before):
                self._negate(children[0])
        elif kind == "RETURN_STMT" and children and children[0].type.get_canonical().spelling == "bool":
            self._negate(children[0])
        elif kind == "CALL_EXPR" and (found := re.match(rb"std::(min|max)\b", text)):
            other = b"max" if found[1] == b"min" else b"min"
            self._add(node, start, end, b"std::" + other + text[found.end() :])
        elif kind == "COMPOUND_STMT":
            for child in children:
                if child.kind.is_expression() and self._file(child):
                    self._remove(child)

    def _negate(self, node: Any) -> None:
        """A condition, unless it is mutated in the same way as an operator."""
        if not node.kind.is_expression() or not self._file(node):
            return
        text = self._bytes(node)
        operator = node.kind.name in ("UNARY_OPERATOR", "CXX_BOOL_LITERAL_EXPR")
        if node.kind.name == "BINARY_OPERATOR":
            left, right = (child.extent for child in node.get_children())
            operator = self._source(node)[left.end.offset : right.start.offset].strip() in (b"==", b"!=")
        if not operator:
            self._add(node, node.extent.start.offset, node.extent.end.offset, b"!(%b)" % text, truth=True)

    def _remove(self, node: Any) -> None:
        """A statement that is a call, an assignment or an increment."""
        text, end = self._bytes(node), node.extent.end.offset
        ends = re.match(rb"\s*;", self._source(node)[end:])
        if ends and not re.match(rb"\(void\)|static_cast<void>|throw\b", text):
            self._add(node, node.extent.start.offset, end, REMOVED.encode())

    def _add(self, node: Any, start: int, end: int, changed: bytes, truth: bool = False) -> None:
        file, source = self._file(node), self._source(node)
        if any(low <= start and end <= high for low, high in self._macros[file]):
            return
        if b"//" in source[start:end] or b"/*" in source[start:end]:
            return
        original = source[start:end].decode()
        place = source[source.rfind(b"\n", 0, start) + 1 : source.find(b"\n", start)].decode().strip()
        words = (file, place, original, changed.decode())
        if any(m.start == start and m.end == end and m.replacement == words[3] for m in self._alike(words)):
            return
        name = hashlib.sha256(json.dumps([*words, self._seen[words]]).encode()).hexdigest()[:12]
        line = source.count(b"\n", 0, start) + 1
        made = Mutant(name, file, line, original.count("\n"), start, end, original, words[3], truth)
        self._of[(*words, str(self._seen[words]))] = made
        self._seen[words] += 1

    def _alike(self, words: tuple[str, ...]) -> list[Mutant]:
        """Those found already of the same text in a line of the same text."""
        return [self._of[(*words, str(n))] for n in range(self._seen[words])]


def find(source: Path, flags: list[str], root: Path, wanted: Callable[[str], bool]) -> list[Mutant]:
    """The mutants of a file and of what it includes, where `wanted` says so of the file's name in `root`."""
    import clang.cindex

    # libclang comes without the compiler's own headers; clang-tidy (requirements/dev.txt) has them.
    resources = [*Path(sys.prefix).glob("lib/python*/site-packages/clang_tidy/data/lib/clang/*")]
    where = [f"-resource-dir={path}" for path in resources]
    detailed = clang.cindex.TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD
    unit = clang.cindex.Index.create().parse(str(source), args=[*flags, *where], options=detailed)
    # Some of those headers are too new for it; only what they declare would be missing.
    errors = [
        str(one)
        for one in unit.diagnostics
        if one.severity >= clang.cindex.Diagnostic.Error and str(one.location.file).startswith(str(root))
    ]
    if errors:
        raise RuntimeError(f"libclang cannot read {source}: {errors[0]}")
    return Finder(unit, root, wanted).mutants()


def draw(mutants: Iterable[Mutant], seed: int, count: int) -> list[Mutant]:
    """`count` of them at random; one that is drawn stays drawn when others come and go, or nearly."""
    return sorted(mutants, key=lambda m: hashlib.sha256(f"{seed} {m.id}".encode()).digest())[:count]
