// The reader's side of changes.h: from chunks, which are untrusted, to rows.
#include <algorithm>
#include <cstring>

#include "het_tf/core/store/changes.h"
#include "het_tf/core/store/chunk.h"
#include "het_tf/core/store/chunk_format.h"

namespace het {

using chunk::Kind;
using chunk::ReadKind;

Status DecodeChanges(Span<const uint8_t> bytes, ChangedRows* rows) {
  const auto broken = [](const char* what) { return InvalidArgument(std::string("damaged chunk: ") + what); };
  Reader r(bytes);
  HET_ASSIGN_OR_RETURN(const Kind kind, ReadKind(&r));
  if (kind != Kind::kRemove && kind != Kind::kKeys && kind != Kind::kValues) {
    return broken("of a kind that is not part of changes");
  }
  rows->table = r.Fixed<uint64_t>();
  rows->dim = 0;
  size_t count = r.left() / sizeof(Key);
  uint32_t format = 0;
  if (kind == Kind::kValues) {
    rows->dim = r.Fixed<uint32_t>();
    count = r.Fixed<uint32_t>();
    format = r.Fixed<uint32_t>();
    if (rows->dim == 0 || rows->dim > TableSchema::kMaxDim) return broken("its rows have no valid width");
    if (!IsRowFormat(format)) return broken("its rows have an unknown format");
  }
  if (!r.ok() || r.left() / sizeof(Key) < count || (kind != Kind::kValues && r.left() % sizeof(Key) != 0)) {
    return broken("it does not have its stated number of rows");
  }
  rows->what = kind == Kind::kRemove ? ChangedRows::kRemoved
               : kind == Kind::kKeys ? ChangedRows::kKeys
                                     : ChangedRows::kValues;
  rows->keys.resize(count);
  rows->values.clear();
  if (count > 0) std::memcpy(rows->keys.data(), r.Raw(count * sizeof(Key)), count * sizeof(Key));
  if (kind != Kind::kValues) return Status();
  if (!UnpackRows(static_cast<RowFormat>(format), rows->dim, rows->dim, count, &r, &rows->values) ||
      r.left() > 0) {
    return broken("its rows do not fill it");
  }
  return Status();
}

ChangesRequest NextOf(const ChangesScan& scan, const TableSchema& schema, const RowBatch& rows) {
  // A page exceeds its bytes by at most one row.
  const size_t bytes = std::max<size_t>(1, (rows.left() - 1) * RowBatch::RowBytes(schema.row_floats()));
  return {scan.since, scan.cursor, bytes, schema.id(), /*stored=*/true};
}

Status TakePage(const ChangesPage& page, const TableSchema& schema, ChangesScan* scan, RowBatch* rows,
                Vector<Key>* removed) {
  scan->cursor = page.next;
  scan->kind = page.kind;
  scan->complete = page.next.begins();
  for (const Bytes& bytes : page.chunks) {
    const Span<const uint8_t> chunk(bytes.data(), bytes.size());
    Reader r(chunk);
    HET_ASSIGN_OR_RETURN(const Kind kind, ReadKind(&r));
    if (kind == Kind::kRows) {
      HET_RETURN_IF_ERROR(DecodeRows(chunk, schema, rows));
      continue;
    }
    ChangedRows changed;
    HET_RETURN_IF_ERROR(DecodeChanges(chunk, &changed));
    if (changed.what == ChangedRows::kRemoved && changed.table == schema.id()) {
      removed->insert(removed->end(), changed.keys.begin(), changed.keys.end());
    }
  }
  return Status();
}

}  // namespace het
