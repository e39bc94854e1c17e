#include "het_tf/ext/ps/capi/server.h"

#include <memory>

#include "het_tf/core/base/answer.h"
#include "het_tf/core/base/interrupt.h"
#include "het_tf/ext/ps/client/cluster.h"
#include "het_tf/ext/ps/client/tls_stream.h"

namespace het {
namespace {

constexpr size_t kMostPasswordBytes = 4096;

struct Server {
  explicit Server(ServerAddress of) : address(std::move(of)), cluster(address) {}

  const ServerAddress address;
  RedisCluster cluster;
  std::unique_ptr<RedisConnection> first;  // to the first server of the address
  std::string answers;
};

using Words = std::vector<std::string>;

Result<std::vector<Words>> ReadCommands(Span<const uint8_t> bytes) {
  ReplyReader reader;
  std::vector<RedisReply> read;
  if (!reader.Feed(bytes, &read)) return InvalidArgument("the commands are malformed: " + reader.error());
  std::vector<Words> commands;
  for (const RedisReply& one : read) {
    Words& words = commands.emplace_back();
    for (const RedisReply& word : one.array) words.push_back(word.text());
  }
  return commands;
}

void Write(const RedisReply& reply, std::string* out) {
  const auto line = [out](char kind, const std::string& number) { *out += kind + number + "\r\n"; };
  switch (reply.kind) {
    case RedisReply::kNil:
      return line('$', "-1");
    case RedisReply::kInteger:
      return line(':', std::to_string(reply.integer));
    case RedisReply::kArray:
      line('*', std::to_string(reply.array.size()));
      for (const RedisReply& one : reply.array) Write(one, out);
      return;
    case RedisReply::kString:
    case RedisReply::kError:
      line(reply.ok() ? '$' : '!', std::to_string(reply.bytes.size()));
      out->append(reply.bytes.begin(), reply.bytes.end());
      *out += "\r\n";
  }
}

Status AskFirst(Server* server, const std::vector<Words>& commands, double seconds,
                std::vector<RedisReply>* replies) {
  const Interrupts interrupts(Interrupts::By::kFunction);
  auto& first = server->first;
  if (first == nullptr || first->closed()) {
    if (server->address.tls) HET_RETURN_IF_ERROR(CheckTls(*server->address.tls));
    first = std::make_unique<RedisConnection>(server->address.nodes[0], server->address);
  }
  return first->Ask(commands, seconds, replies);
}

}  // namespace

Result<ServerAddress> ReadAddress(const char* address, HetPassword password) {
  if (password == nullptr) return ParseServerAddress(address);
  return ParseServerAddress(address, [password]() -> Result<std::string> {
    std::string buffer(kMostPasswordBytes, '\0');
    const int64_t size = password(buffer.data(), buffer.size());
    buffer.resize(static_cast<size_t>(size < 0 ? -size : size));
    if (size >= 0) return buffer;
    return FailedPrecondition("password of het_tf.Store: " + buffer);
  });
}

}  // namespace het

int HetServerOpen(const char* address, HetPassword password, void** server) {
  return het::Answer([&]() -> het::Status {
    HET_ASSIGN_OR_RETURN(auto parsed, het::ReadAddress(address, password));
    *server = new het::Server(std::move(parsed));
    return het::Status();
  });
}

void HetServerClose(void* server) { delete static_cast<het::Server*>(server); }

int HetServerAsk(void* server, const char* key, const uint8_t* commands, size_t size, double seconds,
                 const uint8_t** answers, size_t* answers_size) {
  return het::Answer([&]() -> het::Status {
    auto* const asked = static_cast<het::Server*>(server);
    HET_ASSIGN_OR_RETURN(const auto read, het::ReadCommands({commands, size}));
    std::vector<het::RedisReply> replies;
    if (key == nullptr) {
      HET_RETURN_IF_ERROR(het::AskFirst(asked, read, seconds, &replies));
    } else {
      HET_ASSIGN_OR_RETURN(auto reply, asked->cluster.Ask(key, read[0], seconds));
      replies.push_back(std::move(reply));
    }
    asked->answers.clear();
    for (const het::RedisReply& reply : replies) het::Write(reply, &asked->answers);
    *answers = reinterpret_cast<const uint8_t*>(asked->answers.data());
    *answers_size = asked->answers.size();
    return het::Status();
  });
}
