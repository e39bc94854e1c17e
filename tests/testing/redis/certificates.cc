#include "tests/testing/redis/certificates.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace het::testing {
namespace {

constexpr char kNewKey[] = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";

}  // namespace

std::string Certificates::Missing() {
  if (const std::string missing = RedisServer::Missing(); !missing.empty()) return missing;
  if (std::system("command -v openssl >/dev/null 2>&1") != 0) {
    return "openssl is not installed (apt-get install openssl)";
  }
  // A server without a certificate stops; the message shows whether it was built with TLS.
  const std::string probe =
      RedisServer::Program() + " --port 0 --tls-port 1 --save '' 2>&1 | grep -q tls-cert-file";
  return std::system(probe.c_str()) == 0 ? "" : RedisServer::Program() + " is built without TLS";
}

Certificates::Certificates() {
  MakeCa("ca");
  Issue("server", "IP:127.0.0.1,DNS:localhost");
}

void Certificates::Run(const std::string& command) {
  const std::string in_folder = "cd '" + folder_.path() + "' && { " + command + "; } >log 2>&1";
  EXPECT_EQ(std::system(in_folder.c_str()), 0) << command;
}

void Certificates::MakeCa(const std::string& name) {
  Run(std::string("openssl req -x509 ") + kNewKey + " -days 2 -subj '/CN=" + name + "' -keyout " + name +
      ".key -out " + name + ".crt");
}

void Certificates::Issue(const std::string& name, const std::string& subject, const std::string& ca,
                         int days) {
  Run("printf 'subjectAltName=" + subject + "\\n' >extensions && openssl req -new " + kNewKey +
      " -subj '/CN=" + name + "' -keyout " + name +
      ".key -out request && openssl x509 -req -in request -CA " + ca + ".crt -CAkey " + ca +
      ".key -CAcreateserial -extfile extensions -days " + std::to_string(days) + " -out " + name + ".crt");
}

RedisServer::Arguments Certificates::Settings(int port) const {
  return {"--tls-port",     std::to_string(port), "--bind",
          "127.0.0.1",      "--tls-cert-file",    Path("server.crt"),
          "--tls-key-file", Path("server.key"),   "--tls-ca-cert-file",
          Path("ca.crt"),   "--tls-auth-clients", "no"};
}

}  // namespace het::testing
