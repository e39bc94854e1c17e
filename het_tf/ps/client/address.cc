#include "het_tf/ps/client/address.h"

#include <algorithm>
#include <cstdlib>

namespace het {
namespace {

struct Parameter {
  const char* name;
  std::string TlsSettings::*field;
};
constexpr Parameter kParameters[] = {{"ca", &TlsSettings::ca},
                                     {"cert", &TlsSettings::cert},
                                     {"key", &TlsSettings::key},
                                     {"server_name", &TlsSettings::server_name}};

// Returns the position of the '?' before the first parameter, or npos. A path may have an '@' and a password
// a '?', so it searches for parameter names, else behind the login.
size_t FindParameters(const std::string& text) {
  size_t begin = std::string::npos;
  for (const Parameter& parameter : kParameters) {
    begin = std::min(begin, text.rfind("?" + std::string(parameter.name) + "="));
  }
  if (begin != std::string::npos) return begin;
  const size_t at = text.rfind('@');
  return text.find('?', at == std::string::npos ? 0 : at);
}

// Removes text that may be a password or the path of a key.
std::string Redacted(const std::string& text) {
  const size_t end = text.compare(0, 5, "unix:") == 0 ? std::string::npos : FindParameters(text);
  std::string shown = text.substr(0, end) + (end == std::string::npos ? "" : "?...");
  const size_t begin = shown.find("//");
  const size_t at = shown.rfind('@');
  if (begin == std::string::npos || at == std::string::npos || at < begin) return shown;
  return shown.substr(0, begin + 2) + "..." + shown.substr(at);
}

Status Malformed(const std::string& text, const std::string& why) {
  return InvalidArgument("parameter server '" + Redacted(text) + "': " + why +
                         "; write redis://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...], the same with "
                         "rediss:// and [?ca=FILE&cert=FILE&key=FILE&server_name=NAME] for TLS, or "
                         "unix://[USER:PASSWORD@]/PATH");
}

// Removes the parameters from the end of `rest`.
Status TakeParameters(const std::string& text, std::string* rest, ServerAddress* address) {
  size_t begin = FindParameters(*rest);
  if (begin == std::string::npos) return Status();
  if (!address->tls) return Malformed(text, "parameters behind '?' are about TLS; use them with rediss://");
  const std::string list = rest->substr(begin + 1);
  rest->resize(begin);
  for (begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find('&', begin), list.size());
    const std::string one = list.substr(begin, end - begin);
    begin = end + 1;
    const size_t equals = std::min(one.find('='), one.size());
    const std::string name = one.substr(0, equals);
    const auto* const known = std::find_if(std::begin(kParameters), std::end(kParameters),
                                           [&](const Parameter& p) { return name == p.name; });
    if (known == std::end(kParameters))
      return Malformed(text, "'" + name + "' is none of ca, cert, key and server_name");
    std::string& field = (*address->tls).*(known->field);
    if (!field.empty()) return Malformed(text, name + " occurs twice");
    if (equals + 1 >= one.size()) return Malformed(text, name + " is empty");
    field = one.substr(equals + 1);
  }
  if (address->tls->cert.empty() && !address->tls->key.empty())
    return Malformed(text, "a key without cert, its certificate");
  return Status();
}

// Parses USER:PASSWORD from `rest` before position `at`; removes it and the '@' from the front.
Status TakeLogin(const std::string& text, size_t at, std::string* rest, ServerAddress* address) {
  if (at == std::string::npos) return Status();
  const std::string login = rest->substr(0, at);
  const size_t colon = login.find(':');
  if (login.find(',') != std::string::npos && login.find('@') != std::string::npos) {
    return Malformed(text, "write the login once, before the first host");
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

namespace {

Status ParseSocket(const std::string& text, std::string rest, ServerAddress* address) {
  const bool login = !rest.empty() && rest[0] != '/';
  HET_RETURN_IF_ERROR(TakeLogin(text, login ? rest.find("@/") : std::string::npos, &rest, address));
  ServerNode node;
  node.path = rest;
  if (!rest.empty() && rest[0] != '/') return Malformed(text, "a path begins with a slash");
  // sockaddr_un holds 108 bytes with a final zero.
  if (node.path.empty() || node.path.size() > 107) {
    return Malformed("unix://" + rest,
                     "a socket's path has 1 to 107 bytes, not " + std::to_string(node.path.size()));
  }
  address->nodes.push_back(node);
  return Status();
}

Status ParseNode(const std::string& text, const std::string& one, ServerNode* node) {
  // Brackets are required for an IPv6 address with a port: [::1]:6379.
  const bool bracket = !one.empty() && one[0] == '[';
  const size_t close = bracket ? one.find(']') : 0;
  if (bracket && close == std::string::npos) return Malformed(text, "'[' without ']'");
  const size_t colon = one.find(':', close);
  node->host = bracket ? one.substr(1, close - 1) : one.substr(0, colon);
  if (node->host.empty()) return Malformed(text, "a host is missing");
  if (colon == std::string::npos) return Status();
  char* stop = nullptr;
  const std::string port = one.substr(colon + 1);
  const long number = std::strtol(port.c_str(), &stop, 10);
  if (port.empty() || *stop != 0 || number < 1 || number > 65535) {
    return Malformed(text, "the port '" + port + "' is not in 1..65535");
  }
  node->port = static_cast<int>(number);
  return Status();
}

}  // namespace

Result<ServerAddress> ParseServerAddress(const std::string& text) {
  ServerAddress address;
  if (StartsWith(text, "unix://")) {
    HET_RETURN_IF_ERROR(ParseSocket(text, text.substr(7), &address));
    return address;
  }
  if (StartsWith(text, "rediss://")) {
    address.tls.emplace();
  } else if (!StartsWith(text, "redis://")) {
    return Malformed(text, "it begins with neither redis://, rediss:// nor unix://");
  }
  std::string rest = text.substr(text.find("//") + 2);
  HET_RETURN_IF_ERROR(TakeParameters(text, &rest, &address));
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
    HET_RETURN_IF_ERROR(ParseNode(text, one, &node));
    address.nodes.push_back(node);
  }
  return address;
}

}  // namespace het
