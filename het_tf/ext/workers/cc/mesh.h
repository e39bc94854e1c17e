// The connections of one rank to all others, and the exchange of bytes that every collective is made of.
//
// A collective has a label, equal on all ranks. The n-th exchange of a label meets the n-th of that label on
// the other ranks, so collectives beside each other need no order, and no rank asks before it sends:
//
//   Exchange ──► Send ──► sockets of the other ranks
//      ▲                          │
//      └── inbox ◄── Listen ◄─────┘     one thread: it always reads, so two ranks that both send never block
//
// **Lost ranks.** A rank is lost when its connection ends, or when nothing has come from it for `timeout`
// seconds: a rank that lives sends a sign of life four times in that time, also while it computes. All
// exchanges then fail, now and later, and name the first rank that was lost. A rank that ends tells so
// before: only exchanges that still need it fail. A sign of life says in which collective its rank waits, so
// ranks that wait in different ones fail instead of waiting forever.
//
// **What a peer says.** A message has at most kMostText bytes of text and kMostData of data; what breaks this
// ends the connection. Memory for data is at most kFirstBytes or four times what has come of this message, or
// as the largest one before it.
//
// Cost: two system calls a peer and exchange; what arrives is copied once, a message far above all before it
// up to twice more.
//
// Thread-safe, except that exchanges of one label come one after the other. `mutex_` guards all but the
// sockets: a socket is written under its peer's `sending`, and read by the thread that listens alone. No
// thread takes `sending` while it holds `mutex_`.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "het_tf/core/base/background.h"
#include "het_tf/core/base/bytes.h"
#include "het_tf/core/base/span.h"
#include "het_tf/core/base/status.h"

namespace het {

class Mesh {
 public:
  static constexpr size_t kMostText = size_t{1} << 20;  // label and description
  static constexpr size_t kMostData = size_t{1} << 34;
  static constexpr size_t kFirstBytes = size_t{1} << 20;

  // `sockets`: a connected stream socket for each rank; that of this rank is -1. The mesh owns them.
  // `patience`: seconds after which an exchange says on stderr for which ranks it waits, though they live.
  Mesh(uint32_t rank, std::vector<int> sockets, double timeout, double patience = 60);
  // Tells the other ranks that this one has ended.
  ~Mesh();
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  uint32_t rank() const { return rank_; }
  uint32_t size() const { return static_cast<uint32_t>(peers_.size()); }

  // Sends parts[r] to rank r, and sets (*received)[r] to what rank r sent here; that of this rank stays
  // empty. `what` describes the data, such as "float [3]", and must be equal on all ranks.
  //
  // Errors: kUnavailable: a rank is lost, or has ended. kInvalidArgument: `what` differs, or a part is too
  // large. kAborted: another rank waits in another collective. kCancelled: Ctrl-C.
  Status Exchange(const std::string& label, const std::string& what,
                  const std::vector<Span<const uint8_t>>& parts, std::vector<Bytes>* received);

 private:
  enum class Kind : uint32_t { kData, kAlive, kEnd };
  struct Header {
    Kind kind = Kind::kData;
    uint32_t label = 0;   // bytes of the label that follows; kAlive: of the one that the sender waits in
    uint32_t what = 0;    // bytes of `what`, which follows it
    uint32_t waited = 0;  // kAlive: milliseconds
    uint64_t bytes = 0;   // of the data, which come last
  };
  struct Message {
    std::string what;
    Bytes data;
  };
  struct Peer {
    int socket = -1;
    std::mutex sending;  // the socket's writer, and `rest`
    std::string rest;    // of a sign of life for which the socket had no room

    // What has come of a message. Of the thread that listens.
    Header header;
    std::string text;  // label and what
    Bytes data;
    size_t got = 0;      // bytes of all three
    size_t largest = 0;  // bytes of the data of a message so far

    // Under mutex_.
    std::unordered_map<std::string, std::deque<Message>> inbox;  // by label; in the sender's order
    double heard = 0;                                            // SteadySeconds
    bool open = true;                                            // the connection has not ended
    bool ended = false;                                          // it said so
    std::string waits_in;                                        // label, or ""
    double waited = 0;                                           // seconds
  };
  enum class Got { kMore, kAll, kNothing, kEnd, kStranger, kNoMemory };

  Background::Pause Listen();
  // Reads the next bytes of the peer's message.
  Got Read(Peer* peer);
  // Whether a rank may say so, of a header that has come whole.
  static bool MaySay(const Header& header);
  void Arrived(Peer* peer);
  void SayAlive(double now);
  void Send(Peer* peer, const Header& header, const std::string& text, Span<const uint8_t> data);
  // Waits for a message of this label from every other rank.
  Status Receive(const std::string& label, double since, std::vector<Message>* messages);
  // Under mutex_: an error if `from` will never send a message of this label.
  Status Doubt(uint32_t from, const std::string& label, double since) const;
  // Under mutex_.
  void Lose(uint32_t rank, const std::string& how);

  const uint32_t rank_;
  const double timeout_;
  const double patience_;
  std::vector<std::unique_ptr<Peer>> peers_;  // null for this rank

  std::mutex mutex_;
  std::condition_variable arrived_;
  Status failure_;
  std::deque<std::pair<std::string, double>>
      waits_;                           // of this rank's exchanges: label and begin, oldest first
  double said_ = 0;                     // SteadySeconds of the last sign of life
  double woke_ = 0;                     // the same of Listen
  std::unique_ptr<Background> listen_;  // last: it ends first
};

// The mesh of this process. FailedPrecondition: there is none.
Result<std::shared_ptr<Mesh>> ConnectedMesh();
void SetMesh(std::shared_ptr<Mesh> mesh);

}  // namespace het
