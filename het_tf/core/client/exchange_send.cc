// What sessions want to say, gathered into frames.
#include <algorithm>
#include <map>
#include <utility>

#include "het_tf/core/client/exchange.h"

namespace het {
namespace {

// A frame brings rows of about so many bytes, both ways together; a part with more goes alone.
// Answers are made whole before they travel: several smaller frames keep both sides busy, and the
// heads of a frame of this size are nothing beside its rows.
constexpr size_t kFrameRowBytes = size_t{64} << 10;

// What the answer takes if every row comes.
size_t MostBytes(const Session::Outgoing& what) { return what.read == nullptr ? 0 : what.read->most_bytes(); }

}  // namespace

void Exchange::Pump() {
  struct Gathered {
    std::vector<RequestMaker::Outgoing> parts;
    size_t bytes = 0;
    size_t most = 0;
  };
  for (bool more = true; more;) {
    more = false;
    std::map<uint32_t, Gathered> shards;
    for (Session& session : sessions_) {
      RequestMaker::Outgoing next{&session, {}};
      if (!session.Next(transport_->Now(), &next.what)) continue;
      more = true;
      const size_t bytes = requests_.RowBytes(next.what);
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

// One frame.
void Exchange::Send(const std::vector<RequestMaker::Outgoing>& parts) {
  const TraceScope sending(trace_, TraceKind::kSend);
  std::vector<OutRequest> requests(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    requests_.Make(parts[i], transport_->id(parts[i].session->partition()), &requests[i]);
  }
  Vector<TableBytes> tables;
  OutFrame frame = EncodeFrame(Span<const OutRequest>(requests), transport_->Buffer(0), &tables);
  requests_.Count(parts, requests, tables, frame.bytes.size());
  const double now = transport_->Now();
  transport_->Send(std::move(frame));
  for (size_t i = 0; i < parts.size(); ++i) {
    Session* const session = parts[i].session;
    session->Sent(parts[i].what, requests[i], requests[0].request_id, now,
                  transport_->Connection(session->partition()));
  }
}

}  // namespace het
