#include "het_tf/ext/ps/client/tls_stream.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "het_tf/ext/ps/client/openssl.h"

namespace het {
namespace {

// Constants from OpenSSL's headers.
constexpr int kPem = 1;              // SSL_FILETYPE_PEM
constexpr int kVerifyPeer = 1;       // SSL_VERIFY_PEER
constexpr int kSetMinVersion = 123;  // SSL_CTRL_SET_MIN_PROTO_VERSION
constexpr long kTls12 = 0x0303;      // TLS1_2_VERSION
constexpr int kSetServerName = 55;   // SSL_CTRL_SET_TLSEXT_HOSTNAME
constexpr int kErrorWantRead = 2;    // SSL_ERROR_WANT_READ
constexpr int kErrorZeroReturn = 6;  // SSL_ERROR_ZERO_RETURN: the server closed the stream
constexpr long kNoIssuer = 2;        // X509_V_ERR_...
constexpr long kBadSignature = 7;
constexpr long kNotYetValid = 9;
constexpr long kHasExpired = 10;
constexpr long kSelfSigned = 18;
constexpr long kSelfSignedInChain = 19;
constexpr long kNoLocalIssuer = 20;
constexpr long kNoFirst = 21;
constexpr long kInvalidPurpose = 26;
constexpr long kOtherKey = 30;
constexpr long kHostMismatch = 62;
constexpr long kIpMismatch = 64;

// Bytes encrypted or read at once: several records of at most 16 KiB.
constexpr size_t kChunkBytes = size_t{64} << 10;

// Refuses a key with a pass phrase: there may be no terminal.
int NoPassPhrase(char*, int, int, void*) { return -1; }

// Shows only the path of `ca`: a certificate's file may contain its key.
Status CheckReadable(const std::string& parameter, const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file >= 0) {
    close(file);
    return Status();
  }
  const std::string why = std::strerror(errno);
  const std::string shown = parameter == "ca" ? "=" + path : "";
  return Status(Code::kFile, parameter + shown + " of the parameter server's address cannot be read: " + why +
                                 "; name a file that this user may read");
}

using Context = std::shared_ptr<void>;  // SSL_CTX

Status LoadFiles(const OpenSsl& ssl, void* context, const TlsSettings& settings) {
  if (settings.ca.empty()) {
    ssl.SSL_CTX_set_default_verify_paths(context);
  } else {
    HET_RETURN_IF_ERROR(CheckReadable("ca", settings.ca));
    if (ssl.SSL_CTX_load_verify_locations(context, settings.ca.c_str(), nullptr) != 1)
      return InvalidArgument("ca=" + settings.ca +
                             " of the parameter server's address has no certificate in PEM");
  }
  if (settings.cert.empty()) return Status();
  HET_RETURN_IF_ERROR(CheckReadable("cert", settings.cert));
  if (ssl.SSL_CTX_use_certificate_chain_file(context, settings.cert.c_str()) != 1) {
    return InvalidArgument("cert of the parameter server's address has no certificate in PEM");
  }
  const std::string& key = settings.key.empty() ? settings.cert : settings.key;
  HET_RETURN_IF_ERROR(CheckReadable("key", key));
  if (ssl.SSL_CTX_use_PrivateKey_file(context, key.c_str(), kPem) != 1) {
    return InvalidArgument(
        "key of the parameter server's address is not the private key of cert, in PEM and without a pass "
        "phrase");
  }
  return Status();
}

Result<Context> NewContext(const OpenSsl& ssl, const TlsSettings& settings) {
  Context context(ssl.SSL_CTX_new(ssl.TLS_client_method()), ssl.SSL_CTX_free);
  if (context == nullptr) return Status(Code::kResourceExhausted, "OpenSSL makes no context: out of memory");
  ssl.SSL_CTX_ctrl(context.get(), kSetMinVersion, kTls12, nullptr);
  ssl.SSL_CTX_set_verify(context.get(), kVerifyPeer, nullptr);
  ssl.SSL_CTX_set_default_passwd_cb(context.get(), NoPassPhrase);
  const Status loaded = LoadFiles(ssl, context.get(), settings);
  ssl.ERR_clear_error();
  if (!loaded.ok()) return loaded;
  return context;
}

bool Contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

Status CheckTls(const TlsSettings& settings) {
  HET_ASSIGN_OR_RETURN(const OpenSsl* const ssl, OpenSsl::Get());
  return NewContext(*ssl, settings).status();
}

TlsStream::TlsStream(const ServerNode& node, const TlsSettings& settings)
    : node_(node), settings_(settings), socket_(node), error_(socket_.error()) {
  if (!error_.empty()) return;
  const Status begun = Begin();
  if (!begun.ok()) error_ = node_.ToString() + ": " + begun.message();
}

Status TlsStream::Begin() {
  HET_ASSIGN_OR_RETURN(openssl_, OpenSsl::Get());
  HET_ASSIGN_OR_RETURN(const Context context, NewContext(*openssl_, settings_));
  ssl_ = std::shared_ptr<void>(openssl_->SSL_new(context.get()), openssl_->SSL_free);
  in_ = openssl_->BIO_new(openssl_->BIO_s_mem());
  out_ = openssl_->BIO_new(openssl_->BIO_s_mem());
  if (ssl_ == nullptr || in_ == nullptr || out_ == nullptr)
    return Status(Code::kResourceExhausted, "OpenSSL makes no connection: out of memory");
  openssl_->SSL_set_bio(ssl_.get(), in_, out_);
  // An address must be among the certificate's addresses, a name among its names.
  const std::string& name = settings_.server_name.empty() ? node_.host : settings_.server_name;
  void* const parameters = openssl_->SSL_get0_param(ssl_.get());
  if (openssl_->X509_VERIFY_PARAM_set1_ip_asc(parameters, name.c_str()) != 1) {
    if (openssl_->SSL_set1_host(ssl_.get(), name.c_str()) != 1)
      return InvalidArgument("'" + name + "' is not a valid name for a certificate");
    openssl_->SSL_ctrl(ssl_.get(), kSetServerName, 0, const_cast<char*>(name.c_str()));
  }
  openssl_->SSL_set_connect_state(ssl_.get());
  openssl_->ERR_clear_error();
  openssl_->SSL_do_handshake(ssl_.get());  // makes the first message, which Write sends
  Flush();
  return Status();
}

bool TlsStream::WantsToWrite(bool more) const {
  if (!error_.empty()) return false;
  return socket_.WantsToWrite(sent_ < sealed_.size()) ||
         (more && openssl_->SSL_is_init_finished(ssl_.get()) == 1);
}

Stream::Io TlsStream::Flush() {
  for (;;) {
    if (sent_ == sealed_.size()) {
      sealed_.resize(kChunkBytes);
      const int size = openssl_->BIO_read(out_, sealed_.data(), static_cast<int>(kChunkBytes));
      sealed_.resize(static_cast<size_t>(std::max(size, 0)));
      sent_ = 0;
      if (sealed_.empty()) return Io::kDone;
    }
    const iovec rest{sealed_.data() + sent_, sealed_.size() - sent_};
    size_t written = 0;
    const Io io = socket_.Write(&rest, 1, &written);
    sent_ += written;
    if (io == Io::kFailed) error_ = socket_.error();
    if (io != Io::kDone) return io;
  }
}

Stream::Io TlsStream::Fetch() {
  buffer_.resize(kChunkBytes);
  const iovec room{buffer_.data(), buffer_.size()};
  size_t got = 0;
  const Io io = socket_.Read(&room, 1, &got);
  if (got > 0) {
    openssl_->BIO_write(in_, buffer_.data(), static_cast<int>(got));
    return Io::kDone;
  }
  if (io == Io::kFailed) error_ = socket_.error();
  return io;
}

Stream::Io TlsStream::Verdict(int result) {
  const int error = openssl_->SSL_get_error(ssl_.get(), result);
  if (error == kErrorWantRead) return Io::kWait;
  error_ = error == kErrorZeroReturn ? node_.ToString() + " closed the connection" : Reason();
  return Io::kFailed;
}

Stream::Io TlsStream::Write(const iovec* parts, int count, size_t* written) {
  *written = 0;
  if (!error_.empty()) return Io::kFailed;
  int part = 0;
  size_t at = 0;  // offset in the part
  for (;;) {
    const Io flushed = Flush();
    if (flushed != Io::kDone) return flushed;
    openssl_->ERR_clear_error();
    if (openssl_->SSL_is_init_finished(ssl_.get()) != 1) {
      const int result = openssl_->SSL_do_handshake(ssl_.get());
      if (result != 1) return Verdict(result);
      continue;
    }
    buffer_.clear();  // collects small parts into one record
    for (; part < count && buffer_.size() < kChunkBytes; at = 0, ++part) {
      const auto* const bytes = static_cast<const uint8_t*>(parts[part].iov_base);
      const size_t size = std::min(parts[part].iov_len - at, kChunkBytes - buffer_.size());
      buffer_.insert(buffer_.end(), bytes + at, bytes + at + size);
      at += size;
      if (at < parts[part].iov_len) break;
    }
    if (buffer_.empty()) return Io::kDone;
    const int taken = openssl_->SSL_write(ssl_.get(), buffer_.data(), static_cast<int>(buffer_.size()));
    if (taken <= 0) return Verdict(taken);
    *written += static_cast<size_t>(taken);
  }
}

Stream::Io TlsStream::Read(const iovec* parts, int count, size_t* got) {
  *got = 0;
  if (!error_.empty()) return Io::kFailed;
  for (int part = 0; part < count; ++part) {
    for (size_t at = 0; at < parts[part].iov_len;) {
      openssl_->ERR_clear_error();
      const size_t room = std::min<size_t>(parts[part].iov_len - at, INT32_MAX);
      const int came = openssl_->SSL_read(ssl_.get(), static_cast<uint8_t*>(parts[part].iov_base) + at,
                                          static_cast<int>(room));
      if (came > 0) {
        at += static_cast<size_t>(came);
        *got += static_cast<size_t>(came);
        continue;
      }
      const Io verdict = Verdict(came);
      const std::string why = error_;
      Flush();  // SSL's own messages: handshake, new keys, alerts
      if (verdict == Io::kFailed) error_ = why;
      if (!error_.empty()) return Io::kFailed;
      const Io fetched = Fetch();
      if (fetched != Io::kDone) return fetched;
    }
  }
  return Io::kDone;
}

std::string TlsStream::Reason() const {
  const std::string where = node_.ToString();
  const long verified = openssl_->SSL_get_verify_result(ssl_.get());
  if (verified != 0) {
    const std::string refused =
        where + " shows a certificate that is refused: " + openssl_->X509_verify_cert_error_string(verified);
    switch (verified) {
      case kNotYetValid:
        return refused + "; check the clocks of both machines";
      case kHasExpired:
        return refused + "; renew the server's certificate, or its CA's";
      case kHostMismatch:
      case kIpMismatch:
        return refused + "; connect to a host that it names, or name one by ?server_name=NAME";
      case kInvalidPurpose:
        return refused +
               "; it is for other uses: issue one with extendedKeyUsage = serverAuth, clientAuth (servers of "
               "a "
               "cluster show it to each other)";
      case kNoIssuer:
      case kBadSignature:
      case kSelfSigned:
      case kSelfSignedInChain:
      case kNoLocalIssuer:
      case kNoFirst:
      case kOtherKey:
        return refused + (settings_.ca.empty() ? "; give the CA that signed it by ?ca=FILE"
                                               : "; ca=" + settings_.ca + " is not the CA that signed it");
      default:
        return refused + "; look at it, and at its CA's: openssl x509 -text -in FILE";
    }
  }
  const char* const text = openssl_->ERR_reason_error_string(openssl_->ERR_peek_last_error());
  const std::string why = text == nullptr ? "no reason given" : text;
  if (Contains(why, "wrong version number") || Contains(why, "packet length")) {
    return where + " does not speak TLS (" + why + "); write redis:// for a server without it";
  }
  if (Contains(why, "protocol version") || Contains(why, "unsupported protocol")) {
    return where + " speaks no TLS of today: " + why +
           "; TLS 1.2 is the oldest that is spoken here: set its tls-protocols to 'TLSv1.2 TLSv1.3'";
  }
  if (Contains(why, "alert")) {
    return where + " refuses the connection: " + why + "; " + AboutClient();
  }
  return where + " breaks TLS: " + why;
}

std::string TlsStream::AboutClient() const {
  return settings_.cert.empty() ? "it may want a certificate of this client: ?cert=FILE&key=FILE"
                                : "its CA may not know the certificate of this client";
}

std::string TlsStream::Doubt(bool closed) const {
  // A failure of TLS itself explains enough.
  if (ssl_ == nullptr || !socket_.connected() || (closed && socket_.error().empty())) return "";
  if (openssl_->SSL_is_init_finished(ssl_.get()) != 1)
    return "a server that does not speak TLS needs redis:// for rediss://";
  return closed ? AboutClient() : "";
}

std::unique_ptr<Stream> OpenStream(const ServerNode& node, const ServerAddress& address) {
  if (!address.tls) return std::make_unique<Socket>(node);
  return std::make_unique<TlsStream>(node, *address.tls);
}

}  // namespace het
