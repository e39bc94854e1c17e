// Requests as clients send them.
#pragma once

#include "het_tf/core/row/schema.h"
#include "het_tf/core/wire/request.h"

namespace het::testing {

// seq 0: without a push.
inline Request RequestOf(const PartitionId &partition, const ClientId &client, uint64_t seq = 0) {
  Request q;
  q.partition = partition;
  q.client = client;
  q.seq = q.after_seq = seq;
  return q;
}

inline TableRequest &AddTable(Request *q, const TableSchema &schema, uint64_t epoch) {
  TableRequest &t = q->tables.emplace_back();
  t.table = schema.id();
  t.epoch = epoch;
  t.update_floats = static_cast<uint32_t>(schema.optimizer().wire_floats());
  return t;
}

// So many ticks of each key, whose update is `value` in every float.
template <typename Keys>
void AddPush(TableRequest *t, const Keys &keys, uint32_t ticks = 1, float value = 1) {
  for (const Key key : keys) {
    t->push_keys.push_back(key);
    t->push_ticks.push_back(ticks);
    t->push_updates.insert(t->push_updates.end(), t->update_floats, value);
  }
}

}  // namespace het::testing
