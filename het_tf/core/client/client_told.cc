// Rows that a partition knows to be held here (CacheConfig::checks "told", holdings.h): a read of them asks
// nothing but "what has moved?", and what has is in the answer.
//
// A line is held from the answer that fetched or checked it on, as long as it is here and valid, unless an
// answer says that nothing is held any more. Held means: the partition has it on its list, at a base no
// higher than the line's, and tells it before it answers a read. So what was trusted when a read began is
// looked at again when the request leaves (Doubt) and when the answer has come (Doubted): what is not held
// then is checked like any other line.
#include <algorithm>

#include "het_tf/core/client/client.h"

namespace het {

bool ReadPart::told() const {
  return std::any_of(sections.begin(), sections.end(),
                     [](const Section& s) { return s.device == nullptr && s.cache->config().told(); });
}

// Trusted lines that are not held are checked, or fetched where they are invalid.
void Client::Doubt(ReadPart* part) {
  for (ReadPart::Section& section : part->sections) {
    TableCache* cache = section.cache;
    // If memory ends here, nothing has changed.
    for (Vector<Key>* keys : {&section.checks, &section.fetches})
      keys->reserve(keys->size() + section.trusted.size());
    section.clocks.reserve(section.clocks.size() + section.trusted.size());
    size_t kept = 0;
    for (uint32_t line : section.trusted) {
      if (cache->held(line) && cache->config().told()) {
        section.trusted[kept++] = line;
      } else if (cache->invalid(line)) {
        section.fetches.push_back(cache->lines().meta(line).key);
      } else {
        section.checks.push_back(cache->lines().meta(line).key);
        section.clocks.push_back(cache->base(line));
      }
    }
    section.trusted.resize(kept);
  }
}

// Asks what has moved, and says what was let go.
void Client::Tell(Link* link, ReadPart* part, Request* request) {
  for (ReadPart::Section& section : part->sections) section.hold = false;
  if (!part->told()) return;
  request->tell = true;
  request->told_ack = link->told;
  for (ReadPart::Section& section : part->sections) {
    TableCache* cache = section.cache;
    if (!cache->config().told()) continue;
    for (Key key : cache->let_go()) LinkOf(*cache, key)->let_go[cache->schema().id()].push_back(key);
    cache->let_go().clear();
    auto& table = *std::find_if(request->tables.begin(), request->tables.end(),
                                [&](const TableRequest& t) { return t.table == cache->schema().id(); });
    table.hold = section.hold = part->op->token != 0;
    Vector<Key>& gone = link->let_go[table.table];
    // Some have come back meanwhile.
    gone.erase(std::remove_if(gone.begin(), gone.end(),
                              [&](Key key) {
                                const uint32_t line = cache->lines().Find(key);
                                return line != kNoRow && cache->held(line);
                              }),
               gone.end());
    std::sort(gone.begin(), gone.end());
    gone.erase(std::unique(gone.begin(), gone.end()), gone.end());
    table.dropped = std::move(gone);
    gone.clear();
  }
}

void Client::TakeTold(Link* link, const Reply& reply, const TableReply& answer, TableCache* cache,
                      ReplyRows* rows) {
  for (size_t i = 0; i < answer.told_keys.size(); ++i) {
    const Key key = answer.told_keys[i];
    const Clock clock = answer.told_clocks[i];
    const float* row = rows->Next(clock);
    const uint32_t line = cache->lines().Find(key);
    if (line == kNoRow) {
      cache->let_go().push_back(key);
      continue;
    }
    Install(link, cache, key, clock, row, reply.last_seq, false, false, nullptr);
    if (reply.told != 0) cache->SetHeld(line, true);
    ++cache->counters().told_rows;
    ++cache->counters().update_pull;
  }
}

void Client::NothingIsHeld(Link* link) {
  for (auto& [table, held] : caches_) {
    TableCache* cache = held.get();
    if (cache->config().checks != "told") continue;
    bool any = false;
    cache->ForEachLine([&](uint32_t line) {
      if (!cache->held(line) || LinkOf(*cache, cache->lines().meta(line).key) != link) return;
      cache->SetHeld(line, false);
      any = true;
    });
    cache->counters().told_resets += any;
  }
  link->let_go.clear();
}

// What of the part has to be asked once more, as a part of its own; null: nothing.
ReadPartPtr Client::Doubted(const ReadPart& part) {
  ReadPartPtr again;
  for (const ReadPart::Section& section : part.sections) {
    ReadPart::Section doubted{section.cache, {}, {}, {}};
    for (uint32_t line : section.trusted) {
      if (!section.cache->held(line)) doubted.trusted.push_back(line);
    }
    if (doubted.trusted.empty()) continue;
    if (again == nullptr) again = std::make_shared<ReadPart>();
    again->op = part.op;
    again->sections.push_back(std::move(doubted));
  }
  return again;
}

}  // namespace het
