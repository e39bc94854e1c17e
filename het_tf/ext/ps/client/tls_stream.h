// TLS (1.2 or newer) over a nonblocking socket. It always verifies the server's certificate: the chain, and
// the host or TlsSettings::server_name.
//
//   Write ──► SSL ──► [sealed_] ──► Socket
//   Read  ◄── SSL ◄──  [in_]    ◄── Socket
//
// The files are read again for each connection, so that new certificates need no restart.
#pragma once

#include <memory>
#include <string>

#include "het_tf/core/base/bytes.h"
#include "het_tf/ext/ps/client/socket.h"

namespace het {

struct OpenSsl;

// Checks that these settings allow connections. FailedPrecondition: there is no OpenSSL; kFile: a file cannot
// be read; InvalidArgument: a file has the wrong content.
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
  // Converts the result of a failed SSL call.
  Io Verdict(int result);
  std::string Reason() const;
  // A likely objection of the server to this client.
  std::string AboutClient() const;
  // Sends encrypted bytes; kDone when all are sent.
  Io Flush();
  // Reads more of the server's bytes for SSL.
  Io Fetch();

  const ServerNode node_;
  const TlsSettings settings_;
  Socket socket_;
  const OpenSsl* openssl_ = nullptr;
  std::shared_ptr<void> ssl_;
  void* in_ = nullptr;  // memory BIOs of ssl_
  void* out_ = nullptr;
  Bytes sealed_;     // bytes of out_ to send
  size_t sent_ = 0;  // bytes of sealed_ that are sent
  Bytes buffer_;
  std::string error_;
};

}  // namespace het
