// A client's conversation with one partition: numbered pushes, requests on their way, and what is known of
// the other side. Data and small moves; the rules are the client's (client.h).
#ifndef HET_TF_CORE_CLIENT_LINK_H_
#define HET_TF_CORE_CLIENT_LINK_H_

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "het_tf/core/cache/table_cache.h"
#include "het_tf/core/client/device_rows.h"
#include "het_tf/core/client/push_log.h"
#include "het_tf/core/wire/reply.h"
#include "het_tf/core/wire/request.h"

namespace het {

struct ReadOp;

// What one read wants of one partition.
struct ReadPart {
  struct Section {
    TableCache* cache;
    Vector<Key> checks;
    Vector<Clock> clocks;
    Vector<Key> fetches;
    // Rows are for a device: where they go, and the positions of checks and fetches there.
    DeviceRead::Part* device = nullptr;
    Vector<uint32_t> check_at{};
    Vector<uint32_t> fetch_at{};
    // Held lines, which the partition is not asked about: it tells which have moved. They are pinned.
    Vector<uint32_t> trusted{};
    bool hold = false;  // the request that is on its way asks to hold what is read

    bool empty() const { return checks.empty() && fetches.empty() && trusted.empty(); }
  };
  ReadOp* op = nullptr;  // null: nobody waits for the answer any more
  Vector<Section> sections;

  // Of a table whose rows the partition tells (CacheConfig::checks).
  bool told() const;
};
using ReadPartPtr = std::shared_ptr<ReadPart>;

struct Link {
  struct Outstanding {
    uint32_t request_id;
    uint32_t frame;    // the request_id of the first part of its frame
    ReadPartPtr part;  // null: a push alone
    double sent_at;
    bool fresh;  // sent when nothing else was on its way: what its answer says is the partition's state now
    uint64_t first_table;  // bears the bytes of the answer's head
    uint64_t seq;          // of a push that was never sent before; else 0
    uint64_t connection;   // that it was sent over
    uint64_t inc;          // that it said it knows
    ClientId client;       // whose it is: the answer says what the partition has of that one
    bool told;             // the answer tells what has moved
  };

  uint32_t partition = 0;
  ClientId client;
  uint64_t inc = 0;                     // 0: nothing heard yet
  std::set<uint64_t> past_incs;         // answers of these lives are late, unless asked afresh
  std::map<uint64_t, uint64_t> epochs;  // by table; absent: not known yet

  PushLog log;
  double applied_at = 0;      // when the partition last said that a push was applied
  uint64_t sent_through = 0;  // newest seq that was sent since the last failure
  uint64_t ever_sent = 0;     // newest seq that was ever sent
  // Newest seq that the connection `written_on` has certainly written: it was applied when it was first sent.
  uint64_t written = 0;
  uint64_t written_on = 0;
  uint64_t asked = 0;     // the seq that replicas were asked about
  uint64_t asked_on = 0;  // the connection that this question went to; 0: it is answered
  uint32_t replicas = 0;  // that the last answer counted
  double few_since = 0;   // when they became too few; 0: they are enough

  // Lines that are held (table_cache.h), and the newest answer of which all was taken in; 0: none is held.
  uint32_t told = 0;
  std::map<uint64_t, Vector<Key>> let_go;  // by table: lines that were held, and the partition does not know

  std::deque<Outstanding> outstanding;
  std::deque<ReadPartPtr> waiting;
  bool resend = false;  // once nothing is on its way: send everything again that was not applied
  bool fresh = false;   // the next request is the first after a silence
  // A server did not find the partition behind another's key: requests go alone until one is refused, and so
  // says where it is.
  bool alone = false;

  size_t failures = 0;  // in a row
  double not_before = 0;
  double failing_since = 0;
  std::string last_failure;
  Status fatal;  // the partition refuses what this client is; nothing more is sent

  // A new identity: the frames that are left are numbered from 1 and sent anew.
  void Renumber(ClientId id);
};

}  // namespace het

#endif  // HET_TF_CORE_CLIENT_LINK_H_
