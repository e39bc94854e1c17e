#include "het_tf/ext/checkpoint/cc/verify.h"

#include <algorithm>
#include <cmath>

#include "het_tf/core/base/checksum.h"
#include "het_tf/core/store/shard.h"
#include "het_tf/ext/checkpoint/cc/row_reader.h"

namespace het {
namespace {

constexpr size_t kPieceBytes = size_t{4} << 20;

class Verifier {
 public:
  Verifier(const RowReader& file, const VerifyRequest& request)
      : file_(file), request_(request), mine_(request.layout.partitions()) {
    for (const uint32_t p : request.partitions) {
      if (p < mine_.size()) mine_[p] = 1;
    }
  }

  Status CheckTensor(const RowTable& table, RowColumn column) {
    const RowTensor& tensor = table.tensors[column];
    const std::string name = table.TensorName(column);
    const auto& said = request_.tensors.at(name);
    Checksum checksum;
    bool in_range = true;
    bool finite = true;
    const uint64_t step = std::max<uint64_t>(1, kPieceBytes / std::max<uint64_t>(1, tensor.row_bytes));
    for (uint64_t first = 0; first < tensor.rows; first += step) {
      const auto bytes = static_cast<size_t>(std::min(step, tensor.rows - first) * tensor.row_bytes);
      piece_.Resize(bytes);
      HET_RETURN_IF_ERROR(file_.Read(table, column, first, bytes / tensor.row_bytes, piece_.data()));
      checksum.Add(piece_.data(), bytes);
      if (column == kClocksColumn) {
        in_range = in_range && All<Clock>(bytes, [](Clock c) { return c >= 0 && c <= Shard::kMaxClock; });
      } else if (column == kValuesColumn || column == kSlotsColumn) {
        finite = finite && All<float>(bytes, [](float x) { return std::isfinite(x); });
      }
    }
    if (const std::string found = Checksum::Text(checksum.value());
        found != said.checksum || tensor.rows != said.rows) {
      return file_.Damaged("'" + name + "', bytes " + std::to_string(tensor.begin) + " to " +
                           std::to_string(tensor.begin + tensor.bytes()) + ", has " +
                           std::to_string(tensor.rows) + " rows and checksum " + found +
                           ", and the manifest says " + std::to_string(said.rows) + " and " + said.checksum);
    }
    if (!in_range) return file_.Damaged("'" + name + "' has a clock out of range");
    if (!finite && request_.contents) Fault("'" + name + "' has NaN or Inf");
    return Status();
  }

  // Checks that each key is in the file of its partition, and there once.
  Status CheckKeys(const RowTable& table) {
    Vector<Key> rows(table.rows);
    Vector<Key> removed(table.removed);
    HET_RETURN_IF_ERROR(file_.Read(table, kKeysColumn, 0, rows.size(), rows.data()));
    if (table.increment)
      HET_RETURN_IF_ERROR(file_.Read(table, kRemovedColumn, 0, removed.size(), removed.data()));
    const std::string of = "table '" + table.name + "' has ";
    for (auto [keys, kind] : {std::pair{&rows, "row"}, std::pair{&removed, "removal"}}) {
      std::sort(keys->begin(), keys->end());
      const auto twice = std::adjacent_find(keys->begin(), keys->end());
      if (twice != keys->end()) Fault(of + "id " + std::to_string(*twice) + " in more than one " + kind);
      const TableLayout layout = request_.layout.OfTable(HashName(table.name));
      const auto alien =
          std::find_if(keys->begin(), keys->end(), [&](Key key) { return !mine_[layout.OfKey(key)]; });
      if (alien != keys->end()) {
        Fault(of + "a " + kind + " of id " + std::to_string(*alien) + ", of partition " +
              std::to_string(layout.OfKey(*alien)));
      }
    }
    const auto both = std::find_if(removed.begin(), removed.end(), [&](Key key) {
      return std::binary_search(rows.begin(), rows.end(), key);
    });
    if (both != removed.end()) {
      Fault(of + "id " + std::to_string(*both) + " both as a row and as a removal");
    }
    return Status();
  }

  std::vector<std::string> TakeFaults() { return std::move(faults_); }

 private:
  template <typename T, typename Fits>
  bool All(size_t bytes, const Fits& fits) const {
    const T* begin = reinterpret_cast<const T*>(piece_.data());
    return std::all_of(begin, begin + bytes / sizeof(T), fits);
  }
  void Fault(const std::string& what) { faults_.push_back("'" + file_.path() + "': " + what); }

  const RowReader& file_;
  const VerifyRequest& request_;
  Vector<uint8_t> mine_;  // for each partition: 1 if the file should have it
  Buffer<char> piece_;
  std::vector<std::string> faults_;
};

}  // namespace

Result<VerifiedFile> VerifyRows(const std::string& path, const VerifyRequest& request) {
  HET_ASSIGN_OR_RETURN(const auto file, RowReader::Open(path));
  if (file->bytes() != request.bytes) {
    return file->Damaged("it has " + std::to_string(file->bytes()) + " bytes, and the manifest says " +
                         std::to_string(request.bytes));
  }
  if (Checksum::Text(file->header_checksum()) != request.header_checksum) {
    return file->Damaged("its header does not have the manifest's checksum");
  }
  const auto tensors = InOrder(file->tables());
  const auto named = [&](const auto& one) {
    return request.tensors.count(file->tables()[one.first].TensorName(one.second)) != 0;
  };
  if (tensors.size() != request.tensors.size() || !std::all_of(tensors.begin(), tensors.end(), named)) {
    return file->Damaged("its tensors are not the manifest's");
  }
  Verifier verifier(*file, request);
  for (const auto& [t, column] : tensors) {
    HET_RETURN_IF_ERROR(verifier.CheckTensor(file->tables()[t], column));
  }
  for (const RowTable& table : file->tables()) {
    if (request.contents) HET_RETURN_IF_ERROR(verifier.CheckKeys(table));
  }
  return VerifiedFile{verifier.TakeFaults(), file->tables()};
}

}  // namespace het
