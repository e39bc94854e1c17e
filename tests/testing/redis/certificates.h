// Certificates for one test, made by openssl in a folder that the destructor deletes: NAME.crt and NAME.key,
// both PEM. "ca" is a CA, and "server" is signed by it, for 127.0.0.1 and localhost.
#pragma once

#include <string>

#include "tests/testing/redis/redis_server.h"
#include "tests/testing/temp_folder.h"

namespace het::testing {

class Certificates {
 public:
  // Returns why a TLS server cannot run here; "" if it can.
  static std::string Missing();

  Certificates();

  void MakeCa(const std::string& name);
  // `subject`: such as "IP:127.0.0.1,DNS:localhost". With `days` -1 the certificate expired yesterday.
  void Issue(const std::string& name, const std::string& subject, const std::string& ca = "ca", int days = 2);
  void Run(const std::string& command);
  std::string Path(const std::string& file) const { return folder_.path() + "/" + file; }
  // The settings of a server that speaks TLS at this port with the certificate "server".
  RedisServer::Arguments Settings(int port) const;

 private:
  TempFolder folder_;
};

}  // namespace het::testing
