// What a server over TCP costs at the least: partitions of core/ behind a loop of poll, read and write. The
// peer of ps_throughput: it does nothing that a parameter server must do besides (no commands, no
// persistence, no replicas, no redirects), and so it is the limit.
//
//   request   u32 size | frame            reply   u32 size | frame, in the order of the requests of a
//   connection
#pragma once

#include <sys/types.h>

#include <string>

#include "het_tf/core/row/schema.h"
#include "het_tf/core/wire/transport.h"

namespace het::bench {

// A child process that ends with the object, and with its parent.
class RawServer {
 public:
  static constexpr uint64_t kEpoch = 1;

  // `path`: a Unix socket; empty: a port of 127.0.0.1. All partitions have the table `schema`, with kEpoch.
  RawServer(const std::string& path, uint32_t partitions, uint64_t hash_seed, const Schema& schema);
  ~RawServer();
  RawServer(const RawServer&) = delete;
  RawServer& operator=(const RawServer&) = delete;

  // A connected socket; the caller closes it.
  int Connect() const;

 private:
  std::string path_;
  int port_ = 0;
  pid_t pid_ = -1;
};

// One connection to it.
class RawTransport : public Transport {
 public:
  RawTransport(const RawServer& server, uint32_t partitions, uint64_t hash_seed);
  ~RawTransport() override;

  uint32_t partitions() const override { return partitions_; }
  PartitionId id(uint32_t partition) const override { return {partition, partitions_, hash_seed_}; }
  void Send(OutFrame frame) override;
  bool Poll(double seconds, std::vector<Event>* events) override;
  void Reset(uint32_t) override {}
  uint64_t Connection(uint32_t) override { return 1; }
  void AskReplicas(const std::vector<Mark>&, uint32_t, double) override {}
  void Sleep(double seconds) override;
  double Now() override;

 private:
  struct Outgoing {
    uint32_t size;
    Bytes frame;
    size_t written;  // of the size and the frame together
  };

  void Write();

  const uint32_t partitions_;
  const uint64_t hash_seed_;
  const int fd_;
  std::vector<Outgoing> queue_;
  size_t queue_begin_ = 0;
  std::vector<uint32_t> owed_;
  size_t owed_begin_ = 0;
  Bytes in_;
  size_t in_end_ = 0;
};

}  // namespace het::bench
