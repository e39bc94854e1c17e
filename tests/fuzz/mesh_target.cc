// The messages that another rank sends. Any bytes end in a message of the collective or in a lost rank, with
// memory for what has come, not for what is announced; a message that is taken is the first that was sent.
//
// An input is what comes from the other rank, which then ends.
#include <sys/socket.h>

#include <cstring>
#include <optional>

#include "het_tf/core/base/alloc.h"
#include "het_tf/ext/workers/cc/mesh.h"
#include "tests/fuzz/target.h"

namespace het::fuzz {
namespace {

constexpr char kLabel[] = "step";
constexpr char kWhat[] = "float [2]";
constexpr size_t kMost = size_t{1} << 16;  // that a socket holds

struct Header {
  uint32_t kind, label, what, waited;
  uint64_t bytes;
};

Bytes Message(uint32_t kind, const std::string& label, const std::string& what, uint64_t bytes,
              const std::string& data) {
  const Header header{kind, static_cast<uint32_t>(label.size()), static_cast<uint32_t>(what.size()), 0,
                      bytes};
  const auto* const head = reinterpret_cast<const uint8_t*>(&header);
  return Joined({{head, head + sizeof(header)}, Text(label), Text(what), Text(data)});
}

// The data of the first message of the collective.
std::optional<std::string> FirstOf(const std::string& input) {
  Header header;
  for (size_t at = 0; input.size() - at >= sizeof(header);) {
    std::memcpy(&header, input.data() + at, sizeof(header));
    at += sizeof(header);
    const uint64_t text = uint64_t{header.label} + header.what;
    if (input.size() - at < text || input.size() - at - text < header.bytes) return std::nullopt;
    if (header.kind == 0 && input.compare(at, header.label, kLabel) == 0) {
      if (input.compare(at + header.label, header.what, kWhat) != 0) return std::nullopt;
      return input.substr(at + text, header.bytes);
    }
    at += text + header.bytes;
  }
  return std::nullopt;
}

std::vector<Bytes> Seeds() {
  const Bytes step = Message(0, kLabel, kWhat, 8, "12345678"), alive = Message(1, kLabel, "", 0, ""),
              end = Message(2, "", "", 0, "");
  return {step,
          Joined({alive, step, end}),
          Joined({Message(0, "other", "", 3, "abc"), step, step}),
          end,
          Message(0, kLabel, "double [1]", 8, "12345678"),
          Message(0, kLabel, kWhat, Mesh::kMostData, "12345678"),      // which never come
          Message(0, kLabel, kWhat, Mesh::kMostData + 1, "12345678"),  // refused
          Message(1, kLabel, "", uint64_t{1} << 30, ""),
          Joined({step, Message(3, "", "", 0, "")})};
}

void Run(const uint8_t* data, size_t size) {
  int ends[2];
  if (size > kMost) return;
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) Fail("no sockets");
  if (send(ends[1], data, size, MSG_NOSIGNAL) != static_cast<ssize_t>(size)) Fail("no room in a socket");
  shutdown(ends[1], SHUT_WR);
  const size_t before = AllocatedBytes();
  SetAllocLimit(before + Mesh::kFirstBytes + Allowance(size));
  std::vector<Bytes> received;
  Status status;
  {
    Mesh mesh(0, {-1, ends[0]}, /*timeout=*/60);
    status = mesh.Exchange(kLabel, kWhat, {{}, {}}, &received);
  }
  SetAllocLimit(SIZE_MAX);
  close(ends[1]);
  if (status.message().find("no memory") != std::string::npos) Fail("a message takes too much memory");
  if (status.ok()) {
    const auto sent = FirstOf({data, data + size});
    if (!sent || received.size() != 2 || std::string(received[1].begin(), received[1].end()) != *sent)
      Fail("a message that nobody has sent");
  } else if (status.code() != Code::kUnavailable && status.code() != Code::kInvalidArgument) {
    Fail("an error of another kind");
  }
  received.clear();
  if (AllocatedBytes() > before) Fail("memory is kept");
}

const bool registered = Register({"mesh", Run, Seeds});

}  // namespace
}  // namespace het::fuzz
