#include "het_tf/ps/client/address.h"

#include <algorithm>
#include <cstdlib>

namespace het {
namespace {

// Without what may be a password.
std::string Redacted(const std::string& text) {
  const size_t begin = text.find("//");
  const size_t at = text.rfind('@');
  if (begin == std::string::npos || at == std::string::npos || at < begin) return text;
  return text.substr(0, begin + 2) + "..." + text.substr(at);
}

Status Malformed(const std::string& text, const std::string& why) {
  return InvalidArgument("parameter server '" + Redacted(text) + "': " + why +
                         "; write redis://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...] or "
                         "unix://[USER:PASSWORD@]/PATH");
}

// USER:PASSWORD, where `rest` has it before position `at`; takes it and the '@' off the front.
Status TakeLogin(const std::string& text, size_t at, std::string* rest, ServerAddress* address) {
  if (at == std::string::npos) return Status();
  const std::string login = rest->substr(0, at);
  const size_t colon = login.find(':');
  if (login.find(',') != std::string::npos && login.find('@') != std::string::npos) {
    return Malformed(text, "the login stands once, before the first host");
  }
  address->user = login.substr(0, colon);
  if (colon != std::string::npos) address->password = login.substr(colon + 1);
  *rest = rest->substr(at + 1);
  return address->password.empty() ? Malformed(text, "a user without a password") : Status();
}

bool StartsWith(const std::string& text, const std::string& prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

}  // namespace

std::string ServerAddress::ToString() const {
  std::string text;
  for (const ServerNode& node : nodes) text += (text.empty() ? "" : ",") + node.ToString();
  return text;
}

Result<ServerAddress> ParseServerAddress(const std::string& text) {
  ServerAddress address;
  if (StartsWith(text, "unix://")) {
    std::string rest = text.substr(7);
    const bool login = !rest.empty() && rest[0] != '/';
    HET_RETURN_IF_ERROR(TakeLogin(text, login ? rest.find("@/") : std::string::npos, &rest, &address));
    ServerNode node;
    node.path = rest;
    if (!rest.empty() && rest[0] != '/') return Malformed(text, "a path begins with a slash");
    // sockaddr_un holds 108 bytes, the last one a zero.
    if (node.path.empty() || node.path.size() > 107) {
      return Malformed("unix://" + rest,
                       "a socket's path has 1 to 107 bytes, not " + std::to_string(node.path.size()));
    }
    address.nodes.push_back(node);
    return address;
  }
  if (!StartsWith(text, "redis://")) return Malformed(text, "it begins with neither redis:// nor unix://");
  std::string rest = text.substr(8);
  if (!rest.empty() && rest.back() == '/') rest.pop_back();
  HET_RETURN_IF_ERROR(TakeLogin(text, rest.rfind('@'), &rest, &address));
  for (size_t begin = 0; begin <= rest.size();) {
    const size_t end = std::min(rest.find(',', begin), rest.size());
    const std::string one = rest.substr(begin, end - begin);
    begin = end + 1;
    if (const size_t slash = one.find('/'); slash != std::string::npos) {
      return Malformed(text, "it has '" + one.substr(slash) +
                                 "' behind a host; tables are in database 0, so leave the number out");
    }
    ServerNode node;
    // [::1]:6379 is the one way to write an IPv6 address with a port.
    const bool bracket = !one.empty() && one[0] == '[';
    const size_t close = bracket ? one.find(']') : 0;
    if (bracket && close == std::string::npos) return Malformed(text, "'[' without ']'");
    const size_t colon = one.find(':', close);
    node.host = bracket ? one.substr(1, close - 1) : one.substr(0, colon);
    if (node.host.empty()) return Malformed(text, "a host is missing");
    if (colon != std::string::npos) {
      char* stop = nullptr;
      const std::string port = one.substr(colon + 1);
      const long number = std::strtol(port.c_str(), &stop, 10);
      if (port.empty() || *stop != 0 || number < 1 || number > 65535) {
        return Malformed(text, "the port '" + port + "' is not in 1..65535");
      }
      node.port = static_cast<int>(number);
    }
    address.nodes.push_back(node);
  }
  return address;
}

}  // namespace het
