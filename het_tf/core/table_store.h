// Tables at the store, as whole things: made, dropped, counted, filled and read outside of any step. What a
// step reads and writes goes the way of the frames instead (transport.h).
//
// The embedded store and a remote server are two implementations. Thread-safe.
#ifndef HET_TF_CORE_TABLE_STORE_H_
#define HET_TF_CORE_TABLE_STORE_H_

#include <cstdint>
#include <vector>

#include "het_tf/core/row_store.h"
#include "het_tf/core/schema.h"
#include "het_tf/core/span.h"
#include "het_tf/core/status.h"

namespace het {

// Every row of a table, for saving and looking at.
struct TableRows {
  std::vector<Key> keys;
  std::vector<Clock> clocks;
  std::vector<uint32_t> last_used;
  std::vector<uint16_t> counts;
  std::vector<float> rows;  // keys.size() * row_floats: value, then slots
};

class TableStore {
 public:
  virtual ~TableStore() = default;

  // An equal second creation changes nothing. AlreadyExists shows both specs.
  virtual Status CreateTable(const Schema& schema) = 0;
  virtual Status DropTable(const TableSchema& schema) = 0;
  // All rows go; caches notice by the epoch.
  virtual Status ClearTable(const TableSchema& schema) = 0;
  virtual Result<size_t> CountRows(const TableSchema& schema) = 0;
  virtual Result<size_t> CountBytes(const TableSchema& schema) = 0;
  // One tick for every key, whose row becomes the given one: row_floats a key with slots, else dim, and slots
  // return to their initial content. The last of equal keys wins. Rows before one that fails stay.
  virtual Status Assign(const TableSchema& schema, Span<const Key> keys, const float* rows,
                        bool with_slots) = 0;
  // How many of the keys were there.
  virtual Result<size_t> Remove(const TableSchema& schema, Span<const Key> keys) = 0;
  virtual Result<TableRows> Scan(const TableSchema& schema) = 0;
};

}  // namespace het

#endif  // HET_TF_CORE_TABLE_STORE_H_
