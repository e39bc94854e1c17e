// The address of a parameter server, as users write it in `ps=` or HET_PS.
//
//   redis://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]     one server, or nodes of a cluster to ask first
//   rediss://...[?ca=FILE][&cert=FILE][&key=FILE][&server_name=NAME]     the same over TLS
//   unix://[USER:PASSWORD@]/PATH                             a Unix socket of a server on this machine
//
// An empty USER is the default user. There is no percent-encoding.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "het_tf/core/base/status.h"

namespace het {

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
  std::string user;      // empty: the default user
  std::string password;  // empty: no AUTH
  std::optional<TlsSettings> tls;

  // For messages: without the password and the parameters.
  std::string ToString() const;
};

// InvalidArgument explains the error and shows the forms.
Result<ServerAddress> ParseServerAddress(const std::string& text);

}  // namespace het
