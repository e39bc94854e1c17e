#include "het_tf/ext/ps/client/address.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace het {
namespace {

constexpr int kSentinelPort = 26379;

struct Parameter {
  const char* name;
  std::string* (*field)(ServerAddress*);  // null: the address has no TLS
};
template <std::string TlsSettings::*kField>
std::string* OfTls(ServerAddress* address) {
  return address->tls ? &((*address->tls).*kField) : nullptr;
}
constexpr Parameter kParameters[] = {
    {"ca", OfTls<&TlsSettings::ca>},
    {"cert", OfTls<&TlsSettings::cert>},
    {"key", OfTls<&TlsSettings::key>},
    {"server_name", OfTls<&TlsSettings::server_name>},
    {"password_file", [](ServerAddress* address) { return &address->password_file; }},
    {"password_env", [](ServerAddress* address) { return &address->password_env; }}};

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
  const size_t end = StartsWith(text, "unix:") ? std::string::npos : FindParameters(text);
  std::string shown = text.substr(0, end) + (end == std::string::npos ? "" : "?...");
  const size_t slashes = shown.find("//");
  const size_t begin = slashes == std::string::npos ? 0 : slashes + 2;  // "redis://" may be forgotten
  const size_t at = shown.rfind('@');
  return at == std::string::npos || at < begin ? shown : shown.substr(0, begin) + "..." + shown.substr(at);
}

Status Malformed(const std::string& text, const std::string& why) {
  return InvalidArgument(
      "parameter server '" + Redacted(text) + "': " + why +
      "; write redis://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...], the same with "
      "rediss:// and [?ca=FILE&cert=FILE&key=FILE&server_name=NAME] for TLS, "
      "redis+sentinel://HOST[:PORT][,...]/SERVICE for Sentinels, or "
      "unix://[USER:PASSWORD@]/PATH; ?password_file=FILE or ?password_env=NAME in place of "
      "a password");
}

// Removes the parameters from the end of `rest`.
Status TakeParameters(const std::string& text, std::string* rest, ServerAddress* address) {
  size_t begin = FindParameters(*rest);
  if (begin == std::string::npos) return Status();
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
    if (known == std::end(kParameters)) {
      return Malformed(
          text, "'" + name + "' is none of ca, cert, key, server_name, password_file and password_env");
    }
    std::string* const place = known->field(address);
    if (place == nullptr) return Malformed(text, name + " is about TLS; use it with rediss://");
    std::string& field = *place;
    if (!field.empty()) return Malformed(text, name + " occurs twice");
    if (equals + 1 >= one.size()) return Malformed(text, name + " is empty");
    field = one.substr(equals + 1);
  }
  if (address->tls && address->tls->cert.empty() && !address->tls->key.empty())
    return Malformed(text, "a key without cert, its certificate");
  return Status();
}

// Decodes %XX. Returns false if a '%' has no two digits behind it.
bool DecodePercent(std::string* text) {
  std::string decoded;
  for (size_t i = 0; i < text->size(); ++i) {
    if ((*text)[i] != '%') {
      decoded += (*text)[i];
      continue;
    }
    const std::string digits = text->substr(i + 1, 2);
    if (digits.size() < 2 || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos)
      return false;
    decoded += static_cast<char>(std::strtol(digits.c_str(), nullptr, 16));
    i += 2;
  }
  *text = std::move(decoded);
  return true;
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
  if (!DecodePercent(&address->user) || !DecodePercent(&address->password))
    return Malformed(text, "a % in the login begins a character code, such as %40 for @; write %25 for a %");
  return Status();
}

Status CheckPassword(const std::string& text, const ServerAddress& address) {
  const int sources = !address.password.empty() + !address.password_file.empty() +
                      !address.password_env.empty() + (address.ask_password != nullptr);
  if (sources > 1) return Malformed(text, "the password is given twice");
  return sources == 0 && !address.user.empty() ? Malformed(text, "a user without a password") : Status();
}

}  // namespace

Result<std::string> ServerAddress::Password() const {
  if (ask_password != nullptr) return ask_password();
  if (!password_env.empty()) {
    const char* const value = std::getenv(password_env.c_str());
    if (value != nullptr && *value != '\0') return std::string(value);
    return FailedPrecondition("password_env=" + password_env +
                              " of the parameter server's address: this variable is not set");
  }
  if (password_file.empty()) return password;
  std::FILE* const file = std::fopen(password_file.c_str(), "re");
  if (file == nullptr) {
    return Status(Code::kFile,
                  std::string("password_file of the parameter server's address cannot be read: ") +
                      std::strerror(errno));
  }
  char read[4096];
  std::string text(read, std::fread(read, 1, sizeof(read), file));
  std::fclose(file);
  text.erase(std::min(text.find_last_not_of("\r\n") + 1, text.size()));
  if (!text.empty()) return text;
  return Status(Code::kFile, "password_file of the parameter server's address is empty");
}

std::string ServerAddress::ToString() const {
  std::string text;
  for (const ServerNode& node : nodes) text += (text.empty() ? "" : ",") + node.ToString();
  return service.empty() ? text : text + "/" + service;
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

Result<ServerAddress> ParseServerAddress(const std::string& text,
                                         std::function<Result<std::string>()> ask_password) {
  ServerAddress address;
  address.ask_password = std::move(ask_password);
  if (StartsWith(text, "unix://")) {
    HET_RETURN_IF_ERROR(ParseSocket(text, text.substr(7), &address));
    HET_RETURN_IF_ERROR(CheckPassword(text, address));
    return address;
  }
  const std::string scheme = text.substr(0, text.find("://"));
  const bool sentinel = scheme == "redis+sentinel" || scheme == "rediss+sentinel";
  if (scheme == "rediss" || scheme == "rediss+sentinel") {
    address.tls.emplace();
  } else if ((scheme != "redis" && !sentinel) || scheme.size() == text.size()) {
    return Malformed(text, "it begins with none of redis://, rediss://, redis+sentinel:// and unix://");
  }
  std::string rest = text.substr(scheme.size() + 3);
  HET_RETURN_IF_ERROR(TakeParameters(text, &rest, &address));
  if (!rest.empty() && rest.back() == '/') rest.pop_back();
  HET_RETURN_IF_ERROR(TakeLogin(text, rest.rfind('@'), &rest, &address));
  HET_RETURN_IF_ERROR(CheckPassword(text, address));
  if (sentinel) {
    const size_t slash = std::min(rest.find('/'), rest.size());
    address.service = rest.substr(std::min(slash + 1, rest.size()));
    rest.resize(slash);
    if (address.service.empty() || address.service.find('/') != std::string::npos)
      return Malformed(text,
                       "behind the Sentinels stands '/' and what they call the server, such as /mymaster");
  }
  for (size_t begin = 0; begin <= rest.size();) {
    const size_t end = std::min(rest.find(',', begin), rest.size());
    const std::string one = rest.substr(begin, end - begin);
    begin = end + 1;
    if (const size_t slash = one.find('/'); slash != std::string::npos) {
      return Malformed(text, "it has '" + one.substr(slash) +
                                 "' behind a host; tables are in database 0, so leave the number out");
    }
    ServerNode node;
    if (sentinel) node.port = kSentinelPort;
    HET_RETURN_IF_ERROR(ParseNode(text, one, &node));
    address.nodes.push_back(node);
  }
  return address;
}

}  // namespace het
