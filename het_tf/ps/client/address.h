// Where a parameter server is: the text that users give as `ps=` or HET_PS.
//
//   redis://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]     one server, or nodes of a cluster to ask first
//   rediss://...[?ca=FILE][&cert=FILE][&key=FILE][&server_name=NAME]     the same over TLS
//   unix://[USER:PASSWORD@]/PATH                             a Unix socket of a server on this machine
//
// USER may be empty: the default user. Everything stands as it is, without percent-encoding.
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

// Files in PEM.
struct TlsSettings {
  std::string ca;           // who may sign servers' certificates; empty: whom the system trusts
  std::string cert;         // of this client, with what lies between it and its CA; empty: none
  std::string key;          // of `cert`; empty: it is in the same file
  std::string server_name;  // that a server's certificate is for; empty: the host that is connected to
};

struct ServerAddress {
  std::vector<ServerNode> nodes;
  std::string user;      // empty: the default user
  std::string password;  // empty: no AUTH
  std::optional<TlsSettings> tls;

  // Without the password and what stands behind '?': for messages.
  std::string ToString() const;
};

// InvalidArgument says what is wrong and shows the forms.
Result<ServerAddress> ParseServerAddress(const std::string& text);

}  // namespace het
