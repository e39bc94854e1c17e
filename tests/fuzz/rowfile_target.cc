// What a restore reads: the header of a row file, which decides what is read
// from where.
//
// An input is such a header, with four bytes before it that say how long the
// file is.
#include <cstring>

#include "het_tf/ext/checkpoint/cc/row_file.h"
#include "tests/fuzz/target.h"

namespace het::fuzz {
namespace {

Bytes Input(const std::string &json, uint64_t data_bytes) {
  const auto file_bytes = static_cast<uint32_t>(kLengthBytes + json.size() + data_bytes);
  const auto *const size = reinterpret_cast<const uint8_t *>(&file_bytes);
  return Joined({{size, size + sizeof(file_bytes)}, Text(json)});
}

// What a reader takes for granted of tables that were accepted.
void CheckTables(const std::vector<RowTable> &tables, uint64_t data, uint64_t file_bytes) {
  uint64_t at = data;
  for (const auto &[t, column] : InOrder(tables)) {
    const RowTensor &tensor = tables[t].tensors[column];
    if (tensor.begin != at) Fail("tensors overlap, or leave a hole");
    if (tensor.row_bytes == 0) Fail("a tensor of rows without bytes");
    if (tensor.rows > (file_bytes - at) / tensor.row_bytes) Fail("a tensor goes beyond the file");
    at += tensor.bytes();
  }
  if (at != file_bytes) Fail("the tensors do not fill the file");
  for (const RowTable &table : tables) {
    for (RowColumn column : {kKeysColumn, kClocksColumn, kValuesColumn, kLastUsedColumn, kCountsColumn}) {
      if (!table.tensors[column].present || table.tensors[column].rows != table.rows)
        Fail("a column is short");
    }
    if (table.dim == 0 || table.tensors[kValuesColumn].row_bytes != table.dim * sizeof(float))
      Fail("another dim");
    if (table.slot_floats != 0 && table.tensors[kSlotsColumn].rows != table.rows) Fail("slots are short");
    if (table.tensors[kSlotsColumn].present != (table.slot_floats != 0)) Fail("slots without floats");
    if (table.increment != table.tensors[kRemovedColumn].present) Fail("removals of no increment");
    if (table.increment && table.removed != table.tensors[kRemovedColumn].rows) Fail("removals are short");
  }
}

std::vector<Bytes> Seeds() {
  std::vector<RowTable> tables(2);
  tables[0].name = "a";
  tables[0].rows = 5;
  tables[0].dim = 2;
  tables[0].slot_floats = 3;
  tables[1].name = "\"b\"/keys";
  tables[1].dim = 1;
  tables[1].increment = true;
  tables[1].removed = 4;
  std::vector<Bytes> seeds;
  for (size_t n = 0; n <= tables.size(); ++n) {
    std::vector<RowTable> some(tables.begin(), tables.begin() + static_cast<long>(n));
    const std::string head = LayOut(&some);
    seeds.push_back(Input(head.substr(kLengthBytes), n == 0 ? 0 : EndOf(some) - head.size()));
  }
  // Without the padding there is more for the fuzzer to change.
  std::string json(seeds[1].begin() + 4, seeds[1].end());
  json.resize(json.find_last_not_of(' ') + 1);
  seeds.push_back(Input(json, EndOf(tables)));
  return seeds;
}

void Run(const uint8_t *data, size_t size) {
  uint32_t file_bytes = 0;
  if (size < sizeof(file_bytes)) return;
  std::memcpy(&file_bytes, data, sizeof(file_bytes));
  const Span<const uint8_t> json(data + sizeof(file_bytes), size - sizeof(file_bytes));
  const auto tables = ParseRowHeader(json, file_bytes);
  if (!tables.ok()) {
    if (tables.status().message().size() > 2000 + 2 * size) Fail("a message larger than what it is about");
    return;
  }
  CheckTables(tables.value(), kLengthBytes + json.size(), file_bytes);
  std::vector<RowTable> again = tables.value();
  const std::string head = LayOut(&again);
  const auto same = ParseRowHeader(
      {reinterpret_cast<const uint8_t *>(head.data()) + kLengthBytes, head.size() - kLengthBytes},
      std::max<uint64_t>(head.size(), EndOf(again)));
  if (!same.ok() || same.value().size() != again.size()) Fail("what was read cannot be written");
}

const bool registered = Register({"rowfile", Run, Seeds});

}  // namespace
}  // namespace het::fuzz
