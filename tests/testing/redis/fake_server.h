// A fake Redis server with the module, on a local TCP port, which the test controls: it answers frames
// correctly from a LocalService, refuses those that the test picks, redirects, or reads slowly.
//
//   client ──► one thread: parse commands ──► script(command) ──► "" : the correct answer
//                                                             ──► else: this text, verbatim
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "het_tf/core/store/local_service.h"
#include "het_tf/core/wire/parts.h"
#include "het_tf/ext/ps/client/address.h"

namespace het::testing {

class FakeServer {
 public:
  struct Command {
    std::vector<std::string> words;
    bool asking = false;  // it followed ASKING
    bool frame() const { return words[0] == "HET.STEP" || words[0] == "HET.READ"; }
  };
  using Script = std::function<std::string(const Command&)>;

  // Several servers may share one service.
  explicit FakeServer(LocalService* service);
  ~FakeServer();

  std::string endpoint() const { return "127.0.0.1:" + std::to_string(port_); }
  ServerAddress address() const { return ParseServerAddress("redis://" + endpoint()).value(); }
  // Commands for which the script returns "" are answered correctly.
  void SetScript(Script script);
  // Partitions that it does not have: a frame with several parts gets kElsewhere for them.
  void SetGone(std::set<uint32_t> gone);
  // Claims all slots, as the only node of a cluster; otherwise denies being a cluster.
  std::atomic<bool> cluster{false};
  // The pause between two reads of at most 64 KiB.
  std::atomic<int> pause_milliseconds{0};
  std::atomic<int> frames{0};       // answered correctly
  std::atomic<int> many_parts{0};   // of these, frames with several parts
  std::atomic<int> elsewhere{0};    // parts refused as kElsewhere
  std::atomic<int> connections{0};  // number ever accepted
  std::atomic<int> reads{0};        // commands that arrive together are usually one read

 private:
  struct Connection {
    std::string in;
    bool asking = false;
  };

  void Serve();
  void Read(int fd);
  // Takes one command off the front, if it is complete.
  static bool Take(std::string* in, Command* command);
  std::string Answer(const Command& command);

  LocalService* const service_;
  int listener_;
  int port_ = 0;
  std::mutex mutex_;
  Script script_;
  std::set<uint32_t> gone_;
  std::map<int, Connection> connections_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace het::testing
