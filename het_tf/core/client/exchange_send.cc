// The requests of sessions, gathered into frames.
#include <map>
#include <utility>

#include "het_tf/core/client/exchange.h"

namespace het {
namespace {

// Limit on the bytes of rows of a frame and its reply together, about; a part with more goes alone. A server
// completes an answer before it sends it, so several smaller frames keep both sides busy. The heads of a
// frame of this size are small beside its rows.
constexpr size_t kFrameRowBytes = size_t{64} << 10;

// Bytes of updates in it and of rows that it surely brings.
size_t RowBytes(const Session::Outgoing& what) {
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

OutTableRequest* TableOf(Session* session, const TableCache& cache, OutRequest* request) {
  const uint64_t table = cache.schema()->id();
  for (OutTableRequest& t : request->tables) {
    if (t.table == table) return &t;
  }
  OutTableRequest& t = request->tables.emplace_back();
  t.table = table;
  t.epoch = session->epochs()[table];
  t.push_format = cache.policy().push_format();
  t.row_format = cache.policy().row_format();
  t.block = static_cast<uint32_t>(cache.schema()->dim());
  t.update_floats = static_cast<uint32_t>(cache.schema()->optimizer().wire_floats());
  t.bound = cache.policy().config().pull_bound;
  return &t;
}

// The bytes of the answer if every row comes.
size_t MostBytes(const Session::Outgoing& what) { return what.read == nullptr ? 0 : what.read->most_bytes(); }

}  // namespace

void Exchange::Pump() {
  struct Gathered {
    std::vector<Outgoing> parts;
    size_t bytes = 0;
    size_t most = 0;
  };
  for (bool more = true; more;) {
    more = false;
    std::map<uint32_t, Gathered> shards;
    for (Session& session : sessions_) {
      Outgoing next{&session, {}};
      if (!session.Next(transport_->Now(), &next.what)) continue;
      more = true;
      const size_t bytes = RowBytes(next.what);
      if (bytes >= kFrameRowBytes || session.goes_alone()) {
        Send({next});
        continue;
      }
      Gathered& gathered = shards[transport_->ShardOf(session.partition())];
      const size_t most = MostBytes(next.what);
      if (gathered.bytes + bytes > kFrameRowBytes || gathered.most + most > session.most_read_bytes()) {
        if (!gathered.parts.empty()) Send(gathered.parts);
        gathered = Gathered();
      }
      gathered.parts.push_back(std::move(next));
      gathered.bytes += bytes;
      gathered.most += most;
    }
    for (const auto& [shard, gathered] : shards) Send(gathered.parts);
  }
}

void Exchange::Make(const Outgoing& sending, OutRequest* request) {
  const auto& [session, what] = sending;
  session->FillIn(what, request);
  request->request_id = next_request_id_++;
  request->partition = transport_->id(session->partition());
  if (what.frame != nullptr) {
    for (TablePush& push : what.frame->tables) {
      if (push.keys.empty()) continue;
      push.Sort();
      OutTableRequest* const t = TableOf(session, tables_->at(push.schema->id()), request);
      t->push_keys = push.keys;
      t->push_ticks = push.ticks;
      t->push_format = push.format;
      t->packed_updates = push.rows;
      t->left = push.left;
      if (push.left > 0) request->notified_ack = what.frame->notified_ack;
    }
  }
  if (what.read != nullptr) {
    for (TableRead& asked : what.read->tables) {
      asked.Sort();
      OutTableRequest* const t = TableOf(session, *asked.cache, request);
      t->check_keys = asked.checks;
      t->check_clocks = asked.clocks;
      t->fetch_keys = asked.fetches;
    }
    subscriptions_->FillIn(*session, what.read.get(), request);
  }
  session->rings().Name(*tables_, request);
}

void Exchange::CountRequests(const std::vector<Outgoing>& parts, const std::vector<OutRequest>& requests,
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

// One frame.
void Exchange::Send(const std::vector<Outgoing>& parts) {
  const TraceScope sending(trace_, TraceKind::kSend);
  std::vector<OutRequest> requests(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) Make(parts[i], &requests[i]);
  Vector<TableBytes> tables;
  OutFrame frame = EncodeFrame(Span<const OutRequest>(requests), transport_->Buffer(0), &tables);
  CountRequests(parts, requests, tables, frame.bytes.size());
  const double now = transport_->Now();
  transport_->Send(std::move(frame));
  for (size_t i = 0; i < parts.size(); ++i) {
    Session* const session = parts[i].session;
    session->Sent(parts[i].what, requests[i], requests[0].request_id, now,
                  transport_->Connection(session->partition()));
  }
}

}  // namespace het
