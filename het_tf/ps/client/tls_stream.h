// TLS (1.2 or newer) over a socket that never waits. The server's certificate is always verified: its
// chain, and that it is for the host that was connected to, or for TlsSettings::server_name.
//
//   Write ──► SSL ──► [sealed_] ──► Socket
//   Read  ◄── SSL ◄──  [in_]    ◄── Socket
//
// The files are read for each connection, so that new certificates need no restart.
#pragma once

#include <memory>
#include <string>

#include "het_tf/core/base/bytes.h"
#include "het_tf/ps/client/socket.h"

namespace het {

struct OpenSsl;

// Whether connections can be made with these settings. FailedPrecondition: there is no OpenSSL; kFile: a file
// cannot be read; InvalidArgument: it is not what it should be.
Status CheckTls(const TlsSettings& settings);

class TlsStream final : public Stream {
 public:
  TlsStream(const ServerNode& node, const TlsSettings& settings);

  int fd() const override { return socket_.fd(); }
  bool WantsToWrite(bool more) const override;
  Io Write(const iovec* parts, int count, size_t* written) override;
  Io Read(const iovec* parts, int count, size_t* got) override;
  const std::string& error() const override { return error_; }
  std::string Doubt(bool closed) const override;

 private:
  Status Begin();
  // What a call of SSL came to that did not succeed.
  Io Verdict(int result);
  std::string Reason() const;
  // What a server may have against this client.
  std::string AboutClient() const;
  // Sends what SSL has sealed; kDone when nothing of it is left.
  Io Flush();
  // More of what the server has sent, for SSL.
  Io Fetch();

  const ServerNode node_;
  const TlsSettings settings_;
  Socket socket_;
  const OpenSsl* openssl_ = nullptr;
  std::shared_ptr<void> ssl_;
  void* in_ = nullptr;  // memory BIOs of ssl_
  void* out_ = nullptr;
  Bytes sealed_;     // of out_, on its way
  size_t sent_ = 0;  // of it
  Bytes buffer_;
  std::string error_;
};

}  // namespace het
