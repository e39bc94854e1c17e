// Where a parameter server is: the text that users give as `ps=` or HET_PS.
//
//   redis://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]     one server, or nodes of a cluster to ask first
//   unix://[USER:PASSWORD@]/PATH                             a Unix socket of a server on this machine
//
// USER may be empty: the default user.
#pragma once

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

struct ServerAddress {
  std::vector<ServerNode> nodes;
  std::string user;      // empty: the default user
  std::string password;  // empty: no AUTH

  // Without the password: for messages.
  std::string ToString() const;
};

// InvalidArgument says what is wrong and shows the forms.
Result<ServerAddress> ParseServerAddress(const std::string& text);

}  // namespace het
