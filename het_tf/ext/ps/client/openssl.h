// The functions of OpenSSL 3 that TlsStream calls. libssl.so.3 is opened when the first address uses TLS.
//
// TensorFlow exports BoringSSL's functions under the same names, with incompatible objects. So het_tf does
// not link OpenSSL: it opens the library apart, with the library's own names first, and looks each function
// up. The declarations here are complete; OpenSSL's headers are not needed.
#pragma once

#include "het_tf/core/base/status.h"

namespace het {

// F(name, result, parameters). SSL_CTX, SSL, BIO and the others are opaque.
#define HET_OPENSSL_FUNCTIONS(F)                                                               \
  F(OPENSSL_init_ssl, int, (uint64_t options, const void* settings))                           \
  F(TLS_client_method, const void*, ())                                                        \
  F(SSL_CTX_new, void*, (const void* method))                                                  \
  F(SSL_CTX_free, void, (void* context))                                                       \
  F(SSL_CTX_ctrl, long, (void* context, int command, long number, void* pointer))              \
  F(SSL_CTX_set_verify, void, (void* context, int mode, void* callback))                       \
  F(SSL_CTX_set_default_passwd_cb, void, (void* context, int (*)(char*, int, int, void*)))     \
  F(SSL_CTX_set_default_verify_paths, int, (void* context))                                    \
  F(SSL_CTX_load_verify_locations, int, (void* context, const char* file, const char* folder)) \
  F(SSL_CTX_use_certificate_chain_file, int, (void* context, const char* file))                \
  F(SSL_CTX_use_PrivateKey_file, int, (void* context, const char* file, int type))             \
  F(SSL_new, void*, (void* context))                                                           \
  F(SSL_free, void, (void* ssl))                                                               \
  F(SSL_ctrl, long, (void* ssl, int command, long number, void* pointer))                      \
  F(SSL_get0_param, void*, (void* ssl))                                                        \
  F(SSL_set1_host, int, (void* ssl, const char* name))                                         \
  F(SSL_set_bio, void, (void* ssl, void* in, void* out))                                       \
  F(SSL_set_connect_state, void, (void* ssl))                                                  \
  F(SSL_do_handshake, int, (void* ssl))                                                        \
  F(SSL_is_init_finished, int, (const void* ssl))                                              \
  F(SSL_read, int, (void* ssl, void* bytes, int size))                                         \
  F(SSL_write, int, (void* ssl, const void* bytes, int size))                                  \
  F(SSL_get_error, int, (const void* ssl, int result))                                         \
  F(SSL_get_verify_result, long, (const void* ssl))                                            \
  F(X509_VERIFY_PARAM_set1_ip_asc, int, (void* parameters, const char* address))               \
  F(X509_verify_cert_error_string, const char*, (long code))                                   \
  F(BIO_new, void*, (const void* method))                                                      \
  F(BIO_s_mem, const void*, ())                                                                \
  F(BIO_read, int, (void* bio, void* bytes, int size))                                         \
  F(BIO_write, int, (void* bio, const void* bytes, int size))                                  \
  F(ERR_clear_error, void, ())                                                                 \
  F(ERR_peek_last_error, unsigned long, ())                                                    \
  F(ERR_reason_error_string, const char*, (unsigned long code))

struct OpenSsl {
#define HET_DECLARE(name, result, parameters) result(*name) parameters = nullptr;
  HET_OPENSSL_FUNCTIONS(HET_DECLARE)
#undef HET_DECLARE

  // Returns the process's library, which is never closed. FailedPrecondition: there is no libssl.so.3.
  static Result<const OpenSsl*> Get();
};

}  // namespace het
