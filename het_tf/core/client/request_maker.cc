#include "het_tf/core/client/request_maker.h"

namespace het {

size_t RequestMaker::RowBytes(const Session::Outgoing& what) const {
  size_t bytes = 0;
  if (what.frame != nullptr) {
    for (const TablePush& push : what.frame->tables) {
      bytes += push.rows.size();
    }
  }
  if (what.read != nullptr) {
    for (const TableRead& asked : what.read->tables) {
      const TableSchema& schema = *asked.cache->schema();
      bytes += asked.fetches.size() *
               LeastRowBytes(asked.cache->policy().row_format(), schema.dim(), schema.row_floats());
    }
  }
  return bytes;
}

OutTableRequest* RequestMaker::TableOf(Session* session, uint64_t table, OutRequest* request) const {
  for (OutTableRequest& t : request->tables) {
    if (t.table == table) return &t;
  }
  const TableCache& cache = tables_->at(table);
  OutTableRequest& t = request->tables.emplace_back();
  t.table = table;
  t.epoch = session->epochs().Of(table);
  t.push_format = cache.policy().push_format();
  t.row_format = cache.policy().row_format();
  t.block = static_cast<uint32_t>(cache.schema()->dim());
  t.update_floats = static_cast<uint32_t>(cache.schema()->optimizer().wire_floats());
  t.bound = cache.policy().config().pull_bound;
  return &t;
}

void RequestMaker::Make(const Outgoing& sending, const PartitionId& partition, OutRequest* request) {
  const auto& [session, what] = sending;
  session->FillIn(what, request);
  request->request_id = next_request_id_++;
  request->partition = partition;
  if (what.frame != nullptr) {
    for (const TablePush& push : what.frame->tables) {
      if (push.keys.empty()) continue;
      OutTableRequest* const t = TableOf(session, push.schema->id(), request);
      t->push_keys = push.keys;
      t->push_ticks = push.ticks;
      t->push_format = push.format;
      t->packed_updates = push.rows;
      t->left = push.left;
      if (push.left > 0) request->notified_ack = what.frame->notified_ack;
    }
  }
  if (what.read == nullptr) return;
  for (const TableRead& asked : what.read->tables) {
    OutTableRequest* const t = TableOf(session, asked.cache->schema()->id(), request);
    t->check_keys = asked.checks;
    t->check_clocks = asked.clocks;
    t->fetch_keys = asked.fetches;
  }
  subscriptions_->FillIn(*session, what.read.get(), request);
}

void RequestMaker::Count(const std::vector<Outgoing>& parts, const std::vector<OutRequest>& requests,
                         const Vector<TableBytes>& tables, size_t bytes) const {
  for (const TableBytes& size : tables) bytes -= size.all;  // heads are left
  size_t at = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const PushFrame* const frame = parts[i].what.frame;
    const bool again = frame != nullptr && parts[i].session->WasSent(*frame);
    for (const OutTableRequest& t : requests[i].tables) {
      Counters& counters = tables_->at(t.table).counters();
      ++counters.requests;
      counters.resends += again && !t.push_keys.empty();
      counters.checks += t.check_keys.size();
      counters.row_bytes_out += tables[at].rows;
      const size_t head = at == 0 ? bytes : 0;
      counters.metadata_bytes_out += tables[at].all - tables[at].rows + head;
      counters.head_bytes_out += head;
      ++at;
    }
  }
}

}  // namespace het
