// What a worker does with bytes from a socket that are no reply of Redis, or a
// strange one: the connection, its parser, and the map of the cluster (CLUSTER
// SLOTS).
//
// A server of this process's own answers whoever connects with the input, and
// closes.
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <thread>

#include "het_tf/ext/ps/client/cluster.h"
#include "het_tf/ext/ps/client/reply_reader.h"
#include "tests/fuzz/target.h"

namespace het::fuzz {
namespace {

class Server {
 public:
  Server() : path_(PathOf("resp")) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path_.c_str(), sizeof(address.sun_path) - 1);
    unlink(path_.c_str());
    listener_ = socket(AF_UNIX, SOCK_STREAM, 0);
    if (bind(listener_, reinterpret_cast<const sockaddr *>(&address), sizeof(address)) != 0 ||
        listen(listener_, 16) != 0)
      Fail("no socket");
    std::thread([this] { Serve(); }).detach();  // lives as long as the process
    std::atexit([] { unlink(PathOf("resp").c_str()); });
  }

  const std::string &path() const { return path_; }
  void Answer(const uint8_t *data, size_t size) {
    std::lock_guard<std::mutex> lock(mutex_);
    answer_.assign(data, data + size);
  }

 private:
  void Serve() {
    for (;;) {
      const int fd = accept(listener_, nullptr, nullptr);
      if (fd < 0) return;
      {
        std::lock_guard<std::mutex> lock(mutex_);
        for (size_t at = 0; at < answer_.size();) {
          const ssize_t sent = send(fd, answer_.data() + at, answer_.size() - at, MSG_NOSIGNAL);
          if (sent <= 0) break;
          at += static_cast<size_t>(sent);
        }
      }
      // Whoever connects writes before it reads: a socket that is closed at
      // once would fail there.
      shutdown(fd, SHUT_WR);
      char ignored[4096];
      while (recv(fd, ignored, sizeof(ignored), 0) > 0) {
      }
      close(fd);
    }
  }

  const std::string path_;
  int listener_ = -1;
  std::mutex mutex_;  // guards answer_
  Bytes answer_;
};

// The strings and the order of what came, in pieces; `direct`: what the reader
// has room for goes there.
std::string ReadPieces(Span<const uint8_t> input, size_t piece, bool direct) {
  ReplyReader reader;
  std::vector<RedisReply> replies;
  std::string all;
  for (size_t at = 0; at < input.size();) {
    Span<const uint8_t> bytes = input.subspan(at, std::min(piece, input.size() - at));
    at += bytes.size();
    if (direct) {
      const Span<uint8_t> room = reader.Room();
      const size_t size = std::min(room.size(), bytes.size());
      std::copy_n(bytes.begin(), size, room.begin());
      reader.Took(size);
      bytes = bytes.subspan(size, bytes.size() - size);
    }
    if (!reader.Feed(bytes, &replies)) {
      all = "failed behind ";
      break;
    }
  }
  for (const RedisReply &reply : replies) {
    all += std::to_string(reply.kind) + ":" + std::to_string(reply.bytes.size()) + ":" + reply.text();
  }
  return all;
}

std::vector<Bytes> Seeds() {
  std::vector<Bytes> seeds;
  for (const char *text :
       {"+OK\r\n", "-ERR This instance has cluster support disabled\r\n", ":12\r\n", "$-1\r\n",
        "$5\r\nhello\r\n", "*0\r\n", "-MOVED 3999 127.0.0.1:6381\r\n", "-LOADING\r\n",
        "*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$9\r\n127.0.0.1\r\n:7000\r\n$2\r\nid\r\n",
        "*2\r\n*3\r\n:0\r\n:8191\r\n*2\r\n$1\r\na\r\n:1\r\n*3\r\n:8192\r\n:16383\r\n*2\r\n$1\r\nb\r\n:2\r\n",
        "$20\r\ntoo short", "$40\r\nlonger than two pieces of those that we.\r\n:1\r\n"}) {
    seeds.push_back(Text(text));
  }
  return seeds;
}

void Run(const uint8_t *data, size_t size) {
  static Server &server = *new Server();  // its thread outlives main
  server.Answer(data, size);
  ServerAddress address;
  address.nodes.emplace_back();
  address.nodes.back().path = server.path();
  {
    RedisCluster cluster(address);
    if (cluster.Refresh(0.5).ok()) {
      for (uint32_t slot : {0u, 8192u, 16383u}) static_cast<void>(cluster.NodeOf(slot).ToString());
    }
  }
  for (size_t piece : {size_t{1}, size_t{7}, size}) {
    if (ReadPieces({data, size}, piece, true) != ReadPieces({data, size}, piece, false))
      Fail("what is read in place is something else");
  }
  const std::string text(reinterpret_cast<const char *>(data), size);
  Redirect redirect;
  ServerNode from;
  from.host = "here";
  if (ParseRedirect(text, from, &redirect) && redirect.node.ToString().empty()) Fail("a redirect to nowhere");
  static_cast<void>(ParseServerAddress(text));
}

const bool registered = Register({"resp", Run, Seeds});

}  // namespace
}  // namespace het::fuzz
