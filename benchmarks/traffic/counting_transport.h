// The network of a replay (ext/sizing/cc/network.h) that says which class every byte belonged to.
//
// Every frame is decoded once more and taken apart: the sizes of all sections are computed from their
// contents, and what is left of the frame must be as little as heads can take, or the program ends.
#pragma once

#include <boost/unordered/unordered_flat_set.hpp>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "het_tf/core/cache/table_cache.h"
#include "het_tf/ext/sizing/cc/network.h"

namespace het::traffic {

// What the rows of one class cost: floats, and the keys, clocks and ticks that belong to them.
struct ClassBytes {
  uint64_t rows = 0;
  uint64_t absent = 0;  // of these: rows that the store did not have yet, so that no floats came
  uint64_t row_bytes = 0;
  uint64_t key_bytes = 0;
};

struct Counts {
  ClassBytes miss_pull, update_pull, bound_push, evict_push;
  uint64_t checks = 0;
  uint64_t check_bytes = 0;  // keys, clocks, and the histogram of lags that answers them
  uint64_t moved_bytes = 0;  // names of rows that have moved
  uint64_t left_bytes = 0;   // and of rows that a client holds no longer
  uint64_t frames = 0;       // both ways
  uint64_t parts = 0;        // of all frames
  uint64_t frame_bytes = 0;  // what a frame says once: who asks, and what its tables are
  uint64_t part_bytes = 0;   // what each part says: numbers, digests, flags, counts
  uint64_t bytes_out = 0;    // of frames as they were encoded
  uint64_t bytes_in = 0;
  uint64_t round_trips = 0;

  uint64_t class_bytes() const;  // of all classes, checks and heads
  // fn(name, field) for every number above, by a name such as "miss_pull.rows".
  void ForEach(const std::function<void(const std::string&, uint64_t*)>& fn);
  Counts& operator-=(Counts earlier);
  Counts& operator+=(Counts other);
};

class CountingTransport : public ReplayNetwork {
 public:
  using ReplayNetwork::ReplayNetwork;

  // round_trips as of now.
  Counts counts() const;
  // Whether a row is cached: then fetching it is an update pull. To be set before anything is sent.
  std::function<bool(Key)> cached;
  // The keys of the step that is being written: what is pushed of others has left the cache.
  using Keys = boost::unordered_flat_set<Key, KeyHash>;
  Keys* written() { return &written_; }

 private:
  void SeeRequest(Span<const uint8_t> frame) override;
  void SeeReply(Span<const uint8_t> frame) override;
  // `once`: bytes that the frame says once.
  void CountFrame(size_t size, size_t parts, size_t once, size_t sections);
  // These return the bytes of the table's sections.
  size_t CountTable(const TableRequest& t);
  size_t CountPush(const TableRequest& t);
  size_t CountTable(const TableReply& t, const Vector<Key>& fetched);

  // Gives the lists of a table with names all their keys.
  void Complete(uint32_t partition, TableRequest* t);

  Counts counts_;
  Keys written_;
  std::map<std::pair<uint32_t, uint64_t>, NamedKeys> rings_;      // by partition and table
  std::map<std::pair<uint32_t, uint64_t>, Vector<Key>> fetched_;  // by partition and table, of one request
};

}  // namespace het::traffic
