#include "het_tf/core/client/partition_read.h"

#include <algorithm>

#include "het_tf/core/client/row_sink.h"

namespace het {

size_t PartitionRead::most_bytes() const {
  size_t bytes = 0;
  for (const TableRead& asked : tables) bytes += asked.rows() * asked.most_row_bytes();
  return bytes;
}

void TableRead::Sort() {
  struct Question {
    Key key;
    Clock clock;
    uint32_t at;
  };
  const auto sort = [](Vector<Key>* keys, Vector<Clock>* clocks, Vector<uint32_t>* at) {
    if (std::is_sorted(keys->begin(), keys->end())) return;
    Vector<Question> questions(keys->size());
    for (size_t i = 0; i < keys->size(); ++i)
      questions[i] = {(*keys)[i], clocks == nullptr ? 0 : (*clocks)[i], (*at)[i]};
    std::sort(questions.begin(), questions.end(),
              [](const Question& a, const Question& b) { return a.key < b.key; });
    for (size_t i = 0; i < keys->size(); ++i) {
      (*keys)[i] = questions[i].key;
      (*at)[i] = questions[i].at;
      if (clocks != nullptr) (*clocks)[i] = questions[i].clock;
    }
  };
  sort(&checks, &clocks, &check_at);
  sort(&fetches, nullptr, &fetch_at);
}

TableRead TableRead::TakeLast(size_t rows) {
  TableRead taken{cache};
  const auto take = [](auto* from, auto* to, size_t count) {
    to->assign(from->end() - static_cast<ptrdiff_t>(count), from->end());
    from->resize(from->size() - count);
  };
  const size_t fetch = std::min(rows, fetches.size());
  take(&fetches, &taken.fetches, fetch);
  take(&fetch_at, &taken.fetch_at, fetch);
  const size_t check = std::min(rows - fetch, checks.size());
  take(&checks, &taken.checks, check);
  take(&clocks, &taken.clocks, check);
  take(&check_at, &taken.check_at, check);
  return taken;
}

PartitionReadPtr PartitionRead::TakePiece(size_t most_bytes) {
  if (this->most_bytes() <= most_bytes || (tables.size() == 1 && tables[0].rows() == 1)) return nullptr;
  auto piece = std::make_shared<PartitionRead>();
  piece->partition = partition;
  for (size_t left = most_bytes; !tables.empty();) {
    TableRead& last = tables.back();
    size_t fit = left / last.most_row_bytes();
    if (piece->tables.empty()) fit = std::max<size_t>(fit, 1);
    if (fit == 0) break;
    piece->tables.push_back(last.TakeLast(fit));
    left -= std::min(left, piece->tables.back().rows() * last.most_row_bytes());
    if (!last.empty()) break;
    tables.pop_back();
  }
  return piece;
}

ReadOp::ReadOp() = default;

ReadOp::~ReadOp() { Detach(); }

void ReadOp::Detach() {
  for (const PartitionReadPtr& part : parts) part->op = nullptr;
}

}  // namespace het
