// The address of a parameter server, as users write it in `ps=` or HET_PS.
//
//   redis://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]     one server, or nodes of a cluster to ask first
//   rediss://...[?ca=FILE][&cert=FILE][&key=FILE][&server_name=NAME]     the same over TLS
//   redis+sentinel://...HOST[:PORT][,...]/SERVICE, rediss+sentinel://...     Sentinels, which name the server
//   unix://[USER:PASSWORD@]/PATH                             a Unix socket of a server on this machine
//
// An empty USER is the default user. USER and PASSWORD are percent-encoded: % is written %25; other
// characters may stand for themselves. Without PASSWORD (USER@ or no login), ?password_file=FILE or
// ?password_env=NAME says where it is read, again for each connection.
#pragma once

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "het_tf/core/base/status.h"

namespace het {

inline bool StartsWith(const std::string& text, const std::string& prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}
inline bool StartsWithAny(const std::string& text, std::initializer_list<const char*> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](const char* one) { return StartsWith(text, one); });
}

struct ServerNode {
  std::string host;  // empty: `path` is a Unix socket
  int port = 6379;
  std::string path;

  std::string ToString() const { return host.empty() ? path : host + ":" + std::to_string(port); }
  friend bool operator==(const ServerNode& a, const ServerNode& b) {
    return a.host == b.host && a.port == b.port && a.path == b.path;
  }
};

// Paths of PEM files.
struct TlsSettings {
  std::string ca;           // CA certificates; empty: the system's
  std::string cert;         // this client's, with intermediate certificates; empty: none
  std::string key;          // of `cert`; empty: in the same file
  std::string server_name;  // expected in the server's certificate; empty: the host
};

struct ServerAddress {
  std::vector<ServerNode> nodes;
  std::string service;   // what the nodes, which are Sentinels, call the server; empty: they are servers
  std::string user;      // empty: the default user
  std::string password;  // empty: one of the next three, or no AUTH
  std::string password_file;
  std::string password_env;                           // the name of a variable
  std::function<Result<std::string>()> ask_password;  // called by any thread
  std::optional<TlsSettings> tls;

  // The password for a new connection. An error says what could not be read.
  Result<std::string> Password() const;

  // For messages: without the password and the parameters.
  std::string ToString() const;
};

// InvalidArgument explains the error and shows the forms. `ask_password`: gives the password; the text must
// have none.
Result<ServerAddress> ParseServerAddress(const std::string& text,
                                         std::function<Result<std::string>()> ask_password = nullptr);

}  // namespace het
