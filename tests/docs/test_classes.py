"""The lint of sizes (tools/check_classes.py): it counts what a reader has to read."""

import pytest
from tools_lib import script


@pytest.fixture(scope="module")
def lint():
    return script("tools/check_classes")


CODE = """
namespace het::graph {
class Forward;
enum class Kind { kOne, kTwo };
struct Config { std::map<int, std::function<void(int)>> a = {}; int b{1}, c = f(2, 3); };
class Table final : public Base<int, long> {
 public:
  Table(int n, Config config = {}) : n_{n}, config_(config) { if (n) { Go(); } }  // not: int x;
  Table(const Table&) = delete;
  ~Table() override = default;
  bool operator==(const Table& other) const { return text_ == "}"; }
  template <typename Fn>
  Status Each(Fn fn);
  static Table Make();
  static constexpr int kMost = 7;
  using Row = float;

 private:
  struct Line { int at; };
  const std::function<void(const std::string&)> notice_;
  std::map<int, int> rows_, spare_;
  int n_ = 0;
  Config config_;
};
Status Table::Each(int x) { struct Local { int a, b; }; return {}; }
}  // namespace het::graph
"""


def test_it_counts_methods_and_members_of_every_class(lint):
    """A count that missed inline bodies or initialisers would let a class grow past the limit."""
    counted = {"graph::Config": (0, 3), "graph::Table": (5, 5), "graph::Table::Line": (0, 1)}
    assert dict(lint.classes(CODE)) == counted


def test_large_or_wrongly_listed_classes_are_faults(lint, tmp_path):
    """A list whose entries outlive their reason would hide the next class that grows."""
    (core := tmp_path / "het_tf/core").mkdir(parents=True)
    methods = "".join(f"void F{i}() {{}}\n" for i in range(37))
    (core / "a.h").write_text(f"class Large {{ {methods} int x_; }};\nclass Small {{}};\n")
    (core / "long.py").write_text("#\n" * 401)
    assert len(lint.faults(tmp_path, {})) == 2
    assert lint.faults(tmp_path, {"Large": (37, 1), "het_tf/core/long.py": (401,)}) == []
    for wrong in ({"Large": (38, 1)}, {"Large": (36, 1)}, {"Small": (0, 0)}, {"Gone": (40, 0)}):
        entries = {"Large": (37, 1), "het_tf/core/long.py": (401,), **wrong}
        assert len(lint.faults(tmp_path, entries)) == 1, wrong
