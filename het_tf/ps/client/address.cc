#include "het_tf/ps/client/address.h"

#include <algorithm>
#include <cstdlib>

namespace het {
namespace {

Status Malformed(const std::string& text, const std::string& why) {
  return InvalidArgument("parameter server '" + text + "': " + why +
                         "; write redis://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...] or "
                         "unix://[USER:PASSWORD@]/PATH");
}

// Takes USER:PASSWORD@ off the front of *rest, where it is there.
Status TakeLogin(const std::string& scheme, std::string* rest, ServerAddress* address) {
  const size_t at = rest->rfind('@', rest->find('/'));
  if (at == std::string::npos) return Status();
  const std::string login = rest->substr(0, at);
  const size_t colon = login.find(':');
  address->user = login.substr(0, colon);
  if (colon != std::string::npos) address->password = login.substr(colon + 1);
  *rest = rest->substr(at + 1);
  if (!address->password.empty()) return Status();
  return Malformed(scheme + "...@" + *rest, "a user without a password");
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
    HET_RETURN_IF_ERROR(TakeLogin("unix://", &rest, &address));
    ServerNode node;
    node.path = rest;
    if (!rest.empty() && rest[0] != '/') return Malformed("unix://" + rest, "a path begins with a slash");
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
  HET_RETURN_IF_ERROR(TakeLogin("redis://", &rest, &address));
  for (size_t begin = 0; begin <= rest.size();) {
    const size_t end = std::min(rest.find(',', begin), rest.size());
    const std::string one = rest.substr(begin, end - begin);
    begin = end + 1;
    ServerNode node;
    // [::1]:6379 is the one way to write an IPv6 address with a port.
    const bool bracket = !one.empty() && one[0] == '[';
    const size_t close = bracket ? one.find(']') : 0;
    if (bracket && close == std::string::npos) return Malformed("redis://" + rest, "'[' without ']'");
    const size_t colon = one.find(':', close);
    node.host = bracket ? one.substr(1, close - 1) : one.substr(0, colon);
    if (node.host.empty()) return Malformed("redis://" + rest, "a host is missing");
    if (colon != std::string::npos) {
      char* stop = nullptr;
      const std::string port = one.substr(colon + 1);
      const long number = std::strtol(port.c_str(), &stop, 10);
      if (port.empty() || *stop != 0 || number < 1 || number > 65535) {
        return Malformed("redis://" + rest, "the port '" + port + "' is not in 1..65535");
      }
      node.port = static_cast<int>(number);
    }
    address.nodes.push_back(node);
  }
  return address;
}

}  // namespace het
