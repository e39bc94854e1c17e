#include "het_tf/ext/serving/cc/follow/live_table.h"

#include <utility>

#include "het_tf/ext/serving/cc/serve/row_codec.h"

namespace het::follow {
namespace {

// Room for a quarter more keys: then each key is copied to new files at most four times on average.
uint64_t CapacityFor(uint64_t rows) { return rows + rows / 4 + 1024; }

TableHead Suited(TableHead like, const serve::ServeFile& base) {
  like.dim = base.dim();
  like.row_bytes = base.row_bytes();
  like.row_type = base.row_type();
  return like;
}

// A file whose capacity suffices may still be too dense around one bucket: it is made larger.
template <typename Fill>
Result<TableFile> Filled(const LiveDirectory& directory, const TableHead& like, uint64_t capacity,
                         const Fill& fill) {
  for (;; capacity *= 2) {
    HET_ASSIGN_OR_RETURN(TableFile file, TableFile::Create(directory, like, capacity));
    bool fits = true;
    HET_RETURN_IF_ERROR(fill([&](Key key, const uint8_t* row) { fits = fits && file.Put(key, row); }));
    if (fits) return file;
  }
}

}  // namespace

LiveTable::LiveTable(TableFile file, const TableHead& like, std::shared_ptr<const serve::ServeFile> base)
    : file_(std::move(file)), like_(like), base_(std::move(base)), row_(like.row_bytes) {}

Result<std::unique_ptr<LiveTable>> LiveTable::Create(const LiveDirectory& directory, const TableHead& like,
                                                     std::shared_ptr<const serve::ServeFile> base) {
  const TableHead suited = Suited(like, *base);
  HET_ASSIGN_OR_RETURN(TableFile file, Filled(directory, suited, CapacityFor(base->size()),
                                              [&](const auto& put) { return base->ForEachRow(put); }));
  return std::unique_ptr<LiveTable>(new LiveTable(std::move(file), suited, std::move(base)));
}

Result<std::unique_ptr<LiveTable>> LiveTable::Resume(const LiveDirectory& directory, const TableHead& like,
                                                     std::shared_ptr<const serve::ServeFile> base) {
  const TableHead suited = Suited(like, *base);
  HET_ASSIGN_OR_RETURN(TableFile file, TableFile::Resume(directory, suited));
  return std::unique_ptr<LiveTable>(new LiveTable(std::move(file), suited, std::move(base)));
}

Status LiveTable::Put(Span<const Key> keys, const float* values, size_t* done) {
  const size_t dim = like_.dim;
  for (*done = 0; *done < keys.size(); ++*done) {
    const Key key = keys[*done];
    const float* value = values + *done * dim;
    if (!serve::Fits(like_.row_type, value, dim)) {
      return InvalidArgument("the row of id " + std::to_string(key) + " of table '" + schema().spec().name +
                             "' has values beyond 65504, the end of float16; export the model again with "
                             "row_dtype='bfloat16'");
    }
    serve::EncodeRow(like_.row_type, value, dim, row_.data());
    if (!file_.Put(key, row_.data())) return Status();
  }
  return Status();
}

void LiveTable::Remove(Span<const Key> keys) {
  for (const Key key : keys) file_.Remove(key);
}

Result<TableFile> LiveTable::Grown(const LiveDirectory& directory, uint64_t number, uint64_t more) const {
  TableHead like = like_;
  like.number = number;
  return Filled(directory, like, CapacityFor(rows() + more), [&](const auto& put) {
    file_.ForEach(put);
    return Status();
  });
}

}  // namespace het::follow
